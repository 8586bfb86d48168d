"""Explanations of error codes: the paragraphs of `eqsat/lang/errors.md`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from eqsat.model.diag import did_you_mean, fail

_HEADING = re.compile(r"^## (E\d{3}) (.+)$", re.MULTILINE)


@cache
def error_pages() -> dict[str, str]:
    """Code → its title and paragraph, in the order of the page."""
    text = Path(__file__).with_name("errors.md").read_text(encoding="utf-8")
    headings = list(_HEADING.finditer(text))
    ends = [m.start() for m in headings[1:]] + [len(text)]
    return {
        m[1]: f"{m[1]}: {m[2]}\n\n{text[m.end() : end].split(chr(10) + '# ')[0].strip()}\n"
        for m, end in zip(headings, ends, strict=True)
    }


def explain(code: str) -> str:
    """The paragraph of an error code (`E020`); E268 if there is none."""
    pages = error_pages()
    page = pages.get(code.upper())
    if page is None:
        raise fail("E268", f"no error has the code `{code}`", help=did_you_mean(code, pages))
    return page
