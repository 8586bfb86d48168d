"""Why a pipeline does not compute a dispatch, what would change that, and how full the units are.

A change is told only where the pipeline takes the contraction after it. What is told of units
follows from a target's `units`; no price depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from eqsat.model.generic import Generic
from eqsat.model.pipelines import (
    Condition,
    Occupancy,
    Padding,
    Pipeline,
    PipelineTold,
    Refusal,
    Unit,
)
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import cdiv
from eqsat.plan.price import misaligned
from eqsat.schedule.fused import OneDispatch
from eqsat.schedule.pipelines import (
    Root,
    all_workgroups,
    condition_facts,
    contraction_ps,
    cut_by,
    cut_choices,
    fitting_extent,
    held_bytes,
    is_unpacked_contraction,
    loop_runs,
    role_of_loop,
    unmet_conditions,
    workgroup,
)

ACCUMULATOR_BYTES = 4
# values of keys that let a pipeline take more
LOOSER: tuple[dict[str, Any], ...] = ({"cut": "any"}, {"collapse": True}, {"unaligned": "padded"})


def pipelines_told(schedule: Schedule, target: Target) -> Iterator[PipelineTold]:
    """Of every dispatch that a pipeline computes."""
    for i, d in enumerate(schedule.dispatches):
        on = dict(target.devices).get(d.device, target)
        named = [p for p in on.pipelines if p.name == d.pipeline]
        roots = OneDispatch(i, d, schedule.program, on).pipeline_roots if named else []
        # another compiler's answer, which is judged, may be one that it does not take
        if named and all_workgroups(roots, named[0], on.padding) is not None:
            asked = [r for r in roots if is_unpacked_contraction(r.attr)]
            refusals = [
                _of_dispatch(roots, asked, p, named[0], on) for p in on.pipelines if p != named[0]
            ]
            yield PipelineTold(i, d.pipeline, tuple(refusals), tuple(_full(asked, named[0], on)))


def _of_dispatch(
    roots: Sequence[Root], asked: Sequence[Root], p: Pipeline, chosen: Pipeline, target: Target
) -> Refusal:
    for r in asked:
        if (refused := why_refused(r.attr, p, target.padding)) is not None:
            return refused
    cuts, limit = all_workgroups(roots, p, target.padding) or [], target.limits.scratch_bytes
    held = sum(held_bytes(r, w, p, target.padding) for r, w in zip(roots, cuts, strict=True))
    if limit is not None and held > limit:
        is_less, change = f"scratch of at most {limit:,} bytes", f"`limits.scratch: {held}`"
        return Refusal(p.name, is_less, f"it keeps {held:,}", (change,))
    mine, best = (_least(asked, x, target) for x in (p, chosen))
    if p.rate is None or chosen.rate is None:
        return Refusal(p.name, f"to be faster than {chosen.name}", "no rate of both is stated")
    if mine <= best:
        return Refusal(p.name, f"to be faster than {chosen.name}, which is listed first", "it ties")
    value = f"its arithmetic takes {mine / 1e6:,.2f} us, {chosen.name}'s {best / 1e6:,.2f}"
    rate = p.rate * mine / best if best else 0.0
    changes = (f"`pipelines.{p.name}.rate: {rate:.3g}`",) if 0 < rate <= 1 else ()
    return Refusal(p.name, f"to be no slower than {chosen.name}", value, changes)


def _least(asked: Sequence[Root], p: Pipeline, target: Target) -> float:
    return contraction_ps(asked, all_workgroups(asked, p, target.padding) or [], p, target)


# ---- one contraction -----------------------------------------------------------------------------
def why_refused(g: Generic, p: Pipeline, padding: Padding | None = None) -> Refusal | None:
    """Why a pipeline does not take an unpacked contraction; None if it does."""
    if workgroup(g, p, padding) is not None:
        return None
    if unmet := unmet_conditions(g, p):
        return _joined(_unmet(g, p, unmet), why_refused(g, replace(p, when=()), padding))
    units = p.units(g.dtypes, g.precision)
    if not units:
        return _of_types(g, p, padding)
    unfit = min((_unfit(g, p, u) for u in units), key=len)
    if not unfit:
        return _of_grid(g, p, units[0], padding)
    return Refusal(
        p.name,
        " and ".join(_condition(p, role, options) for role, _, options in unfit),
        " and ".join(f"{role} is {_have(sizes, p)}" for role, sizes, _ in unfit),
        (*_keys(g, p, padding), *_dims(p, unfit), *_orders(p, unfit)),
    )


def _joined(one: Refusal, other: Refusal | None) -> Refusal:
    """Both: a change of each is needed."""
    if other is None:
        return one
    changes = (f"{a} and {b}" for a in one.changes for b in other.changes)
    both = f"{one.condition} and {other.condition}", f"{one.value} and {other.value}"
    return Refusal(one.pipeline, *both, tuple(changes))


def _unmet(g: Generic, p: Pipeline, unmet: Sequence[Condition]) -> Refusal:
    facts = condition_facts(g)
    wanted = [f"{c.left}: {facts[c.left]} to {_nearest(c)}" for c in unmet]
    condition = " and ".join(f"{c.left} {c.op} {c.right}" for c in unmet)
    have = " and ".join(dict.fromkeys(f"{c.left} is {facts[c.left]}" for c in unmet))
    changes = () if None in map(_nearest, unmet) else (" and ".join(wanted),)
    return Refusal(p.name, f"`when: {condition}`", have, changes)


def _of_types(g: Generic, p: Pipeline, padding: Padding | None) -> Refusal:
    """No intrinsic takes its operands; the type nearest to theirs is that of another precision."""
    types = list(dict.fromkeys(t for i in p.intrinsics for t in i.types))
    wanted = min(types, key=lambda t: t.partition("/")[0] != g.dtypes[0])
    dtype, _, precision = wanted.partition("/")
    other = replace(g, dtypes=(dtype,) * len(g.dtypes), precision=precision or g.precision)
    have = f"{' and '.join(dict.fromkeys(g.dtypes))} at precision {g.precision}"
    first = Refusal(
        p.name, f"both operands of {' or '.join(types)}", f"they are {have}",
        (f"type: {have} to {wanted}",),
    )  # fmt: skip
    return _joined(first, why_refused(other, p, padding))


Unfit = tuple[str, list[int], tuple[int, ...]]  # a role, sizes of its loops, extents it may have


def _unfit(g: Generic, p: Pipeline, unit: Unit) -> list[Unfit]:
    """Roles of which no loop that may be cut is divided by an extent."""
    runs = loop_runs(g) if p.collapse else [(d,) for d in g.executed if g.sizes[d] > 1]
    found: list[Unfit] = []
    for role in "mnk":
        mine = [run for run in runs if role_of_loop(g, run[0]) == role]
        sizes = [math.prod(g.sizes[d] for d in run) for run in mine] or [1]
        within, options = cut_choices(g, p, unit, role, sizes)
        if not fitting_extent(within, options)[1]:
            found.append((role, sizes, options))
    return found


def _condition(p: Pipeline, role: str, options: Sequence[int]) -> str:
    which = "the innermost loop" if p.cut == "innermost" else "a loop"
    if not options:
        return f"an extent of {role} that its intrinsic divides"
    return f"{which} of {role} a multiple of {' or '.join(map(str, options))}"


def _have(sizes: Sequence[int], p: Pipeline) -> str:
    every = "x".join(map(str, sizes))
    return every if len(sizes) == 1 or p.cut == "any" else f"{sizes[-1]} of {every}"


def _keys(g: Generic, p: Pipeline, padding: Padding | None) -> Iterator[str]:
    """The fewest keys that would do, in every way."""
    for count in range(1, len(LOOSER) + 1):
        found: list[str] = []
        for some in combinations(LOOSER, count):
            keys: dict[str, Any] = {k: v for one in some for k, v in one.items()}
            if workgroup(g, replace(p, **keys), padding) is not None:
                texts = (f"`pipelines.{p.name}.{k}: {_yaml(v)}`" for k, v in keys.items())
                found.append(" and ".join(texts))
        if found:
            yield from found
            return


def _yaml(value: str | bool) -> str:
    return "true" if value is True else str(value)


def _dims(p: Pipeline, unfit: Sequence[Unfit]) -> Iterator[str]:
    """Loops padded to the next multiple of an extent, the one that needs least."""
    texts = []
    for role, sizes, options in unfit:
        tried = sizes if p.cut == "any" else sizes[-1:]
        ways = [(cdiv(s, e) * e / s, s, cdiv(s, e) * e) for s in tried for e in options]
        if not ways:
            return
        _, size, least = min(ways)
        texts.append(f"{role}: {size} to {least}")
    yield "dim " + " and ".join(texts)


def _orders(p: Pipeline, unfit: Sequence[Unfit]) -> Iterator[str]:
    """Another loop of every role innermost, as another layout has it."""
    texts = []
    for role, sizes, options in unfit:
        at, extent = fitting_extent(sizes, options)
        if not extent or p.cut == "any":
            return
        texts.append(f"the loop of {sizes[at]} innermost of {role}")
    yield "layout with " + " and ".join(texts)


def _of_grid(g: Generic, p: Pipeline, unit: Unit, padding: Padding | None) -> Refusal:
    cut = cut_by(g, p, unit)
    assert cut is not None and padding is not None, "only a grid refuses what it can cut"
    sides = [
        (cut.result_block, g.result_shape),
        *((cut.block(i), s) for i, s in enumerate(g.shapes)),
    ]
    rows_lanes = padding.rows, padding.lanes
    why = next(w for block, whole in sides if (w := misaligned(block, whole, rows_lanes)))
    condition = (
        f"blocks of whole dims, or multiples of {padding.rows} rows and {padding.lanes} lanes"
    )
    return Refusal(p.name, condition, why)


def _nearest(c: Condition) -> int | str | None:
    """The value nearest to any that does not meet a condition."""
    if isinstance(c.right, str):
        return c.right if c.op == "==" else None
    return {"<": c.right - 1, ">": c.right + 1, "!=": None}.get(c.op, c.right)


# ---- how full ------------------------------------------------------------------------------------
def _full(asked: Sequence[Root], p: Pipeline, target: Target) -> Iterator[Occupancy]:
    """Of every contraction, where the target tells what its units have."""
    units = target.units
    for r in asked if units is not None else ():
        w = workgroup(r.attr, p, target.padding)
        assert units is not None and w is not None, "the pipeline computes it"
        of_role = {
            role: [x for x in w.taken if role_of_loop(r.attr, x[0]) == role] for role in "mnk"
        }
        m, n, k = (math.prod(w.taken[x] for x in runs) for runs in of_role.values())
        tile, results = (m * w.rows, n * w.columns), (x for x in w.taken if x[0] < r.attr.rank)
        sizes = ((math.prod(r.attr.sizes[d] for d in x), w.taken[x]) for x in results)
        count = math.prod(cdiv(size, taken) for size, taken in sizes)
        held = held_bytes(r, w, p, target.padding)
        kept = math.prod(tile) * ACCUMULATOR_BYTES if w.aligned else 0  # else part by part
        rooms = units.rooms(p.subgroups, held, kept)
        yield Occupancy(count, tile, k, units, tuple(rooms.items()), p.subgroups)
