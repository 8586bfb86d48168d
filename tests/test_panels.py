"""Panels: one loop is cut, the rest stays as it is; what is packed lies as kernels stream it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from contractions import contraction, convolution, operands, packed, value
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.target import Tile, UntiledKernel
from eqsat.ops.contractions.packing import (
    PackedLoops,
    pack_loops,
    pack_loops_reading,
    pack_other_loops,
    swap_loops,
)
from eqsat.ops.contractions.roles import innermost
from eqsat.ops.movement.layout import make_layout
from eqsat.ops.targets.kernels import kernel_choices

PANEL = Tile((("m", 1), ("n", 32), ("k", 1)), 1.0, panel=True)


def _agrees(g: Generic, found: PackedLoops, rng: random.Random) -> None:
    xs = operands(g, rng)
    inside = [packed(a, x) for a, x in zip(found.operands, xs, strict=True)]
    result = value("unpack", found.result, value("generic", found.sig, *inside))
    assert (result == value("generic", g, *xs)).all()


def matmul(rhs: str = "d2, d1", n: int = 64) -> Generic:
    shape = (n, 96) if rhs == "d1, d2" else (96, n)
    program = parse_program(f"""program p
    input a: f32[40, 96]
    input b: f32[{shape[0]}, {shape[1]}]
    y = generic(a, b, loops=[40, {n}, 96], rank=2, maps=[[d0, d2], [{rhs}]], body=mul(x0, x1), combine=add)
    return y""")  # noqa: E501
    attr = program.nodes[-1].attr
    assert isinstance(attr, Generic)
    return attr


@pytest.mark.parametrize("rhs", ["d2, d1", "d1, d2"])
def test_a_panel_of_n_packs_the_right_operand_and_nothing_else(rhs: str):
    found = pack_loops(matmul(rhs), PANEL)
    assert found is not None
    lhs, weights = found.operands
    assert lhs is None
    assert weights is not None
    assert weights.packed_shape == (2, 96, 32)  # panels, k, n in a panel
    assert found.result.packed_shape == (40, 2, 32)  # the bytes of the plain result
    assert swap_loops(matmul(rhs, n=48), PANEL) is None


@pytest.mark.parametrize(("n", "panels"), [(64, 2), (70, 3), (7, 1)])
def test_a_panel_of_n_packs_a_matrix_that_is_multiplied_by_a_vector(n: int, panels: int):
    """However the product is spelled: the matrix may be its first factor."""
    for text in ("a, x, maps=[[d1, d0], [d1]]", "x, a, maps=[[d1], [d1, d0]]"):
        program = parse_program(f"""program p
    input a: f32[96, {n}]
    input x: f32[96]
    y = generic({text}, loops=[{n}, 96], body=mul(x0, x1), combine=add)
    return y""")
        (attr,) = (node.attr for node in program.nodes if isinstance(node.attr, Generic))
        ways = [w for w in (pack_loops(attr, PANEL), swap_loops(attr, PANEL)) if w is not None]
        (found,) = ways
        (matrix,) = (layout for layout in found.operands if layout is not None)
        assert matrix.packed_shape == (panels, 96, 32)
        assert found.result.packed_shape == (panels, 32)
        _agrees(attr, found, random.Random(n))


def test_operands_that_no_kernel_streams_are_not_read_as_they_lie():
    g = matmul()
    streamed = make_layout((96, 64), (1,), (32,), (1, 0), ("-",))
    assert pack_loops_reading(g, 1, streamed, PANEL) is not None
    both = Layout((96, 64), (1, 0), (32, 32), (1, 0), ("-", "-"))  # [N1, K1, n32, k32]
    across = Layout((96, 64), (1,), (32,), (0, 1), ("-",))  # [K, N1, n32]: panels apart
    data = Layout((40, 96), (1,), (32,), (0, 1), ("-",))  # [M, K1, k32]
    mmt4d = replace(PANEL, panel=False)
    assert pack_loops_reading(g, 1, both, mmt4d) is not None
    for operand, layout in ((1, both), (1, across), (0, data)):
        assert pack_loops_reading(g, operand, layout, PANEL) is None


def test_a_tile_may_say_what_its_kernel_streams():
    g = matmul()
    asked = Tile((("m", 8), ("n", 32), ("k", 4)), 1.0, order=("m", "k", "n"), rhs="k4·n32")
    assert pack_loops(g, asked) is not None
    assert pack_loops(g, replace(asked, rhs="n32·k4")) is None
    assert pack_loops(g, replace(asked, order=("m", "n", "k"), rhs="n32·k4")) is not None
    assert innermost("k·n32") == innermost("kn32") == (("k", 0), ("n", 32))


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_panels_compute_the_same(seed: int):
    rng = random.Random(seed)
    sizes = [("m", rng.choice((1, 1, 2))), ("n", rng.choice((2, 3, 4))), ("k", rng.choice((1, 2)))]
    g, t = contraction(rng), Tile(tuple(sizes), 1.0, panel=True)
    if seed % 3 == 0:
        g, t = convolution(rng), Tile((("c", 1), ("k", rng.choice((2, 3)))), 1.0, panel=True)
    for found in (pack_loops(g, t), *pack_other_loops(g, t), swap_loops(g, t)):
        if found is not None:
            _agrees(g, found, rng)


def test_a_panel_of_filters_leaves_the_image_and_the_result_as_they_are():
    program = parse_program("""program p
    input x: f32[1, 9, 9, 8]
    input w: f32[3, 3, 8, 64]
    y = generic(x, w, loops=[1, 7, 7, 64, 3, 3, 8], rank=4, maps=[[d0, d1 + d4, d2 + d5, d6], [d4, d5, d6, d3]], body=mul(x0, x1), combine=add)
    return y""")  # noqa: E501
    g = program.nodes[-1].attr
    assert isinstance(g, Generic)
    found = pack_loops(g, Tile((("c", 1), ("k", 32)), 1.0, panel=True))
    assert found is not None
    image, filters = found.operands
    assert image is None
    assert filters is not None
    assert filters.packed_shape == (2, 3, 3, 8, 32)
    assert found.result.packed_shape == (1, 7, 7, 2, 32)


# ---- prices and rows of targets ------------------------------------------------------------------
@pytest.mark.parametrize(("swapped", "chosen"), [("1.0", (16, 8, 1)), ("0.1", (8, 16, 1))])
def test_an_exchanged_tile_has_a_price_of_its_own(swapped: str, chosen: tuple[int, ...]):
    rows = f"tiles.matmul=[{{mnk: [8, 16, 1], rate: 1, swapped: {swapped}}}]"
    settings = [rows, "untiled_rate=0.01", "rates={f32: 1 GFLOP/s}"]
    source = eqsat.Source(
        parse_program(
            "program p\ninput x: f32[64, 64]\ninput w: f32[64, 8]\ny = matmul(x, w)\nreturn y"
        )
    )
    run = eqsat.optimize(source, target="reference", settings=settings)
    assert run.schedule is not None
    attrs = [n.attr for n in run.schedule.program.nodes]
    assert [a.tile for a in attrs if isinstance(a, Generic)] == [chosen]


def test_a_kernel_row_names_what_lies_innermost():
    rows = (UntiledKernel(0.9, lhs="mk", rhs="kn"), UntiledKernel(0.5, rhs="nk"))
    target = replace(eqsat.target("avx512-xla"), untiled=(("matmul", rows),))
    plain, across = (kernel_choices(target, matmul(rhs)) for rhs in ("d2, d1", "d1, d2"))
    assert [(c.rate, c.misplaced) for c in plain] == [(0.9, ()), (0.5, (1,))]
    assert [(c.rate, c.misplaced) for c in across] == [(0.9, (1,)), (0.5, ())]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("tiles.matmul=[{panel: {n: 1}, rate: 1}]", "a panel cuts m or n"),
        ("tiles.matmul=[{rate: 1}]", "either `mnk` or a `panel`"),
        ("tiles.matmul=[{panel: {n: 8}, vnni: 2, rate: 1}]", "it has no `vnni`"),
        ("tiles.matmul=[{mnk: [1, 8, 1], rhs: nq, rate: 1}]", "no order of roles"),
        ("tiles.matmul=[{mnk: [1, 8, 1], rhs: k·n16, rate: 1}]", "`rhs` has n16, the tile 8"),
        ("tiles.matmul=[{mnk: [1, 8, 1], rhs: kn, rate: 1}]", "the tile cuts n"),
        ("tiles.matmul=[{mnk: [1, 8, 4], rhs: k4·n8, rate: 1}]", "another order than `order`"),
        ("tiles.conv2d=[{k: 8, rate: 1}]", "either `c` and `k` or a `panel`"),
        ("untiled.matmul=[{rhs: kn32, rate: 1}]", "names a tile"),
        ("tiles.matmul=[{mnk: [1, 8, 1], inside: [1, 8, 8], rate: 1}]", "only a panel lies"),
        ("tiles.matmul=[{panel: {n: 8}, inside: [1, 20, 4], rate: 1}]", "no panels of n8"),
        ("tiles.matmul=[{panel: {n: 8}, inside: [1, 8, 4], rate: 1}]", "no panels of n8"),
        ("tiles.matmul=[{panel: {n: 8}, inside: [1, 16, 4], rate: 1}]", "no row has the blocks"),
    ],
)
def test_wrong_rows_say_why(rows: str, message: str):
    with pytest.raises(eqsat.EqsatError, match=message) as error:
        override(eqsat.target("reference"), [rows])
    assert "E206" in str(error.value)


SIZES = {"b": 5, "i": 6, "j": 96, "k": 24}
LARGE = {"b": 32, "i": 100, "j": 600, "k": 821}  # those of JAX issue 19327


def declared(sizes: dict[str, int]) -> str:
    a, w = ([sizes[d] for d in dims] for dims in ("bik", "jk"))
    return f"input a: f32{a}\n    input w: f32{w}"


def in_order(first: str, result: str, sizes: dict[str, int]) -> Generic:
    """a[b, i, k] times w[j, k], with this operand first and the result's loops in this order."""
    loop = {name: f"d{result.index(name)}" for name in "bij"} | {"k": "d3"}
    maps = {o: f"[{', '.join(loop[d] for d in dims)}]" for o, dims in (("a", "bik"), ("w", "jk"))}
    names = (first, "w" if first == "a" else "a")
    program = parse_program(f"""program p
    {declared(sizes)}
    y = generic({", ".join(names)}, loops=[{", ".join(str(sizes[d]) for d in (*result, "k"))}], rank=3, maps=[{", ".join(maps[n] for n in names)}], body=mul(x0, x1), combine=add)
    return y""")  # noqa: E501
    attr = program.nodes[-1].attr
    assert isinstance(attr, Generic)
    return attr


