"""Random generics: elementwise, reductions, contractions, windows, several results, tiled ones.

Every proposer gets what is known of the operands and of the result (a type, or None) and gives a
canonical `Generic` that fits, or raises `Misfit`: the caller then tries something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from eqsat.hunt.nests import Loopnest, Misfit, Wish, kind_of, random_body, reduction_body
from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.target import Tile
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.attrs import FUNCTIONS
from eqsat.ops.generics.canonical import canonical_generic

WIDER = {"i8": ("i32",), "u8": ("i32", "u32"), "bf16": ("f32",), "f16": ("f32",), "f32": ("f64",)}


# ---- the kinds of generics ---------------------------------------------------------------------
def elementwise(w: Wish) -> Generic:
    """Identity, permuted, partial and shifted maps; any body."""
    nest = w.nest()
    for i in range(len(w.operands)):
        nest.read(w.shape(i))
    dtype = w.dtype()
    dtypes = w.dtypes(dtype)
    return nest.generic(_yields(w, dtypes, dtype, ""), dtypes)


def reduction(w: Wish) -> Generic:
    """Every combine, over one or two loops that any operand may index."""
    nest = w.nest(may_reduce=True)
    if w.result is None and any(w.operands):
        _drop_a_loop(nest, w)
    if not any(w.operands):
        for _ in range(w.rng.choice((1, 1, 1, 2))):
            nest.reduction()
    for i in range(len(w.operands)):
        nest.read(w.shape(i))
    dtype = w.dtype()
    dtypes = w.dtypes(dtype)
    return nest.generic(_yields(w, dtypes, dtype, _combine(w.rng, dtype)), dtypes)


def _drop_a_loop(nest: Loopnest, w: Wish) -> None:
    """A known operand's dim becomes a reduction: its loop is taken out of the result."""
    if nest.sizes:
        del nest.sizes[w.rng.randrange(len(nest.sizes))]
        nest.rank = len(nest.sizes)


def _combine(rng: Random, dtype: str) -> str:
    kinds = {"f": ("add", "add", "max", "min", "mul"), "b": ("and", "or", "max", "min")}
    return rng.choice(kinds.get(kind_of(dtype), ("add", "add", "max", "min", "mul", "and", "or")))


def _yields(w: Wish, dtypes: Sequence[str], dtype: str, combine: str) -> list[Yield]:
    yields = []
    for i in range(w.results):
        element = dtype if i == w.index or w.rng.random() < 0.6 else w.scale.element(w.rng)
        how = combine if element == dtype or not combine else _combine(w.rng, element)
        body = reduction_body(w.rng, dtypes, element, how) if how else _body(w, dtypes, element)
        yields.append(Yield(body, element, how))
    return yields


def _body(w: Wish, dtypes: Sequence[str], dtype: str) -> Expr:
    """Often one of the few bodies that programs are made of; rarely one that leaves a hole."""
    rng, n = w.rng, len(dtypes)
    is_same = all(d == dtype for d in dtypes) and dtype != "bool"
    choice = rng.random()
    if is_same and n == 1 and choice < 0.25:
        return arg(0)
    if n == 1 and dtypes[0] != dtype and choice < 0.4:
        return cast(arg(0), dtype)
    if is_same and n > 1 and (w.scale.is_plain or choice < 0.3):
        return _plain(rng, n, dtype)
    if n > 1 and choice > 0.95:
        unread = rng.randrange(n)
        rest = [i for i in range(n) if i != unread]
        body = random_body(rng, [dtypes[i] for i in rest], dtype)
        return body.substitute({j: arg(i) for j, i in enumerate(rest)})
    return random_body(rng, dtypes, dtype)


def _plain(rng: Random, n: int, dtype: str) -> Expr:
    """x0 · x1 + x2 and its like, at times with a constant first."""
    names = ("mul", "mul", "add", "sub", "div" if is_float(dtype) else "max")
    body = arg(0)
    if rng.random() < 0.2:
        body = call("mul", body, const(2.0 if is_float(dtype) else 2))
    for i in range(1, n):
        body = call(rng.choice(names), body, arg(i))
    return body


