"""Files of this user: folders of eqsat, a hash of the code that made them, and text as a whole.

A text file is read completely or refused with a reason, written completely or not at all.
"""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
from functools import cache
from pathlib import Path

from eqsat.model.diag import Diagnostic, EqsatWarning, fail

VARIABLE = "EQSAT_CACHE"  # a folder, in place of the platform's


def cache_folder(name: str) -> Path:
    """The folder of one kind of cache: below `EQSAT_CACHE`, else the platform's for eqsat."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given) / name
    from platformdirs import user_cache_path

    return user_cache_path("eqsat", appauthor=False) / name


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone; OSError."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def why_not_private(folder: Path) -> str:
    """Reason why others may change a folder's files, in words; "" if nobody but this user and root.

    Code that is kept there is run as it is found. Where there are no users (Windows), nobody.
    """
    if not hasattr(os, "geteuid"):
        return ""
    at = folder.resolve()
    for path in (at, *at.parents):
        status = path.stat()
        if not is_own(status):
            return f"`{path}` belongs to another user"
        sticky = path != at and status.st_mode & stat.S_ISVTX  # others may add, but not replace
        if status.st_mode & _writable_by_others(status) and not sticky:
            return f"others may write to `{path}`"
    return ""


@cache
def is_private(folder: Path, otherwise: str) -> bool:
    """Whether nobody else may have written what is there; a warning (E516) says once if not.

    otherwise: what is done then.
    """
    why = why_not_private(folder)
    if why:
        help = f"make it yours alone (`chmod go-w`), or name another folder in `{VARIABLE}`"
        told = Diagnostic("E516", f"{otherwise}: {why}", help=help, severity="warning")
        warnings.warn(EqsatWarning(told), stacklevel=3)
    return not why


def is_own(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's, or root's."""
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


def _writable_by_others(status: os.stat_result) -> int:
    """The bits of a mode that let others in: a group of this user's own has nobody else."""
    own_group = status.st_gid in (0, os.getegid())
    return stat.S_IWOTH | (0 if own_group else stat.S_IWGRP)


@cache
def code_digest(*folders: str) -> str:
    """A hash of the package's code, all of it or these folders, as a part of cache keys.

    The version is not enough, as an editable installation changes in place.
    """
    root = Path(__file__).parents[1]
    files = sorted(p for name in folders or (".",) for p in (root / name).rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def read_text(path: Path, code: str, largest_bytes: int, doubt: str = "") -> str:
    """The UTF-8 text of a file, a byte order mark apart; EqsatError with this code.

    doubt: the hint of the message if it is not UTF-8.
    """
    try:
        if not path.is_file():
            raise fail(code, f"no file `{path}`")
        if (size := path.stat().st_size) > largest_bytes:
            raise fail(code, f"`{path}` has {size} bytes; at most {largest_bytes} are read")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise fail(code, f"`{path}` is not UTF-8 at byte {e.start}{doubt}") from None
    except (OSError, ValueError) as e:  # ValueError: a null character in the path
        reason = e.strerror if isinstance(e, OSError) else str(e)
        raise fail(code, f"`{path}` cannot be read: {reason}") from None


def write_text(path: Path, text: str) -> Path:
    """Write a file aside, then rename it, so that it is never partial; EqsatError (E407)."""
    try:
        _write_aside(path, text)
    except OSError as e:
        raise fail("E407", f"cannot write `{path}`: {e.strerror or e}") from e
    return path


def _write_aside(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
