"""Chains of rules: random programs saturated with many rules, and every node evaluated.

A hunt of single rules cannot see what their unions add up to, because a union is transitive. A
failure is cut down to the fewest rules and to the smallest program that still show it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph
from eqsat.model.leaves import Leaf
from eqsat.model.ops import LEAVES
from eqsat.model.program import Builder, Program, prune
from eqsat.model.rules import RuleSet
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import Limits, saturate
from fuzz.classes import as_graph, evaluate_classes
from fuzz.glue import GlueMaker
from fuzz.leaves import leaf_values

TILES = (1, 2, 3, 4, 5, 8)
LIMITS = Limits(nodes=2500, rounds=12, seconds=120.0)


@dataclass(frozen=True)
class Trial:
    """What one chain was made of: all that decides whether it fails."""

    seed: int
    program: Program
    rules: RuleSet
    target: Target
    exact: bool


@dataclass(frozen=True)
class Failure:
    """A chain that is unsound, cut down; `why` names the node and the lane."""

    trial: Trial
    why: str

    def __str__(self) -> str:
        names = ", ".join(r.name for r in self.trial.rules.rules)
        tiles = "; ".join(
            f"{kind} {[dict(t.sizes) for t in found]}" for kind, found in self.trial.target.tiles
        )
        return f"chain {self.trial.seed} (rules {names}; tiles {tiles}): {self.why}\n" + str(
            self.trial.program
        )


@dataclass(frozen=True)
class Chain:
    """One chain: how large it became, how many nodes were held to another one, and its failure."""

    seed: int
    ops: int
    rules: int
    nodes: int
    compared: int
    stop: str
    failure: Failure | None


def chains(
    count: int, seed: int = 0, rules: RuleSet | None = None, limits: Limits = LIMITS
) -> list[Chain]:
    """Chains `seed` … `seed + count - 1` of the default rules, or of these."""
    known = rules if rules is not None else _default_rules()
    return [chain(s, known, limits) for s in range(seed, seed + count)]


def chain(seed: int, rules: RuleSet | None = None, limits: Limits = LIMITS) -> Chain:
    """One random program under random tiles with all or some of the rules; deterministic."""
    trial = make_trial(seed, rules)
    why, graph = run(trial, limits)
    failure = None if why is None else shrink(Failure(trial, why), graph, limits)
    nodes, stop = (0, "refused") if graph is None else (len(graph.nodes), graph.stop)
    compared = 0 if graph is None else nodes - len(graph.classes)
    return Chain(
        seed, trial.program.op_count, len(trial.rules.rules), nodes, compared, stop, failure
    )


def make_trial(seed: int, rules: RuleSet | None = None) -> Trial:
    rng = random.Random(seed)
    exact = rng.random() < 0.5
    known = rules if rules is not None else _default_rules()
    if exact:  # bodies that jump may not sit behind sums of another order
        known = known.without("inexact")
    program = GlueMaker(seed, exact, known.rules).program(rng.randint(4, 14))
    if rng.random() < 0.5:
        program = merge_elementwise(program)
    return Trial(seed, program, _some(known, rng), _machine(rng), exact)


def _default_rules() -> RuleSet:
    from eqsat.lang.rulesets import load_ruleset

    return load_ruleset("default")


def _some(rules: RuleSet, rng: random.Random) -> RuleSet:
    share = rng.choice((1.0, 1.0, 0.7, 0.3))
    kept = tuple(r for r in rules.rules if share == 1.0 or rng.random() < share)
    return replace(rules, rules=kept or rules.rules)


def _machine(rng: random.Random) -> Target:
    """A machine where a byte costs 1 ns, with a few tiles of every kind."""

    def tile(*roles: str) -> Tile:
        return Tile(tuple((r, rng.choice(TILES)) for r in roles), 1.0)

    count = rng.choice((0, 1, 2, 2))
    matmul = tuple(tile("m", "n", "k") for _ in range(count))
    conv = tuple(tile("c", "k") for _ in range(count))
    memory = (Memory("ram", 1 << 40, 1e9),)
    vocabulary = (("matmul", matmul), ("conv2d", conv))
    return Target("random", "", "xla", True, memory, 0, (), 1.0, 1.0, vocabulary)


def run(trial: Trial, limits: Limits = LIMITS) -> tuple[str | None, EGraph | None]:
    """Saturate and evaluate; what is wrong (None: nothing), and the e-graph if there is one."""
    try:
        graph = saturate(trial.program, trial.rules, trial.target, limits)
        graph.verify()
    except EqsatError as error:
        return error.diagnostics[0].message, None
    except Exception as error:  # an attribute function that fails is a finding, not an accident
        return f"{type(error).__name__}: {error}", None
    return _wrong(graph, trial), graph


def _wrong(graph: EGraph, trial: Trial) -> str | None:
    leaves = leaf_values(trial.program, trial.seed, trial.exact)
    with np.errstate(all="ignore"):
        found = evaluate_classes(graph, leaves)
    if found.disagreement is not None:
        node = graph.nodes[found.disagreement.node]
        peers = sorted({_maker(graph, i) for i in graph.classes[node.eclass]})
        return f"`{node.op}` made by {_maker(graph, found.disagreement.node)}, in a class of" + (
            f" {', '.join(peers)}: {found.disagreement}"
        )
    with np.errstate(all="ignore"):
        wanted = evaluate_classes(as_graph(trial.program), leaves)
    for i, (own, c) in enumerate(zip(wanted.classes, graph.values, strict=True)):
        values = found.classes[c]
        if values is None or own is None:
            return f"value {i} of the program was not evaluated"
        if any((a.is_open & ~b.is_open).any() for a, b in zip(values, own, strict=True)):
            peers = ", ".join(sorted({_maker(graph, i) for i in graph.classes[c]}))
            return f"value {i} of the program is left open where it is defined, by {peers}"
    return None


def _maker(graph: EGraph, node: int) -> str:
    rule = graph.nodes[node].rule
    return "the program" if rule < 0 else f"`{graph.rules[rule].name}`"


# ---- cutting down --------------------------------------------------------------------------------
def shrink(failure: Failure, graph: EGraph | None, limits: Limits = LIMITS) -> Failure:
    """One result of the program, then fewer rules and ops, while it still fails."""
    rules = failure.trial.rules
    if graph is not None:
        used = {s.name for s in graph.rules if s.matches}
        matched = tuple(r for r in rules.rules if r.name in used)
        failure = _first(
            [replace(failure.trial, rules=replace(rules, rules=matched))], failure, limits
        )
    failure = _first(_parts(failure.trial), failure, limits)
    size = max(1, len(failure.trial.rules.rules) // 2)
    while True:
        smaller = _first(_without_some(failure.trial, size), failure, limits)
        if smaller is failure and size == 1:
            break
        if smaller is failure:
            size //= 2
        failure = smaller
    while (smaller := _first(_opened_programs(failure.trial), failure, limits)) is not failure:
        failure = smaller
    return failure


def _first(trials: Iterable[Trial], failure: Failure, limits: Limits) -> Failure:
    """The first of these that fails as well, else the failure as it is."""
    for trial in trials:
        why, _ = run(trial, limits)
        if why is not None:
            return Failure(trial, why)
    return failure


def _without_some(trial: Trial, size: int) -> Iterable[Trial]:
    rules = trial.rules.rules
    for at in range(0, len(rules), size):
        kept = rules[:at] + rules[at + size :]
        yield replace(trial, rules=replace(trial.rules, rules=kept))


def _parts(trial: Trial) -> Iterable[Trial]:
    """The program cut down to one of its nodes, the earliest first."""
    for i, n in enumerate(trial.program.nodes):
        if len(n.types) == 1:
            yield replace(trial, program=_cut(trial.program, i))


def _opened_programs(trial: Trial) -> Iterable[Trial]:
    """The program with one op replaced by an input, the last op first.

    Not where an unpack follows: the lanes beyond the end of a packed input are not known.
    """
    program = trial.program
    packed: set[int] = set()  # nodes whose value reaches an op that knows what padding holds
    for i in range(len(program.nodes) - 1, -1, -1):
        n = program.nodes[i]
        if i in packed or n.op in ("unpack", "retype", "relax"):
            packed.update(n.operands)
        elif n.op not in LEAVES and len(n.types) == 1 and i not in program.results:
            yield replace(trial, program=_opened(program, i))


def _opened(program: Program, at: int) -> Program:
    b = Builder(program.name)
    for i, n in enumerate(program.nodes):
        leaf = Leaf(f"y{i}", n.types[0], len(program.nodes) + i)
        b.append(*(("input", (), leaf) if i == at else (n.op, n.operands, n.attr)))
    return _cut(b.build(program.results), program.results[0])


def _cut(program: Program, result: int) -> Program:
    """What this node needs, without inputs nobody reads."""
    part = prune(replace(program, results=(result,)))
    b = Builder(part.name)
    new: dict[int, int] = {}
    for i, n in enumerate(part.nodes):
        if part.uses[i]:
            new[i] = b.add(n.op, tuple(new[o] for o in n.operands), n.attr)
    return b.build([new[r] for r in part.results])
