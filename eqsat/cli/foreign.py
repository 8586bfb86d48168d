"""Commands about other compilers and tools: judge what they chose, export what eqsat chose."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli import options as o
from eqsat.cli.talk import say, stops_at_once

if TYPE_CHECKING:
    from eqsat.api import Run
    from eqsat.export.plan import Exported


def judge(
    file: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, a row `results/ROW`, XLA's HLO text after optimization"
            " (`jax.jit(f).lower(*args).compile().as_text()`), or IREE's dispatches"
            " (`iree-compile --compile-to=dispatch-creation`)."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--run", help="The folder of the run to judge by, from `optimize -o`."),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option("--program", help="Or the program, which is searched first: `x.py:function`."),
    ] = None,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    weights: o.Weights = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", help="Wall time of the search, and of all prices: `60s`.")
    ] = "60s",
    output_format: o.OutputFormat = o.Format.text,
    verbose: o.Verbose = False,
) -> int:
    """Price what another compiler chose: its gap to the best program, the price of each decision.

    Tells which of its dispatches the target does not permit, and which of its values no rule makes.
    """
    with stops_at_once():
        from eqsat.api.judge import judge as judged
        from eqsat.api.judge import read_foreign
        from eqsat.lab.kept import run_folder

        limit = o.seconds(time_limit)
        run = _best(folder, program, target, rules, weights, limit)
        place = file if file.is_file() else run_folder(file)
        judgement = judged(run, read_foreign(place, run), time_limit=limit)
    o.print_found(judgement, output_format)
    return 0


def _best(
    folder: Path | None,
    program: str | None,
    target: str,
    rules: list[str] | None,
    weights: list[str] | None,
    seconds: float,
) -> Run:
    """The run to judge by; EqsatError E400 if neither or both ways to name one are taken."""
    import eqsat
    from eqsat.model.diag import fail

    if (folder is None) == (program is None):
        help = "`--run DIR` takes a search that was kept, `--program PROGRAM --target T` searches"
        raise fail("E400", "judging needs a run or a program to judge by, one of both", help=help)
    if folder is not None:
        if target != "auto" or rules or weights:
            what = "`--target`, `--rules` and `--weights` are those of the run"
            raise fail("E400", what, help="leave them out, or name the program instead of `--run`")
        return eqsat.load(folder)
    assert program is not None
    request = {"target": target, "rules": tuple(rules or ("default",)), "weights": o.names(weights)}
    return eqsat.optimize(program, **request, time_limit=seconds)


# ---- for other tools -----------------------------------------------------------------------------
class Language(StrEnum):
    """File formats of other tools."""

    mlir = "mlir"
    onnx = "onnx"


class WeightsPlace(StrEnum):
    """Where the weights go."""

    auto = "auto"
    constants = "constants"
    resources = "resources"
    arguments = "arguments"


class Exportable(StrEnum):
    """Parts of a run that can be written."""

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
        exported = run.export(
            to.value, path, of=of.value, weights=weights.value, partial=partial, sizes=sizes
        )
    if output_format is o.Format.json:
        print(json.dumps(_facts(to, path, exported)))
    else:
        print(path)
    if not quiet:
        _say(to, path, exported)
    return 0


def _facts(to: Language, path: Path, exported: Exported) -> dict[str, Any]:
    return {
        "to": to.value,
        "files": {
            str(path.parent / (name or path.name)): len(data) for name, data in exported.files
        },
        "ops": exported.ops,
        "expressible": exported.ops - len(exported.missing),
        "missing": [vars(m) for m in exported.missing],
    }


def _say(to: Language, path: Path, exported: Exported) -> None:
    """Says which ops are missing, and a command that reads the file."""
    for m in exported.missing:
        say(f"not written: {m}")
    if exported.missing:
        count = len(exported.missing)
        say(f"{count} of {exported.ops} ops are calls of undefined functions")
    elif to is Language.mlir:
        say(f"check it with IREE: iree-opt {path}")
    else:
        say(f"check it with ONNX: onnx.checker.check_model({str(path)!r}, full_check=True)")
