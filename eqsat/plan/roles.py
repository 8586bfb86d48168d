"""Roles in a nest that is a contraction: two factors, the loops of each, prologue, epilogue.

Value ranges of a body follow from the element types of what it reads: a quantised number less its
zero point is of 9 bits at most, whatever type the program computes it in, so a kernel may copy it
as a short one, whose products are summed in groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from eqsat.model.expr import BottomUp, Expr, arg, cast, rebuilt
from eqsat.model.nest import Access, Nest, NoNest, Stage
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.scalar import integer_range, result_dtype, typing
from eqsat.plan.stages import access_loops, needed, value_loops
from eqsat.plan.windows import Coordinates, coordinates_of

Range = tuple[int, int]

SHORT = ("i8", "u8", "i16")  # the first that holds a range is taken


def narrowest(nest: Nest, body: Expr, arguments: Sequence[Access | int]) -> str:
    """The first of `SHORT` that holds every value of an integer body; "" if none does."""
    values = range_of(nest, body, arguments)
    if values is None:
        return ""
    return next((t for t in SHORT if _holds(_type_range(t), values)), "")


def range_of(nest: Nest, body: Expr, arguments: Sequence[Access | int]) -> Range | None:
    """The least and the greatest value that a body may have; None of bodies that are no integers.

    What is read where there is nothing to read, such as pads, counts too.
    """
    given = [_argument(nest, a) for a in arguments]
    dtypes = [nest.stages[a].dtype if isinstance(a, int) else a.dtype for a in arguments]
    dtype = typing(dtypes)

    def step(e: Expr, parts: Sequence[Range | None]) -> Range | None:
        if e.fn == "arg":
            return given[e.value]
        if e.fn == "const":
            return (int(e.value), int(e.value)) if isinstance(e.value, int) else None
        limits = _type_range(str(e.value) if e.fn == "cast" else dtype(e) or "")
        ranges = [x for x in parts if x is not None]
        result = _called(e.fn, ranges) if len(ranges) == len(parts) else None
        return result if result is not None and _holds(limits, result) else limits  # it may wrap

    return BottomUp(step)(body)


def _argument(nest: Nest, a: Access | int) -> Range | None:
    if isinstance(a, Access):
        values = _type_range(a.dtype)
        return _with(values, a.fill) if a.bounds else values
    stage = nest.stages[a]
    if stage.combine:
        return _type_range(stage.dtype)
    values = range_of(nest, stage.body, stage.arguments)
    if not stage.bounds:
        return values
    if len(stage.arguments) == 1:
        return _with(values, stage.fill)
    other = range_of(nest, arg(1), stage.arguments)
    return None if values is None or other is None else _both(values, other)


def _with(values: Range | None, fill: float | None) -> Range | None:
    return None if values is None else _both(values, (int(fill or 0), int(fill or 0)))


def _both(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _called(fn: str, of: Sequence[Range]) -> Range | None:
    """Of exact integers; None where any number of the type may come out."""
    match fn, of:
        case "cast", [x]:
            return x
        case "neg", [(low, high)]:
            return -high, -low
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "mul", [(a, b), (c, d)]:
            ends = a * c, a * d, b * c, b * d
            return min(ends), max(ends)
        case "max", [(a, b), (c, d)]:
            return max(a, c), max(b, d)
        case "min", [(a, b), (c, d)]:
            return min(a, c), min(b, d)
        case "and", [(a, b), (c, d)] if a >= 0 or c >= 0:
            return 0, min(x for low, x in ((a, b), (c, d)) if low >= 0)
        case _:
            return None


def _type_range(dtype: str) -> Range | None:
    """The ends of an integer type, or of bool; None of other types."""
    if dtype == "bool":
        return 0, 1
    return integer_range(dtype) if dtype in DTYPES and DTYPES[dtype][1] in "iu" else None


def _holds(outer: Range | None, inner: Range) -> bool:
    return outer is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


# element type of the sums -> those that vector loads turn into it without a rounding
WIDENED = {
    "f32": frozenset({"f32", "bf16", "f16", "i8", "u8", "i16", "u16"}),
    "i32": frozenset({"i32", "i8", "u8", "i16", "u16"}),
}


@dataclass(frozen=True)
class InlineBody:
    """A body over accesses alone; the first is the one whose elements are most."""

    body: Expr
    leaves: tuple[Access, ...]


@dataclass(frozen=True)
class ProductFactor:
    """One side of the product: a body over accesses and earlier stages.

    loops: those it depends on. plain: the access it is, if it is nothing but an unconditional one.
    direct: the same, also where a cast of a short element type to that of the sum is all that is
    done to it: a kernel may read it where it lies and convert what it loads. narrow: that element
    type, also of an access with conditions; of computed integers a short type that holds them all.
    inline: where it is more, all that is done to accesses
    without conditions as one body.
    """

    body: Expr
    arguments: tuple[Access | int, ...]
    loops: frozenset[int]
    accesses: tuple[Access, ...]  # all that its value needs, through earlier stages too
    direct: Access | None = None
    narrow: str = ""
    inline: InlineBody | None = None

    @cached_property
    def plain(self) -> Access | None:
        access = self.arguments[self.body.value] if self.body.fn == "arg" else None
        if isinstance(access, Access) and not access.bounds and not access.lookups:
            return access
        return None


@dataclass(frozen=True)
class ProductRoles:
    """root: the stage that is the contraction. Loops by what depends on them: `batch` both factors,
    `only[i]` factor i alone, `extra` neither (values are written several times), `reduced`.
    epilogue: stages computed from the root on, in order. coordinates: of factors with pads,
    and of integers in windows.
    dtype: of the sums."""

    root: int
    factors: tuple[ProductFactor, ProductFactor]
    batch: tuple[int, ...]
    only: tuple[tuple[int, ...], tuple[int, ...]]
    reduced: tuple[int, ...]
    extra: tuple[int, ...]
    epilogue: tuple[int, ...]
    coordinates: tuple[Coordinates | None, Coordinates | None] = (None, None)
    dtype: str = "f32"


@lru_cache(maxsize=16)  # planner, check and generator ask one after the other
def product_roles_of(nest: Nest) -> ProductRoles:
    """Raises NoNest with the reason why the nest is no contraction with an epilogue."""
    sums = [i for i, s in enumerate(nest.stages) if s.combine]
    if len(sums) != 1:
        raise NoNest(f"{len(sums)} reductions are not one contraction")
    stage = nest.stages[sums[0]]
    if stage.combine != "add" or stage.dtype not in WIDENED:
        raise NoNest(
            f"contractions are sums of f32 or i32, this is {stage.combine} of {stage.dtype}"
        )
    factors = both_factors(nest, stage)
    parallel = [i for i in stage.loops if nest.sizes[i] > 1]
    a, b = (f.loops for f in factors)
    only = tuple(tuple(i for i in parallel if i in x - y) for x, y in ((a, b), (b, a)))
    if not only[0] and not only[1]:
        raise NoNest("both factors of the sum depend on the same loops: a reduction")
    epilogue = _epilogue(nest, sums[0])
    is_copied = stage.dtype == "i32"  # in groups of products

    def of_windows(factor: ProductFactor) -> Coordinates | None:
        return coordinates_of(nest, factor, copied=is_copied)

    whole = set(stage.loops) | set(stage.reduced)
    written = {i for s in nest.stores for i in s.loops}
    written |= {i for e in epilogue for i in nest.stages[e].loops}
    if any(set(nest.stages[s.stage].loops) & set(stage.reduced) for s in nest.stores):
        raise NoNest("a factor of the contraction is written, too")
    return ProductRoles(
        sums[0],
        factors,
        batch=tuple(i for i in parallel if i in a & b),
        only=(only[0], only[1]),
        reduced=tuple(i for i in stage.reduced if nest.sizes[i] > 1),
        extra=tuple(sorted({i for i in parallel if i not in a | b} | (written - whole))),
        epilogue=epilogue,
        coordinates=(of_windows(factors[0]), of_windows(factors[1])),
        dtype=stage.dtype,
    )


def both_factors(nest: Nest, stage: Stage) -> tuple[ProductFactor, ProductFactor]:
    body, arguments = stage.body, stage.arguments
    while body.fn == "arg" and isinstance(inner := arguments[body.value], int):
        product = nest.stages[inner]
        if product.dtype != stage.dtype:
            raise NoNest(f"the products are rounded to {product.dtype} before they are added")
        if product.bounds:
            raise NoNest("what is added is a product at some points only")
        body, arguments = product.body, product.arguments
    if body.fn != "mul":
        raise NoNest(f"the sum is not one of products but of {body.fn}")
    given = [nest.stages[a].dtype if isinstance(a, int) else a.dtype for a in arguments]
    if result_dtype(body, given) not in (stage.dtype, None):
        raise NoNest(f"the products are no {stage.dtype}, as their sum is")
    one, other = (_factor(nest, x, arguments, stage.dtype) for x in body.args)
    return one, other


def _factor(
    nest: Nest, body: Expr, arguments: tuple[Access | int, ...], dtype: str
) -> ProductFactor:
    read = [arguments[i] for i in body.operands()]
    accesses = tuple(dict.fromkeys(_below(nest, read)))
    loops = frozenset[int]().union(*(value_loops(nest, a) for a in read))
    access = _cast_only(nest, body, arguments, dtype)
    if access is None:
        inline = _inlined(nest, body, arguments)
        narrow = narrowest(nest, body, arguments) if dtype == "i32" else ""
        return ProductFactor(body, arguments, loops, accesses, narrow=narrow, inline=inline)
    direct = None if access.bounds or access.lookups else access
    return ProductFactor(body, arguments, loops, accesses, direct, access.dtype)


def _cast_only(
    nest: Nest, body: Expr, arguments: tuple[Access | int, ...], dtype: str
) -> Access | None:
    """The access that a body is but for a cast to `dtype`, through stages that only cast."""
    while True:
        while body.fn == "cast" and body.value == dtype:
            (body,) = body.args
        if body.fn != "arg":
            return None
        argument = arguments[body.value]
        if isinstance(argument, Access):
            return argument if argument.dtype in WIDENED[dtype] else None
        stage = nest.stages[argument]
        if stage.combine or stage.bounds or stage.dtype != dtype:
            return None
        body, arguments = stage.body, stage.arguments


def _inlined(nest: Nest, body: Expr, arguments: tuple[Access | int, ...]) -> InlineBody | None:
    """The body with those of earlier stages in it, each rounded as its stage is."""
    leaves = tuple(dict.fromkeys(_below(nest, (arguments[i] for i in body.operands()))))
    if not leaves or any(a.bounds or a.lookups for a in leaves):
        return None
    leaves = tuple(sorted(leaves, key=lambda a: -nest.points(access_loops(a))))
    place = {a: arg(i) for i, a in enumerate(leaves)}
    dtype = typing([a.dtype for a in leaves])

    def expanded(e: Expr, arguments: tuple[Access | int, ...]) -> Expr | None:
        if e.fn == "arg":
            argument = arguments[e.value]
            if isinstance(argument, Access):
                return place[argument]
            stage = nest.stages[argument]
            if stage.combine or stage.bounds:
                return None
            inner = expanded(stage.body, stage.arguments)
            if inner is None or dtype(inner) in (None, stage.dtype):
                return inner
            return cast(inner, stage.dtype)
        parts = [expanded(x, arguments) for x in e.args]
        return None if None in parts else rebuilt(e, [x for x in parts if x is not None])

    whole = expanded(body, arguments)
    return None if whole is None else InlineBody(whole, leaves)


def fetched_bytes(factor: ProductFactor) -> float:
    """Bytes of an element where it is fetched; of other bodies than inline ones, those of f32."""
    source = source_access(factor)
    return DTYPES[source.dtype][0] / 8 if source else 4


def source_access(factor: ProductFactor) -> Access | None:
    """Access that is read where the factor is not copied: all of it, or its largest part."""
    return factor.inline.leaves[0] if factor.inline else factor.direct


def _below(nest: Nest, arguments: Iterable[Access | int]) -> Iterator[Access]:
    """All accesses that arguments need, through earlier stages too."""
    for a in arguments:
        if isinstance(a, Access):
            yield a
        else:
            yield from _below(nest, nest.stages[a].arguments)


def _epilogue(nest: Nest, root: int) -> tuple[int, ...]:
    """The stages that the stores need beside the root, without those only factors need."""
    return tuple(needed(nest, (s.stage for s in nest.stores), lambda i: i == root))
