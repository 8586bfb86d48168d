"""The models of `peers.py`: their functions and values, and the files each peer reads.

A model's folder holds `model.onnx` and `model.mlirbc` (StableHLO), both of the program as it was
read, `inputs.npz`, `wanted.npz` (float64 reference) and `answer-KEY`, a saved run of eqsat; KEY
stands for the code, rules and targets that found it. `first` has a sum of four elements.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FAN_OF_FILTERS = 3  # dims from which on a weight is a filter, [out, in, ...]
NO_MODELS = ("peers", "peerpage", "peersides", "peertorch")  # how models are timed
RESOURCES = 64 * 2**20  # bytes of weights from which on they lie beside the ONNX model
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Model:
    """A JAX function of a module, with the ratio to `jax.jit` that is wanted of it."""

    module: str
    function: str
    wanted: float
    rules: tuple[str, ...] = ("default",)  # the sets that are searched with

    @cached_property
    def call(self) -> Callable[..., Any]:
        return getattr(self._module, self.function)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Names of the arguments that are weights."""
        return getattr(self._module, f"{self.function}_weights", ())

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """Every argument, drawn where its shape alone is known; always the same."""
        import jax

        rng = np.random.default_rng(0)
        examples = getattr(self._module, f"{self.function}_example")()
        return tuple(
            jax.tree_util.tree_map(lambda s, w=w: drawn(s, rng, w), e)
            for e, w in zip(examples, self.is_weight, strict=True)
        )

    def take_values(self) -> tuple[Any, ...]:
        """The values, which are not kept here any longer."""
        found = self.values
        vars(self).pop("values")
        return found

    @property
    def inputs(self) -> list[Any]:
        """The arguments that are no weights."""
        return [v for v, w in zip(self.values, self.is_weight, strict=True) if not w]

    def closed(self, *inputs: Any) -> Any:
        """The function of its inputs alone."""
        left = iter(inputs)
        pairs = zip(self.values, self.is_weight, strict=True)
        return self.call(*(v if w else next(left) for v, w in pairs))

    @property
    def state(self) -> dict[str, int]:
        """Arguments that a call uses up, and which result takes its place in the next call."""
        return getattr(self._module, f"{self.function}_state", {})

    @property
    def ops(self) -> Mapping[str, Any]:
        """ONNX for what an export leaves to the domain `eqsat`, as `peergraph` has it."""
        return getattr(self._module, f"{self.function}_ops", {})

    @property
    def natural(self) -> Callable[..., Any] | None:
        """What writes the ONNX model that a person would export, as `peergraph` has it."""
        return getattr(self._module, f"{self.function}_natural", None)

    def state_of(self, closed: bool) -> list[tuple[int, int]]:
        """The same by number of the argument, of those that are no weights if `closed`."""
        given = [n for n, w in zip(self.names, self.is_weight, strict=True) if not (closed and w)]
        return [(given.index(name), result) for name, result in self.state.items()]

    @property
    def flat_state(self) -> list[tuple[int, int]]:
        """The same by number of the flat input and of the flat result."""
        import jax

        flat = jax.tree_util.tree_leaves
        results = jax.eval_shape(self.closed, *self.inputs) if self.state else ()
        found: list[tuple[int, int]] = []
        for a, r in self.state_of(closed=True):
            first, other = len(flat(self.inputs[:a])), len(flat(results[:r]))
            found += [(first + i, other + i) for i in range(len(flat(self.inputs[a])))]
        return found

    @property
    def program(self) -> Any:
        """The module of the function."""
        return self._module

    @cached_property
    def _module(self) -> Any:
        for folder in (ROOT / "benchmarks", ROOT / "experiments" / "programs"):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
        return import_module(self.module)

    @property
    def names(self) -> list[str]:
        """Of the arguments, in order."""
        return list(inspect.signature(self.call).parameters)

    @cached_property
    def is_weight(self) -> list[bool]:
        """Whether each argument is a weight, or a tree of them."""
        return [n in self.weights for n in self.names]


