"""Python functions → machine code by numba, kept on disk where a place for it is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
from numba.core import config

from eqsat.model.folders import cache_folder, is_private, make_private

# minima may be taken in any order, as there is no NaN; sums stay as they are written
_settings: Any = config
ANY_ORDER = {"nnan", "nsz"}


def machine_code(function: Any) -> Any:
    """Compiled on first use, and kept in this user's cache where nobody else can write to it."""
    given = _settings.CACHE_DIR
    try:
        place = Path(given) if given else cache_folder("numba")
        make_private(place)
        if is_private(place, "code of solvers is compiled in each process, and not kept"):
            _settings.CACHE_DIR = str(place)
            return numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)(function)
    except (OSError, RuntimeError):  # no folder can be written
        pass
    finally:
        _settings.CACHE_DIR = given
    return numba.njit(nogil=True, fastmath=ANY_ORDER)(function)


def is_kept(function: Any) -> bool:
    """Whether a function need not be compiled: it was, by this process or one before."""
    if function.signatures:
        return True
    place, code = function.stats.cache_path, Path(function.py_func.__code__.co_filename)
    if place is None:
        return False
    made = Path(place).glob(f"{code.stem}.{function.py_func.__name__}-*.nbc")
    return any(path.stat().st_mtime > code.stat().st_mtime for path in made)
