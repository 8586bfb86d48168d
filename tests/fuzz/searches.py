"""One random search, judged: right by all checkers, never worse than its input, how much better.

A program, a subset of the rules, a target with settings, a budget and goals are drawn from a seed.
One program in four is made of blocks, which are equal, or equal but for one thing; what its search
finds is compared with a search that copies nothing from one block to another. One in four is a
product and what reads it: parts of it, and all of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from eqsat import api
from eqsat.api import Run, Source
from eqsat.execute.draw import drawn_weights
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.plugins import find_names
from eqsat.saturate import Limits
from fuzz.copying import differences
from fuzz.dispatched import beside_ops
from fuzz.networks import is_hard, network, readers
from fuzz.repeated import repeated

NOTHING_ADMISSIBLE = 3  # exit code of an EqsatError
LIMITS = Limits(nodes=800, rounds=30, seconds=10.0)
# of so many searches one has a program of equal blocks, or of nearly equal ones, and one a product
# that is packed where that pays, read in parts beside what reads all of it
BLOCKS, LAST, READERS = 4, 3, 1
BLOCK_LIMITS = replace(LIMITS, nodes=3_000)
NO_BLOCKS = "none"
SEVERAL = (
    "tiles.matmul=[{mnk: [4, 8, 1], rate: 1.0}, {mnk: [8, 8, 8], rate: 1.0},"
    " {mnk: [16, 16, 1], rate: 0.8}]"
)
FAST = ("untiled_rate=0.2", "rates={f32: 2 GFLOP/s}")  # packed contractions pay
FORCED = ("tiles_forced=true", "tiles.matmul=[{mnk: [4, 8, 4], rate: 1.0}]")
# conversions that run in front of the kernel, as in compilers that pack there; or by themselves
_PLAIN = "[elementwise, reduction, conversion, move]"
_WITHOUT = "[elementwise, reduction, contraction, move]"
IN_FRONT = f"fusion.join={{elementwise: {_PLAIN}, conversion: {_PLAIN}}}"
APART = (
    f"fusion.join={{elementwise: {_WITHOUT}, conversion: [], reduction: {_WITHOUT},"
    f" contraction: {_WITHOUT}, move: {_WITHOUT}}}"
)
# targets with the settings that are drawn for them, by name, and in how many shares
MACHINES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "avx512": ("avx512", (), 4),
    "avx2": ("avx2", (), 2),
    "avx512-vnni": ("avx512-vnni", (), 2),
    "reference": ("reference", (), 2),
    "avx512-xla": ("avx512-xla", (), 3),
    "avx512-xla, three tiles": ("avx512-xla", (SEVERAL,), 2),
    "avx512-xla, packing pays": ("avx512-xla", (SEVERAL, *FAST), 3),
    "avx512-xla, conversions in front": ("avx512-xla", (IN_FRONT,), 2),
    "avx512-xla, conversions apart": ("avx512-xla", (APART,), 2),
    "reference, forced tiles": ("reference", FORCED, 1),
    "avx512-xla, forced tiles": ("avx512-xla", FORCED, 1),
    "no-data-tiling": ("no-data-tiling", (), 1),
    "gfx942": ("gfx942", (), 1),
    "sm_90": ("sm_90", (), 1),
    "vmvx-like": ("vmvx-like", (), 1),
    "spirv-like": ("spirv-like", (), 1),
    "iree-like": ("iree-like", (), 1),
}
VARIED = {
    "as it is": (),
    "small vectors": ("limits.vector=1 KiB",),
    "small scratch": ("limits.scratch=256 B",),
    "two members": ("fusion.members=2",),
    "three members": ("fusion.members=3",),
    "few operands": ("fusion.operands=3",),
    "several results": ("fusion.multi_result=true",),
    "rows": ("fusion.row_reductions=3",),
    "siblings": ("fusion.siblings=true", "fusion.multi_result=true"),
    "one result": ("fusion.multi_result=false",),
    "identity": ("fusion.index_relation=identity",),
    "any relation": ("fusion.index_relation=any",),
    "clone all": ("fusion.clone=[all]",),
    "clone nothing": ("fusion.clone=[]",),
}
GOALS = (
    (GoalRequest("time"), GoalRequest("memory"), GoalRequest("dispatches")),
    (GoalRequest("memory"), GoalRequest("time")),
    (GoalRequest("dispatches"), GoalRequest("time"), GoalRequest("memory")),
    (GoalRequest("relayout"), GoalRequest("time")),
    (GoalRequest("time", within=0.1), GoalRequest("memory", within=0.05)),
    (GoalRequest("time", 1.0), GoalRequest("memory", 0.5), GoalRequest("dispatches", 0.1)),
)
SETS = (
    *[("default",)] * 5, *[("full",)] * 2,
    ("layout/transpose", "layout/reshape"), ("layout/pack", "layout/contract"),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """All that one search was asked."""

    seed: int
    program: Program
    rules: RuleSet
    target: str
    settings: tuple[str, ...]
    budget: dict[str, int]
    goals: tuple[GoalRequest, ...]
    names: dict[str, str] = field(default_factory=dict)  # what was drawn, for tables


@dataclass(frozen=True)
class Verdict:
    """What became of one search; `failure` is "" if nothing is wrong.

    `value` and `baseline` are the first goal's (with weights: the weighted sum's, scaled). kernels:
    of its dispatches those that ran as such, by `plans` plans.
    """

    seed: int
    names: dict[str, str]
    ops: int
    hard: bool
    executed: bool = False
    dispatches: int = 0
    kernels: int = 0
    plans: int = 0
    refused: tuple[str, ...] = ()
    outcome: str = "found"  # found | inadmissible | failed | slow
    stop: str = ""
    nodes: int = 0
    value: float | None = None
    baseline: float | None = None  # None: the input is not admissible under the request
    failure: str = ""
    seconds: float = 0.0

    @property
    def gain(self) -> float | None:
        """Baseline over value; None if there is no baseline."""
        if self.baseline is None or self.value is None:
            return None
        return 1.0 if self.value == self.baseline else self.baseline / max(self.value, 1e-9)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"gain": self.gain, "refused": list(self.refused)}


@cache
def _rules(names: tuple[str, ...]) -> RuleSet:
    return api.rules(*names)


@cache
def _machines() -> tuple[str, ...]:
    """The drawn targets that are there, each as often as it has shares."""
    known = find_names("targets", ".yaml")
    return tuple(
        n for n, (target, _, shares) in MACHINES.items() if target in known for _i in range(shares)
    )


def make_case(seed: int) -> Case:
    """Search number `seed`; deterministic for one set of rule and target files."""
    rng = random.Random(f"search {seed}")
    blocks = NO_BLOCKS
    reads = seed % BLOCKS == READERS
    if seed % BLOCKS == LAST:
        program, blocks = repeated(seed // BLOCKS)
    else:
        program = readers(seed // BLOCKS) if reads else network(seed)
    machine = rng.choice(_machines())
    target, settings, _ = MACHINES[machine]
    varied = rng.choice(list(VARIED)) if rng.random() < 0.5 else "as it is"
    sets = SETS[0] if reads else rng.choice(SETS)
    rules, share = (_rules(sets), "") if reads else _some(_rules(sets), rng)
    rules = _with_resolvers(rules, program)
    goals = GOALS[0] if reads or rng.random() < 0.5 else rng.choice(GOALS)
    budget = _budget(program, rng)
    names = {
        "target": machine, "setting": varied, "rules": " + ".join(sets) + share,
        "budget": "memory" if budget else "none", "goals": " ".join(map(_goal_text, goals)),
        "blocks": blocks,
    }  # fmt: skip
    asked = (*settings, *VARIED[varied])
    return Case(seed, program, rules, target, asked, budget, goals, names)


def _goal_text(g: GoalRequest) -> str:
    weight = "" if g.weight is None else f":{g.weight:g}"
    return f"{g.name}{weight}" + (f"~{g.within:g}" if g.within else "")


def _some(rules: RuleSet, rng: random.Random) -> tuple[RuleSet, str]:
    """All rules, or a random share of them."""
    share = rng.choice((1.0, 1.0, 1.0, 0.7, 0.4))
    if share == 1.0:
        return rules, ""
    kept = tuple(r for r in rules.rules if rng.random() < share)
    return replace(rules, rules=kept), f", {share:.0%} of them"


def _with_resolvers(rules: RuleSet, program: Program) -> RuleSet:
    """With the rules that say what becomes of requested layouts, if the program has any (E390)."""
    if not any(n.op.endswith("set_encoding") for n in program.nodes):
        return rules
    known = {r.name for r in rules.rules}
    missing = [r for r in _rules(("layout/encoding",)).rules if r.name not in known]
    return replace(rules, rules=(*rules.rules, *missing))


def _budget(program: Program, rng: random.Random) -> dict[str, int]:
    """Now and then a bound on memory: arguments, weights, results, and some temporaries."""
    if rng.random() > 0.1:
        return {}
    nodes = program.nodes
    ends = {*program.inputs, *program.weights, *program.results}
    fixed = sum(nodes[i].type.nbytes for i in ends)
    most = max(t.nbytes for n in nodes for t in n.types)
    return {"memory": fixed + int(most * rng.choice((0.0, 0.5, 1.0, 2.0, 4.0)))}


def search(seed: int, seconds: float = 6.0) -> Verdict:
    """Run search number `seed`, its solver for at most so many seconds, and judge the answer."""
    begin = time.perf_counter()
    case = make_case(seed)
    verdict = Verdict(seed, case.names, case.program.op_count, is_hard(case.program))
    try:
        with np.errstate(all="ignore"):
            verdict = _judged(case, verdict, seconds)
    except Exception as error:  # whatever goes wrong in a valid program is a finding
        failure = f"{type(error).__name__}: {error}"
        verdict = replace(verdict, outcome="failed", failure=failure)
    return replace(verdict, seconds=round(time.perf_counter() - begin, 2))


def run_case(case: Case, seconds: float, rules: RuleSet | None = None) -> Run:
    """The search itself, with the drawn rules or with others."""
    source = Source(case.program, drawn_weights(case.program))
    limits = LIMITS if case.names["blocks"] == NO_BLOCKS else BLOCK_LIMITS
    return api.optimize(
        source, rules=case.rules if rules is None else rules, target=case.target,
        settings=case.settings, budget=case.budget, goals=case.goals, limits=limits,
        time_limit=seconds, seed=case.seed,
    )  # fmt: skip


def _judged(case: Case, verdict: Verdict, seconds: float) -> Verdict:
    try:
        run = run_case(case, seconds)
    except EqsatError as error:
        if error.exit_code != NOTHING_ADMISSIBLE:
            raise
        lost = "nothing was found, but the input itself is admissible"
        is_lost = _is_admissible(case, seconds)
        return replace(verdict, outcome="inadmissible", failure=lost if is_lost else "")
    assert run.egraph is not None and run.selection is not None and run.schedule is not None
    faults = [text for look in CHECKS for text in look(run)]
    verification = run.verify(samples=1, seed=case.seed)
    if verification.outcome == "mismatch":
        faults.append(f"differs from the reference: {verification}")
    own = run.target.machine if run.target.kernels else None
    beside = beside_ops(run.schedule, run.weights, {}, own, case.seed)
    faults += beside.wrong
    value, baseline = _worth(run)
    if baseline is None and _is_admissible(case, seconds):
        faults.append("the baseline is called inadmissible, but the input itself is admissible")
    if case.names["blocks"] != NO_BLOCKS:
        faults += differences(run, seconds)
    if baseline is not None and value > baseline:
        faults.append(f"worse than the input: {value:g} against {baseline:g}")
    return replace(
        verdict, executed=verification.samples > 0, dispatches=beside.dispatches,
        kernels=beside.kernels, plans=beside.plans, refused=beside.refused,
        stop=run.selection.stop, nodes=len(run.egraph.nodes), value=value,
        baseline=baseline, failure="; ".join(faults),
    )  # fmt: skip


def _checked(run: Run) -> list[str]:
    """The independent checker on the answer and on the baseline."""
    from eqsat.extract.check import check

    found = [s for s in (run.selection, run.baseline) if s is not None]
    assert run.egraph is not None
    return [fault for s in found for fault in check(run.egraph, run.target, s)]


def _scheduled(run: Run) -> list[str]:
    """The schedule verifies itself and is worth what the selection says."""
    s, selection = run.schedule, run.selection
    assert s is not None and selection is not None
    s.verify()
    values = {"time": s.time_ps, "memory": s.peak_bytes, "dispatches": s.kernels}
    return [
        f"the schedule's {name} is {values[name]}, the selection says {goal.value}"
        for name, goal in selection.goals
        if name in values and values[name] != goal.value
    ]


CHECKS: tuple[Callable[[Run], list[str]], ...] = (_checked, _scheduled)


def _worth(run: Run) -> tuple[float, float | None]:
    """The first goal's value and the baseline's; with weights Σ weight · goal / baseline."""
    assert run.selection is not None
    first = run.goals[0]
    if run.baseline is None:
        return float(run.selection.goal(first.name).value), None
    pairs = [
        (g, run.selection.goal(g.name).value, run.baseline.goal(g.name).value) for g in run.goals
    ]
    if first.weight is None:
        return float(pairs[0][1]), float(pairs[0][2])
    own = sum((g.weight or 0.0) * v / max(b, 1) for g, v, b in pairs)
    base = sum((g.weight or 0.0) * b / max(b, 1) for g, _, b in pairs)
    return round(own, 3), round(base, 3)


def _is_admissible(case: Case, seconds: float) -> bool:
    """Whether the input by itself, without any rule, is an answer."""
    try:
        run_case(case, seconds, replace(case.rules, rules=()))
    except EqsatError as error:
        if error.exit_code == NOTHING_ADMISSIBLE:
            return False
        raise
    return True