def contraction(w: Wish) -> Generic:
    """A sum of products: any number of batch, m, n and k dims, in any order, with casts."""
    if len(w.operands) != 2 or w.results != 1:
        raise Misfit
    rng = w.rng
    nest = w.nest(may_reduce=True)
    if not nest.sizes and w.result is None and not any(w.operands):
        nest.sizes, nest.rank = [w.scale.extent(rng), w.scale.extent(rng)], 2
    dtype = w.dtype()
    if dtype == "bool":
        raise Misfit
    k = [nest.reduction() for _ in range(rng.choice((1, 1, 1, 2)))] if not any(w.operands) else []
    lhs, rhs = _sides(rng, nest.rank)
    for i, loops in enumerate((lhs, rhs)):
        inner = [*loops, *k]
        if rng.random() < 0.5:
            rng.shuffle(inner)
        shape = w.shape(i)
        if shape is not None:
            nest.read(shape)
        elif any(w.operands):
            nest.read(None, [*loops, *range(nest.rank, len(nest.sizes))])
        else:
            nest.maps.append(tuple(dim(d) for d in inner))
            nest.shapes.append(tuple(nest.sizes[d] for d in inner))
    return nest.generic([Yield(*_product(w, dtype), "add")], _product_dtypes(w, dtype))


def _sides(rng: Random, rank: int) -> tuple[list[int], list[int]]:
    """Each result loop is m, n or batch; two loops alone are mostly m and n."""
    if rank == 2 and rng.random() < 0.7:
        return ([0], [1]) if rng.random() < 0.8 else ([1], [0])
    lhs, rhs = [], []
    for d in range(rank):
        role = rng.choice("mnmnb")
        if role in "mb":
            lhs.append(d)
        if role in "nb":
            rhs.append(d)
    return lhs, rhs


def _product(w: Wish, dtype: str) -> tuple[Expr, str]:
    have = _product_dtypes(w, dtype)
    factors = [arg(i) if h == dtype else cast(arg(i), dtype) for i, h in enumerate(have)]
    return call("mul", *factors), dtype


def _product_dtypes(w: Wish, dtype: str) -> list[str]:
    """The types of the factors: narrower ones are cast. The same for the same random state."""
    narrow = [n for n, wide in WIDER.items() if dtype in wide]
    pick = narrow[0] if narrow and dtype in ("i32", "f64", "u32") else dtype
    return [t.dtype if t is not None else pick for t in w.operands]


def window(w: Wish) -> Generic:
    """Convolutions (channels first or last, 1 or 2 dims, stride, dilation) and poolings."""
    if any(w.operands) or len(w.operands) not in (1, 2) or w.results != 1:
        raise Misfit
    rng = w.rng
    nest = w.nest(may_reduce=True)
    nest.most_reductions = 3
    if w.result is None:
        spatial = rng.choice((1, 1, 2))
        nest.sizes = [rng.choice((1, 2)), *(rng.choice((2, 3, 4)) for _ in range(spatial))]
        nest.sizes.insert(rng.choice((1, len(nest.sizes))), rng.choice((1, 2, 3, 5)))
        nest.rank = len(nest.sizes)
    if nest.rank < 2:
        raise Misfit
    return (_convolution if len(w.operands) == 2 else _pooling)(w, nest)


def _slide(rng: Random, d: int, r: int) -> Affine:
    return affine([(d, rng.choice((1, 1, 2))), (r, rng.choice((1, 1, 2)))])


def _convolution(w: Wish, nest: Loopnest) -> Generic:
    rng = w.rng
    filters = rng.choice((1, nest.rank - 1))
    spatial = [d for d in range(1, nest.rank) if d != filters][:2]
    channel = nest.reduction(rng.choice((1, 2, 3, 4)))
    taps = [nest.reduction(rng.choice((1, 2, 3))) for _ in spatial]
    image = [dim(0), *(_slide(rng, d, r) for d, r in zip(spatial, taps, strict=True))]
    image.insert(1 if filters == 1 else len(image), dim(channel))
    weights = [*map(dim, taps), dim(channel), dim(filters)]
    if rng.random() < 0.5:
        weights = [dim(filters), dim(channel), *map(dim, taps)]
    nest.maps += [tuple(image), tuple(weights)]
    nest.shapes += [tuple(nest.extent(e) for e in m) for m in nest.maps]
    dtype = "f32" if w.dtype() == "bool" and w.result is None else w.dtype()
    if dtype == "bool":
        raise Misfit
    return nest.generic([Yield(*_product(w, dtype), "add")], _product_dtypes(w, dtype))


def _pooling(w: Wish, nest: Loopnest) -> Generic:
    rng = w.rng
    slides = set(rng.sample(range(nest.rank), rng.choice((1, min(2, nest.rank)))))
    m = [
        _slide(rng, d, nest.reduction(rng.choice((1, 2, 3)))) if d in slides else dim(d)
        for d in range(nest.rank)
    ]
    nest.maps.append(tuple(m))
    nest.shapes.append(tuple(nest.extent(e) for e in m))
    dtype = w.dtype()
    dtypes = w.dtypes(dtype)
    return nest.generic(_yields(w, dtypes, dtype, _combine(rng, dtype)), dtypes)


