"""Commands whose answer is several programs: pareto, footprint, state, switch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, Onlooker, progress, say, stops_at_once

if TYPE_CHECKING:
    from eqsat.api.keep_state import Alternative
    from eqsat.api.pareto import Front


def pareto(
    program: o.ProgramName,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    without: o.Without = None,
    unchecked: o.Unchecked = False,
    goal: Annotated[
        list[str] | None,
        Option(
            help="A goal of the front, repeatable: time, memory, dispatches, relayout, resident,"
            " load_peak, or a plug-in's; default: time, memory, dispatches."
        ),
    ] = None,
    budget: o.Budget = None,
    originals: o.Originals = None,
    setting: o.Settings = None,
    limit: o.SearchLimits = None,
    size: o.Sizes = None,
    weights: o.Weights = None,
    points: Annotated[
        int, Option(min=1, help="The number of points at most, spread over the front.")
    ] = 12,
    time_limit: Annotated[str, Option(help="CPU time for the whole front: `60s`.")] = "60s",
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="Keep the front, its page and each point's run here."),
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Find all best trade-offs between time, peak memory and dispatches, or between other goals.

    Every point is proven, or shown with its gap. Exit code 3 if nothing is admissible.
    """
    from eqsat.model.deadline import INTERRUPTED as STOPPED
    from eqsat.model.deadline import Stop

    stop, watch = Stop(), Onlooker()
    with stops_at_once(stop, watch):
        import eqsat
        from eqsat.api.pareto import FILE
        from eqsat.run.artefact import check_place

        if out is not None:
            check_place(out, FILE, "a front")
        with progress(watch, quiet or output_format is o.Format.json):
            front = eqsat.pareto(
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
        front.save(out)
    o.print_found(front, output_format)
    if not quiet:
        _talk(front, out)
    return KEPT if front.stop == STOPPED else 0


def _talk(front: Front, out: Path | None) -> None:
    from eqsat.report.pareto import front_warnings

    for warning in front_warnings(front.told()):
        say(warning.full())
    if out is not None:
        say(f"wrote {out}    page: {out / 'pareto.html'}    why: `eqsat explain {out / 'point-1'}`")


def footprint(
    program: o.ProgramName,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    without: o.Without = None,
    unchecked: o.Unchecked = False,
    goal: Annotated[
        list[str] | None,
        Option(
            help="What the joint plan minimises, repeatable; default: `time:within=1%`, load_peak,"
            " memory."
        ),
    ] = None,
    budget: o.Budget = None,
    setting: o.Settings = None,
    limit: o.SearchLimits = None,
    size: o.Sizes = None,
    weights: o.Weights = None,
    time_limit: Annotated[str, Option(help="CPU time of each search: `60s`.")] = "60s",
    out: Annotated[
        Path | None, Option("-o", "--out", help="Keep the table and each way's run here.")
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Tell what a program takes in memory for each way in which its weights can come.

    X is the peak of a run without data tiling, Y the weights. Weights may come packed in the file,
    be packed at load, beside originals that are dropped or held, or in every run; in the joint plan
    each lives as its goals have it. Six searches. Exit code 3 if nothing is admissible.
    """
    watch = Onlooker()
    with stops_at_once(watch=watch):
        import eqsat
        from eqsat.api.footprint import JOINT_GOALS, check_footprint_place

        if out is not None:
            check_footprint_place(out)
        with progress(watch, quiet or output_format is o.Format.json):
            found = eqsat.footprint(
                eqsat.read(program, o.symbol_sizes(size), o.names(weights)),
                **o.search_request(rules, without, budget, limit, time_limit),
                target=target,
                unchecked=unchecked,
                settings=tuple(setting or ()),
                goals=tuple(goal or JOINT_GOALS),
                seed=seed,
                progress=watch,
            )
    if out is not None:
        found.save(out)
    o.print_found(found, output_format)
    if out is not None and not quiet:
        say(f"wrote {out}    why: `eqsat explain {out / 'joint'}`")
    return 0


# ---- the layouts of a state ----------------------------------------------------------------------
def state(
    program: o.ProgramName,
    pairs: Annotated[
        list[str] | None,
        Option(
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
    time_limit: Annotated[str, Option(help="CPU time of each search: `60s`.")] = "60s",
    out: Annotated[
        Path | None, Option("-o", "--out", help="Keep the best run in this folder.")
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
        outcome = eqsat.keep_state(
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
        outcome.run.save(out)
    o.print_found(outcome, output_format)
    if out is not None and not quiet:
        say(f"wrote {out}")
    return 0


def _say_row(alternative: Alternative) -> None:
    """A row as soon as its search ends, as all of them may take minutes."""
    from eqsat.report.state import row_text

    say(row_text(alternative.told()))


def _pair(text: str) -> tuple[str, int]:
    """`cache=1`; EqsatError E397 for anything else."""
    from eqsat.model.diag import fail

    name, equals, number = text.partition("=")
    if not name or not equals or not number.isdigit():
        raise fail(
            "E397", f"`--state {text}` is not ARGUMENT=RESULT", help="e.g. `--state cache=1`"
        )
    return name, int(number)


# ---- a program for every size --------------------------------------------------------------------
def switch(
    program: o.ProgramName,
    sizes: Annotated[
        str,
        Option(
            metavar="NAME=FIRST..LAST",
            help="The sizes of an unknown dim: `m=1..1024`, or `m=16..1024:16`, in steps of 16.",
        ),
    ],
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    without: o.Without = None,
    unchecked: o.Unchecked = False,
    goal: o.Goals = None,
    budget: o.Budget = None,
    setting: o.Settings = None,
    limit: o.SearchLimits = None,
    size: o.Sizes = None,
    weights: o.Weights = None,
    within: Annotated[
        float,
        Option(
            min=0,
            max=0.99,
            help="The program that runs may be worse than the best one by this share; 0: it is it.",
        ),
    ] = 0.01,
    searches: Annotated[
        int, Option(min=2, metavar="N", help="Search at so many sizes at most.")
    ] = 25,
    time_limit: o.TimeLimit = "60s",
    out: Annotated[
        Path | None, Option("-o", "--out", help="Keep the programs in this folder.")
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Find the best program of every size, and the sizes at which it changes, with proof.

    `eqsat.load(DIR)` is one function that picks its program by the size of its arguments. The time
    limit is of each search. Exit code 3 if a size has no admissible program.
    """
    import eqsat
    from eqsat.run.artefact import SWITCH, check_place

    if out is not None:
        check_place(out, SWITCH, "a switch")
    watch = Onlooker()
    with progress(watch, quiet or output_format is o.Format.json):
        found = eqsat.switch(
            eqsat.read(program, o.symbol_sizes(size), o.names(weights)),
            sizes,
            **o.search_request(rules, without, budget, limit, time_limit),
            target=target,
            unchecked=unchecked,
            settings=tuple(setting or ()),
            goals=o.goals(goal),
            within=within,
            searches=searches,
            seed=seed,
            progress=watch,
        )
    if out is not None:
        found.save(out)
    o.print_found(found, output_format)
    if out is not None and not quiet:
        say(f"wrote {out}    call it: `eqsat.load({str(out)!r})`")
    return 0
