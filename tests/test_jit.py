"""`eqsat.jit` and `run.compile()` are functions of `jax.jit`: what a call costs and what runs."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.execute import executable
from eqsat.execute.firstcalls import CALM
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.program import is_same

FORCED = ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.9}]", "tiles_forced=true")
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)  # JAX's would be compiled, by every process that collects tests
X, W, B, V = (
    jnp.asarray(RNG.standard_normal(s, np.float32)) for s in ((10, 40), (40, 24), (24,), (40,))
)

# what makes `turned` another program: with all rules and goals a search takes twice as long
QUICK: dict[str, Any] = {"target": "reference", "rules": "layout/transpose", "goals": ["time"]}


def layer(x, w, b):
    return jax.nn.relu(x @ w + b)


def turned(x):
    """The answer is another program: the transposes go."""
    return ((x.T @ W[: x.shape[0]]).T + V).T


def python_calls(function, *args, **kwargs) -> int:
    """Python functions that a call enters, its own included."""
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: event == "call" and entered.append(frame.f_code.co_name))
    try:
        function(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return len(entered)


def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Filled with the arguments of every search of `eqsat.jit`."""
    import eqsat.api.jit

    made: list[tuple[object, ...]] = []
    real = eqsat.api.jit.optimize

    def counted(*args, **kwargs):
        made.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(eqsat.api.jit, "optimize", counted)
    return made


