"""A nest as row blocks: a contraction over rows that other roots of the nest compute.

The parts, in the order in which a kernel runs them for a few rows: the first contraction (scores),
passes along the rows (scale, mask, softmax, norm), the last contraction (weights times values), and
what is computed from its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from eqsat.model.expr import Expr, arg
from eqsat.model.nest import Access, Nest, NoNest, Stage
from eqsat.plan.roles import ProductFactor, both_factors
from eqsat.plan.stages import Moved, access_loops, needed, stages_read

FIRST = 0  # the pass that reads what the first contraction made


@dataclass(frozen=True)
class First:
    """The first contraction: its stage, its factors by what they depend on, the reduced loop."""

    stage: int
    queries: ProductFactor  # of rows alone
    keys: ProductFactor  # of what lies along a row
    depth: int


@dataclass(frozen=True)
class RowRoles:
    """last: stage of the last contraction. Loops: `rows` choose a row, `along` runs along it,
    `wide` along the last contraction's result; `batch` are rows at which columns or keys differ.

    values: stages computed along a row; scalars: one per row (reductions among them); epilogue:
    from the last contraction on.
    divisor: the stage of one per row by which the last's result is divided, in place of what it
    reads: the division of a softmax.
    """

    nest: Nest
    last: int
    weights: Expr  # what the last contraction reads of the rows
    arguments: tuple[Access | int, ...]
    columns: ProductFactor
    rows: tuple[int, ...]
    along: int
    wide: int
    batch: tuple[int, ...]
    first: First | None
    values: tuple[int, ...]
    scalars: tuple[int, ...]
    epilogue: tuple[int, ...]
    divisor: int | None = None

    @cached_property
    def single(self) -> tuple[int, ...]:
        """Loops of rows that share columns and keys."""
        return tuple(i for i in self.rows if i not in self.batch)

    @cached_property
    def level(self) -> dict[int, int]:
        """Per stage the pass that computes it; a scalar is known in the passes behind that."""
        levels: dict[int, int] = {} if self.first is None else {self.first.stage: FIRST}
        for i in sorted((*self.values, *self.scalars)):
            s = self.nest.stages[i]
            levels[i] = self.after(s.arguments, levels)
        return levels

    def after(self, arguments: Iterable[Access | int], level: dict[int, int]) -> int:
        """The earliest pass that has these arguments."""
        passes = [FIRST]
        for a in arguments:
            if isinstance(a, int) and a in level:
                reduces = a in self.scalars and self.reduces(a)
                passes.append(level[a] + reduces)
        return max(passes)

    def reduces(self, stage: int) -> bool:
        """Whether a stage of one per row is a reduction along it, so is known after its pass."""
        return bool(self.nest.stages[stage].combine)

    @cached_property
    def passes(self) -> int:
        """How many passes there are along each row."""
        reductions = [i for i in self.scalars if self.reduces(i)]
        return 1 + max([self.last_level, *(self.level[i] for i in (*self.values, *reductions))])

    @cached_property
    def uses(self) -> dict[int, set[int]]:
        """Per stage along a row: the passes that read it; `passes` is the last contraction's."""
        uses: dict[int, set[int]] = {i: set() for i in self.level}
        for i in (*self.values, *self.scalars):
            for a in self.nest.stages[i].arguments:
                if isinstance(a, int) and a in uses:
                    uses[a].add(self.level[i])
        for a in self.arguments_read:
            if isinstance(a, int) and a in uses:
                uses[a].add(self.passes if self.weights.fn == "arg" else self.last_level)
        for s in self.nest.stores:
            if s.stage in uses:
                uses[s.stage].add(self.level[s.stage])
        return uses

    @cached_property
    def late(self) -> tuple[int, ...]:
        """Stages of one per row that are read behind the last contraction."""
        read = {a for i in self.epilogue for a in self.nest.stages[i].arguments}
        return tuple(i for i in self.scalars if i == self.divisor or i in read)

    @cached_property
    def arguments_read(self) -> tuple[Access | int, ...]:
        return tuple(self.arguments[i] for i in self.weights.operands())

    @cached_property
    def last_level(self) -> int:
        """The pass that makes what the last contraction reads."""
        return self.after(self.arguments_read, self.level)


