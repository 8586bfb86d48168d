"""Which seeds of a hunt, and cases of a catalogue, run with every commit; the rest are `slow`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def seeds(often: int, all_of_them: int | Sequence[int]) -> list[Any]:
    """Parameters of a test: the first `often` seeds, and the further ones marked as slow."""
    known = range(all_of_them) if isinstance(all_of_them, int) else all_of_them
    return [*known[:often], *(pytest.param(n, marks=pytest.mark.slow) for n in known[often:])]


def one_in(step: int, names: Iterable[Any]) -> list[Any]:
    """Parameters of a test: every `step`-th one from the first on, and the others marked as slow.

    For catalogues that lie in themes, so that each of them has some in `suite`.
    """
    return [
        pytest.param(n, marks=[pytest.mark.slow] if at % step else []) for at, n in enumerate(names)
    ]
