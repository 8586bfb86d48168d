"""Requested layouts: what an encoding says of a tensor, wherever the tensor went, and its packs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from seeds import one_in, seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.affine import affine, dim
from eqsat.model.attr import ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call, cast
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move, Reshape
from eqsat.model.ops import attr_from_json
from eqsat.model.program import Builder
from eqsat.model.target import Tile
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.encodings import (
    encode_contraction,
    encode_operands,
    encode_result,
    encoded_contraction,
    encoding_after,
    encoding_before,
    encoding_layout,
    encoding_tiles,
    explicit,
    is_plain_contraction,
)
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.generics.propagate import pack_operand, pack_result
from eqsat.ops.movement.layout import before_transpose
from eqsat.ops.movement.lists import inverse
from eqsat.ops.programs.binding import bind_program
from eqsat.ops.targets.tiles import tiles_of
from eqsat.plugins import find_names
from eqsat.saturate import saturate

SIZES = (1, 2, 3, 4, 5, 7, 8, 16)
TILE = Tile((("m", 4), ("n", 2), ("k", 3)), 1.0)
FLOATS = ("f32", "f32", "f32")
MAPS = "loops=[64, 16, 32], maps=[[d0, d2], [d2, d1], [d0, d1]]"


def contraction(rng: random.Random) -> Generic:
    """A sum of products with 0–2 dims of each role, in any order of every operand's dims."""
    count = {r: rng.randint(r == "k", 2) for r in "bmnk"}
    names = [f"{r}{i}" for r in "bmnk" for i in range(count[r])]
    loop = {name: i for i, name in enumerate(names)}
    sizes = [rng.choice(SIZES) for _ in names]
    sides = [
        rng.sample(found, len(found))
        for found in ([n for n in names if n[0] in roles] for roles in ("bmk", "bkn", "bmn"))
    ]
    maps = [tuple(dim(loop[n]) for n in side) for side in sides]
    shapes = [tuple(sizes[loop[n]] for n in side) for side in sides]
    made = Yield(call("mul", cast(arg(0), "f32"), cast(arg(1), "f32")), "f32", "add")
    results = [loop[n] for n in sides[2]]
    return canonical_generic(
        sizes, results, maps[:2], shapes[:2], [made], (), ("bf16", "bf16"), precision="default"
    )


def tile(rng: random.Random) -> Tile:
    return Tile(tuple((r, rng.choice((1, 2, 3, 4))) for r in "mnk"), 1.0)


def encodings(g: Generic) -> list[Encoding]:
    found = encode_contraction(g)
    assert found is not None
    made = [found.left, found.right, found.result]
    for e in made:
        e.verify()
    return made


def with_layouts(g: Generic, t: Tile) -> list[tuple[Encoding, Layout | None]]:
    """Encodings that are not of scalars, with the layouts `pack_loops` gives them."""
    pairs = zip(encodings(g), layouts(g, t), strict=True)
    return [(e, layout) for e, layout in pairs if e.source]


def layouts(g: Generic, t: Tile) -> list[Layout | None]:
    packed = pack_loops(g, t)
    return [None] * 3 if packed is None else [*packed.operands, packed.result]


# ---- what an encoding is -----------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(15, 200))
def test_the_layout_is_the_one_the_contraction_reads(seed: int):
    rng = random.Random(seed)
    g, t = contraction(rng), tile(rng)
    assert [encoding_layout(e, t) for e in encodings(g)] == layouts(g, t)


def test_a_window_is_encoded_too():
    window = affine([(1, 1), (3, 1)])
    maps = ((dim(0), window, dim(4)), (dim(3), dim(4), dim(2)))
    made = Yield(call("mul", arg(0), arg(1)), "f32", "add")
    g = canonical_generic(
        (2, 6, 16, 3, 8),
        (0, 1, 2),
        maps,
        ((2, 8, 8), (3, 8, 16)),
        [made],
        (),
        ("f32", "f32"),
        precision="default",
    )
    t = Tile((("c", 4), ("k", 8)), 1.0)
    assert [encoding_layout(e, t) for e in encodings(g)] == layouts(g, t)
    assert not is_plain_contraction(g)