def packs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Filled with the weights of every packing."""
    made: list[object] = []
    real = executable.pack_weights

    def counted(schedule, weights, opaque):
        made.append(weights)
        return real(schedule, weights, opaque)

    monkeypatch.setattr(executable, "pack_weights", counted)
    return made


def same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


# -- what a call costs ----------------------------------------------------------------------------


def test_a_call_enters_no_python():
    plain = jax.jit(turned)
    for function in (turned, lambda x: layer(x, W, B)):
        fast = eqsat.jit(function, **QUICK)
        for _ in range(1 + CALM):
            same(fast(X), function(X))
        plain(X)
        assert python_calls(fast, X) == python_calls(plain, X) == 0
        call = eqsat.optimize(function, X, **QUICK).compile()
        same(call(X), function(X))
        assert python_calls(call, X) == 0


def unchecked(function: Any, **options: Any) -> Any:
    """What stands behind it then is what packs weights."""
    return eqsat.jit(function, check="never", **options)


def looks_up(fast: Any) -> bool:
    """Whether a call looks packed weights up in Python, or goes to the jitted function in C."""
    assert type(fast) is functools.partial
    return isinstance(fast.func, MethodType)


def test_weights_that_are_not_packed_enter_no_python():
    fast = unchecked(layer, weights=("w", "b"), **QUICK)
    assert fast(X, W, B).shape == (10, 24)
    assert not looks_up(fast)
    assert python_calls(fast, X, W, B) == 0
    assert python_calls(fast, X, 2 * W, B) == 0
    same(fast(X, 2 * W, B), layer(X, 2 * W, B))


def test_packed_weights_enter_a_few_functions():
    fast = eqsat.jit(layer, weights=("w", "b"), target="avx512-xla", settings=FORCED)
    fast(X, W, B)
    assert 0 < python_calls(fast, X, W, B) < 15


# -- what runs ------------------------------------------------------------------------------------


def attention(x):
    q, k, v = (x.reshape(8, 4, 4).transpose(1, 0, 2) * s for s in (1.0, 2.0, 3.0))
    scores = jax.nn.softmax(q @ k.transpose(0, 2, 1))
    return (scores @ v).transpose(1, 0, 2).reshape(8, 16)


@pytest.mark.parametrize("function", seeds(1, [attention, lambda x: layer(x, x.T, 1.0)]))
def test_an_answer_that_is_the_input_is_the_function_itself(function):
    x = jax.random.normal(KEY, (8, 16))
    fast, plain = eqsat.jit(function, **QUICK), jax.jit(function)
    run = fast.optimize(x)
    assert run.is_input
    assert fast.lower(x).as_text() == plain.lower(x).as_text()
    assert _body(run.compile().lower(x)) == _body(plain.lower(x))


def _body(lowered) -> list[str]:
    """Without the name of the module."""
    return lowered.as_text().splitlines()[1:]


def test_an_answer_of_its_own_runs():
    fast = eqsat.jit(turned, **QUICK)
    run = fast.optimize(X)
    assert not run.is_input
    turns = [f.lower(X).as_text().count("stablehlo.transpose") for f in (jax.jit(turned), fast)]
    assert turns[1] < turns[0]
    same(fast(X), turned(X))


def test_what_is_computed_ahead_is_not_the_input():
    run = eqsat.optimize(lambda x, w: x @ (w * 2), X, W, weights=("w",), target="reference")
    assert run.schedule is not None
    assert is_same(run.schedule.program, run.canonical)
    assert not run.is_input


@pytest.mark.parametrize(
    ("function", "dots"),
    [(lambda x, w: (x @ w)[-1:], "1x24xf32"), (lambda x, w: (x @ w, (w.T @ x.T).T), "")],
)
def test_an_answer_that_leaves_work_out_is_not_the_function(function, dots):
    """The last row alone is computed, and one of two equal products."""
    run = eqsat.optimize(function, X, W, target="avx512-xla")
    assert run.schedule is not None
    assert is_same(run.schedule.program, run.canonical)
    assert not run.is_input
    lines = run.compile().lower(X, W).as_text().splitlines()
    found = [line for line in lines if "dot_general" in line]
    assert len(found) == 1
    assert dots in found[0].rpartition("->")[2]
    same(run.compile()(X, W), function(X, W))


def test_programs_are_the_same_whatever_their_numbers():
    head = "program p\ninput a: f32[4, 4]\ninput b: f32[4, 4]\n"
    one = parse_program(head + "x = exp(a)\ny = tanh(b)\nreturn x, y\n", "a.eqs")
    two = parse_program(head + "y = tanh(b)\nx = exp(a)\nreturn x, y\n", "b.eqs")
    other = parse_program(head + "y = tanh(b)\nx = exp(a)\nreturn y, x\n", "c.eqs")
    assert is_same(one, two)
    assert not is_same(one, other)


def test_a_convolution_pads_its_own_image():
    w = jax.random.normal(KEY, (8, 8, 3, 3))

    def conv(x):
        return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (0, 2)))

    x = jax.random.normal(KEY, (2, 8, 9, 9))
    call = eqsat.optimize(conv, x, **QUICK).executable.flat
    text = call.lower(x).as_text()
    assert "stablehlo.pad" not in _used(text)
    assert "pad = [[1, 1], [0, 2]]" in text
    same(call(x)[0], conv(x))


def _used(text: str) -> str:
    """The lines of a module whose value something reads."""
    lines = text.splitlines()
    names = [line.split("=")[0].strip() for line in lines]
    return "\n".join(
        line
        for line, name in zip(lines, names, strict=True)
        if not name.startswith("%") or text.count(name) > 1
    )


# -- runs -----------------------------------------------------------------------------------------


def test_optimize_returns_the_run_behind_the_call(monkeypatch: pytest.MonkeyPatch):
    made = searches(monkeypatch)
    fast = eqsat.jit(turned, **QUICK)
    before = fast.optimize(jax.ShapeDtypeStruct(X.shape, X.dtype))
    fast(X)
    assert fast.optimize(X) is before
    assert list(fast.runs.values()) == [before]
    jax.jit(lambda x: fast(x) + 1)(X)
    jax.grad(lambda x: fast(x).sum())(X)
    jax.vmap(fast)(X[None])
    assert len(made) == 1
    fast(X[:4])
    assert len(made) == 2


def test_the_run_behind_a_call_verifies_with_its_weights():
    fast = eqsat.jit(layer, weights=("w", "b"), target="avx512-xla", settings=FORCED)
    fast(X, W, B)
    run = fast.optimize(X, W, B)
    assert run.verify(samples=1).ok
    same(run.executable.flat(X)[0], layer(X, W, B))
    assert fast.optimize(X, 2 * W, B) is run
    same(run.executable.flat(X)[0], layer(X, 2 * W, B))


def test_settings_of_jax_are_searched_for_of_their_own():
    fast = eqsat.jit(lambda x: x @ x.T, **QUICK)
    fast(X)
    with jax.default_matmul_precision("highest"):
        fast(X)
    assert len(fast.runs) == 2


def test_a_search_may_compute_inside_of_a_trace():
    fast = eqsat.jit(turned, verify=True, **QUICK)
    same(jax.jit(fast)(X), turned(X))
    (run,) = fast.runs.values()
    assert run.verification is not None
    assert run.verification.ok


def test_errors_of_the_search_come_out_of_the_call():
    with pytest.raises(EqsatError, match="E324"):
        eqsat.jit(layer, weights=("v",), **QUICK)(X, W, B)
    with pytest.raises(EqsatError, match=r"E301.*ValueError: no"):
        eqsat.jit(_refuses, **QUICK)(X)
    with pytest.raises(EqsatError, match="E301"):
        eqsat.jit(layer, **QUICK).optimize("x", W, B)


def _refuses(x):
    raise ValueError("no")


def test_a_compiled_run_takes_what_was_traced():
    call = eqsat.optimize(layer, X, W, B, **QUICK).compile()
    with pytest.raises(EqsatError, match="E306"):
        call(X, W)
    with pytest.raises(EqsatError, match="E503"):
        call(X[:4], W, B)
    with pytest.raises(EqsatError, match="E503"):
        call(X, W, B.astype(jnp.bfloat16))


# -- weights among the arguments ------------------------------------------------------------------


def packed(**options):
    return eqsat.jit(layer, weights=("w", "b"), target="avx512-xla", settings=FORCED, **options)


def test_weights_are_packed_once_per_array(monkeypatch: pytest.MonkeyPatch):
    made = packs(monkeypatch)
    fast = packed()
    for _ in range(3):
        same(fast(X, W, B), layer(X, W, B))
    assert len(made) == 1
    other = 2 * W
    for _ in range(3):
        same(fast(X, other, B), layer(X, other, B))
        same(fast(X, W, B), layer(X, W, B))
    assert len(made) == 2
    run = fast.optimize(X, W, B)
    call, made[:] = run.compile(), []
    for _ in range(3):
        same(call(X, W, B), layer(X, W, B))
    assert len(made) == 1


def test_packed_weights_are_dropped_with_their_array():
    fast = packed(check="never")
    own = 3 * W
    same(fast(X, own, B), layer(X, own, B))
    ready = fast.func.__self__.ready
    assert len(ready) == 1
    del own
    gc.collect()
    assert len(ready) == 0


def test_other_shapes_and_types_of_inputs_find_their_own_run():
    fast = packed()
    for x in (X, X[:5], X, X[:5]):
        same(fast(x, W, B), layer(x, W, B))
    assert len(fast.runs) == 2
    half = X.astype(jnp.bfloat16)
    assert fast(half, W, B).dtype == jax.jit(layer)(half, W, B).dtype
    with jax.enable_x64(True):
        same(fast(X, W, B), layer(X, W, B))
    assert len(fast.runs) == 4


def test_an_array_replaced_in_a_container_is_seen():
    @eqsat.jit(weights=("p",), target="avx512-xla", settings=FORCED)
    def fast(x, p):
        return layer(x, p["w"], p["b"])

    p = {"w": W, "b": B}
    same(fast(X, p), layer(X, W, B))
    p["w"] = 2 * W
    same(fast(X, p), layer(X, 2 * W, B))


def test_traced_weights_are_packed_in_the_trace():
    fast = packed()
    fast(X, W, B)
    same(jax.jit(fast)(X, W, B), layer(X, W, B))
    same(jax.grad(lambda w: fast(X, w, B).sum())(W), jax.grad(lambda w: layer(X, w, B).sum())(W))
    same(jax.grad(lambda x: fast(x, W, B).sum())(X), jax.grad(lambda x: layer(x, W, B).sum())(X))
    many = jnp.stack([W, 2 * W])
    over = (None, 0, None)
    same(jax.vmap(fast, over)(X, many, B), jax.vmap(layer, over)(X, many, B))


def test_packing_begins_where_a_later_shape_needs_it(monkeypatch: pytest.MonkeyPatch):
    def f(x, w):
        return x @ w if x.shape[0] == 10 else x @ (w * 2).T.T

    fast = unchecked(f, weights=("w",), **QUICK)
    fast(X, W)
    assert not looks_up(fast)
    same(fast(X[:4], W), f(X[:4], W))
    assert looks_up(fast)
    made = packs(monkeypatch)
    for _ in range(3):
        same(fast(X[:4], W), f(X[:4], W))
        same(fast(X, W), f(X, W))
    assert len(made) == 1


def test_weights_that_are_fixed_are_packed_before_a_trace(monkeypatch: pytest.MonkeyPatch):
    """A closed-over weight is no work of a traced call, even beside traced weights."""
    fixed = jax.random.normal(KEY, (24, 8))

    def f(x, w):
        return jnp.tanh(x @ (w * 2)) @ jnp.exp(fixed)

    fast = eqsat.jit(f, weights=("w",), **QUICK)
    text = jax.jit(fast).lower(X, W).as_text()
    assert "stablehlo.exp" not in text
    same(jax.jit(fast)(X, W), f(X, W))


# -- what JAX does with functions -----------------------------------------------------------------


def test_keys_and_custom_derivatives_and_scans():
    @jax.custom_vjp
    def doubled(x):
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, None), lambda _, g: (5 * g,))

    def f(key, x):
        y = jax.random.normal(key, x.shape) + doubled(turned(x)).sum()
        return jax.lax.scan(lambda c, row: (c + row, c @ row), y[0], y)

    fast = eqsat.jit(f, target="reference", rules=())
    same(fast(KEY, X), jax.jit(f)(KEY, X))

    def loss(g):
        return lambda x: sum(v.sum() for v in g(KEY, x))

    same(jax.grad(loss(fast))(X), jax.jit(jax.grad(loss(f)))(X))


def test_a_method_is_bound():
    @jax.tree_util.register_pytree_node_class
    class Model:
        def __init__(self, w):
            self.w = w

        def tree_flatten(self):
            return (self.w,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

        @eqsat.jit(**QUICK)
        def __call__(self, x):
            return x @ self.w

    same(Model(W)(X), X @ W)


def test_calls_follow_the_device_of_their_arguments():
    code = """
