"""`eqsat bench`: saved runs on the clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.interrupt import stops_at_once
from eqsat.cli.talk import say
from eqsat.model.diag import fail


def bench(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs, from `optimize -o`: variants to rank.")
    ],
    dispatch: Annotated[
        list[int] | None,
        typer.Option(
            "--dispatch",
            help="Time only the dispatches of this number, of all runs side by side; repeatable."
            " `eqsat show DIR` numbers them.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=30, help="The number of interleaved rounds, at most.")
    ] = 30,
    pin: Annotated[
        int | None, typer.Option("--pin", min=0, help="Run on this core of the CPU only.")
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Time runs against each other: rank them, and show predicted beside measured per dispatch.

    Rounds are interleaved, figures are medians with 95 % intervals. A dispatch is timed alone, many
    times in a row, so its operands are in the caches that hold them.
    """
    if pin is not None:
        _pin(pin)
    with stops_at_once():
        import eqsat
        from eqsat.lab.bench import bench as timed

        runs = {str(f): eqsat.load(f) for f in folders}
        progress = (lambda _: None) if quiet else say
        found = timed(runs, dispatch or (), rounds=rounds, seed=seed, progress=progress)
    o.print_found(found, output_format)
    return 0


def _pin(core: int) -> None:
    """Before JAX starts its threads, which run where the process may; E400 if that is nowhere."""
    if not hasattr(os, "sched_setaffinity"):
        raise fail("E400", "`--pin` needs a system that pins processes, such as Linux")
    cores = sorted(os.sched_getaffinity(0))
    if core not in cores:
        known = ", ".join(map(str, cores))
        raise fail("E400", f"no core {core} for this process", help=f"it may use {known}")
    os.sched_setaffinity(0, {core})


COMMANDS = {"bench": bench}
