"""The kind of device for which a program is traced, where that is known by then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SAID: ContextVar[str] = ContextVar("platform", default="")
TPU = "tpu"


@contextmanager
def lowered_for(platform: str) -> Iterator[None]:
    """What is traced inside runs on this kind of device (`tpu`, `cuda`) and on no other."""
    before = _SAID.set(platform)
    try:
        yield
    finally:
        _SAID.reset(before)


def known_platform() -> str:
    """The accelerator that programs run on, if nobody says otherwise JAX's own; "" for a CPU.

    Forms that suit one are no choice of the compiler's (`lax.platform_dependent`), as XLA takes
    that late. On a machine with an accelerator, what is put on its CPU computes the same.
    """
    import jax

    found = _SAID.get() or jax.default_backend()
    return "" if found == "cpu" else {"gpu": "cuda"}.get(found, found)
