"""The checks of nests and plans refuse records that are changed by one, and no right one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.nestmeaning import evaluate
from planned import FUNCTIONS, changed, checked, planned
from runnable import WIDEST
from seeds import one_in

import eqsat
from eqsat.execute.kernels import executor
from eqsat.model.dispatch import Machine, Plan
from eqsat.model.expr import arg
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.model.schedule import Schedule
from eqsat.ops.meaning import scalar
from eqsat.ops.nests.reached import Box, Undecided, digits_of, fault_of, nest_faults
from eqsat.plan import planner
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.rows import Rows
from eqsat.schedule.legal import faults

# numbers that choose between plans which compute the same: how far ahead is asked, where blocks and
# chains are cut as long as they are all, what of several things is kept or computed again
FREE = {
    "contraction": {
        "asking", "prefetch", "prefetch_turns", "chain", "k_block", "tile_block", "panel_block",
        "row_tiles", "vectors", "wide", "strips", "outer_rows", "reduced", "scratch_bytes",
        "dot", "in_order", "in_registers", "shifted",
    },
    "rows": {"block", "cached", "vectors", "lanes", "scratch_bytes", "vector", "square"},
    "row_blocks": {"chunk", "dots", "slots", "streamed", "wide_vectors", "scratch_bytes"},
}  # fmt: skip
HELD = {
    "contraction": {
        "lanes", "rows", "items", "panels", "k_blocks", "copied", "fused", "swapped",
        "vector_loop", "vector_rows", "row_loops", "outer_columns", "batch", "windows", "order",
    },
    "rows": {"items", "numbered", "outer", "passes", "inside"},
    "row_blocks": {"items", "blocks", "rows", "lanes", "vectors", "columns_copied", "weights_slot"},
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, FUNCTIONS))
def test_a_plan_changed_by_one_is_refused(name: str):
    survivors: Counter[str] = Counter()
    for nest, plan in planned(name):
        if plan.kind not in HELD:
            continue
        assert list(plan_faults(nest, plan)) == []
        for what, other in _plans(plan):
            if what not in FREE[plan.kind] and not _refuses(nest, other):
                survivors[f"{plan.kind}.{what}"] += 1
    assert not survivors


@pytest.mark.slow  # all plans there are, 4 s
def test_what_is_held_and_free_are_all_numbers_of_plans():
    seen = {(p.kind, what) for n in FUNCTIONS for _, p in planned(n) for what, _ in _plans(p)}
    for kind, held in HELD.items():
        named = held | FREE[kind] | {"extra", "reduced"}
        assert {what for k, what in seen if k == kind} <= named


def _refuses(nest: Nest, plan: Plan) -> bool:
    return next(plan_faults(nest, plan), "") != ""


def _plans(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans that differ in one number, and in what."""
    if isinstance(plan, Rows):
        yield from _row_plans(plan)
    for f in fields(plan):
        if f.name not in ("work", "parts"):
            for x in changed(getattr(plan, f.name)):
                yield f.name, replace(plan, **{f.name: x})


def _row_plans(plan: Rows) -> Iterator[tuple[str, Plan]]:
    """Plans that differ in one number of a part or pass, and in what."""
    for i, part in enumerate(plan.parts):
        yield from _insides(plan, i)
        for name in part._fields:
            if name not in ("passes", "inside"):
                for x in changed(getattr(part, name)):
                    new = part._replace(**{name: x})
                    yield (
                        name,
                        replace(plan, parts=(*plan.parts[:i], new, *plan.parts[i + 1 :])),
                    )
        for q in range(len(part.passes)):
            for name in ("stages", "stores", "inner", "reduced"):
                for x in changed(getattr(part.passes[q], name)):
                    new = part.passes[q]._replace(**{name: x})
                    passes = (*part.passes[:q], new, *part.passes[q + 1 :])
                    new = part._replace(passes=passes)
                    parts = (*plan.parts[:i], new, *plan.parts[i + 1 :])
                    yield "passes", replace(plan, parts=parts)


