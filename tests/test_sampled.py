"""Verification by elements: right where the whole reference is too much work, never ok if wrong."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.largefaults import change, schedule_faults
from fuzz.networks import network
from fuzz.programs import Maker
from illconditioned import f32
from runnable import WIDEST

import eqsat
from eqsat.execute.dispatchwise import LEAST, part_borders, sampled, steps
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.elements import distinct_indices, open_elements
from eqsat.execute.executors import build_executable
from eqsat.execute.ondemand import Elements, OnDemand
from eqsat.execute.reference import OverWork, WorkBudget
from eqsat.execute.verify import verify
from eqsat.frontends.jaxpr import trace
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import bind_leaves, walk
from eqsat.report.text import verification_text

ABOVE_ROUNDING = 1e-4


# ---- elements on demand --------------------------------------------------------------------------
PADDED = """program padded
input x: f32[5, 7]
p = pack(x, pos=[0, 1], tiles=[4, 4], outer=[1, 0], pad=[0, any])
r = retype(p, pos=[0, 1], tiles=[4, 4], outer=[1, 0], pad=0, shape=[5, 7])
o = relax(r, pos=[0, 1], tiles=[4, 4], outer=[1, 0], pad=any, shape=[5, 7])
u = unpack(o, pos=[0, 1], tiles=[4, 4], outer=[1, 0], pad=any, shape=[5, 7])
return p, r, o, u
"""


def programs() -> list[Program]:
    found = [parse_program(PADDED)]
    for seed in range(12):
        found += [network(seed), Maker(seed, exact=False).program(8)]
    return found


def test_elements_are_those_of_the_whole_evaluation():
    seen: set[str] = set()
    for number, p in enumerate(programs()):
        rng = np.random.default_rng(number)
        leaves = bind_leaves(p, random_inputs(p, rng), drawn_weights(p))
        known = {i: v[0] for i, v in walk(p, random_inputs_again(p, number), drawn_weights(p))}
        for i, whole in known.items():
            n = p.nodes[i]
            if n.op in ("input", "weight") or not n.types[0].size:
                continue
            flat = distinct_indices(rng.integers(0, n.types[0].size, 12))
            found = OnDemand(p, leaves, {}, WorkBudget(1e12), {i: flat})()[i]
            wanted = np.asarray(whole).reshape(-1)[flat]
            assert found.dtype == wanted.dtype, (p.name, i)
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9, err_msg=str(n))
            seen.add(n.op)
    assert {"generic", "concat", "pad", "slice", "gather", "pack", "unpack", "retype"} <= seen


def random_inputs_again(p: Program, number: int) -> list[Any]:
    """Those that the same generator gave before."""
    return random_inputs(p, np.random.default_rng(number))


def test_only_what_is_needed_is_computed():
    """A row of a product of 4096 x 4096 by 4096 x 4096 is 16 million multiply-adds, not 68,719."""
    p = trace(lambda x, w: jnp.tanh(x @ w) @ w, (f32(4096, 4096), f32(4096, 4096))).program
    held = {i: np.ones((4096, 4096), np.float32) for i in p.inputs}
    work = WorkBudget(2e9)
    flat = np.array([7 * 4096 + 3])
    (found,) = Elements(p, p.results, held, [flat], {}, work)()
    np.testing.assert_allclose(found, 4096)
    assert 4096**2 < work.spent < 2e9
    with pytest.raises(OverWork):
        Elements(p, p.results, held, [flat], {}, WorkBudget(1e6))()


def test_open_lanes_are_found_and_left_out():
    p = parse_program(PADDED)
    mask = open_elements(p)
    packed, retyped, relaxed, whole = p.results
    assert mask[packed].sum() == 8 and mask[relaxed].sum() == 64 - 35
    assert retyped not in mask and whole not in mask
    flat = sampled(p.nodes[relaxed].type.shape, mask[relaxed], (), np.random.default_rng(0))
    assert len(flat) == 35 and not mask[relaxed].reshape(-1)[flat].any()


def test_corners_tails_and_borders_are_looked_at():
    p = trace(lambda x, y: jnp.concatenate([x, y], 1), (f32(1000, 39), f32(1000, 50))).program
    assert part_borders(p) == (39, 89)
    places = sampled((1000, 89), None, part_borders(p), np.random.default_rng(0))
    rows, columns = (set(x.tolist()) for x in np.unravel_index(places, (1000, 89)))
    assert {0, 87, 88, 80, 79, 64, 63, 38, 39} <= columns
    assert {0, 999, 998, 992, 991, 768, 767} <= rows
    assert {0, 88, 999 * 89, 1000 * 89 - 1} <= set(places.tolist())
    assert LEAST <= len(places) < 1000
    assert len(sampled((3, 5), None, (), np.random.default_rng(0))) == 15


# ---- verdicts ------------------------------------------------------------------------------------
def layer(x: Any, w: Any, v: Any, ids: Any) -> Any:
    """Dispatches of several kinds, with tails: 37 rows, 50 columns."""
    h = jnp.tanh(x @ w)
    h = jnp.concatenate([h[:, :20] * 2, h[:, 20:]], 1) + jnp.take(v, ids, axis=0, mode="clip")
    h = jax.nn.softmax(h, -1) @ v.T
    return h - h.mean(0), jnp.pad(h, ((1, 2), (0, 0))).sum(-1)


LAYER = (f32(37, 24), f32(24, 50), f32(29, 50), jax.ShapeDtypeStruct((37,), "int32"))


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    return eqsat.optimize(layer, *LAYER, target="avx2", goals=["time"], rules=())


def test_what_is_too_much_work_is_checked_by_elements(run: eqsat.Run):
    whole, found = run.verify(samples=1), run.verify(work_limit=1)
    assert (whole.outcome, whole.how, whole.elements) == ("ok", "whole", 0)
    assert (found.outcome, found.how, found.samples) == ("ok", "sampled", 1)
    count = len(run.need_schedule().dispatches)
    assert found.elements > LEAST * count
    assert found.checked == (
        f"{count} dispatches from their own operands, results through the whole program"
    )
    text = verification_text(found)
    assert f"(sampled: {found.elements:,} elements in float64, of {count} dispatches" in text
    assert run.summary()["verify"]["how"] == "sampled"


def test_every_dispatch_is_seen_with_its_own_operands(run: eqsat.Run):
    s = run.need_schedule()
    inputs = random_inputs(run.program, np.random.default_rng(0))
    seen = list(steps(run.executable, inputs))
    assert [x.number for x in seen] == list(range(len(s.dispatches)))
    apart = list(steps(run.executable, inputs, most_bytes=1))  # compiled one by one
    for a, b in zip(seen, apart, strict=True):
        for x, y in zip([*a.reads, *a.writes], [*b.reads, *b.writes], strict=True):
            np.testing.assert_array_equal(x, y)


def test_no_fault_in_a_schedule_is_called_ok(run: eqsat.Run):
    """Ops, plans and elements of tails, seen as a wrong kernel and as a wrong rewrite."""
    source, schedule = run.source, run.need_schedule()
    inputs = random_inputs(source.program, np.random.default_rng(1))
    right = build_executable(schedule, {}, source.weights, run.runs_on)
    wanted = right.compile()(*inputs)
    kinds: set[str] = set()
    for fault in islice(schedule_faults(schedule, random.Random(3)), 6):
        if fault.kind in kinds:
            continue  # one of a kind is enough here: the gate `verify` makes many
        executable = build_executable(fault.schedule, {}, source.weights, run.runs_on)
        fault.apply(executable)
        call = executable.compile()
        if change(call(*inputs), wanted) < ABOVE_ROUNDING:
            continue
        for s in (schedule, fault.schedule) if fault.is_rewrite else (schedule,):
            found = verify(
                source.program, call, source.weights, {}, chosen=s.program, schedule=s,
                executable=executable, work_limit=1,
            )  # fmt: skip
            assert found.outcome == "mismatch", (fault.kind, fault.dispatch, found)
            assert (found.how, found.reason != "") == ("sampled", True)
            if s is schedule:
                assert found.where.startswith(f"dispatch {fault.dispatch} "), found
        kinds.add(fault.kind)
    assert len(kinds) >= 3 and "element of a tail" in kinds, kinds


def test_weights_that_were_packed_wrong_are_found():
    w = np.random.default_rng(0).standard_normal((64, 48)).astype("f4")
    run = eqsat.optimize(lambda x: x @ w, f32(32, 64), target=WIDEST)
    assert run.verify(work_limit=1).ok
    run.executable.packed = {i: -x for i, x in run.executable.packed.items()}
    found = run.verify(work_limit=1)
    assert found.outcome == "mismatch" and found.where.startswith("weight ")


def test_an_error_that_the_limit_leaves_unexplained_is_not_ok(run: eqsat.Run):
    """The reference fits the limit, its evaluations with roundings do not."""
    right = run.executable.compile()

    def wrong(*xs: Any) -> Any:
        first, second = right(*xs)
        return [np.asarray(first) * 1.01, second]

    limit = 2 * run.verify(samples=1).operations
    s = run.need_schedule()
    options: Any = {"chosen": s.program, "schedule": s, "work_limit": limit}
    weights = run.source.weights
    alone = verify(run.program, wrong, weights, {}, **options)
    assert (alone.outcome, alone.ok) == ("unproven", False)
    assert "has not explained an error" in alone.reason
    found = verify(run.program, wrong, weights, {}, executable=run.executable, **options)
    assert (found.outcome, found.how) == ("mismatch", "sampled")


def test_a_loop_that_may_not_end_is_not_run_before_its_reference():
    def forever(x: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < 1e9, lambda c: c * 0.5, x)

    run = eqsat.optimize(forever, np.ones(8, "f4"), target="avx512-xla")
    found = run.verify(work_limit=1e7)
    assert found.outcome == "unproven" and "is a loop that may not end" in found.reason


def test_a_loop_is_evaluated_whole():
    def summed(x: Any, w: Any) -> Any:
        def step(c: Any, y: Any) -> Any:
            c = jnp.tanh(c @ w + y)
            return c, c.sum()

        return jax.lax.scan(step, x[0], x)

    run = eqsat.optimize(summed, f32(9, 17), f32(17, 17), target="avx512-xla")
    found = run.verify(work_limit=1)
    assert (found.outcome, found.how) == ("ok", "sampled"), found


def test_nan_everywhere_is_no_proof_by_elements_either():
    run = eqsat.optimize(lambda x: jnp.log(-jnp.abs(x) - 1.0), f32(300), target="avx512-xla")
    found = run.verify(work_limit=1)
    assert (found.ok, found.outcome) == (False, "unproven")
    assert "result 0 is NaN or infinite" in found.reason
