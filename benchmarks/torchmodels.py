"""`torch.compile` with eqsat beside inductor and eager, on models with random weights; JSON.

    python benchmarks/run.py torch [--core 0] [--rounds 100] [--only NAME …] [--time-limit 60]
                                   [--log FILE]

Models of torchvision, timm and transformers in small sizes, f32, one thread on one core, a process
each. Per model the largest difference from eager over the largest result, microseconds of a call
(medians of interleaved rounds, wall and process time), ratios with 95 % intervals, seconds to the
first call, and what ran in torch. Not ok if a result differs by more than 1e-3, or a model or a
part of it ran in torch.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gates import Log, Row, alone, logs, middle, pin, ratio, say, timed_in_turn

MOST = 1e-3
EAGER, INDUCTOR, EQSAT = "eager", "inductor", "eqsat"
KILL = 1800.0  # seconds


def _image(make: Callable[[], Any], size: int = 64) -> tuple[Any, Any]:
    import torch

    return make(), torch.randn(1, 3, size, size)


def _words(make: Callable[[], Any], length: int = 32) -> tuple[Any, Any]:
    import torch

    return make(), torch.randint(0, 500, (1, length))


def resnet() -> tuple[Any, Any]:
    import torchvision

    return _image(lambda: torchvision.models.resnet18(weights=None))


def mobilenet() -> tuple[Any, Any]:
    import torchvision

    return _image(lambda: torchvision.models.mobilenet_v3_small(weights=None))


def vit() -> tuple[Any, Any]:
    from torchvision.models import VisionTransformer

    return _image(lambda: VisionTransformer(64, 8, 2, 4, 128, 256))


def swin() -> tuple[Any, Any]:
    from torchvision.models import SwinTransformer

    return _image(lambda: SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]))


def mixer() -> tuple[Any, Any]:
    from timm.models import MlpMixer

    return _image(lambda: MlpMixer(img_size=64, patch_size=8, num_blocks=2, embed_dim=128))


def efficientnet() -> tuple[Any, Any]:
    import timm

    return _image(lambda: timm.create_model("efficientnet_lite0", pretrained=False))


def convnext() -> tuple[Any, Any]:
    from timm.models import ConvNeXt

    return _image(lambda: ConvNeXt(depths=(1, 1, 2, 1), dims=(32, 64, 128, 256)))


SMALL = {"vocab_size": 500, "num_hidden_layers": 2, "num_attention_heads": 4}


def bert() -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    return _words(lambda: BertModel(BertConfig(hidden_size=128, intermediate_size=256, **SMALL)))


def gpt2() -> tuple[Any, Any]:
    from transformers import GPT2Config, GPT2Model

    config = {"vocab_size": 500, "n_layer": 2, "n_head": 4, "n_embd": 128, "use_cache": False}
    return _words(lambda: GPT2Model(GPT2Config(**config)))


def t5() -> tuple[Any, Any]:
    from transformers import T5Config, T5EncoderModel

    config = {"vocab_size": 500, "num_layers": 2, "num_heads": 4}
    return _words(lambda: T5EncoderModel(T5Config(d_model=128, d_kv=32, d_ff=256, **config)))


def clip() -> tuple[Any, Any]:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    sizes = {"hidden_size": 128, "intermediate_size": 256, "image_size": 64, "patch_size": 8}
    return _image(lambda: CLIPVisionModel(CLIPVisionConfig(**sizes, **config)))


MODELS = {
    f.__name__: f
    for f in (resnet, mobilenet, vit, swin, mixer, efficientnet, convnext, bert, gpt2, t5, clip)
}


def one(o: argparse.Namespace) -> Row:
    """One model, in this process."""
    pin(o.core)
    import torch

    from eqsat.api.dynamo import compile_graph
    from eqsat.model.diag import EqsatWarning

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = MODELS[o.one]()
    model.eval().requires_grad_(False)
    for zeros in (p for p in model.parameters() if not p.any()):  # heads, before any training
        zeros.normal_(std=0.1)
    runs: list[Any] = []
    options = {"time_limit": o.time_limit, "on_answer": runs.append}
    ours = torch.compile(model, backend=compile_graph, options=options)
    sides = {EAGER: model, INDUCTOR: torch.compile(model), EQSAT: ours}
    results, first = {}, {}
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for name, side in sides.items():
            begin = time.perf_counter()
            results[name] = _tensors(side(x))
            first[name] = round(time.perf_counter() - begin, 1)
        calls = {name: lambda side=side: side(x) for name, side in sides.items()}
        us = timed_in_turn(calls, o.rounds)
    ours_told = [w.message.diagnostic for w in seen if isinstance(w.message, EqsatWarning)]
    told = [d.message for d in ours_told if d.code == "E523"]
    return {
        "model": o.one,
        "parameters": sum(p.numel() for p in model.parameters()),
        "difference": _difference(results[EQSAT], results[EAGER]),
        "in_torch": told,
        "dispatches": [len(r.schedule.dispatches) for r in runs],
        "first_call_s": first,
        "us": {name: {clock: middle(t) for clock, t in by.items()} for name, by in us.items()},
        "to": {name: ratio(us[EQSAT]["cpu"], us[name]["cpu"]) for name in (EAGER, INDUCTOR)},
    }


def _tensors(tree: Any) -> list[Any]:
    import torch

    leaves = torch.utils._pytree.tree_leaves(tree)
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def _difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest difference over the largest result."""
    pairs = list(zip(ours, theirs, strict=True))
    assert all(a.dtype == b.dtype and a.stride() == b.stride() for a, b in pairs)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=100, help="at most, never fewer than 30")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of a search")
    parser.add_argument("--core", type=int, help="the core to run on; the first allowed one")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    logs(parser, "model")


def measured(o: argparse.Namespace) -> Row:
    rows = Log(o.log, "model")
    words = ["--rounds", str(o.rounds), "--time-limit", str(o.time_limit)]
    words += [] if o.core is None else ["--core", str(o.core)]
    for name in (n for n in o.only if n not in rows):
        row = {"model": name, **alone(str(Path(__file__)), ["--one", name, *words], KILL)}
        rows.add(row)
        say(str(row))
    models = {n: rows[n] for n in o.only}
    wrong = [n for n, r in models.items() if r.get("difference", 1) > MOST]
    in_torch = [n for n, r in models.items() if r.get("in_torch")]
    return {"ok": not wrong and not in_torch, "models": models, "wrong": wrong}


if __name__ == "__main__":
    from gates import asked_and_told

    raise SystemExit(asked_and_told(__doc__, options, measured, one=one))
