"""Compilers of other devices asked: a lowered program and a device → what its compiler tells.

Devices have the names they are asked for, and those that each compiler calls them. Sizes of a
topology matter to none of the answers: one device of it is compiled for. The files of `chips/`
describe NVIDIA's parts to XLA in its own text format, each with its sources. IREE's compiler gets
exported MLIR text and tells dispatches, transient bytes, LDS, registers and spills. What cannot be
asked is a sentence why not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eqsat.execute.compilers import hlo
from eqsat.model.compiled import Figures, RefusedDispatch
from eqsat.model.diag import fail
from eqsat.model.oracle import Oracle

SHOWN_LINES = 4  # of what a compiler wrote before it ended


def run(
    command: Sequence[str | Path], what: str, limit: float, env: Mapping[str, str], folder: Path
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a compiler that ended by itself within `limit` seconds.

    what: it is called so in messages. env: besides the environment of this process. folder: where
    it works. All processes that it started end with it. EqsatError: E462 if a signal ended it,
    E463 if it was not done in time, E461 if it cannot be started.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=os.environ | dict(env), cwd=folder, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise fail("E461", f"{what} cannot be started: {error.strerror or error}") from error
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise fail(
                "E463",
                f"{what} was not done in {limit:g} s",
                help="give it more with `--compile-limit`, or a smaller program",
                exit_code=3,
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        output, errors = (f.read().decode(errors="replace") for f in (out, err))
    if code < 0:
        raise crashed(what, f"was ended by {signal.Signals(-code).name}", errors)
    return code, output, errors


def crashed(what: str, how: str, errors: str) -> Exception:
    """EqsatError E462 with the last lines that it wrote."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    last = " | ".join(lines[-SHOWN_LINES:])
    rest = f"; it wrote: {last}" if last else ""
    return fail(
        "E462",
        f"{what} {how}{rest}",
        help="this is a defect of the compiler, or of its installation",
        exit_code=3,
    )


BESIDE = Path(sys.prefix) / "accelerators"


def is_installed(package: str) -> bool:
    """Whether a process with `import_path` can import it; it is not imported here."""
    return is_in_environment(package) or is_beside(package)


def is_in_environment(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def is_beside(package: str) -> bool:
    return BESIDE.joinpath(*package.split(".")).is_dir()


def import_path(packages: Sequence[str]) -> dict[str, str]:
    """The environment of a process that imports these; what both have is the environment's."""
    if all(map(is_in_environment, packages)):
        return {}
    there = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*([there] if there else []), str(BESIDE)])}


def folders(package: str) -> Iterator[Path]:
    """Of a package that several distributions fill, as NVIDIA's do."""
    spec = find_spec(package)
    yield from map(Path, spec.submodule_search_locations or () if spec else ())
    yield BESIDE / package


CHIPS = Path(__file__).with_name("chips")


@dataclass(frozen=True)
class Tpu:
    """topology: of libtpu; kind: the device kind that JAX knows; accelerator: that of its host."""

    topology: str
    kind: str
    accelerator: str

    @property
    def environment(self) -> dict[str, str]:
        """With which libtpu asks nobody what this machine is, and locks nothing."""
        return {
            "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_ACCELERATOR_TYPE": self.accelerator, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }  # fmt: skip


@dataclass(frozen=True)
class Nvidia:
    """arch: what ptxas calls it."""

    arch: str


TPUS = {
    "v4": Tpu("v4:2x2x1", "TPU v4", "v4-8"),
    "v5e": Tpu("v5e:2x2", "TPU v5 lite", "v5litepod-4"),
    "v5p": Tpu("v5p:2x2x1", "TPU v5", "v5p-8"),
    "v6e": Tpu("v6e:2x2", "TPU v6 lite", "v6e-4"),
}
NVIDIA = {
    "a100": Nvidia("sm_80"),
    "h100": Nvidia("sm_90a"),
    "h200": Nvidia("sm_90a"),
    "b200": Nvidia("sm_100a"),
}


