"""How many seeds of a hunt run with every commit; the rest are in `make slow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def seeds(often: int, all_of_them: int | Sequence[int]) -> list[Any]:
    """Parameters of a test: the first `often` seeds, and the further ones marked as slow."""
    known = range(all_of_them) if isinstance(all_of_them, int) else all_of_them
    return [*known[:often], *(pytest.param(n, marks=pytest.mark.slow) for n in known[often:])]
