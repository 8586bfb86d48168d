"""Equal programs in other spellings: the rules reach the one with less work from the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from leastwork import cheapest_tree, work_of_op

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.model.program import Program
from eqsat.ops.spelling.passes import canonical
from eqsat.saturate import saturate
from tests.test_algebra import NO_TILES

Function = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]


def least_work(program: Program) -> int:
    """Iterations of all loops of the cheapest tree that `full` reaches."""
    graph = saturate(program, eqsat.rules("full"), NO_TILES)
    assert graph.stop == "saturated"
    return cheapest_tree(graph)


def own_work(program: Program) -> int:
    """The same of the program as it is: what several ops read counts for each of them."""
    works: list[int] = []
    for n in program.nodes:
        works.append(work_of_op(n.attr) + sum(works[o] for o in n.operands))
    return sum(works[r] for r in program.results)


def traced(function: Function, shapes: Shapes) -> Program:
    """The program as the search sees it."""
    specs = tuple(jax.ShapeDtypeStruct(s, "float32") for s in shapes)
    return canonical(trace(function, specs).program)


def _grouped(q: Any, k: Any) -> Any:
    """Queries of 6 heads, keys of 2: 3 heads share one."""
    return jnp.einsum("btnh,bsnh->btns", q, jnp.repeat(k, 3, axis=2))


PAIRS: dict[str, tuple[Function, Function, Shapes]] = {
    "two-blocks-of-a-batch": (
        lambda a, b, x: jnp.einsum("bmk,kn->bmn", x, jax.scipy.linalg.block_diag(a, b)),
        lambda a, b, x: jnp.concatenate([x[..., :6] @ a, x[..., 6:] @ b], 2),
        ((6, 5), (4, 7), (2, 9, 10))),
    "three-blocks-from-the-left": (
        lambda a, b, c, x: jax.scipy.linalg.block_diag(a, b, c).T @ x,
        lambda a, b, c, x: jnp.concatenate([a.T @ x[:6], b.T @ x[6:10], c.T @ x[10:]], 0),
        ((6, 5), (4, 7), (3, 3), (13, 9))),
    "kronecker-product-transposed": (
        lambda a, b, x: x @ jnp.kron(a, b).T,
        lambda a, b, x: jnp.einsum("mjl,ij->mil", x.reshape(7, 6, 5), a) @ b.T,
        ((4, 6), (8, 5), (7, 30))),
    "kronecker-product-batched": (
        lambda a, b, x: jnp.einsum("ij,bjn->bin", jnp.kron(a, b), x),
        lambda a, b, x: jnp.einsum(
            "ij,bjkn->bikn", a, jnp.einsum("kl,bjln->bjkn", b, x.reshape(2, 6, 5, 7))),
        ((4, 6), (8, 5), (2, 30, 7))),
    "kronecker-product-in-a-chain": (
        lambda a, b, x: jnp.tanh(jnp.kron(a, b) @ x + 1.0),
        lambda a, b, x: jnp.tanh((a @ x.reshape(6, 6) @ b.T) + 1.0),
        ((6, 6), (6, 6), (36,))),
    "diagonal-of-a-transposed-product": (
        lambda a, b: jnp.diagonal(a.T @ b),
        lambda a, b: (a * b).sum(0),
        ((5, 12), (5, 12))),
    "diagonal-above": (
        lambda a, b: jnp.diagonal(a @ b, offset=3),
        lambda a, b: (a[:9] * b.T[3:]).sum(1),
        ((12, 5), (5, 12))),
    "diagonals-of-a-batch": (
        lambda a, b: jnp.diagonal(a @ b, axis1=1, axis2=2),
        lambda a, b: (a * b.transpose(0, 2, 1)).sum(2),
        ((3, 12, 5), (3, 5, 12))),
    "grouped-queries": (
        _grouped,
        lambda q, k: jnp.einsum("btgnh,bsgh->btgns", q.reshape(2, 5, 2, 3, 4), k),
        ((2, 5, 6, 4), (2, 7, 2, 4))),
    "square-matrices-times-a-vector": (
        lambda a, b, v: v @ (a @ b),
        lambda a, b, v: (v @ a) @ b,
        ((16, 16), (16, 16), (16,))),
    "low-rank-update-scaled-and-transposed": (
        lambda x, w, a, b: (w + 0.5 * (a @ b)).T @ x,
        lambda x, w, a, b: w.T @ x + (b.T @ (a.T @ x)) * 0.5,
        ((24, 3), (24, 20), (24, 2), (2, 20))),
    "low-rank-updates-of-a-batch": (
        lambda x, w, a, b: jnp.einsum("bti,bio->bto", x, w - jnp.einsum("bik,bko->bio", a, b)),
        lambda x, w, a, b: jnp.einsum("bti,bio->bto", x, w) - jnp.einsum(
            "btk,bko->bto", jnp.einsum("bti,bik->btk", x, a), b),
        ((4, 3, 24), (4, 24, 20), (4, 24, 2), (4, 2, 20))),
    "block-reflection": (
        lambda u, x: x @ (jnp.eye(24) - 2.0 * (u @ u.T)),
        lambda u, x: x - ((x @ u) @ u.T) * 2.0,
        ((24, 2), (4, 24))),
    "norms-of-a-batch": (
        lambda a, b: ((a @ b) ** 2).sum((1, 2)),
        lambda a, b: ((a.transpose(0, 2, 1) @ a) * (b @ b.transpose(0, 2, 1))).sum((1, 2)),
        ((3, 20, 2), (3, 2, 24))),
    "inner-product-with-a-transposed-product": (
        lambda a, b, c, d: ((a @ b) * (c @ d).T).sum(),
        lambda a, b, c, d: ((a.T @ d.T) * (b @ c)).sum(),
        ((20, 2), (2, 24), (24, 3), (3, 20))),
    "outer-scale-of-a-transposed-weight": (
        lambda x, w, r, s: x @ (r[:, None] * s[None, :] * w).T,
        lambda x, w, r, s: ((x * s) @ w.T) * r,
        ((2, 40), (48, 40), (48,), (40,))),
    "rows-of-a-batch-moved-down": (
        lambda x: jnp.einsum("ij,bjk->bik", jnp.eye(12, k=-2), x) + 1.0,
        lambda x: jnp.pad(x[:, :-2], ((0, 0), (2, 0), (0, 0))) + 1.0,
        ((3, 12, 5),)),
    "shift-of-a-softmax-over-rows": (
        lambda x, c: jax.nn.softmax(x - 2.0 * c[None, :], axis=0),
        lambda x, c: jax.nn.softmax(x, axis=0),
        ((12, 6), (6,))),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_less_work_is_reached(name: str) -> None:
    naive, better, shapes = PAIRS[name]
    program, wanted = traced(naive, shapes), own_work(traced(better, shapes))
    assert least_work(program) <= wanted < own_work(program)
