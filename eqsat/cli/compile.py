"""The command that asks the compiler of a device that is not here: compile."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.interrupt import stops_at_once
from eqsat.cli.talk import say

REFUSED = 3


def compile_saved(
    folder: o.RunFolder,
    device: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="DEVICE",
            help="`v5e`, `v5p`, `v6e`, `v4` (libtpu); `h100`, `a100`, `b200`, `h200` (XLA and"
            " ptxas); `gfx942`, `gfx90a`, `gfx1100` … (IREE).",
        ),
    ],
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            metavar="auto|arguments|constants",
            help="What weights are to the compiler; auto: arguments of XLA's, constants of IREE's.",
        ),
    ] = "auto",
    limit: o.CompileLimit = "300s",
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Ask the compiler of a device that is not here about a saved run.

    Prints kernels, memory, scratch, registers and cycles of the answer, as far as the compiler
    tells, beside those of the plain program and beside the prediction, and keeps them in the run
    for `eqsat report`. Exit code 3 if the compiler refuses the answer, crashes, or is not done.
    """
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs here; plug-ins need not look
    with stops_at_once():
        import eqsat
        from eqsat.report.compiled import told_lines
        from eqsat.run.artefact import keep

        found = eqsat.load(folder)
        told = found.compile_for(device, weights=weights, limit=o.seconds(limit, "--compile-limit"))
        if output_format is o.Format.json:
            print(json.dumps(told.summary()))
        else:
            print("\n".join(told_lines(told)))
        assert found.compiled is not None
        keep(folder, {"compiled": found.compiled.to_json(), "summary": found.summary()})
    if not quiet:
        say(f"kept in {folder}    page: `eqsat report {folder}`")
    return 0 if told.chosen.refused is None else REFUSED


COMMANDS = {"compile": compile_saved}
