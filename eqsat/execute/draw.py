"""Random inputs, and weights where a program has none of its own, that tell results apart.

Integers that end up as indices are drawn within what they index, which the program says; weights
are scaled by the length of the sum they enter, so that deep programs neither overflow nor die out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.host import need
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf, Opaque
from eqsat.model.movement import Move
from eqsat.model.program import Node, Program
from eqsat.model.tensor import DTYPES, NO_ZERO, TensorType, is_float
from eqsat.ops.builtin.layouts import pack
from eqsat.ops.meaning.programs import element_dtype, is_iota

Array = np.ndarray[Any, Any]
# how floats are drawn, one attempt after the other while results say nothing: (deviation,
# positive); logarithms and roots want positive values, exponentials and narrow types small ones
ATTEMPTS = ((1.0, False), (1.0, True), (1 / 16, False), (1 / 16, True), (1 / 256, False))
LEAST_POSITIVE = 0.25  # of the deviation
POSITIVE_NAMES = ("var", "variance")


def random_inputs(program: Program, rng: np.random.Generator, attempt: int = 0) -> list[Array]:
    """Normal floats, small integers, fair bools, in the inputs' element types.

    Integers that select from a table are below its extent (`index_extents`). Those of an input
    named `…mask` are 0 or 1: models turn them into `(1 - mask) * -1e4` and add that to scores,
    where any other integer leaves 32-bit floats no digits to compare. What arrives packed is drawn
    plain and packed: lanes that may hold anything hold NaN or the largest integer.
    """
    extents = index_extents(program)
    inputs = []
    for i in program.inputs:
        leaf = program.leaf(i)
        plain = replace(leaf, type=leaf.plain, layout=None)
        inputs.append(packed_as(leaf, _random_input(plain, rng, extents.get(i), attempt)))
    return inputs


def packed_as(leaf: Leaf, plain: Array) -> Array:
    """A plain array in the layout that a leaf arrives in."""
    return pack(leaf.layout, plain) if isinstance(leaf.layout, Layout) else plain


def _random_input(leaf: Leaf, rng: np.random.Generator, extent: int | None, attempt: int) -> Array:
    if is_float(leaf.type.dtype):
        return _floats(leaf.type, rng, *ATTEMPTS[attempt])
    if leaf.name.lower().endswith("mask"):
        return rng.integers(0, 2, leaf.type.shape).astype(element_dtype(leaf.type.dtype))
    if extent is not None and DTYPES[leaf.type.dtype][1] in "iu":
        bits = DTYPES[leaf.type.dtype][0] - 1
        high = min(max(extent, 1), 2**bits)
        return rng.integers(0, high, leaf.type.shape).astype(element_dtype(leaf.type.dtype))
    return random_array(leaf.type, rng)


def _floats(t: TensorType, rng: np.random.Generator, deviation: float, positive: bool) -> Array:
    x = rng.standard_normal(t.shape)
    x = np.abs(x) + LEAST_POSITIVE if positive or t.dtype in NO_ZERO else x
    return np.asarray(x * deviation).astype(element_dtype(t.dtype))


def random_array(t: TensorType, rng: np.random.Generator) -> Array:
    """One random tensor of this type."""
    if is_float(t.dtype):
        return _floats(t, rng, 1.0, False)
    low, high = {"i": (-4, 5), "u": (0, 8), "b": (0, 2)}[DTYPES[t.dtype][1]]
    return rng.integers(low, high, t.shape).astype(element_dtype(t.dtype))


# ---- weights -------------------------------------------------------------------------------------
def drawn_weights(program: Program, given: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Arrays for the weights that `given` lacks, by key; the same every time, seeded by the key.

    Whose key is that of 0, 1, … holds these. Those of a contraction are divided by the root of the
    number of terms summed (Glorot and Bengio 2010), variances are positive, other vectors lie
    around one. EqsatError (E508) if they do not fit into memory.
    """
    need(program.weight_bytes, f"drawing the weights of `{program.name}`")
    arrays = {}
    for i in program.weights:
        leaf = program.leaf(i)
        if given is None or leaf.key not in given:
            rng = np.random.default_rng(zlib.crc32(leaf.key.encode()))
            arrays[leaf.key] = packed_as(leaf, _weight(program, i, rng))
    return arrays


