"""The seal of a run: sums of its files, so that damage is found before anything is made of it.

It says nothing of who wrote them: whoever edits a file can seal it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eqsat.execute.weights import content_keys
from eqsat.model.diag import EqsatError, fail
from eqsat.run.filenames import FILES, PACKED, WEIGHTS

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
    own = {OWN: hashlib.sha256(encoded(rest)).hexdigest()}
    others = {k: v for k, v in sorted(digests.items()) if k != OWN}
    return {**manifest, "sha256": own | others}


def check_seal(folder: Path, digests: Mapping[str, str], manifest: bytes) -> dict[str, Any]:
    """The manifest, if each file is as it was written.

    EqsatError (E309) for the first that is missing, new, or other. digests: of each file.
    """
    data: dict[str, Any] = {}
    try:
        data = dict(json.loads(manifest))
        found, wanted = sealed(data, digests)["sha256"], dict(data["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError):
        found, wanted = {OWN: ""}, {}
    for name in sorted({*found, *wanted}, key=lambda name: (name != OWN, name)):
        if found.get(name) != wanted.get(name):
            raise _damaged(folder, name, name in found)
    return data


def _damaged(folder: Path, name: str, is_there: bool = True) -> EqsatError:
    what = "is not as eqsat wrote it" if is_there else "is missing"
    return fail(
        "E309", f"`{folder}` is damaged: `{name}` {what}",
        help=f"make it again: `eqsat optimize PROGRAM -o {folder}`",
    )  # fmt: skip


# ---- weights: known by their content -------------------------------------------------------------
def weight_sums(folder: Path) -> dict[str, Any]:
    """What the manifest says of the arrays of a folder.

    weights: the content of those that are not called by it, as only their shape was known. packed:
    the SHA-256 of the file of packed ones, None if there is none.
    """
    own = content_keys(folder / WEIGHTS)
    return {
        "weights": {name: key for name, key in own.items() if name != key},
        "packed": _file_sum(folder / PACKED),
    }


def check_weights(folder: Path, manifest: Mapping[str, Any]) -> Path | None:
    """The file of packed weights, if there is one and the manifest knows it.

    EqsatError (E309) if an array is not the one that was saved. The manifests of older runs have no
    sums of arrays: those that are packed are not read then, but packed again.
    """
    wanted = manifest.get("packed")
    if wanted is not None and _file_sum(folder / PACKED) != wanted:
        raise _damaged(folder, PACKED, (folder / PACKED).is_file())
    known = manifest.get("weights")
    if known is not None and any(
        key != known.get(name, name) for name, key in content_keys(folder / WEIGHTS).items()
    ):
        raise _damaged(folder, WEIGHTS)
    return None if wanted is None else folder / PACKED


def _file_sum(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
