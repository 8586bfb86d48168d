"""Where this user's files of eqsat lie."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "EQSAT_CACHE"  # a folder, in place of the platform's


def cache_folder(name: str) -> Path:
    """The folder of one kind of cache: below `EQSAT_CACHE`, else the platform's for eqsat."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given) / name
    from platformdirs import user_cache_path

    return user_cache_path("eqsat", appauthor=False) / name
