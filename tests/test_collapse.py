"""Loops put together and taken apart: the same values, and one packed form for equal work."""

from __future__ import annotations

import random

import numpy as np
import pytest
from contractions import (
    contraction,
    convolution,
    elementwise,
    operands,
    reshaped,
    until_applies,
    value,
)
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.affine import dim
from eqsat.model.egraph import EGraph
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Reshape
from eqsat.model.program import Program
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.collapse import (
    collapse_loops,
    expand_loops,
    interchange,
    reshape_operand,
    reshape_result,
)
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

SEEDS = range(80)


def a_reshape(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same extents with some neighbours joined, some units put in or taken out."""
    out: list[int] = []
    for s in shape:
        join = out and rng.random() < 0.4
        if join:
            out[-1] *= s
        elif s != 1 or rng.random() < 0.6:
            out.append(s)
        if rng.random() < 0.15:
            out.append(1)
    return tuple(out)


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
@pytest.mark.parametrize("what", ["contraction", "NHWC", "NCHW", "convolution"])
def test_collapsed_loops_compute_the_same(seed: int, what: str):
    rng = random.Random(seed)
    order = what if what.isupper() else ""

    def draw():
        g = contraction(rng) if what == "contraction" else convolution(rng, 2, order)
        return collapse_loops(g), g

    found, g = until_applies(draw)
    xs = operands(g, rng)
    inside = [reshaped(r, x) for r, x in zip(found.operands, xs, strict=True)]
    found.sig.verify()
    result = reshaped(found.result, value("generic", found.sig, *inside))
    np.testing.assert_array_equal(result, value("generic", g, *xs))
    assert len(found.sig.sizes) < len(g.sizes)
    assert collapse_loops(found.sig) is None


def reads_the_source(rng: random.Random, found, g: Generic, i: int, source: tuple[int, ...]):
    """The new generic reads operand i in the shape it had, and computes the same."""
    xs = operands(g, rng)
    others = [*found.before, *found.after]
    inside = [reshaped(r, x) for r, x in zip(others, xs[:i] + xs[i + 1 :], strict=True)]
    inside.insert(i, xs[i].reshape(source))
    result = reshaped(found.result, value("generic", found.sig, *inside))
    np.testing.assert_array_equal(result, value("generic", g, *xs))


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_a_reshape_moves_below(seed: int):
    rng = random.Random(seed)

    def draw():
        g, i = elementwise(rng), rng.randrange(2)
        source = a_reshape(rng, g.shapes[i])
        return reshape_operand(g, i, Reshape(source, g.shapes[i])), g, i, source

    reads_the_source(rng, *until_applies(draw))


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_a_reshape_moves_above(seed: int):
    rng = random.Random(seed)

    def draw():
        g = elementwise(rng)
        shape = a_reshape(rng, g.result_shape)
        return reshape_result(g, Reshape(g.result_shape, shape)), g, shape

    found, g, shape = until_applies(draw)
    xs = operands(g, rng)
    inside = [reshaped(r, x) for r, x in zip(found.operands, xs, strict=True)]
    result = value("generic", found.sig, *inside)
    assert result.shape == shape
    np.testing.assert_array_equal(result, value("generic", g, *xs).reshape(shape))


@pytest.mark.parametrize("seed", seeds(12, 200))
def test_rows_become_places(seed: int):
    rng = random.Random(seed)

    def draw():
        g, i = contraction(rng), rng.randrange(2)
        halves = [(s // 2, 2) if s % 2 == 0 and rng.random() < 0.7 else (s,) for s in g.shapes[i]]
        source = tuple(s for h in halves for s in h)
        return expand_loops(g, i, Reshape(source, g.shapes[i])), g, i, source

    reads_the_source(rng, *until_applies(draw))


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_an_interchange_moves_the_transpose_to_the_result(seed: int):
    rng = random.Random(seed)
    rank = rng.randint(2, 4)
    sizes = [rng.choice((1, 2, 3, 4)) for _ in range(rank)]
    order = rng.sample(range(rank), rank)
    few = rng.sample(range(rank), rng.randint(0, rank - 1))
    maps = [tuple(dim(d) for d in loops) for loops in (order, few)]
    shapes = [tuple(sizes[d] for d in loops) for loops in (order, few)]
    body = Yield(call("sub", arg(0), arg(1)), "f32", "")
    g = canonical_generic(
        sizes, range(rank), maps, shapes, [body], (), ("f32", "f32"), precision="default"
    )
    found = interchange(g)
    assert (found is None) == (order == sorted(order))
    if found is not None:
        xs = operands(g, rng)
        result = value("generic", found.sig, *xs).transpose(found.perm)
        np.testing.assert_array_equal(result, value("generic", g, *xs))
        assert interchange(found.sig) is None


def test_all_of_it_happens():
    counts = dict.fromkeys(("collapse", "below", "above", "expand"), 0)
    for seed in range(200):
        rng = random.Random(seed)
        counts["collapse"] += collapse_loops(contraction(rng)) is not None
        g = elementwise(random.Random(seed))
        i = rng.randrange(2)
        below = Reshape(a_reshape(rng, g.shapes[i]), g.shapes[i])
        counts["below"] += reshape_operand(g, i, below) is not None
        above = Reshape(g.result_shape, a_reshape(rng, g.result_shape))
        counts["above"] += reshape_result(g, above) is not None
        rng = random.Random(seed)
        g, i = contraction(rng), rng.randrange(2)
        halves = [(s // 2, 2) if s % 2 == 0 and rng.random() < 0.7 else (s,) for s in g.shapes[i]]
        wide = Reshape(tuple(s for h in halves for s in h), g.shapes[i])
        counts["expand"] += expand_loops(g, i, wide) is not None
    assert min(counts.values()) > 5, counts


def test_loops_that_stand_apart_somewhere_stay_apart():
    text = "program p\ninput x: f32[7, 5, 4]\ninput w: f32[4, 6]\n"
    text += "y = generic(x, w, loops=[5, 7, 6, 4], maps=[[d1, d0, d3], [d3, d2]],"
    text += " body=mul(x0, x1), combine=add) : f32[5, 7, 6]\nreturn y\n"
    attr = parse_program(text, "t.eqs").nodes[-1].attr
    assert isinstance(attr, Generic)
    assert collapse_loops(attr) is None


def test_a_broadcast_along_some_of_the_loops_stops_a_reshape():
    text = "program p\ninput y: f32[7, 5, 4]\ninput z: f32[5, 4]\n"
    text += "r = generic(y, z, loops=[7, 5, 4], maps=[[d0, d1, d2], [d1, d2]], body=add(x0, x1))\n"
    attr = parse_program(text + "return r\n", "t.eqs").nodes[-1].attr
    assert isinstance(attr, Generic)
    assert reshape_operand(attr, 0, Reshape((35, 4), (7, 5, 4))) is None
    assert reshape_operand(attr, 0, Reshape((7, 20), (7, 5, 4))) is not None


# ---- one packed form (B.d) -------------------------------------------------------------------
MATMUL = """
program p
input a: f32[{a}]
input b: f32[{b}]
y = generic(a, b, loops=[49, 32, {k}], maps=[[{lhs}], [{rhs}]], body=mul(x0, x1), combine=add)
return y
"""
CONVOLUTION = """
program p
input x: f32[{x}]
input w: f32[{w}]
y = generic(x, w, loops=[{loops}], maps=[{maps}], body=mul(x0, x1), combine=add, rank=4) : f32[{y}]
return y
"""
NHWC = CONVOLUTION.format(
    x="1, 7, 7, 24", w="1, 1, 24, 32", loops="1, 7, 7, 32, 24",
    maps="[d0, d1, d2, d4], [0, 0, d4, d3]", y="1, 7, 7, 32",
)  # fmt: skip
NCHW = CONVOLUTION.format(
    x="1, 24, 7, 7", w="32, 24, 1, 1", loops="1, 32, 7, 7, 24",
    maps="[d0, d4, d2, d3], [d1, d4, 0, 0]", y="1, 32, 7, 7",
)  # fmt: skip
WINDOW = CONVOLUTION.format(
    x="1, 9, 9, 8", w="3, 3, 8, 32", loops="1, 7, 7, 32, 3, 3, 8",
    maps="[d0, d1 + d4, d2 + d5, d6], [d4, d5, d6, d3]", y="1, 7, 7, 32",
)  # fmt: skip
WINDOW_NCHW = CONVOLUTION.format(
    x="1, 8, 9, 9", w="32, 8, 3, 3", loops="1, 32, 7, 7, 8, 3, 3",
    maps="[d0, d4, d2 + d5, d3 + d6], [d1, d4, d5, d6]", y="1, 32, 7, 7",
)  # fmt: skip


def matmul(lhs: str, rhs: str, k: int = 24) -> str:
    extents = {"d0": 49, "d1": 32, "d2": k}
    a, b = (", ".join(str(extents[d]) for d in m.split(", ")) for m in (lhs, rhs))
    return MATMUL.format(a=a, b=b, k=k, lhs=lhs, rhs=rhs)


def machine(*tiles: tuple[int, int, int], conv: tuple[tuple[int, int], ...] = ()) -> Target:
    rows = tuple(Tile((("m", m), ("n", n), ("k", k)), 1.0) for m, n, k in tiles)
    channels = tuple(Tile((("c", c), ("k", k)), 1.0) for c, k in conv)
    kinds = (("matmul", rows), ("conv2d", channels))
    return Target("toy", "", "xla", True, (Memory("ram", 1 << 40, 1e9),), 0, (), 1.0, 1.0, kinds)


def read(text: str) -> Program:
    return merge_elementwise(parse_program(text, "t.eqs"))


def tiled(graph: EGraph) -> set[Generic]:
    """The packed contractions of an e-graph."""
    return {n.attr for n in graph.nodes if isinstance(n.attr, Generic) and n.attr.tile
            and contraction_roles(n.attr)}  # fmt: skip


RULES = ("layout/transpose", "layout/reshape", "layout/pack", "layout/contract", "layout/relayout",
         "layout/collapse", "layout/regroup", "layout/propagate")  # fmt: skip


def test_matmul_transposed_matmul_and_convolution_reach_one_packed_body():
    target = machine((16, 16, 8))
    programs = [
        matmul("d0, d2", "d2, d1"),
        matmul("d2, d0", "d2, d1"),
        matmul("d0, d2", "d1, d2"),
        matmul("d2, d0", "d1, d2"),
        NHWC,
        NCHW,
    ]
    graphs = [saturate(read(text), eqsat.rules(*RULES), target) for text in programs]
    assert all(g.stop == "saturated" for g in graphs)
    common = set.intersection(*(tiled(g) for g in graphs))
    assert len(common) >= 1
    assert {g.tile for g in common} == {(16, 16, 8)}


def test_im2col_reaches_it_too():
    target = machine((16, 16, 8))
    rules = eqsat.rules(*RULES, "layout/im2col")
    graphs = [
        saturate(read(text), rules, target)
        for text in (matmul("d0, d2", "d2, d1", 72), WINDOW, WINDOW_NCHW)
    ]
    assert set.intersection(*(tiled(g) for g in graphs))


# 3x3 convolution of stride 2, relu, 1x1 convolution, quantise, dequantise, residual, relu: the 1x1
# convolution and all behind it became a vector of places by places in a compiler that kept them
# apart (IREE issue 18905)
QUANTISED = "cast(min(max(round_even(mul({}, 64.0)), -128.0), 127.0), i8)"
BLOCK = f"""
program block
input x: f32[1, 16, 28, 28]
input r: f32[1, 32, 14, 14]
weight w3: f32[16, 16, 3, 3]
weight w1: f32[32, 16, 1, 1]
weight b1: f32[32]
p = pad(x, low=[0, 0, 1, 1], high=[0, 0, 1, 1], value=0.0)
c = generic(p, w3, loops=[1, 16, 14, 14, 16, 3, 3], body=mul(x0, x1), combine=add, rank=4,
  maps=[[d0, d4, 2*d2 + d5, 2*d3 + d6], [d1, d4, d5, d6]]) : f32[1, 16, 14, 14]
y = relu(c)
z = generic(y, w1, loops=[1, 32, 14, 14, 16], maps=[[d0, d4, d2, d3], [d1, d4, 0, 0]],
  body=mul(x0, x1), combine=add, rank=4) : f32[1, 32, 14, 14]
q = generic(z, b1, loops=[1, 32, 14, 14], maps=[[d0, d1, d2, d3], [d1]],
  body={QUANTISED.format("add(x0, x1)")}) : i8[1, 32, 14, 14]
s = generic(r, loops=[1, 32, 14, 14], maps=[[d0, d1, d2, d3]],
  body={QUANTISED.format("x0")}) : i8[1, 32, 14, 14]
t = generic(q, s, loops=[1, 32, 14, 14], maps=[[d0, d1, d2, d3], [d0, d1, d2, d3]],
  body=max(add(mul(cast(x0, f32), 0.015625), mul(cast(x1, f32), 0.015625)), 0.0))
return t
"""


def test_a_quantised_residual_block_is_two_dimensional_throughout():
    graph = saturate(read(BLOCK), eqsat.rules(*RULES), machine((16, 16, 1)))
    assert graph.stop == "saturated"
    flat = {i for i, t in enumerate(graph.types) if len(t[0].shape) <= 2}
    views = [n for n in graph.nodes if n.op == "reshape" and n.eclass == graph.roots[0]]
    (start,) = {n.children[0] for n in views if n.children[0] in flat}
    seen, work, ops = {start}, [start], []
    while work:
        ways = [graph.nodes[i] for i in graph.classes[work.pop()] if graph.nodes[i].op == "generic"]
        inside = [n for n in ways if set(n.children) <= flat]
        ops += inside[:1]
        work += [c for n in inside[:1] for c in n.children if c not in seen]
        seen |= {c for n in inside[:1] for c in n.children}
    # the sum, both quantisations, the first relu, and the product: a matmul
    assert sorted(len(n.attr.sizes) for n in ops if isinstance(n.attr, Generic)) == [2, 2, 2, 2, 3]
