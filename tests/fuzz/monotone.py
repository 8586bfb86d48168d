"""Legality is monotone: what changes nothing, put on an edge, never makes a better answer legal.

A program of a move, a contraction or a reduction, and maybe more, gets one op or two that compute
nothing on an edge. Both go to the extractor as they stand, with the nodes they have and no rules;
or with rules, but always past the normal form that programs get when they are read, which would
drop most identities before anything could go wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from eqsat import api
from eqsat.extract import extract
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.saturate import saturate
from fuzz.equal import Answer, are_equal
from fuzz.respell import IDENTITIES

IDENTITY = "fusion.index_relation=identity"
MACHINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "reference": ("reference", ()),
    "avx512-xla": ("avx512-xla", ()),
    "avx512-xla, identity": ("avx512-xla", (IDENTITY,)),
    "iree-like": ("iree-like", ()),
    "iree-like, identity": ("iree-like", (IDENTITY,)),
    "gfx942": ("gfx942", ()),
    "sm_90": ("sm_90", ()),
    "sm_90, two roots": ("sm_90", ("fusion.roots=2",)),
    "vmvx-like": ("vmvx-like", ()),
}
GOALS = tuple(map(GoalRequest, ("time", "memory", "dispatches")))
RULES = {"none": (), "default": ("default",)}
KINDS, ASKED = 3, 3  # identities per program, and machines they are tried on
SECONDS = 6.0
MOVES = {
    "slice": "g = slice(x, start=[{half}, 0], limit=[{m}, {k}]) : f32[{half}, {k}]",
    "pad": "g = pad(x, low=[0, 0], high=[16, 0], value=0.0) : f32[{more}, {k}]",
    "concat": "input z: f32[{m}, {k}]\ng = concat(x, z, axis=0) : f32[{twice}, {k}]",
    "gather": "input i: i32[48]\ng = gather(x, i, axis=0) : f32[48, {k}]",
    "transpose": "e = exp(x) : f32[{m}, {k}]\ng = transpose(e, perm=[1, 0]) : f32[{k}, {m}]",
}
EXPERTS = """program experts
input x: f32[{m}, {k}]
input i: i32[{m}]
input w: f32[8, {k}, {n}]
g = gather(w, i, axis=0) : f32[{m}, {k}, {n}]
y = generic(x, g, loops=[{m}, {n}, {k}], maps=[[d0, d2], [d0, d2, d1]], body=mul(x0, x1), \
combine=add, rank=2) : f32[{m}, {n}]
"""


@dataclass(frozen=True)
class Case:
    """A program, the same with one identity more, and how both are searched."""

    seed: int
    kind: str
    machine: str
    rules: str
    first: Program
    second: Program


@dataclass(frozen=True)
class Verdict:
    """outcome: same | worse | better (a defect) | unproven | refused | unequal (wrong identity)."""

    case: Case
    outcome: str
    answers: tuple[Answer, Answer] = (Answer(), Answer())

    def to_json(self) -> dict[str, Any]:
        """Programs as text, for what is wrong."""
        c = self.case
        found: dict[str, Any] = {
            "seed": c.seed, "kind": c.kind, "machine": c.machine, "rules": c.rules,
            "outcome": self.outcome, "values": [list(a.values) for a in self.answers],
        }  # fmt: skip
        if self.outcome in ("better", "refused", "unequal"):
            found["programs"] = [str(c.first), str(c.second)]
        return found


# ---- programs ------------------------------------------------------------------------------------
def program(seed: int) -> Program:
    """A move or a gather in front of a contraction or a reduction, with ops around them."""
    rng = random.Random(f"monotone {seed}")
    m, k, n = rng.choice([(32, 128, 64), (64, 64, 128), (16, 256, 64), (24, 40, 56)])
    sizes = {"m": m, "k": k, "n": n, "half": m // 2, "more": m + 16, "twice": 2 * m}
    if rng.random() < 0.25:
        text = EXPERTS.format(**sizes)
        rows, columns = m, n
    else:
        move = rng.choice(sorted(MOVES))
        rows = {"slice": m // 2, "pad": m + 16, "concat": 2 * m, "gather": 48, "transpose": k}[move]
        depth = m if move == "transpose" else k
        text = f"program {move}\ninput x: f32[{m}, {k}]\n{MOVES[move].format(**sizes)}\n"
        if rng.random() < 0.3:
            text += f"h = relu(g) : f32[{rows}, {depth}]\n"
        read, columns = ("h" if "h = " in text else "g"), n
        if rng.random() < 0.65:
            text += f"input w: f32[{depth}, {n}]\ny = matmul({read}, w) : f32[{rows}, {n}]\n"
        else:
            columns = 0
            text += (
                f"y = generic({read}, loops=[{rows}, {depth}], maps=[[d0, d1]], body=x0,"
                f" combine={rng.choice(['add', 'max'])}, rank=1) : f32[{rows}]\n"
            )
    return parse_program(text + _ending(rng, rows, columns))


def _ending(rng: random.Random, rows: int, columns: int) -> str:
    shape = f"f32[{rows}, {columns}]" if columns else f"f32[{rows}]"
    match rng.randrange(4 if columns else 2):
        case 0:
            return "return y\n"
        case 1:
            return f"r = relu(y) : {shape}\nreturn r\n"
        case 2:
            return f"r = transpose(y, perm=[1, 0]) : f32[{columns}, {rows}]\nreturn r\n"
    turned = f"t = transpose(r, perm=[1, 0]) : f32[{columns}, {rows}]"
    return f"r = exp(y) : {shape}\n{turned}\nreturn t, y\n"


def cases(seed: int) -> Iterator[Case]:
    """Some identities in the program of a seed, on some machines, without rules and with."""
    rng, first = random.Random(f"identities {seed}"), program(seed)
    for kind in rng.sample(sorted(IDENTITIES), KINDS):
        second = IDENTITIES[kind](first, rng)
        machines = rng.sample(sorted(MACHINES), ASKED)
        rules = rng.choice(["none", "none", "default"])
        if second is not None and second != first:
            for machine in machines:
                yield Case(seed, kind, machine, rules, first, second)


# ---- answers -------------------------------------------------------------------------------------
@cache
def _rules(name: str) -> RuleSet:
    return api.rules(*RULES[name]) if RULES[name] else RuleSet("none", "", ())


@cache
def _target(machine: str) -> Target:
    name, settings = MACHINES[machine]
    return override(load_target(name), settings)


@cache
def answer(program: Program, machine: str, rules: str) -> Answer:
    """The proven optimum of a program as it stands: nothing is dropped before the search."""
    target = _target(machine)
    try:
        graph = saturate(program, _rules(rules), target)
        found, _ = extract(graph, target, GOALS, time_limit=SECONDS)
    except EqsatError as error:
        return Answer(refused=error.diagnostics[0].code)
    results = [found.goal(g.name) for g in GOALS]
    whole = graph.stop == "saturated" and not found.cuts
    proven = next((n for n, g in enumerate(results) if g.value > g.bound), len(results))
    return Answer(tuple(g.value for g in results), proven if whole else 0)


def judge(case: Case) -> Verdict:
    """Whether the identity has made the first goal that differs better."""
    if not are_equal(case.first, case.second, case.seed):
        return Verdict(case, "unequal")
    sides = [answer(p, case.machine, case.rules) for p in (case.first, case.second)]
    a, b = sides
    if a.refused or b.refused:
        outcome = "same" if a.refused == b.refused else "refused"
    else:
        outcome = _outcome(a, b)
    return Verdict(case, outcome, (a, b))


def _outcome(a: Answer, b: Answer) -> str:
    proven = min(a.proven, b.proven)
    if a.values[:proven] != b.values[:proven]:
        return "better" if b.values < a.values else "worse"
    return "same" if proven == len(a.values) else "unproven"


def hunt(seed: int) -> list[Verdict]:
    """All cases of a seed, judged."""
    found = [judge(c) for c in cases(seed)]
    answer.cache_clear()
    return found