def _insides(plan: Rows, i: int) -> Iterator[tuple[str, Plan]]:
    """Parts of which more, or what is not tested, is said to lie inside."""
    part = plan.parts[i]
    if (own := part.inside) is None:
        return
    others = [own._replace(rows=own.rows[1:])] if own.rows else []
    others += [own._replace(low=x) for x in changed(own.low)]
    for x in [*others, *(own._replace(high=x) for x in changed(own.high))]:
        new = part._replace(inside=x)
        yield "inside", replace(plan, parts=(*plan.parts[:i], new, *plan.parts[i + 1 :]))


# ---- nests ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", one_in(3, FUNCTIONS))
def test_a_nest_that_writes_or_sums_something_else_is_refused(name: str):
    """Whatever the check lets through writes every element, once, and sums the same points."""
    for nest, elements, summed in checked(name)[:8]:
        assert nest_faults(nest, elements, summed) == ([], [])
        for other in _nests(nest):
            wrong, _ = nest_faults(other, elements, summed)
            if not wrong:
                assert _writes_all(other, elements), f"{nest}\nbecame\n{other}"


def _nests(nest: Nest) -> Iterator[Nest]:
    """Nests that differ in one extent, stride, offset, bound or set of loops of what is written."""
    for sizes in changed(nest.sizes):
        if len(sizes) == len(nest.sizes) and min(sizes, default=1) > 0:
            yield replace(nest, sizes=sizes)
    for i, b in enumerate(nest.bounds):
        for x in (replace(b, extent=b.extent + 1), replace(b, extent=b.extent - 1)):
            yield replace(nest, bounds=(*nest.bounds[:i], x, *nest.bounds[i + 1 :]))
    if nest.bounds:
        yield replace(nest, bounds=())
    for i, s in enumerate(nest.stores):
        for x in _stores(s):
            yield replace(nest, stores=(*nest.stores[:i], x, *nest.stores[i + 1 :]))
    for i, s in enumerate(nest.stages):
        if s.combine and len(s.reduced) > 1:
            yield replace(nest, stages=_with(nest.stages, i, replace(s, reduced=s.reduced[1:])))


def _with(stages: tuple[Stage, ...], i: int, s: Stage) -> tuple[Stage, ...]:
    return (*stages[:i], s, *stages[i + 1 :])


def _stores(s: Store) -> Iterator[Store]:
    yield from (replace(s, access=replace(s.access, base=x)) for x in changed(s.access.base))
    for strides in changed(s.access.strides):
        if len(strides) == len(s.access.strides):
            yield replace(s, access=replace(s.access, strides=strides))


def _writes_all(nest: Nest, elements: Mapping[int, int]) -> bool:
    """Whether every element is written and every sum is of as many points, by evaluation."""
    ones = {
        b: np.ones(elements[b], scalar.held_dtype(a.dtype))
        for a in nest.accesses for b in a.buffers() if b in nest.reads
    }  # fmt: skip
    try:
        found = evaluate(nest, ones, {w: elements[w] for w in nest.writes})
    except IndexError:
        return False
    kinds = (x for x in found.values() if x.dtype.kind == "f")
    return not any(np.isnan(x).any() for x in kinds)


# ---- how checks are used -------------------------------------------------------------------------
def test_a_plan_that_is_refused_is_no_plan_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def wrong(nest: Nest, machine: Machine) -> Plan:
        found = plan(nest, machine)
        return replace(found, items=found.items + 1)

    plan = planner.plan
    planner._plan.cache_clear()
    monkeypatch.setattr(planner, "plan", wrong)
    with caplog.at_level(logging.ERROR, "eqsat.check"):
        run = eqsat.optimize(lambda x: x * 2 + 1, np.zeros((8, 9), np.float32), target="avx512")
    planner._plan.cache_clear()
    assert run.schedule is not None
    assert [d.plan for d in run.schedule.dispatches] == [None]
    assert "the check refuses its rows plan" in run.schedule.dispatches[0].no_plan
    assert "the check refuses a rows plan" in caplog.text


