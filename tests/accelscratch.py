"""Scratch that a target's formula predicts against what compilers of accelerators state (L.b).

    python benchmarks/run.py scratch

40 Pallas kernels, 20 for a TPU v5e (Mosaic, by libtpu) and 20 for an H100 (Triton, by XLA's CUDA
plugin); no device is needed. Mosaic states what a kernel takes of vector memory, or refuses it with
numbers. Triton's shared memory is read from a refusal: the compiler is told of a part that has 1
byte of it. Whether it admits the kernel is then asked with the part's own 232,448 bytes. Kernels of
matmuls have extents that the pipelines of `tpu-v5e` and `sm_90` list. Not ok if
fewer than 36 of 40 are equal or one is admitted by one side only.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.lang.targets import load_target
from eqsat.model.pipelines import Padding
from eqsat.model.tensor import DTYPES
from eqsat.plan.price import (
    Block,
    StagedTile,
    grid_bytes,
    loop_bytes,
    misaligned,
    passed_bytes,
    tile_bytes,
)

LEAST_EQUAL = 36  # of 40
ONE_BYTE = 1  # of shared memory: every kernel that needs some is refused, with what it needs
Row = dict[str, Any]
Types = Sequence[tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Kernel:
    """A kernel, what it takes by the formula, or why it is refused, and how it is called."""

    name: str
    nbytes: int
    limit: int
    call: Callable[[Any], Callable[..., Any]]  # given the numpy module of JAX
    arguments: Types
    refusal: str = ""

    @property
    def is_admitted(self) -> bool:
        return not self.refusal and self.nbytes <= self.limit


# ---- TPU: a grid of blocks -----------------------------------------------------------------------
# whole m, n, k; block m, n, k; element type
PRODUCTS = (
    (2048, 2048, 2048, 128, 128, 128, "f32"),
    (2048, 2048, 2048, 256, 256, 128, "f32"),
    (1024, 1024, 1024, 256, 128, 256, "bf16"),
    (2048, 1024, 1024, 128, 256, 256, "bf16"),
    (1024, 512, 2048, 64, 256, 256, "f32"),
    (96, 512, 1024, 32, 256, 256, "bf16"),
    (256, 128, 1024, 256, 128, 256, "f32"),  # the result's block does not move
    (1024, 1024, 1024, 256, 256, 256, "i8"),
    (24, 384, 640, 8, 128, 128, "i8"),
    (2048, 2048, 2048, 1024, 1024, 256, "f32"),
    (4096, 4096, 2048, 2048, 1024, 512, "f32"),  # too large
    (4096, 4096, 4096, 1024, 2048, 1024, "bf16"),  # too large
    (2000, 1024, 1024, 100, 128, 128, "f32"),  # 100 rows are not divisible by 8
    (1024, 960, 1024, 128, 192, 128, "bf16"),  # 192 columns are not divisible by 128
)
# whole shape, block, element type, how many operands
PASSES = (
    ((1024, 1024), (256, 512), "f32", 1),
    ((512, 4096), (8, 1024), "bf16", 2),
    ((16, 4, 1024), (1, 4, 256), "f32", 2),
    ((4096, 4096), (1024, 1024), "f32", 2),  # too large
)
ROWS = ((1024, 1024, 64, "f32"), (512, 2048, 32, "f32"))  # softmax: rows, columns, rows of a block


def grid_kernels(padding: Padding, limit: int) -> list[Kernel]:
    made = [_product(*case, padding=padding, limit=limit) for case in PRODUCTS]
    made += [_pass(*case, padding=padding, limit=limit) for case in PASSES]
    return made + [_rows(*case, padding=padding, limit=limit) for case in ROWS]


def _product(
    m: int, n: int, k: int, bm: int, bn: int, bk: int, dtype: str, *, padding: Padding, limit: int
) -> Kernel:
    made = "i32" if dtype == "i8" else dtype
    kept = "i32" if dtype == "i8" else "f32"
    blocks = [
        (Block((bm, bk), dtype, (bm, bk) != (m, k)), (m, k)),
        (Block((bk, bn), dtype, (bk, bn) != (k, n)), (k, n)),
        (Block((bm, bn), made, (bm, bn) != (m, n)), (m, n)),
    ]
    nbytes = grid_bytes([b for b, _ in blocks], [Block((bm, bn), kept)], padding)

    def call(jnp: Any) -> Callable[..., Any]:
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu as pltpu

        def body(x: Any, w: Any, y: Any, total: Any) -> None:
            @pl.when(pl.program_id(2) == 0)
            def _() -> None:
                total[...] = jnp.zeros_like(total)

            total[...] += jnp.dot(x[...], w[...], preferred_element_type=total.dtype)

            @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
            def _() -> None:
                y[...] = total[...].astype(y.dtype)

        return pl.pallas_call(
            body,
            grid=(-(-m // bm), -(-n // bn), -(-k // bk)),
            in_specs=[
                pl.BlockSpec((bm, bk), lambda i, j, s: (i, s)),
                pl.BlockSpec((bk, bn), lambda i, j, s: (s, j)),
            ],
            out_specs=pl.BlockSpec((bm, bn), lambda i, j, s: (i, j)),
            out_shape=_struct((m, n), made),
            scratch_shapes=[pltpu.VMEM((bm, bn), jax_type(kept))],
        )

    name = f"product {dtype} {m}x{n}x{k} by {bm}x{bn}x{bk}"
    arguments = [((m, k), dtype), ((k, n), dtype)]
    return Kernel(name, nbytes, limit, call, arguments, _refusal(blocks, padding))


def _refusal(blocks: Sequence[tuple[Block, tuple[int, ...]]], padding: Padding) -> str:
    found = (misaligned(b.shape, whole, (padding.rows, padding.lanes)) for b, whole in blocks)
    return next(filter(None, found), "")


def _pass(
    shape: tuple[int, ...], block: tuple[int, ...], dtype: str, operands: int, *,
    padding: Padding, limit: int,
) -> Kernel:  # fmt: skip
    """Elementwise over blocks of one shape."""
    one = Block(block, dtype, block != shape)

    def call(jnp: Any) -> Callable[..., Any]:
        from jax.experimental import pallas as pl

        def body(*refs: Any) -> None:
            refs[-1][...] = jnp.maximum(sum(r[...] for r in refs[:-1]), 0)

        spec = pl.BlockSpec(block, lambda *at: at)
        return pl.pallas_call(
            body,
            grid=tuple(s // b for s, b in zip(shape, block, strict=True)),
            in_specs=[spec] * operands,
            out_specs=spec,
            out_shape=_struct(shape, dtype),
        )

    name = f"pass {dtype} {shape} by {block}, {operands} operand(s)"
    nbytes = grid_bytes([one] * (operands + 1), (), padding)
    refusal = _refusal([(one, shape)], padding)
    return Kernel(name, nbytes, limit, call, [(shape, dtype)] * operands, refusal)


def _rows(
    rows: int, columns: int, block: int, dtype: str, *, padding: Padding, limit: int
) -> Kernel:
    """A softmax by blocks of rows."""
    one = Block((block, columns), dtype)

    def call(jnp: Any) -> Callable[..., Any]:
        from jax.experimental import pallas as pl

        spec = pl.BlockSpec((block, columns), lambda i: (i, 0))
        return pl.pallas_call(
            functools.partial(_softmax, jnp),
            grid=(rows // block,),
            in_specs=[spec],
            out_specs=spec,
            out_shape=_struct((rows, columns), dtype),
        )

    name = f"softmax {dtype} {rows}x{columns} by {block}"
    nbytes = grid_bytes([one, one], (), padding)
    return Kernel(name, nbytes, limit, call, [((rows, columns), dtype)])


def _softmax(jnp: Any, x: Any, y: Any) -> None:
    raised = jnp.exp(x[...] - x[...].max(-1, keepdims=True))
    y[...] = raised / raised.sum(-1, keepdims=True)


# ---- NVIDIA: stages of a loop over k -------------------------------------------------------------
# block m, n, k; element type; stages; warps
LOOPS = (
    (64, 64, 32, "bf16", 2, 4), (64, 128, 64, "bf16", 3, 4), (128, 128, 32, "bf16", 4, 4),
    (128, 128, 64, "f16", 3, 8), (128, 256, 32, "bf16", 3, 8), (128, 64, 64, "f16", 4, 4),
    (256, 128, 64, "bf16", 3, 8), (128, 256, 64, "bf16", 4, 8), (256, 256, 64, "bf16", 4, 8),
    (256, 256, 32, "bf16", 3, 8), (64, 256, 64, "f16", 2, 4), (128, 128, 128, "bf16", 4, 8),
    (16, 32, 32, "bf16", 3, 4), (32, 64, 32, "f16", 4, 4), (16, 16, 64, "f16", 2, 4),
    (128, 128, 32, "f32", 3, 4), (64, 128, 32, "f32", 2, 4), (128, 64, 64, "f32", 4, 4),
    (128, 256, 64, "f32", 4, 8), (32, 32, 32, "f32", 3, 4),
)  # fmt: skip
WARPGROUP_ROWS = 64  # from which on Triton computes by wgmma


def loop_kernels(limit: int) -> list[Kernel]:
    return [_loop(*case, limit=limit) for case in LOOPS]


def _loop(bm: int, bn: int, bk: int, dtype: str, stages: int, warps: int, *, limit: int) -> Kernel:
    m, n, k = 512, 512, 1024
    pipeline = "tf32" if dtype == "f32" else "wgmma"
    known = {p.name: p for p in load_target("sm_90").pipelines}
    by = known[pipeline if bm >= WARPGROUP_ROWS else "matrix"]
    tiles = [
        StagedTile(tile_bytes((bm, bk), dtype), "lhs" in by.from_scratch),
        StagedTile(tile_bytes((bk, bn), dtype), "rhs" in by.from_scratch),
    ]
    nbytes = loop_bytes(tiles, stages, passed_bytes(bm, bn, dtype, warps))

    def call(jnp: Any) -> Callable[..., Any]:
        from jax import lax
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import triton

        def body(x: Any, w: Any, y: Any) -> None:
            def step(i: Any, total: Any) -> Any:
                left, right = x[:, pl.ds(i * bk, bk)], w[pl.ds(i * bk, bk), :]
                return total + jnp.dot(left, right, preferred_element_type=jnp.float32)

            total = lax.fori_loop(0, k // bk, step, jnp.zeros((bm, bn), jnp.float32))
            y[...] = total.astype(y.dtype)

        return pl.pallas_call(
            body,
            grid=(m // bm, n // bn),
            in_specs=[
                pl.BlockSpec((bm, k), lambda i, j: (i, 0)),
                pl.BlockSpec((k, bn), lambda i, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
            out_shape=_struct((m, n), dtype),
            compiler_params=triton.CompilerParams(num_stages=stages, num_warps=warps),
        )

    name = f"loop {dtype} {bm}x{bn}x{bk}, {stages} stages, {warps} warps"
    return Kernel(name, nbytes, limit, call, [((m, k), dtype), ((k, n), dtype)])


# ---- compilers -----------------------------------------------------------------------------------
def jax_type(dtype: str) -> Any:
    import jax.numpy as jnp

    kinds = {"f": "float", "i": "int"}
    bits, kind = DTYPES[dtype]
    return jnp.dtype("bfloat16" if dtype == "bf16" else f"{kinds[kind]}{bits}")


def _struct(shape: tuple[int, ...], dtype: str, sharding: Any = None) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, jax_type(dtype), sharding=sharding)


def _compiled(kernel: Kernel, device: Any, platform: str) -> str:
    """The text of the executable, or the compiler's refusal after a word."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import SingleDeviceSharding

    place = SingleDeviceSharding(device)
    try:
        traced = jax.jit(kernel.call(jnp)).trace(
            *(_struct(s, d, place) for s, d in kernel.arguments)
        )
        return traced.lower(lowering_platforms=(platform,)).compile().as_text() or ""
    except Exception as error:  # what a compiler raises is its answer
        return f"refused: {error}"