def test_text_and_json_keep_everything():
    rng = random.Random(0)
    for _ in range(50):
        for e, _ in with_layouts(contraction(rng), TILE):
            perm = rng.sample(range(len(e.source)), len(e.source))
            moved = encoding_before(e, tuple(perm))
            assert moved is not None
            assert attr_from_json(moved.to_json()) == moved
            b = Builder("p")
            x = b.append("input", (), Leaf("x", TensorType("f32", moved.source), 0))
            program = b.build([b.append("set_encoding", (x,), moved)])
            assert parse_program(program.to_text()) == program


def test_an_older_encoding_is_a_plain_matmul():
    """Without maps: role and element types say the rest (IREE before `iteration_sizes`)."""
    e = Encoding((5, 64, 32), "rhs", "matmul", FLOATS)
    layout = encoding_layout(e, Tile((("m", 8), ("n", 16), ("k", 4)), 1.0))
    assert layout == Layout((5, 64, 32), (2, 1), (16, 4), (0, 2, 1), ("-", "-"))
    assert encoded_contraction(replace(e, contraction="other")) is None
    assert encoded_contraction(replace(e, dtypes=())) is None
    assert encoded_contraction(replace(e, source=(7,))) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dims": (0,)}, "one entry per dim"),
        ({"dims": (1, 1)}, "twice"),
        ({"dims": (0, 2)}, "does not have"),
        ({"dims": (1, 0)}, "cannot be loop"),
        ({"maps": ((dim(0), dim(5)),) * 3}, "loop without a size"),
        ({"maps": ((dim(0), dim(2)),)}, "a map for lhs, rhs and result"),
    ],
)
def test_a_wrong_encoding_is_refused(change: dict, text: str):
    maps = ((dim(0), dim(2)), (dim(2), dim(1)), (dim(0), dim(1)))
    good = Encoding((64, 32), "lhs", "matmul", FLOATS, (64, 16, 32), maps)
    good.verify()
    with pytest.raises(ShapeError, match=text):
        replace(good, **change).verify()


def test_inference_keeps_encodings():
    text = f"""
program p
input a: i8[64, 32]
e = set_encoding(a, role="lhs", dtypes=["i8", "i8", "i32"], {MAPS})
y = cast(e, i32)
return y
"""
    program = parse_program(text)
    program.verify()
    b = Builder("again")  # every node inferred anew from its operands
    for n in program.nodes:
        b.append(n.op, n.operands, n.attr)
    assert [n.attr for n in b.nodes if n.op == "set_encoding"] == [
        n.attr for n in program.nodes if n.op == "set_encoding"
    ]


# ---- moved: the pack of the moved request is the moved pack ------------------------------------
@pytest.mark.parametrize("seed", seeds(10, 100))
def test_through_a_transpose(seed: int):
    rng = random.Random(seed)
    g, t = contraction(rng), tile(rng)
    for e, layout in with_layouts(g, t):
        perm = tuple(rng.sample(range(len(e.source)), len(e.source)))
        above, below = encoding_before(e, perm), encoding_after(e, perm)
        assert above is not None
        assert below is not None
        above.verify()
        below.verify()
        assert encoding_layout(above, t) == (layout and before_transpose(layout, perm))
        assert encoding_layout(below, t) == (layout and before_transpose(layout, inverse(perm)))
        assert encoding_after(above, perm) == explicit(e)


def elementwise(rng: random.Random, shape: tuple[int, ...], at: int | None = None) -> Generic:
    """A parallel generic over `shape`, operands permuted or broadcast; operand `at` is permuted."""
    maps, shapes = [], []
    count = rng.randint(1, 3)
    for j in range(count):
        loops = rng.sample(range(len(shape)), len(shape))
        if j != at:
            loops = loops[: rng.randint(0, len(loops))]
        maps.append(tuple(dim(d) for d in loops))
        shapes.append(tuple(shape[d] for d in loops))
    body = arg(0)
    for j in range(1, count):
        body = call("add", body, arg(j))
    made = Yield(body, "f32")
    return canonical_generic(
        shape, range(len(shape)), maps, shapes, [made], (), ["f32"] * count, precision="default"
    )


@pytest.mark.parametrize("seed", seeds(12, 150))
def test_through_a_generic_above_as_its_pack_goes(seed: int):
    rng = random.Random(seed)
    g, t = contraction(rng), tile(rng)
    for e, layout in with_layouts(g, t):
        reader = elementwise(rng, e.source)
        found = encode_operands(reader, e)
        packed = None if layout is None else pack_result(reader, layout)
        if found is None or packed is None:
            continue
        for one in found.operands:
            if one is not None:
                one.verify()
        got = [o and encoding_layout(o, t) for o in found.operands]
        assert got == list(packed.operands)


