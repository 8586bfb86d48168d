"""A program as it was read, with its weights and opaque calls, and the layouts of its border."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import Span
from eqsat.model.layout import Border, Held, Layout
from eqsat.model.orders import Ordered, layout_in
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.border_layouts import held_of, laid_out, refuse_other
from eqsat.ops.spelling.squeeze import drop_unit_dims

if TYPE_CHECKING:
    import numpy as np

    from eqsat.frontends.traced import Traced


@dataclass(frozen=True)
class Source:
    """A program with its weights by content hash and its opaque calls by key."""

    program: Program
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    opaque: Mapping[str, Any] = field(default_factory=dict)
    traced: Traced | None = None
    places: Mapping[Border, Span] = field(default_factory=dict)  # where layouts are stated
    layouts: Mapping[Border, Layout] = field(default_factory=dict)  # of what crosses packed
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that its file leaves open


def name_of(source: Source, border: Border) -> str:
    """As messages and tables call it: the input's name in the program, or `result0`."""
    if border.kind == "result":
        return f"result{border.number}"
    return source.program.leaf(source.program.inputs[border.number]).name


def type_of(program: Program, border: Border) -> TensorType:
    """The plain type of an argument or result."""
    if border.kind == "result":
        return program.nodes[program.results[border.number]].type
    return program.leaf(program.inputs[border.number]).plain


def fixed_in(source: Source, asked: Mapping[Border, Held | None]) -> Source:
    """The source with these layouts; EqsatError E393 if a border has another one already."""
    wanted: dict[Border, Held] = {}
    for border, held in asked.items():
        present = held_at(source, border)
        refuse_other(f"`{name_of(source, border)}`", present, held, source.places.get(border))
        if held is not None and present is None:
            wanted[border] = held
    if not wanted:
        return source
    # without unit dims, as the plain program is searched: packs would keep them
    program = laid_out(drop_unit_dims(source.program), wanted)
    packed = {b: held for b, held in wanted.items() if isinstance(held, Layout)}
    return replace(source, program=program, layouts={**source.layouts, **packed})


def lying_in(source: Source, orders: Mapping[Border, tuple[int, ...]]) -> Source:
    """The source whose arguments and results lie in these orders of their dims."""
    shapes = {b: type_of(source.program, b).shape for b in orders}
    return fixed_in(source, {b: layout_in(o, shapes[b]) for b, o in orders.items()})


def ordered(
    source: Source, orders: Mapping[Border, tuple[int, ...]], by: str, why: Mapping[Border, str]
) -> tuple[Ordered, ...]:
    """The same as it is told of: with names, who said so, and why."""
    return tuple(Ordered(name_of(source, b), b, o, by, why[b]) for b, o in orders.items())


def held_at(source: Source, border: Border) -> Held | None:
    """The layout that an argument or result has already; None: it is plain."""
    if border in source.layouts:
        return source.layouts[border]
    numbers = source.program.inputs if border.kind == "input" else source.program.results
    return held_of(source.program.nodes[numbers[border.number]])
