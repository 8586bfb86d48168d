"""What this machine does with one core and generated kernels: the constants of their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.api import Run, optimize
from eqsat.lab.calibrate.file import folded_lines, measured_on, three_digits, versions
from eqsat.lab.calibrate.fit import FIELDS, Fit, Observed, Quality, fit
from eqsat.lab.calibrate.kernelprograms import ProbedProgram, probed_programs
from eqsat.lab.calibrate.machine import memory_levels
from eqsat.lab.calibrate.probes import Call, Probe
from eqsat.lab.calibrate.timer import LEAST, CoreTimer, Progress, Sample, Timer, part, timed_rounds
from eqsat.lab.dispatches import operand_arrays, repeated
from eqsat.model.diag import fail
from eqsat.model.rules import RuleSet
from eqsat.model.target import Memory, Target
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.price import first_fetches, rates

ROUNDS, QUICK_ROUNDS = 15, 5
NO_RULES = RuleSet("none", "", ())
LEAST_RUNS, MOST_RUNS = 3, 20_000  # of a dispatch in one measurement
LEAST_SAMPLES = 40  # a fit of fewer dispatches says little
KEYS = {"copy_rate": "copy"}  # of `kernels:`, where they are not the constants' names without _ps


@dataclass(frozen=True)
class KernelCalibration:
    """The fitted constants of a target, with all that they come from.

    base: the target that is extended. declined: dispatches that ran as no kernel, with the reason.
    """

    base: Target
    samples: dict[str, Sample]  # seconds of a run of each dispatch
    observed: tuple[Observed, ...]
    fit: Fit
    memory: tuple[Memory, ...]
    rounds: int
    processor: str
    versions: dict[str, str]
    declined: dict[str, str]

    def lines(self) -> list[str]:
        """Every dispatch measured and predicted without its shape, the constants, their errors."""
        head = f"{self.processor}, one core, medians of {self.rounds} rounds"
        found = [head, "", f"  {'dispatch':34} {'measured us':>12} {'predicted us':>13}"]
        for o, ps in zip(self.observed, self.fit.unseen_ps, strict=True):
            found.append(f"  {o.name:34} {o.time_ps / 1e6:12.2f} {ps / 1e6:13.2f}")
        found += [f"  {name:34} no kernel: {why}" for name, why in self.declined.items()]
        return [*found, "", *self._memory(), *self._kernels()]

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
            "declined": self.declined,
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
        from eqsat.lang.targets import read_target

        return read_target(self.to_yaml(), "host.yaml")

    def _head(self, name: str) -> list[str]:
        doc = "This machine as it was measured, one core, kernels generated from the schedule."
        told = ", ".join(f"{k} {v}" for k, v in self.versions.items())
        source = (
            f"Measured by eqsat calibrate on one core of {self.processor}; {told}; medians of "
            f"{self.rounds} interleaved rounds of process time. What is no kernel is priced as on "
            f"{self.base.name}."
        )
        head = [f"target: {name}", f"extends: {self.base.name}", f"doc: {doc}"]
        return [*head, "source: >-", *folded_lines(source), *measured_on(self.versions)]

    def _memory(self) -> list[str]:
        rates = ((m, three_digits(m.bandwidth / 1e9)) for m in self.fit.rates.memory)
        lines = [
            f"  - {{name: {m.name}, size: {m.size_bytes} B, bandwidth: {rate} GB/s}}"
            for m, rate in rates
        ]
        return ["memory:", *lines, f"launch: {self.fit.rates.launch_ps} ps"]

    def _kernels(self) -> list[str]:
        c = self.fit.rates.constants
        lines = ["kernels:"]
        for field in FIELDS:
            key, value = KEYS.get(field, field.removesuffix("_ps")), getattr(c, field)
            scale, unit = (1, "ps") if field.endswith("_ps") else (1e9, "GB/s")
            lines.append(f"  {key}: {three_digits(value / scale)} {unit}")
        lines.append(f"  overlap: {three_digits(c.overlap)}")
        groups = len({o.group for o in self.observed})
        told = (
            f"Fitted by eqsat calibrate to {len(self.observed)} dispatches of {groups} shapes. "
            f"{quality_text(self.fit.unseen)}"
        )
        return [*lines, "  source: >-", *folded_lines(told, "    ")]


def quality_text(q: Quality) -> str:
    """What a fit is worth, of shapes it did not see."""
    ordered = f"{100 * q.ordered / q.pairs:.0f} %" if q.pairs else "none"
    return (
        f"Of shapes left out of the fit: median error {100 * q.median_error:.1f} %, nine of ten "
        f"within {100 * q.error_90:.0f} %, Kendall's tau {q.kendall_tau:.2f}, {ordered} of the "
        f"pairs of one shape ordered right."
    )


def base_target() -> Target | None:
    """The shipped target with kernels that this machine's CPU names, if there is one."""
    from eqsat.lang.owntarget import shipped
    from eqsat.lang.targets import load_target

    found = load_target(shipped()[0])
    return found if found.is_planned else None


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
    from eqsat import host
    from eqsat.lab.calibrate import machine

    if timer is None:
        machine.use_one_core()
        timer = RunTimer()
    start = replace(base, memory=_levels(base))
    made, declined = _dispatches(programs or probed_programs(), start, part(progress, 0.0, 0.4))
    if programs is None and len(made) < LEAST_SAMPLES:
        why = next(iter(declined.values()), "")
        message = f"only {len(made)} of {len(made) + len(declined)} dispatches run as kernels here"
        raise fail("E425", f"{message}: {why}", help="`--executor xla` measures XLA's own ops")
    rounds = QUICK_ROUNDS if quick else ROUNDS
    probes = [m.probe for m in made]
    samples = timed_rounds(probes, rounds, timer, part(progress, 0.4, 0.8))
    observed = tuple(m.observed(samples[m.probe.name].median) for m in made)
    show = part(progress, 0.8, 1.0)
    found = fit(observed, rates(start), lambda share: show("fitting", share))
    return KernelCalibration(
        start,
        samples,
        observed,
        found,
        start.memory,
        rounds,
        host.processor(),
        versions(),
        declined,
    )


