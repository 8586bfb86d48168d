"""Sharding on eight devices: the hand plan's collectives, bytes per chip, the front.

    python benchmarks/run.py meshes

`measured()` returns one object. Per program (MLP, encoder, Llama block): the plan that prices
alone choose where arguments and results are cut as in the hand plan, over `data` with few tokens
(tensor parallel) and over both axes with many (data parallel); its collectives as counted in the
HLO that XLA compiles for eight CPU devices, beside those that XLA makes of hand-written
`PartitionSpec`s; the result beside that of the plain function; and bytes of a chip beside what the
TPU's compiler states for v5e:2x4 (skipped without `libtpu`). `front`: memory against time of the
MLP.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gates import say

Row = dict[str, Any]
TARGET = "tpu-v5e-4x2"
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
WITHIN = 0.05  # of the bytes that the compiler states
MESH = "data=2,model=4"
SLOW_START = ["launch=5 us"]  # of kernels and collectives
TOKENS = 32, 512  # of each of 8 sequences
WIDTHS = 4096, 16384


@dataclass(frozen=True)
class Case:
    """A program, what its hand plan cuts over `model`, and how many all-reduces that takes."""

    name: str
    function: Callable[..., Any]
    shapes: Mapping[str, tuple[int, ...]]
    activations: tuple[str, ...]
    columns: tuple[str, ...]  # weights whose last dim is cut
    rows: tuple[str, ...]  # weights whose first dim is cut
    reduces: int


def mlp(x: Any, w1: Any, w2: Any) -> Any:
    import jax.numpy as jnp

    return jnp.maximum(x @ w1, 0) @ w2


def attention(h: Any, wq: Any, wk: Any, wv: Any, wo: Any, width: int, is_causal: bool) -> Any:
    import jax
    import jax.numpy as jnp

    b, t, d = h.shape
    q, k, v = ((h @ w).reshape(b, t, d // width, width) for w in (wq, wk, wv))
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width**-0.5)
    if is_causal:
        a = jnp.where(jnp.tril(jnp.ones((t, t), bool)), a, -1e9)
    a = jax.nn.softmax(a, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, d) @ wo


def layer_norm(x: Any, g: Any) -> Any:
    import jax
    import jax.numpy as jnp

    y = x - jnp.mean(x, -1, keepdims=True)
    return y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5) * g


def encoder(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, g1: Any, g2: Any, w1: Any, w2: Any) -> Any:
    import jax

    x = layer_norm(x + attention(x, wq, wk, wv, wo, 128, False), g1)
    return layer_norm(x + jax.nn.gelu(x @ w1) @ w2, g2)


def llama(
    x: Any, wq: Any, wk: Any, wv: Any, wo: Any, g1: Any, g2: Any, w1: Any, w3: Any, w2: Any
) -> Any:
    import jax
    import jax.numpy as jnp

    def norm(x: Any, g: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g

    x = x + attention(norm(x, g1), wq, wk, wv, wo, 128, True)
    h = norm(x, g2)
    return x + (jax.nn.silu(h @ w1) * (h @ w3)) @ w2


def cases(batch: int, tokens: int, d: int, f: int) -> list[Case]:
    square = {w: (d, d) for w in ("wq", "wk", "wv", "wo")}
    gains = {"g1": (d,), "g2": (d,)}
    x = {"x": (batch, tokens, d)}
    return [
        Case("mlp", mlp, x | {"w1": (d, f), "w2": (f, d)}, ("x",), ("w1",), ("w2",), 1),
        Case(
            "encoder", encoder, x | square | gains | {"w1": (d, f), "w2": (f, d)},
            ("x",), ("wq", "wk", "wv", "w1"), ("wo", "w2"), 2,
        ),
        Case(
            "llama", llama, x | square | gains | {"w1": (d, f), "w3": (d, f), "w2": (f, d)},
            ("x",), ("wq", "wk", "wv", "w1", "w3"), ("wo", "w2"), 2,
        ),
    ]  # fmt: skip


def options(_: argparse.ArgumentParser) -> None:
    """Nothing can be asked."""


def measured(_: argparse.Namespace) -> Row:
    """All of it; JAX must not have started."""
    flag = "--xla_force_host_platform_device_count=8"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # only its compiler is used
    rows = {name: program_row(name) for name in ("mlp", "encoder", "llama")}
    found: Row = {"programs": rows, "front": front_row()}
    return {"ok": all(r["ok"] for r in (*rows.values(), found["front"]))} | found


def arguments(case: Case, dtype: str) -> list[Any]:
    import jax

    return [jax.ShapeDtypeStruct(s, dtype) for s in case.shapes.values()]


def planned(case: Case, dtype: str, **request: Any) -> Any:
    import eqsat

    weights = [n for n in case.shapes if n not in case.activations]
    return eqsat.optimize(
        case.function, *arguments(case, dtype), target=TARGET, mesh=MESH, weights=weights,
        time_limit=240.0, **request,
    )  # fmt: skip


def program_row(name: str) -> Row:
    """A program with few tokens, whose time is that of reading weights, and with many.

    With few, one reduction per half of a block is the hand plan's. Where a collective takes longer
    to start it is an all-reduce; else it may be the reduce-scatter and the all-gather that an
    all-reduce consists of, with norms on blocks in between, as hand plans of sequence parallelism
    have it (Korthikanti et al., 2022).
    """
    import numpy as np

    few, many = (next(c for c in cases(8, t, *WIDTHS) if c.name == name) for t in TOKENS)
    error, bound = difference(few, np.random.default_rng(0))
    hand, cut = by_hand(few), "[data, -, -]"
    exact = plan_row(few, cut, SLOW_START)
    exact["ok"] &= exact["plan"] == hand == {"all-reduce": few.reduces}
    paired = plan_row(few, cut, [])
    paired["ok"] &= reductions(paired["plan"]) == few.reduces
    data = plan_row(many, "[data+model, -, -]", [])
    data["ok"] &= data["plan"] == {}
    row: Row = {
        "hand_hlo": hand, "tensor_parallel": exact, "as_the_target_is": paired,
        "data_parallel": data, "max_error": error, "error_bound": bound,
    }  # fmt: skip
    row["ok"] = exact["ok"] and paired["ok"] and data["ok"] and error <= bound
    return row


def reductions(plan: Mapping[str, int]) -> int:
    """All-reduces, and reduce-scatters that have an all-gather each; -1 if more is sent."""
    pairs = plan.get("reduce-scatter", 0)
    if plan.get("all-gather", 0) != pairs or plan.get("all-to-all", 0):
        return -1
    return plan.get("all-reduce", 0) + pairs


def plan_row(case: Case, border: str, settings: list[str]) -> Row:
    """The plan without any limit but the memory of a chip, where x and the result are cut so."""
    run = planned(case, "bfloat16", shards={"x": border, "result0": border}, settings=settings)
    plan = run.mesh_plan
    compiled = collectives(aot(run, eight_devices()).as_text())
    tpu = tpu_bytes(run)
    return {
        "ok": plan.collectives == compiled and tpu.get("ok", True) and plan.stop == "proven",
        "plan": plan.collectives,
        "hlo": compiled,
        "spreads": {k: v for k, v in spreads(run).items() if k in case.shapes},
        "time_us": plan.time_ps / 1e6,
        "stop": plan.stop,
        "seconds": round(run.seconds["mesh"], 1),
        "tpu": tpu,
    }


def spreads(run: Any) -> dict[str, str]:
    return run.summary()["mesh"]["spreads"]


def collectives(hlo: str) -> dict[str, int]:
    """How many of each kind an HLO module runs; an asynchronous one counts once."""
    return dict(collections.Counter(re.findall(rf" ({KINDS})(?:-start)?\(", hlo)))


def eight_devices() -> list[Any]:
    import jax

    return jax.devices()[:8]


def aot(run: Any, devices: list[Any]) -> Any:
    """The run's program, compiled for these devices, without any values."""
    import jax

    from eqsat.execute.onmesh import MeshExecutable
    from eqsat.ops.meaning.programs import element_dtype

    made = MeshExecutable(
        run.cut_schedule, run.mesh_plan, run.source.opaque, run.weights, run.target, devices
    )
    program = run.cut_schedule.program

    def shape(i: int) -> Any:
        t = program.nodes[i].type
        return jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype), sharding=made.held(i))

    held = {v.node for v in run.mesh_plan.values if not v.cuts} - set(program.inputs)
    lowered = made.jitted.trace({i: shape(i) for i in held}, *map(shape, program.inputs))
    return lowered.lower(lowering_platforms=(devices[0].platform,)).compile()


