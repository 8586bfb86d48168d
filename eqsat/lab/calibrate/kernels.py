"""Calibration of generated kernels on one core of this machine: the constants of their plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat import host
from eqsat.api import Run, optimize
from eqsat.execute.kernels.scale import here, started
from eqsat.lab.bench import operand_arrays, repeated
from eqsat.lab.calibrate.fit import Fit, Observed, Quality, fit
from eqsat.lab.calibrate.kernelprograms import ProbedProgram, probed_programs
from eqsat.lab.calibrate.probes import (
    Call,
    CoreTimer,
    Probe,
    Progress,
    Sample,
    Timer,
    check_clock,
    part,
    timed_rounds,
)
from eqsat.lang.owntarget import (
    constant_lines,
    folded_lines,
    measured_on,
    memory_lines,
    shipped,
    versions,
)
from eqsat.lang.targets import load_target, read_target
from eqsat.model.diag import fail
from eqsat.model.rules import RuleSet
from eqsat.model.target import Memory, Target
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.price import first_fetches, rates

ROUNDS, QUICK_ROUNDS = 15, 5
NO_RULES = RuleSet("none", "", ())
OVER = 3  # times what a call takes without any run
LEAST_SAMPLES = 40  # a fit of fewer dispatches says little


@dataclass(frozen=True)
class Priced:
    """A dispatch on the clock beside what its target says of it; why: it is no kernel."""

    name: str
    group: str
    predicted_ps: float
    time_ps: float
    why: str = ""


@dataclass(frozen=True)
class KernelCalibration:
    """The fitted constants of a target, with all that they come from.

    base: the target that is extended. others: dispatches that XLA runs, loops among them, with what
    the base says of them.
    """

    base: Target
    samples: dict[str, Sample]  # seconds of a run of each dispatch
    observed: tuple[Observed, ...]
    others: tuple[Priced, ...]
    fit: Fit
    memory: tuple[Memory, ...]
    rounds: int
    processor: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """Every dispatch measured and predicted without its shape, the constants, their errors."""
        head = f"{self.processor}, one core, medians of {self.rounds} rounds"
        lines = [head, "", f"  {'dispatch':34} {'measured us':>12} {'predicted us':>13}"]
        for o, ps in zip(self.observed, self.fit.unseen_ps, strict=True):
            lines.append(f"  {o.name:34} {o.time_ps / 1e6:12.2f} {ps / 1e6:13.2f}")
        for p in self.others:
            lines.append(f"  {p.name:34} {p.time_ps / 1e6:12.2f} {p.predicted_ps / 1e6:13.2f}")
            lines.append(f"    no kernel: {p.why}")
        return [*lines, "", *self._memory(), *self._kernels()]

    def to_json(self) -> dict[str, Any]:
        """Every dispatch with its measured and predicted times, the constants and their errors."""
        listed = zip(self.observed, self.fit.predicted_ps, self.fit.unseen_ps, strict=True)
        return {
            "format": 1,
            "processor": self.processor,
            "versions": self.versions,
            "rounds": self.rounds,
            "dispatches": [
                {
                    "name": o.name,
                    "group": o.group,
                    "measured_us": round(o.time_ps / 1e6, 3),
                    "predicted_us": round(all_ps / 1e6, 3),
                    "predicted_unseen_us": round(unseen_ps / 1e6, 3),
                    "low_us": round(self.samples[o.name].low * 1e6, 3),
                    "high_us": round(self.samples[o.name].high * 1e6, 3),
                }
                for o, all_ps, unseen_ps in listed
            ],
            "no_kernels": [
                {
                    "name": p.name,
                    "measured_us": round(p.time_ps / 1e6, 3),
                    "predicted_us": round(p.predicted_ps / 1e6, 3),
                    "why": p.why,
                }
                for p in self.others
            ],
            "constants": vars(self.fit.rates.constants),
            "bandwidths": {m.name: m.bandwidth for m in self.fit.rates.memory},
            "launch_ps": self.fit.rates.launch_ps,
            "fit": self.fit.seen.to_json(),
            "leave_one_shape_out": self.fit.unseen.to_json(),
        }

    def to_yaml(self, name: str = "host") -> str:
        """The target; `lang.targets.read_target` reads it."""
        return "\n".join([*self._head(name), *self._memory(), *self._kernels()]) + "\n"

    def to_target(self) -> Target:
        """The target as the search sees it."""
        return read_target(self.to_yaml(), "host.yaml")

    def _head(self, name: str) -> list[str]:
        doc = "This machine as it was measured, one core, kernels generated from the schedule."
        versions = ", ".join(f"{k} {v}" for k, v in self.versions.items())
        source = (
            f"Measured by eqsat calibrate on one core of {self.processor}; {versions}; medians of "
            f"{self.rounds} interleaved rounds of process time. What is no kernel is priced as on "
            f"{self.base.name}."
        )
        head = [f"target: {name}", f"extends: {self.base.name}", f"doc: {doc}"]
        return [*head, "source: >-", *folded_lines(source), *measured_on(self.versions)]

    def _memory(self) -> list[str]:
        return memory_lines(self.fit.rates.memory, self.fit.rates.launch_ps)

    def _kernels(self) -> list[str]:
        groups = len({o.group for o in self.observed})
        constants = (
            f"Fitted by eqsat calibrate to {len(self.observed)} dispatches of {groups} shapes. "
            f"{quality_text(self.fit.unseen)}"
        )
        assert self.base.kernels is not None, "it is calibrated"
        xla = started(self.base.kernels, self.base, self.fit.rates.launch_ps).xla_op_ps
        return constant_lines(self.fit.rates.constants, xla, constants)


def quality_text(q: Quality) -> str:
    """The quality of a fit, of shapes it did not see."""
    ordered = f"{100 * q.ordered / q.pairs:.0f} %" if q.pairs else "none"
    return (
        f"Of shapes left out of the fit: median error {100 * q.median_error:.1f} %, nine of ten "
        f"within {100 * q.error_90:.0f} %, Kendall's tau {q.kendall_tau:.2f}, {ordered} of the "
        f"pairs of one shape ordered right."
    )


def base_target() -> Target | None:
    """The shipped target with kernels that this machine's CPU names, if there is one."""
    target = load_target(shipped()[0])
    return target if target.is_planned else None


