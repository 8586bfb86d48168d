"""Machine code of kernels as text for a terminal, and as a section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from eqsat.plan.innerloop import LOOP_COLUMNS, MachineCode
from eqsat.report.formatting import html_table, pre, section, table_text


def code_text(code: MachineCode) -> str:
    """The table of inner loops, then all of the code."""
    table = table_text(LOOP_COLUMNS, list(code.rows()))
    return f"machine code for {code.made_for}\n{table}\n{code.text}"


def code_section(codes: Sequence[MachineCode]) -> list[str]:
    """A table of inner loops per dispatch with the first of them, folded; none without code."""
    folded = []
    for c in codes:
        table = html_table(LOOP_COLUMNS, list(c.rows()), range(1, len(LOOP_COLUMNS)))
        first = pre(c.loops[0].text) if c.loops else ""
        head = f"dispatch {c.dispatch}, {c.name}: {c.plan}"
        folded.append(f"<details><summary>{escape(head)}</summary>{table}{first}</details>")
    made_for = {f'<p class="soft">for {escape(c.made_for)}</p>': None for c in codes}
    return [section("Machine code", "\n".join([*made_for, *folded]))] if codes else []