def tiled(w: Wish) -> Generic:
    """A contraction that a rule has packed by a tile before."""
    if any(w.operands) or len(w.operands) != 2 or w.results != 1:
        raise Misfit
    rng = w.rng
    sizes = tuple(rng.choice((1, 2, 3, 4)) for _ in range(3))
    plain = replace(w, result=None)
    if w.result is not None:
        if len(w.result.shape) != 4:
            raise Misfit
        outer_m, outer_n, m, n = w.result.shape
        sizes = (m, n, sizes[2])
        plain = replace(w, result=TensorType(w.result.dtype, (outer_m * m, outer_n * n)))
    tile = Tile(tuple(zip("mnk", sizes, strict=True)), 1.0)
    packed = FUNCTIONS["pack_loops"].meaning(contraction(plain), tile)
    if packed is None:
        raise Misfit
    if w.result is not None and packed.sig.result_shape != w.result.shape:
        raise Misfit
    return packed.sig


KINDS: tuple[tuple[int, Callable[[Wish], Generic]], ...] = (
    (8, elementwise), (4, reduction), (6, contraction), (2, window), (1, tiled),
)  # fmt: skip


def propose_generic(w: Wish, near: Sequence[Generic] = ()) -> Generic:
    """A generic of any kind, every second time a relative of one that is there already."""
    if near and w.rng.random() < 0.5:
        try:
            return related_generic(w, w.rng.choice(near))
        except Misfit:
            pass
    weights = [n + 40 * (kind.__name__ == w.scale.kind) for n, kind in KINDS]
    for _ in range(4):
        (_, kind) = w.rng.choices(KINDS, weights)[0]
        try:
            g = kind(w)
        except Misfit:
            continue
        if fits(w, g):
            return g
    raise Misfit


def fits(w: Wish, g: Generic) -> bool:
    """Whether the generic has the known types; its own form is checked as well."""
    for t, shape, dtype in zip(w.operands, g.shapes, g.dtypes, strict=True):
        if t is not None and t != TensorType(dtype, shape):
            return False
    if w.result is None:
        return True
    return TensorType(g.yields[w.index].dtype, g.result_shape) == w.result


# ---- relatives ------------------------------------------------------------------------------
def related_generic(w: Wish, g: Generic) -> Generic:
    """The same generic, or one with a loop resized, a map permuted, or another body."""
    if len(g.maps) != len(w.operands) or len(g.yields) != w.results:
        raise Misfit
    rng = w.rng
    change = rng.choice((_same, _resized, _resized, _remapped, _rebodied))
    related = change(rng, g)
    if not fits(w, related) or math.prod(related.sizes) > w.scale.points:
        raise Misfit
    return related


def _same(_: Random, g: Generic) -> Generic:
    return g


def _resized(rng: Random, g: Generic) -> Generic:
    """Another extent for one loop, and for the operand dims that are that loop alone."""
    if g.tile or not g.sizes:
        raise Misfit
    d = rng.randrange(len(g.sizes))
    if any(e.dim is None and d in dict(e.terms) for m in g.maps for e in m):
        raise Misfit
    size = rng.choice([s for s in (1, 2, 3, 4, 5, 7) if s != g.sizes[d]])
    shapes = [
        tuple(size if e.dim == d else s for e, s in zip(m, shape, strict=True))
        for m, shape in zip(g.maps, g.shapes, strict=True)
    ]
    sizes = (*g.sizes[:d], size, *g.sizes[d + 1 :])
    return _remade(g, sizes, g.maps, shapes, g.yields)


def _remapped(rng: Random, g: Generic) -> Generic:
    """One operand stored in another order of its dims."""
    if g.tile or not g.maps:
        raise Misfit
    i = rng.randrange(len(g.maps))
    order = list(range(len(g.maps[i])))
    rng.shuffle(order)
    maps = [tuple(m[q] for q in order) if j == i else m for j, m in enumerate(g.maps)]
    shapes = [tuple(s[q] for q in order) if j == i else s for j, s in enumerate(g.shapes)]
    return _remade(g, g.sizes, maps, shapes, g.yields)


def _rebodied(rng: Random, g: Generic) -> Generic:
    yields = []
    for y in g.yields:
        if y.combine and is_float(y.dtype):
            yields.append(replace(y, body=reduction_body(rng, g.dtypes, y.dtype, y.combine)))
        else:
            yields.append(replace(y, body=random_body(rng, g.dtypes, y.dtype)))
    return _remade(g, g.sizes, g.maps, g.shapes, yields)


def _remade(
    g: Generic, sizes: Sequence[int], maps: Sequence[Map], shapes: Sequence[Shape],
    yields: Sequence[Yield],
) -> Generic:  # fmt: skip
    return canonical_generic(
        sizes, range(g.rank), maps, shapes, yields, (), g.dtypes, precision=g.precision
    )
