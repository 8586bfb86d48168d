"""Programs of many layers for benchmarks; weights are arguments, known by their shapes only."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import eqsat

PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"


def encoders(layers: int) -> eqsat.Source:
    """The encoder layer of experiments/programs so many times, each with weights of its own."""
    import jax

    module = _module("encoder")
    shapes = {k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in module.params().items()}

    def encoder(x: Any, params: Any) -> Any:
        for p in params:
            x = module.layer(x, p)
        return x

    args = (*module.encoder_example(), [shapes] * layers)
    return eqsat.optimize(encoder, *args, weights=("params",), stop_after="program").source


def program(name: str) -> eqsat.Source:
    """`encoder-N` (N layers), or what `eqsat optimize` takes."""
    kind, _, count = name.partition("-")
    return encoders(int(count)) if kind == "encoder" and count.isdigit() else eqsat.read(name)


def _module(name: str) -> ModuleType:
    path = PROGRAMS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"_benchmark_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
