"""A finished folder → in its final place, whole at every moment; what others left is swept."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

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
