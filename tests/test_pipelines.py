"""Pipelines of a GPU: which take a contraction, what they compute of it, and which is chosen."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from contractions import contraction, convolution, until_applies
from seeds import seeds

import eqsat
from eqsat.extract.candidates.space import Space
from eqsat.extract.check import check
from eqsat.extract.dispatch.pipelines import NOT_READ, cut, root_bytes
from eqsat.extract.dispatch.prices import Costs
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target, read_target
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.generic import Generic
from eqsat.model.pipelines import CUTS, UNALIGNED, Intrinsic, Pipeline
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.saturate import saturate
from eqsat.schedule.legal import faults
from eqsat.schedule.pipelines import workgroup

SHIPPED = ("gfx942", "sm_90", "spirv-like")


def matmul(m: int, n: int, k: int, dtype: str = "f32") -> Program:
    return parse_program(
        f"input x: {dtype}[{m}, {k}]\ninput w: {dtype}[{k}, {n}]\ny = matmul(x, w)\nreturn y\n"
    )


def generic(program: Program) -> Generic:
    attrs = [n.attr for n in program.nodes if isinstance(n.attr, Generic)]
    return next(g for g in attrs if contraction_roles(g))


# ---- what a pipeline computes: the search and the checker, written apart ----------------------
def drawn(seed: int) -> tuple[Generic, Pipeline]:
    rng = random.Random(seed)

    def draw():
        g = contraction(rng) if seed % 2 else convolution(rng)
        return contraction_roles(g), g

    lists = [tuple(rng.sample((8, 6, 5, 4, 3, 2, 1), rng.choice((1, 2, 3)))) for _ in "mnk"]
    m, n, k = lists
    how = rng.choice(CUTS), rng.random() < 0.4, rng.choice(UNALIGNED)
    sizes = [rng.choice(((1, 1, 1), (2, 1, 2), (1, 3, 1), (4, 4, 2))) for _ in range(seed % 3)]
    units = tuple(Intrinsic(s, ("f32",)) for s in sizes)
    scratch = {"depth": rng.choice((None, 16)), "row_pad": rng.choice((0, 8))}
    return until_applies(draw)[1], Pipeline("p", m, n, k, *how, intrinsics=units, **scratch)


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_search_and_checker_cut_alike(seed: int):
    g, p = drawn(seed)
    found, other = cut(g, p), workgroup(g, p)
    assert (found is None) == (other is None)
    if found is None or other is None:
        assert p.unaligned != "whole"
        return
    assert Fraction(found.computed, math.prod(g.sizes)) == other.padded
    assert bool(found.whole) != other.aligned
    assert other.padded == 1 or p.unaligned == "padded"
    sides = sum(other.operand_bytes(i) + other.operand_rows(i) * p.row_pad for i in range(2))
    assert root_bytes(g, p, NOT_READ) == (sides if other.aligned else 0)
    assert math.prod(found.extents[: found.nest.rank]) * math.prod(found.rows) == math.prod(
        other.result_tile
    )


def test_every_kind_of_cut_is_drawn():
    kinds = {(p.unaligned, cut(g, p) is None) for g, p in map(drawn, range(200))}
    assert kinds >= {(u, False) for u in UNALIGNED} | {("refused", True)}
    assert ("whole", True) not in kinds
    collapsed = [c for g, p in map(drawn, range(200)) if (c := cut(g, p)) and c.nest != g]
    assert len(collapsed) > 20


# ---- prices --------------------------------------------------------------------------------------
@cache
def target(name: str, pipelines: tuple[str, ...] = ()) -> Target:
    made = load_target(name)
    kept = tuple(p for p in made.pipelines if not pipelines or p.name in pipelines)
    return replace(made, pipelines=kept)


def compute_ps(program: Program, on: Target) -> tuple[float, int]:
    """Picoseconds of arithmetic of a program's contraction, and of its dispatch."""
    egraph: EGraph = saturate(program, eqsat.rules("policy/keep"), on)
    space = Space(egraph)
    costs = Costs(space, on)
    (node,) = (i for i, n in enumerate(egraph.nodes) if n.attr == generic(program))
    reads = egraph.nodes[node].children
    ps = costs.group_ps((node,), reads, space.outputs[node])
    return costs.compute_ps(node, costs.iterations[node]), ps