def description(chip: str) -> str:
    """XLA's description of one of NVIDIA's parts, without the comments."""
    lines = (CHIPS / f"{chip}.txtpb").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")) + "\n"


# ---- IREE ----------------------------------------------------------------------------------------
TOOL = "iree-compile"
_KEY = re.compile(r"^\s*(?:- )?\.(group_segment_fixed_size|\w+_count):\s+(\d+)$", re.MULTILINE)
_REFUSAL = re.compile(r"^.*?\berror: (.*)$", re.MULTILINE)
_ERROR = re.compile(r"^(.+?):(\d+):\d+: error: (.*)$", re.MULTILINE)
_DISPATCH = re.compile(r"\s*// dispatch (\d+)\b")  # what an export writes in front of its ops
LANE_BYTES = 4  # of a spilled register; a vector register has one for each of so many lanes
WAVE = {"gfx9": 64, "gfx1": 32}


def tool() -> Path:
    """Where the compiler is; EqsatError E461 if it is not installed."""
    beside = Path(sys.executable).with_name(TOOL)
    path = str(beside) if beside.is_file() else shutil.which(TOOL)
    if path is None:
        raise fail(
            "E461", f"`{TOOL}` is not installed", help="install it: `pip install 'eqsat[mlir]'`"
        )
    return Path(path)


def ask_iree(device: str, text: Path, limit: float, borders: int) -> Figures:
    """The figures of a module for one of AMD's parts, or for a CPU.

    text: the file of the module, with what it refers to beside it. borders: bytes of its arguments
    and results, which IREE does not allocate. EqsatError: E461 to E463.
    """
    place = text.parent
    stats, binaries = place / "statistics.json", place / "binaries"
    command = [
        tool(), text, "-o", place / "module.vmfb",
        *iree_flags(device),
        f"--iree-scheduling-dump-statistics-file={stats}",
        "--iree-scheduling-dump-statistics-format=json",
        f"--iree-hal-dump-executable-intermediates-to={binaries}",
    ]  # fmt: skip
    code, _, errors = run(command, f"{TOOL} for {device}", limit, {}, place)
    if code:
        lines = text.read_text(encoding="utf-8").splitlines()
        return Figures(
            refused=refusal(errors),
            refused_dispatches=refused_dispatches(errors, lambda _: lines),
        )
    asm = "\n".join(p.read_text(errors="replace") for p in sorted(binaries.glob("*.rocmasm")))
    return figures_of(json.loads(stats.read_text()), asm, device, borders)


def iree_flags(device: str) -> list[str]:
    """How IREE's compiler is told a device."""
    if not device.startswith("x86-64"):
        return ["--iree-hal-target-backends=rocm", f"--iree-rocm-target={device}"]
    return [
        "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-cpu={device}",
    ]  # fmt: skip


def figures_of(statistics: dict[str, dict[str, dict[str, int]]], asm: str, device: str,
               borders: int) -> Figures:  # fmt: skip
    """From IREE's statistics and the metadata that LLVM writes into the assembly of kernels."""
    totals = statistics["stream-aggregate"]
    ran, constants = totals["execution"], totals["global"]
    global_bytes = constants["constant-size"] + constants["variable-size"]
    metadata: dict[str, list[int]] = {}
    for key, value in _KEY.findall(asm):
        metadata.setdefault(key, []).append(int(value))
    lanes = next((n for head, n in WAVE.items() if device.startswith(head)), 1)
    spills = LANE_BYTES * (
        lanes * sum(metadata.get("vgpr_spill_count", ()))
        + sum(metadata.get("sgpr_spill_count", ()))
    )
    return Figures(
        kernels=ran["dispatch-count"],
        peak_bytes=borders + global_bytes + ran["transient-memory-size"],
        scratch_bytes=max(metadata.get("group_segment_fixed_size", ()), default=None),
        registers=max(metadata.get("vgpr_count", ()), default=None),
        spill_bytes=spills if asm else None,
    )