QUANTISED = ("default", "algebra/quantised")  # products of bytes, as runtimes fuse QDQ
MODELS = {
    "resnet50": Model("resnet50", "resnet50", 4.0),
    "minilm": Model("minilm", "minilm", 1.5),
    "bert": Model("bert", "bert", 1.3),
    "mlp_784": Model("mlp", "mlp_784", 1.2),
    "gpt2": Model("gpt2", "gpt2", 1.25),
    "gpt2_decode": Model("gpt2", "gpt2_decode", 1.2),
    "gpt2_decode_bf16": Model("gpt2", "gpt2_decode_bf16", 2.0),
    "conv_qdq": Model("conv_qdq_residual", "conv_qdq_residual", 3.6),
    "unet": Model("unet", "unet", 1.5),
    "mobilenet": Model("kerasprograms", "mobilenet", 2.0),
    "efficientnet": Model("kerasprograms", "efficientnet", 2.0),
    "convnext": Model("kerasprograms", "convnext", 2.0),
    "swin": Model("swin", "swin", 1.3),
    "whisper": Model("whisper", "whisper", 1.3),
    "llama_64": Model("llama", "llama_64", 1.3),
    "llama_decode": Model("llama", "llama_decode", 1.3),
    "quantised_mlp": Model("quantised", "quantised_mlp", 3.0, QUANTISED),
    "quantised_bottleneck": Model("quantised", "quantised_bottleneck", 3.0, QUANTISED),
    "train": Model("train", "step", 1.1),
}
_PLACES = {
    "peernets": "conv3d deeplab densenet inception q18 resnext traincnn vgg16 yolo",
    "peerattention": "conformer decode8 mixer t5enc vit wavenet",
    "peerloops": "dlrm fir gnn gru kmeans lstm8 mamba nerf stencil",
}
FURTHER = {  # kinds that nobody had tuned eqsat to, in sizes of their own
    name: Model(module, name, 1.0) for module, names in _PLACES.items() for name in names.split()
}
# Drawn on 2026-11-28, before any of the 24 was timed:
# `sorted(random.Random(35).sample(sorted(FURTHER), 12))`. The others may be looked at while
# eqsat is worked on; these are timed when all is done.
HELD = (
    "conv3d", "densenet", "gru", "inception", "kmeans", "lstm8", "mamba", "mixer", "resnext",
    "stencil", "vit", "wavenet",
)  # fmt: skip
OPEN = tuple(sorted(FURTHER.keys() - set(HELD)))
ALL = MODELS | FURTHER


def drawn(shape: Any, rng: np.random.Generator, is_weight: bool) -> Any:
    """An array of this shape; arrays stay as they are.

    Weights are scaled by their fan-in, so that values stay near 1 from layer to layer; one of one
    dim is near 1, as a scale. Integers are ones, which every mask and position may be.
    """
    if isinstance(shape, np.ndarray):
        return shape
    dims, dtype = shape.shape, shape.dtype
    if dtype.kind in "iub":
        return np.ones(dims, dtype)
    noise = rng.standard_normal(dims, "f4")
    if is_weight and len(dims) == 1:
        return (1 + 0.1 * noise).astype(dtype)
    if is_weight:
        fan = int(np.prod(dims[1:])) if len(dims) >= FAN_OF_FILTERS else dims[0]
        noise *= np.float32((1.5 / max(1, fan)) ** 0.5)
    return noise.astype(dtype)


