"""From one layout straight to another one, and contractions that read what others wrote."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from contractions import value
from fuzz.classes import evaluate_classes
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
from eqsat.model.layout import Layout
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.movement.layout import make_layout, whole_tiles
from eqsat.ops.movement.lists import same_tiles
from eqsat.ops.movement.relayout import Relayout, block_order, order_of_elements, relayout, retile
from eqsat.ops.movement.view import as_steps, view_of
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

SEEDS = range(40)
RULES = ("layout/transpose", "layout/reshape", "layout/pack", "layout/contract", "layout/relayout",
         "layout/propagate")  # fmt: skip


def a_layout(rng: random.Random, source: tuple[int, ...], like: Layout | None = None) -> Layout:
    rank = len(source)
    if like is not None and rng.random() < 0.5:
        cut = rng.sample(list(zip(like.pos, like.tiles, strict=True)), len(like.pos))
    else:
        dims = rng.sample(range(rank), rng.randint(1, rank))
        cut = [(d, rng.choice((1, 2, 2, 4, 4, 8, 3))) for d in dims]
    pads = [rng.choice("0?") for _ in cut]
    outer = rng.sample(range(rank), rank) if rng.random() < 0.6 else range(rank)
    return make_layout(source, [d for d, _ in cut], [t for _, t in cut], outer, pads)


def moved(found: Relayout, y: np.ndarray) -> np.ndarray:
    y = value("reshape", found.split, y)
    y = y if found.order is None else y.transpose(found.order)
    return value("reshape", found.join, y)


def agrees(m: Layout, n: Layout, found: Relayout, x: np.ndarray) -> None:
    """Every lane that n defines is right; a lane that n leaves open may hold anything."""
    y = moved(found, value("pack", m, x))
    wanted = value("pack", n, x)
    assert y.shape == wanted.shape
    np.testing.assert_array_equal(y[~np.isnan(wanted)], wanted[~np.isnan(wanted)])
    assert found.relaxed == (n if "?" in n.pads else None)


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_data_gets_from_one_layout_into_another(seed: int):
    rng = random.Random(seed)
    for _ in range(25):
        source = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(rng.randint(1, 3)))
        m = a_layout(rng, source)
        n = a_layout(rng, source, m)
        x = np.random.default_rng(seed).integers(1, 9, source).astype(np.float64)
        ways = [relayout(m, n), retile(m, n)]
        assert None in ways
        for found in ways:
            if found is not None:
                agrees(m, n, found, x)
        if same_tiles(m, n):
            assert ways == [None, None]


def test_both_ways_happen_and_padding_is_never_invented():
    rng = random.Random(0)
    views = blocks = tiles = 0
    for _ in range(2000):
        source = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(rng.randint(1, 3)))
        m = a_layout(rng, source)
        n = a_layout(rng, source, m)
        found, other = relayout(m, n), retile(m, n)
        views += found is not None and found.order is None
        blocks += found is not None and found.order is not None
        tiles += other is not None
        if found or other:
            held, asked = (dict(zip(x.pos, x.pads, strict=True)) for x in (m, n))
            assert all(asked[d] != "0" for d, p in held.items() if p == "?")
    assert min(views, blocks, tiles) > 50


def test_one_order_of_elements_is_one_map_of_elements():
    """`relayout` compares runs, one list per layout; composed views say what moves where."""
    rng = random.Random(3)
    found = {True: 0, False: 0}
    for _ in range(600):
        source = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(rng.randint(1, 3)))
        m = a_layout(rng, source)
        n = a_layout(rng, source, m)
        back, pack = view_of("unpack", whole_tiles(m)), view_of("pack", whole_tiles(n))
        assert back is not None
        assert pack is not None
        if whole_tiles(m).source != whole_tiles(n).source:
            continue
        lanes = back.then(pack)
        if lanes is None:
            continue  # tiles of 3 and 4 cut one another, which no view holds
        steps = as_steps(lanes)
        stays = steps is not None and steps.order is None
        assert (order_of_elements(m) == order_of_elements(n)) == stays
        found[stays] += 1
    assert min(found.values()) > 50


def test_what_kind_of_step_it_is():
    full = Layout((32, 32), (0, 1), (16, 16), (0, 1), ("-", "-"))
    column = Layout((32, 32), (0,), (16,), (0, 1), ("-",))
    swapped = Layout((32, 32), (1, 0), (16, 16), (1, 0), ("-", "-"))
    assert relayout(full, swapped) == Relayout(None, (1, 0, 3, 2), None, None)
    assert block_order(full, swapped) == (1, 0, 3, 2)
    assert relayout(full, column) is None
    found = retile(full, column)
    assert found is not None
    # [2][2][16][16] to [2][32][16]; the blocks stay together
    assert found.split is not None
    assert (found.split.shape, found.order) == ((4, 16, 16), (0, 2, 1))
    assert found.join is not None
    assert found.join.shape == (2, 32, 16)
    rows = Layout((32, 32), (0,), (16,), (0, 1), ("-",))
    whole = Layout((32, 32), (0, 1), (16, 32), (0, 1), ("-", "-"))
    assert retile(rows, whole) is not None
    line = Layout((1, 32), (1,), (16,), (0, 1), ("-",))
    inner = Layout((1, 32), (1,), (16,), (1, 0), ("-",))
    found = relayout(line, inner)
    assert found is not None
    assert found.order is None
    other = Layout((30, 32), (0,), (16,), (0, 1), ("?",))
    assert retile(other, Layout((30, 32), (0,), (8,), (0, 1), ("0",))) is None


# ---- chains of contractions ------------------------------------------------------------------
def machine(*tiles: tuple[int, int, int]) -> Target:
    rows = tuple(Tile((("m", m), ("n", n), ("k", k)), 1.0) for m, n, k in tiles)
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (("matmul", rows),), True)


def graph(text: str, *tiles: tuple[int, int, int]) -> EGraph:
    program = merge_elementwise(parse_program(text, "t.eqs"))
    return saturate(program, eqsat.rules(*RULES), machine(*tiles))


MLP = """
program mlp
input x: f32[32, 48]
weight w1: f32[48, 64]
weight w2: f32[64, 80]
h = relu(matmul(x, w1))
y = matmul(h, w2)
return y
"""
# scores and mixing of attention: k is read with its tile dims exchanged, v as it lies
ATTENTION = """
program attention
input x: f32[32, 48]
weight wq: f32[48, 64]
weight wk: f32[48, 64]
weight wv: f32[48, 64]
q = transpose(reshape(matmul(x, wq), shape=[32, 2, 32]), perm=[1, 0, 2])
k = transpose(reshape(matmul(x, wk), shape=[32, 2, 32]), perm=[1, 0, 2])
v = transpose(reshape(matmul(x, wv), shape=[32, 2, 32]), perm=[1, 0, 2])
s = generic(q, k, loops=[2, 32, 32, 32], maps=[[d0, d1, d3], [d0, d2, d3]], body=mul(x0, x1),
  combine=add)
