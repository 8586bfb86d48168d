"""`eqsat pareto`: the front of a program, time × peak memory × dispatches or of other goals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.interrupt import KEPT, stops_at_once
from eqsat.cli.talk import Onlooker, progress, say

if TYPE_CHECKING:
    from eqsat.api.pareto import Front


def pareto(
    program: o.ProgramName,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    without: o.Without = None,
    unchecked: o.Unchecked = False,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal",
            help="A goal of the front, repeatable: time, memory, dispatches, relayout, resident,"
            " load_peak, or a plug-in's; default: time, memory, dispatches.",
        ),
    ] = None,
    budget: o.Budget = None,
    originals: o.Originals = None,
    setting: o.Settings = None,
    limit: o.SearchLimits = None,
    size: o.Sizes = None,
    weights: o.Weights = None,
    points: Annotated[
        int,
        typer.Option(
            "--points", min=1, help="The number of points at most, spread over the front."
        ),
    ] = 12,
    time_limit: Annotated[
        str, typer.Option("--time-limit", help="Wall time for the whole front: `60s`.")
    ] = "60s",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Keep the front, its page and each point's run here."),
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Find all best trade-offs between time, peak memory and dispatches, or between other goals.

    Every point is proven, or shown with its gap. Exit code 3 if nothing is admissible.
    """
    from eqsat.model.stopping import INTERRUPTED as STOPPED
    from eqsat.model.stopping import Stop

    stop, watch = Stop(), Onlooker()
    with stops_at_once(stop, watch):
        import eqsat
        from eqsat.api.pareto import check_front_place

        if out is not None:
            check_front_place(out)
        with progress(watch, quiet or output_format is o.Format.json):
            found = eqsat.pareto(
                eqsat.read(program, o.symbol_sizes(size), o.names(weights)),
                **o.search_request(rules, without, budget, limit, time_limit),
                target=target,
                unchecked=unchecked,
                settings=o.settings(setting, originals),
                goals=tuple(goal or eqsat.api.DEFAULT_GOALS),
                points=points,
                seed=seed,
                stop=stop,
                progress=watch,
            )
    if out is not None:
        found.save(out)
    o.print_found(found, output_format)
    if not quiet:
        _talk(found, out)
    return KEPT if found.stop == STOPPED else 0


def _talk(found: Front, out: Path | None) -> None:
    from eqsat.report.pareto import front_warnings

    for warning in front_warnings(found.told()):
        say(warning.full())
    if out is not None:
        say(f"wrote {out}    page: {out / 'pareto.html'}    why: `eqsat explain {out / 'point-1'}`")


COMMANDS = {"pareto": pareto}
