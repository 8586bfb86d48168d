"""Marks in the user's cache: what this code has checked on this machine is not checked again."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from eqsat import host
from eqsat.model.files import cache_folder, code_digest, is_private, make_private
from eqsat.plugins import GROUPS, plugged_in
from eqsat.run.run import Run

MARKS = 4096  # that are kept; the oldest ones go
_OTHERWISE = "saved runs are checked each time they are loaded"


def mark_of(checked: bytes) -> Path | None:
    """The file that says that this code has checked this; None where nobody may trust one.

    checked: what identifies it, such as the manifest of a folder, which has the sums of all files:
    those of all but arrays were compared when they were read. What a folder's mark holds are the
    stamps of the arrays' files, as they were when theirs were. Plug-ins may change and keep their
    version.
    """
    if any(plugged_in(group) for group in GROUPS):
        return None
    folder = cache_folder("checked")
    with suppress(OSError):
        make_private(folder)
        if is_private(folder, _OTHERWISE):
            return folder / hashlib.sha256(checked + code_digest().encode()).hexdigest()
    return None


def leave(mark: Path, stamps: str = "") -> None:
    """Leave a mark, and take the oldest ones away if there are many; what cannot be is not."""
    with suppress(OSError):
        mark.write_text(stamps)
        marks = sorted(mark.parent.iterdir(), key=lambda p: p.stat().st_mtime)
        for old in marks[:-MARKS]:
            old.unlink()


# ---- first calls that were checked before --------------------------------------------------------
def agreed_before(run: Run, race: bool) -> bool:
    """Whether a first call on this machine has shown this answer right, and no slower if raced."""
    mark = _call_mark(run, race)
    return mark is not None and mark.is_file()


def note_agreement(run: Run, race: bool) -> None:
    """Let later processes know that a first call of this answer agreed with the original."""
    mark = _call_mark(run, race)
    if mark is not None:
        leave(mark)


def _call_mark(run: Run, race: bool) -> Path | None:
    """Of a run whose answer is kept, or that was loaded as it was saved."""
    name = run.cache_key or getattr(run, "seal", "")
    if not name:
        return None
    machine = host.processor(), host.features(), host.caches(), host.cores()
    runs = [version(p) for p in ("jax", "jaxlib", "llvmlite")], os.environ.get("XLA_FLAGS", "")
    return mark_of(repr(("first call", name, race, machine, runs)).encode())
