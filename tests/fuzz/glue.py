"""Left sides of rules inside of random programs: where a rule matches, and what others do to it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from eqsat.hunt.instances import Instance, draw
from eqsat.hunt.nests import Scale
from eqsat.hunt.sides import Application, Key, Lefts, Ref, Side, left_trees
from eqsat.model.attr import ShapeError
from eqsat.model.layout import Layout
from eqsat.model.rules import Apply, Rule, Splat, Term, Var
from eqsat.model.tensor import TensorType, is_float
from fuzz.programs import Maker

TRIES = 30
CLAIMS = ("unpack", "retype", "relax")  # ops that know what the lanes beyond the end hold


class GlueMaker(Maker):
    """A maker that also puts in left sides of rules, over the values that are there."""

    def __init__(self, seed: int, exact: bool, rules: Sequence[Rule]):
        super().__init__(seed, exact)
        self.rules = [r for r in rules if not _has_weight(r.left)]

    def left_side(self, x: int) -> int | None:
        """An instance of some rule that reads `x` if a variable of it can."""
        if not self.rules:
            return None
        rule = self.rng.choice(self.rules)
        names = [n for t in (rule.left, *rule.also) for n in _variables(t)]
        known = {self.rng.choice(names): self.b.type(x)} if names else {}
        rng = random.Random(self.rng.getrandbits(32))
        for n in range(TRIES):
            fixed = known if n < TRIES // 2 else {}
            found = draw(rule, rng, Scale(rank=3, dim=8, points=1000), fixed)
            if found is not None and self._is_wanted(found):
                made = self._add(found)
                if made is not None:
                    return made
        return None

    def _is_wanted(self, found: Instance) -> bool:
        """In smooth programs there are no jumps, so no integers either."""
        types = [t for _, ts in found.tensors for t in ts]
        return self.exact or all(is_float(t.dtype) for t in types)

    def _add(self, found: Instance) -> int | None:
        sides = left_trees(found.rule, dict(found.arity), found.attrs)
        if not all(_is_honest(t) for side in (sides.root, *sides.also) for t in side.walk()):
            return None
        types = {(n, i): t for n, ts in found.tensors for i, t in enumerate(ts)}
        leaves: dict[Key, int] = {}
        for layout, ref in _claimed(sides):
            leaves[ref.key] = self._packed(layout, types[ref.key])
        for key, t in types.items():
            if key not in leaves:
                leaves[key] = self.operand(t.shape, t.dtype)
        try:
            made = [self._tree(t, leaves) for t in (*sides.also, sides.root)]
        except (ShapeError, ValueError):
            return None
        self.values += [m for m in made[:-1] if self._is_whole(m)]
        return made[-1] if self._is_whole(made[-1]) else None

    def _packed(self, layout: Layout, t: TensorType) -> int:
        x = self.operand(layout.source, t.dtype)
        return self.b.add("pack", (x,), layout)

    def _tree(self, side: Side, leaves: dict[Key, int]) -> int:
        if isinstance(side, Ref):
            return leaves[side.key]
        operands = tuple(self._tree(o, leaves) for o in side.operands)
        return self.b.add(side.op, operands, side.attr)

    def _is_whole(self, x: int) -> bool:
        """One result, and nothing in it that another op may not read."""
        n = self.b.nodes[x]
        padded = isinstance(n.attr, Layout) and "?" in n.attr.pads and n.op != "unpack"
        return len(n.types) == 1 and not padded


def _has_weight(term: Term) -> bool:
    if isinstance(term, Splat):
        return _has_weight(term.inner)
    return isinstance(term, Apply) and (
        term.op == "weight" or any(_has_weight(o) for o in term.operands)
    )


def _variables(term: Term) -> Iterator[str]:
    match term:
        case Var(name):
            yield name
        case Apply():
            for o in term.operands:
                yield from _variables(o)


def _is_honest(tree: Application) -> bool:
    """Padding that an op claims for its operand is what a pack beneath it wrote, or nothing."""
    if tree.op not in CLAIMS or isinstance(tree.operands[0], Ref):
        return True
    assert isinstance(tree.attr, Layout)
    inner = tree.operands[0]
    is_same = isinstance(inner.attr, Layout) and inner.op in ("pack", "retype", "relax")
    return all(p in "-?" for p in tree.attr.pads) or (is_same and inner.attr == tree.attr)


def _claimed(sides: Lefts) -> Iterator[tuple[Layout, Ref]]:
    """Variables under an op that knows their padding: these are really packed."""
    for side in (sides.root, *sides.also):
        for tree in side.walk():
            below = tree.operands[0] if tree.operands else None
            if tree.op in CLAIMS and isinstance(below, Ref) and isinstance(tree.attr, Layout):
                yield tree.attr, below