o = generic(exp(s), v, loops=[2, 32, 32, 32], maps=[[d0, d1, d3], [d0, d3, d2]],
  body=mul(x0, x1), combine=add)
return o
"""
CONVERSIONS = ("pack", "unpack", "transpose", "retype")


@pytest.mark.parametrize("k", seeds(1, [4, 1, 16]))
@pytest.mark.parametrize("text", [MLP, ATTENTION])
def test_between_contractions_nothing_is_converted(text: str, k: int):
    """With 16x16 tiles forced, the input is packed, the result unpacked, and that is all."""
    program = parse_program(text, "t.eqs")
    run = eqsat.optimize(program, rules=list(RULES), target=machine((16, 16, k)), goals=["time"])
    counts = run.summary()["counts"]
    assert run.schedule is not None
    converted = [
        n.operands
        for d in run.schedule.dispatches
        for n in (run.schedule.program.nodes[v] for v in d.members)
        if n.op in CONVERSIONS
    ]
    assert counts["transposes"] == 0
    assert len(set(converted)) == 2  # one value is packed, perhaps in several dispatches


def smaller(text: str) -> str:
    """At sizes that tiles do not divide."""
    return re.sub(r"(?<!f)32", "14", text).replace("64", "28")


@pytest.mark.parametrize("tiles", [[(16, 16, 1)], [(4, 4, 2), (8, 4, 1)], [(4, 8, 4), (8, 8, 2)]])
@pytest.mark.parametrize("text", [MLP, ATTENTION])
def test_every_form_means_the_same(text: str, tiles: list[tuple[int, int, int]]):
    program = parse_program(smaller(text), "t.eqs")
    found = graph(smaller(text), *tiles)
    assert found.stop == "saturated"
    rng = np.random.default_rng(0)
    leaves = {n.attr: rng.standard_normal(n.type.shape) for n in program.nodes if not n.operands}
    values = evaluate_classes(found, leaves)
    assert values.disagreement is None
    assert values.compared > len(program.nodes) / 2


def test_padding_beyond_k_is_masked_once():
    g = graph(MLP.replace("64", "60"), (16, 16, 4))
    masked = [n for n in g.nodes if n.op == "retype"]
    readers = [n for n in g.nodes if any(m.eclass in n.children for m in masked)]
    assert masked
    assert any(n.op == "generic" for n in readers)