@lru_cache(maxsize=16)  # planner, check and generator ask one after the other
def row_roles_of(nest: Nest) -> RowRoles:
    """Raises NoNest with the reason why the nest is not computed by row blocks."""
    _check(nest)
    below = _below(nest)
    roots = [i for i, s in enumerate(nest.stages) if s.combine]
    last = roots[-1]
    stage = nest.stages[last]
    one, other = _product(nest, stage)
    reads = [any(_depends(below, a, roots) for a in read_by(f)) for f in (one, other)]
    if reads == [False, True]:
        one, other = other, one
    elif reads != [True, False]:
        raise NoNest("no factor of the last sum alone comes from other sums")
    inside = _loops(nest, one)
    along = [i for i in stage.reduced if nest.sizes[i] > 1]
    wide = [i for i in stage.loops if i not in inside and nest.sizes[i] > 1]
    if len(along) != 1 or len(wide) != 1:
        raise NoNest("the last contraction has more than one loop along its rows or its columns")
    rows = tuple(i for i in stage.loops if i in inside and i != wide[0])
    if wide[0] not in other.loops:
        raise NoNest("the last contraction has a loop that neither factor depends on")
    nest = _unified(nest, rows, along[0])
    others = [r for r in roots[:-1] if not _is_reduction(nest, r, rows, along[0])]
    first = _first(nest, others, along[0])
    if first is not None and set(nest.stages[first.stage].loops) - {*rows, along[0]}:
        raise NoNest("the first contraction has loops that the last one does not have")
    apart = other.loops | (first.keys.loops if first else set())
    roles = RowRoles(
        nest, last, one.body, one.arguments, other, rows, along[0], wide[0],
        batch=tuple(i for i in rows if i in apart),
        first=first,
        values=(), scalars=(), epilogue=_above(nest, last),
    )  # fmt: skip
    return _with_stages(roles)


def _check(nest: Nest) -> None:
    if nest.bounds or any(s.bounds for s in nest.stages):
        raise NoNest("row blocks have no loops that a tile cuts, and pad nothing inside")
    if sum(bool(s.combine) for s in nest.stages) < 2:
        raise NoNest("row blocks have a contraction and another sum in front of it")


def _product(nest: Nest, stage: Stage) -> tuple[ProductFactor, ProductFactor]:
    if stage.combine != "add" or stage.dtype != "f32":
        raise NoNest(f"the last sum is {stage.combine} of {stage.dtype}, not add of f32")
    return both_factors(nest, stage)


def _below(nest: Nest) -> list[set[int]]:
    """Per stage: all stages its value depends on."""
    below: list[set[int]] = []
    for s in nest.stages:
        reads = stages_read(s.arguments)
        below.append(set(reads).union(*(below[a] for a in reads)))
    return below


def read_by(factor: ProductFactor) -> tuple[Access | int, ...]:
    """The arguments that a factor's body names."""
    return tuple(factor.arguments[i] for i in factor.body.operands())


def _depends(below: list[set[int]], argument: Access | int, roots: list[int]) -> bool:
    return isinstance(argument, int) and not {argument, *below[argument]}.isdisjoint(roots)


def _above(nest: Nest, last: int) -> tuple[int, ...]:
    below = _below(nest)
    return tuple(i for i in range(len(nest.stages)) if last in below[i])


def _loops(nest: Nest, factor: ProductFactor) -> set[int]:
    """Loops of the stages and accesses that a factor reads at a point."""
    loops: set[int] = set()
    for a in read_by(factor):
        loops |= set(nest.stages[a].loops) if isinstance(a, int) else access_loops(a)
    return loops


def _is_reduction(nest: Nest, root: int, rows: tuple[int, ...], along: int) -> bool:
    s = nest.stages[root]
    return s.reduced == (along,) and set(s.loops) <= set(rows)


def _unified(nest: Nest, rows: tuple[int, ...], along: int) -> Nest:
    """With the loops of all reductions of rows as one: some read what no other one does."""
    for s in nest.stages:
        others = [i for i in s.reduced if nest.sizes[i] == nest.sizes[along] and i != along]
        if s.combine and set(s.loops) <= set(rows) and len(others) == len(s.reduced) == 1:
            nest = _renamed(nest, others[0], along)
    return nest