def stated_by_mosaic(kernel: Kernel, device: Any) -> Row:
    """Bytes of vector memory, or what it says against it."""
    import jax
    from jax.sharding import AbstractDevice, AbstractMesh

    kind = AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)):
        text = _compiled(kernel, device, "tpu")
    stated = re.search(r'used_scoped_memory_configs":\[\{[^}]*"size":"(\d+)"', text)
    exceeded = re.search(r"allocation with size ([\d.]+)M and limit", text)
    if stated:
        return {"admits": True, "nbytes": int(stated[1])}
    nbytes = round(float(exceeded[1]) * 2**20) if exceeded else None
    return {"admits": False, "nbytes": nbytes, "says": text[:160]}


def stated_by_triton(kernel: Kernel, devices: dict[int, Any]) -> Row:
    """Bytes of shared memory, and whether the part's own is enough."""
    text = _compiled(kernel, devices[ONE_BYTE], "cuda")
    asked = re.search(r"requested (\d+)", text)
    answer = _compiled(kernel, devices[kernel.limit], "cuda")
    admits = not answer.startswith("refused")
    nbytes = int(asked[1]) if asked else 0
    return {"admits": admits, "nbytes": nbytes} | ({} if admits else {"says": answer[:160]})


def h100(shared_bytes: int) -> str:
    """The part as XLA is told of it; all but the shared memory is of the H100's white paper."""
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: {min(shared_bytes, 49152)} shared_memory_per_core: 233472
  shared_memory_per_block_optin: {shared_bytes}
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 l2_cache_size: 52428800
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 3352320000000 device_memory_size: 84942979072
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  device_vendor: "NVIDIA Corporation" device_address_bits: 64 name: "H100"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "H100"
"""


def _tpu_device() -> Any:
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]


def _gpu_device(shared_bytes: int) -> Any:
    from jax.experimental import topologies

    found = topologies.get_topology_desc(
        platform="cuda",
        topology_name="h100",
        target_config=h100(shared_bytes),
        topology="1x1x1",
    )
    return found.devices[0]


# ---- the table -----------------------------------------------------------------------------------
def options(_: argparse.ArgumentParser) -> None:
    """Nothing can be asked."""


def measured(_: argparse.Namespace) -> Row:
    """Every kernel with both figures, and how many agree."""
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    import jax

    jax.config.update("jax_platforms", "cpu")
    tpu, gpu = load_target("tpu-v5e"), load_target("sm_90")
    limits = [t.limits.scratch_bytes for t in (tpu, gpu)]
    assert tpu.padding is not None
    assert limits[0] is not None
    assert limits[1] is not None
    device = _tpu_device()
    rows = [_row(k, stated_by_mosaic(k, device)) for k in grid_kernels(tpu.padding, limits[0])]
    parts = {n: _gpu_device(n) for n in (ONE_BYTE, limits[1])}
    rows += [_row(k, stated_by_triton(k, parts)) for k in loop_kernels(limits[1])]
    equal = sum(r["equal"] for r in rows)
    agreed = sum(r["agreed"] for r in rows)
    ok = equal >= LEAST_EQUAL and agreed == len(rows)
    return {"ok": ok, "kernels": len(rows), "equal": equal, "agreed": agreed, "rows": rows}


def _row(kernel: Kernel, stated: Row) -> Row:
    """equal: the bytes are, or both refuse the kernel for its blocks, whatever it would take."""
    refused = bool(kernel.refusal) and not stated["admits"] and stated["nbytes"] is None
    return {
        "kernel": kernel.name,
        "predicted": kernel.refusal or kernel.nbytes,
        "stated": stated["nbytes"] if stated["nbytes"] is not None else stated["says"],
        "equal": refused or (not kernel.refusal and stated["nbytes"] == kernel.nbytes),
        "agreed": kernel.is_admitted == stated["admits"],
    }
