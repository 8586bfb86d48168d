"""Several devices: links between them, the op that crosses a link, the places of values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat.model.attr import Attr, InPlace, require, value_text

PS_PER_SECOND = 10**12  # times are whole picoseconds


@dataclass(frozen=True, eq=True)
class Transfer(InPlace):
    """A tensor copied from one device to another, in its layout."""

    kind: ClassVar[str] = "transfer"
    ops: ClassVar[Mapping[str, str]] = {"transfer": "transfer"}
    origin: str
    device: str
    __hash__ = Attr.__hash__

    def verify(self) -> None:
        """ShapeError for a transfer to where the tensor is."""
        require(self.origin != self.device, f"a transfer from `{self.origin}` to itself")

    def text(self, op: str) -> str:
        return f"origin={value_text(self.origin)}, device={value_text(self.device)}"


@dataclass(frozen=True)
class Link:
    """The price of a copy from `origin` to `device`: bytes per second, and a latency."""

    origin: str
    device: str
    bandwidth: float
    latency_ps: int

    def price_ps(self, nbytes: int) -> int:
        return self.latency_ps + round(nbytes * PS_PER_SECOND / self.bandwidth)


@dataclass(frozen=True)
class DeviceMap:
    """Devices by name with their targets, the links between them, and the places of values.

    targets: names or files of targets. values: names of inputs and weights, or `%h` for what a
    node of the program computes (as the program prints it), with the device of each; what is
    not named is where its first placed operand is, inputs are on the `default` device.
    """

    name: str
    doc: str
    targets: tuple[tuple[str, str], ...]
    default: str
    links: tuple[Link, ...]
    values: tuple[tuple[str, str], ...] = ()
    file: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.targets)
