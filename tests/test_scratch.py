"""Scratch memory of GPUs: what a workgroup keeps, and the quantised convolution it rules out.

What pipelines there are and what they compute is in test_pipelines.py.
"""

from __future__ import annotations

import random
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from contractions import contraction, convolution, until_applies
from seeds import seeds

import eqsat
from eqsat.cli.app import run as command
from eqsat.extract.check import check
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.pipelines import ALONG, APART, NOT_READ, cut, root_bytes
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.pipelines import Pipeline
from eqsat.model.target import DispatchLimits, Fusion, Memory, Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.schedule.legal import faults
from eqsat.schedule.pipelines import packed_workgroup, workgroup

SMALL = Pipeline("small", (4, 3, 2), (4, 2), (3, 2), unaligned="whole")


def toy(limits: DispatchLimits | None = None, *pipelines: Pipeline, **fusion: Any) -> Target:
    memory = (Memory("ram", 1 << 40, 1e9),)
    wide = {"multi_result": True, "siblings": True, "index_relation": "any", "members": 8}
    made = Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (), file="toy.yaml")
    rules = Fusion(**(wide | fusion))
    return replace(made, fusion=rules, limits=limits or DispatchLimits(), pipelines=pipelines)


# ---- what a workgroup keeps ----------------------------------------------------------------------
def touched(g: Generic, operand: int, extents: tuple[int, ...]) -> int:
    """Bytes of the box around the elements that the first workgroup reads, one by one."""
    loops = np.indices(extents).reshape(len(extents), -1)
    count = 4
    for e in g.maps[operand]:
        at = sum((s * loops[d] for d, s in e.terms), np.zeros(loops.shape[1], int))
        count *= int(at.max() - at.min()) + 1
    return count


@pytest.mark.parametrize("seed", seeds(8, 60))
@pytest.mark.parametrize("what", ["contraction", "convolution"])
def test_tiles_hold_what_a_workgroup_touches(seed: int, what: str):
    rng = random.Random(seed)

    def draw():
        g = contraction(rng) if what == "contraction" else convolution(rng)
        return contraction_roles(g), g

    _, g = until_applies(draw)
    found, other = cut(g, SMALL), workgroup(g, SMALL)
    assert found is not None
    assert other is not None
    aligned = not found.whole
    assert other.aligned == aligned
    assert all(s % e == 0 for s, e in zip(g.sizes, found.extents, strict=True))
    for operand in range(2):
        assert other.operand_bytes(operand) == touched(g, operand, found.extents)
    sides = sum(touched(g, i, found.extents) for i in range(2)) if aligned else 0
    assert root_bytes(g, SMALL, NOT_READ) == sides
    result = 4 * int(np.prod(found.extents[: g.rank]))
    assert root_bytes(g, SMALL, ALONG) == sides + (0 if aligned else result)
    kept = replace(SMALL, promote=("result",))
    assert root_bytes(g, kept, ALONG) == result
    assert root_bytes(g, kept, APART) == 4 * int(np.prod(g.result_shape))


def test_the_innermost_loop_of_a_role_is_cut_and_no_other():
    text = (
        "input x: f32[2, 5, 8, 6]\ninput w: f32[6, 9]\nr = generic(x, w, loops=[2, 5, 8, 9, 6], "
        "maps=[[d0, d1, d2, d4], [d4, d3]], body=mul(x0, x1), combine=add, rank=4)\nreturn r\n"
    )
    g = parse_program(text).nodes[2].attr
    assert isinstance(g, Generic)
    found = cut(g, SMALL)
    assert found is not None
    assert found.extents == (1, 1, 4, 9, 3)  # 8 by 4, 6 by 3; 9 by none of 4 and 2
    assert found.whole == (("n", (3,)),)
    whole = cut(g, replace(SMALL, m=(5,)))
    assert whole is not None
    assert whole.extents == (2, 5, 8, 9, 3)
    outer = cut(g, replace(SMALL, m=(5,), cut="any"))
    assert outer is not None
    assert outer.extents == (1, 5, 1, 9, 3)


