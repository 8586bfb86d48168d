"""Donated arguments: a state's next value is written in its place, on a schedule and in JAX."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracted import AVX2, AVX512
from fuzz import guarded
from rownests import flat
from runnable import WIDEST, needs

import eqsat
from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.kernels.kernel import generate
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call
from eqsat.model.nest import Access, Bound, Nest, NoNest, Stage, Store
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.plan import rows
from eqsat.plan.storage import in_place, unchanged_in_place

MACHINES = {"avx512": AVX512, "avx2": AVX2}
HERE, NEW, OLD, RESULT = 0, 1, 2, 9  # buffers


def appended(cache, row, position):
    """A cache [heads, tokens, size] with a row of its own per head at a position; its sums."""
    here = jnp.arange(cache.shape[1]) == position
    cache = jnp.where(here[None, :, None], row[:, None, :], cache)
    return cache.sum((1, 2)), cache


def arguments(tokens=20):
    rng = np.random.default_rng(0)
    cache = jnp.asarray(rng.standard_normal((3, tokens, 40), np.float32)) + 0.0
    return cache, jnp.asarray(rng.standard_normal((3, 40), np.float32))


# ---- JAX -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [WIDEST, "avx512-xla"])
def test_a_donated_cache_is_gone_and_its_bytes_hold_the_next_one(target):
    step = eqsat.jit(appended, target=target, donate=["cache"])
    cache, row = arguments()
    want = np.asarray(cache).copy()
    for position in (4, 19, 0, 25):  # the last lies outside: nothing is written
        before, address = cache, cache.unsafe_buffer_pointer()
        total, cache = step(cache, row, jnp.int32(position))
        want[:, position : position + 1] = np.asarray(row)[:, None][:, : want.shape[1] > position]
        assert before.is_deleted()
        assert not row.is_deleted()
        assert cache.unsafe_buffer_pointer() == address
        np.testing.assert_array_equal(np.asarray(cache), want)
        np.testing.assert_allclose(np.asarray(total), want.sum((1, 2)), rtol=1e-4, atol=1e-4)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        step(before, row, jnp.int32(0))


def test_the_schedule_says_what_is_written_in_place():
    step = eqsat.jit(appended, target="avx512", donate=["cache"])
    cache, row = arguments()
    schedule = step.optimize(cache, row, jnp.int32(1)).schedule
    assert schedule is not None
    ((result, argument),) = schedule.in_place
    assert schedule.program.nodes[result].type == schedule.program.nodes[argument].type
    assert schedule.donated_bytes == cache.nbytes
    assert "in place of" in schedule.to_text()
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_weights_may_come_with_a_call_that_donates():
    def step(state, w):
        return state * 0.5 + jnp.tanh(w).sum()

    f = eqsat.jit(step, target=WIDEST, weights=["w"], donate=["state"])
    state, w = jnp.ones((64, 64)) + 0.0, jnp.ones((8, 8))
    want = np.asarray(state) * 0.5 + np.tanh(np.ones((8, 8), np.float32)).sum()
    after = f(state, w)
    assert state.is_deleted()
    assert not w.is_deleted()
    np.testing.assert_allclose(np.asarray(after), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"donate": ["cash"]}, "E324", "`donate` names `cash`"),
        ({"donate": ["cache"], "weights": ["cache"]}, "E400", "among `weights`"),
        ({"donate": ["cache"], "derivatives": "searched"}, "E400", "backward pass"),
    ],
)
def test_what_cannot_be_donated(options, code, said):
    cache, row = arguments()
    with pytest.raises(EqsatError) as e:
        eqsat.jit(appended, target="avx512", **options)(cache, row, jnp.int32(0))
    assert e.value.diagnostics[0].code == code
    assert said in str(e.value)


def one_token(q, key, value, keys, values, position):
    """Attention of heads that share keys, which a token's own are added to first."""
    places = jnp.arange(keys.shape[1])
    here = (places == position)[:, None]
    keys, values = jnp.where(here, key, keys), jnp.where(here, value, values)
    scores = jnp.einsum("hqd,hkd->hqk", q, keys)
    weights = jax.nn.softmax(jnp.where(places <= position, scores, -1e30), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", weights, values), keys, values


def test_the_search_counts_on_donated_arguments():
    """Keys and values are not written by the attention, which could not be in place."""
    rng = np.random.default_rng(0)
    shapes = (4, 4, 32), (4, 1, 32), (4, 1, 32), (4, 300, 32), (4, 300, 32)
    values = [jnp.asarray(rng.standard_normal(s, np.float32)) + 0.0 for s in shapes]
    given = (*values, jnp.int32(211))
    want = one_token(*given)
    times = []
    for donate in ((), ("keys", "values")):
        step = eqsat.jit(one_token, target=WIDEST, donate=donate, rules=())
        run = step.optimize(*given)
        assert run.schedule is not None
        assert len(run.schedule.in_place) == len(donate) or not donate
        times.append(run.schedule.time_ps)
    assert times[1] < times[0]
    for a, b in zip(step(*given), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_program_says_what_is_donated_in_its_file():
    cache, row = arguments()
    run = eqsat.optimize(appended, cache, row, jnp.int32(0), donate=["cache"], target="avx512")
    program = Program.from_json(run.program.to_json())
    assert [program.leaf(i).donated for i in program.inputs] == [True, False, False]
    with pytest.raises(EqsatError, match="`donate` names `cash`"):
        eqsat.optimize(appended, cache, row, jnp.int32(0), donate=["cash"], target="avx512")


# ---- schedules -----------------------------------------------------------------------------------


def scheduled(f, *args, donate=()):
    run = eqsat.optimize(f, *args, target="avx512", donate=donate)
    assert run.schedule is not None
    return run, run.schedule


def test_what_is_read_later_is_not_overwritten():
    """Of `x + y` and, in a dispatch behind it, the products of `x`."""

    def f(x, y):
        return x + y, x @ y.T

    x = jnp.zeros((40, 40))
    _, s = scheduled(f, x, x, donate=["x"])
    (argument, _) = s.program.inputs
    (added,) = (r for r in s.program.results if argument in _writer(s, r).reads
                and "contraction" not in _writer(s, r).ops)  # fmt: skip
    readers = [d.step for d in s.dispatches if argument in d.reads]
    is_last = _writer(s, added).step == max(readers)
    assert bool(s.in_place) == is_last
    if not is_last:
        with pytest.raises(ValueError, match="was written in its place"):
            replace(s, in_place=((added, argument),)).verify()


def _writer(s, node):
    return next(d for d in s.dispatches if node in d.writes)


def test_the_arena_has_one_buffer_for_both_and_notices_a_late_read():
    def f(x, y):
        z = x + y
        return z, z @ x

    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    run, s = scheduled(f, x, x)
    assert not s.in_place
    first, second = s.program.inputs
    (added,) = (r for r in s.program.results if second in _writer(s, r).reads)
    wrong = replace(s, in_place=((added, first),))
    with pytest.raises(ArenaFault, match="was written in its place"):
        Arena(wrong, {})([x, x], run.weights)
    run, right = scheduled(f, x, x, donate=["x", "y"])
    ((added, old),) = right.in_place
    assert (added in right.program.results, old) == (True, right.program.inputs[1])
    right.verify()
    found = Arena(right, {})([x, x], run.weights)
    want = evaluate_program(run.program, [x, x], run.weights)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


# ---- nests and kernels ---------------------------------------------------------------------------
def chosen(sizes, body, here=(0, 1, 0), dtype="f32"):
    """A result over three loops, `body` of a condition, a new value and an old element."""
    whole = flat(sizes)
    arguments = (
        Access(HERE, "bool", here),
        Access(NEW, dtype, (sizes[2], 0, 1)),
        Access(OLD, dtype, whole),
    )
    stage = Stage(3, (0, 1, 2), body, arguments, dtype)
    return Nest(sizes, (stage,), (Store(Access(RESULT, dtype, whole), 0, (0, 1, 2)),))


SELECTED = call("select", arg(0), arg(1), arg(2))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sizes", [(3, 20, 64), (2, 5, 37), (1, 70, 1)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("by", ["row", "element"])
def test_only_what_changes_is_written(machine, sizes, turned, by):
    """The rest of the buffer keeps what it had, whatever a condition depends on; NaN is a value."""
    needs(MACHINES[machine])
    body = call("select", arg(0), arg(2), arg(1)) if turned else SELECTED
    nest = chosen(sizes, body, (0, 1, 0) if by == "row" else flat(sizes))
    nest = in_place(nest, OLD, RESULT)
    kernel = generate(nest, rows.plan(nest, MACHINES[machine]), MACHINES[machine], "kernel")
    rng = np.random.default_rng(0)
    here = rng.random(sizes[1] if by == "row" else sizes) < 0.3
    new = rng.standard_normal((sizes[0], sizes[2]), np.float32)
    new[0, 0] = np.nan
    given = {HERE: here, NEW: new, OLD: np.zeros(sizes, np.float32)}
    (found,) = guarded.run(
        kernel, MACHINES[machine], [given[b] for b in kernel.reads], [(sizes, np.float32)]
    )
    changed = np.broadcast_to(here[None, :, None] if by == "row" else here, sizes) != turned
    untouched = np.full(sizes, guarded.OTHER * 0x01010101, np.uint32).view(np.float32)
    want = np.where(changed, np.broadcast_to(new[:, None], sizes), untouched)
    assert found.tobytes() == want.tobytes()


def test_nests_that_cannot_be_in_place():
    nest = chosen((2, 5, 16), SELECTED)
    (stage,), (store,) = nest.stages, nest.stores
    moved = replace(stage, arguments=(*stage.arguments[:2], Access(OLD, "f32", (80, -16, 1), 64)))
    total = Stage(4, (0,), arg(0), (0,), "f32", "add", (1, 2))
    inside = Bound((0, 1, 0), 0, 4)
    other = Store(Access(8, "f32", flat(nest.sizes)), 1, (0, 1, 2))
    reads = Stage(5, (0, 1, 2), arg(0), (stage.arguments[2],), "f32")
    for wrong in (
        replace(nest, stages=(moved,)),
        replace(nest, stages=(stage, total)),
        replace(nest, stores=(replace(store, bounds=(inside,)),)),
        replace(nest, stages=(stage, reads), stores=(store, other)),
    ):
        with pytest.raises(NoNest):
            in_place(wrong, OLD, RESULT)
    with pytest.raises(NoNest):
        in_place(nest, NEW, RESULT)
    assert in_place(nest, OLD, RESULT).stores[0].in_place == OLD


def test_what_stays_as_it_is_has_no_traffic():
    nest = chosen((2, 5, 16), SELECTED)
    assert unchanged_in_place(nest, [OLD]) == {OLD, RESULT}
    assert unchanged_in_place(nest, [NEW]) == set()
    added = chosen((2, 5, 16), call("add", arg(1), arg(2)))
    assert unchanged_in_place(added, [OLD]) == set()
