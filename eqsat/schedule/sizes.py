"""The bytes that a buffer of a schedule may have on a target; part of `schedule.legal`.

Read from docs/accelerators.md, "A memory that pads", apart from the search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from eqsat.model.generic import Generic
from eqsat.model.ops import CONVERSIONS, VIEWS
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.roles import kind

SHOWN = frozenset({*VIEWS, *CONVERSIONS, "slice"})  # what a product may be seen through


def size_faults(schedule: Schedule, target: Target) -> Iterator[str]:
    """A buffer has the bytes of its elements at least, and at most those that its padding takes.

    Elements are those of a narrower type where `padding.narrowed` keeps them so.
    """
    if schedule.target != target.name:  # one of another target may pad otherwise, or not at all
        return
    where, nodes = target.place("padding"), schedule.program.nodes
    narrow = _narrowed(schedule, target)
    sizes = dict(schedule.padded) | {b.node: b.nbytes for b in schedule.buffers}
    for node, nbytes in sizes.items():
        t = nodes[node].types[0]
        least = TensorType(narrow.get(node, t.dtype), t.shape).nbytes
        most = t.nbytes if target.padding is None else target.padding.buffer_bytes(t.shape, t.dtype)
        if not least <= nbytes <= most:
            yield f"%{node} has {nbytes:,} bytes, {t} takes {most:,} ({where})"


def _narrowed(schedule: Schedule, target: Target) -> dict[int, str]:
    """Per node of which contractions read less than its elements: the type that they read."""
    if target.padding is None or not target.padding.narrowed:
        return {}
    program, found = schedule.program, dict[int, str]()
    outside = {*program.inputs, *program.weights, *schedule.ahead}
    outside |= {schedule.buffer_of(r) for r in program.results}
    read = _readings(program)
    for reading, dtype in target.padding.narrowed:
        mine = [i for i, r in read.items() if r == {reading} and i not in outside]
        found |= {i: dtype for i in mine if _rounds_a_product(program, i)}
    return found


def _rounds_a_product(program: Program, node: int) -> bool:
    """Whether a value is a product, or an elementwise op of one that stands once in its body.

    Views, conversions and slices of such a value are looked through.
    """
    n = program.nodes[node]
    if n.op in SHOWN:
        return _rounds_a_product(program, n.operands[0])
    what = kind(n.op, n.attr)
    if what != "elementwise" or not isinstance(n.attr, Generic):
        return what == "contraction"
    args: list[object] = []  # numbers of operands, as often as they stand there
    for y in n.attr.yields:
        for e in y.body.walk():
            args += [a.value for a in e.args if a.fn == "arg"]
        args += [y.body.value] if y.body.fn == "arg" else []
    return any(args.count(i) == 1 and _is_product(program, o) for i, o in enumerate(n.operands))


def _is_product(program: Program, node: int) -> bool:
    """Whether a contraction is behind a value, its views, conversions and slices."""
    n = program.nodes[node]
    if n.op in SHOWN:
        return _is_product(program, n.operands[0])
    return kind(n.op, n.attr) == "contraction"


def _readings(program: Program) -> dict[int, set[str]]:
    """Per node: by contractions of which type and precision it is read; "" by anything else.

    Views and conversions are looked through, from the last op to the first.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for i in reversed(range(len(program.nodes))):
        n = program.nodes[i]
        passes = n.op in VIEWS or n.op in CONVERSIONS
        types = {program.nodes[o].type.dtype for o in n.operands}
        is_one = kind(n.op, n.attr) == "contraction" and len(types) == 1
        own = ""
        if is_one and isinstance(n.attr, Generic):
            own = f"{types.pop()}/{n.attr.precision}"
        for o in n.operands:
            found[o] |= found[i] if passes else {own}
    return found