def calibrate_kernels(
    base: Target,
    *,
    quick: bool = False,
    timer: Timer | None = None,
    progress: Progress = lambda *_: None,
    programs: Sequence[ProbedProgram] | None = None,
) -> KernelCalibration:
    """Fit the constants of a target's kernels to dispatches measured here on one core.

    base: a target with kernels, whose memory is replaced by this machine's. JAX uses one thread
    only if it was not initialised before. timer: gives the seconds of a run of a probe. EqsatError:
    E420 if the clock is too coarse, E425 if too few dispatches run as kernels here.
    """
    from eqsat.lab.calibrate.probes import use_one_core

    if timer is None:
        check_clock()
        use_one_core()
        timer = RunTimer()
    start = here(base)
    dispatches = _dispatches(programs or probed_programs(), start, part(progress, 0.0, 0.4))
    planned = [m.unmeasured for m in dispatches if m.unmeasured is not None]
    if programs is None and len(planned) < LEAST_SAMPLES:
        why = next((m.priced.why for m in dispatches if m.unmeasured is None), "")
        message = f"only {len(planned)} of {len(dispatches)} dispatches run as kernels here"
        raise fail("E425", f"{message}: {why}", help="`--executor xla` measures XLA's own ops")
    rounds = QUICK_ROUNDS if quick else ROUNDS
    probes = [m.probe for m in dispatches]
    samples = timed_rounds(probes, rounds, timer, part(progress, 0.4, 0.8))
    observed = [replace(o, time_ps=samples[o.name].median * 1e12) for o in planned]
    others = [m.timed(samples) for m in dispatches if m.unmeasured is None]
    show = part(progress, 0.8, 1.0)
    fitted = fit(observed, rates(start), lambda share: show("fitting", share))
    return KernelCalibration(
        start,
        samples,
        tuple(observed),
        tuple(others),
        fitted,
        start.memory,
        rounds,
        host.processor(),
        versions(),
    )


def observe(programs: Sequence[ProbedProgram], target: Target, rounds: int) -> tuple[Priced, ...]:
    """The dispatches of programs timed here on one core, beside what the target says of them.

    Medians of interleaved rounds of process time; nothing is fitted.
    """
    dispatches = _dispatches(programs, target, lambda *_: None)
    samples = timed_rounds([m.probe for m in dispatches], rounds, RunTimer(), lambda *_: None)
    return tuple(m.timed(samples) for m in dispatches)


@dataclass
class RunTimer(CoreTimer):
    """Seconds of one run of a probe that is `repeated`: a call of it is as many runs as asked.

    What a call takes without any run, its own copies of operands among it, is taken off; runs take
    longer than that, since it varies.
    """

    fewest: int = 3

    def took(self, call: Call, count: int) -> float:
        return self._seconds(call, count) - self._seconds(call, 0)

    def enough(self, call: Call) -> float:
        return max(self._least, OVER * min(self._seconds(call, 0) for _ in range(3)))

    def _seconds(self, call: Call, count: int) -> float:
        begin = self.clock()
        call(count)
        return self.clock() - begin


# ---- what is measured ------------------------------------------------------------------------
@dataclass(frozen=True)
class _Made:
    """A dispatch whose time is not known yet. unmeasured: what a fit needs of it, of a kernel."""

    probe: Probe
    priced: Priced
    unmeasured: Observed | None

    def timed(self, samples: Mapping[str, Sample]) -> Priced:
        return replace(self.priced, time_ps=samples[self.probe.name].median * 1e12)


def _dispatches(
    programs: Sequence[ProbedProgram], target: Target, progress: Progress
) -> list[_Made]:
    """The dispatches of all programs, as they stand."""
    dispatches: list[_Made] = []
    for i, source in enumerate(programs):
        progress(f"planning {source.name}", i / len(programs))
        run = optimize(source.make(), target=target, rules=NO_RULES, goals=("dispatches", "time"))
        dispatches += _made(source, run)
    return dispatches


def _made(source: ProbedProgram, run: Run) -> Iterator[_Made]:
    assert run.schedule is not None, "a program as it stands is admissible"
    refused = dict(run.execution.declined)
    for number, d in enumerate(run.schedule.dispatches):
        name = f"{source.name} {number}" if len(run.schedule.dispatches) > 1 else source.name
        is_kernel = number not in refused and d.plan is not None
        why = "" if is_kernel else refused.get(number) or d.no_plan
        unmeasured = None
        if is_kernel and d.plan is not None:
            first = first_fetches(nest_of_dispatch(run.schedule, d))
            unmeasured = Observed(name, source.group, d.plan.work, first, 0.0)
        probe = Probe(name, 1, _Build(run, number, not is_kernel))
        yield _Made(probe, Priced(name, source.group, d.time_ps, 0.0, why), unmeasured)


@dataclass(frozen=True)
class _Build:
    """Compiles one dispatch of a run on random operands; a call takes the number of runs.

    every: see `repeated`.
    """

    run: Run
    number: int
    every: bool

    def __call__(self) -> Call:
        reads = operand_arrays(self.run)[self.number]
        return repeated(self.run.executable.dispatch(self.number), reads, self.every)
