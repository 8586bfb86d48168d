"""`eqsat judge`: what another compiler chose, beside the best program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.interrupt import stops_at_once

if TYPE_CHECKING:
    from eqsat.api import Run


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
        found = judged(run, read_foreign(place, run), time_limit=limit)
    o.print_found(found, output_format)
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
    asked = {"target": target, "rules": tuple(rules or ("default",)), "weights": o.names(weights)}
    return eqsat.optimize(program, **asked, time_limit=seconds)


COMMANDS = {"judge": judge}
