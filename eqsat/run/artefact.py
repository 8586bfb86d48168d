"""The artefact folder: every border value of a run as text or JSON, written as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.execute.arrayfiles import content_keys, read_arrays, write_arrays
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import code_digest


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
    check_weights(folder, manifest)
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
    check_place(folder, FILES["manifest"], "a run")


def check_place(folder: Path, file: str, what: str) -> None:
    """Whether a folder that has this file can be written here; EqsatError (E309, E407)."""
    if folder.exists() and not (folder / file).is_file():
        message = f"`{folder}` exists and is not {what} of eqsat"
        raise fail("E309", message, help="name another folder")
    check_writable(folder)


@contextlib.contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A folder to write to, which takes the place of this one at the end; EqsatError (E407)."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as e:
        raise fail("E407", f"cannot write `{folder}`: {e.strerror or e}") from e
    try:
        yield aside
        put_in_place(aside, folder)
    except BaseException:  # Ctrl-C included: nothing half written stays
        shutil.rmtree(aside, ignore_errors=True)
        raise


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
    with written_whole(folder) as aside:
        (aside / OPAQUE).mkdir(parents=True)
        for name, data in {**files, **plain}.items():
            (aside / name).write_bytes(data)
        for name, tensors in arrays.items():
            write_arrays(aside / name, tensors)
        complete = sealed({**manifest, **weight_sums(aside)}, digests_of(files))
        (aside / FILES["manifest"]).write_bytes(encoded(complete))


@dataclass(frozen=True)
class RunFiles:
    """The content of a folder: JSON text by key of FILES, deflated, weights, exported opaque calls.

    packed: the file of the weights as the schedule reads them, if they are there and sealed.
    """

    texts: dict[str, bytes]
    weights: dict[str, np.ndarray]
    opaque: dict[str, bytes]
    packed: Path | None


def read_folder(folder: Path) -> RunFiles:
    """The files of a run, each but arrays as it was written; EqsatError (E309, E504)."""
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
    except OSError as e:
        raise fail("E309", f"`{folder}` cannot be read: {e.strerror or e}") from e
    packed = None if manifest.get("packed") is None else folder / PACKED
    return RunFiles(texts, read_arrays(folder / WEIGHTS), opaque, packed)


def _opaque_files(folder: Path) -> list[str]:
    return sorted(f"{OPAQUE}/{p.name}" for p in (folder / OPAQUE).glob("*.bin"))


def manifest(options: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of a run, to repeat it: versions, a hash of eqsat's code, machine, options."""
    packages = ("eqsat", "egglog", "ortools", "jax", "numpy")
    return {
        "format": 1,
        "versions": {p: version(p) for p in packages},
        "code": code_digest(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "options": dict(options),
    }


FILES = {
    "program": "1-program.json",
    "canonical": "1-canonical.json",
    "family": "2-family.json",
    "egraph": "2-egraph.json",
    "selection": "3-selection.json",
    "baseline": "3-baseline.json",
    "schedule": "4-schedule.json",
    "baseline_schedule": "4-baseline.json",
    "mesh_plan": "4-mesh.json",
    "bodies": "5-bodies.json",
    "curve": "3-curve.json",
    "orders": "1-orders.json",
    "measured": "6-measured.json",
    "checked": "6-checked.json",
    "compiled": "7-compiled.json",
    "convention": "5-executable/convention.json",
    "target": "target.json",
    "rules": "rules.json",
    "summary": "summary.json",
    "manifest": "manifest.json",
}
SWITCH = "switch.json"  # of a folder whose runs are programs of one switch
WEIGHTS = "5-executable/weights.safetensors"  # as they came
PACKED = "5-executable/packed.safetensors"  # as the schedule reads them, if it was executed
OPAQUE = "5-executable/opaque"


# ---- the seal ------------------------------------------------------------------------------------
OWN = FILES["manifest"]


def encoded(data: Any) -> bytes:
    """A value as its file has it."""
    return f"{json.dumps(data, indent=1)}\n".encode()


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 by name."""
    return {k: hashlib.sha256(data).hexdigest() for k, data in files.items()}


def sealed(manifest: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """The manifest with the SHA-256 of each file, and of itself without them."""
    rest = {k: v for k, v in manifest.items() if k != "sha256"}
    manifest_sum = {OWN: hashlib.sha256(encoded(rest)).hexdigest()}
    others = {k: v for k, v in sorted(digests.items()) if k != OWN}
    return {**manifest, "sha256": manifest_sum | others}


def check_seal(folder: Path, digests: Mapping[str, str], manifest: bytes) -> dict[str, Any]:
    """The manifest, if each file is as it was written.

    EqsatError (E309) for the first that is missing, new, or other. digests: of each file.
    """
    data: dict[str, Any] = {}
    try:
        data = dict(json.loads(manifest))
        sums, wanted = sealed(data, digests)["sha256"], dict(data["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError):
        sums, wanted = {OWN: ""}, {}
    for name in sorted({*sums, *wanted}, key=lambda name: (name != OWN, name)):
        if sums.get(name) != wanted.get(name):
            raise _damaged(folder, name, name in sums)
    return data


def _damaged(folder: Path, name: str, is_there: bool = True) -> EqsatError:
    what = "is not as eqsat wrote it" if is_there else "is missing"
    return fail(
        "E309", f"`{folder}` is damaged: `{name}` {what}",
        help=f"make it again: `eqsat optimize PROGRAM -o {folder}`",
    )  # fmt: skip


# ---- weights: known by their content -------------------------------------------------------------
def weight_sums(folder: Path) -> dict[str, Any]:
    """The manifest's entries about the arrays of a folder.

    weights: the content of those that are not called by it, as only their shape was known. packed:
    the SHA-256 of the file of packed ones, None if there is none.
    """
    keys = content_keys(folder / WEIGHTS)
    return {
        "weights": {name: key for name, key in keys.items() if name != key},
        "packed": _file_sum(folder / PACKED),
    }


def check_weights(folder: Path, manifest: Mapping[str, Any]) -> None:
    """EqsatError (E309) if an array is not the one that was saved.

    The manifests of older runs have no sums of arrays: those that are packed are not read then, but
    packed again.
    """
    try:
        _check_arrays(folder, manifest)
    except OSError as e:
        raise fail("E309", f"`{folder}` cannot be read: {e.strerror or e}") from e


def _check_arrays(folder: Path, manifest: Mapping[str, Any]) -> None:
    wanted, sums = manifest.get("packed"), manifest.get("weights")
    if wanted is not None and _file_sum(folder / PACKED) != wanted:
        raise _damaged(folder, PACKED, (folder / PACKED).is_file())
    if sums is not None and any(
        key != sums.get(name, name) for name, key in content_keys(folder / WEIGHTS).items()
    ):
        raise _damaged(folder, WEIGHTS)


def file_stamps(folder: Path) -> str:
    """Sizes, times and numbers of the files of arrays, "" if there are none.

    While these stay, so do the sums.
    """
    stamps = []
    for name in (WEIGHTS, PACKED):
        with contextlib.suppress(OSError):
            s = (folder / name).stat()
            stamps.append([name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev])
    return json.dumps(stamps) if stamps else ""


def _file_sum(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- a folder in its place -----------------------------------------------------------------------
LEFT_SECONDS = 24 * 3600  # nothing is written for so long
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def put_in_place(aside: Path, folder: Path) -> None:
    """Rename a finished folder to its final place, and remove what was there."""
    aside.chmod(0o755)
    _sweep(folder, aside)
    if not folder.exists():
        aside.rename(folder)
    elif _exchanged(aside, folder):
        shutil.rmtree(aside, ignore_errors=True)
    else:
        _replace(aside, folder)


def _exchanged(aside: Path, folder: Path) -> bool:
    """Whether the system swapped the two in one step; a process may be killed at any moment."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_HERE, os.fsencode(aside), _HERE, os.fsencode(folder), _EXCHANGE) == 0


def _replace(aside: Path, folder: Path) -> None:
    """In two steps, where the file system has no exchange."""
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        aside.rename(folder)
    except OSError:
        (old / folder.name).rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _sweep(folder: Path, aside: Path) -> None:
    """Remove what processes that were killed left beside this folder, a day ago or earlier."""
    name = re.compile(rf"\.{re.escape(folder.name)}\.(old\.)?[a-z0-9_]{{8}}")
    for path in folder.parent.glob(f".{glob.escape(folder.name)}.*"):
        is_ours = name.fullmatch(path.name) and path != aside and not path.is_symlink()
        if is_ours and time.time() - path.stat().st_mtime > LEFT_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
