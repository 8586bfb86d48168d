"""Updates by position: from scatters, over few points, in place, and seen by no late reader."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracted import AVX2, AVX512
from fuzz import guarded
from jax import lax
from loops import array
from rownests import flat
from runnable import WIDEST, needs
from seeds import one_in, seeds

import eqsat
from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.kernels.kernel import generate
from eqsat.extract import extract
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.plans import PlanPrices
from eqsat.frontends.jaxpr import trace
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.egraph import EGraph
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.nest import Access, Nest, Stage, Store
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.plan import rows
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.storage import in_place
from eqsat.plan.updates import nest_in_place, update_faults, updated
from eqsat.saturate import saturate
from tests.test_floors import floors_of
from tests.test_late_plans import floored_times

X, U = array(0, 3, 20, 24), array(1, 3, 1, 24)
ROWS = np.array([3, -2, 25], np.int32)
PLACES = (3, -1, 20)


def write(x: Any, u: Any, at: Any) -> Any:
    return lax.dynamic_update_slice(x, u, (0, at, 0))


# ---- scatters ------------------------------------------------------------------------------------
SCATTERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "row": lambda x, u, i: x.at[:, i].set(u[:, 0]),
    "added": lambda x, u, i: x.at[i].add(x[0]),
    "times": lambda x, u, i: x.at[1, i].multiply(u[0, 0]),
    "largest": lambda x, u, i: x.at[:, i].max(u[:, 0]),
    "known": lambda x, u, i: x.at[:, 3].add(u[:, 0]),
    "known least": lambda x, u, i: x.at[-1, 2].min(u[0, 0]),
    "known outside": lambda x, u, i: x.at[:, 30].set(u[:, 0]),
    "known slice": lambda x, u, i: x.at[1:].set(2.0),
    "clipped": lambda x, u, i: x.at[:, i].set(u[:, 0], mode="clip"),
    "two places": lambda x, u, i: x.at[1, :, i].set(x[0, :, 1]),
    "a byte": lambda x, u, i: x.at[:, i.astype(np.int8)].set(1.0, mode="drop"),
    "bools": lambda x, u, i: (x > 0).at[:, i].set(True),
    "by row": lambda x, u, i: x.at[jnp.arange(3), ROWS + i].set(u[:, 0]),
    "by row, dropped": lambda x, u, i: x.at[jnp.arange(3), :, ROWS + i].add(x[:, :, 0]),
    "mapped": lambda x, u, i: jax.vmap(write1)(x, u, ROWS + i),
    "gradients": lambda x, u, i: jax.grad(lambda y: (y[:, i] ** 3).sum())(x),
}
KEPT_WHOLE = {
    "duplicates": lambda x, u, i: x.at[ROWS].add(x),
    "wide by row": lambda x, u, i: jax.vmap(write1)(x, x[:, :2], ROWS + i),
    "applied": lambda x, u, i: x.at[i].apply(jnp.tanh),
}


def write1(x: Any, u: Any, at: Any) -> Any:
    return lax.dynamic_update_slice(x, u, (at, 0))


@pytest.mark.parametrize("name", one_in(5, SCATTERS))
def test_scatters_of_one_window_are_choices_by_position(name: str) -> None:
    function = SCATTERS[name]
    for place in PLACES:
        source = trace(function, (X, U, np.int32(place)))
        assert all(n.op != "opaque" for n in source.program.nodes)
        given = [X, U, np.int32(place)]
        (found,) = evaluate_program(source.program, given, source.weights)
        want = np.asarray(function(*map(jnp.asarray, given)), np.float32)
        np.testing.assert_allclose(found.astype(np.float32), want, rtol=1e-6)


@pytest.mark.parametrize("name", KEPT_WHOLE)
def test_scatters_whose_updates_may_meet_stay_as_they_are(name: str) -> None:
    source = trace(KEPT_WHOLE[name], (X, U, np.int32(1)))
    assert any(n.op == "opaque" for n in source.program.nodes)


# ---- few points ----------------------------------------------------------------------------------
MACHINES = {"avx512": AVX512, "avx2": AVX2}
LINE, START, NEW, OLD, RESULT = 0, 1, 2, 3, 9
LINES = frozenset({LINE})


def chosen(sizes: tuple[int, int, int], width: int, by_row: bool, base: int = 0) -> Nest:
    """[rows, places, elements], new at `width` places from a start on, which may be each row's."""
    line, start = arg(0), arg(1)
    end = call("add", start, const(width))
    inside = call("and", call("ge", line, start), call("lt", line, end))
    body = call("select", call("eq", line, start) if width == 1 else inside, arg(2), arg(3))
    accesses = (
        Access(LINE, "i32", (0, 1, 0), base),
        Access(START, "i32", (int(by_row), 0, 0)),
        Access(NEW, "f32", (sizes[2], 0, 1)),
        Access(OLD, "f32", flat(sizes)),
    )
    stage = Stage(4, (0, 1, 2), body, accesses, "f32")
    nest = Nest(sizes, (stage,), (Store(Access(RESULT, "f32", flat(sizes)), 0, (0, 1, 2)),))
    return in_place(nest, OLD, RESULT)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("width", [1, 3])
