"""Jitted functions of packed weights and inputs, bound to their weights."""

from __future__ import annotations

import functools
from typing import Any


class Bound(functools.partial):
    """A `functools.partial` that prints no weights."""

    def __repr__(self) -> str:
        return f"<{getattr(self.func, '__name__', 'function')} of packed weights>"


def bound(jitted: Any, packed: Any) -> Any:
    """A jitted function of (packed, *inputs) with these weights."""
    call: Any = Bound(jitted, packed)
    call.lower = functools.partial(jitted.lower, packed)
    call.clear_cache = jitted.clear_cache
    return call
