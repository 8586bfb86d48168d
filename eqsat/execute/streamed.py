"""A product on a device that gathers operands panel by panel along its summed loop (SUMMA)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from eqsat.execute.lowering import lower
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic
from eqsat.model.mesh import Mesh
from eqsat.model.meshplan import Sharded, Stream
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.mesh.cuts import stream_of

F32_BITS = 32


def streamed(g: Generic, arrays: Sequence[Any], how: Sharded, mesh: Mesh) -> Any:
    """The block of the result; g: on all panels together. To be traced on a mesh."""
    import jax.numpy as jnp
    from jax import lax

    loop = next(k for name in how.cuts if (k := stream_of(name)) is not None)
    dims = [_dim_of(g, i, loop) for i in range(len(arrays))]
    sizes = dict(zip(mesh.names, mesh.sizes, strict=True))
    gathers = {s.operand: s for s in how.streams}
    blocks = [math.prod(sizes[t.axis] for t in _steps(gathers, i)) for i in range(len(arrays))]
    most, one = math.lcm(*blocks), _one_panel(g, loop, dims, how.panels)

    def panel(step: Any) -> Any:
        cut = [
            x if d is None else _panel(x, d, most // n, how.panels, step)
            for x, d, n in zip(arrays, dims, blocks, strict=True)
        ]
        whole = [_gathered(x, _steps(gathers, i)) for i, x in enumerate(cut)]
        return lower("generic", one, whole, {})[0]

    if how.panels == 1:
        return panel(0)
    start = jnp.zeros(_result_shape(g), element_dtype(one.yields[0].dtype))
    total = lax.fori_loop(0, how.panels, lambda step, sums: sums + panel(step), start)
    return total.astype(element_dtype(g.yields[0].dtype))


def _dim_of(g: Generic, operand: int, loop: int) -> int | None:
    """The dim of an operand that this loop walks."""
    walked = [[t for t, _ in e.terms] for e in g.maps[operand]]
    return next((d for d, loops in enumerate(walked) if loop in loops), None)


def _steps(gathers: dict[int, Stream], operand: int) -> Sequence[Any]:
    return gathers[operand].steps if operand in gathers else ()


def _one_panel(g: Generic, loop: int, dims: Sequence[int | None], panels: int) -> Generic:
    """The product of one panel; floats narrower than f32 are added up in f32."""
    sizes = tuple(s // panels if n == loop else s for n, s in enumerate(g.sizes))
    shapes = tuple(
        s if d is None else _cut(s, d, panels) for s, d in zip(g.shapes, dims, strict=True)
    )
    (made,) = g.yields
    is_narrow = is_float(made.dtype) and DTYPES[made.dtype][0] < F32_BITS and panels > 1
    made = replace(made, dtype="f32") if is_narrow else made
    return replace(g, sizes=sizes, shapes=shapes, yields=(made,))


def _cut(shape: Shape, dim: int, panels: int) -> Shape:
    return (*shape[:dim], shape[dim] // panels, *shape[dim + 1 :])


def _panel(x: Any, dim: int, runs: int, panels: int, step: Any) -> Any:
    """Of every run of elements along a dim the piece of this step, side by side."""
    from jax import lax

    size = x.shape[dim]
    cut = x.reshape((*x.shape[:dim], runs, size // runs, *x.shape[dim + 1 :]))
    width = size // runs // panels
    piece = lax.dynamic_slice_in_dim(cut, step * width, width, dim + 1)
    return piece.reshape((*x.shape[:dim], size // panels, *x.shape[dim + 1 :]))


def _gathered(x: Any, steps: Sequence[Any]) -> Any:
    from jax import lax

    for s in steps:
        x = lax.all_gather(x, s.axis, axis=s.dim, tiled=True)
    return x


def _result_shape(g: Generic) -> Shape:
    return g.sizes[: g.rank]
