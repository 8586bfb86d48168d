"""A schedule on a mesh of devices: every device runs its blocks, collectives stand where the plan
has them (`jax.shard_map`).

What comes in are a schedule and its plan; what goes out is an executable whose weights are spread
over the mesh as the plan holds them, ahead of the first call. Arguments are taken as they come and
moved to where the plan wants them; results are global arrays, spread as the plan says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from eqsat.execute.executable import JaxExecutable
from eqsat.execute.lowering import OpaqueFunction, lower
from eqsat.execute.streamed import streamed
from eqsat.model.diag import fail
from eqsat.model.generic import Result
from eqsat.model.mesh import Mesh, Spread
from eqsat.model.meshplan import MeshPlan, MeshStep, Reshard, Sharded
from eqsat.model.program import Node
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.mesh.local import local_attr
from eqsat.ops.mesh.runorder import run_order


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
        self.known = {(r.node, r.reader): r for r in plan.reshards}

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
        """As the base, each weight spread over the mesh."""
        import jax

        found = super().pack(weights)
        return {i: jax.device_put(x, self.held(i)) for i, x in found.items() if self._is_read(i)}

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
        """What each device computes from its blocks of arguments and weights."""
        values: dict[int, list[Any]] = {i: [x] for i, x in given.items()}
        for i in self._order:
            values[i] = self._node(i, values)
            after = self.known.get((i, -1))
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
        return lower(n.op, attr, arrays, self.opaque)

    def _read(self, value: int, reader: int, values: Mapping[int, list[Any]]) -> list[Any]:
        how = self.known.get((value, reader))
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
    import numpy as np

    found = list(jax.devices() if devices is None else devices)
    if len(found) < mesh.devices:
        raise fail(
            "E513",
            f"the mesh {mesh.to_text()} has {mesh.devices} devices, JAX finds {len(found)}",
            help="run where there are as many, or let the CPU be several: set"
            f" `XLA_FLAGS=--xla_force_host_platform_device_count={mesh.devices}` before JAX starts",
        )
    grid = np.array(found[: mesh.devices]).reshape(mesh.sizes)
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