def test_a_packed_contraction_is_cut_into_its_own_tiles():
    target = override(load_target("gfx942"), ["tiles.matmul=[{mnk: [64, 64, 16], rate: 1.0}]"])
    run = eqsat.optimize(eqsat.read("residual"), target=target, stop_after="egraph")
    assert run.egraph is not None
    packed = [n.attr for n in run.egraph.nodes if isinstance(n.attr, Generic) and n.attr.tile]
    packed = [g for g in packed if contraction_roles(g) is not None]
    assert {g.sizes[-1] for g in packed} > {16}  # blocks of k that are longer than the tile's
    for g in packed:
        made = packed_workgroup(g)
        assert np.prod([*made.taken.values()]) == 64 * 64 * 16
        assert sum(map(made.operand_bytes, range(2))) == 2 * 64 * 16 * 4
        assert root_bytes(g, None, NOT_READ) == 2 * 64 * 16 * 4
        assert root_bytes(g, None, ALONG) == 2 * 64 * 16 * 4


# ---- the quantised convolution: 56 x 56 places ---------------------------------------------------
STORY = "gfx942-unpadded"  # the compiler of IREE issue 18905
BLOCK = "conv_qdq_residual.py:conv_qdq_residual"


@cache
def block(target: str, size: int = 56) -> eqsat.Run:
    if size == 56:
        return eqsat.optimize(eqsat.read(BLOCK), target=target)
    file = Path(__file__).parents[1] / "experiments/programs/conv_qdq_residual.py"
    made = runpy.run_path(str(file))
    shapes = (1, 64, 2 * size, 2 * size), (1, 128, size, size)
    arguments = (jax.ShapeDtypeStruct(s, "float32") for s in shapes)
    return eqsat.optimize(made["conv_qdq_residual"], *arguments, target=target)


def joined(run: eqsat.Run) -> list[tuple[int, ...]]:
    """The loops of the contractions that share a dispatch with another op."""
    assert run.schedule is not None
    nodes = run.schedule.program.nodes
    found = []
    for d in run.schedule.dispatches:
        generics = [a for m in d.members if isinstance(a := nodes[m].attr, Generic)]
        sizes = [g.sizes for g in generics if contraction_roles(g) is not None]
        found += sizes if len(generics) > 1 else []
    return found


def test_the_illegal_group_is_not_in_the_answer_and_the_collapsed_one_is():
    run = block(STORY)
    assert run.schedule is not None
    loops = joined(run)
    assert loops
    assert all(56 not in sizes for sizes in loops)
    assert any(3136 in sizes for sizes in loops)
    assert faults(run.schedule, run.target) == []
    time = run.summary()["goals"]["time_us"]
    assert time["gap"] == 0
    assert time["value"] < run.summary()["baseline"]["time_us"]


def test_without_the_rule_the_convolution_stays_alone():
    run = eqsat.optimize(eqsat.read(BLOCK), target=STORY, without=("collapse-loops",))
    assert run.schedule is not None
    found = joined(run)
    assert [s for s in found if s.count(56) != 2] == []
    assert all("contraction+" not in d.ops for d in run.schedule.dispatches)  # no reader inside


def test_a_search_that_forgets_the_limit_is_found_out(monkeypatch: pytest.MonkeyPatch):
    asked: dict[str, Any] = {"target": STORY, "without": ("collapse-loops",)}
    monkeypatch.setattr(Legality, "crowds", lambda *_: False)
    with pytest.raises(EqsatError, match=r"E902.*needs 802816 bytes") as caught:
        eqsat.optimize(eqsat.read(BLOCK), **asked)
    assert caught.value.exit_code == 4
    monkeypatch.setattr(Legality, "fits", lambda *_: True)  # what the first checker shares
    with pytest.raises(EqsatError, match=r"E905.*needs 802,816 bytes") as caught:
        eqsat.optimize(eqsat.read(BLOCK), **asked)
    assert caught.value.exit_code == 4


def test_explain_names_the_group_its_bytes_and_the_limit(tmp_path: Path):
    run = block(STORY)
    nodes = run.canonical.nodes
    (convolved,) = [
        i for i, n in enumerate(nodes) if isinstance(n.attr, Generic) and n.attr.sizes[-1] == 64
    ]
    (reader,) = [i for i, n in enumerate(nodes) if convolved in n.operands]
    one, two = map(run.canonical.value_name, (convolved, reader))
    texts = [str(run.explain()), str(run.explain(one, price=False))]
    texts.append(run.report(tmp_path / "page.html").read_text(encoding="utf-8"))
    place = load_target(STORY).place("limits.scratch")
    for text in texts:
        assert f"generic {one} and generic {two} by distribute (no tile divides 56x56" in text
        assert "needs 802,816 bytes, the scratch limit is 65,536" in text
        assert place in text
    assert "of n" in texts[1]  # the filters are the first operand
    assert "802,816" not in str(run.explain("skipped", price=False))


