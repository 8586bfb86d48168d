"""The border of a program: the layouts of its arguments and results, as a caller requests them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.model.border import Border, Free, Held
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.layout import Encoding, Layout
from eqsat.model.orders import Ordered, layout_in
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.border_layouts import held_of, laid_out, refuse_other
from eqsat.ops.programs.resolution import is_encoded, resolution, resolved
from eqsat.ops.programs.weightnames import first_name
from eqsat.ops.spelling.squeeze import drop_unit_dims
from eqsat.request.source import Source

PLAIN = "plain"  # what `layouts=` may say to insist on a plain tensor
Request = str | Layout | Free  # of one argument or result
_RESULT = re.compile(r"result(\d+)")


def labels_of(source: Source) -> list[str]:
    """The caller's name of each argument, e.g. `cache[0][1]`."""
    if source.traced is not None:
        return list(source.traced.input_labels)
    return [source.program.leaf(i).name for i in source.program.inputs]


def arguments_of(source: Source, name: str) -> list[int]:
    """Numbers of the inputs that a named argument is made of; [] if there are none."""
    labels = labels_of(source)
    return [i for i, label in enumerate(labels) if name in (label, first_name(label))]


def results_of(source: Source, number: int) -> list[int]:
    """Numbers of the flat results that a result of the function is made of; [] if none."""
    if source.traced is None:
        return [number] if 0 <= number < len(source.program.results) else []
    tree = source.traced.out_tree
    sizes = [child.num_leaves for child in tree.children()] or [tree.num_leaves]
    if not 0 <= number < len(sizes):
        return []
    begin = sum(sizes[:number])
    return list(range(begin, begin + sizes[number]))


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


def asked_of(source: Source, layouts: Mapping[str, Request]) -> dict[Border, Held | Free | None]:
    """The layout that `layouts=` requests per argument or result; None: plain. EqsatError E394."""
    found: dict[Border, Held | Free | None] = {}
    for name, request in layouts.items():
        for border in named_borders(source, name):
            found[border] = _read(source.program, border, name, request)
    return found


def named_borders(source: Source, name: str) -> list[Border]:
    """What a name of an argument or a result (`result0`) stands for; EqsatError E394."""
    inputs = arguments_of(source, name)
    if inputs:
        return [Border("input", i) for i in inputs]
    match = _RESULT.fullmatch(name)
    results = results_of(source, int(match[1])) if match else []
    if results:
        return [Border("result", r) for r in results]
    labels = labels_of(source)
    known = [*map(first_name, labels), *labels, *(f"result{i}" for i in range(_count(source)))]
    message = f"`{name}` is no argument or result of `{source.program.name}`"
    raise fail("E394", message, help=did_you_mean(name, dict.fromkeys(known)))


def _count(source: Source) -> int:
    """Results of the function, each a tree."""
    if source.traced is None:
        return len(source.program.results)
    return len(source.traced.out_tree.children()) or 1


def _read(program: Program, border: Border, name: str, request: Request) -> Held | Free | None:
    if request == PLAIN:
        return None
    of = type_of(program, border)
    if isinstance(request, str):
        from eqsat.lang.borders import read_layout

        return read_layout(request, of, f"--layout {name}=")
    if isinstance(request, Layout) and request.source != of.shape:
        message = f"`{name}` is {of}, the layout asked for is of a tensor of {list(request.source)}"
        raise fail("E394", message)
    return request


def with_layouts(source: Source, target: Target, layouts: Mapping[str, Request]) -> Source:
    """The source with its border in the requested layouts, and its encodings resolved.

    EqsatError: E393 if an argument or result has another layout already, E394 for words that are
    no layout, or name no argument or result.
    """
    asked = asked_of(source, layouts)
    free = [name_of(source, b) for b, request in asked.items() if isinstance(request, Free)]
    if free:
        message = f"`{free[0]}` has a free layout, which one search cannot choose"
        raise fail("E394", message, help="`eqsat state` and `eqsat.keep_state` search them all")
    fixed = {b: request for b, request in asked.items() if not isinstance(request, Free)}
    return settled(fixed_in(source, fixed), target)


def fixed_in(source: Source, asked: Mapping[Border, Held | None]) -> Source:
    """The source with these layouts; EqsatError E393 if a border has another one already."""
    wanted: dict[Border, Held] = {}
    for border, held in asked.items():
        own = held_at(source, border)
        refuse_other(f"`{name_of(source, border)}`", own, held, source.places.get(border))
        if held is not None and own is None:
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


def settled(source: Source, target: Target) -> Source:
    """The source with its encodings resolved by the target, into packs or into nothing."""
    if not is_encoded(source.program):
        return source
    layouts = dict(source.layouts)
    for kind, numbers in (("input", source.program.inputs), ("result", source.program.results)):
        for number in range(len(numbers)):
            held = held_at(source, Border(kind, number))
            layout = resolution(held, target) if isinstance(held, Encoding) else None
            if layout is not None:
                layouts[Border(kind, number)] = layout
    return replace(source, program=resolved(source.program, target), layouts=layouts)


__all__: Sequence[str] = (
    "Request",
    "arguments_of",
    "asked_of",
    "fixed_in",
    "held_at",
    "labels_of",
    "lying_in",
    "name_of",
    "named_borders",
    "ordered",
    "results_of",
    "settled",
    "type_of",
    "with_layouts",
)
