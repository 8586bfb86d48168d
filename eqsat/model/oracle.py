"""Compilers that answer for a device which is not here, and the names of the devices they know."""

from __future__ import annotations

from dataclasses import dataclass

# compiler -> devices, by the names it is asked for; a device has one compiler
COMPILERS: dict[str, tuple[str, ...]] = {
    "libtpu": ("v4", "v5e", "v5p", "v6e"),
    "xla-cuda": ("a100", "h100", "h200", "b200"),
    "iree": (
        *("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
        *("x86-64", "x86-64-v3", "x86-64-v4"),
    ),
}
DEVICES = tuple(device for devices in COMPILERS.values() for device in devices)


@dataclass(frozen=True)
class Oracle:
    """A compiler that answers for one device."""

    compiler: str
    device: str

    def __str__(self) -> str:
        return f"{self.compiler} {self.device}"


def oracle_of(device: str) -> Oracle:
    """The compiler that is asked for a device; KeyError if there is none."""
    for compiler, devices in COMPILERS.items():
        if device in devices:
            return Oracle(compiler, device)
    raise KeyError(device)


def parse_oracle(text: str) -> Oracle:
    """`libtpu v5e` as a target names it; ValueError says what is wrong."""
    compiler, _, device = text.partition(" ")
    if compiler not in COMPILERS:
        raise ValueError(f"no compiler named `{compiler}`")
    if device not in COMPILERS[compiler]:
        raise ValueError(f"{compiler} knows no device `{device}`")
    return Oracle(compiler, device)
