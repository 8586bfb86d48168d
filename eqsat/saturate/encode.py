"""Program and rules → egglog text. An attribute is an interned i64, an e-class a term of sort T."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from eqsat.model.attr import Attr
from eqsat.model.equalities import Equalities
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.program import Node, Program
from eqsat.model.rules import PHASES, Apply, Rule, Splat, Term, Var
from eqsat.ops.attrs import RULE_OPS
from eqsat.ops.programs.facts import FACTS, Facts
from eqsat.saturate.joins import few_uses
from eqsat.saturate.rows import OPTIONAL, RuleAtArity, mark, slots, splat_name, variables_asked

ASKS = "?"  # ends the name of the half of a rule that only asks for its table
SOURCE_BITS = 32  # a `made_…` value is variant << SOURCE_BITS | attribute id of the matched node
INSTEAD_OF = "instead_of"  # the class of a loop with other bodies, and that of the loop itself
EXTRA = 1 << 62  # added to it if the first stage of the rules did not make the node
MOST_PAIRS = 80_000  # of all variants of a rule: a GB; a concat of about 140 transposes
Signature = tuple[str, int]  # op, number of operands


class Interner:
    """Attributes to ids 1, 2, … and back; 0 is no attribute."""

    def __init__(self) -> None:
        self.ids: dict[Attr, int] = {}
        self.attrs: list[Attr | None] = [None]

    def id(self, attr: Attr | None) -> int:
        if attr is None:
            return 0
        number = self.ids.get(attr)
        if number is None:
            number = self.ids[attr] = len(self.attrs)
            self.attrs.append(attr)
        return number

    def __getitem__(self, i: int) -> Attr:
        attr = self.attrs[i]
        assert attr is not None
        return attr


def _operands(op: str) -> int | None:
    """Of an op that rules may name; None: any number, or no rule names it."""
    return RULE_OPS[op].operands if op in RULE_OPS else None


def constructor(op: str, arity: int) -> str:
    """The egglog name of an op; prefixed, as egglog has one namespace for everything."""
    return f"op_{op}" if _operands(op) == 1 else f"op_{op}_{arity}"


def variants(
    rules: Iterable[Rule], nodes: Iterable[Node]
) -> tuple[list[RuleAtArity], set[Signature]]:
    """Each rule at every arity that can occur, `*a, x, *b` at every position; and all signatures.

    A rule whose left side names an op that no node is of and no rule makes is left out.
    """
    rules = tuple(rules)
    signatures = {(n.op, len(n.operands)) for n in nodes}
    signatures |= {
        ("unpack", 1) for r in rules if variables_asked(r, "is_unpacked")
    }  # asked for, made or not
    chosen: dict[tuple[int, tuple[tuple[str, int], ...]], Rule] = {}
    numbered = list(enumerate(rules))
    grows = True
    while grows:
        grows = False
        for i, rule in numbered:
            for choice in _arities(rule, signatures):
                if (i, choice) in chosen:
                    continue
                new = _signatures(rule.right, dict(choice)) - signatures
                wide = any(_operands(op) is None and n > MOST_OPERANDS for op, n in new)
                if not wide:
                    chosen[i, choice] = rule
                    signatures |= new
                    grows = True
    ordered = sorted(chosen, key=lambda key: key[0])
    return [RuleAtArity(chosen[i, c], n, c) for n, (i, c) in enumerate(ordered)], signatures


def too_wide(rules: Iterable[Rule], program: Program) -> set[str]:
    """Rules whose variants take egglog more than `MOST_PAIRS` pairs.

    It keeps about 12 KiB per op of a rule and name in it: the transposes of a concat of 1,500
    would take 27 GB.
    """
    pairs: Counter[str] = Counter()
    for v in variants(rules, program.nodes)[0]:
        pairs[v.rule.name] += _pairs(v.rule, dict(v.arity))
    return {name for name, count in pairs.items() if count > MOST_PAIRS}


def _pairs(rule: Rule, arity: Mapping[str, int]) -> int:
    """Ops of a variant times operands named in it."""
    terms = (rule.left, *rule.also, rule.right)
    ops = [slot for term in terms for slot in slots(term, arity)]
    times = [1 if count is None else count for _, count in ops]
    names = (n * operand_count(op, arity) for (op, _), n in zip(ops, times, strict=True))
    return sum(times) * sum(names)


def _signatures(term: Term, arity: Mapping[str, int]) -> set[Signature]:
    if isinstance(term, Splat):
        inner = term.inner
        return {(inner.op, len(inner.operands))} if isinstance(inner, Apply) else set()
    if isinstance(term, Var):
        return set()
    signatures = {(term.op, operand_count(term, arity))}
    return signatures.union(*(_signatures(o, arity) for o in term.operands))


def operand_count(term: Apply, arity: Mapping[str, int]) -> int:
    return sum(arity[splat_name(o)] if isinstance(o, Splat) else 1 for o in term.operands)


def prelude(
    signatures: set[Signature], bounds: Iterable[int] = (), facts: Iterable[str] = ()
) -> str:
    """Sorts, constructors, provenance functions and rulesets.

    bounds: `few_3` holds the program's values with three uses at most, as `fact_wasted` those of
    which the fact is known.
    """
    lines = ["(sort T)", *(f"(relation few_{b} (T))" for b in bounds)]
    lines += [f"(relation fact_{name} (T))" for name in facts]
    lines.append(f"(relation {INSTEAD_OF} (T T))")
    lines += [f"(function {name} (T) i64 :merge (max old new))" for name in ("uses", "unpacked")]
    for op, arity in sorted(signatures):
        sorts = " ".join(["i64"] + ["T"] * arity)
        name = constructor(op, arity)
        lines.append(f"(constructor {name} ({sorts}) T)")
        # of two nodes that become one the first names the rule, but the input's stays the input's
        lines.append(f"(function made_{name} ({sorts}) i64 :merge (| old (>> new 63)))")
    lines += [f"(ruleset phase_{p})" for p in (*PHASES, "leave", "want")]
    lines += [
        f"(rewrite ({constructor(op, n)} 0 x{' y' * (n - 1)}) x :subsume :ruleset phase_leave)"
        for op, n in OPTIONAL.items()
        if (op, n) in signatures
    ]
    return "\n".join(lines)


def row_tables(texts: Iterable[RuleText]) -> str:
    """Tables of what variants ask for and are given: rows begin with the variant's number.

    One for all variants whose rows are as wide: what egglog takes to add a rule grows with the
    number of tables, and there are hundreds of variants.
    """
    names = {name for text in texts for name in (text.want, text.do)}
    columns = {name: int(name.split("_")[1]) + 1 for name in names}
    return "\n".join(f"(relation {n} ({' '.join(['i64'] * columns[n])}))" for n in sorted(names))


def first_stage(signatures: Iterable[Signature]) -> str:
    """Rules that remember every node that is there, to be run when the first stage ends.

    A table beside the nodes, so that nodes that become one later are still known.
    """
    lines = []
    for op, arity in sorted(signatures):
        name, at = constructor(op, arity), " ".join(["a", *(f"x{i}" for i in range(arity))])
        lines.append(f"(relation first_{name} ({' '.join(['i64'] + ['T'] * arity)}))")
        lines.append(f"(rule ((= e ({name} {at}))) ((first_{name} {at})) :ruleset phase_first)")
    return "\n".join(["(ruleset phase_first)", *lines])


def value_name(i: int) -> str:
    """The egglog name of a node's value.

    It must not end in a digit: egglog makes fresh names by adding digits, so that `$v1` and `$v11`
    in one term become one value without a word.
    """
    return f"$v{i}_"


def program_lines(
    program: Program, facts: Facts, interner: Interner, bounds: Sequence[int] = ()
) -> list[str]:
    """One `let` per node; the input's nodes are made by no rule."""
    lines = []
    for i, n in enumerate(program.nodes):
        term = _call(n, interner)
        lines.append(f"(let {value_name(i)} {term})\n(set (made_{term[1:]} -1)")
        lines += _use_lines(i, facts.uses[i], bounds)
        lines += [f"(fact_{f} {value_name(i)})" for f, held in facts.holds.items() if held[i]]
    return lines


