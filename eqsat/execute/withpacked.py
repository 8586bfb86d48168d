"""Jitted functions of packed weights and inputs, with their weights given."""

from __future__ import annotations

import functools
from typing import Any


class WithPacked(functools.partial):
    """A `functools.partial` that prints no weights."""

    def __repr__(self) -> str:
        return f"<{getattr(self.func, '__name__', 'function')} of packed weights>"


def with_packed(jitted: Any, packed: Any) -> Any:
    """A jitted function of (packed, *inputs) with these weights."""
    call: Any = WithPacked(jitted, packed)
    call.lower = functools.partial(jitted.lower, packed)
    call.clear_cache = jitted.clear_cache
    return call