def test_a_kernel_over_few_points_writes_what_changes_and_nothing_else(
    machine: str, by_row: bool, width: int
) -> None:
    needs(MACHINES[machine])
    rng = np.random.default_rng(0)
    starts = (-(2**31), -2, -1, 0, 1, 18, 19, 20, 2**31 - 1)
    for elements, base in ((1, 0), (15, 0), (17, 2), (37, 0)):
        sizes = (3, 20, elements)
        few = updated(chosen(sizes, width, by_row, base), LINES)
        assert few.sizes == (3, width, elements)
        kernel = generate(few, rows.plan(few, MACHINES[machine]), MACHINES[machine], "kernel")
        new = rng.standard_normal((3, elements), np.float32)
        given = {LINE: np.arange(30, dtype=np.int32), NEW: new, OLD: np.zeros(sizes, np.float32)}
        for at in itertools.islice(zip(starts, starts[2:], starts[4:], strict=False), 5):
            start = np.array(at if by_row else at[:1], np.int32)
            (found,) = guarded.run(
                kernel, MACHINES[machine],
                [{**given, START: start}[b] for b in kernel.reads], [(sizes, np.float32)],
            )  # fmt: skip
            place = np.arange(20, dtype=np.int64) + base
            first = np.broadcast_to(start.astype(np.int64), 3)[:, None]
            end = (first + width + 2**31) % 2**32 - 2**31  # numbers wrap
            changed = (place == first) if width == 1 else (place >= first) & (place < end)
            old = np.full(sizes, guarded.OTHER * 0x01010101, np.uint32).view(np.float32)
            want = np.where(changed[:, :, None], new[:, None], old)
            assert found.tobytes() == want.tobytes()


def test_what_is_not_known_to_be_few_points_stays_whole() -> None:
    nest = chosen((3, 20, 8), 1, by_row=False)
    assert updated(nest, frozenset()) is nest, "the line may hold any numbers"
    (stage,) = nest.stages
    line, start, *rest = stage.arguments
    steps = replace(line, strides=(0, 2, 0))
    along = replace(start, strides=(0, 1, 0))
    turned = call("select", stage.body.args[0], arg(3), arg(2))

    def changed(body: Expr = stage.body, arguments: Any = stage.arguments) -> Nest:
        return replace(nest, stages=(replace(stage, body=body, arguments=tuple(arguments)),))

    two = call("or", stage.body.args[0], call("lt", arg(0), arg(1)))
    either = call("select", two, arg(2), arg(3))
    for other in (
        changed(arguments=(steps, start, *rest)),
        changed(arguments=(line, along, *rest)),
        changed(turned),
        changed(either),
    ):
        assert updated(other, LINES) is other


