"""Rules → well-typed instances of their left sides: concrete attributes, and types of variables.

Built from the outermost op inwards: an op proposes an attribute that fits what is wanted of its
result and what is known of operands whose variables are bound already. Every proposal is random,
and fails (`Misfit`) rather than lie; the caller then draws anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from eqsat.hunt.draft import Draft, Part, Types, tensor_names
from eqsat.hunt.nests import Misfit, Scale
from eqsat.model.attr import Attr, ShapeError
from eqsat.model.generic import Generic
from eqsat.model.rules import Apply, Rule, Splat, Term
from eqsat.model.target import Tile
from eqsat.model.tensor import TensorType
from eqsat.ops.attrs import FUNCTIONS
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.programs.facts import FACTS
from eqsat.saturate.rows import (
    Answers,
    NoRow,
    Row,
    RuleAtArity,
    fact_key,
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
        """What the rule makes of this match; `rule` may be another one with the same left side.

        EqsatError (E110) if it builds what cannot be.
        """
        return self._table(rule, functions).rows(list(self.attrs), dict(self.uses))

    def conditions(self, functions: Functions | None = None) -> list[bool | None]:
        """Each entry of `where:` by itself; None if it cannot be evaluated here."""
        return self._table(None, functions).conditions(list(self.attrs), dict(self.uses))

    def _table(self, rule: Rule | None, functions: Functions | None) -> _Probe:
        table = {**self.functions, **(functions or {})}
        return _Probe(RuleAtArity(rule or self.rule, 0, self.arity), table)


class _Probe(Answers):
    """The table of a rule, asked for its conditions one by one."""

    def conditions(self, attrs: list[Attr], uses: dict[str, int]) -> list[bool | None]:
        env: dict[str, Any] = {}
        verdicts: list[bool | None] = [None] * len(self.rule.where)
        try:
            self._bind(env, attrs, uses)
            env = next(self._each(env, list(self.rule.foreach)), env)
            for name, expr in self.rule.lets:
                env[name] = self.value(expr, env)
        except NoRow:
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
    draft = Draft(rng, theme, dict(arity), {} if like is None else like.parts)
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


def random_facts(rule: Rule, rng: Random) -> list[tuple[str, int]]:
    """What the rule asks of values of a program; mostly it holds, so that there is a match."""
    return [(key, int(rng.random() < 0.8)) for key, _ in all_facts(rule)]


def all_facts(rule: Rule) -> list[tuple[str, int]]:
    """What the rule asks of values of a program, all of which holds."""
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
    channels = tuple(Tile(tuple(zip("ck", _pair(t), strict=True)), 1.0) for t in tiles)
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


def _pair(t: Tile) -> tuple[int, int]:
    return t["k"], t["n"]


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