def by_hand(case: Case) -> dict[str, int]:
    """What XLA makes of the plan as Megatron-LM's authors write it (Shoeybi et al., 2019)."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from eqsat import target
    from eqsat.execute.onmesh import jax_mesh
    from eqsat.lang.requests import with_mesh

    of = with_mesh(target(TARGET), MESH).mesh
    assert of is not None
    mesh = jax_mesh(of)

    def spec(name: str) -> Any:
        rank = len(case.shapes[name])
        if name in case.activations:
            return PartitionSpec("data", *[None] * (rank - 1))
        if name in case.columns:
            return PartitionSpec(None, "model")
        return PartitionSpec("model", None) if name in case.rows else PartitionSpec()

    given = [
        jax.ShapeDtypeStruct(s, "bfloat16", sharding=NamedSharding(mesh, spec(n)))
        for n, s in case.shapes.items()
    ]
    out = NamedSharding(mesh, PartitionSpec("data", None, None))
    compiled = jax.jit(case.function, out_shardings=out).lower(*given).compile()
    return collectives(compiled.as_text() or "")


def difference(case: Case, rng: Any) -> tuple[float, float]:
    """max|a - b| / max|b| of a small program of the same kind on eight devices, and its bound."""
    import jax
    import numpy as np

    small = next(c for c in cases(8, 16, 256, 512) if c.name == case.name)
    borders = {"x": "[data, -, -]", "result0": "[data, -, -]"}
    cut = {n: "[-, model]" for n in case.columns} | {n: "[model, -]" for n in case.rows}
    run = planned(small, "float32", shards=borders | cut)
    args = [(rng.standard_normal(s) / 16).astype("float32") for s in small.shapes.values()]
    a, b = np.asarray(run.compile(check="never")(*args)), np.asarray(jax.jit(case.function)(*args))
    if len(run.compile(check="never")(*args).sharding.device_set) != 8:
        return float("inf"), 0.0
    return float(np.abs(a - b).max() / np.abs(b).max()), 1e-5


def tpu_bytes(run: Any) -> Row:
    """Bytes of a chip as the TPU's compiler states them, beside the plan's."""
    try:
        from jax.experimental import topologies

        chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
    except Exception as error:
        why = f"{type(error).__name__}: install eqsat[tpu]"
        say(f"SKIPPED bytes of TPU chips: {why}")
        return {"skipped": why}
    m = aot(run, list(chips)).memory_analysis()
    stated = m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes
    ratio = run.mesh_plan.peak_bytes / stated
    return {
        "ok": abs(ratio - 1) <= WITHIN, "ratio": round(ratio, 4),
        "plan_bytes": run.mesh_plan.peak_bytes, "stated_bytes": stated,
        "temp_bytes": m.temp_size_in_bytes, "peak_bytes": m.peak_memory_in_bytes,
    }  # fmt: skip


def front_row() -> Row:
    """Memory against time: no collective at one end, weights cut by columns and rows on it."""
    from eqsat.report.mesh import plan_summary

    (case,) = (c for c in cases(8, 512, 4096, 16384) if c.name == "mlp")
    run = planned(case, "bfloat16")
    plans = run.mesh_front(8, 120.0)
    program = run.cut_schedule.program
    rows = [
        {
            "time_us": p.time_ps / 1e6,
            "peak_bytes": p.peak_bytes,
            "collectives": p.collectives,
            "spreads": {
                name: text for name, text in plan_summary(p, program)["spreads"].items()
                if name in case.shapes
            },
            "proven": p.stop == "proven",
        }
        for p in plans
    ]  # fmt: skip
    data = [r for r in rows if not r["collectives"]]
    megatron = [
        r for r in rows
        if r["collectives"] == {"all-reduce": 1} and "model" in r["spreads"]["w1"]
        and r["spreads"]["x"].startswith("[data")
    ]  # fmt: skip
    return {"ok": bool(data and megatron), "points": rows}
