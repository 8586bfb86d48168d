"""Memories that pad, stages of tiles, and blocks of grids: what they take and what they cost."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from contractions import contraction, until_applies
from seeds import one_in, seeds

import eqsat
from eqsat.extract.dispatch.pipelines import ALONG, APART, NOT_READ, cut, root_bytes
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.generic import Generic
from eqsat.model.pipelines import GRID, Padding, Pipeline, Units
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.plan.price import Block, StagedTile, grid_bytes, loop_bytes, misaligned
from eqsat.run import Run
from eqsat.schedule.legal import faults
from eqsat.schedule.pipelines import Root, held_bytes, workgroup

TPU = Padding(8, 128, 512)


# ---- what XLA states for a TPU v5e (libtpu 0.0.52): bytes of an argument of this type ----------
@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        ("f32", (100, 100), 53_248), ("bf16", (100, 100), 26_624), ("i8", (100, 100), 13_312),
        ("f32", (3, 128), 2_048), ("bf16", (3, 128), 1_024), ("f32", (1, 1000), 4_096),
        ("bf16", (1, 1000), 4_096), ("i8", (1, 1000), 4_096), ("f32", (1025,), 8_192),
        ("bf16", (3000,), 6_144), ("i8", (100,), 512), ("f32", (), 512),
        ("f32", (3, 5, 7), 10_240), ("i4", (3, 5, 7), 1_536), ("f32", (64, 3, 7, 7), 86_016),
        ("f32", (8, 1), 512), ("bf16", (2, 3, 1024, 16), 196_608), ("i4", (12, 100), 1_024),
        ("bool", (10, 3, 100), 5_120), ("i8", (3, 224, 224), 172_032),
    ],
)  # fmt: skip
def test_a_buffer_has_the_bytes_that_xla_gives_it(
    dtype: str, shape: tuple[int, ...], nbytes: int
) -> None:
    assert TPU.buffer_bytes(shape, dtype) == nbytes


# ---- what Mosaic and Triton state of kernels (the gate `scratch` asks more) -------------
def test_a_grid_takes_what_mosaic_states() -> None:
    lhs, rhs, out = Block((256, 512), "f32"), Block((512, 256), "f32"), Block((256, 256), "f32")
    assert grid_bytes([lhs, rhs, out], [out], TPU) == 2_883_584
    assert grid_bytes([lhs, rhs, replace(out, is_moving=False)], [out], TPU) == 2_621_440
    eight = [Block((8, 128), "i8"), Block((128, 128), "i8"), Block((8, 128), "i32")]
    assert grid_bytes(eight, [Block((8, 128), "i32")], TPU) == 47_104


def test_a_loop_takes_what_triton_states() -> None:
    lhs, rhs = StagedTile(256 * 64 * 2, True), StagedTile(64 * 256 * 2, True)
    assert loop_bytes([lhs, rhs], 4) == 262_144
    tf32 = StagedTile(128 * 64 * 4), StagedTile(64 * 256 * 4, True)
    assert [loop_bytes(tf32, s) for s in (2, 3, 4)] == [163_840, 262_144, 360_448]


def test_blocks_are_divisible_or_whole() -> None:
    assert misaligned((100, 128), (2000, 128), (8, 128)).startswith("a block of 100x128: 100 is")
    assert misaligned((16, 64), (16, 96), (8, 128)).endswith("not divisible by 128, nor all of 96")
    assert not misaligned((3, 100), (3, 100), (8, 128))
    assert not misaligned((1, 8, 256), (5, 64, 512), (8, 128))


def test_a_unit_holds_what_fits_of_everything() -> None:
    sm = Units(132, 228 * 1024, 64, 32, 256 * 1024, 1020)
    asked = ((4, 131_072, 0), (4, 16_384, 0), (8, 1, 0), (4, 1, 65_536), (4, 1, 256 * 256 * 4))
    # of the last: 512 registers of a lane
    assert [min(sm.rooms(*a).values()) for a in asked] == [1, 14, 8, 4, 0]


# ---- scratch by the search and by the checker, written apart -------------------------------------
def drawn(seed: int) -> tuple[Generic, Pipeline]:
    rng = random.Random(seed)

    def draw():
        g = contraction(rng)
        return contraction_roles(g), g

    lists = [tuple(rng.sample((8, 6, 4, 3, 2, 1), 2)) for _ in "mnk"]
    sides = tuple(s for s in ("lhs", "rhs") if rng.random() < 0.5)
    is_grid = seed % 2 == 0
    how = {"walk": GRID} if is_grid else {"from_scratch": sides, "subgroups": rng.choice((0, 1))}
    shape = {"stages": rng.choice((1, 2, 3, 4)), "unaligned": rng.choice(("padded", "whole"))}
    return until_applies(draw)[1], Pipeline("p", *lists, cut="any", **how, **shape)


@pytest.mark.parametrize("seed", seeds(8, 60))
@pytest.mark.parametrize("padding", [None, Padding(2, 2)])
def test_search_and_checker_need_the_same_scratch(seed: int, padding: Padding | None) -> None:
    g, p = drawn(seed)
    found, other = cut(g, p, padding), workgroup(g, p, padding)
    assert (found is None) == (other is None)
    if other is None:
        assert p.walk == GRID
        assert padding == Padding(2, 2)
        return
    for reading, root in (
        (NOT_READ, Root(0, g, is_read=False, is_along=True)),
        (ALONG, Root(0, g, is_read=True, is_along=True)),
        (APART, Root(0, g, is_read=True, is_along=False)),
    ):
        assert root_bytes(g, p, reading, padding) == held_bytes(root, other, p, padding)


def test_some_grids_are_not_aligned_and_some_are() -> None:
    pairs = [drawn(seed) for seed in range(0, 60, 2)]
    taken = [cut(g, p, Padding(2, 2)) is not None for g, p in pairs]
    assert 0 < sum(taken) < len(taken)


def test_stages_are_added_up() -> None:
    program = matmul(512, 512, 512, "bf16")
    g = next(n.attr for n in program.nodes if isinstance(n.attr, Generic))
    one = Pipeline("p", (256,), (256,), (64,))
    four = replace(one, stages=4, from_scratch=("lhs", "rhs"))
    assert root_bytes(g, one, NOT_READ) == 65_536
    assert root_bytes(g, four, NOT_READ) == 262_144
    assert root_bytes(g, replace(four, from_scratch=()), NOT_READ) == 196_608
    grid = replace(one, k=(128,), walk=GRID, stages=2)
    assert root_bytes(g, grid, NOT_READ, TPU) == 2 * (2 * 65_536 + 262_144) + 262_144
    assert cut(g, replace(grid, k=(64,)), TPU) is None  # 64 of 512 lanes are no block


# ---- a whole search ------------------------------------------------------------------------------
def matmul(m: int, n: int, k: int, dtype: str = "f32") -> Program:
    return parse_program(
        f"input x: {dtype}[{m}, {k}]\ninput w: {dtype}[{k}, {n}]\ny = matmul(x, w)\nreturn y\n"
    )


def run_of(program: Program, target: Target, rules: tuple[str, ...] = ("policy/keep",)) -> Run:
    return eqsat.optimize(program, target=target, rules=rules, threads=1, time_limit=20)


def schedule_of(program: Program, target: Target) -> Schedule:
    found = run_of(program, target).schedule
    assert found is not None
    return found


@pytest.fixture(scope="module")
def tpu() -> Target:
    return load_target("tpu-v5e")


def test_the_tile_that_a_compiler_refuses_is_refused() -> None:
    """256x256x64 of bf16 in 4 stages wants 262,144 bytes of 232,448, as Triton says."""
    wide = ["pipelines.wgmma.m=[256]", "pipelines.wgmma.n=[256]", "pipelines.wgmma.k=[64]"]
    on = override(load_target("sm_90"), wide)
    assert schedule_of(matmul(512, 512, 512, "bf16"), on).dispatches[0].pipeline != "wgmma"
    two = override(on, ["pipelines.wgmma.stages=2"])
    assert schedule_of(matmul(512, 512, 512, "bf16"), two).dispatches[0].pipeline == "wgmma"
    whole = schedule_of(matmul(512, 512, 512, "bf16"), two)
    moved = replace(whole, target="sm_90")
    assert any("262,144" in f and "232,448" in f for f in faults(moved, on))


def test_peak_and_traffic_count_what_memory_pads(tpu: Target) -> None:
    schedule = schedule_of(matmul(100, 100, 100), tpu)
    assert schedule.peak_bytes == schedule.bytes_moved == 3 * 53_248
    assert schedule_of(matmul(128, 128, 128), tpu).peak_bytes == 3 * 65_536
    assert not faults(schedule, tpu)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert schedule.time_ps >= schedule_of(matmul(96, 96, 96), tpu).time_ps


def test_a_size_that_padding_does_not_give_is_a_fault(tpu: Target) -> None:
    schedule = schedule_of(matmul(100, 100, 100), tpu)
    smaller = replace(schedule, buffers=tuple(replace(b, nbytes=39_999) for b in schedule.buffers))
    assert any("39,999 bytes" in f and "53,248" in f for f in faults(smaller, tpu))


PACKED = """input x: f32[256, 256]
p = pack(x, pos=[0, 1], tiles={tiles}, outer=[0, 1], pad=0)
y = generic(p, loops=[{a}, {b}, {tile}], maps=[[d0, d1, d2, d3]], body=mul(x0, 2.0))
return y
"""


def test_what_is_packed_by_native_tiles_has_no_padding_and_a_cpu_s_tiles_do(tpu: Target) -> None:
    times = {}
    for rows, lanes in ((8, 128), (16, 16)):
        text = PACKED.format(
            tiles=f"[{rows}, {lanes}]", a=256 // rows, b=256 // lanes, tile=f"{rows}, {lanes}"
        )
        schedule = schedule_of(parse_program(text), tpu)
        times[lanes] = schedule.time_ps
        assert schedule.peak_bytes == 262_144 + 262_144 * 128 // lanes
    assert times[16] > times[128]


def test_a_view_has_the_bytes_of_its_shortest_shape(tpu: Target) -> None:
    text = (
        "input x: f32[4, 128, 16]\nr = reshape(x, shape=[4, 2048])\n"
        "y = generic(r, loops=[4, 2048], maps=[[d0, d1]], body=mul(x0, 2.0))\nreturn y\n"
    )
    schedule = schedule_of(parse_program(text), tpu)
    assert {b.nbytes for b in schedule.buffers} == {4 * 2048 * 4}


def test_padded_schedules_run(tpu: Target) -> None:
    run = run_of(matmul(100, 60, 36), replace(tpu, executor="arena"))
    assert run.verify(samples=1).ok


@pytest.mark.parametrize(
    "name", one_in(3, ("tpu-v6e", "tpu-v5p", "tpu-v5e", "gfx1100", "gfx90a", "sm_80"))
)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_new_targets_take_products_of_every_type(name: str, dtype: str) -> None:
    on = load_target(name)
    schedule = schedule_of(matmul(300, 200, 100, dtype), on)
    assert not faults(schedule, on)
    least = 2 * math.prod((300, 200, 100)) * 1e12 / max(r for _, r in on.rates)
    assert schedule.time_ps > on.launch_ps + least


def test_native_tiles_of_all_types_are_as_large(tpu: Target) -> None:
    tiles = dict(tpu.native_tiles)
    assert tiles == {"f32": (8, 128), "bf16": (16, 128), "i8": (32, 128)}
    assert tpu.to_text().count("  native tile") == 3