def test_what_is_padded_is_computed():
    on = target("gfx942")
    aligned, whole = compute_ps(matmul(1024, 64, 1024), on)
    assert aligned == pytest.approx(2 * 1024 * 64 * 1024 * 1e12 / (163.4e12 * 0.6))
    assert compute_ps(matmul(1024, 57, 1024), on)[0] == aligned  # 57 columns are computed as 64
    assert compute_ps(matmul(1024, 57, 1024), on)[1] <= whole
    assert compute_ps(matmul(1024, 65, 1024), on)[0] == pytest.approx(aligned * 80 / 64)
    (vector, _), (other, _) = (compute_ps(matmul(1024, n, 1024), fallback()) for n in (57, 64))
    assert vector == pytest.approx(2 * 1024 * 57 * 1024 * 1e12 / (163.4e12 * 0.25))
    assert aligned < vector < other


def fallback() -> Target:
    return target("gfx942", ("distribute",))


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_no_size_costs_less_than_a_smaller_one(name: str, dtype: str):
    """Padding is computed: a side costs what the next multiple of the least extent costs."""
    on = target(name)
    for side, role in enumerate("mnk"):
        matrix = [p for p in on.pipelines if p.intrinsics or name == "spirv-like"]
        units = [(p, u) for p in matrix for u in p.units((dtype,), "default")]
        least = min(min(p.extents(role, u)) for p, u in units)
        sizes = [49, 57, 63, 64, 128]
        found = []
        for size in sizes:
            m, n, k = (size if i == side else 512 for i in range(3))
            found.append(compute_ps(matmul(m, n, k, dtype), on))
        assert [ps for _, ps in found] == sorted(ps for _, ps in found)
        per_row = found[-1][0] / 128
        padded = [-(-size // least) * least for size in sizes]
        assert [ps for ps, _ in found] == [pytest.approx(per_row * p) for p in padded]


def test_a_row_alone_pads_the_matrix_unit_or_leaves_it():
    on = target("gfx942")
    one, sixteen = (compute_ps(matmul(m, 512, 512, "f16"), on)[0] for m in (1, 16))
    assert one == pytest.approx(sixteen)
    only = target("gfx942", ("matrix",))
    with pytest.raises(EqsatError, match=r"none of the `pipelines` .*takes .*%y") as caught:
        run_of(matmul(1, 512, 512), only)
    assert caught.value.exit_code == 3


# ---- which one is chosen -------------------------------------------------------------------------
def run_of(program: Program, on: Target | str) -> eqsat.Run:
    return eqsat.optimize(program, target=on, rules="policy/keep")


def chosen(run: eqsat.Run) -> list[str]:
    assert run.schedule is not None
    return [d.pipeline for d in run.schedule.dispatches]


PLACES = (
    "input x: f32[4, 28, 28, 64]\ninput w: f32[64, 64]\n"
    "y = generic(x, w, loops=[4, 28, 28, 64, 64], "
    "maps=[[d0, d1, d2, d4], [d4, d3]], body=mul(x0, x1), combine=add, rank=4)\nreturn y\n"
)
OUTER = PLACES.replace("28, 28", "32, 7")


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("64", (), "matrix"),
        ("57", (), "matrix-padded"),
        ("57", ("matrix", "distribute"), "distribute"),
        (PLACES, (), "collapse-first"),  # 28 has no tile, 4 * 28 * 28 = 49 * 64
        (PLACES, ("matrix", "matrix-padded"), "matrix-padded"),
        (OUTER, (), "matrix"),  # 7 has no tile, the loop outside of it has
    ],
)
def test_the_best_pipeline_is_chosen(text: str, names: tuple[str, ...], wanted: str):
    program = parse_program(text) if "\n" in text else matmul(64, int(text), 64)
    run = run_of(program, target("gfx942", names))
    assert chosen(run) == [wanted]
    assert run.schedule is not None
    assert faults(run.schedule, run.target) == []