def _use_lines(i: int, uses: int, bounds: Sequence[int]) -> list[str]:
    if not uses:
        return []
    few = [f"(few_{b} {value_name(i)})" for b in bounds if uses <= b]
    return [f"(set (uses {value_name(i)}) {uses})", *few]


def equality_lines(
    equalities: Equalities,
    before: Sequence[Node],
    number: int,
    interner: Interner,
    bounds: Sequence[int] = (),
) -> list[str]:
    """Equalities beside the program as terms, made by the variant `number`, and their unions.

    before: the nodes that those of `equalities` are numbered on from.
    """
    lines: list[str] = []
    matched = {n: interner.id(before[value].attr) for n, value in equalities.instead_of}
    for i, (n, uses) in enumerate(
        zip(equalities.nodes, equalities.uses, strict=True), equalities.first
    ):
        term, by = _call(n, interner), number << SOURCE_BITS | matched.get(i, 0)
        lines.append(f"(let {value_name(i)} {term})\n(set (made_{term[1:]} {by})")
        lines += _use_lines(i, uses, bounds) if equalities.is_open else []
    for pairs, what in ((equalities.equal, "union"), (equalities.instead_of, INSTEAD_OF)):
        lines += [f"({what} {value_name(a)} {value_name(b)})" for a, b in pairs]
    return lines


