"""This machine: its processor's name, its caches, one core of it."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL = (("l2", 1 << 20), ("l3", 32 << 20))  # where the system does not tell
LARGEST_PROBE = 256 << 20
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Level:
    """A memory level; probed_bytes is the size of the buffer that is measured in it."""

    name: str
    size_bytes: int
    probed_bytes: int


def levels(folder: Path = CACHES) -> list[Level]:
    """Caches from the second level on, and memory; usual sizes where the system does not tell."""
    caches = sorted(_caches(folder).items()) or list(USUAL)
    last = caches[-1][1]
    found = [Level(name, size, size // 2) for name, size in caches]
    return [*found, Level("dram", max(_memory(), 4 * last), min(4 * last, LARGEST_PROBE))]


def _caches(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        read = {key: _read(index / key) for key in ("level", "type", "size")}
        size = re.fullmatch(r"(\d+)([KMG]?)", read["size"])
        if read["type"] == "Unified" and read["level"].isdigit() and size:
            nbytes = int(size[1]) * _UNITS[size[2]]
            if nbytes:
                found[f"l{read['level']}"] = nbytes
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system says it."""
    named = re.search(r"^model name\s*:\s*(.+)$", _read(path), re.MULTILINE)
    found = named[1].strip() if named else platform.processor() or platform.machine()
    return re.sub(r"[^\w .()@+-]", "", found)[:80]


def use_one_core() -> None:
    """XLA on one thread, the process on one core; only before JAX is initialised for good."""
    if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
