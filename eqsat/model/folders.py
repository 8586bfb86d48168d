"""Folders of this user's files of eqsat, and a hash of the code that made them."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

VARIABLE = "EQSAT_CACHE"  # a folder, in place of the platform's


def cache_folder(name: str) -> Path:
    """The folder of one kind of cache: below `EQSAT_CACHE`, else the platform's for eqsat."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given) / name
    from platformdirs import user_cache_path

    return user_cache_path("eqsat", appauthor=False) / name


@cache
def code_digest(*folders: str) -> str:
    """A hash of the package's code, all of it or these folders, as a part of cache keys.

    The version is not enough, as an editable installation changes in place.
    """
    root = Path(__file__).parents[1]
    files = sorted(p for name in folders or (".",) for p in (root / name).rglob("*.py"))
    found = hashlib.sha256()
    for path in files:
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
