"""A pair of equal terms as a hunted rule: its text, the cheaper side on the right.

Sides are spelled as programs are when they are searched. Loops become a law (`ops.algebra.laws`),
in which the letters stand for sizes; so a rule holds for all sizes unless a slice or reshape that
only its right side has says numbers: then the shapes it was found at are conditions.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.hunt.instances import check_example, example_target
from eqsat.hunt.search import hunt
from eqsat.lab.discover.forms import FLOAT
from eqsat.lab.discover.pool import SIZES, Leaves, Pair, Term, TermPool, holds_at, program_of
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.attr import Attr
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.movement import Move, Reshape
from eqsat.model.ops import LEAVES
from eqsat.model.program import Node, Program
from eqsat.model.rules import Rule
from eqsat.ops.algebra.laws import MOST, law_problem
from eqsat.ops.spelling.passes import canonical

EXAMPLE_SIZES: Mapping[str, int] = {"m": 8, "k": 6, "n": 4}
SIG_NAMES = ("g", "h", "f", "e")
COLUMNS = ("first", "second", "third", "fourth")
LETTERS = "abcdefghijlopqrstuv"  # of sizes that are none of a leaf


class Unwritten(Exception):
    """There is no rule that says this; the text says why."""


@dataclass(frozen=True)
class RuleDraft:
    """A rule without its name: the terms it says are equal, and the lines of the file."""

    left: Term
    right: Term
    is_general: bool  # holds for all sizes
    lines: tuple[str, ...]  # from `rewrite:` to `to:`


@dataclass
class _Sizes:
    """Letters of sizes; those of the leaves' dims are known."""

    letters: dict[int, str] = field(default_factory=lambda: {s: c for c, s in SIZES.items()})

    def __getitem__(self, size: int) -> str:
        if size not in self.letters:
            self.letters[size] = LETTERS[len(self.letters) - len(SIZES)]
        return self.letters[size]


def loop_text(g: Generic, letters: _Sizes) -> str:
    """A loop as laws write it; Unwritten if it cannot be."""
    plain = len(g.yields) == 1 and {*g.dtypes, g.yields[0].dtype} == {FLOAT}
    dims = [[e.dim for e in m] for m in g.maps]
    if not plain or len(set(g.sizes)) < len(g.sizes) or any(d is None for m in dims for d in m):
        raise Unwritten("a loop has two dims of one size, or reads them in sums")
    names = [letters[s] for s in g.sizes]
    operands = ",".join("".join(names[d] for d in m if d is not None) for m in dims)
    combine = f"{g.combine} " if g.combine else ""
    return f"{operands}->{''.join(names[: g.rank])} {combine}{g.body}"


class _Side(ABC):
    """One side being written: the text of its nodes, and the loops in the order they came."""

    def __init__(self, program: Program, letters: _Sizes):
        self.program, self.letters = program, letters
        self.loops: list[str] = []
        self.sigs: dict[int, str] = {}
        self.literal = False

    def term(self, i: int) -> str:
        n = self.program.nodes[i]
        if n.op == "input":
            return self.program.leaf(i).name
        if n.op in LEAVES:
            raise Unwritten("one side is a constant")
        attr = self.sig(i, n.attr) if isinstance(n.attr, Generic) else self.move(n)
        return f"{n.op}({', '.join([*map(self.term, n.operands), attr])})"

    def sig(self, i: int, g: Generic) -> str:
        if i not in self.sigs:
            if len(self.loops) == MOST:
                raise Unwritten(f"a side has more than {MOST} loops")
            self.sigs[i] = self.name(len(self.loops))
            self.loops.append(loop_text(g, self.letters))
        return f"sig={self.sigs[i]}"

    @abstractmethod
    def name(self, number: int) -> str:
        """The name of the attribute of loop nest `number`."""

    @abstractmethod
    def move(self, n: Node) -> str:
        """The attribute of an op that only moves elements."""

    def root(self) -> str:
        (result,) = self.program.results
        return self.term(result)


class _Left(_Side):
    def __init__(self, program: Program, letters: _Sizes, binds: bool):
        super().__init__(program, letters)
        self.binds = binds
        self.bound: dict[Attr, str] = {}

    def name(self, number: int) -> str:
        return SIG_NAMES[number]

    def move(self, n: Node) -> str:
        """The text of a move; an attribute with sizes is matched whole, if asked."""
        if not _says_sizes(n) or not self.binds:
            self.literal |= _says_sizes(n)
            return _written_out(n)
        name = self.bound.setdefault(n.attr, f"s{len(self.bound)}")
        return f"{'groups' if isinstance(n.attr, Reshape) else 'move'}={name}"


class _Right(_Side):
    def __init__(self, program: Program, letters: _Sizes, left: _Left):
        super().__init__(program, letters)
        self.bound = left.bound

    def name(self, number: int) -> str:
        return f"c.{COLUMNS[number]}"

    def move(self, n: Node) -> str:
        if n.attr in self.bound:
            return f"{'groups' if isinstance(n.attr, Reshape) else 'move'}={self.bound[n.attr]}"
        self.literal |= _says_sizes(n)
        return _written_out(n)