def test_random_readers_let_packs_through():
    """The two tests by seed pass over a case without a pack; these shares keep them honest."""
    above = below = 0
    for seed in range(150):
        rng = random.Random(seed)
        g, t = contraction(rng), tile(rng)
        for e, layout in with_layouts(g, t):
            reader = elementwise(rng, e.source, at=0)
            if layout is None:
                continue
            above += bool(encode_operands(reader, e) and pack_result(reader, layout))
            _, packed_as = _permuted(e, layout, reader)
            packed = packed_as and pack_operand(reader, 0, packed_as)
            below += bool(packed and packed.result)
    assert min(above, below) > 100


@pytest.mark.parametrize("seed", seeds(12, 150))
def test_through_a_generic_below_as_its_pack_goes(seed: int):
    rng = random.Random(seed)
    g, t = contraction(rng), tile(rng)
    for e, layout in with_layouts(g, t):
        reader = elementwise(rng, e.source, at=0)
        read, packed_as = _permuted(e, layout, reader)
        found = encode_result(reader, 0, read)
        packed = None if packed_as is None else pack_operand(reader, 0, packed_as)
        assert found is not None
        found.result.verify()
        if packed is None or packed.result is None:
            continue
        got = encoding_layout(found.result, t)
        assert got is not None
        assert (got.pos, got.tiles) == (packed.result.pos, packed.result.tiles) or set(
            zip(got.pos, got.tiles, strict=True)
        ) == set(zip(packed.result.pos, packed.result.tiles, strict=True))


def _permuted(e: Encoding, layout: Layout | None, reader: Generic):
    """The encoding of operand 0 of `reader`, whose dims are permuted."""
    perm = tuple(a.dim for a in reader.maps[0])
    moved = encoding_after(e, perm)  # type: ignore[arg-type]
    assert moved is not None
    return moved, layout and before_transpose(layout, inverse(perm))  # type: ignore[arg-type]


def test_a_reduction_and_a_diagonal_stop_it():
    e = Encoding((8, 8), "lhs", "matmul", FLOATS)
    total = canonical_generic(
        (8, 8),
        (0,),
        ((dim(0), dim(1)),),
        ((8, 8),),
        [Yield(arg(0), "f32", "add")],
        (),
        ("f32",),
        precision="default",
    )
    assert encode_result(total, 0, e) is None
    assert encode_operands(total, replace(e, source=(8,), dims=(0,))) is None
    diagonal = canonical_generic(
        (8,),
        (0,),
        ((dim(0), dim(0)),),
        ((8, 8),),
        [Yield(arg(0), "f32")],
        (),
        ("f32",),
        precision="default",
    )
    assert encode_result(diagonal, 0, e) is None


def test_a_reshape_keeps_whole_dims_only():
    e = explicit(Encoding((64, 32), "lhs", "matmul", FLOATS))
    assert e is not None
    units = encoding_after(e, Reshape((64, 32), (1, 64, 1, 32)))
    assert units is not None
    assert units.dims == (-1, 0, -1, 1)
    assert encoding_before(units, Reshape((64, 32), (1, 64, 1, 32))) == e
    assert encoding_after(e, Reshape((64, 32), (8, 8, 32))) is None
    assert encoding_before(e, Reshape((2048,), (64, 32))) is None
    assert encoding_before(units, Reshape((1, 8, 8, 1, 32), (1, 64, 1, 32))) is None


def test_a_pad_of_a_loop_stops_it_a_window_does_not():
    plain = Encoding((64, 32), "lhs", "matmul", FLOATS)
    pad = Move("pad", ((60, 32),), ((0, 0), (4, 0), "0"), (64, 32))
    assert encoding_before(plain, pad) is None
    beside = replace(explicit(plain) or plain, source=(3, 64, 32), dims=(-1, 0, 1))
    cut = Move("slice", ((3, 64, 32),), ((0, 0, 0), (2, 64, 32), (1, 1, 1)), (2, 64, 32))
    found = encoding_after(beside, cut)
    assert found is not None
    assert found.source == (2, 64, 32)
    assert encoding_before(plain, Move("concat", ((60, 32), (4, 32)), (0,), (64, 32))) is None