def test_the_operand_with_rows_of_the_result_is_packed_whichever_is_first():
    """A panel lies along the last loop of the result, of a left operand too."""
    written, exchanged = pack_loops(in_order("a", "bij", SIZES), PANEL), in_order("w", "bij", SIZES)
    assert written is not None
    swapped = swap_loops(exchanged, PANEL)
    assert swapped is not None
    assert swapped.operands == written.operands[::-1]
    assert swapped.result == written.result
    assert swapped.sig.sizes == written.sig.sizes
    _agrees(exchanged, swapped, random.Random(0))
    assert swap_loops(in_order("a", "bij", SIZES), PANEL) is None


@pytest.mark.parametrize("first", ["a", "w"])
@pytest.mark.parametrize("result", ["bij", "jbi"])
def test_spellings_of_a_product_have_one_optimum(first: str, result: str):
    """The order of operands, and of the product's loops with a transpose behind it."""
    best = optimum("einsum", "a", "bij")
    assert optimum("respelled", first, result) == best


def optimum(name: str, first: str, result: str) -> int:
    """The least time of a @ w with the result b, i, j, spelled so."""
    g = in_order(first, result, LARGE)
    order = [result.index(d) for d in "bij"]
    names = (first, "w" if first == "a" else "a")
    loops, maps = list(g.sizes), [[f"d{e.dim}" for e in m] for m in g.maps]
    text = f"""program {name}
    {declared(LARGE)}
    y = generic({", ".join(names)}, loops={loops}, rank=3, maps={str(maps).replace("'", "")}, body=mul(x0, x1), combine=add)
    z = transpose(y, perm={order})
    return z
    """  # noqa: E501
    run = eqsat.optimize(parse_program(text), target="avx512")
    assert run.schedule is not None
    return run.schedule.time_ps
