"""Orders of dims in memory: asked for, searched, handed to JAX, told of and saved."""

from __future__ import annotations

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from runnable import WIDEST
from seeds import seeds
from typer.testing import CliRunner

import eqsat
from eqsat.api.borders import read_orders
from eqsat.cli.app import app
from eqsat.execute.formats import Formatted
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.layout import Border, MemoryOrders, Ordered
from eqsat.ops.programs.freeorders import free_orders, in_orders, leaf_order, likely_orders

X, B = Border("input", 0), Border("input", 1)
KERNELS, BY_XLA = WIDEST, "avx512-xla"


def turned(x, b):
    """Every element is read from another column: a caller may keep `x` transposed for nothing."""
    return jnp.maximum(x.T + b, 0.0)


def step(q, k, cache, at):
    """One token of attention with a cache [tokens, heads, size] that gets the row of this token."""
    cache = jax.lax.dynamic_update_slice(cache, k[None], (at, 0, 0))
    scores = jax.nn.softmax(jnp.einsum("hd,shd->hs", q, cache))
    return jnp.einsum("hs,shd->hd", scores, cache), cache


def drawn(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def of_step():
    return [*drawn((2, 16), (2, 16), (24, 2, 16)), np.int32(5)]


def read_step():
    return eqsat.optimize(step, *of_step(), target="reference", stop_after="program").program


def order(x):
    return x.format.layout.major_to_minor


# ---- the search ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def found():
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in drawn((96, 128), (96,))]
    return eqsat.optimize(turned, *shapes, target=KERNELS, layouts="auto")


def test_an_argument_that_is_read_transposed_is_kept_so_or_its_result(found):
    orders = found.orders
    (chosen,) = orders.chosen
    assert chosen.order == (1, 0)
    assert chosen.by == "search"
    assert chosen.border in (X, Border("result", 0))
    assert chosen.border not in orders.left
    assert chosen.why.startswith("plain, the time would be ")
    assert orders.bound <= orders.value < orders.plain
    assert found.selection.goal("time").value == orders.value
    assert orders.tried > 1


def test_it_is_verified_by_the_call_that_hands_orders_over(found):
    verification = found.verify(samples=1)
    assert verification.outcome == "ok"


def test_a_saved_run_keeps_its_orders(found, tmp_path):
    saved = eqsat.load(found.save(tmp_path / "run"))
    assert saved.orders == found.orders
    assert saved.summary()["program"]["orders"] == found.orders.to_json()
    assert saved.summary()["program"]["layouts"] == {}
    x, b = drawn((96, 128), (96,))
    for call in (saved.compile(), found.compile()):
        (result,) = jax.tree.leaves(call(*call.put(x, b)))
        np.testing.assert_allclose(result, np.maximum(x.T + b, 0.0), rtol=1e-6)
        came, goes = call.formats(x, b)
        formats = [*jax.tree.leaves(came), *jax.tree.leaves(goes)]
        assert [f.layout.major_to_minor for f in formats].count((1, 0)) == 1
    assert saved.verify(samples=1).outcome == "ok"


def test_why_is_told(found, tmp_path):
    text = f"{found.explain(price=False)}"
    (chosen,) = found.orders.chosen
    assert f"{chosen.name} lies in order [1, 0]: plain, the time would be" in text
    assert "no order is below" in text
    assert "crosses as" not in text


def test_without_a_better_order_the_answer_is_the_plain_one():
    shape = jax.ShapeDtypeStruct((8, 8), np.float32)
    run = eqsat.optimize(lambda x, b: x.T + b, shape, shape, target="reference", layouts="auto")
    plain = eqsat.optimize(lambda x, b: x.T + b, shape, shape, target="reference")
    assert run.orders.chosen == ()
    assert set(run.orders.left) == {X, B, Border("result", 0)}
    assert run.orders.bound == run.orders.value == plain.selection.goal("time").value
    assert "plain is the cheapest" in run.orders.why
    assert run.schedule == plain.schedule


def test_loops_say_that_they_are_not_searched():
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: y @ y, x)

    shape = jax.ShapeDtypeStruct((8, 8), np.float32)
    run = eqsat.optimize(loop, shape, target="reference", layouts="auto")
    assert "loops" in run.orders.why
    assert run.orders.chosen == ()


