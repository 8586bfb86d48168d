"""Rules → well-typed instances of their left sides, random ones and those of their examples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import Any

from eqsat.hunt.draft import Draft, Part, Types, tensor_names
from eqsat.hunt.nests import Misfit, Scale
from eqsat.model.attr import Attr, ShapeError
from eqsat.model.diag import Diagnostic, EqsatError, Note
from eqsat.model.generic import Generic, Result
from eqsat.model.program import Builder, Program
from eqsat.model.rules import (
    Apply,
    Example,
    Function,
    Name,
    Rule,
    RuleSet,
    Splat,
    Term,
    Value,
    Var,
)
from eqsat.model.target import Target, Tile, UntiledKernel
from eqsat.model.tensor import TensorType
from eqsat.ops.attrs import FUNCTIONS
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.programs.facts import FACTS
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from eqsat.saturate.rows import (
    Answers,
    NoRow,
    Row,
    RuleAtArity,
    fact_key,
    is_moot,
    mark,
    splat_name,
    variables_asked,
)

Functions = Mapping[str, Callable[..., Any]]
MANY = 9  # uses of a value: more than any rule's bound on them


@dataclass(frozen=True)
class Instance:
    """A left side with everything filled in: what egglog would have matched.

    attrs: of its ops in pre-order, as `Rows` takes them; tensors: the type of every tensor
    variable, or of each operand of a splat; functions: the target's answers here.
    """

    rule: Rule
    arity: tuple[tuple[str, int], ...]
    attrs: tuple[Attr, ...]
    tensors: tuple[tuple[str, Types], ...]
    uses: tuple[tuple[str, int], ...]
    functions: Functions = field(default_factory=dict, compare=False)
    parts: Mapping[Part, Attr] = field(default_factory=dict, compare=False)

    @property
    def size(self) -> int:
        """Elements of all tensor variables, and a little for every one and every attribute."""
        return sum(t.size + 1 + t.rank for _, ts in self.tensors for t in ts) + len(self.attrs)

    def rows(self, rule: Rule | None = None, functions: Functions | None = None) -> list[Row]:
        """Rows of attributes for this match; `rule` may be another one with the same left side.

        EqsatError (E110) if it builds what cannot be.
        """
        return self._table(rule, functions).rows(list(self.attrs), dict(self.uses))

    def conditions(self, functions: Functions | None = None) -> list[bool | None]:
        """Each entry of `where:` by itself; None if it cannot be evaluated here."""
        return self._table(None, functions).conditions(list(self.attrs), dict(self.uses))

    def _table(self, rule: Rule | None, functions: Functions | None) -> ConditionProbe:
        table = {**self.functions, **(functions or {})}
        return ConditionProbe(RuleAtArity(rule or self.rule, 0, self.arity), table)


class ConditionProbe(Answers):
    """The table of a rule, asked for its conditions one by one."""

    def binds(self, attrs: list[Attr], uses: dict[str, int]) -> bool:
        """Whether these attributes are what the left side writes out, and equal where it says."""
        try:
            self._bind({}, attrs, uses)
        except NoRow:
            return False
        return True

    def conditions(self, attrs: list[Attr], uses: dict[str, int]) -> list[bool | None]:
        env: dict[str, Any] = {}
        verdicts: list[bool | None] = [None] * len(self.rule.where)
        try:
            self._bind(env, attrs, uses)
            env = next(self._each(env, list(self.rule.foreach)), env)
            for name, expr in self.rule.lets:
                env[name] = self.value(expr, env)
        except (NoRow, KeyError):
            pass  # conditions on what is bound so far can still be evaluated
        for i, condition in enumerate(self.rule.where):
            try:
                verdicts[i] = bool(self.value(condition, env))
            except (NoRow, KeyError):
                continue
        return verdicts


def draw(
    rule: Rule,
    rng: Random,
    scale: Scale | None = None,
    tensor_types: Mapping[str, TensorType] | None = None,
    like: Instance | None = None,
) -> Instance | None:
    """A random instance of the left side; None if this attempt did not fit together.

    tensor_types: those that tensor variables must have. like: one that had a right side; most
    attributes are then taken from it, or vary it.
    """
    arity = _arities(rule, rng) if like is None else like.arity
    theme = (scale or Scale()).themed(rng)
    draft = Draft(rng, theme, dict(arity), {} if like is None else like.parts, _named_ops(rule))
    draft.tensors.update({name: (t,) for name, t in (tensor_types or {}).items()})
    try:
        attrs = [a for side in (rule.left, *rule.also) for a in draft.side(side)]
    except (Misfit, ShapeError):
        return None
    names = [n for n in _named(rule) if n in draft.tensors]
    uses = [(name, rng.choice((0, 1, 1, 2, MANY))) for name in names]
    uses += [(mark(name, i), rng.choice((0, 0, 1))) for name, n in arity for i in range(n)]
    uses += random_facts(rule, rng)
    tensors = tuple(
        (name, types) for name, types in draft.tensors.items() if name not in draft.inner
    )
    tiles = random_tiles(rng)
    functions = target_functions(rng, tiles)
    return Instance(rule, arity, tuple(attrs), tensors, tuple(uses), functions, draft.parts)


def _named_ops(rule: Rule) -> dict[str, str]:
    """Signatures of the left side that a condition says the op of."""
    calls = [c for c in rule.where if isinstance(c, Function) and c.name == "is_op"]
    pairs = ((c.args[1], c.args[0]) for c in calls)
    return {s.name: n.value for s, n in pairs if isinstance(s, Name) and isinstance(n, Value)}


def random_facts(rule: Rule, rng: Random) -> list[tuple[str, int]]:
    """Random facts the rule asks of a program; most of them hold, so that there is a match."""
    return [(key, int(rng.random() < 0.8)) for key, _ in all_facts(rule)]


def all_facts(rule: Rule) -> list[tuple[str, int]]:
    """Facts the rule asks of a program, all of which hold."""
    return [(fact_key(f, name), 1) for f in FACTS for name in sorted(variables_asked(rule, f))]


# ---- what the target answers --------------------------------------------------------------------
def random_tiles(rng: Random) -> tuple[Tile, ...]:
    """A small vocabulary: extents 1 … 4 in m, n, k, in any order, some packed twice."""
    return tuple(_random_tile(rng) for _ in range(rng.choice((1, 1, 2))))


def _random_tile(rng: Random) -> Tile:
    sizes = {r: rng.choice((1, 2, 2, 3, 3, 4)) for r in "mnk"}
    order = tuple(rng.sample("mnk", 3)) if rng.random() < 0.4 else ("m", "n", "k")
    vnni = 2 if sizes["k"] % 2 == 0 and rng.random() < 0.4 else 1
    return Tile(tuple(sizes.items()), 1.0, order=order, vnni=vnni)


def target_functions(rng: Random, tiles: tuple[Tile, ...]) -> dict[str, Callable[..., Any]]:
    """An answer for every `target.…` function, the same each time it is asked."""
    functions: dict[str, Callable[..., Any]] = {}
    channels = tuple(Tile(tuple(zip("ck", (t["k"], t["n"]), strict=True)), 1.0) for t in tiles)
    for name, function in FUNCTIONS.items():
        if not name.startswith("target."):
            continue
        if function.result == "tiles":
            functions[name] = _answer(tiles, channels)
        elif function.result in ("int", "bool"):
            stream = Random(f"{name} {tiles}")  # so a further function changes no other draw
            value = stream.randint(1, 8) if function.result == "int" else stream.random() < 0.5
            functions[name] = lambda *_, value=value: value
    return functions


def _answer(tiles: tuple[Tile, ...], channels: tuple[Tile, ...]) -> Callable[..., Any]:
    """Windows are tiled in channels, as a vocabulary of convolutions says it."""

    def answer(asked: Any, *_: Any) -> tuple[Tile, ...]:
        roles = contraction_roles(asked) if isinstance(asked, Generic) else None
        return channels if roles is not None and roles.other else tiles

    return answer


# ---- splats -------------------------------------------------------------------------------------
def _splatted(term: Term) -> Iterator[tuple[Apply, list[str]]]:
    """Ops with splats among their operands, and the variables these run over."""
    if isinstance(term, Splat):
        term = term.inner
    if not isinstance(term, Apply):
        return
    names = [splat_name(o) for o in term.operands if isinstance(o, Splat)]
    if names:
        yield term, names
    for o in term.operands:
        yield from _splatted(o)


def _arities(rule: Rule, rng: Random) -> tuple[tuple[str, int], ...]:
    arities: dict[str, int] = {}
    for side in (rule.left, *rule.also):
        for node, names in _splatted(side):
            fixed = len(node.operands) - len(names)
            for name in names:
                if name not in arities and len(names) == 1:
                    least = 0 if fixed else 1
                    arities[name] = max(least, rng.choice((1, 1, 2, 2, 2, 3, 4)) - fixed)
                elif name not in arities:
                    arities[name] = rng.choice((0, 0, 1, 1, 2))
    return tuple(sorted(arities.items()))


def _named(rule: Rule) -> list[str]:
    """Names a rule may ask the uses of."""
    return list(dict.fromkeys(n for t in (rule.left, *rule.also) for n in tensor_names(t)))


# ---- reached or avoided --------------------------------------------------------------------------
def check_examples(ruleset: RuleSet) -> list[Diagnostic]:
    """Every example of the set's own rules, run with all of its rules, imported ones too.

    A diagnostic (E101, E110) per failure.
    """
    machine = example_target()
    problems: list[Diagnostic] = []
    without_imports = replace(
        ruleset, rules=tuple(r for r in ruleset.rules if r.ruleset == ruleset.name)
    )
    for rule, example in all_examples(without_imports):
        try:
            failed = check_example(ruleset, rule, example, machine)
        except EqsatError as error:  # E110: a rule of the set builds what cannot be
            problems += error.diagnostics
        else:
            problems += [failed] if failed else []
    return list(dict.fromkeys(problems))


def example_target() -> Target:
    """The reference machine, with kernels, whose producers and readers execute their loops alike.

    So what a rule asks of a target holds there.
    """
    from eqsat.lang.targets import load_target

    machine = load_target("reference")
    fusion = replace(machine.fusion, index_relation="identity")
    return replace(machine, executor="kernels", fusion=fusion)


def all_examples(ruleset: RuleSet) -> Iterator[tuple[Rule, Example]]:
    for rule in ruleset.rules:
        for example in rule.examples:
            yield rule, example


def check_example(
    ruleset: RuleSet, rule: Rule, example: Example, target: Target
) -> Diagnostic | None:
    """None if start and goal are one class (`reaches`), or are not (`avoids`)."""
    from eqsat.lang.rule import parse_example

    start, goal = parse_example(rule, example)
    if _named_ops(rule):  # they match elementwise ops as a program has them that is read
        start, goal = merge_elementwise(start), merge_elementwise(goal)
    if any("target.orders_forced" in str(c) for c in rule.where):
        pools = ("pool", (UntiledKernel(1.0, image="nhwc"),))
        target = replace(target, orders_forced=True, untiled=(*target.untiled, pools))
    graph = saturate(side_by_side(start, goal), ruleset, target)
    equal = graph.roots[0] == graph.roots[1]
    if equal == bool(example.reaches):
        return None
    what = "goal was reached" if equal else "goal was not reached"
    return Diagnostic(
        "E101",
        f"example `{example.name}` of `{rule.name}`: {what}",
        example.goal_span,
        notes=(Note(example.start_span, "from here"),),
    )


def side_by_side(a: Program, b: Program) -> Program:
    """One program over the same inputs with the results of both."""
    builder = Builder(a.name)
    results: list[int] = []
    for p in (a, b):
        new: dict[int, int] = {}
        for i, n in enumerate(p.nodes):
            new[i] = builder.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        results += [new[r] for r in p.results]
    return builder.build(results)


# ---- instances -----------------------------------------------------------------------------------
MOST = 40  # matches per rule
TARGETS = 20  # draws of what a target answers, until the rule may apply there


@dataclass(frozen=True)
class Bindings:
    """A partial match: nodes of variables and splats, attributes so far in pre-order.

    root: the node that the left side stands for.
    """

    nodes: Mapping[str, int] = field(default_factory=dict)
    splats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    attrs: tuple[Attr, ...] = ()
    root: int = -1


def seeds(rule: Rule, rng: Random) -> list[Instance]:
    """Matches of the left side in the programs the rule's examples start from."""
    from eqsat.lang.rule import parse_example

    instances: list[Instance] = []
    for example in rule.examples:
        try:
            program, _ = parse_example(rule, example)
        except EqsatError:
            continue
        instances += [_instance(rule, program, m, rng) for m in matches(rule, program)]
    return instances[:MOST]


