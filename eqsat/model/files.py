"""Files of this user and records from them: folders of eqsat, a hash of its code, plain data.

A text file is read completely or refused with a reason, written completely or not at all. Records
are restored from JSON by the declared types of their fields.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from eqsat.model.diag import Diagnostic, EqsatWarning, fail

ASIDE = ".aside"  # of a file that is being written
_NUMBERS = itertools.count()  # of the files that this process wrote
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
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, text.encode())
    except OSError as e:
        raise fail("E407", f"cannot write `{path}`: {e.strerror or e}") from e
    return path


def write_aside(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file under another name, then rename it; OSError, with nothing left behind."""
    aside = path.with_name(f".{os.getpid()}.{next(_NUMBERS)}{ASIDE}")
    try:
        aside.write_bytes(data)
        if mode is not None:
            aside.chmod(mode)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


T = TypeVar("T")
# what JSON may have for a plain type: a float with no fraction is written as a whole number
_PLAIN: dict[Any, Any] = {int: int, float: (int, float), str: str, bool: bool}


def restored(kind: type[T], data: Mapping[str, Any] | Sequence[Any]) -> T:
    """A dataclass or named tuple from its fields by name, or from the first of them in order.

    What is left out keeps its default. Fields are restored as their types say: tuples of what they
    name, records by their own `from_json` where they have one. TypeError for a value that its field
    cannot have.
    """
    names = _fields(kind)
    values = data if isinstance(data, Mapping) else dict(zip(names, data, strict=False))
    return kind(**{k: _value(names[k], v) for k, v in values.items()})


def _value(hint: Any, data: Any) -> Any:
    """Data as a field of this type has it."""
    if data is None:
        if not (hint in (Any, None, object) or NoneType in get_args(hint)):
            raise TypeError("a value is missing")
        return None
    hint = _without_none(hint)
    if hint in _PLAIN:
        return as_plain(hint, data)
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    if isinstance(hint, type) and _fields(hint):
        return restored(hint, data)
    if isinstance(data, Mapping) and get_origin(hint) is tuple:  # pairs, written as a mapping
        data = list(data.items())
    if not isinstance(data, list | tuple):
        if get_origin(hint) is tuple:
            raise TypeError(f"{data!s:.60} is no list")
        return data
    if get_origin(hint) is dict:
        raise TypeError("a list, and no keys with values")
    inner = get_args(hint)
    if ... in inner or not inner:
        inner = (inner[0] if inner else None,) * len(data)
    if len(inner) != len(data):
        raise TypeError(f"{len(data)} values for {len(inner)}")
    return tuple(map(_value, inner, data))


def as_plain(hint: type[T], data: Any) -> Any:
    """Text, a truth or a number of this type; TypeError if it is something else."""
    if not isinstance(data, _PLAIN[hint]) or (isinstance(data, bool) and hint is not bool):
        raise TypeError(f"{data!s:.60} is no {hint.__name__}")
    return data


def _without_none(hint: Any) -> Any:
    """Of `X | None`, X."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [k for k in get_args(hint) if k is not NoneType]
        return kinds[0] if len(kinds) == 1 else None
    return hint


class JsonRecord:
    """A dataclass whose fields are a JSON object; `restored` reads it.

    FORMAT: the number that it names, 0: none. TOLD: properties that are written as well.
    """

    FORMAT: ClassVar[int] = 0
    TOLD: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        head = {"format": self.FORMAT} if self.FORMAT else {}
        return head | {k: _plain(getattr(self, k)) for k in (*_fields(type(self)), *self.TOLD)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return restored(cls, {k: v for k, v in data.items() if k not in ("format", *cls.TOLD)})


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {k: _plain(getattr(value, k)) for k in _fields(type(value))}
    return list(map(_plain, value)) if isinstance(value, tuple | list) else value


@cache
def _fields(kind: type) -> dict[str, Any]:
    """Names and types of the fields of a dataclass or named tuple; none of other types."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {f.name: hints[f.name] for f in fields(kind)}
    return get_type_hints(kind) if hasattr(kind, "_fields") else {}
