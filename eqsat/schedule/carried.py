"""A loop whose state stays packed from step to step: bodies that take and give packed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.model.control import Control
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import TensorType


def carried_layouts(attr: Control, body: Schedule) -> list[dict[int, Layout]]:
    """Layouts that a searched body suggests for its state, by carry; each is worth a search.

    Those it packs its state into, and those it unpacks values of the same type from.
    """
    program = body.program
    found: dict[str, dict[int, Layout]] = {"pack": {}, "unpack": {}}
    for k in range(attr.carries):
        (state,) = (i for i in program.inputs if program.leaf(i).index == attr.consts + k)
        for n in program.nodes:
            is_pack = n.op == "pack" and n.operands == (state,)
            is_unpack = n.op == "unpack" and n.type == program.nodes[state].type
            if (is_pack or is_unpack) and isinstance(n.attr, Layout) and "?" not in n.attr.pads:
                found[n.op].setdefault(k, n.attr)
    sets = [layouts for layouts in found.values() if layouts]
    return sets[:1] if len(sets) == 2 and sets[0] == sets[1] else sets


def with_packed_state(attr: Control, layouts: Mapping[int, Layout]) -> Control:
    """The loop with these carries packed; its bodies unpack what they read and pack what they give.

    The condition of a while loop gives no state.
    """
    last = len(attr.programs) - 1
    bodies = tuple(
        _packed(p, {attr.consts + k: a for k, a in layouts.items()}, layouts if i == last else {})
        for i, p in enumerate(attr.programs)
    )
    return replace(attr, programs=bodies)


def packed_type(t: TensorType, layout: Layout) -> TensorType:
    return t.with_shape(layout.packed_shape)


def _packed(p: Program, inputs: Mapping[int, Layout], results: Mapping[int, Layout]) -> Program:
    b = Builder(p.name)
    new: dict[int, int] = {}
    for i, n in b.following(p, new):
        layout = inputs.get(n.attr.index) if isinstance(n.attr, Leaf) else None
        if layout is not None and isinstance(n.attr, Leaf):
            leaf = replace(n.attr, type=packed_type(n.attr.type, layout))
            new[i] = b.add("unpack", (b.append("input", (), leaf),), layout)
        else:
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    found = [new[r] for r in p.results]
    for k, layout in results.items():
        found[k] = b.add("pack", (found[k],), layout)
    return replace(p, nodes=tuple(b.nodes), results=tuple(found))
