"""Large files of runs that are equal, kept once: rules, weights and programs are shared by rows."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

POOL = ".files"  # below the folder of the runs
LEAST_BYTES = 1 << 16  # smaller ones cost a block of the disk at most


def share_files(folder: Path) -> None:
    """Make the large files of a run hard links to equal files of the store's other runs.

    folder: the run's, `STORE/runs/NAME`. Where the file system has no hard links, files stay
    copies.
    """
    pool = folder.parent / POOL
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.stat().st_size >= LEAST_BYTES:
            with contextlib.suppress(OSError):
                _share(path, pool)


def _share(path: Path, pool: Path) -> None:
    pool.mkdir(exist_ok=True)
    with path.open("rb") as file:
        kept = pool / hashlib.file_digest(file, "sha256").hexdigest()
    try:
        os.link(path, kept)  # the first of its kind; of two writers one is
    except FileExistsError:
        if not path.samefile(kept):
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            os.link(kept, aside)
            aside.replace(path)
