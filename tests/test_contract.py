"""Packed contractions compute what the plain ones do, and equal work has one packed form."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from contractions import contraction, convolution, operands, packed, until_applies, value
from fuzz.classes import evaluate_classes
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.contractions.convolution import im2col
from eqsat.ops.contractions.packing import (
    PackedLoops,
    pack_loops,
    pack_loops_reading,
    pack_loops_reading_data,
    pack_loops_reading_pack,
    pack_loops_twice,
    pack_other_loops,
    swap_loops,
)
from eqsat.ops.contractions.roles import contraction_roles, tile_dims
from eqsat.ops.generics.propagate import permute_operand, permute_result
from eqsat.ops.movement.layout import make_layout
from eqsat.saturate import saturate

SEEDS = range(60)


def tile(rng: random.Random, vnni: int = 1) -> Tile:
    m, n = (rng.choice((1, 2, 3, 4, 5)) for _ in range(2))
    k = vnni * rng.choice((1, 2)) if vnni > 1 else rng.choice((1, 2, 3, 4))
    order = tuple(rng.sample("mnk", 3))
    return Tile((("m", m), ("n", n), ("k", k)), 1.0, (), order, vnni)


def agrees(g: Generic, found: PackedLoops, rng: random.Random) -> None:
    """Every lane of the unpacked result is right, whatever the padding held."""
    xs = operands(g, rng)
    inside = [packed(a, x) for a, x in zip(found.operands, xs, strict=True)]
    result = value("unpack", found.result, value("generic", found.sig, *inside))
    np.testing.assert_array_equal(result, value("generic", g, *xs))


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_a_packed_contraction_computes_the_same(seed: int):
    rng = random.Random(seed)
    g, t = contraction(rng), tile(rng)
    ways = [pack_loops(g, t), *pack_other_loops(g, t), swap_loops(g, t)]
    for found in ways:
        if found is not None:
            agrees(g, found, rng)
            found.sig.verify()
            assert found.sig.tile


def test_most_contractions_are_packed():
    made = [random.Random(seed) for seed in SEEDS]
    found = [pack_loops(contraction(rng), tile(rng)) for rng in made]
    several = [pack_other_loops(contraction(r), tile(r)) for r in map(random.Random, SEEDS)]
    swapped = [swap_loops(contraction(r), tile(r)) for r in map(random.Random, SEEDS)]
    twice = [pack_loops_twice(contraction(r), tile(r, 2)) for r in map(random.Random, SEEDS)]
    assert sum(f is not None for f in found) > len(SEEDS) / 2
    assert sum(len(f) for f in several) > 4
    assert sum(f is not None for f in swapped) > 4
    assert sum(f is not None for f in twice) > 12


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
@pytest.mark.parametrize("order", ["NHWC", "NCHW", ""])
def test_a_packed_convolution_computes_the_same(seed: int, order: str):
    rng = random.Random(seed)

    def draw():
        g = convolution(rng, rng.choice((1, 2)), order)
        t = Tile((("c", rng.choice((1, 2, 3))), ("k", rng.choice((1, 2, 4)))), 1.0)
        return pack_loops(g, t), g

    found, g = until_applies(draw)
    agrees(g, found, rng)


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_k_elements_lie_together(seed: int):
    rng = random.Random(seed)

    def draw():
        g, t = contraction(rng), tile(rng, rng.choice((2, 4)))
        assert pack_loops(g, t) is None
        return pack_loops_twice(g, t), g, t

    found, g, t = until_applies(draw)
    x, y = operands(g, rng)
    lhs = packed(found.lhs_again, packed(found.lhs, x))
    rhs = packed(found.rhs_again, packed(found.rhs, y))
    result = value("unpack", found.result, value("generic", found.sig, lhs, rhs))
    np.testing.assert_array_equal(result, value("generic", g, x, y))
    assert rhs.shape[-1] == lhs.shape[-1] == t.vnni
    if t.order.index("k") > t.order.index("m"):
        np.testing.assert_array_equal(lhs.ravel(), packed(found.lhs, x).ravel())


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_panels_inside_of_blocks_compute_the_same(seed: int):
    rng = random.Random(seed)

    def draw():
        g, panel = contraction(rng), {"m": rng.choice((1, 2)), "n": rng.choice((1, 2, 3)), "k": 1}
        blocks = {r: cut * rng.choice((2, 3)) for r, cut in panel.items()}
        outer = Tile(tuple(blocks.items()), 1.0, order=("k", "m", "n"))
        inner = Tile(tuple(panel.items()), 1.0, panel=True, inside=tuple(blocks.values()))
        once = pack_loops(g, outer)
        assert pack_loops(g, inner) is None  # nothing is packed yet
        assert once is None or not pack_other_loops(once.sig, inner)
        return once and pack_loops(once.sig, inner), once, g, inner

    twice, once, g, inner = until_applies(draw)
    xs = operands(g, rng)
    levels = zip(once.operands, twice.operands, xs, strict=True)
    inside = [packed(again, packed(first, x)) for first, again, x in levels]
    result = value("unpack", twice.result, value("generic", twice.sig, *inside))
    np.testing.assert_array_equal(value("unpack", once.result, result), value("generic", g, *xs))
    assert twice.sig.tile == inner.extents
    assert pack_loops(twice.sig, inner) is None  # there is nothing inside of panels


@pytest.mark.parametrize("seed", seeds(12, 150))
def test_a_contraction_reads_an_operand_as_it_lies(seed: int):
    rng = random.Random(seed)

    def draw():
        g, t, i = contraction(rng), tile(rng), rng.randrange(2)
        return pack_loops_reading(g, i, random_layout(rng, g, i, t), t), g, i

    found, g, i = until_applies(draw)
    xs = operands(g, rng)
    mine = packed(found.layout, xs[i])
    others = [*found.before, *found.after]
    inside = [packed(a, x) for a, x in zip(others, xs[:i] + xs[i + 1 :], strict=True)]
    inside.insert(i, mine)
    result = value("unpack", found.result, value("generic", found.sig, *inside))
    np.testing.assert_array_equal(result, value("generic", g, *xs))


def random_layout(rng: random.Random, g: Generic, i: int, t: Tile) -> Layout:
    """Often what the tile asks for, with a multiple of k, in any order of blocks and tile dims."""
    roles = contraction_roles(g)
    assert roles is not None
    m, n, k = t.extents
    own, extent = (roles.n, n) if i else (roles.m, m)
    cut = [(rng.choice(loops), e) for loops, e in ((own, extent), (roles.k, k * rng.choice((1, 2))))
           if loops and e > 1]  # fmt: skip
    at = {e.dim: q for q, e in enumerate(g.maps[i])}
    rng.shuffle(cut)
    rank = len(g.maps[i])
    pads = [rng.choice("0?") for _ in cut]
    outer = rng.sample(range(rank), rank) if rng.random() < 0.5 else range(rank)
    return make_layout(g.shapes[i], [at[d] for d, _ in cut], [e for _, e in cut], outer, pads)


def test_reading_as_it_lies_happens_and_masks_k():
    read = as_data = as_pack = masked = 0
    for seed in range(400):
        rng = random.Random(seed)
        g, t, i = contraction(rng), tile(rng), rng.randrange(2)
        layout = random_layout(rng, g, i, t)
        found = pack_loops_reading(g, i, layout, t)
        data, pack = (
            f(g, i, layout, t) for f in (pack_loops_reading_data, pack_loops_reading_pack)
        )
        assert found in (data, pack)
        assert None in (data, pack)
        read += found is not None
        as_data += data is not None
        as_pack += pack is not None
        masked += found is not None and found.layout != layout
    assert min(read, as_data, as_pack, masked) > 20


# ---- one packed form -------------------------------------------------------------------------
def read(text: str) -> Generic:
    program = parse_program(text, "t.eqs")
    attr = program.nodes[program.results[0]].attr
    assert isinstance(attr, Generic)
    return attr


def matmul(a: str, b: str) -> str:
    lhs, rhs = ("d0, d2" if a == "mk" else "d2, d0"), ("d2, d1" if b == "kn" else "d1, d2")
    shape = {"m": 49, "n": 40, "k": 24}
    return f"""
