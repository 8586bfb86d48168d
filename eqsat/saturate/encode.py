"""Program and rules → egglog text. An attribute is an interned i64, an e-class a term of sort T."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from eqsat.model.attrs import Attr
from eqsat.model.program import Node, Program
from eqsat.model.rules import PHASES, Apply, Function, Rule, Splat, Term, Var
from eqsat.ops.attrs import ARITY
from eqsat.saturate.rows import Variant

SOURCE_BITS = 32  # a `made` value is variant << SOURCE_BITS | attribute id of the matched node
# ops whose attribute 0 means "leave the operand as it is"
OPTIONAL = ("pack", "unpack")


class Interner:
    """Attributes to ids 1, 2, … and back; 0 is no attribute."""

    def __init__(self) -> None:
        self.ids: dict[Attr, int] = {}
        self.attrs: list[Attr | None] = [None]

    def id(self, attr: Attr | None) -> int:
        if attr is None:
            return 0
        found = self.ids.get(attr)
        if found is None:
            found = self.ids[attr] = len(self.attrs)
            self.attrs.append(attr)
        return found

    def __getitem__(self, i: int) -> Attr:
        attr = self.attrs[i]
        assert attr is not None
        return attr


def constructor(op: str, arity: int) -> str:
    """The egglog name of an op; prefixed, as egglog has one namespace for everything."""
    return f"op_{op}" if ARITY.get(op) == 1 else f"op_{op}_{arity}"


def signatures(program: Program, variants: Iterable[Variant]) -> set[tuple[str, int]]:
    """Every (op, arity) that can occur."""
    found = {(n.op, len(n.operands)) for n in program.nodes}
    found |= {(op, 1) for op, n in ARITY.items() if n == 1}
    for v in variants:
        arity = dict(v.arity)
        for term in (v.rule.left, v.rule.right, *v.rule.also):
            found |= _term_signatures(term, arity)
    return found


def _term_signatures(term: Term, arity: dict[str, int]) -> set[tuple[str, int]]:
    if isinstance(term, Splat):
        return {(term.inner.op, 1)} if isinstance(term.inner, Apply) else set()
    if isinstance(term, Var):
        return set()
    found = {(term.op, operand_count(term, arity))}
    return found.union(*(_term_signatures(o, arity) for o in term.operands))


def operand_count(term: Apply, arity: dict[str, int]) -> int:
    return sum(arity[_over(o)] if isinstance(o, Splat) else 1 for o in term.operands)


def _over(s: Splat) -> str:
    """The splat variable that `*xs` or `*pack(xs, …)` runs over."""
    if isinstance(s.inner, Var):
        return s.inner.name
    (x,) = s.inner.operands
    assert isinstance(x, Var)
    return x.name


def prelude(found: set[tuple[str, int]]) -> str:
    """Sorts, constructors, provenance functions and rulesets."""
    lines = ["(sort T)", "(function uses (T) i64 :merge (max old new))"]
    for op, arity in sorted(found):
        sorts = " ".join(["i64"] + ["T"] * arity)
        name = constructor(op, arity)
        lines.append(f"(constructor {name} ({sorts}) T)")
        lines.append(f"(function made_{name} ({sorts}) i64 :merge old)")
    lines += [f"(ruleset phase_{p})" for p in (*PHASES, "want")]
    lines += [
        f"(rewrite ({constructor(op, 1)} 0 x) x :subsume :ruleset phase_cancel)" for op in OPTIONAL
    ]
    return "\n".join(lines)


def program_lines(program: Program, interner: Interner) -> list[str]:
    """One `let` per node; the input's nodes are made by no rule."""
    lines = []
    for i, n in enumerate(program.nodes):
        term = _call(n, interner)
        lines.append(f"(let $v{i} {term})\n(set (made_{term[1:]} -1)")
        if program.uses[i]:
            lines.append(f"(set (uses $v{i}) {program.uses[i]})")
    return lines


def _call(n: Node, interner: Interner) -> str:
    inner = "".join(f" $v{o}" for o in n.operands)
    return f"({constructor(n.op, len(n.operands))} {interner.id(n.attr)}{inner})"


