"""The command that writes a run's program for other tools: export."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli import options as o
from eqsat.cli.interrupt import stops_at_once
from eqsat.cli.talk import say

if TYPE_CHECKING:
    from eqsat.export.plan import Exported


class Language(StrEnum):
    """What other tools read."""

    mlir = "mlir"
    onnx = "onnx"


class WeightsPlace(StrEnum):
    """Where the weights go."""

    auto = "auto"
    constants = "constants"
    resources = "resources"
    arguments = "arguments"


class Exportable(StrEnum):
    """What of a run is written."""

    schedule = "schedule"
    program = "program"


def export(
    folder: o.RunFolder,
    to: Annotated[Language, typer.Option("--to", help="MLIR linalg text, or an ONNX model.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file; `DIR/export.mlir` if not given.")
    ] = None,
    of: Annotated[
        Exportable,
        typer.Option(
            "--of", help="The chosen program with its packed weights, or the input program."
        ),
    ] = Exportable.schedule,
    weights: Annotated[
        WeightsPlace,
        typer.Option(
            "--weights",
            help="In place; beside the text (ONNX: in a separate file); as arguments; or by"
            " their size.",
        ),
    ] = WeightsPlace.auto,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Write undefined functions for ops that cannot be exported."
        ),
    ] = False,
    size: o.Sizes = None,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Write the chosen program as MLIR or ONNX, for other tools; print the path of the file.

    A program with sizes that are not known is written at those that `--size` names. Exit code 2 if
    an op cannot be written: all such ops are listed, and nothing is written.
    """
    with stops_at_once():
        import eqsat

        path = out or folder / f"export.{to.value}"
        sizes = o.symbol_sizes(size)
        run = eqsat.load(folder)
        run = eqsat.bind(run, sizes) if sizes and run.family is not None else run
        found = run.export(
            to.value, path, of=of.value, weights=weights.value, partial=partial, sizes=sizes
        )
    if output_format is o.Format.json:
        print(json.dumps(_facts(to, path, found)))
    else:
        print(path)
    if not quiet:
        _say(to, path, found)
    return 0


def _facts(to: Language, path: Path, found: Exported) -> dict[str, Any]:
    return {
        "to": to.value,
        "files": {str(path.parent / (name or path.name)): len(data) for name, data in found.files},
        "ops": found.ops,
        "expressible": found.ops - len(found.missing),
        "missing": [vars(m) for m in found.missing],
    }


def _say(to: Language, path: Path, found: Exported) -> None:
    """What is missing, and a command that reads the file."""
    for m in found.missing:
        say(f"not written: {m}")
    if found.missing:
        count = len(found.missing)
        say(f"{count} of {found.ops} ops are calls of undefined functions")
    elif to is Language.mlir:
        say(f"check it with IREE: iree-opt {path}")
    else:
        say(f"check it with ONNX: onnx.checker.check_model({str(path)!r}, full_check=True)")


COMMANDS = {"export": export}
