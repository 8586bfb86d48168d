"""Memory of phases that build large records: no search for cycles, and nothing kept behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Switches the collector of cycles off: none are made, and it would walk all that JAX holds.

    A third of the time to read 20,000 equations. What is not in a cycle is freed as ever.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def give_back() -> None:
    """Return free memory to the system, where the C library can.

    Large arrays that were freed leave it in pieces between others, which no other use fits.
    """
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's, and no other's
        if trim is not None:
            trim(0)
