"""In which order the dims of arguments and results lie in memory, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.model.layout import Border, Layout

LISTED = ("chosen", "left", "compiler", "ties")
SEARCH, CALLER, COMPILER = "search", "caller", "compiler"  # who says in which order a tensor lies


@dataclass(frozen=True)
class Ordered:
    """An argument or result whose dims lie in memory as `order` says, the outermost first.

    Its shape is as it was: dim order[0] of it is the one whose neighbours are furthest apart (as
    `major_to_minor` of JAX). name: as messages call it. by: `search`, or `caller`.
    """

    name: str
    border: Border
    order: tuple[int, ...]
    by: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.border.kind,
            "number": self.border.number,
            "order": list(self.order),
            "by": self.by,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ordered:
        """Undo `to_json`."""
        border = Border(data["kind"], data["number"])
        return cls(data["name"], border, tuple(data["order"]), data["by"], data["why"])


@dataclass(frozen=True)
class MemoryOrders:
    """Outcome of free orders: those that are not plain, and what the others would cost.

    left: arguments and results that lie plainly, where the compiler of an accelerator may choose if
    it says that this costs less. compiler: those that are the compiler's alone.
    ties: number of a donated argument, and of the result that is written in its place.
    goal: the first one; plain, value: what it is with plain arguments and with these, in its own
    unit (ps, bytes, a count); bound: what no order could be below, None where not all were
    looked at. tried: searches of an e-graph with free orders, or in orders. why: a sentence.
    """

    chosen: tuple[Ordered, ...] = ()
    left: tuple[Border, ...] = ()
    compiler: tuple[Border, ...] = ()
    ties: tuple[tuple[int, int], ...] = ()
    goal: str = ""
    plain: float | None = None
    value: float | None = None
    bound: float | None = None
    tried: int = 0
    why: str = ""

    @property
    def by_border(self) -> dict[Border, tuple[int, ...]]:
        """The order of every argument and result that is not plain."""
        return {o.border: o.order for o in self.chosen}

    def to_json(self) -> dict[str, Any]:
        rest = {k: v for k, v in vars(self).items() if k not in LISTED}
        return {
            "chosen": [o.to_json() for o in self.chosen],
            "left": [[b.kind, b.number] for b in self.left],
            "compiler": [[b.kind, b.number] for b in self.compiler],
            "ties": [list(pair) for pair in self.ties],
            **rest,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryOrders:
        """Undo `to_json`."""
        chosen = tuple(map(Ordered.from_json, data["chosen"]))
        left, compiler = (tuple(Border(k, n) for k, n in data[key]) for key in ("left", "compiler"))
        ties = tuple((argument, result) for argument, result in data["ties"])
        return cls(
            **dict(data) | {"chosen": chosen, "left": left, "compiler": compiler, "ties": ties}
        )


@dataclass(frozen=True)
class AskedOrders:
    """What `layouts=` says. layouts: requests other than orders, by name; orders: by the caller.

    free: ties that are left to the search, one order each; compiler: left to the back end alone.
    ties: as of `MemoryOrders`.
    """

    layouts: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[Border, tuple[int, ...]] = field(default_factory=dict)
    free: tuple[tuple[Border, ...], ...] = ()
    compiler: tuple[Border, ...] = ()
    ties: tuple[tuple[int, int], ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether an order is asked for, or left free."""
        return bool(self.orders or self.free or self.compiler)


def layout_in(order: tuple[int, ...], shape: tuple[int, ...]) -> Layout:
    """A tensor of this shape whose dims lie in this order, as the layout of a border."""
    return Layout(shape, (), (), order, ())