def variants(rules: Iterable[Rule], arities: dict[str, set[int]]) -> list[Variant]:
    """Each rule at every arity of the generics that exist; `*a, x, *b` at every position."""
    found: list[Variant] = []
    for rule in rules:
        for choice in _arities(rule, arities):
            found.append(Variant(rule, len(found), choice))
    return found


def _arities(rule: Rule, arities: dict[str, set[int]]) -> list[tuple[tuple[str, int], ...]]:
    choices: list[list[tuple[tuple[str, int], ...]]] = []
    for term in (rule.left, *rule.also):
        for node in _applies(term):
            splats = [o.inner.name for o in node.operands
                      if isinstance(o, Splat) and isinstance(o.inner, Var)]  # fmt: skip
            if splats:
                fixed = len(node.operands) - len(splats)
                choices.append(_splits(splats, fixed, sorted(arities.get(node.op, set()))))
    return [tuple(itertools.chain(*c)) for c in itertools.product(*choices)]


def _applies(term: Term) -> list[Apply]:
    if not isinstance(term, Apply):
        return []
    return [term, *(a for o in term.operands for a in _applies(o))]


def _splits(names: list[str], fixed: int, totals: list[int]) -> list[tuple[tuple[str, int], ...]]:
    found = []
    for total in totals:
        free = total - fixed
        if free < 0:
            continue
        if len(names) == 1:
            found.append(((names[0], free),))
        else:
            a, b = names
            found += [((a, i), (b, free - i)) for i in range(free + 1)]
    return found


class RuleText:
    """The egglog text of one variant: its tables, the rule that asks and the rule that acts."""

    def __init__(self, variant: Variant):
        self.v = variant
        self.arity = dict(variant.arity)
        self.ids: list[str] = []  # attribute variables of the left side
        self.facts: list[str] = []
        self.uses = sorted(_used(variant.rule))

    def text(self) -> str:
        rule, n = self.v.rule, self.v.number
        root = self._match(rule.left)
        self.facts.append(f"(= root {root})")
        for term in rule.also:
            also = self._match(term)
            self.facts.append(f"(= also{len(self.facts)} {also})")
        self.facts += [f"(= use_{x} (uses x_{x}))" for x in self.uses]
        keys = [*self.ids, *(f"use_{x}" for x in self.uses)]
        actions, outs = self._actions(rule, root)
        key, width = " ".join(keys), len(keys)
        out = " ".join(outs)
        sort = " ".join(["i64"] * width)
        full = " ".join(["i64"] * (width + len(outs)))
        facts = " ".join(self.facts)
        return "\n".join(
            [
                f"(relation want_{n} ({sort}))",
                f"(relation do_{n} ({full}))",
                f"(rule ({facts}) ((want_{n} {key})) :ruleset phase_want)",
                f"(rule ({facts} (do_{n} {key} {out})) ({' '.join(actions)})"
                f' :ruleset phase_{rule.phase} :name "{self.v.name}")',
            ]
        )

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
        if isinstance(term, Splat):
            assert isinstance(term.inner, Var)
            return self._splat(term.inner.name)
        pattern = self._match(term)
        if isinstance(term, Apply) and term.name:
            self.facts.append(f"(= x_{term.name} {pattern})")
            return [f"x_{term.name}"]
        return [pattern]

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
            names = self._splat(_over(term))
            if isinstance(term.inner, Var):
                return names
            op = term.inner.op
            return [self._node(op, [x], outs, actions) for x in names]
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
        made = self.v.number << SOURCE_BITS
        actions.append(f"(let {name} ({call}))")
        actions.append(f"(set (made_{call}) {f'(| {made} a0)' if is_root else made})")
        return name


def _used(rule: Rule) -> set[str]:
    """Variables whose uses in the input program a condition asks for."""
    found: set[str] = set()

    def walk(e: object) -> None:
        if isinstance(e, Function) and e.name == "uses":
            found.update(a.name for a in e.args)  # type: ignore[union-attr]
        for part in ("args", "left", "right", "inner", "base"):
            value = getattr(e, part, ())
            for x in value if isinstance(value, tuple) else (value,):
                walk(x)

    for e in (*rule.where, *(x for _, x in rule.lets), *(x for _, x in rule.foreach)):
        walk(e)
    return found
