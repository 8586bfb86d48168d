"""The target of this machine, where none is named: `target: auto`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from eqsat import host
from eqsat.lang.scaled import Load, scaled_here
from eqsat.lang.targettext import differences
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.target import MeasuredOn, Target
from eqsat.plugins import find_names

AUTO = "auto"
HOST = "host"  # what `eqsat calibrate` writes if it is told no other name
# shipped targets with the features of the CPUs that they are for, the best first
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
SHIPPED = (
    ("avx512-vnni", ("avx512vnni", *AVX512)),
    ("avx512", AVX512),
    ("avx2", ("avx2", "fma")),
    ("arm64", ("neon",)),
    ("riscv64", ("v",)),
)
FALLBACK = "reference"
CALIBRATE = "`eqsat calibrate` measures this machine"
SCALED = "scaled by figures measured here, which `eqsat calibrate` refines"
Folders = Iterable[str | Path]


def own_target(folders: Folders, load: Load) -> tuple[str, str]:
    """The name or file of this machine's target, and why.

    `host` if it was calibrated here, else the shipped one for its CPU, scaled by what is measured
    here at first use. load: reads a target by name.
    """
    other = ""
    if HOST in find_names("targets", ".yaml", folders):
        measured = load(HOST, folders).measured_on
        if measured is None:
            return HOST, "it is on the search path"
        if not differences(measured):
            return HOST, "it was calibrated on this machine"
        other = f"`{HOST}` was calibrated on another machine ({measured.processor}); "
    name, why = shipped()
    found = scaled_here(load(name, folders), load)
    if found.path is None:
        said = f"; {found.said}" if found.said else ""
        return name, f"{other}{why}{said}; {CALIBRATE}"
    return str(found.path), f"{other}{why}; {found.said}{SCALED}"


def shipped() -> tuple[str, str]:
    """The shipped target that the features of this CPU name, and why."""
    has = set(host.features())
    for name, needed in SHIPPED:
        if has.issuperset(needed):
            return name, f"this CPU has {needed[0]}"
    return FALLBACK, "no shipped target is for this CPU"


def warn_if_elsewhere(target: Target) -> None:
    """Warn (E217), once in a process, if the target's figures are of another machine."""
    for one in (target, *(t for _, t in target.devices)):
        measured = one.measured_on
        if measured is None or measured in _warned:
            continue
        if which := differences(measured):
            _warned.add(measured)
            what = f"the figures of `{one.name}` were measured on another machine"
            what += f" ({measured.processor}): it differs in {', '.join(which)}"
            d = Diagnostic("E217", what, help=CALIBRATE, severity="warning")
            warnings.warn(EqsatWarning(d), stacklevel=2)


_warned: set[MeasuredOn] = set()
