"""Products on a mesh of three axes: 2-D where memory is little, 2.5-D where there is room.

`products_row()` searches with one copy of each operand and of the result on the mesh
(`policy/one-copy`) and dear links, on 2 x 2 x 2 and on 4 x 4 x 2 devices. Bytes that a device sends
are compared with the closed forms of both algorithms: on q x q x c devices and n² bytes a matrix

    2.5-D (Solomonik and Demmel, 2011)  2 (q-1)/q n²/(q c) + (c-1)/c n²/q²
    2-D on q by q c (SUMMA)             (q c - 1)/(q c) n²/q + (q-1)/q n²/(q c)

The leading terms are 2 n²/(q c), and n² (c+1)/(q c), where a square grid of as many devices had
2 n²/(q sqrt(c)): between square grids the factor is sqrt(c). On eight CPU devices both run, with
the collectives of the plan. `replication_row()` has four products with weights.
"""

from __future__ import annotations

import collections
import re
from typing import Any

Row = dict[str, Any]
KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
LINKS = "{bandwidth: 2 GB/s, latency: 1 us}"
FLAT = "memory=[{name: hbm, size: 16 GB, bandwidth: 819 GB/s}]"  # no other one for temporaries
WORD = 4  # bytes of f32
# (q, c), extent of the matrices, and memory of a device in matrices: with room, and without
CASES = (((2, 2), 4096, 0.75, 0.5), ((4, 2), 8192, 0.25, 0.15))
ERROR = 1e-5


def product(a: Any, b: Any) -> Any:
    return a @ b


def products_row() -> Row:
    """Both sizes, each with room and without; JAX must have eight devices."""
    rows = [case_row(*case) for case in CASES]
    ran = [ran_row(0.9), ran_row(0.5)]
    return {"ok": all(r["ok"] for r in (*rows, *ran)), "planned": rows, "ran": ran}


def planned(n: int, q: int, c: int, matrices: float) -> Any:
    """A run within this many matrices of memory on each of q x q x c devices."""
    import jax

    import eqsat

    shape = jax.ShapeDtypeStruct((n, n), "float32")
    return eqsat.optimize(
        product, shape, shape, target="tpu-v5e-4x2", rules="policy/one-copy",
        mesh=f"x={q},y={q},z={c}", settings=[*(f"mesh_links.{a}={LINKS}" for a in "xyz"), FLAT],
        shards={"result0": "free"}, budget={"memory": round(matrices * n * n * WORD)},
    )  # fmt: skip


def case_row(grid: tuple[int, int], n: int, room: float, tight: float) -> Row:
    q, c = grid
    size = n * n * WORD
    forms = {
        "room": 2 * (q - 1) / q * size / (q * c) + (c - 1) / c * size / q**2,
        "tight": (q * c - 1) / (q * c) * size / q + (q - 1) / q * size / (q * c),
    }
    row: Row = {"devices": q * q * c, "copies": c, "extent": n}
    for name, matrices in (("room", room), ("tight", tight)):
        plan = planned(n, q, c, matrices).mesh_plan
        (op,) = (v for v in plan.values if v.cuts)
        row[name] = {
            "cuts": op.cuts, "panels": op.panels, "inner_loop_cut": "add" in op.made,
            "collectives": plan.collectives, "sent_bytes": plan.sent_bytes,
            "closed_form": round(forms[name]), "peak_bytes": plan.peak_bytes,
            "time_us": plan.time_ps / 1e6, "stop": plan.stop,
        }  # fmt: skip
    two_and_a_half, two = row["room"], row["tight"]
    row["ratio"] = two_and_a_half["sent_bytes"] / two["sent_bytes"]
    row["ok"] = (
        all(r["sent_bytes"] == r["closed_form"] for r in (two_and_a_half, two))
        and two_and_a_half["inner_loop_cut"]
        and not two["inner_loop_cut"]
        and two_and_a_half["peak_bytes"] > two["peak_bytes"]
    )
    return row


def ran_row(matrices: float, n: int = 1024) -> Row:
    """A small product on eight devices of the CPU: its result, and the collectives in the HLO."""
    import numpy as np

    run = planned(n, 2, 2, matrices)
    plan, rng = run.mesh_plan, np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype("float32") for _ in range(2))
    made = run.executable
    (found,) = made(a, b)
    exact = a.astype(float) @ b.astype(float)
    error = float(np.abs(np.asarray(found) - exact).max() / np.abs(exact).max())
    hlo = made.jitted.lower(made.packed, a, b).compile().as_text()
    compiled = dict(collections.Counter(re.findall(rf" ({KINDS})(?:-start)?\(", hlo)))
    devices = len(found.sharding.device_set)
    row: Row = {
        "matrices": matrices, "plan": plan.collectives, "written": written(plan), "hlo": compiled,
        "max_error": error, "devices": devices,
    }  # fmt: skip
    row["ok"] = error <= ERROR and devices == 8 and compiled == row["written"]
    return row


def written(plan: Any) -> dict[str, int]:
    """Collectives as the program has them: those of a loop over panels once."""
    found = collections.Counter(s.kind for r in plan.reshards for s in r.sent)
    found.update(s.kind for v in plan.values for each in v.streams for s in each.steps)
    return dict(found)


def chain(x: Any, w1: Any, w2: Any, w3: Any, w4: Any) -> Any:
    import jax.numpy as jnp

    for w in (w1, w2, w3, w4):
        x = jnp.tanh(x @ w)
    return x


def replication_row() -> Row:
    """Four products on 2 x 2 x 2 devices, links dear.

    With room weights are on several devices, and where an inner loop is cut each holds a part of
    the sum; without room they are gathered when they are read.
    """
    import jax

    import eqsat

    shapes = {"x": (256, 1024)} | {f"w{i}": (1024, 1024) for i in range(1, 5)}
    given = [jax.ShapeDtypeStruct(s, "float32") for s in shapes.values()]
    found: Row = {}
    for name, budget in (("room", "9 MiB"), ("tight", "4500 KiB")):
        run = eqsat.optimize(
            chain, *given, target="tpu-v5e-4x2", mesh="x=2,y=2,z=2",
            settings=[f"mesh_links.{n}={LINKS}" for n in "xyz"],
            weights=["w1", "w2", "w3", "w4"], budget={"memory": budget}, time_limit=120.0,
        )  # fmt: skip
        plan = run.mesh_plan
        assert plan is not None
        spreads = run.summary()["mesh"]["spreads"]
        found[name] = {
            "collectives": plan.collectives,
            "spreads": {k: v for k, v in spreads.items() if k in shapes},
            "parts": sum("add" in v.made for v in plan.values),
            "time_us": plan.time_ps / 1e6, "sent_us": plan.sent_ps / 1e6,
            "peak_bytes": plan.peak_bytes, "stop": plan.stop,
        }  # fmt: skip
    room, tight = found["room"], found["tight"]
    less = room["sent_us"] < tight["sent_us"] and room["peak_bytes"] > tight["peak_bytes"]
    return {
        "ok": less and room["parts"] > 0 and tight["collectives"].get("all-gather", 0) > 0
    } | found
