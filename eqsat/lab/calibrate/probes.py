"""Probes, functions that are timed, with the work that a call does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat.host import MemoryLevel
from eqsat.lab.calibrate import shapes
from eqsat.model.generic import Generic

Call = Callable[..., Any]


@dataclass(frozen=True)
class Probe:
    """A timed function; `build` compiles it and returns a call that waits for its result."""

    name: str
    work: float  # operations or bytes of one call; calls of one kind of op: their number
    build: Callable[[], Call]


def probes(levels: Sequence[MemoryLevel]) -> list[Probe]:
    """Everything that is measured, in the order of the target's keys."""
    return [
        Probe("call", 1, partial(_elementwise, 1, 1)),
        Probe("launch", LAUNCHES, _launches),
        *(_copy(level) for level in levels),
        *_relayouts(),
        Probe("elementwise", BODY_OPERATIONS * BODY_SIZE * BODY_RUNS, _body),
        *_contractions(),
        *_handed(),
    ]


# ---- contractions ----------------------------------------------------------------------------
def _contractions() -> Iterator[Probe]:
    for dtype, g in shapes.TYPES.items():
        yield _contraction(f"matmul {dtype}", g)
    for i, regime in enumerate(shapes.MATMULS):
        for j, g in enumerate(regime.shapes):
            yield _contraction(f"matmul {i}.{j}", g)
    for image, filters in shapes.ORDERS:
        for i, regime in enumerate(shapes.CONVOLUTIONS):
            for j, g in enumerate(regime.shapes):
                yield _contraction(f"{image} {i}.{j}", shapes.in_dim_order(g, image, filters))
    for kind, (tile, packed) in shapes.TILES.items():
        for j, g in enumerate(packed):
            yield _contraction(f"packed {kind} {j}", shapes.packed(g, tile), 2 * math.prod(g.sizes))


def _contraction(name: str, g: Generic, operations: float = 0) -> Probe:
    return Probe(name, operations or 2 * math.prod(g.sizes), partial(_generic, g))


def _generic(g: Generic) -> Call:
    """The executor's own lowering of a generic, on random operands."""
    import numpy as np

    from eqsat.execute.loops import generic
    from eqsat.ops.meaning.programs import element_dtype

    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-9, 9, s).astype(element_dtype(t))
        for s, t in zip(g.shapes, g.dtypes, strict=True)
    ]
    return _compiled(lambda *xs: generic(g, xs), *arrays)


HANDED = (2048, 1024, 8)  # a product that takes little longer than reading its first factor


def _handed() -> Iterator[Probe]:
    """A pass over memory, a product, and the product of what the pass makes."""
    import numpy as np
    from jax import numpy as jnp

    rows, k, columns = HANDED
    x, w = np.ones((rows, k), "f4"), np.ones((k, columns), "f4")

    def passed(x: Any) -> Any:
        return jnp.maximum(x, 0.5)

    operations = 2 * rows * k * columns
    yield Probe("pass", 8 * rows * k, partial(_compiled, passed, x))
    yield Probe("product", operations, partial(_compiled, jnp.matmul, x, w))
    handed = partial(_compiled, lambda x, w: passed(x) @ w, x, w)
    yield Probe("product of pass", operations, handed)


# ---- everything else -------------------------------------------------------------------------
LAUNCHES = 64
BODY_OPERATIONS = 20  # as the model counts them: 8 for the exponential, 4 for the quotient
BODY_SIZE, BODY_RUNS = 16384, 50
COPIED = 64 << 20  # bytes that one call of a copy moves at least
TRANSPOSED = (((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 28, 28, 256), (0, 3, 1, 2)))


def _copy(level: MemoryLevel) -> Probe:
    """An elementwise pass over a buffer that this level holds, again and again."""
    elements = level.probed_bytes // 4
    runs = max(4, COPIED // level.probed_bytes)
    return Probe(f"copy {level.name}", 8 * elements * runs, partial(_elementwise, elements, runs))


def _elementwise(elements: int, runs: int) -> Call:
    import numpy as np
    from jax import lax

    x = np.ones(elements, "f4")
    return _compiled(lambda x: lax.fori_loop(0, runs, lambda _, x: x * 0.999 + 0.5, x), x)


def _body() -> Call:
    import numpy as np
    from jax import lax

    x = np.linspace(-1, 1, BODY_SIZE, dtype="f4")
    return _compiled(lambda x: lax.fori_loop(0, BODY_RUNS, lambda _, x: activation(x), x), x)


def activation(x: Any) -> Any:
    """A body like those of activations, with an exponential and a quotient in it."""
    from jax import numpy as jnp

    return 1 / (1 + jnp.exp(-x)) * x * 0.9 + 0.05 * x * x - 0.1


def _launches() -> Call:
    """A chain of small products that cannot be fused."""
    import numpy as np

    def chain(x: Any, y: Any) -> Any:
        for _ in range(LAUNCHES):
            x = x @ y
        return x

    return _compiled(chain, np.zeros((8, 8), "f4"), np.zeros((8, 8), "f4"))


def _relayouts() -> Iterator[Probe]:
    for i, (shape, perm) in enumerate(TRANSPOSED):
        yield Probe(f"relayout {i}", 8 * math.prod(shape), partial(_transpose, shape, perm))


def _transpose(shape: tuple[int, ...], perm: tuple[int, ...]) -> Call:
    import numpy as np
    from jax import lax

    return _compiled(lambda x: lax.transpose(x, perm), np.ones(shape, "f4"))


def _compiled(function: Callable[..., Any], *arrays: Any) -> Call:
    """A call of the compiled function on the CPU, with its arguments there already."""
    import jax

    with jax.default_device(jax.devices("cpu")[0]):
        on_device = [jax.device_put(x) for x in arrays]
        compiled = jax.jit(function).lower(*on_device).compile()
    return lambda: jax.block_until_ready(compiled(*on_device))
