"""Python functions → machine code by numba, kept on disk where a place for it is found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from eqsat.model.files import cache_folder, is_private, make_private, why_not_private

OTHERWISE = "the machine code of solvers is made in each process, and not kept"
_settings: Any = config
# minima may be taken in any order, as there is no NaN; sums stay as they are written
ANY_ORDER = {"nnan", "nsz"}


def machine_code(function: Any) -> Any:
    """Compiled on first use, and kept where nobody else can write: beside it, or in the cache."""
    with contextlib.suppress(OSError, RuntimeError):  # no folder can be written
        compiled = _kept(function)
        place = Path(compiled.stats.cache_path)
        make_private(place)
        if not why_not_private(place):
            return compiled
        make_private(cache_folder("numba"))
        if is_private(cache_folder("numba"), OTHERWISE):
            return _kept_in(cache_folder("numba"), function)
    return numba.njit(nogil=True, fastmath=ANY_ORDER)(function)


def _kept(function: Any) -> Any:
    return numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)(function)


def _kept_in(place: Path, function: Any) -> Any:
    given, _settings.CACHE_DIR = _settings.CACHE_DIR, str(place)
    try:
        return _kept(function)
    finally:
        _settings.CACHE_DIR = given


def is_kept(function: Any) -> bool:
    """Whether a function need not be compiled: it was, by this process or one before."""
    if function.signatures:
        return True
    place, code = function.stats.cache_path, Path(function.py_func.__code__.co_filename)
    if place is None:
        return False
    files = Path(place).glob(f"{code.stem}.{function.py_func.__name__}-*.nbc")
    return any(path.stat().st_mtime > code.stat().st_mtime for path in files)