# ---- resolved by a target ----------------------------------------------------------------------
TEXT = f"""
program encoded
input a: f32[64, 32]
input b: f32[32, 16]
ea = set_encoding(a, role="lhs", dtypes=["f32", "f32", "f32"], {MAPS})
eb = set_encoding(b, role="rhs", dtypes=["f32", "f32", "f32"], {MAPS})
c = matmul(ea, eb)
y = unset_encoding(c, role="result", dtypes=["f32", "f32", "f32"], {MAPS})
return y
"""
PARTS = ("layout/encoding", "layout/encoding-moves", "layout/contract", "layout/pack")


def held(target: str, text: str = TEXT) -> set[tuple[str, tuple[int, ...]]]:
    """(op, tile) of every e-node if encodings are not nothing."""
    rules = eqsat.rules(*PARTS).without("encoding-nothing")
    graph = saturate(parse_program(text), rules, eqsat.target(target))
    return {(n.op, getattr(n.attr, "tile", ())) for n in graph.nodes}


def test_the_packed_contraction_meets_its_packs():
    """`set_encoding` and the packed contraction ask for one layout: only border packs remain."""
    rules = eqsat.rules(*PARTS).without("encoding-nothing")
    forced = ["tiles_forced=true"]
    run = eqsat.optimize(parse_program(TEXT), rules=rules, target="reference", settings=forced)
    assert run.schedule is not None
    ops = sorted(n.op for n in run.schedule.program.nodes)
    assert ops == ["generic", "input", "input", "pack", "pack", "unpack"]


def test_no_data_tiling_packs_nothing():
    assert ("pack", ()) in held("avx512-xla")
    assert not {op for op, _ in held("no-data-tiling")} & {"pack", "unpack"}
    e = Encoding((64, 32), "lhs", "matmul", FLOATS)
    assert encoding_tiles(eqsat.target("no-data-tiling"), e) == ()


def test_tiles_are_those_of_the_contraction():
    rng = random.Random(3)
    machine = eqsat.target("avx512-xla")
    for _ in range(30):
        g = contraction(rng)
        assert all(encoding_tiles(machine, e) == tiles_of(machine, g) for e in encodings(g))


def test_the_quantized_matmul_keeps_its_request_below_a_cast():
    text = f"""
program quantized
input a: i8[64, 32]
input b: i8[32, 16]
ea = set_encoding(a, role="lhs", dtypes=["i8", "i8", "i32"], {MAPS})
eb = set_encoding(b, role="rhs", dtypes=["i8", "i8", "i32"], {MAPS})
c = matmul(ea, eb)
u = unset_encoding(c, role="result", dtypes=["i8", "i8", "i32"], {MAPS})
y = cast(u, f32)
return y
"""
    rules = eqsat.rules("layout/encoding-moves")
    graph = saturate(parse_program(text), rules, eqsat.target("avx512-xla"))
    at_root = [n for n in graph.nodes if n.eclass == graph.roots[0]]
    assert sorted(n.op for n in at_root) == ["generic", "unset_encoding"]
    moved = next(n.attr for n in at_root if n.op == "unset_encoding")
    assert isinstance(moved, Encoding)
    assert moved.dtypes == ("i8", "i8", "i32")


# ---- a program that asks for layouts, from end to end ------------------------------------------
QUANTIZED = "quantized_matmul"
TILING = ["avx512-xla", "vmvx-like", "reference"]
REQUESTS = {"set_encoding", "unset_encoding"}


def quantized(target: str, **options) -> eqsat.Run:
    return eqsat.optimize(eqsat.read(QUANTIZED), target=target, **options)


def ops_of(run: eqsat.Run) -> list[str]:
    assert run.schedule is not None
    return sorted(n.op for n in run.schedule.program.nodes)


def test_the_request_is_there_after_inference_at_any_size():
    """The depth is not known: what is asked for speaks of it by name, and holds at each size."""
    program = eqsat.read(QUANTIZED).program
    asked = [n for n in program.nodes if n.op in REQUESTS]
    assert [str(n.type) for n in asked] == ["i8[3, k]", "i8[k, 5]", "i32[3, 5]", "i32[3, 5]"]
    for k in (1, 256, 1000):
        bound = bind_program(program, {"k": k})
        found = [n for n in bound.nodes if n.op in REQUESTS]
        assert [n.op for n in found] == [n.op for n in asked]
        for n in found:
            assert isinstance(n.attr, Encoding)
            assert n.attr.sizes == (3, 5, k)


