"""Calibration: figures from times that are given, the file, the command, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import eqsat
from eqsat import host
from eqsat.cli import run
from eqsat.execute.loops import generic
from eqsat.host import MemoryLevel
from eqsat.lab.calibrate import Calibration, calibrate, shapes
from eqsat.lab.calibrate.check import Agreement, TimedVariant, agreement, spearman
from eqsat.lab.calibrate.kernels import RunTimer
from eqsat.lab.calibrate.probes import (
    BODY_OPERATIONS,
    STEPS,
    CoreTimer,
    Probe,
    activation,
    check_clock,
    probes,
    timed_rounds,
)
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.ops.contractions.convolution import orders
from eqsat.ops.meaning.scalar import cost
from eqsat.ops.targets.kernels import kernel_kind

LEVELS = (MemoryLevel("l2", 1 << 20, 1 << 19), MemoryLevel("dram", 1 << 34, 1 << 22))
CALL = 1e-6  # seconds that a call from Python costs on the invented machine


def invented(probe: Probe) -> float:
    """A machine of 100 GFLOP/s, 10 GB/s; half as fast for nchw, a tenth for transposes.

    A product of what is computed for it takes as much longer as a pass does.
    """
    if probe.name == "call":
        return CALL
    if probe.name == "product of pass":
        apart = next(p for p in probes(LEVELS) if p.name == "pass")
        return invented(apart) + probe.work / 1e11
    if probe.name == "launch":
        return CALL + probe.work * 2e-6
    rate = 1e10 if probe.name.startswith(("copy", "relayout", "pass")) else 1e11
    share = {"nchw": 0.5, "relayout": 0.1}.get(probe.name.split()[0], 1.0)
    return CALL + probe.work / (rate * share)


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibrate(quick=True, timer=invented, levels=LEVELS)


def test_the_target_says_what_was_measured(found: Calibration):
    target = found.to_target()
    assert target.rate("f32") == pytest.approx(1e11)
    assert [m.bandwidth for m in target.memory] == pytest.approx([1e10, 1e10])
    assert target.relayout == pytest.approx(1e9)
    assert target.launch_ps == 2_000_000
    kernels = target.untiled_kernels("conv2d")
    assert {k.rate for k in kernels if k.image == "nhwc"} == {1.0}
    assert {k.rate for k in kernels if k.image == "nchw"} == {0.5}
    assert all(k.filters for k in kernels)
    assert target.executor == "xla"
    assert not target.vocabulary("matmul")
    target.verify()


def test_the_file_is_the_same_for_the_same_times(found: Calibration):
    again = calibrate(quick=True, timer=invented, levels=LEVELS)
    assert again.to_yaml() == found.to_yaml()
    assert again.to_json() == found.to_json()
    assert "Measured by eqsat calibrate" in found.to_target().source


def test_products_are_calls_where_they_wait_for_what_is_computed_for_them(found: Calibration):
    assert found.to_target().fusion.calls == ("contraction",)
    samples = found.samples | {"product of pass": found.samples["product"]}
    assert replace(found, samples=samples).to_target().fusion.calls == ()


def test_every_regime_has_a_row_and_every_row_a_probe(found: Calibration):
    target = found.to_target()
    # one row more for other element types
    assert len(target.untiled_kernels("matmul")) == len(shapes.MATMULS) + 1
    assert len(target.untiled_kernels("conv2d")) == 2 * len(shapes.CONVOLUTIONS)
    assert set(found.samples) == {p.name for p in found.probes}
    assert target.tiles


def test_shapes_are_what_their_rows_say():
    """Every shape of a regime satisfies its conditions, and none of those before it."""
    from eqsat.lang.tileformat import KERNEL_ROLES, condition
    from eqsat.ops.targets.kernels import facts
    from eqsat.ops.targets.tiles import is_met

    for kind, regimes in (("conv2d", shapes.CONVOLUTIONS), ("matmul", shapes.MATMULS)):
        roles = (*KERNEL_ROLES, "m", "n")
        whens = [[condition(c, roles) for c in r.when] for r in regimes]
        for i, regime in enumerate(regimes):
            for g in regime.shapes:
                assert kernel_kind(g) == kind
                known = facts(g, kind)
                first = next(j for j, w in enumerate(whens) if all(is_met(c, known) for c in w))
                assert first == i, (kind, regime.when, known)


def test_the_body_has_the_operations_that_it_is_said_to_have():
    x = jax.ShapeDtypeStruct((8,), "float32")
    program = eqsat.optimize(activation, x, target="reference", stop_after="program").program
    bodies = [n.attr.yields[0].body for n in program.nodes if isinstance(n.attr, Generic)]
    assert sum(map(cost, bodies)) == BODY_OPERATIONS


@pytest.mark.parametrize("order", shapes.ORDERS)
def test_ordered_shapes_lie_in_that_order(order: tuple[str, str]):
    for regime in shapes.CONVOLUTIONS:
        for g in regime.shapes:
            lies = orders(shapes.in_dim_order(g, *order))
            assert lies is not None
            # groups and their channels are two dims of one letter
            assert "".join(dict.fromkeys(lies.image)) == order[0]
            assert "".join(dict.fromkeys(lies.result)) == order[0]


def test_a_small_probe_runs_the_executor():
    g = shapes.in_dim_order(shapes.nchw_conv(2, 3, 4, 3, 2), "nhwc", "hwio")
    rng = np.random.default_rng(0)
    image, filters = (rng.integers(-4, 4, s).astype("f4") for s in g.shapes)
    (got,) = generic(g, [image, filters])
    wanted = np.zeros(g.result_shape)
    for y, x in np.ndindex(4, 4):
        window = image[0, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3]
        wanted[0, y, x] = np.einsum("hwc,hwck->k", window, filters)
    assert np.array_equal(np.asarray(got), wanted)


# ---- time ------------------------------------------------------------------------------------
def test_rounds_are_interleaved_and_medians_kept():
    order: list[str] = []
    times = {"a": iter([1.0, 9.0, 2.0]), "b": iter([4.0, 5.0, 3.0])}

    def timer(probe: Probe) -> float:
        order.append(probe.name)
        return next(times[probe.name])

    made = [Probe(n, 1, lambda: lambda: None) for n in "ab"]
    found = timed_rounds(made, 3, timer)
    assert order == ["a", "b"] * 3
    assert (found["a"].median, found["a"].low, found["a"].high) == (2.0, 1.0, 9.0)
    assert found["b"].median == 4.0


def test_short_calls_are_repeated_until_they_can_be_measured():
    now = [0.0]
    calls = [0]

    def call() -> None:
        calls[0] += 1
        now[0] += 1e-4

    timer = CoreTimer(clock=lambda: now[0])
    probe = Probe("p", 1, lambda: call)
    assert timer(probe) == pytest.approx(1e-4)
    first, calls[0] = calls[0], 0
    assert timer(probe) == pytest.approx(1e-4)
    assert 2e-3 <= (calls[0] - 1) * 1e-4 < first * 1e-4, "compiled and counted once"


def test_calls_are_repeated_for_more_than_a_step_of_a_coarse_clock():
    now, step = [0.0], 1e-3

    def call() -> None:
        now[0] += 1e-4

    timer = CoreTimer(clock=lambda: now[0] // step * step)
    timer.__dict__["_least"] = STEPS * step  # as `step_of` finds it of a clock that moves by itself
    assert timer(Probe("p", 1, lambda: call)) == pytest.approx(1e-4, rel=0.05)


def test_a_measurement_that_shows_no_time_is_made_again_with_more_calls():
    now, steps = [0.0], iter([-1e-3, 0.0, 8e-3])

    def call() -> None:
        calls.append(1)
        if len(calls) in (1 + 2, 2 + 2 + 4, 3 + 2 + 4 + 8):  # the last of each measurement
            now[0] += next(steps)

    calls: list[int] = []
    timer = CoreTimer(clock=lambda: now[0], calls={"p": (call, 2)})
    assert timer(Probe("p", 1, lambda: call)) == pytest.approx(1e-3)


def test_a_clock_that_never_moves_is_refused_before_anything_runs():
    with pytest.raises(EqsatError, match=r"E420.*stands still"):
        check_clock(lambda: 1.0)
    check_clock()


@pytest.mark.parametrize("timer", [CoreTimer, RunTimer])
def test_a_dead_clock_is_refused_in_a_sentence(timer: type[CoreTimer]):
    probe = Probe("p", 1, lambda: lambda *_: None)
    with pytest.raises(EqsatError, match=r"E420.*the process clock stood still while `p` ran"):
        timed_rounds([probe], 2, timer(clock=lambda: 1.0))


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(EqsatError, match="E420"):
        timed_rounds([Probe("p", 1, lambda: lambda: None)], 2, lambda _: 0.0)


# ---- the machine -----------------------------------------------------------------------------
def test_caches_as_the_system_tells_them(tmp_path: Path):
    rows = [("1", "Data", "32K"), ("2", "Unified", "512K"), ("3", "Unified", "16M")]
    for i, row in enumerate(rows):
        (tmp_path / f"index{i}").mkdir()
        for key, value in zip(("level", "type", "size"), row, strict=True):
            (tmp_path / f"index{i}" / key).write_text(value + "\n")
    found = host.memory_levels(tmp_path)
    assert [v.name for v in found] == ["l2", "l3", "dram"]
    assert [v.size_bytes for v in found[:2]] == [512 << 10, 16 << 20]
    assert found[2].probed_bytes == 64 << 20


def test_usual_caches_where_the_system_does_not_tell(tmp_path: Path):
    (tmp_path / "index0").mkdir()
    (tmp_path / "index0" / "size").write_text("odd")
    assert [v.name for v in host.memory_levels(tmp_path)] == ["l2", "l3", "dram"]
    assert host.processor(tmp_path / "none")


# ---- the command -----------------------------------------------------------------------------
@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("eqsat.lab.calibrate.host.CoreTimer", lambda: invented)
    monkeypatch.setattr("eqsat.lab.calibrate.host.use_one_core", lambda: None)


def test_the_command_writes_a_target(
    fast: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "mine.yaml"
    assert (
        run(
            ["calibrate", "--executor", "xla", "-o", str(out), "--quick", "--output-format", "json"]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["target"] == "mine"
    assert printed["check"] == []
    assert load_target(out).name == "mine"
    assert run(["calibrate", "--executor", "xla", "-o", str(out), "--quick"]) == 0, (
        "its own file is replaced"
    )
    assert "relayout" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_somebody_elses_file_is_left_alone(
    fast: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "mine.yaml"
    out.write_text("target: mine\n")
    assert run(["calibrate", "--executor", "xla", "-o", str(out)]) == 2
    assert "E421" in capsys.readouterr().err
    assert out.read_text() == "target: mine\n"


@pytest.mark.parametrize("name", ["host.txt", "auto.yaml", "7.yaml", "a b.yaml", "x'{}.yaml", ""])
def test_a_name_that_is_no_targets_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["calibrate", "-o", f"{tmp_path}/{name}"]) == 2
    assert "E422" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Interrupted:
        def __call__(self, probe: Probe) -> float:
            raise KeyboardInterrupt

    monkeypatch.setattr("eqsat.lab.calibrate.host.CoreTimer", Interrupted)
    assert run(["calibrate", "--executor", "xla", "-o", str(tmp_path / "host.yaml")]) == 130
    assert not list(tmp_path.iterdir())


# ---- the model against the clock -------------------------------------------------------------
@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        ([1, 1, 1], [1, 2, 3], 1.0),  # nothing to rank
        ([1, 1, 2], [1, 2, 3], 0.866),
    ],
)
def test_rank_correlation(a: list[float], b: list[float], value: float):
    assert spearman(a, b) == pytest.approx(value, abs=1e-3)


def test_regret_is_what_following_the_model_costs():
    variants = (
        TimedVariant("a", 1.0, 30.0),
        TimedVariant("b", 2.0, 20.0),
        TimedVariant("c", 3.0, 40.0),
    )
    found = Agreement("p", variants)
    assert found.regret == pytest.approx(0.5)
    assert found.to_json()["rank_correlation"] == pytest.approx(0.5)


@pytest.mark.slow  # searches a deep program, 7 s
def test_variants_are_priced_and_timed(found: Calibration):
    names: list[str] = []

    def timer(probe: Probe) -> float:
        names.append(probe.name)
        probe.build()()  # the variant runs
        return 1e-3 * (1 + len(set(names)))

    (got,) = agreement(found.to_target(), 1, timer=timer, programs=["deep"], drawn=0)
    assert {v.name for v in got.variants} >= {"chosen", "as read", "packed"}
    by_name = {v.name: v for v in got.variants}
    # half as fast in the order it was read in: the model knows
    assert by_name["chosen"].predicted_us < by_name["as read"].predicted_us
    assert by_name["chosen"].measured_us == pytest.approx(2000)
    assert -1 <= got.rank_correlation <= 1
    assert got.regret >= 0


def test_probes_have_distinct_names():
    names = [p.name for p in probes(LEVELS)]
    assert len(names) == len(set(names))
    assert eqsat.target("reference").relayout is None