program p
input a: f32[{shape[a[0]]}, {shape[a[1]]}]
input b: f32[{shape[b[0]]}, {shape[b[1]]}]
y = generic(a, b, loops=[49, 40, 24], maps=[[{lhs}], [{rhs}]], body=mul(x0, x1), combine=add)
return y
"""


@pytest.mark.parametrize("order", [("m", "n", "k"), ("m", "k", "n"), ("k", "m", "n")])
def test_transposed_matmuls_have_one_packed_form(order: tuple[str, ...]):
    t = Tile((("m", 16), ("n", 8), ("k", 4)), 1.0, (), order)
    forms = set()
    for a in ("mk", "km"):
        for b in ("kn", "nk"):
            found = pack_loops(read(matmul(a, b)), t)
            assert found is not None
            forms.add(found.sig)
    assert len(forms) == 1


def test_the_default_form_is_mmt4d():
    found = pack_loops(read(matmul("mk", "kn")), Tile((("m", 16), ("n", 8), ("k", 4)), 1.0))
    assert found is not None
    lhs, rhs = found.operands
    assert lhs is not None
    assert rhs is not None
    assert (lhs.packed_shape, rhs.packed_shape) == ((4, 6, 16, 4), (5, 6, 8, 4))
    assert found.result.packed_shape == (4, 5, 16, 8)
    assert [[e.dim for e in m] for m in found.sig.maps] == [[0, 4, 2, 5], [1, 4, 3, 5]]
    assert (lhs.pads, rhs.pads, found.result.pads) == (("?", "-"), ("-", "-"), ("?", "-"))


def test_a_batch_comes_first():
    text = "program p\ninput a: f32[3, 8, 4]\ninput b: f32[3, 4, 6]\n"
    text += "y = generic(a, b, loops=[3, 8, 6, 4], maps=[[d0, d1, d3], [d0, d3, d2]],"
    text += " body=mul(x0, x1), combine=add)\nreturn y\n"
    found = pack_loops(read(text), Tile((("m", 4), ("n", 2), ("k", 2)), 1.0))
    assert found is not None
    rhs = found.operands[1]
    assert rhs is not None
    assert (rhs.pos, rhs.outer) == ((2, 1), (0, 2, 1))  # IREE's batch_mmt4d


def test_a_narrow_result_is_computed_with_m_and_n_exchanged():
    wide = Tile((("m", 16), ("n", 8), ("k", 1)), 1.0)
    narrow = read(matmul("mk", "kn").replace("49", "8"))
    found = swap_loops(narrow, wide)
    assert found is not None
    assert found.sig.tile == (8, 16, 1)
    assert (found.result.pos, found.result.tiles, found.result.outer) == ((1, 0), (16, 8), (1, 0))
    assert swap_loops(read(matmul("mk", "kn").replace("49", "64")), wide) is None


CONVOLUTION = Tile((("c", 8), ("k", 16)), 1.0)


@pytest.mark.parametrize("window", [1, 3])
def test_convolutions_of_either_layout_have_one_packed_form(window: int):
    size = 6 + window
    where = "d1 + d4, d2 + d5" if window > 1 else "d1, d2"
    there = where.replace("d1", "d2 ").replace("d2 +", "d2 +")
    loops = [f"2, 7, 7, 32, {window}, {window}, 24", f"2, 32, 7, 7, 24, {window}, {window}"]
    nhwc = f"""
