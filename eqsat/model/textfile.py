"""Text files: read completely or refused with a reason, written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from eqsat.model.diag import fail


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
