"""Prices against the clock: dispatches of every kind that no fit has seen; variants of programs.

    python benchmarks/run.py prices [--calibrated FILE] [--only KIND | PROGRAM]

Kinds are those of `pricekinds.py`. Each kernel is called directly on one pinned core (CPU time, the
least of several tries), and the start of a dispatch, measured once, is added; loops and what XLA
runs are timed inside XLA. Predictions are those of the shipped target for this CPU (or `--target`),
of the same scaled by figures that are measured here, as `auto` does, and of a file that `eqsat
calibrate` wrote. Told are for each, by kind and of all: the median error, nine of ten errors, the
share within 0.8 and 1.25, and Kendall's tau. Half of the programs, by a hash of their names, were
looked at while the model was mended; the figures of the other half are told apart.
PROGRAM: `optimize --measure`, every variant timed beside the chosen one; the regret is how much
slower the one that is predicted best is than the fastest. The input as XLA runs it is no variant.
Not ok if a bound is not kept.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gates import pin, say

if TYPE_CHECKING:
    from pricekinds import Listed

    from eqsat.execute.kernels.scale import Alone, Runs
    from eqsat.model.target import Target

MEDIAN_ERROR, NEAR, TAU, REGRET = 0.10, 0.9, 0.9, 0.03
WANTED = (
    "mlp.py:mlp_784", "mlp.py:mlp_1024", "encoder.py:encoder", "minilm",
    "transposed_pack",
)  # fmt: skip
VARIANTS = 22  # of a program, the input by the target's executor and by XLA among them
TRIES, LEAST_SECONDS, TOGETHER = 9, 1e-3, 16
IN_XLA = ("loops", "by XLA")  # kinds
Targets = Mapping[str, "Target"]


@dataclass(frozen=True)
class Found:
    """A dispatch: what it took, and what each target predicts, in picoseconds."""

    kind: str
    program: str
    name: str
    time_ps: float
    predicted: dict[str, float]

    @property
    def group(self) -> str:
        return self.program

    @property
    def is_seen(self) -> bool:
        """Whether it was looked at while the model was mended."""
        return hashlib.sha1(self.program.encode()).digest()[-1] % 2 == 1

    def to_json(self) -> dict[str, Any]:
        ratios = {k: round(ps / self.time_ps, 3) for k, ps in self.predicted.items()}
        us = round(self.time_ps / 1e6, 3)
        listed = {"kind": self.kind, "name": self.name, "measured_us": us}
        return listed | {"is_seen": self.is_seen, "predicted_over_measured": ratios}


# ---- kernels -------------------------------------------------------------------------------------
def kernels(
    kind: str, listed: Iterable[Listed], targets: Targets, start_ps: float
) -> Iterator[Found]:
    """The dispatches of these programs that are kernels, each once."""
    made: dict[str, tuple[str, Alone]] = {}
    seen: set[str] = set()
    for program in listed:
        for k in dispatches(program, targets["auto"]):
            known = kernel_name(k)
            if known not in seen:
                seen.add(known)
                own = replace(k, name=f"priced{len(made)}")
                made[own.name] = (program.name, own)
    names = list(made)
    for at in range(0, len(names), TOGETHER):
        some = [made[n][1] for n in names[at : at + TOGETHER]]
        for k, seconds in zip(some, timed(some, targets["auto"]), strict=True):
            predicted = {name: predicted_ps(k, t) for name, t in targets.items()}
            program = made[k.name][0]
            name, ps = f"{program}: {k.plan.kind}", seconds * 1e12 + start_ps
            yield Found(kind, program, name, ps, predicted)


def dispatches(program: Listed, target: Target) -> Iterator[Alone]:
    """The kernels of a program's answer."""
    import eqsat
    from eqsat.execute.kernels import runtime
    from eqsat.execute.kernels.scale import Alone
    from eqsat.model.nest import NoNest

    run = eqsat.optimize(program.source, *program.args, target=target, **program.options)
    assert run.schedule is not None, "a program as it stands is admissible"
    for i in range(len(run.schedule.dispatches)):
        try:
            p = runtime.planned(run.schedule, i, target.machine)
        except NoNest as why:
            say(f"  no kernel: {program.name} {i}: {why}")
            continue
        nest = p.nest.renumbered(p.nodes)
        yield Alone(f"{program.name} {i}", run.schedule.program, nest, p.plan)


