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
    found = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


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
