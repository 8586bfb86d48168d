"""Plan of an export: the nodes of a program in order, grouped by dispatch, and its weights.

What follows from weights alone is computed here, in NumPy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.model.control import Control
from eqsat.model.diag import fail
from eqsat.model.generic import Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Schedule
from eqsat.ops.builtin.layouts import pack, unpack
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype, evaluate_node
from eqsat.ops.registry import builtin_ops

Array = np.ndarray[Any, Any]
OpaqueFunction = Callable[..., Sequence[Any]]


def ahead_arrays(
    program: Program,
    wanted: Sequence[int],
    weights: Mapping[str, Array],
    opaque: Mapping[str, OpaqueFunction],
) -> dict[int, Array]:
    """Node → its value in its element type. Lanes that may hold anything hold zeros.

    EqsatError E381 if a weight has no values.
    """
    needed = _needed(program, wanted, ())
    left = {i: sum(i in program.nodes[j].operands for j in needed) for i in needed}
    values: dict[int, list[Array]] = {}
    for i in needed:
        n = program.nodes[i]
        if n.op == "weight":
            values[i] = [weight_array(program, i, weights)]
        else:
            values[i] = _evaluate(program, n, values, opaque)
        for o in set(n.operands):
            left[o] -= 1
            if left[o] == 0 and o not in wanted:
                del values[o]
    return {i: np.asarray(values[i][0], order="C") for i in wanted}


def weight_array(program: Program, node: int, weights: Mapping[str, Array]) -> Array:
    """The values of a weight in its element type; EqsatError E381 if there are none."""
    leaf = program.leaf(node)
    if leaf.key not in weights:
        raise fail(
            "E381",
            f"weight `{leaf.name}` has no values, so it cannot be written as a constant",
            help="`--weights arguments` makes the weights arguments of the exported function",
        )
    return np.asarray(weights[leaf.key], element_dtype(leaf.type.dtype), order="C")


def _evaluate(
    program: Program,
    n: Node,
    values: Mapping[int, list[Array]],
    opaque: Mapping[str, OpaqueFunction],
) -> list[Array]:
    if isinstance(n.attr, Result):
        return [values[n.operands[0]][n.attr.index]]
    xs = [values[o][0] for o in n.operands]
    if n.op in MOVED:
        return [MOVED[n.op](n.attr, *xs)]
    types = [program.nodes[o].type for o in n.operands]
    held = [scalar.hold(x, t.dtype) for x, t in zip(xs, types, strict=True)]
    results = evaluate_node(n.op, n.attr, held, opaque)
    with np.errstate(over="ignore"):
        return [a.astype(element_dtype(t.dtype)) for a, t in zip(results, n.types, strict=True)]


def _packed(layout: Layout, x: Array) -> Array:
    return pack(layout, x, x.dtype.type(0))


# ops that move elements, in the operand's own type -> (attribute, *operands) -> result
MOVED: dict[str, Callable[..., Array]] = {
    name: r.numpy
    for name, r in builtin_ops().items()
    if r.kind in ("view", "conversion", "transfer", "move") and r.numpy is not None
} | {"pack": _packed, "retype": lambda layout, x: _packed(layout, unpack(layout, x))}
del MOVED["pad"]  # its value is rounded to the element type


def little_endian(array: Array) -> bytes:
    """The elements in order, as MLIR and ONNX store those of types of whole bytes."""
    value = np.asarray(array, order="C")
    if value.dtype.kind == "V" and sys.byteorder == "big":  # types NumPy has no byte order for
        return value.view(f"u{value.dtype.itemsize}").astype(f"<u{value.dtype.itemsize}").tobytes()
    return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


OpenShape = tuple[int | None, ...]  # None: of every size
WEIGHTS = ("auto", "constants", "resources", "arguments")


@dataclass(frozen=True)
class Group:
    """Nodes written together under one comment, e.g. those of a dispatch."""

    title: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A program as it will be written.

    arrays: nodes that are constants, in their element types. arguments: nodes that are arguments,
    the program's inputs first. names: of arguments, constants and results; each occurs once.
    """

    program: Program
    groups: tuple[Group, ...]
    arguments: tuple[int, ...]
    arrays: Mapping[int, Array]
    names: Mapping[int, str]

    @property
    def order(self) -> tuple[int, ...]:
        """All nodes that are written, in order."""
        return tuple(i for g in self.groups for i in g.nodes)


@dataclass(frozen=True)
class SizedPlans:
    """One function by the sizes of a symbol: a plan for each size, ascending, of equal arguments.

    place: the number of an argument and its dim that is the symbol.
    """

    name: str
    symbol: str
    place: tuple[int, int]
    plans: tuple[tuple[int, Plan], ...]

    @property
    def argument_shapes(self) -> list[OpenShape]:
        return self._open([[p.program.nodes[i] for i in p.arguments] for _, p in self.plans])

    @property
    def result_shapes(self) -> list[OpenShape]:
        return self._open([[p.program.nodes[i] for i in p.program.results] for _, p in self.plans])

    @staticmethod
    def _open(nodes: Sequence[Sequence[Node]]) -> list[OpenShape]:
        """Shapes of the nodes at each place; a dim that differs between plans is None."""
        shapes = [[n.type.shape for n in place] for place in zip(*nodes, strict=True)]
        return [
            tuple(d[0] if len({*d}) == 1 else None for d in zip(*place, strict=True))
            for place in shapes
        ]


@dataclass(frozen=True)
class Missing:
    """An op that cannot be written, and why; value: what it computes."""

    value: str
    op: str
    reason: str

    def __str__(self) -> str:
        return f"{self.value} {self.op}: {self.reason}"