def kernel_name(k: Alone) -> str:
    """Equal for dispatches that are one kernel, whatever their nodes are called."""
    sides = dict.fromkeys((*k.nest.reads, *k.nest.writes, *(s.node for s in k.nest.stages)))
    return f"{k.nest.renumbered({b: i for i, b in enumerate(sides)})} {k.plan}"


def predicted_ps(k: Alone, target: Target) -> float:
    """Of a dispatch alone, with its start."""
    from eqsat.plan.price import first_fetches, priced_parts, rates

    return float(priced_parts(k.plan.work, rates(target), first_fetches(k.nest)).time_ps)


def timed(some: Sequence[Alone], target: Target) -> Iterator[float]:
    """Seconds of a call of each kernel, one after the other."""
    from eqsat.execute.kernels.scale import addresses, runs

    at = addresses(some, target.machine)
    for k in some:
        yield least(*runs(k, at[k.name], drawn))


def drawn(array: Any) -> None:
    """Random values: floats of unit size, places in a table, bytes; where a change begins, 3."""
    import numpy as np

    rng = np.random.default_rng(0)
    if array.dtype.kind in "iu":
        high = 100 if array.dtype.itemsize == 1 else 1 << 15
        array[...] = rng.integers(0, high, array.shape) if array.ndim else 3
    elif array.dtype.kind == "b":
        array[...] = rng.integers(0, 2, array.shape)
    else:
        array[...] = rng.standard_normal(array.shape)


def least(whole: Runs, none: Runs) -> float:
    """Seconds of a call, without what calling takes."""
    whole(1)
    count = 1
    while took(whole, count) < LEAST_SECONDS:
        count *= 2
    tries = [(took(whole, count), took(none, count)) for _ in range(TRIES)]
    both = min(w for w, _ in tries) - min(n for _, n in tries)
    return max(both, 1e-9) / count


def took(run: Runs, count: int) -> float:
    begin = time.process_time()
    run(count)
    return time.process_time() - begin


# ---- what XLA runs -------------------------------------------------------------------------------
def inside_xla(
    kind: str, listed: Sequence[Listed], targets: Targets, rounds: int
) -> Iterator[Found]:
    """Dispatches that are no single kernel, timed once per target."""
    import eqsat
    from eqsat.lab.calibrate.kernelprograms import ProbedProgram
    from eqsat.lab.calibrate.kernels import observe

    def traced(p: Listed) -> ProbedProgram:
        run = eqsat.optimize(p.source, *p.args, target="reference", stop_after="program")
        return ProbedProgram(p.name, p.name, lambda: run.program)

    probed = [traced(p) for p in listed]
    found = {name: observe(probed, t, rounds) for name, t in targets.items()}
    for together in zip(*found.values(), strict=True):
        shortest = min(p.time_ps for p in together)
        predicted = dict(zip(found, (p.predicted_ps for p in together), strict=True))
        one = together[0]
        yield Found(kind, one.group, one.name, shortest, predicted)


# ---- what it says --------------------------------------------------------------------------------
def told(found: Sequence[Found], targets: Iterable[str]) -> dict[str, Any]:
    """Per target: how far its predictions are from the clock, by kind, of all, of the half that
    nobody looked at."""
    kinds = list(dict.fromkeys(f.kind for f in found))
    sets = {"all": list(found), "held out": [f for f in found if not f.is_seen]}
    sets |= {kind: [f for f in found if f.kind == kind] for kind in kinds}
    return {
        target: {name: errors(some, target) for name, some in sets.items() if some}
        for target in targets
    }


