"""Values that are written where others lay: what of that makes no sense, and whose bytes it is."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.model.dispatch import Dispatch
from eqsat.model.program import Program

Pairs = Sequence[tuple[int, int]]  # (written, operand): one buffer has both


def in_place_fault(program: Program, dispatches: Sequence[Dispatch], pairs: Pairs) -> str:
    """What is written over is read by its writer, by none after that, and is no result."""
    results = {program.behind_views(r) for r in program.results}
    there = {*program.inputs, *(w for d in dispatches for w in d.writes)}
    if any(len({p[side] for p in pairs}) < len(pairs) for side in (0, 1)):
        return "a value is written over twice, or in place of two"
    for new, old in pairs:
        same = program.nodes[old].type == program.nodes[new].type
        if not same or old in results or old not in there:
            return f"%{new} is no value in place of %{old}"
        writers = [d for d in dispatches if new in d.writes]
        late = [d.step for d in dispatches if old in d.reads and new not in d.writes]
        if len(writers) != 1 or any(step >= writers[0].step for step in late):
            return f"%{old} is read after %{new} was written in its place"
        if old not in writers[0].reads:
            return f"%{new} is written in place of %{old}, which is not read for it"
    return ""


def owners_of(program: Program, pairs: Pairs) -> dict[int, int]:
    """Per value that lies in bytes that others have, too, whose these are: an argument's, else
    those of a result, else of the first of them."""
    before, found = dict(pairs), dict[int, int]()
    results = {program.behind_views(r) for r in program.results}
    for last in before.keys() - {old for _, old in pairs}:
        chain = [last]
        while chain[-1] in before:
            chain.append(before[chain[-1]])
        first = chain[-1]
        is_result = first not in program.inputs and last in results
        found |= dict.fromkeys(chain, last if is_result else first)
    return found
