"""Figures and tables as people read them, in text and in pages of one self-contained file.

Pages have no network and no scripts, and are light or dark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from textwrap import wrap
from urllib.parse import quote

PS_PER_US = 1e6
SIZES = ("memory", "relayout", "resident", "load_peak")  # goals that are bytes
_TIMES = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def time_text(ps: int | float) -> str:
    """Picoseconds with three significant digits: `41.2 us`."""
    for unit, scale in _TIMES:
        if abs(ps) >= scale:
            return f"{_three(ps / scale)} {unit}"
    return "0 ps"


def bytes_text(n: int) -> str:
    """`512 KiB`, `1.5 MiB`; whole bytes below 1 KiB."""
    for unit, scale in _SIZES:
        if abs(n) >= scale:
            return f"{_three(n / scale)} {unit}"
    return f"{n} B"


def seconds_text(seconds: float | None) -> str:
    """Wall time of a phase: `4 ms`, `1.9 s`; a dash if the phase did not run."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def goal_text(goal: str, value: int) -> str:
    """A goal's value in its unit."""
    if goal == "time":
        return time_text(value)
    if goal == "weighted":  # a sum of goals, in millionths of it
        return f"{_three(value / 1e4)} %"
    return bytes_text(value) if goal in SIZES else f"{value:,}"


def us_text(us: float) -> str:
    """Microseconds, as JSON has them, with three significant digits: `41.2 us`."""
    return time_text(us * PS_PER_US)


def delta_text(goal: str, value: int) -> str:
    """A signed difference in the goal's unit: `+9.8 us`."""
    return f"{'-' if value < 0 else '+'}{goal_text(goal, abs(value))}"


def count_text(n: int, one: str, many: str = "") -> str:
    """`1 op`, `2 ops`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def ratio_text(before: int, after: int) -> str:
    """How the chosen program compares: `0.38x`; `1.00x` if both are nothing."""
    if before == after:
        return "1.00x"
    return f"{after / before:.2f}x" if before else "–"


def _three(x: float) -> str:
    digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2
    text = f"{x:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- tables of text ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Screen:
    """Where text is shown: characters per line, and whether it has colours."""

    width: int
    is_coloured: bool = False


_SCREEN: ContextVar[Screen | None] = ContextVar("screen", default=None)
# characters that the first column keeps, any other, and one of sentences
LEAST_FIRST, LEAST, LEAST_PROSE = 20, 8, 20
Table = Sequence[Sequence[str]]


@contextmanager
def shown_on(screen: Screen | None) -> Iterator[None]:
    """Tables inside fit this screen; None: they are as wide as they are."""
    token = _SCREEN.set(screen)
    try:
        yield
    finally:
        _SCREEN.reset(token)


def table_text(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns aligned by spaces; figures to the right, the first and last column to the left.

    On a screen names are shortened in the middle and sentences broken into lines; columns that do
    not fit beside the others follow below, with the first one again.
    """
    screen, table = _SCREEN.get(), [columns, *rows]
    left = {0, len(columns) - 1}
    if screen is None:
        return _aligned(table, _widths(table), left)
    prose = {i for i, c in enumerate(zip(*table, strict=True)) if _is_prose(c)}
    floors = [min(w, _least(i, i in prose)) for i, w in enumerate(_widths(table))]
    texts = []
    for part in _parts(floors, screen.width):
        shown = [[row[i] for i in part] for row in table]
        widths = _fitted(_widths(shown), [floors[i] for i in part], screen.width)
        wrapped = {k for k, i in enumerate(part) if i in prose}
        lines = [line for row in shown for line in _cut(row, widths, wrapped)]
        at_left = {k for k, i in enumerate(part) if i in left | prose}
        texts.append(_aligned(lines, widths, at_left))
    return "\n".join(texts)


def heading(line: str) -> str:
    """The head of a table, bold where there are colours."""
    screen = _SCREEN.get()
    return f"\x1b[1m{line}\x1b[0m" if screen is not None and screen.is_coloured else line


