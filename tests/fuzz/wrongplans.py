"""Twenty small JAX functions, and plans of their kernels made wrong on purpose, for `firstcall.py`.

A wrong plan reads and writes inside of its buffers, but not all of what it should: an extent, a
stride or the number of its work items is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eqsat.execute.kernels import runtime
from eqsat.execute.kernels.runtime import PlannedDispatch
from eqsat.model.dispatch import Machine
from eqsat.model.nest import Access, Nest, NoNest

Change = Callable[[PlannedDispatch, Machine], PlannedDispatch | None]


def drawn(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    """Normal numbers f32 of these shapes."""
    rng = np.random.default_rng(7)
    return tuple(jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes)


def _norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / 4.0) @ v


def _conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")


def _pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2), (1, 2, 2), "VALID")


# name -> the function and the shapes of its arguments
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "product": (lambda x, w: x @ w, ((48, 40), (40, 56))),
    "layer": (lambda x, w, b: jax.nn.relu(x @ w + b), ((33, 40), (40, 72), (72,))),
    "turned": (lambda x, w: (x.T @ w).T, ((40, 24), (40, 48))),
    "swiglu": (lambda x, w: jax.nn.silu((x @ w)[:, :32]) * (x @ w)[:, 32:], ((16, 24), (24, 64))),
    "two_layers": (lambda x, w, v: jnp.tanh(x @ w) @ v, ((24, 32), (32, 48), (48, 16))),
    "softmax": (jax.nn.softmax, ((32, 100),)),
    "layer_norm": (_norm, ((32, 96),)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 0), ((64, 80),)),
    "attention": (_attention, ((32, 16), (48, 16), (48, 16))),
    "convolution": (_conv, ((1, 8, 14, 14), (16, 8, 3, 3))),
    "max_pool": (_pool, ((8, 12, 12),)),
    "gelu": (lambda x, b: jax.nn.gelu(x + b), ((64, 96), (96,))),
    "transpose": (lambda x: x.T + 1.0, ((60, 44),)),
    "outer": (lambda x, y: x[:, None] * y, ((50,), (70,))),
    "einsum": (lambda x, w: jnp.einsum("bij,bjk->bik", x, w), ((4, 12, 20), (4, 20, 24))),
    "distances": (lambda x, y: ((x[:, None] - y) ** 2).sum(-1), ((24, 8), (40, 8))),
    "covariance": (lambda x: (x - x.mean(0)).T @ (x - x.mean(0)) / 63, ((64, 24),)),
    "concat": (lambda x, y: jnp.concatenate([x * 2, y], 1).sum(0), ((20, 24), (20, 40))),
    "norm_product": (lambda x, w: _norm(x) @ w, ((16, 64), (64, 48))),
    "rotation": (
        lambda x, c: jnp.concatenate([-x[:, 16:], x[:, :16]], -1) * c,
        ((40, 32), (40, 32)),
    ),
}


# ---- changes -------------------------------------------------------------------------------------
def fewer_items(p: PlannedDispatch, machine: Machine) -> PlannedDispatch | None:
    """The last work item is left out."""
    return replace(p, plan=replace(p.plan, items=p.plan.items - 1)) if p.plan.items > 1 else None


def shorter_sum(p: PlannedDispatch, machine: Machine) -> PlannedDispatch | None:
    """A reduction stops one point early."""
    return _shorter(p, machine, [i for s in p.nest.stages for i in s.reduced])


def shorter_result(p: PlannedDispatch, machine: Machine) -> PlannedDispatch | None:
    """The last row or column of a result is not computed."""
    return _shorter(p, machine, [i for s in p.nest.stores for i in s.loops])


def stays_at_read(p: PlannedDispatch, machine: Machine) -> PlannedDispatch | None:
    """Along its longest loop each operand is read at its first element again and again."""
    stages = [
        replace(s, arguments=tuple(_staying(p.nest, a) for a in s.arguments)) for s in p.nest.stages
    ]
    nest = replace(p.nest, stages=tuple(stages))
    return None if nest == p.nest else _planned(p, machine, nest)


CHANGES: tuple[Change, ...] = (fewer_items, shorter_sum, shorter_result, stays_at_read)


def _shorter(p: PlannedDispatch, machine: Machine, loops: list[int]) -> PlannedDispatch | None:
    loops = [i for i in loops if p.nest.sizes[i] > 1]
    if not loops:
        return None
    longest = max(loops, key=lambda i: p.nest.sizes[i])
    sizes = [n - (i == longest) for i, n in enumerate(p.nest.sizes)]
    return _planned(p, machine, replace(p.nest, sizes=tuple(sizes)))


def _staying(nest: Nest, read: Access | int) -> Access | int:
    if isinstance(read, int):
        return read
    moved = [i for i, s in enumerate(read.strides) if s and nest.sizes[i] > 1]
    longest = max(moved, key=lambda i: nest.sizes[i], default=-1)
    return replace(read, strides=tuple(s * (i != longest) for i, s in enumerate(read.strides)))


def _planned(p: PlannedDispatch, machine: Machine, nest: Nest) -> PlannedDispatch:
    return replace(p, nest=nest, plan=runtime.plan(nest, machine))


@contextmanager
def forced(first: int) -> Iterator[list[str]]:
    """The first kernel that can be has a wrong plan: by the change of this number, or a later one.

    Gives what was changed, once per kernel that was made so: number of the dispatch and change.
    """
    real, made = runtime.planned, list[str]()
    turned = CHANGES[first % len(CHANGES) :] + CHANGES[: first % len(CHANGES)]

    def planned(schedule: Any, number: int, machine: Machine) -> PlannedDispatch:
        p = real(schedule, number, machine)
        for change in turned:
            what = f"{number} {change.__name__}"
            found = None if made and what not in made else _changed(change, p, machine)
            if found is not None:
                made.append(what)
                return found
        return p

    runtime.planned = planned
    try:
        yield made
    finally:
        runtime.planned = real


def _changed(change: Change, p: PlannedDispatch, machine: Machine) -> PlannedDispatch | None:
    try:
        return change(p, machine)
    except NoNest:
        return None
