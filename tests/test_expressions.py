"""Bodies are DAGs: equal ones are one object, and each part is walked, computed and paid once."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import one_in, seeds

from eqsat.execute import expressions as jax_expressions
from eqsat.export.walk import typed_yields
from eqsat.frontends.jaxpr import trace
from eqsat.hunt.nests import random_body
from eqsat.lang.programs import parse_program
from eqsat.model import expr
from eqsat.model.affine import dim
from eqsat.model.diag import EqsatError
from eqsat.model.expr import (
    SHOWN,
    BottomUp,
    Expr,
    TextOrder,
    arg,
    body_text,
    call,
    cast,
    const,
    count_all,
    short_body,
)
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder, Program
from eqsat.ops.algebra.linear import affine_in, factors, fold_scale, replaced, terms
from eqsat.ops.algebra.simplify import hoist_part, simplified
from eqsat.ops.generics.canonical import canonical_body, identity
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.meaning.structured import evaluate_generic
from eqsat.ops.spelling.chains import MOST_OPERATIONS, merge_elementwise
from eqsat.ops.spelling.passes import canonical

DEEP = 20_000
FUNCTIONS = ("mul", "add", "tanh", "sub")


def doubled(times: int, fn: str = "add") -> Expr:
    found = arg(0)
    for _ in range(times):
        found = call(fn, found, found)
    return found


def chain(length: int, constant: float = 0.5) -> Expr:
    found = arg(0)
    for i in range(length):
        fn = FUNCTIONS[i % len(FUNCTIONS)]
        if fn == "tanh":
            found = call(fn, found)
        else:
            found = call(fn, found, const(constant + i * 1e-6) if fn == "mul" else arg(1))
    return found


def generic(*bodies: Expr, operands: int = 2, size: int = 4) -> Generic:
    yields = tuple(Yield(b, "f32") for b in bodies)
    maps, shapes = (identity(1),) * operands, ((size,),) * operands
    return Generic((size,), 1, maps, shapes, yields, (), ("f32",) * operands)


def program(g: Generic) -> Program:
    inputs = "".join(f"input x{i}: f32[{g.sizes[0]}]\n" for i in range(len(g.maps)))
    first = parse_program(inputs + "return x0\n", "t.eqs")
    b = Builder("t")
    for n in first.nodes:
        b.append(n.op, n.operands, n.attr)
    return b.build([b.append("generic", tuple(range(len(g.maps))), g)])


def size(e: Expr) -> int:
    """Distinct parts."""
    return sum(1 for _ in e.walk())


# ---- the oracle: the same on plain trees, by recursion -------------------------------------------
Tree = tuple[Any, ...]  # fn, value, arguments


def tree(e: Expr) -> Tree:
    return (e.fn, e.value, *(tree(a) for a in e.args))


def tree_text(t: Tree) -> str:
    fn, value, *args = t
    if fn == "arg":
        return f"x{value}"
    if fn == "const":
        return expr.literal(value)
    inner = [tree_text(a) for a in args] + ([value] if fn == "cast" else [])
    return f"{fn}({', '.join(inner)})"


def tree_value(t: Tree, xs: list[Any]) -> Any:
    fn, value, *args = t
    if fn in ("arg", "const"):
        return xs[value] if fn == "arg" else np.float64(value)
    inner = [np.asarray(tree_value(a, xs)) for a in args]
    return scalar.hold(inner[0], value) if fn == "cast" else scalar.FUNCTIONS[fn].numpy(*inner)


def tree_walk(t: Tree) -> list[Tree]:
    return [t, *(x for a in t[2:] for x in tree_walk(a))]


def tree_replaced(t: Tree, old: Tree, new: Tree) -> Tree:
    return new if t == old else (*t[:2], *(tree_replaced(a, old, new) for a in t[2:]))


def shared(rng: Random, operands: int, steps: int) -> Expr:
    """A random body whose parts are used again."""
    known = [arg(i) for i in range(operands)] + [const(0.5), const(-2.0)]
    for _ in range(steps):
        fn = rng.choice(["add", "sub", "mul", "max", "neg", "abs", "cast", "select"])
        arity = {"neg": 1, "abs": 1, "cast": 1, "select": 3}.get(fn, 2)
        args = rng.choices(known[-6:], k=arity)
        if fn == "cast":
            known.append(cast(args[0], "f64"))
        elif fn == "select":
            known.append(call(fn, call("lt", args[0], args[1]), args[1], args[2]))
        else:
            known.append(call(fn, *args))
    return known[-1]


SEEDS = range(150)


@pytest.mark.parametrize("seed", seeds(12, SEEDS))
def test_a_dag_means_its_tree(seed: int):
    rng = Random(seed)
    e = shared(rng, 3, rng.randint(1, 9))
    t = tree(e)
    xs = [np.array(rng.choices([-1.5, 0.0, 2.0, 3.25], k=5)) for _ in range(3)]
    with np.errstate(all="ignore"):
        assert np.array_equal(scalar.evaluate_body(e, xs), tree_value(t, xs), equal_nan=True)
    distinct = list(dict.fromkeys(tree_walk(t)))
    assert [tree(p) for p in e.walk()] == distinct
    assert e.operands() == tuple(dict.fromkeys(x[1] for x in tree_walk(t) if x[0] == "arg"))
    leaves = ("arg", "const", "cast")
    assert e.count() == sum(x[0] not in leaves for x in distinct)
    old, new = rng.choice(list(e.walk())), call("neg", arg(7))
    assert tree(replaced(e, old, new)) == tree_replaced(t, tree(old), tree(new))
    assert tree(e.substitute({1: new})) == tree_replaced(t, ("arg", 1), tree(new))
    assert Expr.from_json(json.loads(json.dumps(e.to_json()))) is e
    assert Expr.from_json(nested(e)) is e
    assert read_back(e) is e
    if len(tree_walk(t)) == len(distinct):
        assert str(e) == tree_text(t)


def nested(e: Expr) -> Any:
    """Format 1 of a body in JSON."""
    value = expr.literal(e.value) if e.fn == "const" else e.value
    return [e.fn, value, *(nested(a) for a in e.args)]


def read_back(e: Expr) -> Expr:
    """The body that its text in a program gives."""
    count = max(e.operands(), default=0) + 1
    names = [f"x{i}" for i in range(count)]
    lines = [f"input {n}: f64[4]" for n in names]
    maps = ", ".join(["[d0]"] * count)
    lines += [
        f"%{count} = generic({', '.join(names)}, loops=[4], maps=[{maps}], body={e}) : f64[4]"
    ]
    found = parse_program("\n".join([*lines, f"return %{count}"]), "t.eqs")
    return found.nodes[-1].attr.body  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_random_bodies_keep_their_order_of_texts(seed: int):
    """What canonical bodies are sorted by is the text written out, and no text is written."""
    rng = Random(seed)
    bodies = [random_body(rng, ["f32", "f32"], "f32") for _ in range(8)]
    bodies += [shared(rng, 2, 6) for _ in range(4)]
    by_text = sorted(bodies, key=lambda e: tree_text(tree(e)))
    assert sorted(bodies, key=TextOrder().key) == by_text


# ---- one object ----------------------------------------------------------------------------------
def test_equal_bodies_are_one_object_however_they_were_built():
    a = call("add", call("exp", arg(0)), const(1.0))
    assert call("add", call("exp", arg(0)), const(1.0)) is a
    assert call("add", arg(1), const(1.0)).substitute({1: call("exp", arg(0))}) is a
    assert Expr.from_json(a.to_json()) is a
    assert copy.deepcopy(a) is a and copy.copy(a) is a
    assert pickle.loads(pickle.dumps(a)) is a
    with pytest.raises(AttributeError, match="does not change"):
        a.fn = "sub"


def test_constants_of_other_kinds_are_other_bodies():
    values = [0, 0.0, -0.0, False, 1, 1.0, True]
    assert len({const(v) for v in values}) == len(values)
    assert const(float("nan")) is const(float("nan"))


def test_bodies_that_nobody_holds_are_forgotten():
    gc.collect()
    before = len(expr._living)
    e = chain(5_000, 0.123)
    assert len(expr._living) > before + 5_000
    del e
    gc.collect()
    assert len(expr._living) <= before + 8  # leaves live on


def test_records_with_bodies_are_equal_in_another_process():
    """Hashes of text and of bodies differ from process to process: they do not travel."""
    g = generic(doubled(3))
    hash(g)
    script = (
        "import pickle, sys; sys.path.insert(0, sys.argv[1]); g = pickle.load(sys.stdin.buffer)\n"
        "from dataclasses import fields\n"
        "same = type(g)(*(getattr(g, f.name) for f in fields(g)))\n"
        "print(same == g, len({g, same}))"
    )
    root = str(Path(expr.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, root], input=pickle.dumps(g), capture_output=True, check=True
    )
    assert done.stdout.split() == [b"True", b"1"]


# ---- text ----------------------------------------------------------------------------------------
def test_parts_that_are_used_again_have_names():
    e = call("exp", arg(0))
    body = call("div", e, call("add", e, const(1.0)))
    assert str(body) == "(t0 := exp(x0), div(t0, add(t0, 1.0)))"
    assert str(call("add", arg(0), arg(0))) == "add(x0, x0)"
    assert read_back(body) is body


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("(exp(x0), x0)", "E300", "has no name"),
        ("(t := exp(x0), t := neg(x0), t)", "E304", "has a part already"),
        ("(x0 := exp(x0), x0)", "E304", "stands for something else"),
        ("(t := exp(u), t)", "E300", "operands, numbers and scalar functions"),
        ("(t := exp(x0), u := t)", "E300", "operands, numbers and scalar functions"),
        ("()", "E300", "operands, numbers and scalar functions"),
    ],
)
def test_names_in_bodies_that_mean_nothing_are_refused(body: str, code: str, said: str):
    text = f"input x: f32[4]\ny = generic(x, loops=[4], maps=[[d0]], body={body})\nreturn y\n"
    with pytest.raises(EqsatError) as error:
        parse_program(text, "t.eqs")
    (found,) = error.value.diagnostics
    assert found.code == code and said in found.message
    assert found.span is not None and found.span.line == 2


def test_a_person_is_shown_the_ends_of_a_long_body():
    text = short_body(chain(DEEP))
    assert len(text) < SHOWN + 40 and text.endswith(f"[{DEEP} operations]")
    assert short_body(doubled(3)) == body_text(doubled(3))
    assert repr(doubled(200)).endswith("[200 operations]>")


# ---- large ones ----------------------------------------------------------------------------------
SIZES = {
    "doubled": lambda: doubled(200), "squared": lambda: doubled(60, "mul"),
    "chain": lambda: chain(DEEP),
}  # fmt: skip


@cache
def large(name: str) -> Expr:
    return SIZES[name]()


@pytest.mark.parametrize("name", one_in(3, SIZES))
def test_large_bodies_go_everywhere_and_come_back(name: str):
    e = large(name)
    parts = size(e)
    assert len(e.to_json()) == parts
    assert len(str(e)) < 40 * parts
    assert len(pickle.dumps(e)) < 60 * parts
    assert Expr.from_json(json.loads(json.dumps(e.to_json()))) is e
    assert pickle.loads(pickle.dumps(e)) is e
    p = program(generic(e))
    assert parse_program(p.to_text(), "t.eqs") == p
    assert Program.from_json(json.loads(json.dumps(p.to_json()))) == p
    assert pickle.loads(pickle.dumps(p)) == p
    assert read_back(canonical_body(e)) is canonical_body(e)


def test_each_part_is_computed_once(monkeypatch: pytest.MonkeyPatch):
    calls: Counter[str] = Counter()
    for name in ("add", "mul", "sub", "tanh"):
        known = scalar.FUNCTIONS[name]

        def counted(*xs: Any, known: scalar.ScalarFunction = known) -> Any:
            calls[known.name] += 1
            return known.numpy(*xs)

        one = scalar.ScalarFunction(name, known.arity, counted, known.cost, known.commutative)
        monkeypatch.setitem(scalar.FUNCTIONS, name, one)
    x = np.linspace(-1, 1, 4)
    wanted = x * 2.0**200
    assert np.array_equal(scalar.evaluate_body(doubled(200), [x]), wanted)
    assert calls == {"add": 200}
    calls.clear()
    scalar.evaluate_body(chain(DEEP), [x, x])
    assert sum(calls.values()) == DEEP
    calls.clear()
    part = call("tanh", arg(0))
    p = program(generic(call("add", part, part), call("sub", part, arg(1))))
    found = evaluate_generic(p.nodes[-1].attr, [x, x])  # type: ignore[arg-type]
    assert calls == {"tanh": 1, "add": 1, "sub": 1}  # results share what they share
    assert np.allclose(found, [2 * np.tanh(x), np.tanh(x) - x])


def test_each_part_costs_once():
    assert scalar.cost(doubled(200)) == doubled(200).count() == 200
    part = call("exp", arg(0))  # 8
    assert scalar.cost(call("add", part, call("mul", part, part))) == 8 + 1 + 1
    assert count_all([call("neg", part), call("abs", part), part]) == 3
    tanh = scalar.FUNCTIONS["tanh"].cost
    assert scalar.cost(chain(DEEP)) == DEEP * 3 // 4 + DEEP // 4 * tanh


def test_types_constants_and_forms_of_large_bodies():
    deep, wide = large("chain"), large("doubled")
    assert scalar.result_dtype(deep, ["f32", "f32"]) == "f32"
    assert scalar.constant_value(wide, {0: np.float64(1.0)}) == 2.0**200
    assert simplified(deep, ("f32", "f32")) is deep
    negated = arg(0)
    for _ in range(DEEP):
        negated = call("neg", negated)
    assert simplified(negated, ("f32",)) is arg(0)
    form = affine_in(wide, 0)
    assert form is not None and form.shift is None and form.scale is not None
    assert scalar.evaluate_body(form.scale, []) == 2.0**200
    a, x = factors(large("squared"), lambda i: i == 1)
    assert a == const(1.0) and x.operands() == (0,)
    assert terms(wide, lambda i: i == 0) == (None, wide)
    scaled = call("add", call("mul", arg(0), const(2.0)), deep.substitute({0: arg(1)}))
    found = fold_scale(scaled, 0, ("f32", "f32"), lambda i: False)
    assert found is not None and found.scale == const(2.0)


def test_scales_move_out_of_the_one_part_that_all_ways_lead_through():
    product = call("mul", arg(0), arg(1))
    used_twice = call("add", call("exp", product), call("tanh", product))
    found = fold_scale(used_twice, 0, ("f32", "f32"), lambda i: i == 1)
    assert found is not None
    assert found.scale == arg(1)
    assert found.body == call("add", call("exp", arg(0)), call("tanh", arg(0)))
    beside = call("add", call("exp", product), arg(0))
    assert fold_scale(beside, 0, ("f32", "f32"), lambda i: i == 1) is None


def test_the_largest_part_of_few_loops_is_hoisted_out_of_a_large_body():
    part = call("add", arg(1), arg(2))
    for _ in range(200):
        part = call("mul", part, part)
    maps = ((dim(0), dim(1)), (dim(1),), (dim(1),))
    yields = (Yield(call("add", arg(0), part), "f32"),)
    g = Generic((4, 8), 2, maps, ((4, 8), (8,), (8,)), yields, (), ("f32",) * 3)
    found = hoist_part(g, 1)
    assert found is not None
    assert found.part.sizes == (8,) and found.part.body.count() == 201


def test_typed_bodies_share_and_do_not_recurse():
    (wide,) = typed_yields(generic(large("doubled")))
    parts: dict[int, Any] = {}
    BottomUp(lambda t, _: parts.setdefault(id(t), t))(wide)
    assert len(parts) == 201
    (deep,) = typed_yields(generic(large("chain")))
    assert deep.dtype == "f32"


# ---- JAX -----------------------------------------------------------------------------------------
def test_xla_gets_a_graph_of_linear_size():
    jaxpr = jax.make_jaxpr(lambda x: jax_expressions.evaluate_body_in_jax(large("doubled"), [x]))(
        jnp.ones(4)
    )
    assert Counter(e.primitive.name for e in jaxpr.eqns) == {"add": 200}
    deep = chain(2_000)
    jaxpr = jax.make_jaxpr(lambda *xs: jax_expressions.evaluate_body_in_jax(deep, xs))(
        jnp.ones(4), jnp.ones(4)
    )
    counted = Counter(e.primitive.name for e in jaxpr.eqns)
    assert [counted[n] for n in FUNCTIONS] == [500] * 4


def doublings(v: Any) -> Any:
    for _ in range(200):
        v = v + v
    return v


def squares(x: Any) -> Any:
    for _ in range(60):
        x = x * x
    return x


def test_programs_of_doublings_are_read_merged_and_run():
    for function, count in ((doublings, 200), (squares, 60)):
        read = trace(function, (np.ones(4, np.float32),)).program
        merged = canonical(read)
        assert (read.op_count, merged.op_count) == (count, 1)
        body = merged.nodes[-1].attr.body  # type: ignore[attr-defined]
        assert body.count() == count
        x = np.linspace(-0.9, 0.9, 4)
        (found,) = evaluate_program(merged, [x], {})
        assert np.array_equal(found, evaluate_program(read, [x], {})[0])


def test_a_long_chain_becomes_few_ops_of_bounded_size():
    length = 1_500

    def function(v: Any, w: Any) -> Any:
        for i in range(length):
            v = (v * (0.5 + i * 1e-6), v + w, jnp.tanh(v), w - v)[i % 4]
        return v

    with jax.disable_jit(False):
        read = trace(function, (np.ones(4, np.float32), np.ones(4, np.float32))).program
    merged = merge_elementwise(read)
    counts = [n.attr.body.count() for n in merged.nodes if isinstance(n.attr, Generic)]
    assert sum(counts) == read.op_count
    assert max(counts) == MOST_OPERATIONS
    assert len(counts) == -(-sum(counts) // MOST_OPERATIONS)
    xs = [np.linspace(-1, 1, 4), np.linspace(0, 1, 4)]
    assert np.array_equal(evaluate_program(read, xs, {})[0], evaluate_program(merged, xs, {})[0])
