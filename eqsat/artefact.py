"""The artefact folder: every border value of a run as text or JSON, whole or not there at all."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.execute.weights import read_arrays, write_arrays
from eqsat.model.diag import fail

if TYPE_CHECKING:
    import numpy as np

FILES = {
    "program": "1-program.json",
    "canonical": "1-canonical.json",
    "egraph": "2-egraph.json",
    "selection": "3-selection.json",
    "baseline": "3-baseline.json",
    "schedule": "4-schedule.json",
    "baseline_schedule": "4-baseline.json",
    "target": "target.json",
    "rules": "rules.json",
    "summary": "summary.json",
    "manifest": "manifest.json",
}
WEIGHTS = "5-executable/weights.safetensors"  # as they came
PACKED = "5-executable/packed.safetensors"  # as the schedule reads them, if it was executed
OPAQUE = "5-executable/opaque"


def write(
    folder: Path,
    values: Mapping[str, Any],
    texts: Mapping[str, str],
    arrays: Mapping[str, Mapping[str, Any]],
    opaque: Mapping[str, bytes],
) -> Path:
    """Write a folder beside its place, then rename it there; replaces an older artefact only.

    values: keys of FILES → JSON data; arrays: file → arrays by name. Raises EqsatError (E309) if
    something else is in the way.
    """
    if folder.exists() and not (folder / FILES["manifest"]).is_file():
        raise fail(
            "E309", f"`{folder}` exists and is not a run of eqsat", help="name another folder"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for key, data in values.items():
            (aside / FILES[key]).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        (aside / OPAQUE).mkdir(parents=True)
        for key, blob in opaque.items():
            (aside / OPAQUE / f"{key}.bin").write_bytes(blob)
        for name, tensors in arrays.items():
            write_arrays(aside / name, tensors)
        _replace(aside, folder)
    except BaseException:  # Ctrl-C included: nothing half written stays
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return folder


def _replace(aside: Path, folder: Path) -> None:
    aside.chmod(0o755)
    if not folder.exists():
        aside.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        aside.rename(folder)
    except OSError:
        (old / folder.name).rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
    """(JSON data by key of FILES, weights, exported opaque calls); EqsatError (E309, E504)."""
    if not (folder / FILES["manifest"]).is_file():
        raise fail(
            "E309", f"`{folder}` is not a run of eqsat",
            help=f"make one: `eqsat optimize PROGRAM -o {folder}`",
        )  # fmt: skip
    try:
        values = {
            key: json.loads((folder / name).read_text(encoding="utf-8"))
            for key, name in FILES.items()
            if (folder / name).is_file()
        }
        opaque = {p.stem: p.read_bytes() for p in sorted((folder / OPAQUE).glob("*.bin"))}
    except (OSError, ValueError, KeyError) as e:
        raise fail("E309", f"`{folder}` cannot be read: {e}") from e
    return values, read_arrays(folder / WEIGHTS), opaque


def manifest(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed to repeat a run: versions, machine, options."""
    packages = ("eqsat", "egglog", "ortools", "jax", "numpy")
    return {
        "format": 1,
        "versions": {p: version(p) for p in packages},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "options": dict(options),
    }