def _call(n: Node, interner: Interner) -> str:
    inner = "".join(f" {value_name(o)}" for o in n.operands)
    return f"({constructor(n.op, len(n.operands))} {interner.id(n.attr)}{inner})"


def _arities(rule: Rule, signatures: set[Signature]) -> list[tuple[tuple[str, int], ...]]:
    """The arities of a rule's splats for which every op of its left side can occur."""
    choices: list[list[tuple[tuple[str, int], ...]]] = []
    for term in (rule.left, *rule.also):
        for node in _applies(term):
            splats = [splat_name(o) for o in node.operands if isinstance(o, Splat)]
            fixed = len(node.operands) - len(splats)
            totals = sorted(n for op, n in signatures if op == node.op)
            ways = _splits(splats, fixed, totals)
            if not ways:
                return []
            choices.append(ways)
    joined = (tuple(itertools.chain(*c)) for c in itertools.product(*choices))
    agreed = (tuple(sorted(set(c))) for c in joined)
    return list(dict.fromkeys(c for c in agreed if len({name for name, _ in c}) == len(c)))


def _applies(term: Term) -> list[Apply]:
    if isinstance(term, Splat):
        return _applies(term.inner)
    if not isinstance(term, Apply):
        return []
    inner = [a for o in term.operands for a in _applies(o)]
    return [term, *inner]


def _splits(names: list[str], fixed: int, totals: list[int]) -> list[tuple[tuple[str, int], ...]]:
    """How many operands each splat takes, for every total; nothing to choose without splats."""
    if not names:
        return [()] if fixed in totals else []
    splits = []
    for total in totals:
        free = total - fixed
        if free < 0:
            continue
        # the last operand of each splat but the last one
        for ends in itertools.combinations_with_replacement(range(free + 1), len(names) - 1):
            counts = [b - a for a, b in itertools.pairwise((0, *ends, free))]
            splits.append(tuple(zip(names, counts, strict=True)))
    return splits