def errors(some: Sequence[Found], target: str) -> dict[str, Any]:
    """How far predictions are from the clock."""
    import statistics

    from eqsat.lab.calibrate.fit import quality

    q = quality(some, [f.predicted[target] for f in some])
    ratio = statistics.median(f.predicted[target] / f.time_ps for f in some)
    figures = {"median_error": q.median_error, "error_90": q.error_90, "near": q.near}
    tau = {"kendall_tau": q.kendall_tau} if len(some) > 1 else {}
    return {"count": len(some), "median_ratio": round(ratio, 3)} | figures | tau


def missed(of_all: Mapping[str, Any]) -> list[str]:
    """Which bounds figures do not keep."""
    kept = {
        "median_error": of_all["median_error"] <= MEDIAN_ERROR,
        "near": of_all["near"] >= NEAR,
        "kendall_tau": of_all.get("kendall_tau", 1.0) >= TAU,
    }
    return [name for name, is_kept in kept.items() if not is_kept]


def program(name: str, target: str, time_limit: float) -> dict[str, Any]:
    """The variants of a program, and the regret of following the model."""
    import eqsat
    from eqsat.model.compiled import INPUT_BY_XLA

    run = eqsat.optimize(name, target=target, measure=VARIANTS, time_limit=time_limit)
    assert run.measured is not None, "it was asked for"
    timed = [p for p in run.measured.programs if p.origin != INPUT_BY_XLA]
    # ratio: the time of the chosen one, which is predicted best, over this one's
    regret = max(p.ratio[0] for p in timed) - 1
    return {
        "variants": len(timed),
        "rounds": run.measured.rounds,
        "regret": round(regret, 4),
        "programs": [vars(p) for p in timed],
        "missed": ["regret"] if regret > REGRET else [],
    }


# ---- targets and options -------------------------------------------------------------------------
def targets_of(name: str, calibrated: Path | None) -> dict[str, Target]:
    """What predicts. Plans are those of this machine's caches, whatever the constants."""
    from eqsat.execute.kernels import jit, scale
    from eqsat.lang.targets import load_target

    shipped = load_target(name)
    assert shipped.kernels is not None, "a target with kernels is asked for"
    here = scale.here(shipped)
    jit.start_runtime()
    found = {"shipped": shipped, "auto": scale.scaled_target(here, scale.measure(here))}
    return found | ({"calibrated": load_target(calibrated)} if calibrated else {})


def options(parser: argparse.ArgumentParser) -> None:
    from pricekinds import KINDS

    from eqsat.lang.owntarget import shipped

    parser.add_argument("--target", default=shipped()[0], help="a shipped one")
    parser.add_argument("--calibrated", type=Path, help="a file that `eqsat calibrate` wrote")
    parser.add_argument("--only", choices=(*KINDS, *WANTED), action="append")
    parser.add_argument("--rounds", type=int, default=9, help="of what XLA runs")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--core", type=int, help="the first that may be used")


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    cores = pin(chosen.core)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    from pricekinds import KINDS

    from eqsat import host

    targets = targets_of(chosen.target, chosen.calibrated)
    wanted = chosen.only or (*KINDS, *WANTED)
    found: list[Found] = []
    for kind in (k for k in wanted if k in KINDS):
        begin = time.process_time()
        listed = list(KINDS[kind]())
        if kind in IN_XLA:
            found += inside_xla(kind, listed, targets, chosen.rounds)
        else:
            found += kernels(kind, listed, targets, targets["auto"].launch_ps)
        say(f"{kind}: {time.process_time() - begin:.1f} CPU s")
    regrets = {k: program(k, chosen.target, chosen.time_limit) for k in wanted if k in WANTED}
    figures = told(found, targets) if found else {}
    own = missed(figures["auto"]["all"]) if found else []
    all_missed = own + [k for k, r in regrets.items() if r["missed"]]
    about = {"processor": host.processor(), "cores": cores, "target": targets["auto"].name}
    listed_json = [f.to_json() for f in found]
    said = about | {"figures": figures, "dispatches": listed_json, "programs": regrets}
    return {"ok": not all_missed} | said | {"missed": all_missed}