def test_the_same_block_computes_the_same_at_another_size():
    run = block(STORY, 24)  # 24 has no tile of 16, 24 * 24 has tiles of 64
    assert run.selection is not None
    assert joined(run)
    assert 64 * 24 * 24 * 4 in {r.bytes for r in run.selection.removed}
    assert run.verify(samples=1).ok


def test_a_size_with_tiles_needs_no_collapse():
    run = block(STORY, 32)
    assert run.selection is not None
    assert not [r for r in run.selection.removed if "of m)" in r.what]


def test_a_schedule_of_another_machine_breaks_the_scratch_limit():
    run = block("avx512-xla")
    assert run.schedule is not None
    assert faults(run.schedule, run.target) == []
    found = faults(run.schedule, load_target(STORY))
    assert any("needs 802,816 bytes, the scratch limit is 65,536" in f for f in found)
    assert run.egraph is not None
    assert run.selection is not None
    inside = check(run.egraph, load_target(STORY), run.selection)
    assert any("needs 802816 bytes, the scratch limit is 65536" in f for f in inside)
    assert faults(run.schedule, load_target("gfx942")) == []  # which pads


def test_check_says_what_a_saved_run_breaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = str(block("avx512-xla").save(tmp_path / "block.eqsat"))
    assert command(["check", folder]) == 0
    assert command(["check", folder, "--target", STORY]) == 1
    out = capsys.readouterr().out
    assert "error[E417]" in out
    assert "802,816 bytes" in out


def test_two_contractions_share_a_dispatch_if_both_fit_together():
    text = (  # what they read together is no larger than the rest, or they were one contraction
        "input x: f32[4, 8]\ninput v: f32[8, 4]\ninput w: f32[8, 4]\n"
        "a = matmul(x, v)\nb = matmul(x, w)\nreturn a, b\n"
    )
    tiles = Pipeline("tiles", (4,), (4,), (4,))  # 2 * 4 * 4 * 4 bytes of operands each
    wide = toy(DispatchLimits(scratch_bytes=256), tiles, roots=2)
    run = eqsat.optimize(parse_program(text), target=wide)
    assert run.summary()["goals"]["dispatches"]["value"] == 1
    narrow = replace(wide, limits=DispatchLimits(scratch_bytes=255))
    apart = eqsat.optimize(parse_program(text), target=narrow)
    assert apart.summary()["goals"]["dispatches"]["value"] == 2
    assert apart.selection is not None
    assert [(r.bytes, r.limit_name) for r in apart.selection.removed] == [(256, "scratch")]
    assert run.schedule is not None
    assert run.egraph is not None
    assert run.selection is not None
    assert any("256 bytes" in f for f in faults(run.schedule, narrow))
    assert any("needs 256 bytes" in f for f in check(run.egraph, narrow, run.selection))


EIGHT = Pipeline("eight", (8,), (8,), (8,), unaligned="whole")


def test_an_epilogue_with_several_ops_is_refused_by_its_first_reader():
    text = (
        "input x: f32[10, 8]\ninput w: f32[8, 16]\n"
        "h = matmul(x, w)\nr = exp(h)\ns = tanh(h)\nt = sub(r, s)\nreturn t, r\n"
    )
    target = toy(DispatchLimits(scratch_bytes=4 * 10 * 8 - 1), EIGHT, roots=1)
    run = eqsat.optimize(parse_program(text), target=target)
    assert run.schedule is not None
    assert run.schedule.dispatches[0].ops == "contraction"
    loose = replace(target, limits=DispatchLimits(scratch_bytes=4 * 10 * 8))
    run = eqsat.optimize(parse_program(text), target=loose)
    assert run.schedule is not None
    assert run.schedule.dispatches[0].ops.startswith("contraction+elementwise")


# ---- shipped targets -----------------------------------------------------------------------------
def test_shipped_targets_say_what_their_machines_have():
    scratch = {"gfx942": 65_536, "sm_90": 227 * 1024, "spirv-like": 32_768, "vmvx-like": None}
    for name, nbytes in scratch.items():
        target = load_target(name)
        assert target.limits.scratch_bytes == nbytes
        assert bool(target.pipelines) == (nbytes is not None)
        assert "stimate" in target.source or "assumed" in target.source  # nothing was measured here
    assert load_target("spirv-like").vocabulary("matmul") == ()
    assert [t.extents for t in load_target("vmvx-like").vocabulary("matmul")] == [
        (8, 8, 4), (4, 8, 4), (2, 8, 4), (1, 8, 4),
    ]  # fmt: skip
