"""A result that is written where an argument lies, whose caller needs it no more (donation).

A state of which one row is new, as a cache of keys and values, is then neither copied nor read:
where the value is the argument's own element, nothing is written.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Nest, NoNest, Store
from eqsat.plan.stages import accesses_read, needed


def in_place(nest: Nest, argument: int, result: int) -> Nest:
    """The nest with this result in the bytes of this argument.

    Raises NoNest if an element could be read after another point has written it.
    """
    stores = [s for s in nest.stores if s.access.buffer == result]
    if len(stores) != 1 or argument not in nest.reads:
        raise NoNest("the result is written in pieces, or without reading the argument")
    (store,) = stores
    if any(s.combine for s in nest.stages):
        raise NoNest("a reduction reads elements that other points may have written")
    if store.bounds or store.access.bounds or store.access.lookups:
        raise NoNest("the result has elements that are written in another way")
    if any(set(s.loops) != set(store.loops) for s in nest.stores):
        raise NoNest("results run over other loops")
    own = set(needed(nest, [store.stage]))
    for i, s in enumerate(nest.stages):
        for a in accesses_read(s.arguments):
            if argument in _looked_up(a):
                raise NoNest("the argument is what something is looked up by")
            if a.buffer == argument and (i not in own or not _is_at(a, store.access)):
                raise NoNest("elements of the argument are read where others are written")
    others = (s.stage for s in nest.stores if s is not store)
    if any(_reads(nest, i, argument) for i in needed(nest, others)):
        raise NoNest("another result reads the argument")
    stores = [replace(s, in_place=argument) if s is store else s for s in nest.stores]
    return replace(nest, stores=tuple(stores))


def kept_in_place(nest: Nest, arguments: Collection[int]) -> frozenset[int]:
    """Of donated arguments and the results in their place, those whose elements stay as they are
    but where a condition holds. How often it does is not known before a call, nor priced."""
    found: set[int] = set()
    for argument in arguments:
        for result in (r for r in nest.writes if r not in found):
            with suppress(NoNest):
                stores = in_place(nest, argument, result).stores
                if any(s.in_place >= 0 and kept_where(nest, s) for s in stores):
                    found |= {argument, result}
                    break
    return frozenset(found)


def kept_where(nest: Nest, store: Store) -> tuple[Expr, Expr, bool] | None:
    """(condition, value, the value is where the condition holds) of a store in place; elsewhere
    the element stays as it is. None if every element is written."""
    stage = nest.stages[store.stage]
    if store.in_place < 0 or stage.body.fn != "select" or stage.bounds:
        return None
    condition, one, other = stage.body.args
    for value, kept, holds in ((one, other, True), (other, one, False)):
        a = stage.arguments[kept.value] if kept.fn == "arg" else None
        if isinstance(a, Access) and a.buffer == store.in_place and a.dtype == stage.dtype:
            return condition, value, holds
    return None


def _is_at(a: Access, written: Access) -> bool:
    same = a.strides == written.strides and a.base == written.base and a.dtype == written.dtype
    return same and not a.bounds and not a.lookups


def _looked_up(a: Access) -> set[int]:
    return {b for x in a.indices for b in x.buffers()}


def _reads(nest: Nest, stage: int, argument: int) -> bool:
    return any(a.buffer == argument for a in accesses_read(nest.stages[stage].arguments))
