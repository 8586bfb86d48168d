"""Why pipelines do not compute a dispatch, what would change that, and how full the units are."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from seeds import seeds
from test_pipelines import OUTER, drawn, generic, matmul, run_of

import eqsat
from eqsat.cli import run as cli
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.pipelines import GRID, Intrinsic, Padding, Pipeline, PipelineTold, Units
from eqsat.schedule.pipelines import workgroup
from eqsat.schedule.refusals import pipelines_told, why_refused

KEY = re.compile(r"`pipelines\.p\.(\w+): (\w+)`")


def told(run: eqsat.Run) -> PipelineTold:
    assert run.schedule is not None
    (one,) = pipelines_told(run.schedule, run.target)
    return one


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_what_a_refusal_names_is_enough(seed: int):
    g, p = drawn(seed)
    refused = why_refused(g, p)
    assert (refused is None) == (workgroup(g, p) is not None)
    keys = [KEY.findall(c) for c in refused.changes if "`" in c] if refused else []
    for some in keys:
        values = {k: {"true": True}.get(v, v) for k, v in some}
        assert workgroup(g, replace(p, **values)) is not None, (some, p)
    assert not keys or len({len(some) for some in keys}) == 1  # the fewest


@pytest.mark.parametrize("sizes", [(57, 64, 64), (64, 30, 7), (8, 8, 9)])
def test_a_dim_of_the_size_that_is_named_is_taken(sizes: tuple[int, int, int]):
    unit = Intrinsic((16, 16, 4), ("f32",))
    p = Pipeline("p", (64, 32, 16), (32, 16), (8, 4), intrinsics=(unit,))
    refused = why_refused(generic(matmul(*sizes)), p)
    assert refused is not None
    (dims,) = [c for c in refused.changes if c.startswith("dim ")]
    found = re.findall(r"(\w): (\d+) to (\d+)", dims)
    new = dict(zip("mnk", sizes, strict=True)) | {role: int(to) for role, _, to in found}
    assert why_refused(generic(matmul(*new.values())), p) is None
    for role, _, to in found:  # and no smaller one
        assert why_refused(generic(matmul(**(new | {role: int(to) - 1}))), p) is not None


def test_the_innermost_loop_is_why_a_matrix_unit_is_not_used():
    run = run_of(parse_program(OUTER), "gfx942-unpadded")
    (refused,) = told(run).refusals
    assert (refused.pipeline, refused.value) == ("matrix", "m is 7 of 4x32x7")
    assert refused.condition == "the innermost loop of m a multiple of 64 or 32 or 16"
    assert "`pipelines.matrix.cut: any`" in refused.changes
    assert "layout with the loop of 32 innermost of m" in refused.changes
    assert "dim m: 7 to 16" in refused.changes
    other = override(load_target("gfx942-unpadded"), ["pipelines.matrix.cut=any"])
    assert told(run_of(parse_program(OUTER), other)).pipeline == "matrix"


def test_conditions_types_scratch_and_speed_are_told():
    unit = Intrinsic((16, 16, 4), ("f16", "f32/default"))
    g, extents = generic(matmul(64, 32, 30)), ((16,), (16,), (8, 4))
    on = load_target("gfx942-iree")
    large = next(p for p in on.pipelines if p.name == "large")
    refused = why_refused(g, large)
    assert refused is not None
    assert refused.condition == "`when: m >= 1850 and n >= 1850 and k >= 1850`"
    assert refused.changes == ("m: 64 to 1850 and n: 32 to 1850 and k: 30 to 1850",)
    exact = replace(g, precision="highest")
    both = why_refused(exact, Pipeline("p", *extents, intrinsics=(unit,)))
    assert both is not None
    assert both.value == "they are f32 at precision highest and k is 30"
    change = "type: f32 at precision highest to f32/default"
    assert f"{change} and dim k: 30 to 32" in both.changes
    tight = override(load_target("gfx942"), ["limits.scratch=20 KiB"])
    by_name = {r.pipeline: r for r in told(run_of(matmul(64, 57, 64), tight)).refusals}
    assert by_name["matrix-padded"].value == "it keeps 32,768"
    assert by_name["matrix-padded"].changes == ("`limits.scratch: 32768`",)
    slow = {r.pipeline: r for r in told(run_of(matmul(64, 64, 64), "gfx942")).refusals}
    assert slow["collapse-first"].value == "it ties"
    assert slow["distribute"].changes == ("`pipelines.distribute.rate: 0.6`",)


def test_blocks_of_a_grid_are_told():
    p = Pipeline("p", (8,), (64,), (128,), walk=GRID)
    refused = why_refused(generic(matmul(64, 128, 256)), p, Padding(8, 128))
    assert refused is not None
    assert "64 is not divisible by 128" in refused.value


# what iree-compile 3.13.0 makes of this product for gfx942: workgroups of 64 x 128 results and 4
# subgroups, 64 of k a step, 25,600 bytes of LDS of 65,536 and 107 registers of a lane of 512
IREE_LDS_BYTES = 25_600


def test_occupancy_is_that_of_the_compilers_kernel():
    run = eqsat.optimize(matmul(3136, 128, 576, "f16"), target="gfx942-iree", rules="policy/keep")
    (fill,) = told(run).occupancies
    assert (fill.workgroups, fill.tile, fill.depth) == (49, (64, 128), 64)
    assert dict(fill.rooms) == {"scratch": 65_536 // IREE_LDS_BYTES, "registers": 16}
    assert (fill.resident, fill.rounds) == (2, 1)
    text = str(run.explain(price=False))
    assert "dispatch 0 by wide" in text
    assert "304 units are filled 1x, 8% full" in text
    assert run.explain(price=False).to_json()["pipelines"][0]["occupancy"][0]["resident"] == 2


def test_subgroups_and_lanes_are_told_where_the_target_states_them(tmp_path, capsys):
    run = run_of(matmul(512, 512, 512, "f16"), "sm_90")
    assert told(run).pipeline == "wgmma"
    folder = str(run.save(tmp_path / "run"))
    assert cli(["explain", folder, "--output-format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["pipelines"]
    (fill,) = found["occupancy"]
    assert (fill["tile"], fill["workgroups"], fill["subgroups"]) == ([128, 128], 16, 4)
    assert fill["rooms"] == {"scratch": 1, "subgroups": 16, "registers": 4}
    assert cli(["explain", folder]) == 0
    assert "4 of 64 subgroups of a unit, 128 results a lane" in capsys.readouterr().out


def test_a_unit_has_no_room_for_more_registers_than_a_lane_has():
    units = Units(132, 233472, 64, 32, 262144, 1020)
    assert units.rooms(1, 0, 65536) == {"subgroups": 64, "registers": 0}
    assert units.rooms(0, 0, 65536) == {"registers": 4}
    assert units.rooms(1, 0, 0) == {"subgroups": 64}