def test_only_updates_are_in_place_of_what_is_computed() -> None:
    """Also the second time: equal nests are remembered."""

    def plain(x: Any, y: Any) -> Any:
        return jnp.exp(x @ y) * 2.0 / (x @ y).sum(0)

    for _ in range(2):
        run = eqsat.optimize(plain, array(0, 40, 40), array(1, 40, 40), target="avx512")
        assert run.schedule is not None
        assert not run.schedule.in_place


def test_the_check_knows_a_nest_that_leaves_points_out_or_moves_them() -> None:
    for width, by_row in itertools.product((1, 3), (False, True)):
        whole = chosen((3, 20, 8), width, by_row)
        few = updated(whole, LINES)
        assert not list(update_faults(whole, few, LINES))
        (store,), (stage,) = few.stores, few.stages
        (lookup,) = store.access.lookups
        for at in (
            replace(lookup, extent=lookup.extent - 1),
            replace(lookup, stride=lookup.stride + 8),
            replace(lookup, body=call("add", arg(0), const(1))),
        ):
            moved = replace(store, access=replace(store.access, lookups=(at,)))
            assert list(update_faults(whole, replace(few, stores=(moved,)), LINES)), at
        elsewhere = replace(store, access=replace(store.access, base=8))
        assert list(update_faults(whole, replace(few, stores=(elsewhere,)), LINES))
        old = replace(stage.arguments[3], base=8)  # type: ignore[type-var]
        wrong = replace(stage, arguments=(*stage.arguments[:3], old))
        assert list(update_faults(whole, replace(few, stages=(wrong,)), LINES))
        shorter = replace(few, sizes=(3, 1, 7))
        assert list(update_faults(whole, shorter, LINES)), "elements are left out"
        assert list(update_faults(whole, replace(few, sizes=(2, width, 8)), LINES))
    assert list(update_faults(whole, few, frozenset())), "not a line: any point may change"


# ---- schedules -----------------------------------------------------------------------------------
def stacked(cache: Any, new: Any, at: Any) -> Any:
    """Two layers of a cache [layer, row, place, element], each written and then read."""
    total = jnp.zeros(())
    for layer in range(2):
        cache = lax.dynamic_update_slice(cache, new[None, :, None] + total, (layer, 0, at, 0))
        total = total + jnp.tanh(cache[layer]).sum()
    return total, cache


def with_old(x: Any, u: Any, at: Any) -> Any:
    y = write(x, u, at)
    return y, x @ jnp.tanh(y).mT


def twice(x: Any, u: Any, at: Any) -> Any:
    y = write(x, u, at)
    return y, write(y, 2 * u, at + 1)


HAZARDS: dict[str, tuple[Callable[[Any, Any, Any], Any], bool, int]] = {
    # function, whether the first argument is donated, values in place on avx512
    "nothing else": (write, True, 1),
    "not donated": (write, False, 0),
    "the old value is read, too": (lambda x, u, i: (write(x, u, i), x * 2.0), True, 1),
    "the old value is a result": (lambda x, u, i: (write(x, u, i), x), True, 0),
    "read with the new value": (with_old, True, 0),
    "two of one value": (lambda x, u, i: (write(x, u, i), write(x, 2 * u, i + 1)), True, 1),
    "the first of two is a result": (twice, True, 0),  # both in one pass
    "new from old elements": (
        lambda x, u, i: write(x, lax.dynamic_slice(x, (0, i + 2, 0), (3, 1, 24)) * 2, i), True, 1,
    ),
    "added by row": (lambda x, u, i: x.at[jnp.arange(3), ROWS + i].add(u[:, 0]), True, 1),
    "in a scan": (
        lambda x, u, i: lax.scan(
            lambda c, k: (write(c, u * k, i + k), c.sum()), x, jnp.arange(3, dtype=np.int32)
        ), True, 0,
    ),
}  # fmt: skip


