"""Marks in the user's cache: what this code has checked on this machine is not checked again."""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version

from eqsat import host
from eqsat.model.filecache import FileCache
from eqsat.model.files import code_digest
from eqsat.plugins import GROUPS, plugged_in
from eqsat.run.run import Run

MARKS = FileCache("checked", ".mark", "saved runs are checked each time they are loaded", 2**20)


def mark_of(checked: bytes) -> str:
    """The name of the mark that says that this code has checked this; "" if there can be none.

    checked: what identifies it, such as the manifest of a folder, which has the sums of all files:
    those of all but arrays were compared when they were read. What a folder's mark holds are the
    stamps of the arrays' files, as they were when theirs were. Plug-ins may change and keep their
    version.
    """
    if any(plugged_in(group) for group in GROUPS):
        return ""
    return hashlib.sha256(checked + code_digest().encode()).hexdigest()


# ---- first calls that were checked before --------------------------------------------------------
def agreed_before(run: Run, race: bool) -> bool:
    """Whether a first call on this machine has shown this answer right, and no slower if raced."""
    mark = _call_mark(run, race)
    return mark != "" and MARKS.read(mark) is not None


def note_agreement(run: Run, race: bool) -> None:
    """Let later processes know that a first call of this answer agreed with the original."""
    if mark := _call_mark(run, race):
        MARKS.write({mark: b""})


def _call_mark(run: Run, race: bool) -> str:
    """Of a run whose answer is kept, or that was loaded as it was saved."""
    name = run.cache_key or getattr(run, "seal", "")
    if not name:
        return ""
    machine = host.processor(), host.features(), host.caches(), host.cores()
    runs = [version(p) for p in ("jax", "jaxlib", "llvmlite")], os.environ.get("XLA_FLAGS", "")
    return mark_of(repr(("first call", name, race, machine, runs)).encode())
