"""Equal ops of a program share one record, and sharing changes no program."""

from __future__ import annotations

import gc
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from fuzz.programs import Maker
from seeds import seeds

from eqsat.frontends import values
from eqsat.frontends.jaxpr import trace
from eqsat.frontends.mlir.parser import every_operation
from eqsat.frontends.values import Context, Tensor
from eqsat.model.affine import affine, dim
from eqsat.model.attr import Shape, ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder, Program, prune
from eqsat.ops.generics import canonical as nests
from eqsat.ops.spelling.passes import canonical

X = jax.ShapeDtypeStruct((4, 4), "float32")
UNARY: tuple[Callable[[Any], Any], ...] = (
    jnp.sin,
    jnp.square,
    lambda v: v + 1.0,
    lambda v: v + 0.0,
    lambda v: v + -0.0,
    lambda v: 0.5 * v,
    lambda v: v * jnp.nan,
    lambda v: v.T,
    lambda v: v[:, :1],
    lambda v: v.sum(0, keepdims=True),
    lambda v: jnp.maximum(v, -jnp.inf),
    lambda v: jnp.where(v > 0, v, jnp.nan),
    lambda v: v.astype("bfloat16").astype("float32"),
    lambda v: v.astype("int32") + 1,
)
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    jnp.add,
    jnp.subtract,
    jnp.maximum,
    lambda a, b: jnp.where(a > b, a, b),
    lambda a, b: a @ b,
    lambda a, b: a * a.mean() + b,
)


def drawn(seed: int) -> Callable[[Any, Any], Any]:
    """A random function that repeats few operations on many values."""

    def function(x: Any, y: Any) -> Any:
        rng, known = Random(seed), [x, y]
        for _ in range(14):
            if rng.random() < 0.5:
                made = rng.choice(UNARY)(rng.choice(known[-3:]))
            else:
                made = rng.choice(BINARY)(rng.choice(known), rng.choice(known))
            known.append(jnp.broadcast_to(made, x.shape).astype("float32"))
        return known[-1], known[-2]

    return function


def elementwise(
    self: Context, body: Expr, read: Sequence[Tensor], shape: Shape, dtype: str
) -> Tensor:
    """`Context.elementwise` as the loop nest that it is, equation by equation."""
    if all(v.is_constant for v in read):
        return Tensor(shape, dtype, constant=values.fold(body, read, dtype))
    same = values._chosen(body, read)
    if same is not None and same.shape == shape and same.dtype == dtype:
        return same
    maps = [[dim(d) if s == shape[d] else affine([]) for d, s in enumerate(v.shape)] for v in read]
    operands = list(zip(read, maps, strict=True))
    return self.generic(shape, range(len(shape)), operands, Yield(body, dtype))


