"""What a terminal shows: colours, a live line, tables that fit. Of a pipe or file: none of it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from eqsat.report.formatting import Screen, shown_on

if TYPE_CHECKING:
    from rich.live import Live

RED, YELLOW, BLUE, CYAN = "1;31", "1;33", "1;34", "1;36"
_HEAD = re.compile(r"^(error|warning)(\[\w+\])?", re.MULTILINE)
_GUTTER = re.compile(r"^( *\d* \||\s*-->)", re.MULTILINE)
_MARKS = re.compile(r"(?<= \| )( *)(\^+.*|-+.*)$", re.MULTILINE)
_HELP = re.compile(r"^(  = )(help:)", re.MULTILINE)


def has_colours(stream: TextIO) -> bool:
    """Whether a terminal is there that shows colours, and nobody asked for none (`NO_COLOR`)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def on_screen() -> AbstractContextManager[None]:
    """Tables inside fit the terminal that stdout is, if it is one."""
    if not sys.stdout.isatty():
        return shown_on(None)
    return shown_on(Screen(shutil.get_terminal_size().columns, has_colours(sys.stdout)))


def painted(diagnostic: str, stream: TextIO) -> str:
    """The full text of diagnostics, in colours where the stream has them."""
    if not has_colours(stream):
        return diagnostic
    text = _HEAD.sub(lambda m: _in(YELLOW if m[1] == "warning" else RED, m[0]), diagnostic)
    text = _MARKS.sub(lambda m: m[1] + _in(RED if m[2][0] == "^" else BLUE, m[2]), text)
    text = _GUTTER.sub(lambda m: _in(BLUE, m[0]), text)
    return _HELP.sub(lambda m: m[1] + _in(CYAN, m[2]), text)


def _in(colour: str, text: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"


# ---- a live line ---------------------------------------------------------------------------------
_shown: list[Live] = []


@contextmanager
def live_line(line: Callable[[], Any]) -> Iterator[None]:
    """A line on stderr that is kept up to date; gone at the end, and at `no_live_line`."""
    from rich.console import Console
    from rich.live import Live

    live = Live(get_renderable=line, console=Console(stderr=True), transient=True)
    _shown.append(live)
    try:
        with live:
            yield
    finally:
        _shown.remove(live)


def above_live_line(text: str) -> bool:
    """Print a text above the live line, as it is; False if there is none."""
    if not _shown or not _shown[-1].is_started:
        return False
    from rich.text import Text

    _shown[-1].console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)
    return True


def no_live_line() -> None:
    """Take the live line away and show the cursor, from any thread."""
    for live in _shown:
        live.stop()
