"""SPMD execution of a schedule on a mesh: every device runs its blocks, collectives in between.

What comes in are a schedule and its plan; what goes out is an executable (`jax.shard_map`) whose
weights are spread over the mesh as the plan holds them, ahead of the first call. Arguments are
taken as they come and moved to where the plan wants them; results are global arrays, spread as the
plan says. A product may gather its operands panel by panel along its summed loop (SUMMA).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.execute.executable import JaxExecutable
from eqsat.execute.lowering import OpaqueFunction, lower
from eqsat.model.attr import Shape
from eqsat.model.diag import fail
from eqsat.model.generic import Generic, Result
from eqsat.model.mesh import Mesh, MeshPlan, MeshStep, Reshard, Sharded, Spread, Stream
from eqsat.model.movement import Move
from eqsat.model.program import Node
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.mesh.cuts import stream_of
from eqsat.ops.mesh.gathers import MASKED, cuts_rows, own_index
from eqsat.ops.mesh.runorder import run_order
from eqsat.ops.mesh.strategies import local_attr

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
    start = jnp.zeros(g.sizes[: g.rank], element_dtype(one.yields[0].dtype))
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
    (total,) = g.yields
    is_narrow = is_float(total.dtype) and DTYPES[total.dtype][0] < F32_BITS and panels > 1
    total = replace(total, dtype="f32") if is_narrow else total
    return replace(g, sizes=sizes, shapes=shapes, yields=(total,))


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


def own_rows_taken(gather: Move, arrays: Sequence[Any], how: Sharded, mesh: Mesh) -> Any:
    """What a device gathers of its block of the rows; nothing, where it is to make a part of a sum
    and another one has the row. To be traced on a mesh."""
    import jax.numpy as jnp
    from jax import lax

    table, index = arrays
    ((axis,), block, blocks) = gather.args, 0, 1
    for name, size, cut in zip(mesh.names, mesh.sizes, how.cuts, strict=True):
        if cuts_rows(cut):
            block, blocks = block * size + lax.axis_index(name), blocks * size
    index, inside = own_index(jnp, index, block, table.shape[axis], blocks)
    (taken,) = lower("gather", gather, [table, index], {})
    behind = taken.ndim - axis - index.ndim
    is_whole = MASKED not in how.cuts
    return (
        taken if is_whole else jnp.where(inside.reshape((*inside.shape, *[1] * behind)), taken, 0)
    )


class MeshExecutable(JaxExecutable):
    """A schedule as functions of flat inputs, on the devices of a mesh.

    devices: as many as the mesh has; JAX's first ones if none are given. EqsatError E513 if JAX has
    fewer.
    """

    def __init__(
        self,
        schedule: Schedule,
        plan: MeshPlan,
        opaque: Mapping[str, OpaqueFunction],
        weights: Mapping[str, Any],
        target: Target | None = None,
        devices: Sequence[Any] | None = None,
    ):
        super().__init__(schedule, opaque, weights, target)
        self.plan, self.mesh = plan, jax_mesh(plan.mesh, devices)
        self.reshards = {(r.node, r.reader): r for r in plan.reshards}

    @property
    def weights_are_arguments(self) -> bool:
        """Constants of what XLA compiles would be on every device."""
        return True

    # ---- where values are ----------------------------------------------------------------------
    def spec(self, spread: Spread, rank: int) -> Any:
        """The `PartitionSpec` of a spread without parts of sums."""
        from jax.sharding import PartitionSpec

        names = self.plan.mesh.names
        dims = [tuple(a for k, a in zip(spread, names, strict=True) if k == d) for d in range(rank)]
        return PartitionSpec(*(d or None for d in dims))

    def held(self, node: int) -> Any:
        """The `NamedSharding` of a value as the plan holds it."""
        from jax.sharding import NamedSharding

        return NamedSharding(self.mesh, self._held_spec(node))

    def _held_spec(self, node: int) -> Any:
        rank = len(self.schedule.program.nodes[node].type.shape)
        return self.spec(self.plan.by_node[node].held, rank)

    def pack(self, weights: Mapping[str, Any]) -> dict[int, Any]:
        """Packed weights, each spread over the mesh."""
        import jax

        packed = super().pack(weights)
        return {i: jax.device_put(x, self.held(i)) for i, x in packed.items() if self._is_read(i)}

    def _is_read(self, node: int) -> bool:
        return node in self.plan.by_node

    def typed(self, inputs: Sequence[Any], plain: Collection[int] = ()) -> list[Any]:
        """The inputs as arrays of the mesh."""
        import jax
        from jax.core import Tracer

        program = self.schedule.program
        arrays = super().typed(inputs, plain)
        if any(isinstance(x, Tracer) for x in arrays):
            return arrays
        return [
            jax.device_put(x, self.held(i)) for i, x in zip(program.inputs, arrays, strict=True)
        ]

    # ---- what runs -----------------------------------------------------------------------------
    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs; to be traced."""
        import jax

        program = self.schedule.program
        arrays = super().typed(inputs)
        given = dict(packed) | dict(zip(program.inputs, arrays, strict=True))
        body = jax.shard_map(
            self._on_device,
            mesh=self.mesh,
            in_specs=({i: self._held_spec(i) for i in given},),
            out_specs=tuple(map(self._held_spec, program.results)),
            check_vma=False,
        )
        return body(given)

    def _on_device(self, given: Mapping[int, Any]) -> tuple[Any, ...]:
        """Results of each device from its blocks of arguments and weights."""
        values: dict[int, list[Any]] = {i: [x] for i, x in given.items()}
        for i in self._order:
            values[i] = self._node(i, values)
            after = self.reshards.get((i, -1))
            if after is not None:
                values[i] = [self._convert(x, after) for x in values[i]]
        return tuple(values[r][0] for r in self.schedule.program.results)

    @cached_property
    def _order(self) -> list[int]:
        """Nodes in the order of the dispatches; one that several compute is computed once."""
        return list(run_order(self.schedule))

    def _node(self, i: int, values: Mapping[int, list[Any]]) -> list[Any]:
        n, how = self.schedule.program.nodes[i], self.plan.by_node[i]
        operands = [self._read(o, i, values) for o in n.operands]
        if isinstance(n.attr, Result):
            return [operands[0][n.attr.index]]
        arrays = [xs[0] for xs in operands]
        attr = self._attr(n, how)
        if how.streams:
            return [streamed(attr, arrays, how, self.plan.mesh)]
        if n.op == "gather" and any(map(cuts_rows, how.cuts)):
            return [own_rows_taken(attr, arrays, how, self.plan.mesh)]
        return lower(n.op, attr, arrays, self.opaque)

    def _read(self, value: int, reader: int, values: Mapping[int, list[Any]]) -> list[Any]:
        how = self.reshards.get((value, reader))
        return values[value] if how is None else [self._convert(x, how) for x in values[value]]

    def _attr(self, n: Node, how: Sharded) -> Any:
        mesh, program = self.plan.mesh, self.schedule.program
        shapes = [
            mesh.local(spread, program.nodes[o].types[0].shape)
            for o, spread in zip(n.operands, how.taken, strict=True)
        ]
        result = mesh.local(tuple(_cut_only(how.made)), n.types[0].shape)
        return local_attr(n.attr, shapes, result, how.cuts, mesh)

    def _convert(self, x: Any, how: Reshard) -> Any:
        for step in how.steps:
            x = _STEPS[step.kind](x, step, self.plan.mesh)
        return x


