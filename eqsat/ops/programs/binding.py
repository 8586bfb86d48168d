"""Binding before a run: sizes to symbols, and weights to arguments that a caller names.

What the search found on extents that stand for every size holds for each of them: a union of two
values by a layout algebra that asked only what is so for all multiples. Here the sizes are put in,
and every op is typed again: a node that does not exist at these sizes (a slice that is too long for
them) is left out, and no answer can name it. Arguments as weights are packed once and resident.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from eqsat.model.attr import Attr, ShapeError
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.extents import bound, is_symbolic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program, infer

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class BoundGraph:
    """An e-graph at given sizes; `number` maps nodes of the symbolic one to its own."""

    egraph: EGraph
    number: Mapping[int, int]


def bind_attr(attr: Attr, sizes: Sizes) -> Attr:
    """An attribute with the sizes put in; a tile that divides there pads nothing."""
    at_sizes = bound(attr, sizes)
    if at_sizes is attr:
        return attr
    if isinstance(at_sizes, Leaf) and isinstance(at_sizes.layout, Layout):
        return replace(at_sizes, layout=_padded(at_sizes.layout))
    return _padded(at_sizes) if isinstance(at_sizes, Layout) else at_sizes


def _padded(layout: Layout) -> Layout:
    """Without padding where tiles divide."""
    pads = tuple(
        "-" if layout.source[d] % t == 0 else p
        for d, t, p in zip(layout.pos, layout.tiles, layout.pads, strict=True)
    )
    return replace(layout, pads=pads)


def bind_program(program: Program, sizes: Sizes) -> Program:
    """The program at these sizes; EqsatError E389 if an op of it does not exist there."""
    b = Builder(program.name)
    for i, n in enumerate(program.nodes):
        b.origin = n.origin
        try:
            b.append(n.op, n.operands, bind_attr(n.attr, sizes))
        except ShapeError as error:
            shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise fail(
                "E389", f"{program.value_name(i)} (`{n.op}`) does not exist at {shown}: {error}"
            ) from None
    return b.build(program.results)


def bind_graph(graph: EGraph, sizes: Sizes, kept: Collection[int] | None = None) -> BoundGraph:
    """The e-graph at these sizes, without the nodes that do not exist there.

    kept: the only nodes that are wanted; None: all.
    """
    change = cache(lambda attr: bind_attr(attr, sizes))
    types = tuple(bound(t, sizes) for t in graph.types)
    number: dict[int, int] = {}
    nodes: list[ENode] = []
    for i, n in enumerate(graph.nodes):
        if kept is not None and i not in kept:
            continue
        node = replace(n, attr=change(n.attr))
        try:
            fits = infer(n.op, node.attr, [types[c] for c in n.children]) == types[n.eclass]
        except ShapeError:
            fits = False
        if fits:
            number[i] = len(nodes)
            nodes.append(node)
    renumbered = tuple(replace(n, source=number.get(n.source, -1)) for n in nodes)
    return BoundGraph(replace(graph, nodes=renumbered, types=types), number)


_NUMBERED = re.compile(r"arg(\d+)")
_NO_WORD = re.compile(r"\W+", re.ASCII)


def first_name(label: str) -> str:
    """The argument that a path starts with: `params` of `params['w1']`."""
    ends = [label.index(c) for c in "[." if c in label]
    return label[: min(ends)] if ends else label


def argument_numbers(
    program: Program, names: Iterable[str], labels: Sequence[str] = (), option: str = "weights"
) -> tuple[int, ...]:
    """The numbers of the arguments that these names mean, ascending.

    option: what lists the names. labels: what the caller knows each argument as, if not by the
    program's names; a path such as `params['w1']` is found by its argument, too. `%w` is `w`;
    `arg1` is the second argument where none has that name. A name that is a weight already means no
    argument. Raises EqsatError (E324) for a name that is neither.
    """
    arguments = list(labels) or [program.leaf(i).name for i in program.inputs]
    held = {_plain(program.leaf(i).name) for i in program.weights}
    chosen: set[int] = set()
    for name in names:
        numbers = _numbers(name, arguments)
        if not numbers and _plain(name) not in held:
            raise _unknown(name, program.name, arguments, option)
        chosen.update(numbers)
    return tuple(sorted(chosen))


def _numbers(name: str, arguments: Sequence[str]) -> list[int]:
    wanted = _plain(name)
    matches = [
        i
        for i, k in enumerate(arguments)
        if k == name or wanted in (_plain(k), _plain(first_name(k)))
    ]
    number = _NUMBERED.fullmatch(wanted)
    if not matches and number and int(number[1]) < len(arguments):
        return [int(number[1])]
    return matches


def _plain(name: str) -> str:
    """As programs spell it: without MLIR's `%`, and what is no letter, digit or `_` as `_`."""
    return _NO_WORD.sub("_", name.strip().removeprefix("%")).strip("_")


def _unknown(name: str, program: str, arguments: Sequence[str], option: str) -> Exception:
    roots = list(dict.fromkeys(map(first_name, arguments)))
    message = f"`{option}` names `{name}`, which is no argument of `{program}`"
    listed = ", ".join(f"`{k}`" for k in roots[:12]) or "none"
    more = f" and {len(roots) - 12} more" if len(roots) > 12 else ""
    near = did_you_mean(name, roots) if roots else ""
    hint = f"{near} " if near.startswith("did you mean") else ""
    return fail("E324", message, help=f"{hint}its arguments: {listed}{more}")


def as_weights(program: Program, numbers: Collection[int]) -> tuple[Program, Mapping[int, str]]:
    """The program with these arguments as weights, and the key of each; the others move up.

    A key stands for a name and a type, as a weight's values come later. Raises EqsatError (E324)
    for an argument with a dim that is not known: nothing can be packed ahead for it.
    """
    leaves = {number: program.leaf(program.inputs[number]) for number in numbers}
    keys = {number: _key(leaf) for number, leaf in leaves.items()}
    left = [i for number, i in enumerate(program.inputs) if number not in leaves]
    index = {i: at for at, i in enumerate(left)}
    weights = {program.inputs[n]: replace(x, index=-1, key=keys[n]) for n, x in leaves.items()}
    new: dict[int, int] = {}
    b = Builder(program.name)
    for i, node in b.following(program, new):
        if i in weights:
            new[i] = b.add("weight", (), weights[i])
        elif i in index:
            new[i] = b.add("input", (), replace(program.leaf(i), index=index[i]))
        else:
            new[i] = b.move(node, tuple([new[o] for o in node.operands]))
    return b.build([new[r] for r in program.results], program.symbols), keys


def _key(leaf: Leaf) -> str:
    open_dims = [str(d) for d in leaf.type.shape if is_symbolic(d)]
    if open_dims:
        message = f"`{leaf.name}` cannot be a weight: its dim {open_dims[0]} is not known"
        raise fail("E324", message, help="a weight is packed before the run, so its shape is fixed")
    return hashlib.sha256(f"weight {leaf.name} {leaf.type}".encode()).hexdigest()[:16]