def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every record anew."""
    monkeypatch.setattr(nests, "planned_nest", nests.planned_nest.__wrapped__)
    monkeypatch.setattr(Context, "elementwise", elementwise)


def text(program: Program) -> str:
    return json.dumps(program.to_json())


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_sharing_changes_no_program_that_is_read(seed: int, monkeypatch: pytest.MonkeyPatch):
    shared = trace(drawn(seed), (X, X), name="f").program
    shared.verify()
    merged = canonical(shared)
    unshared(monkeypatch)
    plain = trace(drawn(seed), (X, X), name="f").program
    assert text(shared) == text(plain)
    assert text(merged) == text(canonical(plain))


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_sharing_changes_no_program_that_is_merged(seed: int, monkeypatch: pytest.MonkeyPatch):
    shared = Maker(seed, exact=seed % 2 == 0).program(12)
    merged = canonical(shared)
    unshared(monkeypatch)
    plain = Maker(seed, exact=seed % 2 == 0).program(12)
    assert text(shared) == text(plain)
    assert text(merged) == text(canonical(plain))


def chain(constants: int) -> Callable[[Any, Any], Any]:
    """300 ops: products with so many constants, sums, sines."""

    def function(v: Any, w: Any) -> Any:
        for i in range(100):
            v = jnp.sin(v * (0.5 + i % constants) + w)
        return v

    return function


@pytest.mark.parametrize("constants", [1, 7, 100])
def test_a_chain_is_canonicalised_once_per_distinct_op(
    constants: int, monkeypatch: pytest.MonkeyPatch
):
    count: Counter[str] = Counter()
    generic, verify = nests._generic, Generic.verify

    def counted_generic(*args: Any) -> Generic:
        count["made"] += 1
        return generic(*args)

    def counted_verify(self: Generic) -> None:
        count["verified"] += 1
        verify(self)

    monkeypatch.setattr(nests, "_generic", counted_generic)
    monkeypatch.setattr(Generic, "verify", counted_verify)
    nests.planned_nest.cache_clear()
    values._elementwise.cache_clear()
    program = trace(chain(constants), (X, X)).program
    assert program.op_count == 300
    distinct = {n.attr for n in program.nodes if n.op == "generic"}
    records = {id(n.attr) for n in program.nodes if n.op == "generic"}
    assert len(distinct) == len(records) == constants + 2
    assert count == {"made": len(distinct), "verified": len(distinct)}
    program.verify()
    assert count["verified"] == len(distinct)


def test_constants_that_compare_equal_are_not_confused():
    def function(x: Any) -> Any:
        return x + 0.0, x + -0.0, x * jnp.nan, x * 1.0, x * math.inf

    program = trace(function, (X,)).program
    bodies = [str(program.nodes[r].attr.body) for r in program.results]
    added, times = ["add(x0, 0.0)", "add(x0, -0.0)"], ["nan", "1.0", "inf"]
    assert bodies == [*added, *(f"mul(x0, {c})" for c in times)]


def test_what_is_kept_is_bounded():
    for memo in (nests.planned_nest, values._elementwise):
        assert memo.cache_parameters()["maxsize"] <= 10_000


def test_a_record_that_fits_is_still_refused_where_it_does_not():
    program = trace(jnp.sin, (X,)).program
    attr = program.nodes[program.results[0]].attr
    b = Builder("t")
    other = trace(lambda x: x, (jax.ShapeDtypeStruct((4, 5), "float32"),)).program.nodes[0]
    half = trace(lambda x: x, (jax.ShapeDtypeStruct((4, 4), "float16"),)).program.nodes[0]
    with pytest.raises(ShapeError, match=r"operand 0 of `generic` has shape \[4, 5\]"):
        b.add("generic", (b.add("input", (), other.attr),), attr)
    with pytest.raises(ShapeError, match="wants operands of"):
        b.add("generic", (b.add("input", (), half.attr),), attr)
    with pytest.raises(ShapeError, match="takes 1 operand"):
        b.add("generic", (), attr)


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_moved_nodes_are_those_that_would_be_added(seed: int):
    """Whole programs, twice over, so that every node of the second half is known."""
    source = Maker(seed, exact=True).program(12)
    moved, added = Builder("p"), Builder("p")
    for b, put in ((moved, "move"), (added, "add")):
        for _ in range(2):
            new: list[int] = []
            for n in source.nodes:
                operands = tuple(new[o] for o in n.operands)
                at = b.move(n, operands) if put == "move" else b.add(n.op, operands, n.attr)
                new.append(at)
    results = tuple(range(len(moved.nodes)))
    assert moved.build(results) == added.build(results)
    assert prune(source) == source


def test_modules_are_walked_outermost_first():
    ir = pytest.importorskip("iree.compiler.ir")
    with ir.Context():
        module = ir.Module.parse("""
            func.func @f(%c: i1, %x: tensor<4xf32>) -> tensor<4xf32> {
              %y = scf.if %c -> tensor<4xf32> {
                %a = arith.addf %x, %x : tensor<4xf32>
                scf.yield %a : tensor<4xf32>
              } else {
                scf.yield %x : tensor<4xf32>
              }
              %z = math.sin %y : tensor<4xf32>
              return %z : tensor<4xf32>
            }""")
        assert [op.name for op in every_operation(ir, module.operation)] == [
            "builtin.module", "func.func", "scf.if", "arith.addf", "scf.yield", "scf.yield",
            "math.sin", "func.return",
        ]  # fmt: skip


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool):
    (gc.enable if enabled else gc.disable)()
    try:
        canonical(trace(drawn(1), (X, X)).program)
        assert gc.isenabled() == enabled
        with pytest.raises(EqsatError):
            trace(lambda x: jax.debug.print("{}", x), (X,))
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