def elided(text: str, width: int) -> str:
    """At most so many characters, with both ends: `encoder.lay…y.weight`."""
    if len(text) <= width:
        return text
    tail = max(width - 1, 0) // 2
    return f"{text[: max(width - 1, 0) - tail]}…{text[len(text) - tail :]}"


def _widths(table: Table) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _is_prose(column: Sequence[str]) -> bool:
    """Whether there are sentences or long lists in it, which can be broken into lines."""
    return any(len(cell.split()) > 4 for cell in column)


def _least(i: int, is_prose: bool) -> int:
    return LEAST_PROSE if is_prose else LEAST if i else LEAST_FIRST


def _parts(floors: Sequence[int], room: int) -> list[list[int]]:
    """Columns that can stand side by side; all parts begin with the first one."""
    parts, width = [[0]], floors[0]
    for i, floor in enumerate(floors[1:], 1):
        if width + 2 + floor > room and len(parts[-1]) > 1:
            parts.append([0])
            width = floors[0]
        parts[-1].append(i)
        width += 2 + floor
    return parts


def _fitted(widths: list[int], floors: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit, if they can: the widest are cut first."""
    while sum(widths) + 2 * (len(widths) - 1) > room and widths != floors:
        _, widest = max((w, i) for i, w in enumerate(widths) if w > floors[i])
        widths[widest] -= 1
    return widths


def _cut(row: Sequence[str], widths: Sequence[int], prose: Collection[int]) -> Iterator[list[str]]:
    """The lines of a row whose cells have these widths."""
    cells = [
        (wrap(c, w) or [""]) if i in prose else [elided(c, w)]
        for i, (c, w) in enumerate(zip(row, widths, strict=True))
    ]
    yield from map(list, zip_longest(*cells, fillvalue=""))


def _aligned(table: Table, widths: Sequence[int], left: Collection[int]) -> str:
    """left: the columns that are aligned there."""
    lines = [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join([heading(lines[0]), *lines[1:]]) + "\n"


# ---- pages ---------------------------------------------------------------------------------------
STYLE = """
:root{--ink:#1b1f24;--soft:#59636e;--paper:#fff;--line:#d1d9e0;--tint:#f3f5f7;--mark:#0b62c4}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--paper:#14181c;
--line:#39414a;--tint:#1d2329;--mark:#69aef5}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:90rem;padding:1rem;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}.soft{color:var(--soft)}a,a:visited{color:var(--mark)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
.wide{overflow-x:auto}.prose{min-width:18rem}
@media(max-width:800px){.wide :is(td,th):not(.prose){white-space:nowrap}}
pre,code{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--tint);padding:.6rem;margin:0;overflow-x:auto;border-radius:4px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem}
.pair>div{min-width:0}
svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .axis{stroke:var(--line)}
"""


def document(title: str, body: str, style: str = "") -> str:
    """A page around this body; style: CSS behind that of all pages."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """A heading and what it heads; nothing if there is nothing."""
    return f"<section><h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


PROSE = 40  # characters of a cell from which on a narrow screen scrolls, not breaks every word


def html_table(
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    figures: range | tuple[int, ...] = (),
    links: Mapping[tuple[int, int], str] | None = None,
) -> str:
    """A table of escaped cells; `figures` are the right-aligned columns.

    links: files that cells lead to, by row and column: paths below the page's own folder.
    """
    to = links or {}
    head = "".join(_cell("th", c, i in figures) for i, c in enumerate(columns))
    lines = [
        "<tr>"
        + "".join(_cell("td", c, i in figures, to.get((n, i), "")) for i, c in enumerate(row))
        + "</tr>"
        for n, row in enumerate(rows)
    ]
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def link(path: str, text: str) -> str:
    """A link to a file below the page's own folder."""
    return f'<a href="{escape(quote(path))}">{escape(text)}</a>'


def _cell(tag: str, text: str, is_figure: bool, path: str = "") -> str:
    inner = link(path, text) if path else escape(text)
    kind = " class=n" if is_figure else " class=prose" if len(text) > PROSE else ""
    return f"<{tag}{kind}>{inner}</{tag}>"