@pytest.mark.parametrize("target", one_in(3, sorted(find_names("targets", ".yaml"))))
def test_every_target_resolves_every_request(target: str):
    machine = eqsat.target(target)
    one_device = ["mesh={}"] if machine.mesh else []  # unknown sizes are not cut over a mesh
    run = quantized(target, goals=("time",), settings=one_device)
    assert run.egraph is not None
    assert not REQUESTS & set(ops_of(run))
    packs = {n.op for n in run.egraph.nodes} & {"pack", "unpack"}
    e = next(n.attr for n in run.program.nodes if n.op == "set_encoding")
    assert isinstance(e, Encoding)
    assert bool(packs) == bool(encoding_tiles(machine, e)), "packs where a tile fits, nowhere else"


@pytest.mark.parametrize("target", TILING[:2])
def test_the_pack_and_nothing_are_both_candidates(target: str):
    """Nothing is cheaper for 3 x 5; where tiles are forced, each side is packed once."""
    free, forced = quantized(target), quantized(target, settings=["tiles_forced=true"])
    assert ops_of(free) == ["generic", "input", "input"]
    assert ops_of(forced) == ["generic", "input", "input", "pack", "pack", "unpack"]
    assert free.schedule is not None
    assert forced.schedule is not None
    assert free.schedule.time_ps <= forced.schedule.time_ps
    assert forced.schedule.counts()["fused_conversions"] + sum(
        forced.schedule.counts()[k] for k in ("packs", "unpacks")
    ) == 3  # fmt: skip


def test_no_tile_for_the_types_means_nothing():
    text = TEXT.replace("f32", "f64")
    graph = saturate(parse_program(text), eqsat.rules("default"), eqsat.target("avx512-xla"))
    assert not {n.op for n in graph.nodes} & {"pack", "unpack"}
    graph = saturate(parse_program(TEXT), eqsat.rules("default"), eqsat.target("avx512-xla"))
    assert {n.op for n in graph.nodes} >= {"pack", "unpack"}


def test_a_request_that_no_rule_resolves_is_refused():
    with pytest.raises(EqsatError, match="2 requested layout") as caught:
        eqsat.optimize(
            parse_program('input x: f32[8, 8]\ny = set_encoding(x, role="lhs")\n'
                          'return unset_encoding(exp(y), role="lhs")'),
            rules=["layout/transpose"], target="reference",
        )  # fmt: skip
    assert caught.value.diagnostics[0].code == "E390"


MOVERS = {
    "cast": "cast({}, f32)",
    "transpose": "transpose({}, perm=[1, 0])",
    "reshape": "reshape({}, shape=[1, 64, 16])",
    "generic": "generic({}, loops=[64, 16], maps=[[d0, d1]], body=exp(cast(x0, f32)))",
    "pad": "pad({}, low=[0, 0], high=[0, 0], value=0)",
    "slice": "slice({}, start=[0, 0], limit=[64, 16])",
}


@pytest.mark.parametrize("op", MOVERS)
def test_no_op_that_moves_or_casts_drops_a_request(op: str):
    """Where requests are moved and not resolved, what is computed from one is unset behind it."""
    asked = f'role="result", dtypes=["i8", "i8", "i32"], {MAPS}'
    text = f"input y: i32[64, 16]\nu = unset_encoding(y, {asked})\nreturn {MOVERS[op].format('u')}"
    graph = saturate(
        parse_program(text), eqsat.rules("layout/encoding-moves"), eqsat.target("avx512-xla")
    )
    at_root = [n for n in graph.nodes if n.eclass == graph.roots[0]]
    moved = [n for n in at_root if n.op == "unset_encoding"]
    assert moved, "the request went along"
    for n in moved:
        assert isinstance(n.attr, Encoding)
        assert n.attr.dtypes == ("i8", "i8", "i32")
    bare = {n.eclass for n in graph.nodes if n.op == "input"}
    assert graph.roots[0] not in bare
    without = [n for n in at_root if n.op != "unset_encoding" and set(n.children) & bare]
    assert not without, "nothing is equal to the op on the bare tensor"
