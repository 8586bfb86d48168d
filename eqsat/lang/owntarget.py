"""Targets of this machine: `target: auto`, and a shipped target scaled by figures measured here.

The lines of target files that a measurement writes come first, and whose they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from eqsat import host
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning, fail
from eqsat.model.dispatch import Constants
from eqsat.model.files import (
    cache_folder,
    code_digest,
    is_own,
    is_private,
    make_private,
    write_text,
)
from eqsat.model.target import MeasuredOn, Memory, Target
from eqsat.plugins import find_names

WIDTH = 96
# constants of plans, and the keys of `kernels:` that are not their names without _ps
TIMES = ("fma_ps", "load_ps", "scalar_ps", "strided_ps", "page_ps", "tile_ps", "loop_ps")
FIELDS = (*TIMES, "copy_rate")
KEYS = {"copy_rate": "copy"}


def versions() -> dict[str, str]:
    """Versions of the packages that the figures depend on."""
    return {name: version(name) for name in ("eqsat", "jax", "jaxlib", "llvmlite")}


def three_digits(value: float) -> float:
    """More would claim what a measurement does not know."""
    return float(f"{value:.3g}")


def folded_lines(text: str, indent: str = "  ") -> list[str]:
    """The lines of a folded text (`>-`)."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def measured_on(versions: Mapping[str, str], figures: int = 0) -> list[str]:
    """The lines of a target file that say which machine its figures are of.

    figures: how many were measured, if all others are scaled by them.
    """
    listed = ", ".join(f"{k}: {v}" for k, v in versions.items())
    caches = ", ".join(f"{size} B" for size in host.caches().values())
    return [
        "measured_on:",
        f"  processor: {json.dumps(host.processor())}",
        f"  features: [{', '.join(host.features())}]",
        f"  caches: [{caches}]",
        f"  cores: {host.cores()}",
        f"  versions: {{{listed}}}",
        *([f"  figures: {figures}"] if figures else ()),
    ]


def differences(measured: MeasuredOn) -> list[str]:
    """In what this machine is not the one measured: processor, features, caches, cores."""
    here = {
        "processor": host.processor(),
        "features": host.features(),
        "caches": tuple(host.caches().values()),
        "cores": host.cores(),
    }
    return [key for key, value in here.items() if getattr(measured, key) != value]


def memory_lines(memory: Sequence[Memory], launch_ps: int) -> list[str]:
    """The lines of a target file with its memory and its launch."""
    rates = ((m, three_digits(m.bandwidth / 1e9)) for m in memory)
    lines = [
        f"  - {{name: {m.name}, size: {m.size_bytes} B, bandwidth: {rate} GB/s}}"
        for m, rate in rates
    ]
    return ["memory:", *lines, f"launch: {launch_ps} ps"]


def constant_lines(c: Constants, xla_op_ps: int, source: str) -> list[str]:
    """The lines of a target file with the constants of its kernels, and the start of other ops."""
    lines = ["kernels:"]
    for field in FIELDS:
        key, value = KEYS.get(field, field.removesuffix("_ps")), getattr(c, field)
        scale, unit = (1, "ps") if field.endswith("_ps") else (1e9, "GB/s")
        lines.append(f"  {key}: {three_digits(value / scale)} {unit}")
    lines += [f"  overlap: {three_digits(c.overlap)}", f"  xla_op: {xla_op_ps} ps"]
    return [*lines, "  source: >-", *folded_lines(source, "    ")]


def scaled_text(base: str, target: Target, figures: int) -> str:
    """A file that extends a shipped target with its figures as they are scaled here."""
    k = target.kernels
    assert k is not None, "what is scaled has kernels"
    told = ", ".join(f"{k} {v}" for k, v in versions().items())
    source = (
        f"{figures} figures measured at first use on one core of {host.processor()}; {told}; the "
        f"least of several short tries. All others are those of {base}, scaled by them."
    )
    rates = ", ".join(f"{k}: {three_digits(v / 1e9)} GOP/s" for k, v in target.rates)
    lines = [
        f"target: {base}-here",
        f"extends: {base}",
        "doc: One core of this machine, a shipped target scaled by figures measured at first use.",
        "source: >-",
        *folded_lines(source),
        *measured_on(versions(), figures),
        *memory_lines(target.memory, target.launch_ps),
        f"rates: {{{rates}}}",
    ]
    if target.relayout is not None:
        lines.append(f"relayout: {three_digits(target.relayout / 1e9)} GB/s")
    return "\n".join([*lines, *constant_lines(k.constants, k.xla_op_ps, source)]) + "\n"


try:
    import fcntl
except ImportError:  # Windows: two processes may measure at once, and the file of one stays
    fcntl = None

