"""Loops and branches: read as ops that hold programs, searched inside, priced, executed, told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.worst import worst_error
from loops import FORCED, FUNCTIONS, ROWS, STACK, U, W, X, array, ops, search
from runnable import WIDEST
from seeds import one_in, seeds

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.lang.programs import parse_program
from eqsat.model.control import CONTROL, Control, controls, every_program
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_node, evaluate_program
from eqsat.ops.programs.loopparts import NotStackable, stacked_attr
from eqsat.report.facts import rule_facts
from eqsat.schedule import faults


@pytest.mark.parametrize("name", one_in(2, FUNCTIONS))
def test_it_is_read_as_what_it_is(name: str):
    function, args, expected = FUNCTIONS[name]
    found = trace(function, args)
    found.program.verify()
    assert ops(found.program) & (CONTROL | {"opaque"}) == expected
    got = evaluate_program(found.program, args, found.weights, found.opaque)
    for a, b in zip(jax.tree.leaves(function(*args)), got, strict=True):
        assert worst_error(np.asarray(a), b)[0] < 1e-5
    assert not any(p.weights for _, a in controls(found.program) for p in a.bodies)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_goes_to_text_and_json_and_back(name: str):
    program = trace(*FUNCTIONS[name][:2]).program
    assert parse_program(program.to_text()) == program
    assert Program.from_json(json.loads(json.dumps(program.to_json()))) == program


PACKED = {"rnn", "layers", "counted", "one_of", "power"}  # searched with every tile forced


@pytest.mark.parametrize("name", one_in(5, FUNCTIONS))
def test_it_is_searched_and_executed(name: str):
    function, args, _ = FUNCTIONS[name]
    run = search(name, settings=FORCED if name in PACKED else ())
    assert run.egraph is not None and run.schedule is not None
    run.egraph.verify()
    assert faults(run.schedule, run.target, run.canonical) == []
    assert run.verify(samples=1).ok
    for a, b in zip(
        jax.tree.leaves(function(*args)), jax.tree.leaves(run.compile()(*args)), strict=True
    ):
        assert worst_error(np.asarray(b), np.asarray(a, np.float64))[0] < 1e-5
    if run.baseline_schedule is not None:
        assert run.schedule.time_ps <= run.baseline_schedule.time_ps


# ---- weights leave the loop ----------------------------------------------------------------------
def test_a_weight_is_packed_once_and_outside():
    a, b = array(10, 16, 32), array(11, 32, 16)

    def step(c: Any, x: Any) -> Any:
        return jnp.tanh(c @ a @ b + x), None

    run = eqsat.optimize(
        lambda x: jax.lax.scan(step, x[0], x)[0], ROWS, target="avx512-xla", settings=FORCED
    )
    assert run.schedule is not None
    (loop,) = run.schedule.held
    (body,) = loop.schedules
    assert not body.program.weights and not body.ahead
    counts = run.schedule.counts()
    assert counts["weight_packs"] >= 1 and counts["dispatches"] == run.schedule.kernels
    packed = {n.type.shape for n in run.schedule.program.nodes if n.op == "pack"}
    assert (2, 16, 16) in packed or (2, 16, 16, 1) in packed
    assert run.schedule.resident_bytes == a.nbytes + b.nbytes
    assert run.schedule.load_peak_bytes > run.schedule.resident_bytes


def test_stacked_weights_are_packed_all_at_once():
    run = search("layers", settings=FORCED)
    assert run.schedule is not None
    counts = run.schedule.counts()
    assert (counts["weight_packs"], counts["packs"]) == (2, 0)
    packs = [n for n in run.schedule.program.nodes if n.op == "pack"]
    assert all(n.type.shape[0] == 4 for n in packs)
    sizes = sum(x.nbytes for x in STACK.values())
    assert run.schedule.resident_bytes == sizes
    (body,) = run.schedule.held[0].schedules
    assert {n.attr.source for n in body.program.nodes if n.op == "pack"} <= {(8, 16)}  # type: ignore[union-attr]


def test_what_has_no_form_for_stacks_is_computed_in_every_step():
    def sorted_rows(x: Any) -> Any:
        return jax.lax.scan(lambda c, w: (c + jnp.sort(w), None), x, STACK["g"])[0]

    run = eqsat.optimize(sorted_rows, X, target="avx512-xla", verify=True)
    assert run.verification is not None and run.verification.ok
    assert "opaque" in {n.op for p in run.schedule.held[0].bodies for n in p.nodes}  # type: ignore[union-attr]


def test_an_op_on_a_whole_stack_is_the_op_on_every_slice():
    program = parse_program(
        """
        input x: f32[6, 4]
        input y: f32[4]
        %0 = transpose(x, perm=[1, 0]) : f32[4, 6]
        %1 = generic(%0, y, loops=[4, 6], maps=[[d0, d1], [d0]], body=mul(x0, x1)) : f32[4, 6]
        %2 = pad(%1, low=[1, 0], high=[0, 2], value=1.0) : f32[5, 8]
        %3 = slice(%2, start=[1, 0], limit=[5, 8], stride=[2, 1]) : f32[2, 8]
        %4 = concat(%3, %3, axis=0) : f32[4, 8]
        %5 = pack(%4, pos=[1], tiles=[4], outer=[1, 0]) : f32[2, 4, 4]
        %6 = reshape(%5, shape=[32]) : f32[32]
        %7 = unpack(%5, pos=[1], tiles=[4], outer=[1, 0], shape=[4, 8]) : f32[4, 8]
        return %6, %7
        """
    )
    stack, fixed = array(7, 3, 6, 4).astype(float), array(8, 4).astype(float)
    values: list[Any] = []
    for n in program.nodes:
        if n.op == "input":
            values.append(stack if program.inputs[0] == len(values) else fixed)
            continue
        several = [values[o] is not fixed for o in n.operands]
        attr = stacked_attr(n.op, n.attr, 3, several)
        values += evaluate_node(n.op, attr, [values[o] for o in n.operands])
    for r, got in zip(program.results, (values[r] for r in program.results), strict=True):
        each = [evaluate_program(program, [s, fixed], {}) for s in stack]
        want = np.stack([e[program.results.index(r)] for e in each])
        assert np.array_equal(got, want)
    with pytest.raises(NotStackable):
        stacked_attr("opaque", Control("scan", (), 0), 3, [True])


# ---- state stays packed -------------------------------------------------------------------------
SQUARE = array(12, 64, 64) * 0.5
ALONE = ("untiled_rate=0.05", "fusion.members=1", "trips=10")  # conversions are not for free


def test_state_stays_packed_from_step_to_step_where_that_pays():
    def loop(x: Any, n: Any) -> Any:
        step = lambda s: (s[0] + 1, jax.nn.relu(s[1] @ SQUARE))  # noqa: E731
        return jax.lax.while_loop(lambda s: s[0] < jnp.minimum(n, 3), step, (0, x))[1]

    shapes = jax.ShapeDtypeStruct((32, 64), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    run = eqsat.optimize(loop, *shapes, target="avx512-xla", settings=ALONE, verify=True)
    assert run.verification is not None and run.verification.ok
    assert run.schedule is not None
    (held,) = run.schedule.held
    assert (2, 4, 16, 16) in {t.shape for t in held.result_types}
    assert not {"pack", "unpack"} & {n.op for s in held.schedules for n in s.program.nodes}
    counts = run.schedule.counts()
    assert (counts["packs"], counts["unpacks"], counts["weight_packs"]) == (1, 1, 1)
    path = next(p for p in run.bodies if p.endswith("body"))
    assert "f32[2, 4, 16, 16]" in run.explain(path, price=False).to_text()


def test_state_is_not_packed_where_the_next_step_needs_it_plain():
    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 4, lambda i, c: jnp.tanh(c @ SQUARE).T, x)

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    run = eqsat.optimize(loop, shape, target="avx512-xla", settings=ALONE, verify=True)
    assert run.verification is not None and run.verification.ok
    assert run.schedule is not None and run.baseline_schedule is not None
    assert run.schedule.time_ps < run.baseline_schedule.time_ps


# ---- what it costs -------------------------------------------------------------------------------
def test_the_price_of_a_scan_is_that_of_its_steps():
    def loop(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            h = jnp.tanh(jnp.tanh(c @ W) @ U + r)
            return h, h * 2.0

        return jax.lax.scan(step, jnp.zeros((8, 16)), x)

    run = eqsat.optimize(loop, ROWS, target="avx512-xla", time_limit=600.0)
    assert run.schedule is not None
    (loop,) = run.schedule.held
    (body,) = loop.schedules
    assert run.schedule.time_ps == 5 * body.time_ps
    assert run.schedule.kernels == len(body.dispatches) > 1
    assert run.schedule.bytes_moved == 5 * body.bytes_moved
    state = 8 * 16 * 4
    assert loop.scratch_bytes == body.arena_bound + state
    held = ROWS.nbytes + W.nbytes + U.nbytes  # the argument and the weights
    results = state + ROWS.nbytes
    assert run.schedule.peak_bytes == held + results + loop.scratch_bytes


def test_a_while_loop_is_priced_at_the_trips_of_its_target():
    once, often = search("counted"), search("counted", settings=("trips=10",))
    assert once.schedule is not None and often.schedule is not None
    condition, body = once.schedule.held[0].schedules
    rest = once.schedule.time_ps - (2 * condition.time_ps + body.time_ps)
    more = 10 * (condition.time_ps + body.time_ps) + condition.time_ps
    assert often.schedule.time_ps == more + rest


def test_a_branch_costs_what_the_dearest_does():
    run = search("either")
    assert run.schedule is not None
    (branch,) = run.schedule.held
    alone = [d.time_ps for d in run.schedule.dispatches if run.schedule.control(d) is None]
    dearest = max(s.time_ps for s in branch.schedules)
    assert run.schedule.time_ps == sum(alone) + dearest
    assert run.schedule.kernels == len(alone) + 2


def test_a_value_handed_on_is_a_copy():
    run = search("swapped", target="reference")
    assert run.schedule is not None
    (loop,) = run.schedule.held
    assert sorted(t.nbytes for t in loop.copied[0]) == [512, 512]  # into a carry, and into a slice
    (body,) = loop.schedules
    assert run.schedule.held[0].total([body.time_ps + 2 * 2 * 512 * 1000]) == next(
        d.time_ps for d in run.schedule.dispatches if run.schedule.control(d) is not None
    )


def test_a_memory_budget_holds_for_everything_together():
    asked = {"target": "reference", "rules": ()}
    free = search("rnn", **asked)
    assert free.schedule is not None
    least = search("rnn", **asked, goals=("memory",)).schedule
    assert least is not None and least.peak_bytes <= free.schedule.peak_bytes
    run = search("rnn", **asked, budget={"memory": least.peak_bytes})
    assert run.schedule is not None and run.schedule.peak_bytes <= least.peak_bytes
    with pytest.raises(EqsatError) as e:
        search("rnn", **asked, budget={"memory": least.peak_bytes - 1})
    assert e.value.exit_code == 3


def random_loop(seed: int) -> Callable[..., Any]:
    """A scan over a chain of random ops on a square state, with weights and branches."""
    rng = np.random.default_rng(seed)
    steps = [int(k) for k in rng.integers(0, 6, 5)]
    weights = [array(seed + i, 16, 16) for i in range(5)]

    def body(c: Any, x: Any) -> Any:
        kept = c
        for k, w in zip(steps, weights, strict=True):
            c = [
                lambda c, w=w: c @ w,
                lambda c, w=w: jax.nn.relu(c),
                lambda c, w=w: c.T,
                lambda c, w=w: c + kept,
                lambda c, w=w: jnp.tanh(w @ c),
                lambda c, w=w: jax.lax.cond(c[0, 0] > 0, lambda c: c @ w, lambda c: c.T * 2.0, c),
            ][k](c)
        return c * 0.1 + x, c[0]

    return lambda x: jax.lax.scan(body, x[0], x)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_a_random_loop_is_right_and_never_worse(seed: int):
    goal = ("time", "memory", "dispatches")[seed % 3]
    shape = jax.ShapeDtypeStruct((4, 16, 16), jnp.float32)
    settings = ("untiled_rate=0.05",) if seed % 2 else ()
    run = eqsat.optimize(
        random_loop(seed), shape, target="avx512-xla", goals=(goal,), settings=settings, verify=True
    )
    assert run.verification is not None and run.verification.ok, run.verification
    assert run.selection is not None and run.baseline is not None and run.schedule is not None
    assert run.selection.goal(goal).value <= run.baseline.goal(goal).value
    assert faults(run.schedule, run.target, run.canonical) == []


def test_equal_bodies_are_searched_once_and_answers_repeat():
    def twice(x: Any) -> Any:
        step = lambda c, _: (jnp.tanh(c @ W), None)  # noqa: E731
        x = jax.lax.scan(step, x, None, length=3)[0]
        return jax.lax.scan(step, x * 2.0, None, length=7)[0]

    shape = jax.ShapeDtypeStruct((8, 16), jnp.float32)
    runs = [eqsat.optimize(twice, shape, target="avx512-xla") for _ in range(2)]
    assert len(runs[0].bodies) == 2 and len({id(b) for b in runs[0].bodies.values()}) == 1
    first, second = (json.dumps(r.schedule.to_json()) for r in runs if r.schedule)
    assert first == second


def test_loops_of_equal_blocks_are_known_in_every_block():
    weights = [array(90 + i, 32, 32) for i in range(8)]

    def many(x: Any) -> Any:
        for w in weights:
            step = lambda c, _, w=w: (jnp.tanh(c @ w), None)  # noqa: E731
            x = jax.lax.scan(step, x, None, length=3)[0] * 2.0
        return x

    shape = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    run = eqsat.optimize(many, shape, target="avx512-xla", settings=("untiled_rate=0.05",))
    assert run.egraph is not None and run.egraph.blocks is not None
    assert run.egraph.blocks.searched < run.egraph.blocks.count == len(weights)
    run.egraph.verify()
    at = next(i for i, r in enumerate(run.egraph.rules) if r.name == "body")
    made = [n for n in run.egraph.nodes if n.rule == at and isinstance(n.attr, Control)]
    known = [run.egraph.nodes[n.source] for n in made]
    assert len(made) == 3 * len(weights)  # as it is, and with a state packed in two ways
    assert len({n.children for n in known}) == len(weights)
    assert all(isinstance(n.attr, Control) and n.rule < 0 for n in known)


def test_the_checker_of_schedules_looks_into_bodies():
    run = search("rnn", rules=())
    assert run.schedule is not None
    nodes = list(run.schedule.program.nodes)
    at, loop = controls(run.schedule.program)[0]
    plain = replace(loop, schedules=tuple(_with_time(s) for s in loop.schedules))
    nodes[at] = replace(nodes[at], attr=plain)
    broken = replace(run.schedule, program=replace(run.schedule.program, nodes=tuple(nodes)))
    found = faults(broken, run.target, run.canonical)
    assert any("body: dispatch 0" in f for f in found)


def _with_time(s: Any) -> Any:
    """The schedule with a first dispatch that reads nothing."""
    return replace(s, dispatches=(replace(s.dispatches[0], reads=()), *s.dispatches[1:]))


# ---- what is told, and what is kept --------------------------------------------------------------
def test_a_run_with_bodies_is_saved_told_and_loaded(tmp_path: Any):
    run = search("rnn", settings=("untiled_rate=0.05",))
    assert run.schedule is not None
    found = eqsat.load(run.save(tmp_path / "run"))
    assert found.schedule == run.schedule and list(found.bodies) == list(run.bodies)
    assert found.verify(samples=1).ok
    (path,) = found.bodies
    whole = found.explain().to_text()
    assert f"holds  {path}:" in whole and "u8[" not in whole.split("holds")[1]
    inner = found.explain(path).to_text()
    assert "contraction 8x16x1" in inner and "by     " in inner
    value = found.bodies[path].canonical.results[0]
    name = found.bodies[path].canonical.value_name(value)
    assert found.explain(f"{path}/{name}", price=False).title.startswith(f"{name}: ")
    used = {f["rule"]: f["in_result"] for f in rule_facts(found)}
    assert used["pack-contraction"] > 0 and used["body"] > 0
    assert "body:" in run.schedule.to_text()
    assert eqsat.compare(found, run).to_text()
    assert found.report(tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(EqsatError, match="no body `%99/body`"):
        found.explain("%99/body")


def test_the_summary_counts_bodies_once():
    summary = search("layers", settings=FORCED).summary()
    assert summary["program"]["ops"] == 1 + 5
    assert summary["counts"]["dispatches"] == summary["goals"]["dispatches"]["value"]
    assert summary["bytes"]["relayout_bytes"] > 0


# ---- through JAX ---------------------------------------------------------------------------------
def test_jit_grad_and_vmap():
    def loss(w: Any, x: Any) -> Any:
        h = jax.lax.scan(lambda c, r: (jnp.tanh(c @ w + r), None), x[0], x)[0]
        return jnp.sum(jax.lax.cond(h[0] > 0, lambda h: h * h, lambda h: h, h))

    fast = eqsat.jit(loss, target="avx512-xla", rules=())
    x, plainly = array(9, 4, 16), jax.jit(loss)
    assert np.allclose(jax.jit(fast)(W, x), plainly(W, x), rtol=1e-5)
    want = jax.jit(jax.grad(loss))(W, x)
    assert np.allclose(jax.jit(jax.grad(fast))(W, x), want, rtol=1e-4, atol=1e-5)
    plain = fast.optimize(W, x).compile()
    batch = np.stack([x, 2 * x])
    got = jax.vmap(plain, (None, 0))(W, batch)
    assert np.allclose(got, [plainly(W, b) for b in batch], rtol=1e-5)


@pytest.mark.parametrize("target", seeds(1, [WIDEST, "avx512-xla"]))
def test_a_loop_whose_bodies_have_temporaries_runs_dispatch_by_dispatch(target: str):
    def loop(xs: Any, w: Any, u: Any) -> Any:
        step = lambda h, x: (jnp.tanh(jnp.tanh(x @ w + h @ u) @ u) @ w, h)  # noqa: E731
        return jax.lax.scan(step, xs[0], xs)

    args = array(9, 3, 4, 16), array(10, 16, 16), array(11, 16, 16)
    run = eqsat.optimize(loop, *args, rules=[], target=target)
    assert run.schedule is not None
    (scan,) = [n.attr for n in run.schedule.program.nodes if isinstance(n.attr, Control)]
    assert scan.scratch_types  # its arena is a result of its dispatch, which XLA does not compute
    for got, want in zip(
        run.executable.run(run.executable.packed, *args), loop(*args), strict=True
    ):
        assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_side_effects_are_kept_whole_and_randomness_stays_inside():
    def noisy(x: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            jax.debug.print("{}", c)
            return c + r, c

        return jax.lax.scan(step, x[0], x)

    assert "opaque" in ops(trace(noisy, (X,)).program)

    def dropout(x: Any) -> Any:
        def step(k: Any, r: Any) -> Any:
            keep = jax.random.bernoulli(jax.random.wrap_key_data(k), 0.5, r.shape)
            return k + 1, jnp.where(keep, r, 0.0)

        return jax.lax.scan(step, jnp.zeros(2, jnp.uint32), x)[1]

    run = eqsat.optimize(dropout, X, target="avx512-xla", verify=True)
    assert {"scan", "opaque"} <= ops(run.program)
    assert run.verification is not None and run.verification.ok
    assert set(run.source.opaque) == {
        n.attr.key  # type: ignore[union-attr]
        for p in every_program(run.program)
        for n in p.nodes
        if n.op == "opaque"
    }


# ---- the libraries -------------------------------------------------------------------------------
