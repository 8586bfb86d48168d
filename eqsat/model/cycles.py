"""Memory of phases that build large records: no search for cycles, and nothing kept behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles meanwhile: none are made, and each search walks all that JAX holds.

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
    """Hand memory that is free to the system, where the C library can.

    Large arrays that come and go leave it in pieces between others, which nobody else can use.
    """
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's, and no other's
        if trim is not None:
            trim(0)
