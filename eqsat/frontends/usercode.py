"""Where in the user's own code something was raised that a library only passed on."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

from eqsat.model.diag import Span

PACKAGE = Path(__file__).parents[1]
LIBRARIES = tuple(
    Path(p) for p in {sysconfig.get_path(k) for k in ("stdlib", "purelib", "platlib")}
)


def raised_at(error: BaseException) -> Span | None:
    """The innermost line outside of eqsat and of installed packages; None if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if frame.lineno and path.is_file() and not is_library(path.resolve()):
            text = linecache.getline(frame.filename, frame.lineno).rstrip("\n")
            indent = len(text) - len(text.lstrip())
            first = frame.colno if frame.colno is not None else indent
            on_one_line = frame.end_lineno == frame.lineno and frame.end_colno is not None
            last = frame.end_colno if on_one_line and frame.end_colno else len(text)
            return Span(_shown(path), frame.lineno, first + 1, last + 1, text)
    return None


def is_library(path: Path) -> bool:
    """Whether a file is of eqsat itself, of Python or of an installed package."""
    return any(path.is_relative_to(p) for p in (PACKAGE, *LIBRARIES))


def _shown(path: Path) -> str:
    """Relative to here where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
