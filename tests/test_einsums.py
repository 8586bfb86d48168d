"""Sums and products in other orders keep their values, and chains reach the best order."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leastwork import cheapest_tree
from seeds import seeds

import eqsat
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call, const
from eqsat.model.program import Program
from eqsat.saturate import saturate
from tests.test_algebra import NO_TILES, SIZES, Nets, check

LOOPS = "abcde"


def chained(seed: int) -> Program:
    """(a @ b) @ c or a @ (b @ c), with dims in any order, maybe batched."""
    net = Nets(seed)
    m, k, n, p = (net.rng.choice(SIZES) for _ in range(4))
    batch = net.some(0, 1)
    at = {"m": m, "k": k, "n": n, "p": p} | ({"b": batch[0]} if batch else {})
    lead = "b" if batch else ""

    def product(x: tuple[int, str], y: tuple[int, str], result: str) -> tuple[int, str]:
        names = list(dict.fromkeys(result + x[1] + y[1]))
        reads = [(i, tuple(dim(names.index(c)) for c in word)) for i, word in (x, y)]
        body = call("mul", arg(0), arg(1))
        sizes = [at[c] for c in names]
        return net.generic(sizes, range(len(result)), reads, body), result

    def tensor(word: str) -> tuple[int, str]:
        word = "".join(net.rng.sample(lead + word, len(lead + word)))
        return net.leaf("input", tuple(at[c] for c in word)), word

    a, b, c = tensor("mk"), tensor("kn"), tensor("np")
    mixed = "".join(net.rng.sample(lead + "mp", len(lead + "mp")))
    if seed % 2:
        y = product(product(a, b, lead + "mn"), c, mixed)
    else:
        y = product(a, product(b, c, lead + "kp"), mixed)
    return net.b.build([y[0]])


def woven(seed: int) -> Program:
    """Products of operands with any loops, summed over any of them, and a sum of it all."""
    net = Nets(seed)
    at = {c: net.rng.choice(SIZES[1:]) for c in LOOPS}

    def leaf() -> tuple[int, str]:
        word = "".join(net.rng.sample(LOOPS, net.rng.randint(1, 3)))
        return net.leaf("input", tuple(at[c] for c in word)), word

    def product(*parts: tuple[int, str]) -> tuple[int, str]:
        seen = list(dict.fromkeys("".join(word for _, word in parts)))
        kept = net.rng.sample(seen, net.rng.randint(min(1, len(seen)), len(seen)))
        names = [*kept, *(c for c in seen if c not in kept)]
        body = arg(0)
        for i in range(1, len(parts)):
            body = call("mul", body, arg(i))
        if len(parts) == 1 and net.rng.random() < 0.3:
            body = call("add", call("mul", body, const(0.5)), const(2.0))
        reads = [(x, tuple(dim(names.index(c)) for c in word)) for x, word in parts]
        return net.generic([at[c] for c in names], range(len(kept)), reads, body), "".join(kept)

    first = product(leaf(), leaf())
    pair = [first, leaf()] if seed % 2 else [leaf(), first]
    second = product(*pair) if seed % 3 else product(leaf(), leaf(), leaf())
    return net.b.build([product(second)[0]])


def added(seed: int) -> Program:
    """Two products with one factor in common, on either side of each, in a sum with more in it."""
    net = Nets(seed)
    at = {c: net.rng.choice(SIZES[1:]) for c in "mkn"}

    def leaf(word: str) -> tuple[int, str]:
        word = "".join(net.rng.sample(word, len(word)))
        return net.leaf("input", tuple(at[c] for c in word)), word

    x = leaf("mk")

    def product() -> int:
        pair = net.rng.sample([x, leaf("kn")], 2)
        reads = [(i, tuple(dim("mnk".index(c)) for c in word)) for i, word in pair]
        sizes = [at[c] for c in "mnk"]
        return net.generic(sizes, range(2), reads, call("mul", arg(0), arg(1)))

    terms = [(product(), "mn"), (product(), "mn"), leaf("m"), leaf("mn")]
    terms = net.rng.sample(terms[: 2 + seed % 3], 2 + seed % 3)
    body = call("mul", arg(0), const(0.5)) if net.rng.random() < 0.5 else arg(0)
    for i in range(1, len(terms)):
        body = call(net.rng.choice(["add", "sub"]), body, arg(i))
    reads = [(i, tuple(dim("mn".index(c)) for c in word)) for i, word in terms]
    return net.b.build([net.generic([at["m"], at["n"]], range(2), reads, call("tanh", body))])


def test_random_sums_of_products_keep_their_values():
    rules, used = eqsat.rules("algebra/factors"), Counter[str]()
    for seed in range(15):
        used.update(s.name for s in check(added(seed), rules, seed).rules if s.matches)
    common = {r.name for r in rules.rules if r.name.startswith("common-")}
    assert common <= used.keys(), used


@pytest.mark.parametrize(
    ("make", "count"), [(chained, 4), (woven, 40)], ids=lambda x: getattr(x, "__name__", "")
)
def test_random_einsums_keep_their_values(make, count: int):
    names = ("algebra/reassociate", "algebra/sums")
    rules, used = eqsat.rules(*names), Counter[str]()
    for seed in range(count):
        used.update(s.name for s in check(make(seed), rules, seed).rules if s.matches)
    if make is woven:
        unused = {r.name for r in rules.rules if r.ruleset in names and not used[r.name]}
        # what these are for, means of products and sums of two of them, is not drawn here
        known = {"compute-once", "scale-left-sum", "scale-right-sum", "sum-of-two-products"}
        assert unused <= known, used


# ---- chains of matrices --------------------------------------------------------------------------
def least_work(dims: tuple[int, ...]) -> int:
    """Multiply-adds of the best order of a chain, by dynamic programming (Cormen et al., 15.2)."""

    @cache
    def least(i: int, j: int) -> int:
        if j == i + 1:
            return 0
        return min(least(i, k) + least(k, j) + dims[i] * dims[k] * dims[j] for k in range(i + 1, j))

    return least(0, len(dims) - 1)


def reached_work(program: Program) -> tuple[int, int]:
    """Multiply-adds of the cheapest tree that the rules reach, and the number of e-nodes."""
    graph = saturate(program, eqsat.rules("algebra/reassociate"), NO_TILES)
    assert graph.stop == "saturated"
    return cheapest_tree(graph), len(graph.nodes)


def chain(dims: tuple[int, ...]) -> Program:
    net = Nets(0)
    left = net.leaf("input", dims[:2])
    for k, n in itertools.pairwise(dims[1:]):
        right, m = net.leaf("input", (k, n)), dims[0]
        reads = [(left, (dim(0), dim(2))), (right, (dim(2), dim(1)))]
        left = net.generic((m, n, k), range(2), reads, call("mul", arg(0), arg(1)))
    return net.b.build([left])


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_a_chain_reaches_its_best_order(seed: int):
    sizes = [(16, 64, 128, 512, 3), (256, 512, 1024), (64, 128, 1, 2000)][seed % 3]
    rng = Nets(seed).rng
    dims = tuple(rng.choice(sizes) for _ in range(9))
    work, nodes = reached_work(chain(dims))
    assert work == least_work(dims)
    assert nodes <= 8 + 84


def test_a_chain_of_equal_sizes_does_not_grow():
    dims = (64,) * 9
    assert reached_work(chain(dims)) == (least_work(dims), 8 + 7)


# ---- masks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "masks",
    [
        {
            "left-identity": lambda x: jnp.tanh(jnp.eye(6) @ x),
            "right-diagonal": lambda x: x @ jnp.diag(x[0]),
            "sum-over-a-diagonal": jnp.trace,
            "left-one-hot-picks": lambda x: jax.nn.one_hot(x[0].astype("int32"), 6) @ x,
        },
        {"left-diagonal-apart": lambda x: (x + 0.5 * jnp.eye(6)) @ x},
    ],
    ids=len,
)
def test_masks_of_jax_are_read(masks):
    x = np.arange(36, dtype="f4").reshape(6, 6) % 7
    run = eqsat.optimize(
        lambda x: [masked(x) for masked in masks.values()], x,
        rules=["algebra/deltas"], target="reference",
    )  # fmt: skip
    assert masks.keys() <= {s.name for s in run.egraph.rules if s.matches}
    for got, masked in zip(run.compile()(x), masks.values(), strict=True):
        np.testing.assert_allclose(got, masked(x), rtol=1e-5)


def test_a_diagonal_is_a_slice():
    run = eqsat.optimize(jnp.diagonal, np.eye(6, dtype="f4"), target="reference")
    assert not any(n.op == "opaque" for n in run.program.nodes)