def refusal(log: str) -> str:
    """Why, in IREE's words: its first errors, or the last line that it wrote."""
    errors = list(dict.fromkeys(_REFUSAL.findall(log)))
    return " | ".join(errors[:2]) or (log.strip().splitlines() or ["no reason given"])[-1]


def refused_dispatches(
    log: str, module: Callable[[str], Sequence[str]]
) -> tuple[RefusedDispatch, ...]:
    """The dispatches of exported MLIR that a compiler's errors are about, by line, each once.

    module: the lines of the text that an error names.
    """
    refused: dict[int, RefusedDispatch] = {}
    for file, line, says in _ERROR.findall(log):
        above = module(file)[: int(line)]
        number = next((int(m[1]) for t in reversed(above) if (m := _DISPATCH.match(t))), None)
        if number is not None:
            refused.setdefault(number, RefusedDispatch(number, says.strip().rstrip(":")))
    return tuple(refused.values())


CHILD = Path(__file__).with_name("child.py")
PLATFORMS = {"libtpu": "tpu", "xla-cuda": "cuda"}  # of XLA, as JAX names them
# compiler -> (package, what installs it)
PACKAGES = {
    "libtpu": (("libtpu", "tpu"),),
    "xla-cuda": (("jax_plugins.xla_cuda12", "cuda"),),
}
DEFAULT_LIMIT = 300.0  # seconds for one program
SHOWN_REFUSAL = 600  # characters


@dataclass(frozen=True)
class Lowered:
    """A module as its compiler reads it. inputs: per input of the program its flat argument."""

    data: bytes
    inputs: tuple[int, ...] = ()


def need_compiler(oracle: Oracle) -> None:
    """EqsatError E461 if what the compiler of a device needs is not installed."""
    if oracle.compiler == "iree":
        tool()
        return
    for package, extra in PACKAGES[oracle.compiler]:
        if not is_installed(package):
            raise fail(
                "E461",
                f"the compiler for {oracle.device} needs the package `{package}`",
                help=f"install it: `pip install 'eqsat[{extra}]'`",
            )
    if oracle.compiler == "xla-cuda":
        cuda_tools()


def cuda_tools() -> Path:
    """The folder of CUDA with `bin/ptxas` in it; EqsatError E461 if there is none."""
    for place in folders("nvidia"):
        if (place / "cuda_nvcc" / "bin" / "ptxas").is_file():
            return place / "cuda_nvcc"
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        help_text = "install it: `pip install 'eqsat[cuda]'`"
        raise fail("E461", "`ptxas`, NVIDIA's assembler, is not installed", help=help_text)
    return Path(ptxas).parent.parent


@contextmanager
def place_for(oracle: Oracle) -> Iterator[Path]:
    """A folder for the files of one question."""
    with TemporaryDirectory(prefix=f"eqsat-{oracle.device}-") as folder:
        yield Path(folder)


Way = tuple[Mapping[int, Any], Mapping[int, Any]]  # as of `child.compile_module`


def ask_xla_ways(
    oracle: Oracle, module: bytes, ways: Sequence[Way], limit: float = DEFAULT_LIMIT
) -> list[Figures]:
    """Figures of an oracle that tells cycles, one for every way in which arrays may lie.

    limit: seconds for all of them.
    """
    need_compiler(oracle)
    with place_for(oracle) as folder:
        return [_of_tpu(answer) for answer in _answer(oracle, module, limit, folder, ways)]


def _of_tpu(answer: Mapping[str, Any]) -> Figures:
    if "refused" in answer:
        return Figures(refused=shortened(answer["refused"]))
    return hlo.module_figures(
        answer["text"], main_memory_bytes(answer["memory"]), counts_cycles=True
    )


