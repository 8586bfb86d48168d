"""The ops that terms are made of: each in all ways it can be applied to operands of given types.

A form makes exactly one node. What a way says is free of sizes (an axis, which dims a smaller
operand has), so a term can be written again at other sizes; `slice` and `reshape` ask the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Attr
from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Yield
from eqsat.model.movement import Reshape, Transpose, move_of
from eqsat.model.program import Builder
from eqsat.model.tensor import DEFAULT, NONE, TensorType
from eqsat.ops.generics.canonical import generic_node, identity

FLOAT, INDEX = "f32", "i32"
MOST_DIMS = 3
Way = tuple[object, ...]  # how a form is applied, without sizes; the last one may be a letter
Sizes = Mapping[str, int]
Write = Callable[[Builder, tuple[int, ...], Way, Sizes], int]


@dataclass(frozen=True)
class Form:
    """One op of terms: `ways` lists how it applies to operands of these types, `write` does it."""

    arity: int
    ways: Callable[[Sequence[TensorType], Sizes], Iterator[Way]]
    write: Write
    commutes: bool = False


# ---- elementwise ---------------------------------------------------------------------------------
def _same(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    yield ()


def _spread(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    """The dims of the first operand that the second one has, in order."""
    a, b = (t.shape for t in types)
    for dims in combinations(range(len(a)), len(b)):
        if tuple(a[d] for d in dims) == b:
            yield dims


def _elementwise(name: str) -> Write:
    def write(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
        shape = b.type(operands[0]).shape
        maps = [identity(len(shape)), tuple(dim(d) for d in way if isinstance(d, int))]
        reads = list(zip(operands, maps, strict=False))
        body = Yield(Expr(name, tuple(arg(i) for i in range(len(reads)))), FLOAT)
        return generic_node(b, shape, range(len(shape)), reads, [body], precision=NONE)

    return write


# ---- contractions and reductions -----------------------------------------------------------------
def _chained(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    a, b = (t.shape for t in types)
    if a and b and a[-1] == b[0] and len(a) <= 2 and len(b) <= 2:
        yield ()


def _matmul(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
    left, right = (b.type(o).shape for o in operands)
    rank = len(left) + len(right) - 2
    m, k = len(left) - 1, rank
    maps: tuple[Map, Map] = (
        tuple(dim(d) for d in (*range(m), k)),
        tuple(dim(d) for d in (k, *range(m, rank))),
    )
    reads = list(zip(operands, maps, strict=True))
    product = Yield(Expr("mul", (arg(0), arg(1))), FLOAT, "add")
    loops = (*left[:-1], *right[1:], left[-1])
    return generic_node(b, loops, range(rank), reads, [product], precision=DEFAULT)


def _outer_ways(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    if all(len(t.shape) == 1 for t in types) and types[0] != types[1]:
        yield ()


def _outer(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
    loops = [b.type(o).shape[0] for o in operands]
    reads = [(o, (dim(i),)) for i, o in enumerate(operands)]
    product = Yield(Expr("mul", (arg(0), arg(1))), FLOAT)
    return generic_node(b, loops, range(2), reads, [product], precision=NONE)


def _axes(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    for axis in range(len(types[0].shape)):
        yield (axis,)


def _reduction(combine: str) -> Write:
    def write(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
        shape = b.type(operands[0]).shape
        (axis,) = way
        dims = [d for d in range(len(shape)) if d != axis]
        read = (operands[0], identity(len(shape)))
        body = Yield(arg(0), FLOAT, combine)
        return generic_node(b, shape, dims, [read], [body], precision=NONE)

    return write


# ---- movement ------------------------------------------------------------------------------------
def _moved(op: str, attr: Callable[[Sequence[TensorType], Way], Attr]) -> Write:
    def write(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
        return b.add(op, operands, attr([b.type(o) for o in operands], way))

    return write


def _turns(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    rank = len(types[0].shape)
    for d in range(rank - 1):
        yield tuple([*range(d), d + 1, d, *range(d + 2, rank)])


def _transpose(types: Sequence[TensorType], way: Way) -> Attr:
    return Transpose(types[0].shape, tuple(d for d in way if isinstance(d, int)))


def _parts(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    for axis in range(len(types[0].shape)):
        yield (axis, "first")
        yield (axis, "rest")


def _slice(types: Sequence[TensorType], way: Way) -> Attr:
    """Of one dim what comes first, or all but that."""
    shape, (axis, part) = types[0].shape, way
    start = tuple(int(d == axis and part == "rest") for d in range(len(shape)))
    limit = tuple(1 if d == axis and part == "first" else s for d, s in enumerate(shape))
    return move_of("slice", (shape,), start, limit, (1,) * len(shape))


def _pad(types: Sequence[TensorType], way: Way) -> Attr:
    shape = types[0].shape
    high = tuple(int(d == way[0]) for d in range(len(shape)))
    return move_of("pad", (shape,), (0,) * len(shape), high, "0.0")


def _joints(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    a, b = (t.shape for t in types)
    for axis in range(len(a)):
        if a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :] and len(a) == len(b):
            yield (axis,)


def _concat(types: Sequence[TensorType], way: Way) -> Attr:
    return move_of("concat", [t.shape for t in types], way[0])


def _flat_ways(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    if len(types[0].shape) > 1:
        yield ()


def _flat(types: Sequence[TensorType], way: Way) -> Attr:
    return Reshape(types[0].shape, (types[0].size,))


def _looked_up(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    if types[1].dtype == INDEX:
        yield from _axes(types, sizes)


def _gather(types: Sequence[TensorType], way: Way) -> Attr:
    return move_of("gather", [t.shape for t in types], way[0])


def _wider(types: Sequence[TensorType], sizes: Sizes) -> Iterator[Way]:
    shape = types[0].shape
    for letter, size in sizes.items():
        if size not in shape:
            yield from ((at, letter) for at in {0, len(shape)})


def _broadcast(b: Builder, operands: tuple[int, ...], way: Way, sizes: Sizes) -> int:
    shape = list(b.type(operands[0]).shape)
    at, letter = way
    assert isinstance(at, int) and isinstance(letter, str)
    dims = [d for d in range(len(shape) + 1) if d != at]
    shape.insert(at, sizes[letter])
    read = (operands[0], tuple(dim(d) for d in dims))
    body = Yield(arg(0), FLOAT)
    return generic_node(b, shape, range(len(shape)), [read], [body], precision=NONE)


UNARY = ("neg", "exp", "abs", "tanh", "sqrt", "log")
BINARY = {"add": True, "sub": False, "mul": True, "div": False, "max": True, "min": True}
FORMS: dict[str, Form] = {
    **{f: Form(1, _same, _elementwise(f)) for f in UNARY},
    **{f: Form(2, _spread, _elementwise(f), commutes) for f, commutes in BINARY.items()},
    "matmul": Form(2, _chained, _matmul),
    "outer": Form(2, _outer_ways, _outer),
    "sum": Form(1, _axes, _reduction("add")),
    "largest": Form(1, _axes, _reduction("max")),
    "transpose": Form(1, _turns, _moved("transpose", _transpose)),
    "slice": Form(1, _parts, _moved("slice", _slice)),
    "pad": Form(1, _axes, _moved("pad", _pad)),
    "concat": Form(2, _joints, _moved("concat", _concat)),
    "reshape": Form(1, _flat_ways, _moved("reshape", _flat)),
    "gather": Form(2, _looked_up, _moved("gather", _gather)),
    "broadcast": Form(1, _wider, _broadcast),
}  # fmt: skip
DEFAULT_FORMS = ("add", "mul", "neg", "matmul", "sum", "transpose", "concat", "broadcast")
