"""IREE's compiler on exported MLIR text: dispatches, transient bytes, LDS, registers and spills."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from eqsat.execute.compilers.process import run
from eqsat.model.compiled import Figures
from eqsat.model.diag import fail

TOOL = "iree-compile"
_KEY = re.compile(r"^\s*(?:- )?\.(group_segment_fixed_size|\w+_count):\s+(\d+)$", re.MULTILINE)
_REFUSAL = re.compile(r"^.*?\berror: (.*)$", re.MULTILINE)
LANE_BYTES = 4  # of a spilled register; a vector register has one for each of so many lanes
WAVE = {"gfx9": 64, "gfx1": 32}


def tool() -> Path:
    """Where the compiler is; EqsatError E461 if it is not installed."""
    beside = Path(sys.executable).with_name(TOOL)
    found = str(beside) if beside.is_file() else shutil.which(TOOL)
    if found is None:
        raise fail(
            "E461", f"`{TOOL}` is not installed", help="install it: `pip install 'eqsat[mlir]'`"
        )
    return Path(found)


def ask_iree(device: str, text: Path, limit: float, borders: int) -> Figures:
    """The figures of a module for one of AMD's parts.

    text: the file of the module, with what it refers to beside it. borders: bytes of its arguments
    and results, which IREE does not allocate. EqsatError: E461 to E463.
    """
    place = text.parent
    stats, made = place / "statistics.json", place / "binaries"
    command = [
        tool(), text, "-o", place / "module.vmfb",
        "--iree-hal-target-backends=rocm", f"--iree-rocm-target={device}",
        f"--iree-scheduling-dump-statistics-file={stats}",
        "--iree-scheduling-dump-statistics-format=json",
        f"--iree-hal-dump-executable-intermediates-to={made}",
    ]  # fmt: skip
    code, _, said = run(command, f"{TOOL} for {device}", limit, {}, place)
    if code:
        return Figures(refused=refusal(said))
    asm = "\n".join(p.read_text(errors="replace") for p in sorted(made.glob("*.rocmasm")))
    return figures_of(json.loads(stats.read_text()), asm, device, borders)


def figures_of(statistics: dict[str, dict[str, dict[str, int]]], asm: str, device: str,
               borders: int) -> Figures:  # fmt: skip
    """From IREE's statistics and the metadata that LLVM writes into the assembly of kernels."""
    told = statistics["stream-aggregate"]
    ran, held = told["execution"], told["global"]
    kept = held["constant-size"] + held["variable-size"]
    found: dict[str, list[int]] = {}
    for key, value in _KEY.findall(asm):
        found.setdefault(key, []).append(int(value))
    lanes = next((n for head, n in WAVE.items() if device.startswith(head)), 1)
    spills = LANE_BYTES * (
        lanes * sum(found.get("vgpr_spill_count", ())) + sum(found.get("sgpr_spill_count", ()))
    )
    return Figures(
        kernels=ran["dispatch-count"],
        peak_bytes=borders + kept + ran["transient-memory-size"],
        scratch_bytes=max(found.get("group_segment_fixed_size", ()), default=None),
        registers=max(found.get("vgpr_count", ()), default=None),
        spill_bytes=spills if asm else None,
    )


def refusal(said: str) -> str:
    """Why, in IREE's words: its first errors, or the last line that it wrote."""
    found = list(dict.fromkeys(_REFUSAL.findall(said)))
    return " | ".join(found[:2]) or (said.strip().splitlines() or ["no reason given"])[-1]
