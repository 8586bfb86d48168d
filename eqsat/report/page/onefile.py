"""A page as one HTML file: styles, libraries and scripts are put in, nothing is fetched."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

# scripts in the order in which they are run; each adds its part to one object, `page`
STYLE = "style.css"
CHARTS = ("d3", "@observablehq/plot")  # the libraries of charts
# no request can leave the page, and nothing but what stands in it can run
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Library:
    """A library that ships with the page, as npm has it. sha256: of `file`, unchanged."""

    name: str
    version: str
    from_package: str
    licence: str
    file: str
    licence_file: str
    sha256: str

    @property
    def text(self) -> str:
        return _text("vendor", self.file)

    @property
    def notice(self) -> str:
        """Its licence as a comment, as every copy has to have it."""
        licence = _text("vendor", self.licence_file).replace("*/", "* /")
        return f"/* {self.name} {self.version}\n{licence}*/"

    @property
    def is_unchanged(self) -> bool:
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest() == self.sha256


@cache
def libraries() -> tuple[Library, ...]:
    """The libraries of the page in the order in which they are loaded."""
    return tuple(Library(**entry) for entry in json.loads(_text("vendor", "vendored.json")))


def scripted_document(
    title: str, body: str, data: dict[str, Any], scripts: tuple[str, ...], *, charts: bool = False
) -> str:
    """A page around this body; `data` is what the scripts draw. body: HTML, escaped already.

    charts: the page has no graph, so it comes without the libraries that draw them.
    """
    used = [k for k in libraries() if not charts or k.name in CHARTS]
    code = [f"{library.notice}\n{_without_map(library.text)}" for library in used]
    code += [_text("app", name) for name in scripts]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_text('app', STYLE)}</style>\n</head>\n"
        f"<body>\n{body}\n"
        f'<script id="page-data" type="application/json">{json_in_html(data)}</script>\n'
        + "".join(f"<script>\n{_inline(c)}\n</script>\n" for c in code)
        + "</body>\n</html>\n"
    )


def json_in_html(data: Any) -> str:
    """JSON that no HTML parser and no script takes for anything else."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for mark in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _inline(script: str) -> str:
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a script of the page would end its own element")
    return script


def _without_map(script: str) -> str:
    """Without the address of a source map, which is not there."""
    return "\n".join(s for s in script.splitlines() if not s.startswith("//# sourceMappingURL="))


@cache
def _text(folder: str, name: str) -> str:
    return files("eqsat.report.page").joinpath(folder, name).read_text(encoding="utf-8")