class RuleText:
    """The egglog text of one variant: the rule that asks and the rule that acts."""

    def __init__(self, variant: RuleAtArity):
        self.v = variant
        self.arity = dict(variant.arity)
        self.ids: list[str] = []  # attribute variables of the left side
        self.facts: list[str] = []
        self.marked = [
            (name, i)
            for name in sorted(variables_asked(variant.rule, "is_unpacked"))
            for i in range(self.arity[name])
        ]
        self.used = sorted(variables_asked(variant.rule, "uses"))
        self.asked_facts = [(f, x) for f in FACTS for x in sorted(variables_asked(variant.rule, f))]
        self.uses = [*self.used, *(mark(*m) for m in self.marked)]  # what a match says beside ids
        self.outs: list[str] = []  # attribute variables of the right side, one for each node made
        self.want = self.do = ""  # the tables of what it asks for, and of what it is given
        self.text = self._text()

    def _text(self) -> str:
        rule, n = self.v.rule, self.v.number
        root = self._match(rule.left)
        self.facts.append(f"(= root {root})")
        self.facts += [f"(= x_{rule.left.name} root)"] if rule.left.name else []
        for term in rule.also:
            also = self._match(term)
            self.facts.append(f"(= also{len(self.facts)} {also})")
            self.facts += [f"(= x_{term.name} {also})"] if term.name else []
        marks = self._marks(n)
        self.facts += [f"(= use_{x} (uses x_{x}))" for x in self.used]
        self.facts += [f"(fact_{f} x_{x})" for f, x in self.asked_facts]
        self.facts += [f"(= use_{mark(x, i)} (unpacked x_{x}_{i}))" for x, i in self.marked]
        if rule.also:  # what is joined with itself too often is left out of the join
            self.facts += [f"(few_{bound} x_{x})" for x, bound in few_uses(rule)]
        keys = [*self.ids, *(f"use_{x}" for x in self.uses)]
        actions, outs = self._actions(rule, root)
        self.outs = outs
        self.want, self.do = f"want_{len(keys)}", f"do_{len(keys) + len(outs)}"
        key, facts = " ".join([str(n), *keys]), " ".join(self.facts)
        row = " ".join([key, *outs])
        return "\n".join(
            [
                *marks,
                f"(rule ({facts}) (({self.want} {key})) :ruleset phase_want"
                f' :name "{self.v.name}{ASKS}")',
                f"(rule ({facts} ({self.do} {row})) ({' '.join(actions)})"
                f' :ruleset phase_{rule.phase} :name "{self.v.name}")',
            ]
        )

    def _marks(self, n: int) -> list[str]:
        """Rules that note which operands in question are unpacked values, so far."""
        if not self.marked:
            return []
        actions = " ".join(f"(set (unpacked x_{x}_{i}) 0)" for x, i in self.marked)
        unpack = f"(= unpacked{n} ({constructor('unpack', 1)} l{n} y{n}))"
        return [
            f"(rule ({' '.join(self.facts)}) ({actions}) :ruleset phase_want)",
            f"(rule ({unpack}) ((set (unpacked unpacked{n}) 1)) :ruleset phase_want)",
        ]

    def _match(self, term: Term) -> str:
        """A left-side pattern; nested ops that have a name become facts of their own."""
        if isinstance(term, Var):
            return f"x_{term.name}"
        assert isinstance(term, Apply)
        attr = f"a{len(self.ids)}"
        self.ids.append(attr)
        inner = [x for o in term.operands for x in self._operand(o)]
        name = constructor(term.op, operand_count(term, self.arity))
        return f"({' '.join([name, attr, *inner])})"

    def _operand(self, term: Term) -> list[str]:
        if isinstance(term, Splat) and isinstance(term.inner, Apply):
            return [self._one(term.inner.op, x) for x in self._splat(splat_name(term))]
        if isinstance(term, Splat):
            return self._splat(splat_name(term))
        pattern = self._match(term)
        if isinstance(term, Apply) and term.name:
            self.facts.append(f"(= x_{term.name} {pattern})")
            return [f"x_{term.name}"]
        return [pattern]

    def _one(self, op: str, operand: str) -> str:
        """One operand of `*op(xs, …)`; its attribute is one of a list."""
        attr = f"a{len(self.ids)}"
        self.ids.append(attr)
        return f"({constructor(op, 1)} {attr} {operand})"

    def _splat(self, name: str) -> list[str]:
        return [f"x_{name}_{i}" for i in range(self.arity[name])]

    def _actions(self, rule: Rule, root: str) -> tuple[list[str], list[str]]:
        outs: list[str] = []
        actions: list[str] = []
        (result,) = self._make(rule.right, outs, actions, is_root=True)
        actions.append(f"(union root {result})")
        if rule.apply == "replace":
            actions.append(f"(subsume {root})")
        return actions, outs

    def _make(
        self, term: Term, outs: list[str], actions: list[str], is_root: bool = False
    ) -> list[str]:
        """Append the actions that build a right side; returns the names of its values."""
        if isinstance(term, Var):
            return [f"x_{term.name}"]
        if isinstance(term, Splat):
            names = self._splat(splat_name(term))
            if isinstance(term.inner, Var):
                return names
            op = term.inner.op
            others = [x for o in term.inner.operands[1:] for x in self._make(o, outs, actions)]
            return [self._node(op, [x, *others], outs, actions) for x in names]
        inner = [x for o in term.operands for x in self._make(o, outs, actions)]
        return [self._node(term.op, inner, outs, actions, is_root)]

    def _node(
        self,
        op: str,
        inner: list[str],
        outs: list[str],
        actions: list[str],
        is_root: bool = False,
    ) -> str:
        """Only the outermost node has a source: it is in the class of what was matched."""
        attr, name = f"o{len(outs)}", f"n{len(outs)}"
        outs.append(attr)
        call = " ".join([constructor(op, len(inner)), attr, *inner])
        source = self.v.number << SOURCE_BITS
        actions.append(f"(let {name} ({call}))")
        actions.append(f"(set (made_{call}) {f'(| {source} a0)' if is_root else source})")
        return name
