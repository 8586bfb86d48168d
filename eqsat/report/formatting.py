"""Figures and tables as people read them, in text and in pages of one self-contained file.

Pages have no network and no scripts, and are light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
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


def shortened(text: str, width: int) -> str:
    """The text in so many characters: its middle goes, as the ends tell names apart."""
    if len(text) <= width:
        return text
    head = max(width - 1, 1) // 2
    return f"{text[:head]}…{text[len(text) - (max(width - 1, 1) - head) :]}"


def _three(x: float) -> str:
    digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 10 else 2
    text = f"{x:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table_text(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Columns aligned by spaces; figures to the right, the first and last column to the left."""
    table = [columns, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    last = len(columns) - 1
    lines = [
        "  ".join(
            c.ljust(w) if i in (0, last) else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join(lines) + "\n"


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
.wide{overflow-x:auto}
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
    return f"<{tag}{' class=n' if is_figure else ''}>{inner}</{tag}>"