@dataclass(frozen=True)
class Exported:
    """A file in memory: files are (name, bytes), the model itself first.

    ops: how many were to be written, `missing` those that could not be; with `partial`, calls of
    functions that are declared but not defined stand for them.
    """

    files: tuple[tuple[str, bytes], ...]
    ops: int
    missing: tuple[Missing, ...] = ()
    path: str = ""

    @property
    def data(self) -> bytes:
        """The model itself."""
        return self.files[0][1]

    def at(self, path: str) -> Exported:
        """A copy with the place where it was written."""
        return replace(self, path=path)


class Inexpressible(Exception):
    """An op has no form in the other language; the text is the reason."""


def plan_program(program: Program, weights: Mapping[str, Array], *, arguments: bool) -> Plan:
    """A program as it is. Weights become constants, or arguments if `arguments`.

    EqsatError E381 if a constant has no values.
    """
    needed = _needed(program, program.results, ())
    order = [i for i in needed if not isinstance(program.nodes[i].attr, Leaf)]
    leaves = [i for i in needed if program.nodes[i].op == "weight"]
    return _plan(program, [Group("", tuple(order))], leaves, weights, {}, arguments)


def plan_schedule(
    schedule: Schedule,
    weights: Mapping[str, Array],
    opaque: Mapping[str, OpaqueFunction],
    *,
    arguments: bool,
) -> Plan:
    """The chosen program, dispatch by dispatch; what follows from weights alone is computed now.

    With `arguments` weights are arguments as they came, and what follows from them is written too.
    EqsatError E381 if a constant has no values.
    """
    program = schedule.program
    ahead = {*schedule.ahead, *program.weights}
    constants = [] if arguments else _read_ahead(schedule, ahead)
    done = {*constants, *program.inputs, *(program.weights if arguments else ())}
    groups = []
    if arguments and schedule.ahead:
        nodes = _needed(program, _read_ahead(schedule, ahead), done)
        groups.append(_group("computed from weights alone, once", nodes, done))
    for number, d in enumerate(schedule.dispatches):
        # what a dispatch computes again may be there already: merged ops are one node
        nodes = _needed(program, [m for m in d.members if arguments or m not in ahead], done)
        groups.append(
            _group(
                f"dispatch {number}, {d.name}: {d.ops}"
                if d.name != d.ops
                else f"dispatch {number}: {d.ops}",
                nodes,
                done,
            )
        )
    groups.append(_group("results", _needed(program, program.results, done), done))
    leaves = [i for i in program.weights if arguments or i in constants]
    made_now = [i for i in constants if program.nodes[i].op != "weight"]
    arrays = ahead_arrays(program, made_now, weights, opaque) if made_now else {}
    return _plan(program, [g for g in groups if g.nodes], leaves, weights, arrays, arguments)


def body_plan(attr: Control, number: int) -> Plan:
    """A body of a loop or branch, as it was searched or as it is."""
    if attr.schedules:
        return plan_schedule(attr.schedules[number], {}, {}, arguments=False)
    return plan_program(attr.programs[number], {}, arguments=False)


def _read_ahead(schedule: Schedule, ahead: set[int]) -> list[int]:
    """Ahead-of-time nodes that run-time nodes read, or that are results."""
    program = schedule.program
    run_time = _needed(program, program.results, ahead)
    read = {o for i in run_time if i not in ahead for o in program.nodes[i].operands}
    return sorted((read | set(program.results)) & ahead)


def _group(title: str, nodes: list[int], done: set[int]) -> Group:
    """The nodes not done yet, which now are."""
    new = tuple(i for i in nodes if i not in done)
    done.update(new)
    return Group(title, new)


def _needed(program: Program, wanted: Iterable[int], done: Iterable[int]) -> list[int]:
    """`wanted` and all below them down to nodes that are done, in program order."""
    needed: set[int] = set()
    border, stack = set(done), list(wanted)
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack += [] if i in border else program.nodes[i].operands
    return sorted(needed)


def _plan(
    program: Program,
    groups: list[Group],
    leaves: list[int],
    weights: Mapping[str, Array],
    arrays: Mapping[int, Array],
    arguments: bool,
) -> Plan:
    held = dict(arrays)
    for i in () if arguments else leaves:
        held[i] = weight_array(program, i, weights)
    given = (*program.inputs, *(leaves if arguments else ()))
    replaced = tuple(replace_leaves(g, set(held) | set(given)) for g in groups)
    return Plan(program, replaced, given, dict(sorted(held.items())), _names(program, given, held))


def replace_leaves(group: Group, leaves: set[int]) -> Group:
    """The group without nodes that are arguments or constants."""
    return replace(group, nodes=tuple(i for i in group.nodes if i not in leaves))


def _names(program: Program, given: Iterable[int], held: Iterable[int]) -> dict[int, str]:
    """Names that occur once: those of leaves, and of what is made of a weight."""
    names: dict[int, str] = {}
    used: set[str] = set()
    for i in (*given, *sorted(held)):
        name = base = _name_of(program, i)
        number = 1
        while name in used:
            number += 1
            name = f"{base}.{number}"
        used.add(name)
        names[i] = name
    return names


def _name_of(program: Program, node: int) -> str:
    suffix = ""
    n: Node = program.nodes[node]
    while not isinstance(n.attr, Leaf):
        suffix = f".{n.op}{suffix}"
        if not n.operands:
            return f"constant{suffix}"
        n = program.nodes[n.operands[0]]
    name = n.attr.name.encode("utf-8", "replace").decode()
    return f"{name or n.op}{suffix}"


def identifier(name: str) -> str:
    """A name with nothing but letters, digits, `_`, `.` and `-`, that starts with a letter."""
    plain = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
    return plain if plain[:1].isalpha() else f"v{plain}"
