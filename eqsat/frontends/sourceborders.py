"""Arguments and results of a program that was read: their names, types, and how they are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.frontends.source import Source
from eqsat.model.layout import Border, Held, Layout, Ordered, layout_in
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.border_layouts import held_of, laid_out, refuse_other
from eqsat.ops.spelling.squeeze import drop_unit_dims


def name_of(source: Source, border: Border) -> str:
    """The name of a border in messages and tables: the input's in the program, or `result0`."""
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
    """Orders as they are reported: with names, who asked for them, and why."""
    return tuple(Ordered(name_of(source, b), b, o, by, why[b]) for b, o in orders.items())


def held_at(source: Source, border: Border) -> Held | None:
    """The layout that an argument or result has already; None: it is plain."""
    if border in source.layouts:
        return source.layouts[border]
    numbers = source.program.inputs if border.kind == "input" else source.program.results
    return held_of(source.program.nodes[numbers[border.number]])
