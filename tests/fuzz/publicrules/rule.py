"""A public rule about tensors: two JAX functions, written after its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuzz.pairs.catalogue import Input, Sizes

Function = Callable[..., Any]
TENSORRIGHT = "TensorRight xla/{}"  # a folder of rules of github.com/ADAPT-uiuc/TensorRight
CONSTABLE = "Enzyme-JAX tensat/{}"  # a file of src/enzyme_ad/jax/deps/tensat of EnzymeAD/Enzyme-JAX


@dataclass(frozen=True)
class Rule:
    """left ⇒ right as the source has it."""

    name: str
    source: str
    left: Function
    right: Function
    inputs: tuple[Input, ...]


Written = tuple[str, Function, Function, tuple[Input, ...]]
Family = Callable[[Sizes], Sequence[Written]]


def rules_of(source: str, family: Family, sizes: Sizes) -> list[Rule]:
    """The rules of one folder or file of a source."""
    return [Rule(name, source, left, right, inputs) for name, left, right, inputs in family(sizes)]
