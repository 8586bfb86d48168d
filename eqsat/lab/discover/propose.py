"""Pairs of equal terms → hunted rules: the cheaper side on the right, of any sizes if possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.hunt.examples import check_example, example_target
from eqsat.hunt.search import hunt
from eqsat.lab.discover.pool import Leaves, Pair, Term, TermPool, holds_at, program_of
from eqsat.lab.discover.ruletext import (
    RuleDraft,
    Unwritten,
    draft,
    example_lines,
    file_text,
    rule_lines,
)
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.ops import LEAVES
from eqsat.model.program import Program
from eqsat.model.rules import Rule
from eqsat.ops.spelling.passes import canonical

WORK_SIZES: Mapping[str, int] = {"m": 256, "k": 512, "n": 1024}  # at which sides are compared
# other sizes at which a law has to hold: ones, small and equal ones, other primes
OTHER_SIZES: tuple[Mapping[str, int], ...] = tuple(
    dict(zip("mkn", sizes, strict=True)) for sizes in ((1, 2, 3), (2, 2, 2), (7, 1, 2), (3, 11, 1))
)
INSTANCES, SECONDS = 60, 2.0  # of a hunt


@dataclass(frozen=True)
class Proposal:
    """A rule that was found, hunted, and the lines that say it in a file.

    work: of both sides at `WORK_SIZES`, operations and elements moved.
    """

    rule: Rule
    draft: RuleDraft
    leaves: Leaves
    lines: tuple[str, ...]
    instances: int
    work: tuple[int, int]

    @property
    def saving(self) -> float:
        """How many times as much work the left side is."""
        return self.work[0] / max(self.work[1], 1)


def proposal_of(pair: Pair, pool: TermPool, names: set[str], seed: int) -> Proposal:
    """A rule that says the pair; Unwritten if there is none, or the hunt finds it wrong."""
    leaves = pool.leaves
    for sizes in OTHER_SIZES:
        if not holds_at(pair, leaves, sizes, seed):
            raise Unwritten(f"it does not hold where sizes are {dict(sizes)}")
    left, right = _directed(pair, leaves)
    why = ""
    for binds in (True, False):
        try:
            drafted = draft(left, right, leaves, binds)
            for is_exact in (True, False) if pool.is_exact(pair) else (False,):
                proposal = _hunted(drafted, is_exact, pool, names, seed)
                if not isinstance(proposal, str):
                    return proposal
                why = proposal
        except Unwritten as error:
            why = str(error)
    raise Unwritten(why)


def _hunted(
    drafted: RuleDraft, is_exact: bool, pool: TermPool, names: set[str], seed: int
) -> Proposal | str:
    """The rule, read back from its text, or what is wrong with it."""
    name = _name(drafted.left, names)
    doc = f"{drafted.left} = {drafted.right}" + ("" if drafted.is_general else ", at these sizes")
    lines = rule_lines(
        name, doc, f"found by eqsat discover --seed {seed}", is_exact, drafted,
        _examples(drafted, pool),
    )  # fmt: skip
    try:
        ruleset = read_ruleset(file_text("found", "One rule.", [lines]), "found.yaml")
    except EqsatError as error:
        return error.diagnostics[0].message
    (rule,) = ruleset.rules
    hunted = hunt(rule, instances=INSTANCES, seed=seed, seconds=SECONDS)
    if hunted.counterexample is not None:
        return hunted.counterexample.why
    if not hunted.instances:
        return "the hunt met no instance of it"
    for example in rule.examples:
        failed = check_example(ruleset, rule, example, example_target())
        if failed is not None:
            return failed.message
    leaves = pool.leaves
    work = (term_work(drafted.left, leaves), term_work(drafted.right, leaves))
    return Proposal(rule, drafted, leaves, tuple(lines), hunted.instances, work)


def _examples(drafted: RuleDraft, pool: TermPool) -> list[list[str]]:
    """Examples: the pair the rule reaches, and a term of its type and other values it must not."""
    pair, leaves = (drafted.left, drafted.right), pool.leaves
    shown = [example_lines("found", "reaches", pair, leaves, drafted.is_general)]
    other = next(
        (t for t in pool.others(_known(drafted, pool)) if t.size <= drafted.left.size + 1), None
    )
    if other is not None:
        wrong = (drafted.left, other)
        shown.append(example_lines("not-equal", "avoids", wrong, leaves, drafted.is_general))
    return shown


def _known(drafted: RuleDraft, pool: TermPool) -> Term:
    return drafted.left if drafted.left in pool.nodes else drafted.right


# ---- which way round -----------------------------------------------------------------------------
def _directed(pair: Pair, leaves: Leaves) -> Pair:
    """The one that is more work first; of equal ones the longer, then the first found last."""
    a, b = pair
    return (a, b) if _rank(a, leaves) > _rank(b, leaves) else (b, a)


def _rank(term: Term, leaves: Leaves) -> tuple[int, int]:
    return term_work(term, leaves), term.size


def term_work(term: Term, leaves: Leaves) -> int:
    """Scalar operations, and elements that are read and written, of a term of large operands."""
    return program_work(canonical(program_of((term,), leaves, WORK_SIZES)))


def program_work(program: Program) -> int:
    """The work of a program: what each op computes, reads and writes."""
    total = 0
    for i in program.needed:
        n = program.nodes[i]
        if n.op in LEAVES:
            continue
        total += n.type.size + sum(program.nodes[o].type.size for o in n.operands)
        if isinstance(n.attr, Generic):
            reduces = bool(n.attr.combine)
            total += math.prod(n.attr.sizes) * (n.attr.body.count() + reduces)
    return total


def _name(left: Term, names: set[str]) -> str:
    """A name that says the ops of the left side, not taken yet."""
    ops = [t.form for t in left.walk() if t.form]
    base = "-of-".join(dict.fromkeys(ops))
    name = next(n for i in range(1, 10_000) if (n := f"{base}-{i}") not in names)
    return name
