"""Grids of blocks and of programs: loops cut by dims, legal blocks, what fits in scratch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executed import whole
from planned import changed

from eqsat.api import target as read_target
from eqsat.frontends.jaxpr import trace
from eqsat.model.nest import Nest, NoNest
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.gridded.blocks import BlockLimits, BlockPlan, plan_blocks
from eqsat.plan.gridded.flat import (
    BLOCKS,
    FLAT,
    LEAST,
    block_limits,
    grid_faults,
    kernel_form,
    plan_flat,
)
from eqsat.plan.gridded.shapes import split_loops, view
from eqsat.plan.price import misaligned

LIMITS = block_limits(read_target("reference"))


def nest_and_shapes(function: Any, *args: Any) -> tuple[Nest, dict[int, tuple[int, ...]]]:
    """The nest of a function as one dispatch, and the shapes of its buffers."""
    schedule = whole(trace(function, args).program)
    nest = nest_of_dispatch(schedule, schedule.dispatches[0])
    nodes = schedule.program.nodes
    return nest, {i: nodes[i].types[0].shape for i in (*nest.reads, *nest.writes)}


def blocks(function: Any, *args: Any, scratch: int = LIMITS.scratch_bytes) -> BlockPlan:
    return plan_blocks(*nest_and_shapes(function, *args), BlockLimits(LIMITS.padding, scratch))


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def test_a_loop_is_cut_where_a_dim_ends() -> None:
    nest, shapes = nest_and_shapes(lambda x: jnp.max(x, -1), f32(12, 16, 8))
    assert nest.sizes == (192, 8)
    cut = split_loops(nest, shapes)
    assert cut.sizes == (12, 16, 8)
    found = view(cut.accesses[0], (12, 16, 8), cut)
    assert found is not None
    assert [i.dim for i in found.indices] == [0, 1, 2]


def test_a_buffer_is_seen_in_another_shape_where_its_own_does_not_fit() -> None:
    def heads(x: jax.Array, b: jax.Array) -> jax.Array:
        return (x + b).reshape(8, 4, 6).transpose(1, 0, 2)

    nest, shapes = nest_and_shapes(heads, f32(8, 24), f32(24))
    plan = plan_blocks(nest, shapes, LIMITS)
    assert {b.shape for b in plan.accesses} == {(8, 24), (4, 6), (4, 8, 6)}


def test_long_sums_go_block_by_block_innermost() -> None:
    plan = blocks(lambda x, w: x @ w, f32(256, 4096), f32(4096, 1000))
    assert plan.steps == plan.grid[-1:] == (2,)
    assert plan.nest.sizes[2] % plan.extents[2] == 0
    assert plan.is_ragged(1)  # 1000 is no multiple of 512


@pytest.mark.parametrize("scratch", [2**22, 2**20, 2**18])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, jnp.bfloat16])
def test_blocks_fit_in_scratch_and_are_aligned(scratch: int, dtype: Any) -> None:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.relu(jnp.matmul(x, w) + b)

    args = np.zeros((640, 900), dtype), np.zeros((900, 768), dtype), np.zeros(768, dtype)
    plan = blocks(layer, *args, scratch=scratch)
    assert 0 < plan.scratch_bytes <= scratch
    for b in plan.accesses:
        tile = LIMITS.tile(b.access.dtype)
        assert misaligned(b.block, b.shape, tile) == ""


def test_what_does_not_fit_is_refused_with_numbers() -> None:
    with pytest.raises(NoNest, match=r"its blocks take \d+ bytes of scratch, of 4096"):
        blocks(lambda x: jax.nn.softmax(x, -1), f32(8, 4096), scratch=4096)


def test_rows_that_are_read_again_are_whole() -> None:
    plan = blocks(lambda x: jax.nn.softmax(x, -1), f32(4096, 384), scratch=2**20)
    assert plan.extents[1] == 384
    assert plan.grid == (0,)
    assert not plan.steps


def test_programs_have_powers_of_two_and_sides_of_products() -> None:
    nest, _ = nest_and_shapes(lambda x, w: x @ w, f32(100, 300), f32(300, 7))
    plan = plan_flat(nest, 232448)
    assert all(n & (n - 1) == 0 for n in plan.extents)
    assert min(plan.extents) >= LEAST
    assert set(plan.steps) == {2}
    assert plan.programs == 2  # 64 rows each
    with pytest.raises(NoNest, match="does not fit in registers"):
        plan_flat(replace(nest, sizes=(100, 7, 300)), 64)


def test_a_machine_with_pipelines_reads_by_address() -> None:
    assert kernel_form(read_target("sm_90")) == FLAT
    assert kernel_form(read_target("avx512")) == BLOCKS


def test_a_grid_changed_by_one_is_refused() -> None:
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ w)

    nest, shapes = nest_and_shapes(layer, f32(1200, 2048), f32(2048, 1000))
    for plan in (plan_blocks(nest, shapes, LIMITS), plan_flat(nest, 2**16)):
        assert list(grid_faults(plan)) == []
        assert plan.grid
        for extents in changed(plan.extents):
            if len(extents) == len(plan.extents) and sorted(extents) != sorted(plan.extents):
                assert list(grid_faults(replace(plan, extents=extents))), extents
        for grid in (plan.grid[1:], (*plan.grid, plan.grid[0])):
            assert list(grid_faults(replace(plan, grid=grid)))