def test_a_wrong_plan_in_a_schedule_is_a_fault():
    run = eqsat.optimize(lambda x: x * 2 + 1, np.zeros((8, 9), np.float32), target="avx512")
    schedule = run.schedule
    assert schedule is not None
    assert faults(schedule, run.target) == []
    (d,) = schedule.dispatches
    assert d.plan is not None
    wrong = replace(schedule, dispatches=(replace(d, plan=replace(d.plan, items=7)),))
    assert any("other work items" in fault for fault in faults(wrong, run.target))


def test_no_nest_of_a_search_is_refused(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR, "eqsat.check"):
        for name in FUNCTIONS:
            planned(name)
    assert caplog.text == ""


# ---- integer reasoning ---------------------------------------------------------------------------
def test_an_element_that_is_not_written_once_is_named():
    half = Box(0, ((1, 24), (48, 64)))
    assert fault_of([half], 3072) == "element 24 of 3072 is never written, as are 1535 others"
    assert fault_of([half, Box(24, ((1, 24), (48, 64)))], 3072) == ""
    twice = [half, Box(16, ((1, 32), (48, 64)))]
    assert fault_of(twice, 3072) == "element 16 of 3072 is written 2 times, as are 511 others"
    assert "is written" in fault_of([Box(48, ((1, 48), (48, 64)))], 3072)
    assert fault_of([np.array([0, 2]), np.array([1])], 3) == ""


def test_bounds_that_tie_loops_in_two_ways_are_not_decided():
    (one,) = digits_of((2, 32), (0, 1), [Bound((32, 1), 0, 48), Bound((32, 1), 0, 40)])
    assert (one.low, one.end) == (0, 40)
    with pytest.raises(Undecided):
        digits_of((3, 5), (0, 1), [Bound((1, 1), -1, 3)])
    with pytest.raises(Undecided):
        digits_of((2, 32), (1,), [Bound((32, 1), 0, 48)])


def test_what_is_not_decided_is_executed_against_its_ops_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
):
    x = np.random.default_rng(0).standard_normal((8, 9)).astype(np.float32)
    run = eqsat.optimize(lambda x: jnp.tanh(x) * 2 + 1, x, target=WIDEST)
    asked: list[int] = []
    disagreement = executor.disagreement

    def wrong(schedule: Schedule, number: int, sides: executor.Sides) -> str:
        asked.append(number)
        return disagreement(schedule, number, (lambda *x: [2 * sides[1](*x)[0]], sides[1]))

    monkeypatch.setattr(executor, "undecided", lambda *_: ["who knows"])
    assert set(executor.KernelsExecutable(*_parts(run)).calls) == {0}
    monkeypatch.setattr(executor, "disagreement", wrong)
    refusing = executor.KernelsExecutable(*_parts(run))
    assert refusing.calls == {} and asked == [0]
    assert "cannot decide (who knows), and %" in refusing.refused[0]
    assert np.allclose(refusing(x)[0], np.tanh(x) * 2 + 1, rtol=1e-5)


def _parts(run: eqsat.Run) -> tuple[Any, ...]:
    assert run.schedule is not None
    return run.schedule, {}, {}, run.target


def test_what_is_written_may_be_read_only_where_it_stays_as_it_is():
    here = Access(0, "f32", (1,))
    stage, there = Stage(0, (0,), arg(0), (here,), "f32"), Store(here, 0, (0,))
    kept = Nest((4,), (stage,), (there,))
    assert nest_faults(kept, {0: 4}, {}) == ([], [])
    turned = replace(kept, stages=(replace(stage, arguments=(Access(0, "f32", (-1,), 3),)),))
    assert "other elements are written" in nest_faults(turned, {0: 4}, {})[0][0]