# ---- the e-graph ---------------------------------------------------------------------------------
PLAIN = """program plain
input x: f32[1, 4, 8]
input y: f32[8, 6]
z = reshape(x, shape=[4, 8])
t = transpose(z, perm=[1, 0])
s = tanh(t)
m = transpose(y, perm=[1, 0])
u = matmul(m, s)
return u
"""


def test_orders_are_of_the_dims_that_count():
    run = eqsat.optimize(parse_program(PLAIN), target="reference")
    orders = likely_orders(run.canonical, run.egraph, X)
    assert orders == ((0, 2, 1),)
    facts = free_orders(run.canonical, {X: orders}, len(run.canonical.nodes))
    leaf = next(n.attr for n in facts.nodes if n.op == "input")
    assert leaf.type.shape == (1, 8, 4)
    assert leaf.plain.shape == (1, 4, 8)
    assert leaf_order(leaf) == (0, 2, 1)


def test_one_order_of_an_argument_is_left():
    from eqsat.saturate import saturate

    run = eqsat.optimize(parse_program(PLAIN), target="reference")
    program = run.canonical
    orders = {X: ((0, 2, 1),), Border("result", 0): ((1, 0),)}
    facts = free_orders(program, orders, len(program.nodes))
    graph = saturate(program, run.rules, run.target, equalities=[facts])
    for wanted in (None, (0, 2, 1)):
        left = in_orders(graph, program, {X: frozenset({wanted})}, {})
        left.verify()
        leaves = [n.attr for n in left.nodes if n.op == "input" and n.attr.index == 0]
        assert [leaf_order(leaf) for leaf in leaves] == [wanted]
        assert all(-1 <= n.source < len(left.nodes) for n in left.nodes)
    other = in_orders(graph, program, {}, {Border("result", 0): (1, 0)})
    (root,) = other.roots
    (was,) = graph.roots
    assert other.types[root][0].shape == graph.types[was][0].shape[::-1]
    assert in_orders(run.egraph, program, {}, {Border("result", 0): (1, 0)}) is None


# ---- what JAX is told ----------------------------------------------------------------------------
@pytest.mark.parametrize("target", seeds(1, [KERNELS, BY_XLA]))
def test_a_donated_cache_stays_in_its_order_and_place(target):
    call = eqsat.jit(step, target=target, layouts={"cache": [1, 0, 2]}, donate=["cache"], rules=())
    q, k, cache, _ = of_step()
    want = cache.copy()
    cache = call.put(q, k, cache, np.int32(0))[2]
    assert order(cache) == (1, 0, 2)
    for at in (3, 0):
        before, address = cache, cache.unsafe_buffer_pointer()
        told, cache = call(q, k, cache, np.int32(at))
        want[at] = k
        assert before.is_deleted()
        assert order(cache) == (1, 0, 2)
        assert cache.unsafe_buffer_pointer() == address
        np.testing.assert_array_equal(np.asarray(cache), want)
        np.testing.assert_allclose(told, step(q, k, want, at)[0], rtol=1e-4, atol=1e-5)


def test_a_donated_argument_may_come_by_name():
    lying = {"cache": [1, 0, 2]}
    call = eqsat.jit(step, target=BY_XLA, layouts=lying, donate=["cache"], rules=())
    q, k, cache, at = of_step()
    _, _, cache, _ = call.put(q, k, cache, at)
    _, after = call(q, k, at=at, cache=cache)
    assert cache.is_deleted()
    assert order(after) == (1, 0, 2)


