"""Targets of this machine: `target: auto`, and a shipped target scaled by figures measured here.

What is measured is kept, by machine, where nobody else may write, and the next process reads it. It
is measured by a process of its own, so that this one starts no threads and sets no flags.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from eqsat import host
from eqsat.lang.targettext import differences, versions
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning, fail
from eqsat.model.files import (
    cache_folder,
    code_digest,
    is_own,
    is_private,
    make_private,
    write_text,
)
from eqsat.model.target import MeasuredOn, Target
from eqsat.plugins import find_names

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
    """What figures are kept by: the machine, the target, and the code that prices plans."""
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
    """Whose figures are kept there that are not of this machine; "" if there are none."""
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