def test_only_the_innermost_loop_is_cut_where_the_target_says_so():
    unpadded = load_target("gfx942-unpadded")
    assert [(p.name, p.cut) for p in unpadded.pipelines] == [
        ("matrix", "innermost"), ("distribute", "innermost"),
    ]  # fmt: skip
    assert chosen(run_of(parse_program(OUTER), unpadded)) == ["distribute"]


@pytest.mark.parametrize(
    ("precision", "wanted"), [("default", "tf32"), ("highest", "simt"), ("high", "tf32")]
)
def test_a_precision_has_its_own_unit(precision: str, wanted: str):
    text = (
        "input x: f32[256, 256]\ninput w: f32[256, 256]\n"
        f"y = matmul(x, w, precision={precision})\nreturn y\n"
    )
    assert chosen(run_of(parse_program(text), "sm_90")) == [wanted]


def test_other_sizes_have_pipelines_of_their_own():
    text = (
        "symbol b size=64\ninput x: f32[b, 64]\ninput w: f32[64, 64]\ny = matmul(x, w)\nreturn y\n"
    )
    run = run_of(parse_program(text), "gfx942")
    assert chosen(run) == ["matrix"]
    other = eqsat.bind(run, {"b": 57})
    assert chosen(other) == ["matrix-padded"]
    assert other.schedule is not None
    assert faults(other.schedule, other.target) == []


EPILOGUE = "input x: f32[64, 64]\ninput w: f32[64, 57]\nh = matmul(x, w)\ny = exp(h)\nreturn y\n"


def test_the_scratch_of_a_pipeline_decides_whether_it_may_be_used():
    """Whole: 64 x 57 results of 4 bytes; padded: two tiles of 64 x 64."""
    on = target("gfx942", ("distribute", "matrix-padded"))
    tight = override(on, ["limits.scratch=32 KiB", "pipelines.distribute.rate=1.0"])
    for limit, wanted in (("32 KiB", "distribute"), ("14000 B", "")):
        run = run_of(parse_program(EPILOGUE), override(tight, [f"limits.scratch={limit}"]))
        assert run.selection is not None
        if wanted:
            assert chosen(run) == [wanted]
        else:
            assert len(chosen(run)) == 2
            texts = [r.what for r in run.selection.removed]
            assert any("by distribute (no tile divides 57 of n)" in t for t in texts)
            assert any(t.endswith("by matrix-padded") for t in texts)


# ---- who checks it -------------------------------------------------------------------------------
@cache
def checked() -> eqsat.Run:
    return run_of(parse_program(EPILOGUE), "gfx942")


def test_a_selection_names_a_pipeline_that_takes_it():
    run = checked()
    assert run.egraph is not None
    assert run.selection is not None
    (group,) = run.selection.groups
    assert check(run.egraph, run.target, run.selection) == []
    for name, words in (
        ("", "no pipeline"),
        ("matrix", "no pipeline"),
        ("distribute", " ps, not "),
    ):
        wrong = replace(run.selection, groups=(replace(group, pipeline=name),))
        found = check(run.egraph, run.target, wrong)
        assert any(words in f for f in found), found


