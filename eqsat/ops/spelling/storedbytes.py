"""Quantised values: stored as bytes they move as bytes, and their products are those of integers.

A function of one byte, such as DequantizeLinear of one scale, is known by its 256 values. Moves,
and pools that pick a largest or smallest value, stand in front of it: a pad becomes the byte that
gives its value. Ops that read all of it compute it themselves, however many they are; and what
gives every byte back, such as QuantizeLinear of what was just dequantised, is none. Exact to the
bit, as all of it picks or recomputes values by functions that IEEE 754 rounds in one way.

Products of dequantised numbers become products of integers as the rules `multiply-integers` and
`multiply-shifted-integers` do it, which meet what other rules make. What stands behind a product
then merges with its scales, so there is nothing between them to be cut: the search of a quantised
network is that of the one in floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.model.affine import Affine, map_loops
from eqsat.model.attr import Attr
from eqsat.model.expr import Expr, arg, literal, read_literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Node, Program, rewritten
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.algebra.linear import replaced
from eqsat.ops.algebra.quantised import difference_product, integer_product, shifted_integer_product
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node, identity
from eqsat.ops.meaning.scalar import called, computed, cost, hold, integer_range, neutral
from eqsat.ops.movement.moves import pad_of

# ---- bytes ---------------------------------------------------------------------------------------
Array = np.ndarray[Any, Any]
BYTES = frozenset({"i8", "u8"})
MOST_OPERATIONS = 8  # of a function that is computed by every reader
EXACT = frozenset(
    {"arg", "const", "cast", "add", "sub", "mul", "div", "max", "min", "clamp", "neg", "abs"}
    | {"round_even", "round_away", "floor", "ceil", "select", "eq", "ne", "lt", "le", "gt", "ge"}
)  # functions that IEEE 754 rounds in one way


def moved_as_bytes(program: Program) -> Program:
    """The program whose moves and pools are of bytes, which their readers widen."""
    if not any(n.types[0].dtype in BYTES for n in program.nodes):
        return program
    return rewritten(program, lambda b, _, n, operands: _written(b, n, operands))


def is_byte_function(g: Attr) -> bool:
    """Whether a generic widens one operand of bytes, element by element, by few operations."""
    return (
        isinstance(g, Generic)
        and _is_of_bytes(g)
        and is_float(g.yields[0].dtype)
        and cost(g.body) <= MOST_OPERATIONS
    )


def _is_of_bytes(g: Generic) -> bool:
    is_plain = len(g.yields) == len(g.maps) == 1 and not g.tile and g.is_elementwise
    return is_plain and g.dtypes[0] in BYTES


# ---- the values of a function of one byte --------------------------------------------------------
@lru_cache(maxsize=1_000)
def _values(body: Expr, dtype: str) -> tuple[Array, Array] | None:
    """Of every byte, least first: rounded to f32 step by step, and not rounded; None of functions
    that are not rounded in one way."""
    if any(e.fn not in EXACT or (e.fn == "cast" and _is_other(e.value)) for e in body.walk()):
        return None
    low, high = integer_range(dtype)
    given = [hold(np.arange(low, high + 1), dtype)]

    def rounded(e: Expr, values: Sequence[Any]) -> Any:
        is_wide = e.fn == "cast" and is_float(e.value)
        return np.asarray(values[0], np.float32) if is_wide else called(e, values, given)

    (single,) = computed([body], rounded)
    (double,) = computed([body], lambda e, values: called(e, values, given))
    return single, double


def _is_other(dtype: str) -> bool:
    return is_float(dtype) and dtype != "f32"


def _gives_back(part: Expr, dtypes: Sequence[str]) -> bool:
    """Whether a part of a body is a byte that it reads, whatever that is."""
    if part.fn != "cast" or len(part.operands()) != 1 or part.value not in BYTES:
        return False
    (i,) = part.operands()
    if dtypes[i] != part.value:
        return False
    tables = _values(part.substitute({i: arg(0)}), dtypes[i])
    low, high = integer_range(dtypes[i])
    return tables is not None and all(np.array_equal(v, np.arange(low, high + 1)) for v in tables)


def _byte_of(g: Generic, value: Any) -> int | None:
    """The byte that gives a value, to the bit."""
    tables = _values(g.body, g.dtypes[0])
    if tables is None or isinstance(value, bool):
        return None
    wanted = np.float32(value)
    same = np.ones(256, bool)
    for values in tables:
        same &= (values == wanted) & (np.signbit(values) == np.signbit(wanted))
    return int(np.argmax(same)) + integer_range(g.dtypes[0])[0] if same.any() else None


def _is_increasing(g: Generic) -> bool:
    """Whether a larger byte never gives less, nor a byte no number."""
    tables = _values(g.body, g.dtypes[0])
    return tables is not None and all(bool((v[1:] >= v[:-1]).all()) for v in tables)


# ---- who reads it --------------------------------------------------------------------------------
def _written(b: Builder, n: Node, operands: tuple[int, ...]) -> int | None:
    """A node rewritten to read bytes; None if it stays."""
    g = n.attr
    if isinstance(g, Generic):
        if len(g.yields) != 1 or g.tile or contraction_roles(g) is not None:
            return None
        written = _without_round_trips(b, operands, g)
        written = _pooled(b, operands, g) if written is None else written
        return _inside(b, operands, g) if written is None else written
    functions = [_function(b, o) for o in operands]
    if not functions or functions[0] is None:
        return None
    f, x = functions[0]
    if isinstance(g, Transpose | Reshape):
        return _applied(b, f, b.add(n.op, (x,), g))
    return _moved(b, f, x, functions, operands, g) if isinstance(g, Move) else None


def _without_round_trips(b: Builder, operands: tuple[int, ...], g: Generic) -> int | None:
    """An op without what dequantises a byte and quantises it back to the same."""
    if BYTES.isdisjoint(g.dtypes):
        return None
    part = next((e for e in g.body.walk() if _gives_back(e, g.dtypes)), None)
    if part is None:
        return None
    y = replace(g.yields[0], body=replaced(g.body, part, arg(part.operands()[0])))
    reads = list(zip(operands, g.maps, strict=True))
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)


def _function(b: Builder, i: int) -> tuple[Generic, int] | None:
    """A value as a function of the bytes of another one, as these lie.

    None of quotients: executors may multiply by the reciprocal.
    """
    g = b.nodes[i].attr
    if not isinstance(g, Generic) or not is_byte_function(g) or g.maps[0] != identity(g.rank):
        return None
    if any(e.fn == "div" for e in g.body.walk()):
        return None
    return (g, b.nodes[i].operands[0]) if g.shapes[0] == g.result_shape else None


def _applied(b: Builder, f: Generic, x: int) -> int:
    shape = b.type(x).shape
    reads = [(x, identity(len(shape)))]
    return generic_node(b, shape, range(len(shape)), reads, f.yields, precision=NONE)


def _moved(
    b: Builder,
    f: Generic,
    x: int,
    functions: Sequence[tuple[Generic, int] | None],
    operands: tuple[int, ...],
    m: Move,
) -> int | None:
    """A pad, slice, concat or gather of the bytes, in front of their function."""
    if m.op == "slice":
        return _applied(b, f, b.add("slice", (x,), m))
    if m.op == "gather":
        return _applied(b, f, b.add("gather", (x, operands[1]), m))
    if m.op == "pad":
        low, high, text = m.args
        byte = _byte_of(f, read_literal(text))
        if byte is None:
            return None
        return _applied(b, f, b.add("pad", (x,), pad_of(m.sources[0], low, high, literal(byte))))
    same = [h[1] for h in functions if h and (h[0].yields, h[0].dtypes) == (f.yields, f.dtypes)]
    if len(same) < len(operands):
        return None
    return _applied(b, f, b.add("concat", tuple(same), m))


def _inside(b: Builder, operands: tuple[int, ...], g: Generic) -> int | None:
    """An op that reads all of what it reads once, with the functions of bytes in its body."""
    loops, reads = {d for d, size in enumerate(g.sizes) if size != 1}, list[Operand]()
    put: dict[int, Expr] = {}
    for j, (o, m) in enumerate(zip(operands, g.maps, strict=True)):
        f = b.nodes[o].attr
        is_once = all(e.dim is not None for e in m if e.terms) and map_loops(m) >= loops
        if is_once and isinstance(f, Generic) and is_byte_function(f):
            put[j] = f.body.substitute({0: arg(j)})
            reads.append((b.nodes[o].operands[0], compose_maps(f.maps[0], m)))
        else:
            reads.append((o, m))
    if not put:
        return None
    body = g.body.substitute({j: put.get(j, arg(j)) for j in range(len(reads))})
    y = Yield(body, g.yields[0].dtype, g.combine)
    return generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)


# ---- pools ---------------------------------------------------------------------------------------
def _pooled(b: Builder, operands: tuple[int, ...], g: Generic) -> int | None:
    """A largest or smallest value of windows: that of the bytes, in front of their function.

    Pads that are never picked become the byte that is picked last.
    """
    if g.body != arg(0) or g.combine not in ("max", "min") or len(g.maps) != 1:
        return None
    x, dtype, pad = operands[0], g.dtypes[0], b.nodes[operands[0]].attr
    is_padded = isinstance(pad, Move) and pad.op == "pad"
    if isinstance(pad, Move) and is_padded:
        is_neutral = read_literal(pad.args[2]) == neutral(g.combine, dtype)
        if not is_neutral or not _meets_operand(g, pad):
            return None
        (x,) = b.nodes[x].operands
    byte_function = _function(b, x)
    if byte_function is None or not _is_increasing(byte_function[0]):
        return None
    f, x = byte_function
    if isinstance(pad, Move) and is_padded:
        last = literal(neutral(g.combine, f.dtypes[0]))
        low, high, _ = pad.args
        x = b.add("pad", (x,), pad_of(pad.sources[0], low, high, last))
    y = Yield(arg(0), f.dtypes[0], g.combine)
    reads = [(x, g.maps[0])]
    return _applied(b, f, generic_node(b, g.sizes, range(g.rank), reads, [y], precision=NONE))


def _meets_operand(g: Generic, pad: Move) -> bool:
    """Whether every window has an element of what is padded."""
    (source,), low = pad.sources, pad.args[0]
    ends = [(a, a + n) for a, n in zip(low, source, strict=True)]
    loops = [d for e in g.maps[0] for d, _ in e.terms if d >= g.rank]
    if len(set(loops)) != len(loops):
        return False
    return all(_meets(g, e, *inside) for e, inside in zip(g.maps[0], ends, strict=True))


def _meets(g: Generic, e: Affine, begin: int, end: int) -> bool:
    """Whether some point of a window lies between two ends, wherever the window is."""
    starts, points = {e.constant}, {0}
    for d, s in e.terms:
        steps = [s * k for k in range(g.sizes[d])]
        if d < g.rank:
            starts = {a + k for a in starts for k in steps}
        else:
            points = {a + k for a in points for k in steps}
    return all(any(begin <= a + k < end for k in points) for a in starts)


# ---- products of integers ------------------------------------------------------------------------
def integer_products(program: Program, *, differences: bool = False) -> Program:
    """The program with every product of dequantised numbers as one of integers, and its scales.

    differences: also of what integers are less their zero points, which kernels multiply as bytes.
    """

    def write(b: Builder, _: int, n: Node, operands: tuple[int, ...]) -> int | None:
        g = n.attr
        if not isinstance(g, Generic) or len(operands) != 2 or not contraction_roles(g):
            return None
        return _of_integers(b, g, operands, differences)

    return rewritten(program, write)


def _of_integers(
    b: Builder, h: Generic, operands: tuple[int, ...], differences: bool
) -> int | None:
    for side in (0, 1):
        given, other = b.nodes[operands[side]], b.nodes[operands[1 - side]]
        e, d = given.attr, other.attr
        if not isinstance(e, Generic) or not isinstance(d, Generic):
            return None
        for i in range(len(d.maps)):
            pair = (e, *given.operands), (d, *other.operands)
            scaled = _scaled(b, h, side, *pair, i, differences)
            if scaled is not None:
                return scaled
    return None


def _scaled(
    b: Builder, h: Generic, side: int, one: tuple[Generic, *tuple[int, ...]],
    two: tuple[Generic, *tuple[int, ...]], i: int, differences: bool,
) -> int | None:  # fmt: skip
    """The product of what `one` dequantises and of operand i of `two`, times both scales."""
    (e, *xs), (d, *ws) = one, two
    rest = [*ws[:i], *ws[i + 1 :]]
    plain = integer_product(h, side, e, d, i)
    if plain is None and differences:
        plain = difference_product(h, side, e, d, i)
    if plain is not None:
        pair = (xs[0], ws[i]) if side == 0 else (ws[i], xs[0])
        total = b.add("generic", pair, plain.product)
        return b.add("generic", (total, *rest), plain.scaled)
    shifted = shifted_integer_product(h, side, e, d, i)
    if shifted is None:
        return None
    pair = (xs[0], ws[i]) if side == 0 else (ws[i], xs[0])
    total = b.add("generic", pair, shifted.product)
    sums = b.add("generic", (ws[i],), shifted.sums)
    return b.add("generic", (total, sums, *rest), shifted.scaled)
