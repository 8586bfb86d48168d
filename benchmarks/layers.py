"""Programs that gates search: the library by name, and models of any number of layers.

Weights of layers are arguments, known by their shapes only.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import eqsat
from eqsat.api.reading import source_of

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "experiments" / "programs"
TARGETS = tuple(sorted(p.stem for p in (ROOT / "targets").glob("*.yaml")))  # those shipped
LIBRARY = (
    "mlp.py:mlp_784", "mlp.py:mlp_1024", "encoder", "minilm", "bert", "gpt2.py:gpt2",
    "gpt2.py:gpt2_decode", "llama", "llama.py:llama_64", "llama.py:llama_4",
    "llama.py:llama2_7b", "stablelm", "resnet50",
    "unet", "swin", "deep", "deep.py:mixed", "conv_qdq_residual", "bottlenecks", "folded_batch",
    "padded_chain", "permuted_consumer", "quantized_matmul", "residual", "transposed_pack",
    "two_packs", "three_readers", "train.py:step", "stablecode.py:stable_code",
    "stablecode.py:stable_code_block", "sdxl", "sdxl.py:transformer", "sdxl.py:residual",
)  # fmt: skip


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
    return source_of(encoder, args, {}, ("params",))


def llamas(layers: int) -> eqsat.Source:
    """The model of `llama.py:llama2_7b` with so many of its layers."""
    import jax

    module = _module("llama")
    config = replace(module.SEVEN, layers=layers)
    args = jax.ShapeDtypeStruct((config.tokens,), "int32"), module.model_shapes(config)

    def llama(ids: Any, params: Any) -> Any:
        return module.model(ids, params, config)

    return source_of(llama, args, {}, ("params",))


def program(name: str) -> eqsat.Source:
    """`encoder-N` or `llama-N` (N layers), or what `eqsat optimize` takes."""
    kind, _, count = name.partition("-")
    made = {"encoder": encoders, "llama": llamas}.get(kind)
    return made(int(count)) if made is not None and count.isdigit() else eqsat.read(name)


def _module(name: str) -> ModuleType:
    path = PROGRAMS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"_benchmark_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
