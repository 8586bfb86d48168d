"""The hunt over functions people write: what it draws, how it judges, forty, old bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz import asjax, asonnx, tried
from fuzz.runs import functions
from fuzz.tried import MACHINES, WRONG, tried_in_jax, tried_in_onnx
from fuzz.written import Argument, Line, Written
from runnable import needs, why_not
from seeds import one_in, seeds, some
from writtencases import CASES

import eqsat

JAX, ONNX = functions.LANGUAGES["jax"], functions.LANGUAGES["onnx"]
EXAMPLE = Written(
    (Argument("x0", "float32", (33, 8)), Argument("x1", "float32", (8, 40), is_weight=True)),
    (Line(("v0",), "x0 @ x1"), Line(("v1", "v2"), "jnp.split(v0, [24], 1)"),
     Line(("v3",), "jnp.tanh(v1) * 2"), Line(("v4",), "jnp.sin(x0)")),
    ("v3", "v2", "v4"),
)  # fmt: skip


def skip_without(machine: str) -> None:
    """Skip where the kernels of a machine cannot run."""
    target, settings = MACHINES[machine]
    if not settings:
        needs(target)


# ---- what it finds -------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(2, 100))
def test_a_function_is_what_jax_computes(seed: int) -> None:
    machine = list(MACHINES)[seed % len(MACHINES)]
    skip_without(machine)
    written = functions.function(seed, machine)
    row = tried_in_jax(asjax.function(written), written.arrays, machine, written.weights)
    assert row["outcome"] not in functions.FAILURES, f"{row}\n{asjax.source(written)}"


@pytest.mark.parametrize("seed", seeds(3, 24))
def test_a_graph_is_what_onnxruntime_computes(seed: int) -> None:
    machine = functions.CPUS[seed % len(functions.CPUS)]
    skip_without(machine)
    written = functions.function(seed, machine, ONNX)
    row = tried_in_onnx(asonnx.model(written).SerializeToString(), machine)
    assert row["outcome"] not in functions.FAILURES, f"{row}\n{asonnx.text(written)}"


WIDE, *NARROW = sorted(("avx512-vnni", "avx2"), key=lambda m: bool(why_not(MACHINES[m][0])))


# one in sixteen by the widest vectors that run here; the others, and all by narrower ones, are slow
@pytest.mark.parametrize(
    ("name", "machine"),
    [
        *one_in(16, ((n, WIDE) for n in CASES)),
        *some((), ((n, m) for m in NARROW for n in CASES)),
    ],
)
def test_what_was_wrong_is_right(name: str, machine: str) -> None:
    skip_without(machine)
    row = tried_in_jax(*case(name), machine, goals=["time"])
    assert row["outcome"] == "ok", row


@pytest.mark.parametrize("name", ["roll of two rows", "diagonal", "diagonals of a batch"])
def test_what_was_wrong_as_pallas_kernels_is_right(name: str) -> None:
    row = tried_in_jax(*case(name), "pallas")
    assert row["outcome"] == "ok", row


def case(name: str) -> tuple[Any, list[Any]]:
    function, shapes = CASES[name]
    rng = np.random.default_rng(0)
    return function, [rng.standard_normal(s).astype(np.float32) for s in shapes]


# ---- how it judges -------------------------------------------------------------------------------
def planted(monkeypatch: pytest.MonkeyPatch, change: Any) -> tried.Row:
    """The row of a function where what eqsat compiles is changed."""
    compiled = eqsat.Run.compile

    def compile(run: Any, **options: Any) -> Any:
        call = compiled(run, **options)
        return lambda *args: change(list(call(*args)))

    monkeypatch.setattr(eqsat.Run, "compile", compile)
    return tried_in_jax(asjax.function(EXAMPLE), EXAMPLE.arrays, "xla", EXAMPLE.weights)


def test_one_element_is_enough_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    row = planted(monkeypatch, lambda found: [found[0].at[32, 3].add(0.01), *found[1:]])
    assert row["outcome"] == WRONG and "[32, 3]" in row["reason"]
