"""Random attributes: one proposer per op, for types that are known on either side.

Pads, slices, concats and gathers among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from eqsat.hunt.layouts import (
    random_pack,
    random_reshape,
    random_retype,
    random_transpose,
    random_unpack,
)
from eqsat.hunt.nests import PADS, Misfit, Scale, Surroundings, Wish, kind_of
from eqsat.hunt.signatures import propose_generic
from eqsat.model.attr import Attr, Shape
from eqsat.model.devices import Transfer
from eqsat.model.expr import read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Custom, Fill, Leaf
from eqsat.model.movement import Move, move_of
from eqsat.model.tensor import DEFAULT, TensorType
from eqsat.ops.generics.namedops import MATMUL, named_generic
from eqsat.ops.registry import op_record, sample


# ---- movement ------------------------------------------------------------------------------------
def random_pad(k: Surroundings) -> Move:
    rng = k.rng
    shape, source = k.shape, k.source
    n = len(source if source is not None else shape if shape is not None else k.any_shape(1))
    if source is None and shape is None:
        source = tuple(k.scale.extent(rng) for _ in range(n))
    is_high_only = k.chance(0.6)
    low, high = k.fixed.get("low"), k.fixed.get("high")
    room = [rng.choice((0, 0, 1, 2, 3)) for _ in range(n)]
    if source is not None and shape is not None:
        room = [b - a for a, b in zip(source, shape, strict=len(source) == len(shape))]
    elif shape is not None:
        room = [min(r, s - 1) for r, s in zip(room, shape, strict=True)]
    if any(r < 0 for r in room):
        raise Misfit
    if low is None:
        low = tuple(0 if is_high_only else rng.randint(0, r) for r in room)
    if high is None:
        high = tuple(r - a for r, a in zip(room, low, strict=len(low) == n))
    if source is None:
        assert shape is not None
        source = tuple(s - a - b for s, a, b in zip(shape, low, high, strict=True))
    if any(v < 0 for v in (*low, *high, *source)):
        raise Misfit
    return move_of("pad", (source,), low, high, k.fixed.get("value", _pad_value(k)))


def _pad_value(k: Surroundings) -> str:
    near = [p for kind in (Layout, Move) for a in k.relatives(kind) for p in a.padding()]
    if near and k.chance(0.5):
        return k.rng.choice(near)
    return "0" if k.chance(0.65) else k.rng.choice(PADS[kind_of(k.dtype)])


def random_slice(k: Surroundings) -> Move:
    rng = k.rng
    source, shape = k.source, k.shape
    if source is None and shape is None:
        source = k.any_shape(1)
    n = len(source if source is not None else shape or ())
    is_prefix = k.chance(0.5)
    stride = [1 if is_prefix or rng.random() < 0.7 else 2 for _ in range(n)]
    start = [0 if is_prefix or rng.random() < 0.6 else rng.randint(1, 2) for _ in range(n)]
    if source is None:
        assert shape is not None
        slack = [rng.choice((0, 0, 1, 2, 3)) for _ in range(n)]
        limit = [a + (s - 1) * b + 1 for a, s, b in zip(start, shape, stride, strict=True)]
        source = tuple(a + b for a, b in zip(limit, slack, strict=True))
    elif shape is None:
        start = [min(a, s - 1) for a, s in zip(start, source, strict=True)]
        limit = [s if rng.random() < 0.4 else rng.randint(a + 1, s)
                 for a, s in zip(start, source, strict=True)]  # fmt: skip
    else:
        return _slice_between(k, source, shape)
    return move_of("slice", (source,), tuple(start), tuple(limit), tuple(stride))


def _slice_between(k: Surroundings, source: Shape, shape: Shape) -> Move:
    if len(source) != len(shape) or any(a < b for a, b in zip(source, shape, strict=True)):
        raise Misfit
    start = tuple(k.rng.choice((0, a - b)) for a, b in zip(source, shape, strict=True))
    limit = tuple(a + b for a, b in zip(start, shape, strict=True))
    return move_of("slice", (source,), start, limit, (1,) * len(shape))


def random_concat(k: Surroundings) -> Move:
    rng, count = k.rng, len(k.operands)
    shape = next((t.shape for t in k.operands if t is not None), None)
    base = k.shape if k.shape is not None else shape if shape is not None else k.any_shape(1)
    if not base or not count:
        raise Misfit
    axis = k.fixed.get("axis", rng.randrange(len(base)))
    if axis >= len(base):
        raise Misfit
    parts = [t.shape[axis] if t is not None and len(t.shape) == len(base) else 0
             for t in k.operands]  # fmt: skip
    if k.shape is not None:
        parts = _shares(rng, parts, k.shape[axis])
    parts = [p or k.scale.extent(rng) for p in parts]
    sources = [(*base[:axis], p, *base[axis + 1 :]) for p in parts]
    if any(t is not None and t.shape != s for t, s in zip(k.operands, sources, strict=True)):
        raise Misfit
    return move_of("concat", sources, axis)


def _shares(rng: Random, parts: list[int], total: int) -> list[int]:
    """Sizes of the parts that are not known yet (0), so that all make up `total`."""
    left = total - sum(parts)
    free = parts.count(0)
    if left < free or (not free and left):
        raise Misfit
    cuts = sorted(rng.sample(range(1, left), free - 1)) if free > 1 else []
    sizes = iter([b - a for a, b in zip([0, *cuts], [*cuts, left], strict=True)])
    return [p or next(sizes) for p in parts]


def random_gather(k: Surroundings) -> Move:
    rng = k.rng
    source = k.source
    index = None if k.operands[1] is None else k.operands[1].shape
    if source is None and k.shape is not None:
        return _gather_to(k, k.shape, index)
    if source is None:
        source = k.any_shape(1)
    if not source:
        raise Misfit
    axis = k.fixed.get("axis", rng.randrange(len(source)))
    if axis >= len(source):
        raise Misfit
    if index is None:
        index = tuple(k.scale.extent(rng) for _ in range(rng.choice((0, 1, 1, 2))))
    return move_of("gather", (source, index), axis)


def _gather_to(k: Surroundings, shape: Shape, index: Shape | None) -> Move:
    rng = k.rng
    count = rng.randint(0, min(2, len(shape))) if index is None else len(index)
    if count > len(shape):
        raise Misfit
    axis = k.fixed.get("axis", rng.randint(0, len(shape) - count))
    if axis + count > len(shape):
        raise Misfit
    index = shape[axis : axis + count]
    source = (*shape[:axis], k.scale.extent(rng), *shape[axis + count :])
    return move_of("gather", (source, index), axis)


# ---- proposers -----------------------------------------------------------------------------------
def fill(k: Surroundings) -> Fill:
    t = k.result or TensorType(k.element, k.any_shape())
    kind = kind_of(t.dtype)
    near = [read_literal(p) for a in k.relatives(Layout) for p in a.pads if p not in "-?"]
    value = k.rng.choice([*near, 0, *map(read_literal, PADS[kind])])
    if kind == "b":
        return Fill(bool(value), t)
    return Fill(float(value) if kind == "f" else int(value), t)


def weight(k: Surroundings) -> Leaf:
    t = k.result or TensorType(k.element, k.any_shape())
    key = f"{k.rng.getrandbits(32):08x}"
    return Leaf(f"w{key[:3]}", t, key=key)


def encoding(k: Surroundings) -> Encoding:
    shape = k.shape if k.shape is not None else k.source
    if shape is None:
        shape = k.any_shape(2)
    near = [e for e in k.relatives(Encoding) if e.source == shape]
    if near and k.chance(0.6):
        return k.rng.choice(near)
    return Encoding(shape, k.rng.choice(("lhs", "rhs", "result")), dtypes=(k.dtype,) * 3)


def transfer(k: Surroundings) -> Transfer:
    shape = k.shape if k.source is None else k.source
    shape = k.any_shape() if shape is None else shape
    origin = k.fixed.get("origin", k.rng.choice("ab"))
    return Transfer(shape, origin, k.fixed.get("device", f"{origin}2"))


def random_generic(k: Surroundings, index: int = 0, results: int = 1) -> Generic:
    w = Wish(k.rng, k.scale, k.operands, k.result, index, results)
    return propose_generic(w, k.relatives(Generic))


NAMED_DTYPES = ("f32", "f32", "f32", "f64")  # of ops by their names


def random_named(
    name: str,
    rng: Random,
    scale: Scale,
    operands: Sequence[TensorType | None],
    result: TensorType | None,
) -> Generic:
    """A `matmul` or an elementwise body that reads what is known; Misfit if nothing fits."""
    known = next((t for t in (result, *operands) if t is not None), None)
    dtype = rng.choice(NAMED_DTYPES) if known is None else known.dtype
    shapes = [None if t is None else t.shape for t in operands]
    if name == MATMUL:
        a, b = _factors(rng, scale, shapes, None if result is None else result.shape)
    else:
        a = b = scale.shape(rng) if known is None else known.shape
    given = [s if s is not None else (b if i else a) for i, s in enumerate(shapes)]
    generic = named_generic(name, dtype, DEFAULT, given)
    if generic is None:
        raise Misfit
    return generic


def _factors(
    rng: Random, scale: Scale, shapes: Sequence[Shape | None], result: Shape | None
) -> tuple[Shape, Shape]:
    """Shapes for the operands of a `matmul` that are not known."""
    ranks = [len(s) for s in (*shapes, result) if s is not None]
    rank = ranks[0] if ranks else rng.choice((2, 2, 2, 3))
    if rank < 2 or len(shapes) != 2:
        raise Misfit
    sizes = [scale.extent(rng) for _ in range(rank + 1)]
    left, right = shapes
    *batch, m, n, k = range(rank + 1)
    reads = (left, (*batch, m, k)), (right, (*batch, k, n)), (result, (*batch, m, n))
    for shape, loops in reads:
        for loop, size in zip(loops, shape or (), strict=False):
            sizes[loop] = size
    return tuple(sizes[d] for d in reads[0][1]), tuple(sizes[d] for d in reads[1][1])


PROPOSERS: dict[str, Callable[[Surroundings], Attr]] = {
    "generic": random_generic,
    "transpose": random_transpose,
    "reshape": random_reshape,
    "pack": random_pack,
    "unpack": random_unpack,
    "retype": random_retype,
    "relax": random_retype,
    "pad": random_pad,
    "slice": random_slice,
    "concat": random_concat,
    "gather": random_gather,
    "fill": fill,
    "weight": weight,
    "set_encoding": encoding,
    "unset_encoding": encoding,
    "transfer": transfer,
}


def propose(op: str, k: Surroundings) -> Attr:
    """An attribute for `op`; Misfit if none was found."""
    proposer = PROPOSERS.get(op)
    return proposer(k) if proposer is not None else _custom(op, k)


def _custom(op: str, k: Surroundings) -> Attr:
    """Attribute proposed by the sampler of an op's record."""
    shape = next((s for s in (k.shape, k.source) if s is not None), None)
    rng = np.random.default_rng(k.rng.getrandbits(32))
    attr = sample(op_record(op), rng, k.any_shape() if shape is None else shape)
    near = [a for a in k.relatives(Custom) if a.op == op and k.chance(0.3)]
    for a in [*near, attr]:
        fits = a is not None and k.shape in (None, a.shape)
        if a is not None and fits and k.source in (None, a.sources[0]):
            return a
    raise Misfit
