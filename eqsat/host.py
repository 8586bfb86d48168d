"""The machine this process runs on: its processor with its features, its caches, its memory.

A program may be searched at any size: prices are arithmetic. Only what holds its values (executing,
verifying, drawing weights that a file only names) needs as much memory as the values have bytes;
`need` asks for it before anything is allocated.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from eqsat.model.diag import fail

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL = (
    ("l1", 32 << 10),
    ("l2", 1 << 20),
    ("l3", 32 << 20),
)  # caches where the system does not tell
LARGEST_PROBE = 256 << 20  # bytes of a buffer that memory is measured with
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
ARM, X86 = ("aarch64", "arm64"), ("x86_64", "amd64")
# features that kernels may use: the system's word -> LLVM's
FEATURES = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx_vnni": "avxvnni",
    "asimd": "neon",
    "asimdhp": "fullfp16",
    "asimddp": "dotprod",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}


def processor(path: Path = CPUINFO) -> str:
    """The processor's name, as the system says it."""
    name = _row(system_text(path), "model name") or platform.processor() or platform.machine()
    return re.sub(r"[^\w .()@+-]", "", name)[:80].strip()


def features(path: Path = CPUINFO) -> tuple[str, ...]:
    """Those of `FEATURES` that the processor has, in LLVM's words, sorted; for RISC-V, `v`."""
    text = system_text(path)
    words = set(f"{_row(text, 'flags')} {_row(text, 'Features')}".split())
    features = {FEATURES[w] for w in words & FEATURES.keys()}
    if riscv := re.match(r"rv\d+([a-z]*)", _row(text, "isa")):
        features |= {"v"} & set(riscv[1])  # letters are features, longer names come after a `_`
    if not features and platform.machine().lower() in (*ARM, *X86) and path == CPUINFO:
        features = _by_llvm()  # a system that has no such file
    return tuple(sorted(features))


@lru_cache(maxsize=1)
def _by_llvm() -> set[str]:
    from llvmlite import binding

    try:
        has = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell here
        has = {}
    if not has and platform.machine().lower() in ARM:
        return {"neon"}  # every one has it
    return {f for f in FEATURES.values() if has.get(f)}


def caches(folder: Path = CACHES) -> dict[str, int]:
    """Bytes of each unified or data cache by its level (`l1`, `l2` …); empty if unknown."""
    sizes: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = (system_text(index / key) for key in ("level", "type", "size"))
        written = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind in ("Unified", "Data") and level.isdigit() and written:
            sizes[f"l{level}"] = int(written[1]) * UNITS[written[2]]
    return dict(sorted((name, size) for name, size in sizes.items() if size))


def memory_bytes() -> int:
    """Bytes of main memory; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


@dataclass(frozen=True)
class MemoryLevel:
    """A memory level; probed_bytes is the size of the buffer that is measured in it."""

    name: str
    size_bytes: int
    probed_bytes: int


def memory_levels(folder: Path = CACHES, first: int = 2) -> list[MemoryLevel]:
    """Caches from level `first` on, and memory; usual sizes where they are unknown."""
    every = sorted(caches(folder).items()) or list(USUAL)
    levels = [c for c in every if int(c[0][1:]) >= first] or [every[-1]]
    last = levels[-1][1]
    memory = MemoryLevel("dram", max(memory_bytes(), 4 * last), min(4 * last, LARGEST_PROBE))
    return [*(MemoryLevel(name, size, size // 2) for name, size in levels), memory]


def cores() -> int:
    """Cores of the system, including those that this process may not use."""
    return os.cpu_count() or 1


def system_text(path: Path) -> str:
    """The text of a file of the system; empty if there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _row(text: str, key: str) -> str:
    """The first value of a key in /proc/cpuinfo."""
    match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""