import jax, jax.numpy as jnp, eqsat
w = jnp.ones((8, 4))
closed = eqsat.jit(lambda x: (w.T @ x.T).T, target="reference", rules="layout/transpose")
forced = ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.9}]", "tiles_forced=true")
packs = ("layout/contract", "layout/pack")
asked = {"target": "avx512-xla", "settings": forced, "rules": packs}
given = eqsat.jit(lambda x, w: x @ w, weights=("w",), **asked)
for device in jax.devices():
    x, v = jax.device_put((jnp.ones((2, 8)), w), device)
    for y in (closed(x), given(x, v), given(x, v)):
        assert y.devices() == {device}, (y.devices(), device)
        assert (y == 8).all()
"""
    flags = f"--xla_force_host_platform_device_count=2 {os.environ.get('XLA_FLAGS', '')}"
    environment = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment)


def test_a_jitted_function_is_searched_as_the_function_that_it_was() -> None:
    """Also where it is checked at its first call, and so is no function of JAX."""

    def product(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ x) * 2

    x = jax.ShapeDtypeStruct((8, 8), "float32")
    wanted = eqsat.optimize(product, x, target="avx512-xla").source.program
    for check in ("first", "never"):
        jitted = eqsat.jit(product, target="avx512-xla", check=check)
        assert jitted.given is product
        found = eqsat.optimize(jitted, x, target="avx512-xla").source.program
        assert is_same(found, wanted)
