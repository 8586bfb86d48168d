"""Products as XLA computes them: in whatever order of dims, with transposes of their own."""

from __future__ import annotations

from itertools import permutations

import jax
import numpy as np
import pytest
from fuzz.worst import worst_error
from seeds import one_in, seeds

from eqsat.execute.loops import generic
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.ops.meaning.structured import evaluate_generic

M, N, K = 160, 16, 144  # such that operands are large enough for passes of their own
ORDERS = [(first, last) for first in ("mk", "km", "kjm", "jmk") for last in ("nk", "kn", "njk")]


def product_of(first: str, last: str, result: str, sizes: dict[str, int]) -> Generic:
    """Sums over k, and j where both have it, of the operands with dims in these orders."""
    summed = [d for d in sizes if d in first + last and d not in result]
    loops = [*result, *summed]
    maps = tuple(tuple(dim(loops.index(d)) for d in side) for side in (first, last))
    shapes = tuple(tuple(sizes[d] for d in side) for side in (first, last))
    y = Yield(call("mul", arg(0), arg(1)), "f32", "add")
    return Generic(
        tuple(sizes[d] for d in loops), len(result), maps, shapes, (y,), (), ("f32", "f32"),
        precision="highest",
    )  # fmt: skip


@pytest.mark.parametrize(("result", "products"), [("mn", ()), ("nm", (1,))])
@pytest.mark.parametrize(("first", "last"), one_in(3, ORDERS))
def test_products_in_any_order(
    first: str, last: str, result: str, products: tuple[int, ...]
) -> None:
    sizes = {"m": M, "n": N, "k": K}
    if "j" in first and "j" in last:
        sizes["j"] = 3
    first, last = ("".join(d for d in side if d in sizes) for side in (first, last))
    _check(product_of(first, last, result, sizes), products)


@pytest.mark.parametrize("first", one_in(2, ["".join(p) for p in permutations("bmk")]))
def test_vectors_and_batches(first: str) -> None:
    sizes = {"b": 3, "m": M, "k": K}
    for last in ("kb", "bk"):
        _check(product_of(first, last, "bm", sizes))
    without = "".join(d for d in first if d != "b")
    _check(product_of(without, "k", "m", {"m": M, "k": K}))
    _check(product_of("k", without, "m", {"m": M, "k": K}))


@pytest.mark.parametrize("first", seeds(1, ["kbm", "bmk", "mkb"]))
@pytest.mark.parametrize("last", ["nbk", "bkn"])
@pytest.mark.parametrize("result", ["bmn", "nbm"])
def test_batches_in_any_order(first: str, last: str, result: str) -> None:
    _check(product_of(first, last, result, {"b": 2, "m": 256, "k": 64, "n": 4}))


def test_keys_of_a_few_queries_are_rows() -> None:
    """They lie as [rows, batch, k]: as columns all of them would be transposed."""
    sizes = {"b": 2, "m": 4, "k": 64, "n": 8192}
    for first, last in (("bmk", "nbk"), ("nbk", "bmk")):
        _check(g := product_of(first, last, "bmn", sizes))
        xs = [jax.ShapeDtypeStruct(s, "float32") for s in g.shapes]
        found = str(jax.make_jaxpr(lambda *xs, g=g: generic(g, xs))(*xs))
        assert "f32[2,8192,4] = dot_general" in found
        assert "f32[2,8192,4] = optimization_barrier" in found


@pytest.mark.parametrize("dims", one_in(2, ["".join(p) for p in permutations("amk")]))
@pytest.mark.parametrize("combine", ["add", "max"])
def test_reductions_read_an_operand_in_its_order(dims: str, combine: str) -> None:
    """Of x and what is there per row; nothing is transposed but the smaller result."""
    sizes = {"a": 3, "m": 5, "k": 7}
    maps = (tuple(dim("amk".index(d)) for d in dims), (dim(1),))
    shapes = tuple(tuple(sizes["amk"[e.terms[0][0]]] for e in m) for m in maps)
    y = Yield(call("exp", call("sub", arg(0), arg(1))), "f32", combine)
    g = Generic(tuple(sizes.values()), 2, maps, shapes, (y,), (), ("f32", "f32"))
    _check(g)
    found = str(jax.make_jaxpr(lambda *xs: generic(g, xs))(*(np.ones(s, "f") for s in shapes)))
    turned = [d for d in dims if d != "k"] != ["a", "m"]
    assert found.count("transpose") == turned
    assert ("f32[5,3] = reduce" in found) == turned


def test_sums_that_run_backwards() -> None:
    g = product_of("mk", "kn", "mn", {"m": 8, "n": 4, "k": 6})
    back = dim(2)._replace(terms=((2, -1),), constant=5)
    both = Generic(
        g.sizes, g.rank, ((dim(0), back), (back, dim(1))), g.shapes, g.yields, (), g.dtypes,
        precision=g.precision,
    )  # fmt: skip
    _check(both)
    _check(Generic(g.sizes, g.rank, ((dim(0), back), g.maps[1]), g.shapes, g.yields, (), g.dtypes))
    found = jax.make_jaxpr(lambda *xs: generic(both, xs))(*(np.ones(s, "f") for s in g.shapes))
    assert "rev" not in str(found)


def _check(g: Generic, products: tuple[int, ...] = ()) -> None:
    rng = np.random.default_rng(1)
    operands = [rng.standard_normal(s).astype(np.float32) for s in g.shapes]
    (wanted,) = evaluate_generic(g, [x.astype(np.float64) for x in operands])
    (got,) = jax.jit(lambda *xs: generic(g, xs, products=products))(*operands)
    assert worst_error(np.asarray(got), np.asarray(wanted))[0] < 1e-5
    (slopes,) = jax.jit(jax.grad(lambda x, y: generic(g, (x, y))[0].sum(), argnums=(0,)))(*operands)
    assert slopes.shape == operands[0].shape
