"""Equal programs, equal answers: a program and a respelling of it are searched and compared.

A pair is two programs of one meaning (which the NumPy reference confirms first), a machine and an
order of goals. Both are searched; where the optimum of every goal is proven on both sides, the
values have to be equal. A difference is made smaller before it is reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat import api
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.model.diag import EqsatError
from eqsat.model.leaves import Leaf
from eqsat.model.ops import LEAVES
from eqsat.model.program import Builder, Program
from eqsat.ops.meaning.programs import evaluate_program
from fuzz.edit import without_dead
from fuzz.respell import RESPELLINGS
from fuzz.small import small_program

# the machines of the hunt: target and settings by name
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "reference": ("reference", ()),
    "avx512-xla": ("avx512-xla", ()),
    "iree-like": ("iree-like", ()),
    "iree-like, identity": ("iree-like", ("fusion.index_relation=identity",)),
    "gfx942": ("gfx942", ()),
    "avx512-xla, forced tiles": ("avx512-xla", ("tiles_forced=true",)),
}
GOALS = (
    *[("time", "memory", "dispatches")] * 3,
    ("memory", "time", "dispatches"),
    ("dispatches", "memory", "time"),
)
# what is equal up to rounding needs the rules that say so
RULES = {"two-step-sum": ("default", "algebra/reductions")}
# kinds whose sides may differ, and why: everything else is a defect
REASONS: dict[str, str] = {}
CLOSE = 1e-9  # of the largest element: both sides are evaluated in float64
RESPELLED, ASKED = 5, 2  # respellings per program, machines per respelling
DRAWS = 6  # of a place, for each smaller program


@dataclass(frozen=True)
class Question:
    """How a program is searched."""

    machine: str
    goals: tuple[str, ...]
    seconds: float = 6.0
    rules: tuple[str, ...] = ("default",)


@dataclass(frozen=True)
class Answer:
    """Value per goal in order, and how many of them, from the first, are proven optimal."""

    values: tuple[int, ...] = ()
    proven: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Pair:
    """Two equal programs under one question, and what became of them.

    outcome: same | different | unproven (and no proven goal differs) | refused (one side, or both
    for different reasons) | unequal (the respelling itself is wrong).
    """

    kind: str
    seed: int
    question: Question
    first: Program
    second: Program
    outcome: str = ""
    answers: tuple[Answer, Answer] = field(default=(Answer(), Answer()))

    @property
    def is_better(self) -> bool:
        """Whether the second program, such as one with an identity more, has the better answer."""
        return self.outcome == "different" and self.answers[1].values < self.answers[0].values

    def to_json(self) -> dict[str, Any]:
        """Programs as text, for differences."""
        a, b = self.answers
        found = {
            "kind": self.kind, "seed": self.seed, "machine": self.question.machine,
            "goals": list(self.question.goals), "outcome": self.outcome,
            "values": [list(a.values), list(b.values)], "refused": [a.refused, b.refused],
            "better": self.is_better,
        }  # fmt: skip
        if self.outcome not in ("same", "unproven"):
            found |= {"programs": [str(self.first), str(self.second)]}
            found["reason"] = REASONS.get(self.kind, "")
        return found


# ---- one pair ------------------------------------------------------------------------------------
def are_equal(a: Program, b: Program, seed: int = 0) -> bool:
    """Whether both give the same results on one draw, in float64, up to the order of sums."""
    rng = np.random.default_rng(seed)
    inputs, weights = random_inputs(a, rng), drawn_weights(a)
    with np.errstate(all="ignore"):
        sides = [evaluate_program(p, inputs, weights) for p in (a, b)]
    return len(sides[0]) == len(sides[1]) and all(
        x.shape == y.shape and _are_close(x, y) for x, y in zip(*sides, strict=True)
    )


def _are_close(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    if x.size == 0:
        return True
    if not np.issubdtype(x.dtype, np.floating):
        return np.array_equal(x, y)
    return bool(np.allclose(x, y, rtol=CLOSE, atol=CLOSE * np.nanmax(np.abs(x)), equal_nan=True))


def answer(program: Program, question: Question) -> Answer:
    """The proven optimum of a program, goal by goal."""
    target, settings = MACHINES[question.machine]
    try:
        run = api.optimize(
            program, rules=question.rules, target=target, settings=settings, goals=question.goals,
            time_limit=question.seconds, threads=1, stop_after="selection",
        )  # fmt: skip
    except EqsatError as error:
        return Answer(refused=error.diagnostics[0].code)
    assert run.selection is not None and run.egraph is not None
    found = [run.selection.goal(name) for name in question.goals]
    whole = run.egraph.stop == "saturated" and not run.selection.cuts
    proven = next((n for n, g in enumerate(found) if g.value > g.bound), len(found))
    return Answer(tuple(g.value for g in found), proven if whole else 0)


Ask = Callable[[Program, Question], Answer]


def compare(pair: Pair, ask: Ask = answer) -> Pair:
    """The pair with its outcome."""
    if not are_equal(pair.first, pair.second, pair.seed):
        return replace(pair, outcome="unequal")
    a, b = ask(pair.first, pair.question), ask(pair.second, pair.question)
    return replace(pair, outcome=_outcome(a, b), answers=(a, b))


def _outcome(a: Answer, b: Answer) -> str:
    if a.refused or b.refused:
        return "same" if a.refused == b.refused else "refused"
    proven = min(a.proven, b.proven)
    if a.values[:proven] != b.values[:proven]:
        return "different"
    return "same" if proven == len(a.values) else "unproven"


# ---- pairs of a seed -----------------------------------------------------------------------------
def pairs(seed: int, kinds: Iterable[str] = RESPELLINGS, seconds: float = 6.0) -> Iterator[Pair]:
    """The pairs of a seed: one random program, some respellings, some questions each."""
    rng = random.Random(f"equal {seed}")
    program = small_program(seed)
    known = sorted(kinds)
    for kind in rng.sample(known, min(RESPELLED, len(known))):
        other = RESPELLINGS[kind](program, rng)
        machines = rng.sample(sorted(MACHINES), ASKED)
        goals = [rng.choice(GOALS) for _ in machines]
        if other is None:
            continue
        for machine, order in zip(machines, goals, strict=True):
            question = Question(machine, order, seconds, RULES.get(kind, ("default",)))
            yield Pair(kind, seed, question, program, other)


def hunt(
    seed: int, kinds: Iterable[str] = RESPELLINGS, seconds: float = 6.0, shrink: bool = True
) -> list[Pair]:
    """The pairs of a seed with their outcomes; differences are made smaller."""
    ask = remembered(answer)
    found = [compare(p, ask) for p in pairs(seed, kinds, seconds)]
    return [smaller(p, ask) if shrink and p.outcome == "different" else p for p in found]


def remembered(ask: Ask) -> Ask:
    """Equal questions are asked once; programs that are equal records are one."""
    known: dict[tuple[Program, Question], Answer] = {}

    def asked(program: Program, question: Question) -> Answer:
        key = (program, question)
        if key not in known:
            known[key] = ask(program, question)
        return known[key]

    return asked


# ---- smaller pairs -------------------------------------------------------------------------------
def smaller(pair: Pair, ask: Ask = answer) -> Pair:
    """The smallest pair found that differs as this one: results dropped, values made inputs."""
    if pair.kind not in RESPELLINGS:
        return pair
    best = pair
    while (found := _step(best, ask)) is not None:
        best = found
    return best


def _step(pair: Pair, ask: Ask) -> Pair | None:
    """One smaller program that still has a respelling with another answer."""
    for program in _cuts(pair.first):
        tried: set[Program] = set()
        for n in range(DRAWS):
            rng = random.Random(f"smaller {pair.seed} {n}")
            other = RESPELLINGS[pair.kind](program, rng)
            if other is None or other in tried:
                continue
            tried.add(other)
            found = compare(replace(pair, first=program, second=other), ask)
            if found.outcome == "different":
                return found
    return None


def _cuts(program: Program) -> Iterator[Program]:
    """Programs of fewer ops: one result of several, or an op of the program as an input."""
    if len(program.results) > 1:
        for r in program.results:
            yield _signed(replace(program, results=(r,)))
    for i in reversed(program.needed):
        n = program.nodes[i]
        if n.op not in LEAVES and len(n.types) == 1 and program.results != (i,):
            yield _signed(_with_input(program, i))


def _with_input(program: Program, at: int) -> Program:
    b = Builder(program.name)
    for i, n in enumerate(program.nodes):
        if i == at:
            b.append("input", (), Leaf(f"v{i}", n.type, len(program.inputs)))
        else:
            b.append(n.op, n.operands, n.attr)
    return b.build(program.results, program.symbols)


def _signed(program: Program) -> Program:
    """Without dead nodes, and without the inputs that nobody reads."""
    program = without_dead(program)
    read = {*program.results, *(o for n in program.nodes for o in n.operands)}
    kept = [i for i in program.inputs if i in read]
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in enumerate(program.nodes):
        if n.op != "input":
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
        elif i in kept:
            leaf = program.leaf(i)
            new[i] = b.append("input", (), replace(leaf, index=kept.index(i)))
    return b.build([new[r] for r in program.results], program.symbols)