def test_keys_of_random_numbers_stay_as_they_are():
    def noise(keys, x):
        return jax.vmap(lambda k: jax.random.normal(k, (3,)))(keys) + x.T

    keys, x = jax.random.split(jax.random.key(0), 4), drawn((3, 4))[0]
    call = eqsat.jit(noise, target=BY_XLA, layouts={"*": "auto", "x": [1, 0]}, rules=())
    np.testing.assert_allclose(call(*call.put(keys, x)), noise(keys, x), rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # all rules, 10 s
def test_a_kernel_takes_an_array_as_it_lies_and_xla_aliases_it():
    options = {"target": KERNELS, "layouts": {"cache": "[1, 0, 2]"}, "donate": ["cache"]}
    call = eqsat.jit(step, check="never", **options)
    found, packed, leaves, _ = call.func.__self__.found_for(tuple(of_step()), {})
    text = found.compile(packed, leaves).as_text()
    assert "input_output_alias={ {1}: (2," in text
    assert "f32[24,2,16]{2,0,1}" in text.split("entry_computation_layout")[1].splitlines()[0]
    entry = text[text.index("\nENTRY") :]
    (writes,) = re.findall(r".*output_to_operand_aliasing.*", entry)
    assert "f32[24,2,16]{2,0,1}" in writes
    assert not re.search(r" (copy|transpose)\(", entry)


def test_the_caller_sees_the_shapes_it_knows():
    x, b = drawn((6, 5), (6,))
    lying = {"x": (1, 0), "result0": (1, 0)}
    call = eqsat.jit(turned, target=BY_XLA, layouts=lying, rules=())
    want = np.maximum(x.T + b, 0.0)
    moved = jax.device_put(x, Format(Layout((1, 0)), jax.sharding.SingleDeviceSharding(DEVICE)))
    plain = jax.device_put(x, DEVICE)  # committed in another layout than is asked for
    for given in (x, jnp.asarray(x), moved, plain):
        result = call(given, b)
        assert order(result) == (1, 0)
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(call)(x, b), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(call)(x[None], b[None])[0], want, rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda v: call(v, b).sum())(x)
    np.testing.assert_array_equal(slope, want.T > 0)
    (args, _), _ = call.formats(x, b=b)
    assert args[0].layout.major_to_minor == (1, 0)
    assert call.put(x, b=b)[1]["b"] is b


DEVICE = jax.devices()[0]


def test_weights_are_packed_beside_orders():
    def product(x, w):
        return x.T @ w

    x, w = drawn((32, 8), (32, 48))
    w = jnp.asarray(w)
    call = eqsat.jit(product, target=KERNELS, weights=["w"], layouts={"x": [1, 0]})
    for _ in range(2):
        np.testing.assert_allclose(call(*call.put(x, w)), x.T @ np.asarray(w), rtol=1e-4, atol=1e-4)
    assert call.formats(x, w)[0][0][0].layout.major_to_minor == (1, 0)
    (run,) = call.runs.values()
    assert [o.by for o in run.orders.chosen] == ["caller"]


def test_what_is_left_to_the_compiler_is_told_of_no_layout_on_a_cpu():
    call = eqsat.jit(turned, target=BY_XLA, layouts="compiler")
    x, b = drawn((6, 5), (6,))
    np.testing.assert_allclose(call(x, b), np.maximum(x.T + b, 0.0), rtol=1e-6)
    (run,) = call.runs.values()
    assert run.orders.chosen == ()
    assert set(run.orders.compiler) == {X, B, Border("result", 0)}
    assert run.orders.left == ()
    assert call.put(x, b)[0] is x


class _Callee:
    """A state that is one array."""

    orders = MemoryOrders(compiler=(X, Border("result", 0)), ties=((0, 0),))
    borders = (X,)
    result_count = 1

    def unflatten(self, results):
        return results[0]

    def __call__(self, args, kwargs, packed=None):
        return args[0] + 1


class _Compiled:
    """What a compiler says that gives a state back in another layout than it takes it in."""

    sharding = jax.sharding.SingleDeviceSharding(DEVICE)
    input_formats = (((), Format(Layout((1, 0)), sharding)), {})
    output_formats = (Format(Layout((0, 1)), sharding),)


def test_a_state_the_compiler_may_lay_out_comes_back_as_it_came():
    tree = jax.tree.structure(((0,), {}))
    for donated, is_tied in (((0,), True), ((), False)):
        found = Formatted(_Callee(), tree, donated, choosing=True)
        assert found.asked_in[0].layout is Layout.AUTO
        assert found._tied(_Compiled()) is is_tied
        if is_tied:
            assert found.asked_out[0] == found.asked_in[0] == _Compiled.input_formats[0][1]
            assert not found._tied(_Same())


