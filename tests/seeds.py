"""Which seeds of a hunt, and cases of a catalogue, run with every commit; the rest are `slow`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def seeds(often: int, all_of_them: int | Sequence[int]) -> list[Any]:
    """Parameters of a test: the first `often` seeds, and the further ones marked as slow."""
    known = range(all_of_them) if isinstance(all_of_them, int) else all_of_them
    return [*known[:often], *(pytest.param(n, marks=pytest.mark.slow) for n in known[often:])]


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: every `step`-th case from the first on, and the others marked as slow.

    For catalogues that lie in themes, so that each of them has some in `suite`. A case that is a
    tuple is the values of several parameters.
    """
    return [_case(c, at % step != 0) for at, c in enumerate(cases)]


def some(often: Callable[..., bool] | Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the cases named, or told by a function; the others marked as slow."""
    named = () if callable(often) else list(often)
    return [_case(c, not (_told(often, c) if callable(often) else c in named)) for c in cases]


def _told(often: Callable[..., bool], case: Any) -> bool:
    return often(*case) if isinstance(case, tuple) else often(case)


def _case(case: Any, is_slow: bool) -> Any:
    if type(case).__name__ == "ParameterSet":  # made by `pytest.param`
        values, marks, name = case.values, case.marks, case.id
    else:
        values, marks, name = case if isinstance(case, tuple) else (case,), (), None
    return pytest.param(*values, marks=[*marks, *[pytest.mark.slow] * is_slow], id=name)
