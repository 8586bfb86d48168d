"""Programs of experiments/programs as modules, and small sizes of each."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "experiments" / "programs"
TINY: dict[str, dict[str, Any]] = {
    "bert": {
        "layers": 2, "width": 16, "heads": 2, "hidden": 24, "vocabulary": 50, "positions": 12,
        "tokens": 8,
    },
    "gpt2": {
        "layers": 2, "width": 16, "heads": 2, "vocabulary": 40, "positions": 12, "tokens": 8,
    },
    "llama": {"width": 32, "heads": 4, "shared": 2, "hidden": 48, "tokens": 8},
    "sdxl": {
        "channels": (8,), "blocks": (1,), "layers": 1, "head": 4, "groups": 2, "size": 4,
        "prompt": 3, "context": 6, "added": 5,
    },
    "stablecode": {"width": 32, "heads": 4, "hidden": 48, "tokens": 8},
    "stablelm": {"width": 32, "heads": 4, "hidden": 48, "tokens": 8, "rotary": 0.5},
    "swin": {
        "image": 16, "patch": 2, "width": 8, "depths": (2, 2), "heads": (2, 4), "window": 4,
        "classes": 10,
    },
    "unet": {
        "channels": 8, "size": 4, "groups": 2, "heads": 2, "time": 12, "prompt": 5, "context": 6,
    },
    "whisper": {"bands": 5, "frames": 12, "width": 16, "heads": 2, "layers": 2},
}  # fmt: skip


@cache
def module(name: str) -> ModuleType:
    """A program's file, imported with its neighbours in reach."""
    return _module(PROGRAMS / f"{name}.py")


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_library_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(found)
    finally:
        sys.path.remove(str(path.parent))
    return found


def tiny(name: str) -> Any:
    """The small sizes of a program."""
    return module(name).Config(**TINY[name])


def arrays(shapes: Any, seed: int = 0) -> Any:
    """Random arrays for a tree of shapes: normal, matrices scaled so that sums stay near 1."""
    import jax

    rng = np.random.default_rng(seed)

    def one(s: Any) -> np.ndarray[Any, Any]:
        if s.dtype.kind == "i":
            return rng.integers(0, 8, s.shape).astype(s.dtype)
        rows = s.shape[0] if len(s.shape) == 2 else int(np.prod(s.shape[1:])) or 1
        return (rng.standard_normal(s.shape) / np.sqrt(rows)).astype(s.dtype)

    return jax.tree_util.tree_map(one, shapes)
