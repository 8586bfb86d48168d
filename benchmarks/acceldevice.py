"""Answers on a GPU that is there, beside `jax.jit`, call by call.

    python benchmarks/run.py device [--target sm_90] [--models NAME …] [--any-device]

Each model is searched on the target, verified on the device, and called in turn with the plain
function, at least 30 rounds, in an order that is drawn anew. `ok`: every model is verified, none
takes more than 3 % longer than `jax.jit` (lower bound of the 95 % interval), three are surely
quicker, and the model of the target puts answers and inputs in the order of the clock (Kendall's
tau of all of them at least 0.8). Skipped where JAX has no GPU. `--any-device` tries the script.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gates import middle, ratio, timed_in_turn

Row = dict[str, Any]
NAMES = (
    "mlp_784", "minilm", "bert", "gpt2", "conv_qdq", "unet", "resnet50", "llama_64", "whisper",
    "train",
)  # fmt: skip
ROUNDS = 30
SLOWER, WINS, LEAST_TAU = 1.03, 3, 0.8


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--models", nargs="*", default=list(NAMES))
    parser.add_argument("--any-device", action="store_true", help="also where there is no GPU")


def measured(o: argparse.Namespace) -> Row:
    """All models on the first GPU; says so where there is none."""
    import jax

    if o.any_device:
        return on_device(jax.devices()[0], o.target, o.models)
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError:
        return {"skipped": "JAX has no GPU here: answers were compiled for one, none was run"}
    return on_device(device, o.target, o.models)


def on_device(device: Any, target: str, names: Sequence[str]) -> Row:
    """Every model on one device, and what holds of all of them."""
    import jax
    from scipy.stats import kendalltau

    with jax.default_device(device):
        rows = {name: model_row(name, target) for name in names}
    points = [p for row in rows.values() for p in row["points"]]
    found: Any = kendalltau([p[0] for p in points], [p[1] for p in points])
    tau, wins = float(found.statistic), sum(r["ratio"][1] > 1 for r in rows.values())
    kept = all(r["verified"] and r["ratio"][2] * SLOWER >= 1 for r in rows.values())
    ok = kept and wins >= WINS and tau >= LEAST_TAU
    return {"ok": ok, "device": str(device), "wins": wins, "tau": round(tau, 3), "models": rows}


def model_row(name: str, target: str) -> Row:
    """`ratio`: time of `jax.jit` over that of the answer; `points`: predicted and measured us."""
    import jax
    from peermodels import MODELS

    import eqsat

    model = MODELS[name]
    inputs = [jax.device_put(x) for x in jax.tree_util.tree_leaves(model.inputs)]
    tree = jax.tree_util.tree_structure(model.inputs)
    args = jax.tree_util.tree_unflatten(tree, inputs)
    run = eqsat.optimize(model.closed, *model.inputs, target=target, rules=model.rules)
    verification = run.verify()
    assert run.schedule is not None and run.baseline_schedule is not None
    calls = {"jax": jax.jit(model.closed), "eqsat": run.compile(check="never")}
    sides = {k: lambda call=call: call(*args) for k, call in calls.items()}
    times = {k: found["wall"] for k, found in timed_in_turn(sides, ROUNDS).items()}
    us = {k: middle(found) for k, found in times.items()}
    predicted = run.schedule.time_ps / 1e6, run.baseline_schedule.time_ps / 1e6
    return {
        "verified": verification.ok, "max_error": verification.max_error, "us": us,
        "ratio": ratio(times["jax"], times["eqsat"]),
        "points": [(predicted[0], us["eqsat"]), (predicted[1], us["jax"])],
        "is_input": run.is_input,
    }  # fmt: skip