def schedules(run: eqsat.Run) -> Iterator[tuple[Schedule, str]]:
    """The schedule with another pipeline or price, and what is wrong with that."""
    assert run.schedule is not None
    (d,) = run.schedule.dispatches
    for changed, words in (
        (replace(d, pipeline=""), "no pipeline of gfx942"),
        (replace(d, pipeline="matrix"), "`matrix` does not take %h"),
        (replace(d, time_ps=d.time_ps // 10**6), "`matrix-padded` needs"),
    ):
        yield replace(run.schedule, dispatches=(changed,)), words


def test_a_schedule_is_checked_from_the_target_alone():
    run = checked()
    assert run.schedule is not None
    assert faults(run.schedule, run.target) == []
    for wrong, words in schedules(run):
        assert any(words in f for f in faults(wrong, run.target)), words
    elsewhere = faults(run.schedule, load_target("sm_90"))  # has pipelines of these names, too
    assert elsewhere == []
    assert faults(replace(run.schedule, target="other"), load_target("spirv-like")) == []


def test_the_pipeline_is_told_and_kept(tmp_path: Any):
    run = checked()
    assert run.schedule is not None
    assert run.selection is not None
    assert " by matrix-padded (" in run.schedule.to_text()
    assert Schedule.from_json(run.schedule.to_json()) == run.schedule
    assert type(run.selection).from_json(run.selection.to_json()) == run.selection
    assert "dispatch 0, y by matrix-padded (" in str(run.explain(price=False))
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"device":"matrix-padded"' in page


# ---- the keys of the file ------------------------------------------------------------------------
HEAD = """target: gpu
doc: d
executor: xla
data_tiling: false
memory: [{name: ram, size: 1 GiB, bandwidth: 2 GB/s}]
"""


def test_pipelines_are_read_extended_and_set():
    text = (
        f"{HEAD}source: s\nrates: {{f32: 1 TFLOP/s}}\npipelines:\n  units: {{m: 64, n: [64, 16], "
        "k: [32], promote: [lhs, result], "
        "intrinsics: [{mnk: [16, 8, 4], types: f32/high}], when: m > 4}\n"
        "  rest: {unaligned: whole, rates: {f32: 2 GFLOP/s}}\n"
    )
    made = read_target(text, "gpu.yaml")
    units, rest = made.pipelines
    assert (units.m, units.n, units.k) == ((64,), (64, 16), (32,))
    assert units.promote == ("lhs", "result")
    assert units.intrinsics == (Intrinsic((16, 8, 4), ("f32/high",)),)
    assert rest == Pipeline("rest", unaligned="whole", rates=(("f32", 2e9),))
    assert Target.from_json(made.to_json()) == made
    changed = override(made, ["pipelines.units.unaligned=padded", "pipelines.units.k=[8, 4]"])
    assert changed.pipelines == (replace(units, unaligned="padded", k=(8, 4)), rest)
    assert override(made, ["pipelines.rest=null"]).pipelines == (units,)
    assert override(made, ["pipelines.rest={m: 2}"]).pipelines == (units, Pipeline("rest", (2,)))
    assert override(made, ["pipelines={}"]).pipelines == ()
    with pytest.raises(EqsatError, match=r"E208.*no pipeline named `units2`"):
        override(made, ["pipelines.units2=null"])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("{p: {m: 0}}", "E206"),
        ("{p: {m: []}}", "E206"),
        ("{P x: {m: 1}}", "E206"),
        ("{p: {promote: [acc]}}", "E0"),
        ("{p: {unaligned: maybe}}", "E0"),
        ("{p: {cut: outermost}}", "E0"),
        ("{p: {rate: 2.0}}", "E201"),
        ("{p: {intrinsics: [{mnk: [1, 1, 1], types: [f33]}]}}", "E202"),
        ("{p: {intrinsics: [{mnk: [1, 1, 1], types: []}]}}", "E0"),
        ("{p: {k: [8], intrinsics: [{mnk: [1, 1, 16], types: f16}]}}", "E206"),
        ("{p: {when: q > 4}}", "E205"),
        ("{p: {rates: {f16: 1 TFLOP/s}}}", "E215"),
    ],
)
def test_pipelines_that_make_no_sense(what: str, code: str):
    with pytest.raises(EqsatError, match=code):
        read_target(f"{HEAD}pipelines: {what}\n", "gpu.yaml")
