"""Python functions → machine code by numba, kept on disk where a place for it is found."""

from __future__ import annotations

from typing import Any

import numba

# minima may be taken in any order, as there is no NaN; sums stay as they are written
ANY_ORDER = {"nnan", "nsz"}


def machine_code(function: Any) -> Any:
    """Compiled on first use."""
    try:
        return numba.njit(cache=True, nogil=True, fastmath=ANY_ORDER)(function)
    except RuntimeError:  # no folder can be written
        return numba.njit(nogil=True, fastmath=ANY_ORDER)(function)
