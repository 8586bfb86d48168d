"""Marks in the user's cache: what this code has checked on this machine is not checked again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from eqsat.model.files import cache_folder, code_digest, is_private, make_private
from eqsat.plugins import GROUPS, plugged_in

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