VARIABLE, NEVER, ONCE = "EQSAT_MEASURE", "never", "once"
CHILD = Path(__file__).parents[1] / "execute" / "kernels" / "scale.py"
LONGEST_SECONDS = 600.0  # on the wall; a machine may be busy
SHOWN = 300  # characters of what a process says that cannot measure
MOST_FILES = 20
Load = Callable[[str | Path, Iterable[str | Path]], Target]


@dataclass(frozen=True)
class Scaled:
    """The file, or None; said: why there is none, or whose figures were found and not used."""

    path: Path | None
    said: str = ""


class _NotMeasured(Exception):
    """Why there are no figures, in a sentence."""


def scaled_here(base: Target, load: Load) -> Scaled:
    """The file of this target as it is on this machine. EqsatError (E271) for an odd `VARIABLE`.

    load: reads a target file.
    """
    asked = os.environ.get(VARIABLE, ONCE)
    if asked not in (NEVER, ONCE):
        help = f"`{NEVER}` or `{ONCE}`; left out, it is `{ONCE}`"
        raise fail("E271", f"`{VARIABLE}={asked}` is not understood", help=help)
    if asked == NEVER or not base.is_planned:
        return Scaled(None)
    return _cached(base.name, cache_folder("machine"), _key(base), load)


def _key(base: Target) -> str:
    """Key of cached figures: the machine, the target, and the code that prices plans."""
    machine = (host.processor(), host.features(), host.caches(), host.cores(), versions())
    figures = (base.kernels, base.memory, base.launch_ps, base.rates, base.relayout)
    told = repr((machine, figures, code_digest("plan")))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@cache
def _cached(name: str, folder: Path, key: str, load: Load) -> Scaled:
    """Read, or measured now and kept; asked for once in a process."""
    path = folder / f"{name}-{key}.yaml"
    try:
        make_private(folder)
        if not is_private(folder, "nothing is measured, and the shipped target is used as it is"):
            return Scaled(None, f"others may write to `{folder}`, so it was not measured")
        with _waited_for(folder):
            if _is_of_here(path, load):
                return Scaled(path)
            scaled = Scaled(path, _others(folder, load))
            write_text(path, _measured(name)).chmod(0o600)
            if not _is_of_here(path, load):
                path.unlink(missing_ok=True)
                raise _NotMeasured("what was measured is no target")
    except OSError as e:
        return Scaled(None, f"`{folder}` cannot be written, so it was not measured: {e.strerror}")
    except _NotMeasured as e:
        told = f"this machine could not be measured: {e}"
        d = Diagnostic("E272", told, help=f"the figures of `{name}` are used", severity="warning")
        warnings.warn(EqsatWarning(d), stacklevel=2)
        return Scaled(None, f"it could not be measured: {e}")
    _forget_oldest(folder)
    return scaled


@contextlib.contextmanager
def _waited_for(folder: Path) -> Iterator[None]:
    """One process at a time measures; the others wait and read what it kept."""
    if fcntl is None:
        yield
        return
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_of_here(path: Path, load: Load) -> bool:
    """Whether a file is there, whole, this user's own, and of this machine."""
    try:
        status = path.lstat()
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        is_private = stat.S_ISREG(status.st_mode) and is_own(status) and not others
        measured = load(path, ()).measured_on if is_private else None
    except (OSError, EqsatError):
        return False
    return measured is not None and not differences(measured)


def _others(folder: Path, load: Load) -> str:
    """Note of other machines whose figures are cached there; "" if there are none."""
    processors: set[str] = set()
    for path in folder.glob("*.yaml"):
        with contextlib.suppress(OSError, EqsatError):
            measured = load(path, ()).measured_on
            if measured is not None and differences(measured):
                processors.add(measured.processor)
    named = ", ".join(sorted(processors))
    return f"figures of another machine ({named}) were not used; " if processors else ""


def _measured(name: str) -> str:
    """The text of the file, from a process of its own."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    variables = {VARIABLE: NEVER, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": path}
    # -P: beside that file are modules named like those of the standard library
    command = [sys.executable, "-P", str(CHILD), name]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=os.environ | variables, timeout=LONGEST_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _NotMeasured(f"it took longer than {LONGEST_SECONDS:.0f} s") from None
    except OSError as e:
        raise _NotMeasured(f"no process could be started ({e})") from None
    if done.returncode:
        last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _NotMeasured(last[-1][:SHOWN])
    return done.stdout


def _forget_oldest(folder: Path) -> None:
    """Every version of eqsat and every machine has a file of its own."""
    with contextlib.suppress(OSError):
        files = sorted(folder.glob("*.yaml"), key=lambda p: p.stat().st_mtime)
        for path in files[:-MOST_FILES]:
            path.unlink(missing_ok=True)


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
    scaled = scaled_here(load(name, folders), load)
    if scaled.path is None:
        said = f"; {scaled.said}" if scaled.said else ""
        return name, f"{other}{why}{said}; {CALIBRATE}"
    return str(scaled.path), f"{other}{why}; {scaled.said}{SCALED}"


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
