"""`eqsat state`: the layouts a program's state may be kept in between calls, and their prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.talk import Onlooker, progress, say

if TYPE_CHECKING:
    from eqsat.api.keep_state import Alternative


def state(
    program: o.ProgramName,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="ARGUMENT=RESULT",
            help="An argument, and the number of the result that replaces it in the next call.",
        ),
    ] = None,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    without: o.Without = None,
    unchecked: o.Unchecked = False,
    budget: o.Budget = None,
    setting: o.Settings = None,
    layout: o.Layouts = None,
    limit: o.SearchLimits = None,
    weights: o.Weights = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", help="Wall time of each search: `60s`.")
    ] = "60s",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Keep the best run in this folder.")
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Price every layout in which a program may keep its state, such as a cache, between calls.

    `NAME_state = {"cache": 1}` beside the function, or --state, says which result replaces which
    argument in the next call. The layout of an argument or result with `--layout NAME=free` is
    chosen in the same way; `free(calls=100)` prices one conversion by the caller in 100 calls. Each
    choice of layouts is one search; states with the same candidate layouts are kept alike.
    """
    import eqsat
    from eqsat.api.reading import read_state
    from eqsat.run.artefact import check_run_place

    if out is not None:
        check_run_place(out)
    given = dict(_pair(p) for p in pairs or ()) or read_state(program)
    watch = Onlooker()
    with progress(watch, quiet or output_format is o.Format.json):
        found = eqsat.keep_state(
            eqsat.read(program, weights=o.names(weights)),
            state=given,
            layouts=o.layouts(layout),
            **o.search_request(rules, without, budget, limit, time_limit),
            target=target,
            unchecked=unchecked,
            settings=tuple(setting or ()),
            seed=seed,
            progress=watch,
            on_tried=_say_row if not quiet and output_format is o.Format.text else lambda _: None,
        )
    if out is not None:
        found.run.save(out)
    o.print_found(found, output_format)
    if out is not None and not quiet:
        say(f"wrote {out}")
    return 0


def _say_row(found: Alternative) -> None:
    """A row as soon as its search ends, as all of them may take minutes."""
    from eqsat.report.state import row_text

    say(row_text(found.told()))


def _pair(text: str) -> tuple[str, int]:
    """`cache=1`; EqsatError E397 for anything else."""
    from eqsat.model.diag import fail

    name, equals, number = text.partition("=")
    if not name or not equals or not number.isdigit():
        raise fail(
            "E397", f"`--state {text}` is not ARGUMENT=RESULT", help="e.g. `--state cache=1`"
        )
    return name, int(number)


COMMANDS = {"state": state}
