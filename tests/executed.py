"""Programs as the XLA executor runs them, for the tests of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from fuzz.worst import worst_error

from eqsat.execute.calls import Callee, compiled
from eqsat.execute.executable import xla_executable
from eqsat.execute.verify import verify
from eqsat.frontends.jaxpr import trace
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Tile
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.meaning import scalar

RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X = real(2, 6, 8)


def whole(program: Program) -> Schedule:
    """Everything that needs an input in one dispatch, the rest ahead of time."""
    ahead: list[int] = []
    for i, n in enumerate(program.nodes):
        if n.op == "weight" or (n.operands and all(o in ahead for o in n.operands)):
            ahead.append(i)
    run = tuple(i for i, n in enumerate(program.nodes) if i not in ahead and n.op != "input")
    dispatch = Dispatch(run, program.inputs, program.results, 0, 0, "all")
    return Schedule(program, (dispatch,), (), tuple(ahead), "test")


def check(function, *args, **options):
    """Trace, build, verify against the reference and against JAX itself."""
    traced = trace(function, args, **options)
    executable = xla_executable(whole(traced.program), traced.opaque, traced.weights)
    found = verify(traced.program, executable.flat, traced.weights, traced.opaque, samples=2)
    assert found.ok, found
    call = compiled(Callee(executable, traced, False))
    got, want = jax.tree.leaves(call(*args)), jax.tree.leaves(function(*args))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert worst_error(np.asarray(g), np.asarray(w).astype(scalar.held_dtype("f64")))[0] < 1e-5
    return executable


def layer(x, p):
    h = x - x.mean(-1, keepdims=True)
    q, k = ((h @ p[n]).reshape(2, 6, 2, 4).transpose(0, 2, 1, 3) for n in ("q", "k"))
    a = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k))
    o = jnp.einsum("bhqk,bhkd->bhqd", a, q).transpose(0, 2, 1, 3).reshape(2, 6, 8)
    return x + jax.nn.gelu(o @ p["up"]) @ p["down"]


PARAMS = {"q": real(8, 8), "k": real(8, 8), "up": real(8, 16), "down": real(16, 8)}


def built(function, *args, **options):
    traced = trace(function, args, **options)
    return xla_executable(whole(traced.program), traced.opaque, traced.weights)


def packed_matmul(m, n, k, tile, dtype="f32"):
    """x @ w with both operands packed by a tile, and the plain generic."""
    b = Builder("packed")
    x = b.add("input", (), Leaf("x", TensorType(dtype, (m, k)), index=0))
    w = b.add("weight", (), Leaf("w", TensorType(dtype, (k, n)), key="w"))
    maps = ((dim(0), dim(2)), (dim(2), dim(1)))
    body = call("mul", arg(0), arg(1))
    g = Generic(
        (m, n, k), 2, maps, ((m, k), (k, n)), (Yield(body, dtype, "add"),), (), (dtype, dtype)
    )
    found = pack_loops(g, Tile(tuple(zip("mnk", tile, strict=True)), 1.0))
    assert found is not None
    operands = tuple(
        node if layout is None else b.add("pack", (node,), layout)
        for node, layout in zip((x, w), found.operands, strict=True)
    )
    inner = b.add("generic", operands, found.sig)
    return b.build([b.add("unpack", (inner,), found.result)])
