"""The memory levels that are measured, and one core of this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from eqsat import host

USUAL = (("l1", 32 << 10), ("l2", 1 << 20), ("l3", 32 << 20))  # where the system does not tell
LARGEST_PROBE = 256 << 20
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True)
class MemoryLevel:
    """A memory level; probed_bytes is the size of the buffer that is measured in it."""

    name: str
    size_bytes: int
    probed_bytes: int


def memory_levels(folder: Path = host.CACHES, first: int = 2) -> list[MemoryLevel]:
    """Caches from level `first` on, and memory; usual sizes where they are unknown."""
    every = sorted(host.caches(folder).items()) or list(USUAL)
    caches = [c for c in every if int(c[0][1:]) >= first] or [every[-1]]
    last = caches[-1][1]
    found = [MemoryLevel(name, size, size // 2) for name, size in caches]
    memory = max(host.memory_bytes(), 4 * last)
    return [*found, MemoryLevel("dram", memory, min(4 * last, LARGEST_PROBE))]


def use_one_core() -> None:
    """XLA on one thread, the process on one core; only before JAX is initialised for good."""
    if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
