"""The table of operators: (domain, name) → its function and the newest version it implements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.frontends.onnxgraph.call import OnnxCall

Meaning = Callable[[OnnxCall], Any]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Operator:
    """compute: an array, or a tuple of results. fold: computed in NumPy where all is known.

    newest: the last version of the operator (`since_version`) that `compute` knows.
    """

    compute: Meaning
    newest: int
    fold: bool


OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(
    *names: str, newest: int, fold: bool = False, domain: str = ""
) -> Callable[[Meaning], Meaning]:
    """Enter a function into the table under these names."""

    def enter(compute: Meaning) -> Meaning:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(compute, newest, fold)
        return compute

    return enter


def contributed(*names: str) -> Callable[[Meaning], Meaning]:
    """An operator of the `com.microsoft` domain, which exports of PyTorch models hold."""
    return operator(*names, newest=1, domain=MICROSOFT)