program p
input x: f32[2, {size}, {size}, 24]
input w: f32[{window}, {window}, 24, 32]
y = generic(x, w, loops=[{loops[0]}], maps=[[d0, {where}, d6], [d4, d5, d6, d3]],
  body=mul(x0, x1), combine=add, rank=4) : f32[2, 7, 7, 32]
return y
"""
    there = "d2 + d5, d3 + d6" if window > 1 else "d2, d3"
    nchw = f"""
program p
input x: f32[2, 24, {size}, {size}]
input w: f32[32, 24, {window}, {window}]
y = generic(x, w, loops=[{loops[1]}], maps=[[d0, d4, {there}], [d1, d4, d5, d6]],
  body=mul(x0, x1), combine=add, rank=4) : f32[2, 32, 7, 7]
return y
"""
    one, other = (pack_loops(read(text.replace(",\n ", ",")), CONVOLUTION) for text in (nhwc, nchw))
    assert one is not None
    assert other is not None
    assert one.sig == other.sig
    assert [s for a in one.operands if a for s in (a.packed_shape,)] == [
        (2, 3, size, size, 8),  # N C' H W c
        (2, 3, window, window, 8, 16),  # K' C' R S c k
    ]
    assert one.result.packed_shape == (2, 2, 7, 7, 16)  # N K' P Q k


@pytest.mark.parametrize("seed", seeds(8, SEEDS))
@pytest.mark.parametrize("order", ["NHWC", "NCHW", ""])
def test_a_matrix_of_windows_makes_the_convolution_a_product(seed: int, order: str):
    rng = random.Random(seed)

    def draw():
        g, i = convolution(rng, rng.choice((1, 2)), order), rng.randrange(2)
        return im2col(g, i), g, i

    found, g, i = until_applies(draw)
    xs = operands(g, rng)
    matrix = value("generic", found.matrix, xs[i])
    inside = [matrix if j == i else x for j, x in enumerate(xs)]
    result = value("generic", found.sig, *inside)
    np.testing.assert_array_equal(result, value("generic", g, *xs))
    assert im2col(found.sig, i) is None


# ---- strides of packed operands --------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(8, SEEDS))
def test_a_packed_contraction_keeps_its_tiles(seed: int):
    rng = random.Random(seed)

    def draw():
        return (pack_loops(contraction(rng), tile(rng)),)

    (found,) = until_applies(draw)
    sig = found.sig
    for i, a in enumerate(found.operands):
        assert tile_dims(sig, i) == (0 if a is None else len(a.tiles))
        rank = len(sig.maps[i])
        perm = tuple(rng.sample(range(rank), rank))
        blocks = rank - tile_dims(sig, i)
        apart = all((p < blocks) == (q < blocks) for q, p in enumerate(perm))
        assert (permute_operand(sig, i, perm) is not None) == apart
    assert tile_dims(sig, None) == len(found.result.tiles)
    perm = tuple(rng.sample(range(sig.rank), sig.rank))
    blocks = sig.rank - len(found.result.tiles)
    apart = all((p < blocks) == (q < blocks) for q, p in enumerate(perm))
    assert (permute_result(sig, perm) is not None) == apart


# ---- whole programs --------------------------------------------------------------------------
RULES = ("layout/transpose", "layout/reshape", "layout/pack", "layout/contract", "layout/relayout",
         "layout/propagate")  # fmt: skip


def machine(kind: str, *tiles: Tile) -> Target:
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, ((kind, tiles),), True)


def test_a_second_pack_only_where_the_tile_names_it():
    program = parse_program(matmul("mk", "kn"), "t.eqs")
    sizes = (("m", 16), ("n", 8), ("k", 4))
    rng = np.random.default_rng(0)
    leaves = {n.attr: rng.standard_normal(n.type.shape) for n in program.nodes if not n.operands}
    for v, wanted in ((1, 0), (2, 2)):
        graph = saturate(program, eqsat.rules(*RULES), machine("matmul", Tile(sizes, 1.0, vnni=v)))
        assert graph.stop == "saturated"
        packed_classes = {n.eclass for n in graph.nodes if n.op == "pack"}
        again = [n for n in graph.nodes if n.op == "pack" and n.children[0] in packed_classes]
        assert len(again) == wanted
        assert evaluate_classes(graph, leaves).disagreement is None


def test_blocks_of_a_cache_hold_panels_of_registers():
    program = parse_program("""
