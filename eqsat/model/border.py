"""Layouts of a program's border: those in which the caller passes arguments and gets results."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.layout import Encoding, Layout

Held = Layout | Encoding  # what a border may be fixed to; an encoding is the target's to resolve


@dataclass(frozen=True, order=True)
class Border:
    """An argument (`input`) or a result of a program, by its number."""

    kind: str  # input | result
    number: int


@dataclass(frozen=True)
class Free:
    """The search chooses the layout. calls: of these one needs the caller to convert.

    The conversion is priced as a dispatch of its own, its time divided by `calls`; 0: the caller
    has the tensor in any layout at no cost.
    """

    calls: int = 0