def observe(
    programs: Sequence[ProbedProgram], target: Target, rounds: int
) -> tuple[tuple[Observed, ...], dict[str, str]]:
    """The dispatches of programs timed here on one core, and why others run as no kernels.

    Medians of interleaved rounds of process time; nothing is fitted.
    """
    made, declined = _dispatches(programs, target, lambda *_: None)
    samples = timed_rounds([m.probe for m in made], rounds, RunTimer(), lambda *_: None)
    return tuple(m.observed(samples[m.probe.name].median) for m in made), declined


class RunTimer(CoreTimer):
    """Seconds of one run of a probe that is `repeated`: a call of it is as many runs as asked.

    What a call takes without any run, its own copies of operands among it, is taken off.
    """

    def __call__(self, probe: Probe) -> float:
        if probe.name not in self.calls:
            call = probe.build()
            self.calls[probe.name] = call, self._count(call)
        call, count = self.calls[probe.name]
        return (self._seconds(call, count) - self._seconds(call, 0)) / count

    def _count(self, call: Call) -> int:
        """How many runs take long enough to be measured; disturbed tries do not count."""
        call(1)
        count = LEAST_RUNS
        while count < MOST_RUNS:
            took = min(self._seconds(call, count) - self._seconds(call, 0) for _ in range(3))
            if took >= LEAST:
                break
            more = 1.2 * LEAST / max(took, 1e-7)  # a disturbed call tells nothing of a hundred
            count = min(MOST_RUNS, round(count * min(max(more, 2), 8)))
        return count

    def _seconds(self, call: Call, count: int) -> float:
        begin = self.clock()
        call(count)
        return self.clock() - begin


# ---- what is measured ------------------------------------------------------------------------
@dataclass(frozen=True)
class _Made:
    """A dispatch that runs as a kernel; of what is observed its time is not known yet."""

    probe: Probe
    unmeasured: Observed

    def observed(self, seconds: float) -> Observed:
        return replace(self.unmeasured, time_ps=seconds * 1e12)


def _dispatches(
    programs: Sequence[ProbedProgram], target: Target, progress: Progress
) -> tuple[list[_Made], dict[str, str]]:
    """The dispatches of all programs that are kernels, and those that are not with the reason."""
    made: list[_Made] = []
    declined: dict[str, str] = {}
    for i, source in enumerate(programs):
        progress(f"planning {source.name}", i / len(programs))
        run = optimize(source.make(), target=target, rules=NO_RULES, goals=("dispatches", "time"))
        assert run.schedule is not None, "a program as it stands is admissible"
        refused = dict(run.execution.declined)
        for number, d in enumerate(run.schedule.dispatches):
            name = f"{source.name} {number}" if len(run.schedule.dispatches) > 1 else source.name
            if number in refused or d.plan is None:
                declined[name] = refused.get(number, d.no_plan)
                continue
            probe = Probe(name, 1, _Build(run, number))
            first = first_fetches(nest_of_dispatch(run.schedule, d))
            made.append(_Made(probe, Observed(name, source.group, d.plan.work, first, 0.0)))
    return made, declined


@dataclass(frozen=True)
class _Build:
    """Compiles one dispatch of a run on random operands; a call takes the number of runs."""

    run: Run
    number: int

    def __call__(self) -> Call:
        reads = operand_arrays(self.run)[self.number]
        return repeated(self.run.executable.dispatch(self.number), reads)


def _levels(base: Target) -> tuple[Memory, ...]:
    """This machine's memory; bandwidths to begin from are those of the base."""
    known = {m.name: m.bandwidth for m in base.memory}
    slowest = base.memory[-1].bandwidth
    found = memory_levels(first=1)
    return tuple(Memory(v.name, v.size_bytes, known.get(v.name, slowest)) for v in found)