def found_by(function: Any, donate: bool, target: str = WIDEST) -> tuple[Any, Any]:
    given = {"donate": ["x"]} if donate else {}
    step = eqsat.jit(function, target=target, goals=["time"], rules=(), **given)
    run = step.optimize(jnp.asarray(X), jnp.asarray(U), jnp.int32(1))
    assert run.schedule is not None
    return step, run


@pytest.mark.parametrize("name", one_in(5, HAZARDS))
def test_no_reader_sees_a_later_write(name: str) -> None:
    function, donate, pairs = HAZARDS[name]
    targets = dict.fromkeys(("avx512", WIDEST))
    searched = {target: found_by(function, donate, target) for target in targets}
    assert len(searched["avx512"][1].schedule.in_place) == pairs
    step, run = searched[WIDEST]
    for place in PLACES:
        want = jax.tree.leaves(function(jnp.asarray(X), jnp.asarray(U), jnp.int32(place)))
        x = jnp.asarray(X) + 0.0
        found = jax.tree.leaves(step(x, jnp.asarray(U), jnp.int32(place)))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
        assert x.is_deleted() == donate
        held = Arena(run.schedule, {})([X, U, np.int32(place)], run.weights)
        for a, b in zip(held, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


@cache
def stacked_run() -> tuple[Any, Any, Schedule]:
    cache, new = array(2, 2, 3, 20, 24), array(3, 3, 24)
    run = eqsat.optimize(
        stacked, cache, new, np.int32(3), donate=["cache"], target=WIDEST, time_limit=20.0
    )
    assert run.schedule is not None
    return run, (cache, new), run.schedule


def test_a_stacked_state_is_written_layer_by_layer_where_it_lies() -> None:
    run, (cache, new), s = stacked_run()
    (first, argument), (last, middle) = sorted(s.in_place)
    assert (middle, argument) == (first, s.program.inputs[0])
    assert last in map(s.buffer_of, s.program.results)
    assert s.owners == dict.fromkeys((argument, first, last), argument)
    for d in s.dispatches:
        if {first, last} & {*d.writes}:
            nest = nest_in_place(s, d)
            assert np.prod(nest.sizes) == new.size, "only what is new"
            assert d.plan is not None
            assert not list(plan_faults(nest, d.plan))
    apart = replace(s, in_place=())
    assert apart.peak_bytes - s.peak_bytes > cache.nbytes
    assert first not in {b.node for b in s.temporaries}
    want = jax.jit(stacked)(cache, new, 5)
    for a, b in zip(Arena(s, {})([cache, new, np.int32(5)], run.weights), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)
    assert run.verify(samples=1).ok
    assert Schedule.from_json(s.to_json()) == s


def test_a_late_reader_is_a_fault_of_the_schedule() -> None:
    run, (cache, new), s = stacked_run()
    (first, argument), (last, _) = sorted(s.in_place)
    end = s.dispatches[-1]
    for old in (argument, first):
        late = replace(end, reads=(*end.reads, old))
        wrong = replace(s, dispatches=(*s.dispatches[:-1], late))
        if last in end.writes and old == first:
            continue  # its own writer reads it
        with pytest.raises(ValueError, match=r"was written in its place|after its buffer is gone"):
            wrong.verify()
        with pytest.raises(ArenaFault, match=r"was written in its place|its buffer is live"):
            Arena(wrong, {})([cache, new, np.int32(5)], run.weights)
    for pairs in (
        ((first, argument), (last, argument)),
        ((last, argument), (last, first)),
        ((argument, first),),
        ((first, last),),
    ):
        with pytest.raises(ValueError, match=r"in place|in its place"):
            replace(s, in_place=pairs).verify()


def test_a_state_that_was_computed_is_written_where_it_lies() -> None:
    """No argument is donated: the first state is made, the next ones lie in its bytes."""

    def steps(x: Any, u: Any, at: Any) -> Any:
        state, total = jnp.tanh(x) @ jnp.ones((24, 24)), jnp.zeros(())
        for k in range(2):
            state = write(state, u + total, at + k)
            total = total + (state @ state.mT).sum()
        return total

    step, run = found_by(steps, donate=False)
    plainly = jax.jit(steps)
    assert run.schedule.in_place
    assert not {old for _, old in run.schedule.in_place} & {*run.schedule.program.inputs}
    for place in (0, 7, 19):
        want = plainly(X, U, jnp.int32(place))
        np.testing.assert_allclose(step(X, U, jnp.int32(place)), want, rtol=1e-4)
        (held,) = Arena(run.schedule, {})([X, U, np.int32(place)], run.weights)
        np.testing.assert_allclose(held, want, rtol=1e-4)


# ---- prices --------------------------------------------------------------------------------------
def masked(x: Any, y: Any, u: Any, at: Any) -> Any:
    """What is new is computed for all places, and one of them is taken; then it is read."""
    new = jnp.exp(jnp.sin(y) * 2.0 + u)
    state = jnp.where(jnp.arange(y.shape[1])[:, None] == at, new, x)
    return state @ state.mT, state


def graph_for(function: Any, donate: str, *args: Any) -> tuple[Program, EGraph]:
    run = eqsat.optimize(
        function, *args, donate=[donate] if donate else [], target="avx512", stop_after="program"
    )
    merged = merge_elementwise(run.program)
    return merged, saturate(merged, load_rulesets(["default"]), load_target("avx512"))


@pytest.mark.slow  # 3 s; test_floors asks it of answers
@pytest.mark.parametrize("name", seeds(1, ["stacked", "masked"]))
def test_no_update_in_place_is_below_its_floor(name: str) -> None:
    target, at = load_target("avx512"), np.int32(3)
    if name == "masked":
        given: Any = (masked, "x", array(0, 3, 200, 24), array(1, 3, 200, 24), U, at)
    else:
        given = (stacked, "cache", array(2, 2, 3, 200, 24), array(3, 3, 24), at)
    program, egraph = graph_for(*given)
    least, times = floored_times(program, target)
    assert (least <= times).all()
    assert times.min() < 10**6, "some are over few points"
    best, baseline = extract(egraph, target, (GoalRequest("time"),))
    assert baseline is not None
    assert floors_of(egraph, target)["time"] <= best.goal("time").value


def test_a_part_of_the_next_state_that_is_not_in_place_is_written_whole() -> None:
    given = array(2, 2, 3, 200, 24), array(3, 3, 24), np.int32(3)
    space = Space(graph_for(stacked, "cache", *given)[1])
    prices, nodes = PlanPrices(space, load_target("avx512")), space.egraph.nodes
    parts = [
        (update, cut)
        for cut, n in enumerate(nodes)
        for update in space.updates
        if n.op == "slice" and n.children[0] == nodes[update].eclass
    ]
    assert parts
    for update, cut in parts:
        state, part = nodes[update].eclass, nodes[cut].eclass
        alone = prices.time_ps((cut,), (state,), (part,))
        fused = prices.time_ps((update, cut), nodes[update].children, (part,))
        assert alone is not None and fused is not None and fused >= alone
        in_place = prices.time_ps((update,), nodes[update].children, (state,))
        assert in_place is not None and in_place < alone


def test_what_is_read_with_its_next_state_does_not_die() -> None:
    given = array(2, 2, 3, 20, 24), array(3, 3, 24), np.int32(3)
    for function, args, dies in ((stacked, given, True), (with_old_state, (X, U, given[2]), False)):
        space = Space(graph_for(function, "", *args)[1])
        assert space.lines
        assert (args[0].shape in {space.type(b).shape for b in space.dying}) == dies


def with_old_state(x: Any, u: Any, at: Any) -> Any:
    state = jnp.tanh(x) @ jnp.ones((24, 24))
    return with_old(state, u, at)
