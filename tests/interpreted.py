"""Solvers that numba compiles, as the Python they are written in: compiling takes up to 20 s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest


@contextmanager
def as_python(*modules: ModuleType) -> Iterator[None]:
    """Their functions without numba; hashes are 64 bits, and what goes beyond is dropped."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="ignore"):
        for module in modules:
            for name, function in [*vars(module).items()]:
                if hasattr(function, "py_func"):
                    patch.setattr(module, name, function.py_func)
        yield