def _renamed(nest: Nest, loop: int, to: int) -> Nest:
    """With one loop in place of another; as it is if a stage or store has both."""
    spaces = [*((*s.loops, *s.reduced) for s in nest.stages), *(s.loops for s in nest.stores)]
    if any({loop, to} <= set(x) for x in spaces):
        return nest

    def moved(strides: tuple[int, ...]) -> tuple[int, ...]:
        renamed = list(strides)
        renamed[to], renamed[loop] = renamed[to] + renamed[loop], 0
        return tuple(renamed)

    def loops(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(to if i == loop else i for i in old))

    as_one = Moved(moved, loops, {})
    stores = tuple(map(as_one.store, nest.stores))
    return replace(nest, stages=tuple(map(as_one.stage, nest.stages)), stores=stores)


def _first(nest: Nest, roots: list[int], along: int) -> First | None:
    """The contraction that makes rows: queries are what does not lie along them."""
    if not roots:
        return None
    if len(roots) > 1:
        raise NoNest("more than one sum in front of the rows is no reduction along them")
    stage = nest.stages[roots[0]]
    if stage.combine != "add" or stage.dtype != "f32":
        raise NoNest(f"the first sum is {stage.combine} of {stage.dtype}, not add of f32")
    one, other = both_factors(nest, stage)
    depth = [i for i in stage.reduced if nest.sizes[i] > 1]
    if len(depth) != 1:
        raise NoNest("the first contraction sums over more than one loop")
    queries, keys = (other, one) if along in _loops(nest, one) else (one, other)
    if along in _loops(nest, queries) or along not in _loops(nest, keys):
        raise NoNest("the first contraction is no product of rows and of what lies along them")
    return First(roots[0], queries, keys, depth[0])


def _with_stages(r: RowRoles) -> RowRoles:
    """The stages along rows and of one per row that the last contraction or stores need."""
    nest = r.nest
    ends = [*r.arguments_read, *(a for i in r.epilogue for a in nest.stages[i].arguments)]
    outside = {r.last, *r.epilogue, *([r.first.stage] if r.first else [])}
    starts = [*stages_read(ends), *(s.stage for s in nest.stores)]
    inner = needed(nest, starts, outside.__contains__)
    inside, below = {*r.rows, r.along}, _below(nest)
    for i in inner:
        s = nest.stages[i]
        # operands of the epilogue that no sum is below are computed where they are read
        if set(s.loops) - inside and any(nest.stages[j].combine for j in (i, *below[i])):
            raise NoNest(f"%{s.node} is computed along no row")
        if s.combine and not _is_reduction(nest, i, r.rows, r.along):
            raise NoNest(f"%{s.node} does not reduce rows")
    rows = [i for i in inner if set(nest.stages[i].loops) <= inside]
    for t in nest.stores:
        if t.stage not in outside and t.stage not in rows:
            raise NoNest(f"%{nest.stages[t.stage].node} is along no row, and written")
        if t.stage in rows and any(nest.sizes[i] > 1 and i not in t.loops for i in r.rows):
            raise NoNest(f"%{nest.stages[t.stage].node} is the same in all rows, and written")
    values = tuple(i for i in rows if r.along in nest.stages[i].loops)
    scalars = tuple(i for i in rows if r.along not in nest.stages[i].loops)
    return _divided(replace(r, values=values, scalars=scalars))


def _divided(r: RowRoles) -> RowRoles:
    """With a division by one number per row put off: the last contraction's result is divided.

    Where what is divided is not negative and the divisor is its sum, as in a softmax: then nothing
    overflows, and the sum of quotients is the quotient of the sum but for rounding.
    """
    nest, stages = r.nest, r.nest.stages
    source = r.arguments[r.weights.value] if r.weights.fn == "arg" else None
    if not isinstance(source, int) or source not in r.values:
        return r
    s = stages[source]
    used = [i for i, t in enumerate(stages) if source in t.arguments]
    is_stored = any(t.stage == source for t in nest.stores)
    if str(s.body) != "div(x0, x1)" or used != [r.last] or is_stored:
        return r
    above, below = s.arguments
    if not isinstance(above, int) or not isinstance(below, int) or below not in r.scalars:
        return r
    total = stages[below]
    is_sum = total.combine == "add" and total.arguments == (above,) and total.body is arg(0)
    if not is_sum or stages[above].body.fn != "exp" or above not in r.values:
        return r
    values = tuple(i for i in r.values if i != source)
    return replace(r, weights=arg(0), arguments=(above,), values=values, divisor=below)