def _weight(program: Program, i: int, rng: np.random.Generator) -> Array:
    leaf = program.leaf(i)
    t = leaf.plain
    if not is_float(t.dtype):
        drawn = rng.integers(0, 2 if t.dtype == "bool" else 8, t.shape)
        drawn = np.arange(t.size) if is_iota(leaf) else drawn
        return drawn.astype(element_dtype(t.dtype))
    last = leaf.name.rstrip("']").replace(".", "_").lower()
    if last.endswith(POSITIVE_NAMES):
        return _floats(t, rng, 1.0, True)
    terms = _terms(program, i)
    if terms:
        return _floats(t, rng, 1 / math.sqrt(terms), False)
    x = rng.standard_normal(t.shape)
    return np.asarray(1 + x / 8 if t.rank == 1 else x).astype(element_dtype(t.dtype))


def _terms(program: Program, i: int) -> int:
    """Terms of the first sum of products that a value enters, moved or scaled before; 0 if none."""
    reached = {i}
    for number, n in enumerate(program.nodes):
        at = [k for k, o in enumerate(n.operands) if o in reached]
        if not at:
            continue
        g = n.attr
        if isinstance(g, Generic) and len(g.maps) > 1 and len(g.reductions) and g.combine == "add":
            loops = {d for e in g.maps[at[0]] for d, _ in e.terms}
            return math.prod(g.sizes[d] for d in g.reductions if d in loops)
        if n.type.size >= program.nodes[i].type.size and n.op not in ("gather", "opaque"):
            reached.add(number)
    return 0


# ---- indices -------------------------------------------------------------------------------------
def index_extents(program: Program) -> dict[int, int]:
    """Input node → how many entries what it selects from has; nodes that select are not there.

    Read backwards: a gather's second operand, an opaque op's integers and a branch's number are
    indices, and so is what they are computed from, up to comparisons.
    """
    extents = _extents(program, {})
    return {i: extents[i] for i in program.inputs if i in extents}


def _extents(program: Program, wanted: Mapping[int, int]) -> dict[int, int]:
    """Node → the least extent it indexes; wanted: of what the caller does with results."""
    extents = dict(wanted)

    def learn(node: int, extent: int | None) -> None:
        if extent is not None and not is_float(program.nodes[node].types[0].dtype):
            extents[node] = min(extent, extents.get(node, extent))

    for i in range(len(program.nodes) - 1, -1, -1):
        for o, extent in _operand_extents(program, program.nodes[i], extents.get(i)):
            learn(o, extent)
    return extents


def _operand_extents(program: Program, n: Node, extent: int | None) -> list[tuple[int, int | None]]:
    """(operand, what it indexes at least) of one op; extent: what its result does."""
    if isinstance(n.attr, Opaque):
        return [(o, _opaque_extent(program, n.operands, o)) for o in n.operands]
    if isinstance(n.attr, Control):
        return _control_extents(n.attr, n.operands)
    if n.op == "gather" and isinstance(n.attr, Move):
        table, at = n.operands
        return [(at, program.nodes[table].type.shape[n.attr.args[0]]), (table, extent)]
    if isinstance(n.attr, Generic):
        read = {v for y in n.attr.yields for v in _values(y.body)}
        return [(n.operands[at], extent) for at in read]
    return [(o, extent) for o in n.operands]


def _opaque_extent(program: Program, operands: Sequence[int], index: int) -> int | None:
    """An unknown op that takes integers beside a table may index any of its dims."""
    t = program.nodes[index].type
    if DTYPES[t.dtype][1] not in "iu":
        return None
    shapes = [program.nodes[o].type.shape for o in operands if o != index]
    return min((d for s in shapes for d in s if d > 1), default=None)


def _control_extents(attr: Control, operands: Sequence[int]) -> list[tuple[int, int | None]]:
    """(operand, extent) by what the bodies do with their inputs."""
    extents: list[tuple[int, int | None]] = []
    first = 0
    if attr.op == COND:
        extents.append((operands[0], len(attr.bodies)))
        first = 1
    for body in attr.bodies:
        inner = index_extents(body)
        for at, i in enumerate(body.inputs):
            carried = attr.consts <= at < attr.consts + attr.carries
            if not (carried and attr.op != SCAN):  # what a while loop counts is no table's
                extents.append((operands[first + at], inner.get(i)))
    return extents


def _values(body: Expr) -> set[int]:
    """Operands whose value, not a comparison with it, is what an integer body gives."""
    operands: set[int] = set()
    seen: set[Expr] = set()
    stack = [body]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.fn == "arg":
            operands.add(int(e.value))
        elif e.fn in ("cast", "add", "sub", "mul", "max", "min", "clamp"):
            stack += e.args
        elif e.fn == "select":
            stack += e.args[1:]
    return operands