class _Ordered(_Callee):
    """What the search ordered, and the caller."""

    orders = MemoryOrders((
        Ordered("x", X, (1, 0), "search", ""),
        Ordered("y", Border("result", 0), (1, 0), "caller", ""),
    ))  # fmt: skip


def test_plain_layouts_are_a_way_too_but_for_what_the_caller_ordered():
    found = Formatted(_Ordered(), jax.tree.structure(((0,), {})), choosing=True)
    assert found.asked_in[0].layout.major_to_minor == (1, 0)
    asked: list[tuple[Any, Any]] = []

    class Counted:
        def as_text(self):
            said = found.asked_in[0]
            asked.append((said, found.asked_out[0].layout.major_to_minor))
            return f'ENTRY f\n"estimated_cycles":"{5 if said is None else 9}"'.join(("\n", ""))

    found._compile = lambda packed, shapes: Counted()
    found._tied = lambda compiled: False
    found._best(None, [])
    assert found.plain == {X} and found._asked(X) is None
    assert [order for _, order in asked] == [(1, 0)] * len(asked)
    assert {said is None for said, _ in asked} == {True, False}


class _Same(_Compiled):
    output_formats = (_Compiled.input_formats[0][1],)


# ---- bad input, and the words of the command line ------------------------------------------------
def refused(code, **options):
    with pytest.raises(EqsatError) as error:
        eqsat.optimize(step, *of_step(), target="reference", **options)
    assert error.value.diagnostics[0].code == code
    return f"{error.value}"


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        ("autp", "write `auto` or `compiler`"),
        ({"cash": "auto"}, "did you mean `cache`"),
        ({"cache": [0, 1]}, "[0, 1] is no order of its 3 dims"),
        ({"cache": "[0, 1, 1]"}, "write each of [0, 1, 2] once"),
        ({"cache": [0, 1, "2.5"]}, "is no order of its 3 dims"),
        ({"result7": [1, 0]}, "is no argument or result of `step`"),
    ],
)
def test_what_is_no_order_is_refused(layouts, words):
    assert words in refused("E394", layouts=layouts)


@pytest.mark.parametrize("other", [[0, 1, 2], "plain", "[2, 1, 0]"])
def test_a_donated_argument_lies_as_its_result(other):
    layouts = {"cache": [1, 0, 2], "result1": other}
    assert "which is written in its place" in refused("E393", layouts=layouts, donate=["cache"])
    same = {"cache": [1, 0, 2], "result1": [1, 0, 2]}
    source = Source(read_step())
    read = read_orders(source, same, ["cache"])
    assert read.orders == {Border("input", 2): (1, 0, 2), Border("result", 1): (1, 0, 2)}
    assert read.ties == ((2, 1),)


def test_one_side_of_a_state_speaks_for_both_and_the_star_for_the_others():
    source = Source(read_step())
    read = read_orders(source, {"*": "auto", "result1": "compiler", "q": [0, 1]}, ["cache"])
    assert read.compiler == (Border("input", 2), Border("result", 1))
    assert read.free == ((Border("input", 1),), (Border("result", 0),))
    assert read.orders == {}


def test_packed_arguments_are_not_for_jit():
    with pytest.raises(EqsatError, match="takes `x` in its own shape"):
        eqsat.jit(turned, layouts={"x": "pack(pos=[0], tiles=[16])"})


def test_orders_are_json():
    chosen = (Ordered("x", X, (1, 0), "search", "it is cheaper"),)
    free = Border("result", 1)
    orders = MemoryOrders(chosen, (B,), (free,), ((0, 1),), "time", 3.0, 2.0, 1.0, 7, "")
    assert MemoryOrders.from_json(json.loads(json.dumps(orders.to_json()))) == orders


def test_the_command_line_says_who_chooses(tmp_path):
    file = tmp_path / "plain.eqs"
    file.write_text(PLAIN)
    options = ["optimize", str(file), "--target", "reference", "--layouts", "auto"]
    options += ["--layout", "y=[1, 0]", "--output-format", "json", "-q"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["program"]["orders"]
    assert [(o["name"], o["order"], o["by"]) for o in told["chosen"]] == [("y", [1, 0], "caller")]
    assert told["tried"] >= 2
