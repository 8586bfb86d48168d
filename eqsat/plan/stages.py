"""Stages of a nest: what they and its accesses depend on, and the cost of bodies as vector code.

Costs are in additions of whole vectors, measured with 16 lanes of f32 in the nearest cache on an
AMD Zen 4; 8 lanes give the same within a third. Functions without an entry cost 1. Parts that recur
count once. (`ops.meaning.scalar.cost` is that of XLA's code.) The constants hold for the cores of
any machine; the rest is in `model.plan.Machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.dispatch import Work
from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Bound, Nest, NoNest, Stage, Store
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.scalar import FUNCTIONS, INTEGER_ONLY, typing

ELEMENTS = frozenset(
    {"bool", "f32", "f64", "f16", "bf16", *(f"{s}{n}" for s in "iu" for n in (8, 16, 32, 64))}
)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_ORDERED = _COMPARISONS | {"add", "mul", "max", "min", "select"}
# of element types with 64 bits: no approximations; of integers, unsigned or not; of bools
EXACT = _ORDERED | {"sub", "div", "neg", "abs", "sign", "sqrt", "floor", "ceil", "clamp"}
EXACT |= {"round_even", "round_away", "is_finite"}
FLOATS = frozenset(FUNCTIONS) - INTEGER_ONLY - {"rem", "nextafter"}
INTEGERS = _ORDERED | INTEGER_ONLY | {"sub", "div", "rem", "neg", "abs", "sign", "clamp"}
BOOLS = _ORDERED | {"and", "or", "xor", "not"}

COSTS = {
    "div": 3,
    "clamp": 2,
    "sqrt": 9,
    "rsqrt": 15,
    "exp": 11,
    "exp2": 9,
    "expm1": 12,
    "log": 17,
    "log1p": 28,
    "logistic": 15,
    "tanh": 12,
    "erf": 15,
    "erfc": 28,
    "erf_inv": 50,
    "sin": 18,
    "cos": 18,
    "tan": 26,
    "pow": 124,
    "cbrt": 88,
    "sinh": 55,
    "cosh": 42,
    "asin": 86,
    "acos": 86,
    "atan": 62,
    "atan2": 78,
    "asinh": 66,
    "acosh": 59,
    "atanh": 63,
}


ORDERED_COST, COMBINED_COST = 4, 2  # of max and min, NaN being one; where zeros are not ordered


@lru_cache(maxsize=10_000)
def additions_of(body: Expr) -> int:
    """Additions of one evaluation; operands and constants are free."""
    return sum(_cost(e) for e in body.walk() if e.fn not in ("arg", "const"))


def _cost(e: Expr) -> int:
    if e.fn in ("max", "min") and all(a.fn != "const" for a in e.args):
        return ORDERED_COST
    return COSTS.get(e.fn, 1)


def additions_of_combining(how: str, dtype: str) -> float:
    """Additions that combining one more value of a reduction takes."""
    return COMBINED_COST if how in ("max", "min") and DTYPES[dtype][1] == "f" else 1


def check_bodies(nest: Nest) -> None:
    """NoNest with the name of a function, or of an element type, that has no vector code."""
    for a in nest.accesses:
        _check_access(a)
    for s in nest.stages:
        given = [nest.stages[a].dtype if isinstance(a, int) else a.dtype for a in s.arguments]
        _check(s.body, tuple(given), s.dtype)


def _check_access(a: Access) -> None:
    if a.dtype not in ELEMENTS:
        raise NoNest(f"kernels read and write no {a.dtype}")
    for k in a.lookups:
        for x in k.arguments:
            _check_access(x)
        _check(k.body, tuple([x.dtype for x in k.arguments]), k.dtype)


@lru_cache(maxsize=10_000)
def _check(body: Expr, operands: tuple[str, ...], result: str) -> None:
    type_of = typing(operands)
    for dtype in (type_of(body) or result, result):
        if dtype not in ELEMENTS:
            raise NoNest(f"kernels compute no {dtype}")
    for e in body.walk():
        if e.fn in FUNCTIONS:
            _check_call(e.fn, [type_of(a) for a in e.args], result)
        elif e.fn == "cast" and e.value not in ELEMENTS:
            raise NoNest(f"kernels compute no {e.value}")


def _check_call(fn: str, given: Sequence[str | None], result: str) -> None:
    peers = given[1:] if fn == "select" else given
    dtype = next((t for t in peers if t), result)
    if fn not in functions(dtype):
        raise NoNest(f"`{fn}` of {dtype} has no vector code")


def functions(dtype: str) -> frozenset[str]:
    """The functions of an element type that have vector code."""
    kind = DTYPES[dtype][1]
    if kind == "f":
        return EXACT if dtype == "f64" else FLOATS
    return BOOLS if kind == "b" else INTEGERS


Loops = frozenset[int]
Strides = tuple[int, ...]


def access_loops(a: Access | Bound) -> Loops:
    """Loops that an access or bound depends on, by its lookups and bounds too."""
    return a.depends_on


def value_loops(nest: Nest, argument: Access | int) -> Loops:
    """Loops that a value depends on: by what is read for it, and by what chooses it."""
    if isinstance(argument, Access):
        return access_loops(argument)
    s = nest.stages[argument]
    below = (value_loops(nest, a) for a in s.arguments)
    return frozenset().union(*below, *map(access_loops, s.bounds)) - frozenset(s.reduced)


def stages_read(arguments: Iterable[Access | int]) -> list[int]:
    """The stages among arguments."""
    return [a for a in arguments if isinstance(a, int)]


def accesses_read(arguments: Iterable[Access | int]) -> list[Access]:
    """The accesses among arguments."""
    return [a for a in arguments if isinstance(a, Access)]


def needed(
    nest: Nest, stages: Iterable[int], outside: Callable[[int], bool] | None = None
) -> list[int]:
    """These stages and all that they read, ascending; not through those that are outside."""
    reached, left = set[int](), list(stages)
    while left:
        i = left.pop()
        if i in reached or (outside is not None and outside(i)):
            continue
        reached.add(i)
        left += stages_read(nest.stages[i].arguments)
    return sorted(reached)


def additions(nest: Nest, stages: Iterable[int]) -> float:
    """Additions of vectors that one evaluation of these stages takes."""
    return sum(additions_of(nest.stages[i].body) for i in stages)


def combining(nest: Nest, stages: Iterable[int]) -> float:
    """Additions of vectors that it takes to combine one more point of each of these reductions."""
    reductions = [nest.stages[i] for i in stages]
    return sum(additions_of_combining(s.combine, s.dtype) for s in reductions)


def summed(works: Iterable[Work]) -> Work:
    """Sum of several pieces of work."""

    total = Work(items=0)
    for w in works:
        total = Work(
            total.fma + w.fma,
            total.loads + w.loads,
            total.scalar + w.scalar,
            total.strided + w.strided,
            total.pages + w.pages,
            total.tiles + w.tiles,
            total.items + w.items,
            total.copied + w.copied,
            total.streams + w.streams,
            total.loops + w.loops,
        )
    return total


def row_stride(nest: Nest, row_loops: tuple[int, ...], access: Access) -> int | None:
    """Elements from row to row, if that is one number for all rows of `row_loops`."""
    step, stride = 1, None
    for i in reversed(row_loops):
        if nest.sizes[i] > 1:
            if stride is None:
                stride = access.strides[i]
            elif access.strides[i] != stride * step:
                return None
            step *= nest.sizes[i]
    return stride or 0


@dataclass(frozen=True)
class Moved:
    """Parts of a nest over other loops; `stages`: new numbers, where they change."""

    strides: Callable[[Strides], Strides]
    loops: Callable[[tuple[int, ...]], tuple[int, ...]]
    stages: dict[int, int]

    def bound(self, b: Bound) -> Bound:
        return replace(b, strides=self.strides(b.strides))

    def access(self, a: Access) -> Access:
        bounds = tuple(map(self.bound, a.bounds))
        return replace(a.with_indices(self.access), strides=self.strides(a.strides), bounds=bounds)

    def stage(self, s: Stage) -> Stage:
        return replace(
            s,
            loops=self.loops(s.loops),
            reduced=self.loops(s.reduced),
            bounds=tuple(map(self.bound, s.bounds)),
            arguments=tuple(
                self.stages.get(a, a) if isinstance(a, int) else self.access(a) for a in s.arguments
            ),
        )

    def store(self, s: Store) -> Store:
        return replace(
            s,
            access=self.access(s.access),
            stage=self.stages.get(s.stage, s.stage),
            loops=self.loops(s.loops),
            bounds=tuple(map(self.bound, s.bounds)),
        )


PAGE_BYTES = 4096  # of memory: a longer step ends what a prefetcher follows, and needs the TLB
CHAINS = 8  # multiply-adds that have to be independent: latency 4, two units
CHAIN = 384  # longest sum in registers: its error is then like that of blocked libraries
ITEMS_PER_CORE = 4  # work items at least, so that others take those of a core that is late
LINE = 16  # f32 elements of a cache line
LEAST_ITEM = 1 << 14  # vectors of multiply-adds that are worth a work item: some microseconds
LEAST_APART = 1024  # bytes between rows that are worth streaming: not those of a panel
OWN_CACHE = 1 << 20  # bytes that a core's own caches hold, where nothing has to be asked for
ASKED_BYTES = 12 << 10  # of streams, between what is read and what is asked for
NEAR = 4  # elements apart at most that are shuffled out of whole vectors, not read one by one
LEAST_CORES = 2  # that plans think of, also where a target prices the work of one
MANY_ITEMS = 13  # from here on an odd number does not matter: one of two cores does 54 %


def even_blocks(parts: int, size: int, each: int = 1) -> int:
    """Parts of a block, at most `size`, so that two cores have equally many items.

    A block is `each` items. The size stays where blocks that are a little smaller do not come out
    even, and where there is one item.
    """
    blocks = -(-parts // size)
    for wanted in range(blocks, blocks + 3):
        cut = size if wanted == blocks else -(-parts // wanted)
        items = each * -(-parts // cut)
        if items == 1 or items % 2 == 0 or items >= MANY_ITEMS:
            return cut
    return size
