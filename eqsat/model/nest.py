"""Nest: a dispatch as loops, accesses with strides, stages and stores.

The loops of all members are unified into one list. A stage computes a scalar for every point of
some of the loops, from elements of buffers and from earlier stages at the same point; a store
writes a stage's values. Views, transposes, packs and unpacks of the dispatch are no stages: they
are strides, and a loop is split where a tile cuts it. Pads, tails and open lanes are conditions.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.model.expr import Expr, arg
from eqsat.model.printed import Printed

Scalar = bool | int | float
_LOG = logging.getLogger("eqsat.check")


@dataclass(frozen=True)
class Bound:
    """Holds at a point where `0 <= base + Σ strides[i] · loop i < extent`."""

    strides: tuple[int, ...]  # one per loop of the nest
    base: int
    extent: int

    @cached_property
    def depends_on(self) -> frozenset[int]:
        """The loops of which it is."""
        return frozenset([i for i, s in enumerate(self.strides) if s])


@dataclass(frozen=True)
class Lookup:
    """A computed index, where another access reads or writes: `body` over `arguments`.

    dtype: the integer type of the number. It is clamped to 0 … extent - 1 as `gather` does, then
    counts `stride` elements.
    """

    arguments: tuple[Access, ...]
    body: Expr
    dtype: str
    stride: int
    extent: int


@dataclass(frozen=True)
class Access:
    """The element of a buffer at a point: `base + Σ strides[i] · loop i`, in elements.

    buffer: the node whose buffer it is, views looked through. Where one of `bounds` fails there is
    no element, and the value is `fill`; a `fill` of None says that any value will do.
    """

    buffer: int
    dtype: str
    strides: tuple[int, ...]  # one per loop of the nest
    base: int = 0
    bounds: tuple[Bound, ...] = ()
    fill: Scalar | None = None
    lookups: tuple[Lookup, ...] = ()

    @property
    def indices(self) -> tuple[Access, ...]:
        """Accesses of the index buffers of its lookups."""
        return tuple([x for k in self.lookups for x in k.arguments])

    @cached_property
    def depends_on(self) -> frozenset[int]:
        """The loops that it depends on, by its lookups and bounds too."""
        strided = frozenset([i for i, s in enumerate(self.strides) if s])
        return strided.union(*[x.depends_on for x in (*self.bounds, *self.indices)])

    def buffers(self) -> Iterator[int]:
        """Its own buffer, then those of its lookups and theirs."""
        yield self.buffer
        for x in self.indices:
            yield from x.buffers()

    def renumbered(self, numbers: Sequence[int] | Mapping[int, int]) -> Access:
        lookups = self.lookups
        if lookups:
            lookups = self.with_indices(lambda x: x.renumbered(numbers)).lookups
        # its own constructor: nests are renumbered by the thousand, and `replace` is slow
        number = numbers[self.buffer]
        return Access(number, self.dtype, self.strides, self.base, self.bounds, self.fill, lookups)

    def with_indices(self, change: Callable[[Access], Access]) -> Access:
        """The access with other accesses of index buffers."""
        if not self.lookups:
            return self
        lookups = [
            replace(k, arguments=tuple([change(x) for x in k.arguments])) for k in self.lookups
        ]
        return replace(self, lookups=tuple(lookups))


@dataclass(frozen=True)
class Stage:
    """One scalar per point of `loops`, rounded to `dtype`.

    body: its operand i is `arguments[i]`: an access, or the number of an earlier stage, read at the
    same point (a stage over fewer loops is the same along the others). With `combine` (add, max,
    min, mul, and, or) the bodies of all points of `reduced` are combined into the one value.
    bounds: of a stage that only chooses (its body is `arg(0)`, without `combine`): where one fails,
    the value is that of the second argument, which a concat has, or `fill` if there is one only.
    Most nests have no such stage: pads are bounds of accesses, concats are written in pieces.
    """

    node: int  # the member it computes
    loops: tuple[int, ...]  # ascending
    body: Expr
    arguments: tuple[Access | int, ...]
    dtype: str
    combine: str = ""
    reduced: tuple[int, ...] = ()  # ascending, disjoint from `loops`
    bounds: tuple[Bound, ...] = ()
    fill: Scalar = 0

    def renumbered(self, numbers: Sequence[int] | Mapping[int, int]) -> Stage:
        arguments = [a if isinstance(a, int) else a.renumbered(numbers) for a in self.arguments]
        return Stage(
            numbers[self.node], self.loops, self.body, tuple(arguments), self.dtype,
            self.combine, self.reduced, self.bounds, self.fill,
        )  # fmt: skip


@dataclass(frozen=True)
class Store:
    """Writes a stage's value to `access` at every point of the stage's loops and of `loops`.

    loops: of the stage, and those along which its value is written several times (broadcast). Where
    a bound of the access fails its `fill` is written (None: anything): the lanes a pack leaves
    open. Where one of `bounds` fails nothing is written. Most stores have none, as `Nest.bounds`
    cut such points; one of several stores may cover fewer points than the others.

    in_place: the buffer of an argument whose bytes the written one has, -1: none. It is read at
    nothing but the point that is written there.
    """

    access: Access
    stage: int
    loops: tuple[int, ...]
    bounds: tuple[Bound, ...] = ()
    in_place: int = -1

    def renumbered(self, numbers: Sequence[int] | Mapping[int, int]) -> Store:
        """The store with renumbered nodes."""
        in_place = self.in_place if self.in_place < 0 else numbers[self.in_place]
        return Store(self.access.renumbered(numbers), self.stage, self.loops, self.bounds, in_place)


@dataclass(frozen=True)
class Nest(Printed):
    """sizes: extent of every loop. bounds: a point where one fails does not exist, nothing is read
    or written there (a loop of 512 cut by 48 is 11 · 48 with a bound)."""

    sizes: tuple[int, ...]
    stages: tuple[Stage, ...]
    stores: tuple[Store, ...]
    bounds: tuple[Bound, ...] = ()

    def __hash__(self) -> int:
        return self._hash  # nests are long, and looked up again and again

    @cached_property
    def _hash(self) -> int:
        return hash((self.sizes, self.stages, self.stores, self.bounds))

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """All reads in the order of the stages, then all writes; lookups' own reads not."""
        reads = (a for s in self.stages for a in s.arguments if isinstance(a, Access))
        return (*reads, *(s.access for s in self.stores))

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Buffers read, in the order of first use: the first arguments of the kernel."""
        read = [x for s in self.stages for x in s.arguments if isinstance(x, Access)]
        read += [x for s in self.stores for x in s.access.indices]
        return tuple(dict.fromkeys(b for x in read for b in x.buffers()))

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """Buffers written, in the order of the stores: the kernel's results."""
        return tuple(dict.fromkeys(s.access.buffer for s in self.stores))

    @property
    def buffers(self) -> tuple[int, ...]:
        """All that is read, then what else is written."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))

    def points(self, loops: Iterable[int]) -> int:
        """How many points these loops have, bounds aside."""
        return math.prod(self.sizes[i] for i in loops)

    def renumbered(self, numbers: Sequence[int] | Mapping[int, int]) -> Nest:
        """The nest with renumbered nodes: `numbers[i]` instead of node i."""
        stages = [s.renumbered(numbers) for s in self.stages]
        stores = [s.renumbered(numbers) for s in self.stores]
        return Nest(self.sizes, tuple(stages), tuple(stores), self.bounds)

    def anonymous(self) -> Nest:
        """The nest with buffers numbered in their order, and members by -1."""
        return self.renumbered(_Unnumbered({b: i for i, b in enumerate(self.buffers)}))

    def to_text(self) -> str:
        """Loops, then a line per stage and per store."""
        lines = ["loops " + " ".join(f"i{i}:{n}" for i, n in enumerate(self.sizes))]
        lines += [f"where {_bound(b)}" for b in self.bounds]
        for i, s in enumerate(self.stages):
            arguments = ", ".join(
                f"s{a}" if isinstance(a, int) else _access(a) for a in s.arguments
            )
            over = " ".join(f"i{j}" for j in s.loops)
            combined = f" {s.combine} over {' '.join(f'i{j}' for j in s.reduced)}"
            lines.append(
                f"s{i} %{s.node} {s.dtype} [{over}] = {s.body}({arguments})"
                + (combined if s.combine else "")
                + _where(s.bounds, s.fill)
            )
        for s in self.stores:
            only = f" only where {' and '.join(map(_bound, s.bounds))}" if s.bounds else ""
            where = f" in place of %{s.in_place}" if s.in_place >= 0 else ""
            lines.append(f"store {_access(s.access)} = s{s.stage}{where}{only}")
        return "\n".join(lines) + "\n"


class _Unnumbered(dict[int, int]):
    """Numbers of buffers, and of members, whose names are left out."""

    def __missing__(self, _: int) -> int:
        return -1


def _affine(strides: tuple[int, ...], base: int) -> str:
    terms = [f"{s}*i{i}" if s != 1 else f"i{i}" for i, s in enumerate(strides) if s]
    return " + ".join([*terms, str(base)] if base or not terms else terms)


def _bound(b: Bound) -> str:
    return f"0 <= {_affine(b.strides, b.base)} < {b.extent}"


def _access(a: Access) -> str:
    text = f"%{a.buffer}[{_affine(a.strides, a.base)}]"
    for k in a.lookups:
        index = ", ".join(map(_access, k.arguments))
        index = index if k.body is arg(0) else f"{k.body}({index})"
        text += f" at {k.stride} * {index}"
    return text + _where(a.bounds, a.fill)


def _where(bounds: tuple[Bound, ...], fill: Scalar | None) -> str:
    if not bounds:
        return ""
    return f" where {' and '.join(map(_bound, bounds))} else {'any' if fill is None else fill}"


class NoNest(Exception):
    """Why a dispatch is no nest, in a sentence that names the op."""


def refused_by_check(what: str, fault: str, nest: Nest) -> str:
    """Why a dispatch has no nest or plan whose check found a fault, which is a bug of ours: the
    dispatch then runs as its ops do, and the log says so."""
    _LOG.error("the check refuses a %s, please report it: %s\n%s", what, fault, nest)
    return f"the check refuses its {what}: {fault}"


def as_data(value: Any) -> Any:
    """A nest, plan or part of one as plain JSON data."""
    if isinstance(value, Expr):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return {k: as_data(getattr(value, k)) for k in value.__dataclass_fields__}
    return [as_data(v) for v in value] if isinstance(value, tuple) else value