def code_key() -> str:
    """Of everything an answer or a file depends on: the code, the rules, the targets, models."""
    found = hashlib.sha256()
    paths = [p for f in ("eqsat", "rules", "targets") for p in sorted((ROOT / f).rglob("*"))]
    paths += [p for p in sorted((ROOT / "benchmarks").glob("peer*.py")) if p.stem not in NO_MODELS]
    for path in paths:
        if path.is_file() and path.parent.name != "__pycache__":
            found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def prepare(name: str, folder: Path, target: str, time_limit: float) -> dict[str, Any]:
    """Write what is missing of a model's folder; the facts of the answer that is there."""
    import eqsat

    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / f"answer-{target}-{code_key()}"
    facts = answer.with_suffix(".json")
    if not facts.exists():
        model = ALL[name]
        begin = time.process_time()
        run = eqsat.optimize(
            model.closed, *model.inputs, target=target, time_limit=time_limit, rules=model.rules,
            donate=[f"arg{a}" for a, _ in model.flat_state],
        )  # fmt: skip
        seconds = round(time.process_time() - begin, 1)
        _write_files(run, model, folder)
        run.executable.compile()  # packs the weights, which are saved with the answer
        run.save(answer)
        found = _facts(run, seconds) | {"state": model.flat_state}
        facts.write_text(json.dumps(found, indent=1), encoding="utf-8")
    _write_first(folder.parent / "first", target)
    return json.loads(facts.read_text(encoding="utf-8")) | {"folder": str(answer)}


def _write_first(folder: Path, target: str) -> None:
    """The program that a side runs before its memory is looked at: f32[4] + itself."""
    import eqsat

    answer = folder / f"answer-{target}-{code_key()}"
    if answer.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    run = eqsat.optimize(lambda x: x + x, np.ones(4, np.float32), target=target)
    run.executable.compile()
    run.export("onnx", folder / "model.onnx", of="program")
    run.save(answer)


def _facts(run: Any, cpu_seconds: float) -> dict[str, Any]:
    declined = run.execution.to_json()["declined"]
    return {
        "predicted_ms": run.schedule.time_ps / 1e9,
        "dispatches": len(run.schedule.dispatches),
        "declined": declined,
        "proven": run.selection.claim,
        "search_cpu_s": cpu_seconds,
    }


def _write_files(run: Any, model: Model, folder: Path) -> None:
    """What all peers share; it depends on the program alone."""
    import jax
    from jax import export
    from peeronnx import raise_file

    _forget_others(run, folder)
    flat = [np.asarray(x) for x in jax.tree_util.tree_leaves(model.inputs)]
    if not (folder / "inputs.npz").exists():
        np.savez(folder / "inputs.npz", *flat)
    if not (folder / "model.mlirbc").exists():
        exported = export.export(jax.jit(model.closed), platforms=["cpu"])(*model.inputs)
        (folder / "model.mlirbc").write_bytes(exported.mlir_module_serialized)
    place = "resources" if run.program.weight_bytes >= RESOURCES else "auto"
    run.export("onnx", folder / "model.onnx", of="program", weights=place, partial=True)
    raise_file(folder / "model.onnx", model.ops)
    if model.natural is not None:
        _write_natural(model, model.natural, flat, folder / "natural.onnx")
    if not (folder / "wanted.npz").exists():
        np.savez(folder / "wanted.npz", *_reference(run, flat))


def _write_natural(
    model: Model, write: Callable[..., Any], inputs: Sequence[Array], path: Path
) -> None:
    """The model that was written by hand."""
    import jax
    import onnx
    from peergraph import model_of

    flat = jax.tree_util.tree_leaves
    pairs = zip(model.values, model.is_weight, strict=True)
    weights = [np.asarray(x) for v, w in pairs if w for x in flat(v)]
    results = flat(jax.eval_shape(model.closed, *model.inputs))
    made = model_of(write, inputs, weights, results)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, str(path))


def _forget_others(run: Any, folder: Path) -> None:
    """Remove what was written of another program or of other weights."""
    text = json.dumps([run.program.to_json(), sorted(run.weights)])
    told = hashlib.sha256(text.encode()).hexdigest()
    mark = folder / "program.sha256"
    if mark.exists() and mark.read_text(encoding="ascii") == told:
        return
    for pattern in ("model.*", "natural.*", "*.npz", "*.vmfb"):
        for path in folder.glob(pattern):
            path.unlink()
    mark.write_text(told, encoding="ascii")


def _reference(run: Any, inputs: Sequence[Array]) -> list[Array]:
    from eqsat.ops.meaning.programs import evaluate_program

    return evaluate_program(run.program, inputs, run.weights, run.source.opaque)
