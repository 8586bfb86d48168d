"""Commands that measure: this machine, runs on the clock, what compilers of other devices count."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from eqsat.cli import completion
from eqsat.cli import options as o
from eqsat.cli.talk import say, stops_at_once
from eqsat.model.diag import fail
from eqsat.model.files import read_text, write_text
from eqsat.plugins import user_folder

if TYPE_CHECKING:
    from eqsat.lab.calibrate import Calibration, KernelCalibration
    from eqsat.lab.calibrate.check import Agreement
    from eqsat.model.compiled import RefusedDispatch
    from eqsat.run.run import Run

    Measured = Calibration | KernelCalibration

MARK = "Measured by eqsat calibrate"  # in the `source` of files that may be written over
LARGEST = 1 << 20
Show = Callable[[str, float], None]


class TimedExecutor(StrEnum):
    """By whom programs run."""

    kernels = "kernels"
    xla = "xla"


def calibrate(
    talk: o.Talk,
    out: Annotated[
        Path | None,
        Option(
            "-o",
            "--out",
            help="The target file to write; the default is `host`, which `auto` uses.",
        ),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Fewer rounds, coarser figures.")] = False,
    executor: Annotated[
        TimedExecutor | None,
        Option(
            help="What to time: generated kernels (the default where they run) or XLA's own ops."
        ),
    ] = None,
    check: Annotated[
        bool, Option("--check", help="Also compare the model with measured variants of programs.")
    ] = False,
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
    with _progress(talk.quiet) as show:
        calibration = _measured(executor, quick, show)
        name, text = out.stem, calibration.to_yaml(out.stem)
        agreements = _agreements(calibration, show) if check else []
    write_text(out, text)
    report = {"target": name, "file": str(out)} | calibration.to_json()
    report |= {"check": [a.to_json() for a in agreements]}
    talk.show(lambda: report, lambda: _table(calibration, agreements))
    talk.say(f"wrote {out}")
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


def _agreements(calibration: Measured, show: Show) -> list[Agreement]:
    from eqsat.lab.calibrate.check import agreement

    return agreement(calibration.to_target(), calibration.rounds, progress=show)


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
def _table(calibration: Measured, agreements: Sequence[Agreement]) -> str:
    """Figures by what they are of, then what the model says of variants."""
    lines = [*calibration.lines()]
    for a in agreements:
        lines += ["", *_agreement(a)]
    return "\n".join(lines) + "\n"


def _agreement(a: Agreement) -> Iterator[str]:
    best = f"rank correlation {a.rank_correlation:.2f}, regret {100 * a.regret:.1f} %"
    yield f"{a.program}: {best}"
    yield f"  {'variant':12} {'predicted us':>14} {'measured us':>14}"
    for v in sorted(a.variants, key=lambda v: v.predicted_us):
        yield f"  {v.name:12} {v.predicted_us:14.1f} {v.measured_us:14.1f}"


# ---- saved runs on the clock ---------------------------------------------------------------------
def bench(
    folders: Annotated[
        list[Path],
        Argument(
            autocompletion=completion.runs,
            help="Folders of runs, from `optimize -o`: variants to rank.",
        ),
    ],
    talk: o.Talk,
    dispatch: Annotated[
        list[int] | None,
        Option(
            help="Time only the dispatches of this number, of all runs side by side; repeatable."
            " `eqsat show DIR` numbers them."
        ),
    ] = None,
    variants: Annotated[
        int | None,
        Option(
            min=2,
            help="Time so many plans of the one dispatch of one run instead: other tiles, vector"
            " loops, operand orders and blocks, evenly from the cheapest price to the dearest.",
        ),
    ] = None,
    rounds: Annotated[int, Option(min=30, help="The number of interleaved rounds, at most.")] = 30,
    pin: Annotated[int | None, Option(min=0, help="Run on this core of the CPU only.")] = None,
    trace: Annotated[
        Path | None,
        Option(
            help="Also write the first run's schedule here as a trace for Perfetto: predicted times"
            " and, beside them, the measured ones."
        ),
    ] = None,
    seed: o.Seed = 0,
) -> int:
    """Time runs against each other: rank them, and show predicted beside measured per dispatch.

    Rounds are interleaved, figures are medians with 95 % intervals. A dispatch is timed alone, many
    times in a row, so its operands are in the caches that hold them. With `--variants`: plans of
    one dispatch, and how well their prices order them.
    """
    if variants is not None and (len(folders) != 1 or len(dispatch or ()) != 1 or trace):
        what = "`--variants` is about one dispatch of one run"
        raise fail("E400", what, help="`eqsat bench DIR --dispatch N --variants K`")
    if pin is not None:
        _pin(pin)
    with stops_at_once():
        from eqsat.lab.bench import bench as timed

        runs = {str(f): o.load_run(f) for f in folders}
        if variants is not None and dispatch:
            from eqsat.lab.variants import bench_plans

            of = next(iter(runs.items()))
            found = bench_plans(
                *of, dispatch[0], variants, rounds=rounds, seed=seed, progress=talk.say
            )
            talk.found(found)
            return 0
        bench_result = timed(runs, dispatch or (), rounds=rounds, seed=seed, progress=talk.say)
    talk.found(bench_result)
    if trace is not None:
        from eqsat.export.timeline import trace_text

        name, run = next(iter(runs.items()))
        write_text(trace, trace_text(run.need_schedule(), bench_result.measured_us(name)))
        talk.say(f"wrote {trace}    open it in ui.perfetto.dev or chrome://tracing")
    return 0


def _pin(core: int) -> None:
    """Before JAX starts its threads, which run where the process may; E400 if that is nowhere."""
    if not hasattr(os, "sched_setaffinity"):
        raise fail("E400", "`--pin` needs a system that pins processes, such as Linux")
    cores = sorted(os.sched_getaffinity(0))
    if core not in cores:
        available = ", ".join(map(str, cores))
        raise fail("E400", f"no core {core} for this process", help=f"it may use {available}")
    os.sched_setaffinity(0, {core})


# ---- compilers of devices that are not here ------------------------------------------------------
REFUSED = 3


def compile_saved(
    folder: o.RunFolder,
    device: Annotated[
        str,
        Option(
            "--for",
            metavar="DEVICE",
            help="`v5e`, `v5p`, `v6e`, `v4` (libtpu); `h100`, `a100`, `b200`, `h200` (XLA and"
            " ptxas); `gfx942`, `gfx90a`, `gfx1100`, `x86-64`, `x86-64-v3` … (IREE).",
        ),
    ],
    talk: o.Talk,
    refusals: Annotated[
        Path | None,
        Option(
            metavar="TARGET.yaml",
            help="Record dispatches that are refused in a target, whose answers then avoid them.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        Option(
            help="With --refusals: ask nobody, read what a compiler said about an exported module."
        ),
    ] = None,
    dispatch: Annotated[
        int | None, Option(help="With --log: the dispatch it is about, if it names none.")
    ] = None,
    weights: Annotated[
        str,
        Option(
            metavar="auto|arguments|constants",
            help="What weights are to the compiler; auto: arguments of XLA's, constants of IREE's.",
        ),
    ] = "auto",
    compile_limit: o.CompileLimit = "300s",
) -> int:
    """Ask the compiler of a device that is not here about a saved run.

    Prints kernels, memory, scratch, registers and cycles of the answer, as far as the compiler
    tells, beside those of the plain program and beside the prediction, and keeps them in the run
    for `eqsat report`. Exit code 3 if the compiler refuses the answer, crashes, or is not done.
    """
    if log is not None or dispatch is not None:
        return _record_log(folder, device, refusals, log, dispatch)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs here; plug-ins need not look
    with stops_at_once():
        from eqsat.report.compiled import told_lines
        from eqsat.run.artefact import keep

        run = o.load_run(folder)
        answer = run.compile_for(
            device, weights=weights, limit=o.seconds(compile_limit, "--compile-limit")
        )
        talk.show(answer.summary, lambda: "\n".join([*told_lines(answer), ""]))
        assert run.compiled is not None
        keep(folder, {"compiled": run.compiled.to_json(), "summary": run.summary()})
        if refusals is not None:
            _record(run, answer.chosen.refused_dispatches, answer.oracle, refusals)
    talk.say(f"kept in {folder}    page: `eqsat report {folder}`")
    return 0 if answer.chosen.refused is None else REFUSED


def _record_log(
    folder: Path, device: str, refusals: Path | None, log: Path | None, dispatch: int | None
) -> int:
    """Record what a file has a compiler say about a saved run."""
    if log is None or refusals is None:
        alone = "--dispatch" if log is None else "--log"
        partner = "--log" if log is None else "--refusals"
        raise fail("E400", f"`{alone}` goes with `{partner}`", help=f"write `{partner} FILE` too")
    from eqsat.run.refused import logged_about, logged_dispatches

    refused = logged_dispatches(log) if dispatch is None else logged_about(log, dispatch)
    _record(o.load_run(folder), refused, f"{device}, {log.name}", refusals)
    return 0


def _record(run: Run, refused: Sequence[RefusedDispatch], source: str, file: Path) -> None:
    from eqsat.run.refused import record, refusals_of

    program = run.source.program.name
    rows = refusals_of(run.need_schedule(), run.target, refused, f"{source}: {program}")
    if not rows:
        say(f"no dispatch was refused; nothing was recorded in {file}")
        return
    new = record(file, run.target, rows)
    say(f"recorded {new} refused dispatch(es) in {file}    search again: `--target {file}`")