def ask_xla(oracle: Oracle, module: bytes, limit: float = DEFAULT_LIMIT) -> Figures:
    """Figures of XLA for this device of a program that `jax.export` wrote.

    limit: seconds. EqsatError: E461 if its package is missing, E462 if it crashes, E463 if it is
    not done in time. What it refuses is in the figures.
    """
    need_compiler(oracle)
    with place_for(oracle) as folder:
        answer = _answer(oracle, module, limit, folder)
        if oracle.compiler == "libtpu" or "refused" in answer:
            return _of_tpu(answer)
        peak = main_memory_bytes(answer["memory"])
        return _of_nvidia(oracle, answer["text"], peak, limit, folder)


def shortened(refusal: str) -> str:
    """The beginning of what a compiler says, on one line."""
    text = " ".join(refusal.split())
    return text if len(text) <= SHOWN_REFUSAL else f"{text[:SHOWN_REFUSAL]}…"


def main_memory_bytes(memory: Mapping[str, int]) -> int:
    """Of the device's main memory.

    XLA's peak for TPUs counts what lies in VMEM, too, which is no part of the sum of arguments,
    results and temporaries; that sum counts pages that temporaries do not fill.
    """
    total = memory["argument"] + memory["output"] + memory["temp"] - memory["alias"]
    return min(total, memory["peak"]) if memory["peak"] else total


def _answer(
    oracle: Oracle, module: bytes, limit: float, folder: Path, ways: Sequence[Way] = ()
) -> Any:
    """The answer of the child."""
    request, answer, given = (folder / n for n in ("request.json", "answer.json", "module.bin"))
    given.write_bytes(module)
    question = {"platform": PLATFORMS[oracle.compiler], "module": str(given)}
    question |= {"ways": ways} if ways else {}
    topology, env = _tpu(oracle) if oracle.compiler == "libtpu" else _cuda(oracle, folder)
    request.write_text(json.dumps(question | {"topology": topology}), encoding="utf-8")
    env |= import_path([package for package, _ in PACKAGES[oracle.compiler]])
    what = f"{oracle.compiler} for {oracle.device}"
    command = [sys.executable, "-P", CHILD, request, answer]  # -P: nothing here hides a package
    code, _, errors = run(command, what, limit, env, folder)
    if code or not answer.is_file():
        raise crashed(what, f"ended with exit code {code}", errors)
    return json.loads(answer.read_text(encoding="utf-8"))


Topology = tuple[str, dict[str, str]]


def _tpu(oracle: Oracle) -> tuple[Topology, dict[str, str]]:
    """JAX itself stays on the CPU."""
    chip = TPUS[oracle.device]
    return (chip.topology, {}), chip.environment | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}


def _cuda(oracle: Oracle, folder: Path) -> tuple[Topology, dict[str, str]]:
    flags = f"--xla_dump_to={folder / 'dump'} --xla_gpu_cuda_data_dir={cuda_tools()}"
    options = {"target_config": description(oracle.device), "topology": "1x1x1"}
    return (oracle.device, options), {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def _of_nvidia(oracle: Oracle, text: str, peak: int, limit: float, folder: Path) -> Figures:
    """Kernels and shared memory from XLA's list of steps, registers from ptxas."""
    figures = hlo.module_figures(text, peak, counts_cycles=False)
    sequences = sorted((folder / "dump").glob("*.thunk_sequence.txt"))
    steps = "\n".join(p.read_text(errors="replace") for p in sequences)
    count, shared = hlo.launches(steps) if sequences else (figures.kernels, None)
    logs = [_ptxas(oracle, p, limit) for p in sorted((folder / "dump").glob("*.ptx"))]
    registers, spills = hlo.most(hlo.assembled("\n".join(logs)))
    return Figures(count, peak, shared, registers, spills, relayout_copies=figures.relayout_copies)


def _ptxas(oracle: Oracle, source: Path, limit: float) -> str:
    """Output of ptxas for one file; "" if it refuses it."""
    command = [
        cuda_tools() / "bin" / "ptxas", "-v", f"-arch={NVIDIA[oracle.device].arch}", source,
        "-o", os.devnull,
    ]  # fmt: skip
    code, out, errors = run(command, f"ptxas for {oracle.device}", limit, {}, source.parent)
    return "" if code else out + errors
