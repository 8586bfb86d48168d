"""The command that measures this machine: calibrate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli import options as o
from eqsat.cli.talk import say
from eqsat.model.diag import fail
from eqsat.model.textfile import read_text, write_text
from eqsat.plugins import user_folder

if TYPE_CHECKING:
    from eqsat.lab.calibrate import Calibration, KernelCalibration
    from eqsat.lab.calibrate.check import Agreement

    Measured = Calibration | KernelCalibration

MARK = "Measured by eqsat calibrate"  # in the `source` of files that may be written over
LARGEST = 1 << 20
Show = Callable[[str, float], None]


class TimedExecutor(StrEnum):
    """By whom programs run."""

    kernels = "kernels"
    xla = "xla"


def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="The target file to write; the default is `host`, which `auto` uses.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, coarser figures.")] = False,
    executor: Annotated[
        TimedExecutor | None,
        typer.Option(
            "--executor",
            help="What to time: generated kernels (the default where they run) or XLA's own ops.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Also compare the model with measured variants of programs."),
    ] = False,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Measure this machine, one core, and write it as a target.

    Figures are medians of CPU time over interleaved rounds. For kernels, dispatches of many shapes,
    layouts and epilogues are timed and the constants of plans are fitted to them; the file says how
    well they predict shapes that were left out. For XLA's ops, contractions and convolutions are
    timed by shape and order of dims, with elementwise passes, memory levels, transposes and the
    cost of one op. With --check, forms of small programs are timed too, and rank correlation and
    regret say how good the model is. A file that calibrate did not write is not replaced (E421).
    """
    from eqsat.lang.owntarget import HOST

    out = user_folder("targets") / f"{HOST}.yaml" if out is None else out
    _check_file(out)
    with _progress(quiet) as show:
        found = _measured(executor, quick, show)
        name, text = out.stem, found.to_yaml(out.stem)
        agreements = _agreements(found, show) if check else []
    write_text(out, text)
    if output_format is o.Format.json:
        report = {"target": name, "file": str(out)} | found.to_json()
        print(json.dumps(report | {"check": [a.to_json() for a in agreements]}))
    else:
        print(_table(found, agreements), end="")
    if not quiet:
        say(f"wrote {out}")
    return 0


def _measured(executor: TimedExecutor | None, quick: bool, show: Show) -> Measured:
    """The figures by the executor that is asked for, else by kernels if they run here."""
    from eqsat.lab import calibrate as lab

    base = lab.base_target()
    if executor is TimedExecutor.kernels and base is None:
        message = "there is no shipped target with kernels for this CPU"
        raise fail("E425", message, help="`--executor xla` measures XLA's own ops")
    if executor is TimedExecutor.xla or base is None:
        return lab.calibrate(quick=quick, progress=show)
    return lab.calibrate_kernels(base, quick=quick, progress=show)


def _check_file(out: Path) -> None:
    """Before anything is measured: a target's name, and nobody's own file."""
    from eqsat.lang.owntarget import AUTO

    named = re.fullmatch(r"[A-Za-z][\w.-]*\.ya?ml", out.name, re.ASCII)
    if named is None or out.is_dir() or out.stem == AUTO:
        what = f"`{out}` is no name for a target file"
        raise fail("E422", what, help="letters, digits, `_`, `-`: for example `-o host.yaml`")
    if out.exists() and MARK not in read_text(out, "E421", LARGEST):
        what = f"`{out}` was not written by `eqsat calibrate` and is left alone"
        raise fail("E421", what, help="write to another file with `-o`")


def _agreements(found: Measured, show: Show) -> list[Agreement]:
    from eqsat.lab.calibrate.check import agreement

    return agreement(found.to_target(), found.rounds, progress=show)


@contextmanager
def _progress(quiet: bool) -> Iterator[Show]:
    """A bar while a person is watching."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda *_: None
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("measuring", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


# ---- text ------------------------------------------------------------------------------------
def _table(found: Measured, agreements: Sequence[Agreement]) -> str:
    """Figures by what they are of, then what the model says of variants."""
    lines = [*found.lines()]
    for a in agreements:
        lines += ["", *_agreement(a)]
    return "\n".join(lines) + "\n"


def _agreement(a: Agreement) -> Iterator[str]:
    best = f"rank correlation {a.rank_correlation:.2f}, regret {100 * a.regret:.1f} %"
    yield f"{a.program}: {best}"
    yield f"  {'variant':12} {'predicted us':>14} {'measured us':>14}"
    for v in sorted(a.variants, key=lambda v: v.predicted_us):
        yield f"  {v.name:12} {v.predicted_us:14.1f} {v.measured_us:14.1f}"


COMMANDS: dict[str, Callable[..., Any]] = {"calibrate": calibrate}