program levels
input a: f32[12, 20]
weight b: f32[20, 24]
y = matmul(a, b)
return y
""")
    blocks = Tile((("m", 1), ("n", 8), ("k", 10)), 1.0, order=("k", "m", "n"))
    panel = Tile((("n", 4),), 1.0, panel=True)
    vocabulary = panel, blocks, replace(panel, inside=blocks.extents)
    graph = saturate(program, eqsat.rules(*RULES), machine("matmul", *vocabulary))
    assert graph.stop == "saturated"
    leaves = {
        n.attr: np.random.default_rng(0).standard_normal(n.type.shape)
        for n in program.nodes if not n.operands
    }  # fmt: skip
    assert evaluate_classes(graph, leaves).disagreement is None
    packs = {n.eclass: n.children[0] for n in graph.nodes if n.op == "pack"}
    forms = {graph.types[c][0].shape for c, of in packs.items() if of in packs}
    assert (3, 2, 2, 10, 4) in forms  # N, K, panels of a block, its k, columns of a panel
    assert (6, 20, 4) in {graph.types[c][0].shape for c in packs}  # and panels without blocks


CHAIN = {
    "NHWC": """
program chain
input x: f32[1, 9, 9, 16]
weight a: f32[3, 3, 16, 32]
weight b: f32[1, 1, 32, 16]
weight c: f32[3, 3, 16, 32]
p = generic(x, a, loops=[1, 7, 7, 32, 3, 3, 16], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, d1 + d4, d2 + d5, d6], [d4, d5, d6, d3]]) : f32[1, 7, 7, 32]
q = generic(relu(p), b, loops=[1, 7, 7, 16, 32], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, d1, d2, d4], [0, 0, d4, d3]]) : f32[1, 7, 7, 16]
r = generic(relu(q), c, loops=[1, 3, 3, 32, 3, 3, 16], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, 2*d1 + d4, 2*d2 + d5, d6], [d4, d5, d6, d3]]) : f32[1, 3, 3, 32]
return r
""",
    "NCHW": """
