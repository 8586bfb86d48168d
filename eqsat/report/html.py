"""Pages of tables: one self-contained file, no network, no scripts, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

STYLE = """
:root{--ink:#1b1f24;--soft:#59636e;--paper:#fff;--line:#d1d9e0;--tint:#f3f5f7;--mark:#0b62c4}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--paper:#14181c;
--line:#39414a;--tint:#1d2329;--mark:#69aef5}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:90rem;padding:1rem;color:var(--ink);background:var(--paper);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
p{margin:.4rem 0}.soft{color:var(--soft)}
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