def matches(rule: Rule, program: Program) -> Iterator[Bindings]:
    """Every way to match the left side somewhere, and the further patterns anywhere."""
    sides = (rule.left, *rule.also)
    ops = [n.op for n in program.nodes]
    for roots in product(*([i for i, op in enumerate(ops) if op == s.op] for s in sides)):
        partial = [Bindings(root=roots[0])]
        for side, root in zip(sides, roots, strict=True):
            partial = [m for f in partial for m in _match(program, side, root, f)]
        yield from partial


def _match(program: Program, term: Term, node: int, match: Bindings) -> Iterator[Bindings]:
    if isinstance(term, Var):
        if match.nodes.get(term.name, node) == node:
            yield replace(match, nodes={**match.nodes, term.name: node})
        return
    n = program.nodes[node]
    if not isinstance(term, Apply) or n.op != term.op:
        return
    if term.name:
        if match.nodes.get(term.name, node) != node:
            return
        match = replace(
            match, nodes={**match.nodes, term.name: node}, named=match.named | {term.name}
        )
    attr: Attr = n.attr if isinstance(n.attr, Result) or n.op != "result" else Result(0)
    yield from _operands(program, term, n.operands, replace(match, attrs=(*match.attrs, attr)))


def _operands(
    program: Program, term: Apply, operands: tuple[int, ...], match: Bindings
) -> Iterator[Bindings]:
    splats = sum(isinstance(o, Splat) for o in term.operands)
    free = len(operands) - (len(term.operands) - splats)
    if free < 0 or (not splats and free):
        return
    for ends in itertools.combinations_with_replacement(range(free + 1), max(splats - 1, 0)):
        sizes = [b - a for a, b in itertools.pairwise((0, *ends, free))]
        yield from _in_order(program, term.operands, operands, sizes, match)


