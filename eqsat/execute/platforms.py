"""The kind of device for which a program is traced, and how XLA is told contractions there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from eqsat.model.compiled import BY_PRODUCTS

_SAID: ContextVar[str] = ContextVar("platform", default="")
_SPELLING: ContextVar[str] = ContextVar("spelling", default="")
TPU = "tpu"


@contextmanager
def _inside(said: ContextVar[str], word: str) -> Iterator[None]:
    before = said.set(word)
    try:
        yield
    finally:
        said.reset(before)


def lowered_for(platform: str) -> AbstractContextManager[None]:
    """What is traced inside runs on this kind of device (`tpu`, `cuda`) and on no other."""
    return _inside(_SAID, platform)


def known_platform() -> str:
    """The accelerator that programs run on, if nobody says otherwise JAX's own; "" for a CPU.

    Forms that suit one are no choice of the compiler's (`lax.platform_dependent`), as XLA takes
    that late. On a machine with an accelerator, what is put on its CPU computes the same.
    """
    import jax

    found = _SAID.get() or jax.default_backend()
    return "" if found == "cpu" else {"gpu": "cuda"}.get(found, found)


def spelled(spelling: str) -> AbstractContextManager[None]:
    """What is traced inside tells XLA contractions in this way (`model.compiled.SPELLINGS`)."""
    return _inside(_SPELLING, spelling)


def is_by_products() -> bool:
    """Whether contractions are products, and small convolutions sums of them, for a TPU."""
    return known_platform() == TPU and _SPELLING.get() == BY_PRODUCTS


def is_by_convolutions() -> bool:
    """Whether products over several rows are convolutions, for a TPU."""
    return known_platform() == TPU and _SPELLING.get() != BY_PRODUCTS
