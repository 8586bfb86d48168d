"""The arena: a schedule's lifetimes, offsets and borders, executed byte by byte."""

from __future__ import annotations

from dataclasses import replace

import jax
import loops
import numpy as np
import pytest
from fuzz.arenas import verify_on_arena

import eqsat
from eqsat.execute.arena import Arena, ArenaFault, from_bytes, to_bytes
from eqsat.execute.compare import Verification
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import read_target
from eqsat.model.control import Control
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.meaning.programs import element_dtype, evaluate_program
from eqsat.run import RunUse
from eqsat.run.saved import load_folder as load

# a chain with a long-lived value, one member per dispatch: temporaries that share bytes
CHAIN = """
program chain
input x: f32[32, 16]
weight w: f32[16, 16]
a = exp(x)
b = transpose(a, perm=[1, 0])
c = matmul(w, b)
d = exp(c)
e = tanh(b)
f = sub(e, c)
return f, d
"""
ALONE = ("fusion.members=1",)


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    return eqsat.optimize(parse_program(CHAIN), target="reference", rules=(), settings=ALONE)


@pytest.fixture(scope="module")
def layers() -> eqsat.Run:
    """A loop whose body holds packed contractions."""
    rules = ("layout/contract", "layout/pack")
    return loops.search("layers", settings=loops.FORCED, rules=rules)


@pytest.fixture(scope="module")
def verified(run) -> Verification:
    return run.verify(samples=1)


def on_arena(schedule: Schedule, program: Program) -> list[np.ndarray]:
    xs = random_inputs(program, np.random.default_rng(0))
    return Arena(schedule, {})(xs, drawn_weights(program))


def caught(schedule: Schedule, program: Program) -> str:
    """The fault, or "" if the results are right; wrong ones without a fault are an error."""
    xs = random_inputs(program, np.random.default_rng(0))
    wanted = evaluate_program(program, xs, drawn_weights(program))
    try:
        found = on_arena(schedule, program)
    except ArenaFault as fault:
        return str(fault)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return ""


def test_a_schedule_runs_in_the_bytes_it_says(run, verified) -> None:
    assert caught(run.schedule, run.program) == ""
    s = run.schedule
    assert sum(b.nbytes for b in s.temporaries) > s.arena_bytes > 0, "bytes are used twice"
    assert verified.arena == "ok"


def test_every_shortened_lifetime_is_caught(run) -> None:
    s = run.schedule
    for b in s.temporaries:
        assert b.last > b.first
        for changed, words in (
            (replace(b, last=b.last - 1), "its buffer is live from step"),
            (replace(b, first=b.first + 1), "its buffer is live from step"),
        ):
            buffers = tuple(changed if x is b else x for x in s.buffers)
            assert words in caught(replace(s, buffers=buffers), run.program)


def test_swapped_offsets_are_caught_where_they_make_values_share_bytes(run) -> None:
    s = run.schedule
    seen = []
    for a in s.temporaries:
        for b in s.temporaries:
            if a.node >= b.node or a.offset == b.offset:
                continue
            moved = {a: replace(a, offset=b.offset), b: replace(b, offset=a.offset)}
            swapped = replace(s, buffers=tuple(moved.get(x, x) for x in s.buffers))
            try:
                swapped.verify()
                overlap = False
            except ValueError:
                overlap = True
            fault = caught(swapped, run.program)
            assert ("to bytes of" in fault) == overlap, fault
            seen.append(overlap)
    assert any(seen)


def test_values_that_were_never_read_or_written_are_faults(run) -> None:
    s = run.schedule
    at, d = next((i, d) for i, d in enumerate(s.dispatches) if len(d.reads) > 1)
    without = replace(d, reads=d.reads[1:])
    lost = replace(s, dispatches=(*s.dispatches[:at], without, *s.dispatches[at + 1 :]))
    assert "which its dispatch neither reads nor computes" in caught(lost, run.program)
    gone = replace(s, dispatches=s.dispatches[1:])
    assert "which was not written" in caught(gone, run.program)
    small = [replace(b, nbytes=b.nbytes - 4) for b in s.temporaries[:1]]
    short = replace(s, buffers=(*small, *(b for b in s.buffers if b is not s.temporaries[0])))
    assert "bytes, its buffer" in caught(short, run.program)


def test_a_saved_schedule_that_is_wrong_fails_its_verification(run, tmp_path) -> None:
    first = run.schedule.temporaries[0]
    short = [replace(b, last=b.last - 1) if b is first else b for b in run.schedule.buffers]
    wrong = replace(run, schedule=replace(run.schedule, buffers=tuple(short)), use=RunUse())
    with pytest.raises(EqsatError, match=r"E314.*`last` is"):
        load(wrong.save(tmp_path / "kept"))
    found = wrong.verify()
    assert (found.outcome, found.arena) == ("mismatch", "mismatch")
    assert found.reason.startswith("on one arena: dispatch"), found.reason
    assert found.to_json()["arena_reason"] == found.reason


def test_the_work_limit_leaves_the_arena_out(run, verified) -> None:
    left = run.verify(samples=1, work_limit=verified.operations - 1)
    assert (left.ok, left.arena) == (True, "unproven")
    assert "operations that are left" in left.arena_reason


def test_loops_run_their_bodies_in_the_bytes_they_have(layers) -> None:
    small = [loops.search(name, rules=()) for name in ("nested", "collatz", "one_of")]
    for run in (layers, *small):
        assert run.schedule.held, "a loop or branch is left"
        found = verify_on_arena(run.program, run.schedule, run.source.weights, {}, samples=1)
        assert (found.outcome, found.arena) == ("ok", "ok"), found.reason


