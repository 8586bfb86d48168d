"""How many seeds of a hunt run with every commit; the rest are in `make slow`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(often: int, all_of_them: int) -> list[Any]:
    """Parameters of a test: the first `often` seeds, and the further ones marked as slow."""
    late = [pytest.param(n, marks=pytest.mark.slow) for n in range(often, all_of_them)]
    return [*range(often), *late]