def _in_order(
    program: Program,
    terms: tuple[Term, ...],
    operands: tuple[int, ...],
    sizes: list[int],
    match: Bindings,
) -> Iterator[Bindings]:
    if not terms:
        yield match
        return
    first, *rest = terms
    if not isinstance(first, Splat):
        for m in _match(program, first, operands[0], match):
            yield from _in_order(program, tuple(rest), operands[1:], sizes, m)
        return
    taken, left = operands[: sizes[0]], operands[sizes[0] :]
    for m in _splat(program, first, taken, match):
        yield from _in_order(program, tuple(rest), left, sizes[1:], m)


def _splat(
    program: Program, term: Splat, taken: tuple[int, ...], match: Bindings
) -> Iterator[Bindings]:
    inner, name = term.inner, splat_name(term)
    if isinstance(inner, Apply):
        nodes = [program.nodes[t] for t in taken]
        if any(n.op != inner.op for n in nodes):
            return
        match = replace(match, attrs=(*match.attrs, *(n.attr for n in nodes)))
        taken = tuple(n.operands[0] for n in nodes)
    if match.splats.get(name, taken) == taken:
        yield replace(match, splats={**match.splats, name: taken})


def _instance(rule: Rule, program: Program, m: Bindings, rng: Random) -> Instance:
    type_of = [n.types[0] for n in program.nodes]
    single = {n: (type_of[i],) for n, i in m.nodes.items() if n not in m.named}
    several = {n: tuple(type_of[i] for i in nodes) for n, nodes in m.splats.items()}
    arity = tuple(sorted((n, len(nodes)) for n, nodes in m.splats.items()))
    uses = (*((name, rng.choice((1, MANY))) for name in m.nodes), *all_facts(rule))
    drawn = (target_functions(rng, random_tiles(rng)) for _ in range(TARGETS))
    functions = next((f for f in drawn if not is_moot(rule, f)), {})
    tensors = tuple({**single, **several}.items())
    return Instance(rule, arity, m.attrs, tensors, uses, functions)
