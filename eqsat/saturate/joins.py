"""How often the left sides of a rule match a program together, before any rule has run.

A rule with `also` joins matches: where n ops read one value there are n² pairs of them, and egglog
cannot be stopped while it joins. So the join is counted first, on the input program.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eqsat.model.program import Program
from eqsat.model.rules import Apply, AttrExpr, Compare, Function, Name, Rule, Splat, Term, Value

Binding = Mapping[str, int]  # variable -> node
Key = tuple[int, ...]


def too_many(rules: Iterable[Rule], program: Program, uses: Sequence[int], most: int) -> set[str]:
    """The rules whose left sides match the program more than `most` times together."""
    joined = [r for r in rules if r.also]
    if not joined:
        return set()
    by_op: dict[str, list[int]] = defaultdict(list)
    for i, n in enumerate(program.nodes):
        by_op[n.op].append(i)
    joined = [r for r in joined if all(o in by_op for t in (r.left, *r.also) for o in _ops(t))]
    return {r.name for r in joined if _count(r, program, uses, by_op, most) > most}


def _ops(term: Term) -> Iterator[str]:
    """The ops that a program must have for a term to match it; a splat may have no operands."""
    if isinstance(term, Apply):
        yield term.op
        for o in term.operands:
            yield from _ops(o)


def _count(
    rule: Rule, program: Program, uses: Sequence[int], by_op: Mapping[str, list[int]], most: int
) -> int:
    """How many matches there are; more than `most` if they are too many to count."""
    few = {name: bound for name, bound in few_uses(rule)}
    terms = (rule.left, *rule.also)
    names = [_variables(t) for t in terms]
    counts: Counter[Key] = Counter({(): 1})
    bound: list[str] = []
    for i, term in enumerate(terms):
        later = set().union(*names[i + 1 :], ())
        shared = [n for n in bound if n in names[i]]
        needed = [n for n in dict.fromkeys((*bound, *sorted(names[i]))) if n in later]
        matches: dict[Key, Counter[Key]] = defaultdict(Counter)
        new = [n for n in needed if n not in bound]
        for b in _matches(term, program, by_op):
            if all(uses[b[n]] <= few[n] for n in few if n in b):
                matches[tuple(b[n] for n in shared)][tuple(b[n] for n in new)] += 1
        joined: Counter[Key] = Counter()
        for key, count in counts.items():
            at = dict(zip(bound, key, strict=True))
            for rest, more in matches.get(tuple(at[n] for n in shared), {}).items():
                at |= dict(zip(new, rest, strict=True))
                joined[tuple(at[n] for n in needed)] += count * more
                if len(joined) > most:
                    return most + 1
        counts, bound = joined, needed
    return sum(counts.values())


def _variables(term: Term) -> set[str]:
    """Names of single values; a splat's operands are not told apart."""
    if isinstance(term, Splat):
        return set()
    if not isinstance(term, Apply):
        return {term.name}
    return {term.name}.union(*map(_variables, term.operands)) - {""}


def _matches(term: Apply, program: Program, by_op: Mapping[str, list[int]]) -> Iterator[Binding]:
    for i in by_op.get(term.op, ()):
        yield from _match(term, i, program)


def _match(term: Term, node: int, program: Program) -> Iterator[dict[str, int]]:
    """The values of the variables, for every way in which the term can be this node."""
    if isinstance(term, Splat):
        yield {}
    elif not isinstance(term, Apply):
        yield {term.name: node}
    elif program.nodes[node].op == term.op:
        first = {term.name: node} if term.name else {}
        for operands in _aligned(term.operands, program.nodes[node].operands):
            inner = (_match(t, o, program) for t, o in operands)
            bindings = (_union((first, *b)) for b in itertools.product(*inner))
            yield from (b for b in bindings if b is not None)


def _union(bindings: Iterable[Binding]) -> dict[str, int] | None:
    """All bindings together; None if two give a variable different values."""
    union: dict[str, int] = {}
    for b in bindings:
        if any(union.setdefault(k, v) != v for k, v in b.items()):
            return None
    return union


def _aligned(terms: Sequence[Term], operands: Sequence[int]) -> Iterator[list[tuple[Term, int]]]:
    """Every way to give the terms that are no splats an operand each; splats take the rest."""
    places = [i for i, t in enumerate(terms) if not isinstance(t, Splat)]
    room = len(operands) - len(places)
    if room < 0 or (room and len(places) == len(terms)):
        return
    splats = len(terms) - len(places)
    for ends in itertools.combinations_with_replacement(range(room + 1), max(splats - 1, 0)):
        sizes = iter(b - a for a, b in itertools.pairwise((0, *ends, room)))
        at, aligned = 0, []
        for t in terms:
            if isinstance(t, Splat):
                at += next(sizes)
            else:
                aligned.append((t, operands[at]))
                at += 1
        yield aligned


def few_uses(rule: Rule) -> list[tuple[str, int]]:
    """(variable, bound) for every condition `uses(x) <= bound` of a rule, or one that implies it.

    A class has the most uses of any value in it, and they never become fewer. So a value that has
    too many in the input program need not be joined at all.
    """
    bounds = []
    for condition in rule.where:
        name, bound = _bound(condition)
        if name:
            bounds.append((name, bound))
    return bounds


def _bound(condition: AttrExpr) -> tuple[str, int]:
    if not isinstance(condition, Compare) or condition.op not in ("<=", "<", "=="):
        return "", 0
    f, limit = condition.left, condition.right
    if not isinstance(f, Function) or f.name != "uses" or not isinstance(limit, Value):
        return "", 0
    (arg,) = f.args
    if not isinstance(arg, Name) or not isinstance(limit.value, int):
        return "", 0
    return arg.name, limit.value - (condition.op == "<")