def _cut_only(spread: Spread) -> Spread:
    return tuple(k if isinstance(k, int) else "" for k in spread)


def jax_mesh(mesh: Mesh, devices: Sequence[Any] | None = None) -> Any:
    """The mesh of JAX devices; EqsatError E513 if there are fewer than it has."""
    import jax

    available = list(jax.devices() if devices is None else devices)
    if len(available) < mesh.devices:
        raise fail(
            "E513",
            f"the mesh {mesh.to_text()} has {mesh.devices} devices, JAX finds {len(available)}",
            help="run where there are as many, or let the CPU be several: set"
            f" `XLA_FLAGS=--xla_force_host_platform_device_count={mesh.devices}` before JAX starts",
        )
    grid = np.array(available[: mesh.devices]).reshape(mesh.sizes)
    return jax.sharding.Mesh(grid, mesh.names)


# ---- conversions: (local array, step, mesh) -> local array ---------------------------------------
def _gather(x: Any, step: MeshStep, mesh: Mesh) -> Any:
    from jax import lax

    return lax.all_gather(x, step.axis, axis=step.dim, tiled=True)


def _scatter(x: Any, step: MeshStep, mesh: Mesh) -> Any:
    from jax import lax

    return lax.psum_scatter(x, step.axis, scatter_dimension=step.dim, tiled=True)


def _reduce(x: Any, step: MeshStep, mesh: Mesh) -> Any:
    from jax import lax

    how = {"add": lax.psum, "max": lax.pmax, "min": lax.pmin}
    return how[step.combine](x, step.axis)


def _exchange(x: Any, step: MeshStep, mesh: Mesh) -> Any:
    from jax import lax

    return lax.all_to_all(x, step.axis, split_axis=step.to, concat_axis=step.dim, tiled=True)


def _slice(x: Any, step: MeshStep, mesh: Mesh) -> Any:
    from jax import lax

    devices = dict(zip(mesh.names, mesh.sizes, strict=True))[step.axis]
    size = x.shape[step.dim] // devices
    return lax.dynamic_slice_in_dim(x, lax.axis_index(step.axis) * size, size, step.dim)


_STEPS: dict[str, Callable[[Any, MeshStep, Mesh], Any]] = {
    "all-gather": _gather,
    "reduce-scatter": _scatter,
    "all-reduce": _reduce,
    "all-to-all": _exchange,
    "slice": _slice,
}
