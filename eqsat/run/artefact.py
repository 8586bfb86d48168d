"""The artefact folder: every border value of a run as text or JSON, written as a whole."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.execute.weights import read_arrays, write_arrays
from eqsat.model.diag import fail
from eqsat.model.folders import code_digest
from eqsat.run.filenames import FILES, OPAQUE, WEIGHTS
from eqsat.run.placed import put_in_place
from eqsat.run.seal import check_seal, check_weights, digests_of, encoded, sealed, weight_sums

if TYPE_CHECKING:
    import numpy as np


def write_folder(
    folder: Path,
    values: Mapping[str, Any],
    texts: Mapping[str, str],
    arrays: Mapping[str, Mapping[str, Any]],
    opaque: Mapping[str, bytes],
) -> Path:
    """Write a folder beside its place, then rename it there; replaces an older artefact only.

    values: keys of FILES → JSON data; arrays: file → arrays by name. Raises EqsatError (E309) if
    something else is in the way, E407 if it cannot be written.
    """
    check_run_place(folder)
    files = {FILES[key]: encoded(data) for key, data in values.items() if key != "manifest"}
    files |= {f"{OPAQUE}/{key}.bin": blob for key, blob in opaque.items()}
    plain = {name: text.encode() for name, text in texts.items()}
    try:
        _write_aside(folder, values["manifest"], files, plain, arrays)
    except OSError as e:
        raise fail("E407", f"cannot write `{folder}`: {e.strerror or e}") from e
    return folder


def keep(folder: Path, values: Mapping[str, Any]) -> None:
    """Put more values (keys of FILES → JSON data) into a folder, sealed with the rest of it.

    All other files stay the same ones. EqsatError: E309 if it is no run, E407 if it cannot be
    written.
    """
    read_folder(folder)  # damage is found here, not sealed
    added = {FILES[key]: encoded(data) for key, data in values.items()}
    manifest = json.loads((folder / FILES["manifest"]).read_text(encoding="utf-8"))
    added[FILES["manifest"]] = encoded(sealed(manifest, manifest["sha256"] | digests_of(added)))
    check_writable(folder)
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
        try:
            shutil.copytree(
                folder, aside, copy_function=os.link, dirs_exist_ok=True,
                ignore=lambda _, names: [n for n in names if n in added],
            )  # fmt: skip
            for name, data in added.items():
                (aside / name).write_bytes(data)
            put_in_place(aside, folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    except OSError as e:
        raise fail("E407", f"cannot write `{folder}`: {e.strerror or e}") from e


def check_run_place(folder: Path) -> None:
    """Checks before a search that a run can be written here; EqsatError (E309, E407)."""
    if folder.exists() and not (folder / FILES["manifest"]).is_file():
        raise fail(
            "E309", f"`{folder}` exists and is not a run of eqsat", help="name another folder"
        )
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """Whether files can be made below this path; EqsatError (E407)."""
    places = (folder.absolute(), *folder.absolute().parents)
    above = next(p for p in places if p.exists())
    if not above.is_dir():
        raise fail("E407", f"cannot write `{folder}`: `{above}` is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise fail("E407", f"cannot write `{folder}`: `{above}` may not be written to")


def _write_aside(
    folder: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    plain: Mapping[str, bytes],
    arrays: Mapping[str, Mapping[str, Any]],
) -> None:
    """manifest: without its sums. files: what is sealed; plain: what is only for people."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (aside / OPAQUE).mkdir(parents=True)
        for name, data in {**files, **plain}.items():
            (aside / name).write_bytes(data)
        for name, tensors in arrays.items():
            write_arrays(aside / name, tensors)
        whole = sealed({**manifest, **weight_sums(aside)}, digests_of(files))
        (aside / FILES["manifest"]).write_bytes(encoded(whole))
        put_in_place(aside, folder)
    except BaseException:  # Ctrl-C included: nothing half written stays
        shutil.rmtree(aside, ignore_errors=True)
        raise


@dataclass(frozen=True)
class RunFiles:
    """What a folder holds: JSON text by key of FILES, deflated, weights, exported opaque calls.

    packed: the file of the weights as the schedule reads them, if they are there and sealed.
    """

    texts: dict[str, bytes]
    weights: dict[str, np.ndarray]
    opaque: dict[str, bytes]
    packed: Path | None


def read_folder(folder: Path) -> RunFiles:
    """The files of a run, each as it was written; EqsatError (E309, E504)."""
    if not (folder / FILES["manifest"]).is_file():
        raise fail(
            "E309", f"`{folder}` is not a run of eqsat",
            help=f"make one: `eqsat optimize PROGRAM -o {folder}`",
        )  # fmt: skip
    digests, texts, opaque = {}, {}, {}
    keys = {name: key for key, name in FILES.items()}
    try:
        for name in (*FILES.values(), *_opaque_files(folder)):
            if not (folder / name).is_file():
                continue
            data = (folder / name).read_bytes()
            digests[name] = hashlib.sha256(data).hexdigest()
            if name in keys:
                texts[keys[name]] = zlib.compress(data, 1)
            else:
                opaque[Path(name).stem] = data
        manifest = check_seal(folder, digests, zlib.decompress(texts["manifest"]))
        packed = check_weights(folder, manifest)
    except OSError as e:
        raise fail("E309", f"`{folder}` cannot be read: {e.strerror or e}") from e
    return RunFiles(texts, read_arrays(folder / WEIGHTS), opaque, packed)


def _opaque_files(folder: Path) -> list[str]:
    return sorted(f"{OPAQUE}/{p.name}" for p in (folder / OPAQUE).glob("*.bin"))


def manifest(options: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed to repeat a run: versions, a hash of eqsat's code, machine, options."""
    packages = ("eqsat", "egglog", "ortools", "jax", "numpy")
    return {
        "format": 1,
        "versions": {p: version(p) for p in packages},
        "code": code_digest(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "options": dict(options),
    }