def test_a_body_has_the_bytes_of_its_arena_even_where_it_has_gaps(layers) -> None:
    (loop,) = layers.schedule.held
    assert "pack" in loops.ops(layers.schedule.program)
    body = loop.schedules[0]
    offsets = [b.offset + 64 for b in body.temporaries]
    moved = replace(loop, schedules=(body.placed(offsets),))
    assert moved.scratch_bytes == loop.scratch_bytes + 64
    fault = caught(_with_body(layers.schedule, moved), layers.program)
    assert "are there for it in the loop" in fault, "the room was that of the first placement"


def _with_body(schedule: Schedule, loop: Control) -> Schedule:
    """The schedule with other bodies in its loop, and the types it had."""
    program = schedule.program
    nodes = [replace(n, attr=loop) if isinstance(n.attr, Control) else n for n in program.nodes]
    return replace(schedule, program=replace(program, nodes=tuple(nodes)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_hold_every_element_type(dtype: str) -> None:
    t = TensorType(dtype, (3, 5))
    values = np.resize(
        np.array([0, 1, 1, 0, 1, 0.5] if DTYPES[dtype][1] == "f" else [0, 1]), (3, 5)
    )
    values = values.astype(element_dtype(dtype))
    held = values.astype(np.float64) if DTYPES[dtype][1] == "f" else values.astype("i8")
    data = to_bytes(held, t)
    assert len(data) == t.nbytes
    assert np.array_equal(from_bytes(data, t).astype("f8"), values.astype("f8"), equal_nan=True)


# ---- the executor --------------------------------------------------------------------------------
MACHINE = read_target("target: a\nextends: reference\nexecutor: arena\ndoc: d\n")


def test_a_target_may_run_its_programs_on_the_arena() -> None:
    import jax
    import jax.numpy as jnp

    def f(x, w):
        return jnp.tanh(x @ w).sum(axis=0)

    x, w = np.linspace(-1, 2, 24, dtype="f4").reshape(4, 6), np.ones((6, 3), "f4")
    call = eqsat.jit(f, target=MACHINE, weights=("w",))
    run = call.optimize(x, w)
    slope = 1 - np.tanh(x @ w) ** 2
    expected = np.tanh(x @ w).sum(axis=0)
    np.testing.assert_allclose(call(x, w), expected, rtol=1e-6)
    np.testing.assert_allclose(run.executable(x)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(call, (0, None))(x[None], w)[0], expected, rtol=1e-6)
    cotangent = np.array([1, 2, 3], "f4")
    (grad,) = jax.vjp(lambda x: call(x, w), x)[1](cotangent)
    np.testing.assert_allclose(grad, (slope * cotangent) @ w.T, rtol=1e-4)
    assert run.summary()["executor"]["name"] == "arena" and run.verify(samples=1).ok
    d = run.schedule.dispatches[0]
    nodes = run.schedule.program.nodes
    reads = [np.ones(nodes[r].type.shape, "f4") for r in d.reads]
    (found,) = jax.jit(run.executable.dispatch(0))(*reads)
    assert found.shape == nodes[d.writes[0]].type.shape


def test_opaque_ops_run_on_the_arena_without_a_callback() -> None:
    import jax.numpy as jnp

    run = eqsat.optimize(lambda x: jnp.sort(x) * 2, np.zeros(5, "f4"), target=MACHINE)
    x = np.array([3, 1, 2, 5, 4], "f4")
    assert run.executable.compile()(x)[0].tolist() == [2, 4, 6, 8, 10]
    with pytest.raises(EqsatError, match="cannot call `sort` in a JAX function"):
        run.compile()(x)


def test_a_wrong_schedule_is_refused(run) -> None:
    from eqsat.execute.executors import build_executable

    s = run.schedule
    first = s.temporaries[0]
    short = tuple(replace(b, last=b.last - 1) if b is first else b for b in s.buffers)
    wrong = build_executable(replace(s, buffers=short), {}, drawn_weights(run.program), MACHINE)
    with pytest.raises(EqsatError) as error:
        wrong.compile()(*random_inputs(run.program, np.random.default_rng(0)))
    assert error.value.diagnostics[0].code == "E511"


# ---- what the arena's random programs found ------------------------------------------------------
def test_which_sibling_is_a_vector_does_not_hang_on_numbers() -> None:
    """Neither reader strays from the order of `x`, so the smaller one is what has to fit."""
    readers = (
        "a = generic(x, v, loops=[100, 24], maps=[[d0, d1], [d1]], body=add(x0, x1))"
        " : f32[100, 24]",
        "w = generic(x, loops=[49, 24, 3], maps=[[2*d0 + d2, d1]], body=x0, combine=add)"
        " : f32[49, 24]",
    )
    settings = ["fusion.siblings=true", "fusion.multi_result=true", "fusion.members=4"]
    for lines in (readers, readers[::-1]):
        text = "\n".join(("input x: f32[100, 24]", "weight v: f32[24]", *lines, "return a, w"))
        for limit, dispatches in (("5 KiB", 1), ("4 KiB", 2)):
            run = eqsat.optimize(
                parse_program(text), target="reference", rules=(), goals=("dispatches",),
                settings=[*settings, f"limits.vector={limit}"],
            )  # fmt: skip
            assert len(run.schedule.dispatches) == dispatches, (lines, limit)


def test_what_two_dispatches_compute_is_equal() -> None:
    """A gradient of a maximum asks which elements equal it, and divides by their number."""

    def largest(x: jax.Array) -> jax.Array:
        return (x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 0.1)).max(-1).sum()

    x = np.random.default_rng(0).standard_normal((1, 1, 4)).astype(np.float32)
    found = eqsat.optimize(jax.grad(largest), x, target="avx512-xla").verify(samples=1)
    assert (found.outcome, found.arena) == ("ok", "ok"), found.reason