def _says_sizes(n: Node) -> bool:
    return n.op in ("slice", "reshape")


def _written_out(n: Node) -> str:
    if isinstance(n.attr, Move) and n.op == "pad":
        low, high, value = n.attr.args
        return f'low={list(low)}, high={list(high)}, value="{value}"'
    return n.attr.text(n.op)


# ---- rules ---------------------------------------------------------------------------------------
def draft(left: Term, right: Term, leaves: Leaves, binds: bool) -> RuleDraft:
    """The rule that rewrites one term to the other; Unwritten if the rule language has none.

    binds: slices and reshapes of the left side may be any, not those it was found with.
    """
    letters = _Sizes()
    programs = [_spelled(t, leaves, SIZES) for t in (left, right)]
    first = _Left(programs[0], letters, binds)
    rewrite = first.root()
    second = _Right(programs[1], letters, first)
    to = second.root()
    if programs[0].nodes[programs[0].results[0]].op == "input":
        raise Unwritten("the left side is a leaf")
    if not right.leaves <= left.leaves:
        raise Unwritten("the right side has a leaf that the left side lacks")
    lines, conditions = [f"rewrite: {rewrite}"], list[str]()
    if second.loops:
        text = f"{'; '.join(first.loops)} => {'; '.join(second.loops)}"
        problem = law_problem(text)
        if problem or not first.loops:
            raise Unwritten(problem or "nothing on the left says the loops of the right side")
        lines.append(f'let:     c = law("{text}", {_sigs(first)})')
    elif first.loops:
        conditions.append(f'is_spelled("{"; ".join(first.loops)}", {_sigs(first)})')
    is_literal = first.literal or second.literal
    if is_literal:
        conditions += _shapes(programs[0])
    lines += ["where:", *(f"  - {c}" for c in conditions)] if conditions else []
    return RuleDraft(left, right, not is_literal, (*lines, f"to:      {to}"))


def _sigs(side: _Side) -> str:
    return ", ".join(SIG_NAMES[: len(side.loops)])


def _shapes(program: Program) -> list[str]:
    """Conditions that the operands have the shapes the rule was found at."""
    inputs = sorted({o for n in program.nodes for o in n.operands} & set(program.inputs))
    return [f"{program.leaf(i).name}.shape == {list(program.nodes[i].type.shape)}" for i in inputs]


def _spelled(term: Term, leaves: Leaves, sizes: Mapping[str, int]) -> Program:
    return canonical(program_of((term,), leaves, sizes))


# ---- a file --------------------------------------------------------------------------------------
def term_text(program: Program) -> str:
    """The result of a program as a term of examples."""

    def text(i: int) -> str:
        n = program.nodes[i]
        if n.op == "input":
            return program.leaf(i).name
        attr = n.attr.text(n.op)
        if isinstance(n.attr, Generic):
            attr += f", rank={n.attr.rank}"
        return f"{n.op}({', '.join([*map(text, n.operands), attr])})"

    return text(program.results[0])


def example_lines(name: str, goal: str, pair: Pair, leaves: Leaves, is_general: bool) -> list[str]:
    """An example: from the first term the second one is reached, or avoided."""
    sizes = EXAMPLE_SIZES if is_general else SIZES
    given = leaves.given(sizes, pair[0].leaves | pair[1].leaves)
    shown = ", ".join(f"{n}: {json.dumps(t)}" for n, t in given.items())
    start, end = (term_text(_spelled(t, leaves, sizes)) for t in pair)
    return [
        f"- name: {name}",
        f"  given:   {{{shown}}}",
        f"  start:   {start}",
        f"  {goal}: {end}" if goal == "reaches" else f"  {goal}:  {end}",
    ]


def rule_lines(
    name: str, doc: str, source: str, is_exact: bool, drafted: RuleDraft, examples: list[list[str]]
) -> list[str]:
    """The lines of one rule in a file."""
    head = [f"- name: {name}", f"  doc: {json.dumps(doc)}", f"  source: {json.dumps(source)}"]
    if not is_exact:
        head += ["  tags: [inexact]", "  bound: roundings"]
    body = [f"  {line}" for line in drafted.lines]
    shown = [f"    {line}" for lines in examples for line in lines]
    return [*head, *body, "  examples:", *shown]


def file_text(name: str, doc: str, rules: list[list[str]]) -> str:
    """A rule set of these rules."""
    head = [f"ruleset: {name}", f"doc: {json.dumps(doc)}", "tags: [algebra]", "phase: canonicalise"]
    body = [f"  {line}" if line else "" for lines in rules for line in (*lines, "")]
    return "\n".join([*head, "", "rules:" if rules else "rules: []", *body]).rstrip() + "\n"


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
