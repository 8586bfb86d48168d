"""Whether arrays fit into this machine, asked in one place before anything is allocated.

A program may be searched at any size: prices are arithmetic. Only what holds its values (executing,
verifying, drawing weights that a file only names) needs as much memory as the values have bytes.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from eqsat.model.diag import fail
from eqsat.model.program import Program

_UNITS = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"))
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup/memory.max")  # what a Linux container may have


def need(nbytes: int, what: str) -> None:
    """EqsatError (E508) if this machine cannot hold so many bytes, whatever else it holds."""
    most = machine_bytes()
    if most is not None and nbytes > most:
        raise fail(
            "E508",
            f"{what} takes {in_units(nbytes)} of memory, this machine has {in_units(most)}",
            help="a search, an explanation or an export needs no values: leave out what does,"
            " or give smaller sizes",
        )


def reference_bytes(program: Program) -> int:
    """Least bytes of evaluating a program in float64: one op's operands and results."""
    sizes = [sum(t.size for t in n.types) for n in program.nodes]
    used = (sizes[i] + sum(sizes[o] for o in n.operands) for i, n in enumerate(program.nodes))
    return 8 * max(used, default=0)


@lru_cache(maxsize=1)
def machine_bytes() -> int | None:
    """Bytes this process may use at most: of the machine, of its container, by its limits.

    None where the system does not say.
    """
    limits = [n for n in (_physical(), _container(), _limit()) if n is not None]
    return min(limits, default=None)


def free_bytes() -> int | None:
    """Bytes this process may still take, as far as the system says."""
    try:
        rows = _MEMINFO.read_text(encoding="ascii").splitlines()
        free = [1024 * int(row.split()[1]) for row in rows if row.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        free = []
    most = machine_bytes()
    return min([*free, *([] if most is None else [most])], default=None)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not POSIX, or it does not tell
        return None


def _container() -> int | None:
    try:
        text = _CGROUP.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _limit() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def in_units(nbytes: int) -> str:
    """`1.5 GiB`."""
    for scale, unit in _UNITS:
        if nbytes >= scale:
            return f"{nbytes / scale:,.1f} {unit}"
    return f"{nbytes} B"