program chain
input x: f32[1, 16, 9, 9]
weight a: f32[32, 16, 3, 3]
weight b: f32[16, 32, 1, 1]
weight c: f32[32, 16, 3, 3]
p = generic(x, a, loops=[1, 32, 7, 7, 16, 3, 3], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, d4, d2 + d5, d3 + d6], [d1, d4, d5, d6]]) : f32[1, 32, 7, 7]
q = generic(relu(p), b, loops=[1, 16, 7, 7, 32], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, d4, d2, d3], [d1, d4, 0, 0]]) : f32[1, 16, 7, 7]
r = generic(relu(q), c, loops=[1, 32, 3, 3, 16, 3, 3], rank=4, body=mul(x0, x1), combine=add,
  maps=[[d0, d4, 2*d2 + d5, 2*d3 + d6], [d1, d4, d5, d6]]) : f32[1, 32, 3, 3]
return r
""",
}


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
def test_between_convolutions_nothing_is_converted(order: str):
    target = machine("conv2d", Tile((("c", 8), ("k", 8)), 1.0))
    program = parse_program(CHAIN[order], "t.eqs")
    run = eqsat.optimize(program, rules=list(RULES), target=target, goals=["time"])
    assert run.schedule is not None
    found = [
        n.op
        for d in run.schedule.dispatches
        for n in (run.schedule.program.nodes[i] for i in d.members)
        if n.op in ("pack", "unpack", "transpose", "retype")
    ]
    assert sorted(found) == ["pack", "unpack"]


# ---- the random cases above are not empty ----------------------------------------------------
def test_random_cases_apply_often():
    """The tests by seed pass over a case that does not apply; these shares keep them honest."""
    counts = dict.fromkeys(("twice", "reading", "packed", "windows"), 0)
    for seed in range(150):
        rng = random.Random(seed)
        g, t = contraction(rng), tile(rng, rng.choice((2, 4)))
        counts["twice"] += pack_loops_twice(g, t) is not None
        rng = random.Random(seed)
        g, t, i = contraction(rng), tile(rng), rng.randrange(2)
        layout = random_layout(rng, g, i, t)
        counts["reading"] += pack_loops_reading(g, i, layout, t) is not None
        counts["packed"] += pack_loops(g, t) is not None
        rng = random.Random(seed)
        g = convolution(rng, rng.choice((1, 2)), "NCHW")
        counts["windows"] += any(im2col(g, i) is not None for i in range(2))
    assert min(counts.values()) > 50, counts
