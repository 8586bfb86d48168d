"""Commands whose answer is several programs: pareto, footprint, state, switch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

import eqsat
from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, Onlooker, stops_at_once
from eqsat.model.deadline import INTERRUPTED as STOPPED
from eqsat.model.deadline import Stop
from eqsat.model.diag import fail


def pareto(
    program: o.ProgramName,
    asked: o.Asked,
    talk: o.Talk,
    goal: Annotated[
        list[str] | None,
        Option(
            help="A goal of the front, repeatable: time, memory, dispatches, relayout, resident,"
            " load_peak, or a plug-in's; default: time, memory, dispatches."
        ),
    ] = None,
    originals: o.Originals = None,
    size: o.Sizes = None,
    points: Annotated[
        int, Option(min=1, help="The number of points at most, spread over the front.")
    ] = 12,
    time_limit: Annotated[str, Option(help="CPU time for the whole front: `60s`.")] = "60s",
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="Keep the front, its page and each point's run here."),
    ] = None,
) -> int:
    """Find all best trade-offs between time, peak memory and dispatches, or between other goals.

    Every point is proven, or shown with its gap. Exit code 3 if nothing is admissible.
    """
    stop, watch = Stop(), Onlooker()
    with stops_at_once(stop, watch):
        from eqsat.api.pareto import FILE
        from eqsat.report.pareto import front_warnings
        from eqsat.run.artefact import check_place

        if out is not None:
            check_place(out, FILE, "a front")
        with talk.progress(watch):
            front = eqsat.pareto(
                asked.read(program, size),
                **asked.request(time_limit, originals),
                goals=tuple(goal or eqsat.api.DEFAULT_GOALS),
                points=points,
                stop=stop,
                progress=watch,
            )
    if out is not None:
        front.save(out)
    talk.found(front)
    for warning in front_warnings(front.told()):
        talk.say(warning.full())
    if out is not None:
        talk.say(
            f"wrote {out}    page: {out / 'pareto.html'}    why: `eqsat explain {out / 'point-1'}`"
        )
    return KEPT if front.stop == STOPPED else 0


def footprint(
    program: o.ProgramName,
    asked: o.Asked,
    talk: o.Talk,
    goal: Annotated[
        list[str] | None,
        Option(
            help="What the joint plan minimises, repeatable; default: `time:within=1%`, load_peak,"
            " memory."
        ),
    ] = None,
    size: o.Sizes = None,
    time_limit: Annotated[str, Option(help="CPU time of each search: `60s`.")] = "60s",
    out: Annotated[
        Path | None, Option("-o", "--out", help="Keep the table and each way's run here.")
    ] = None,
) -> int:
    """Tell what a program takes in memory for each way in which its weights can come.

    X is the peak of a run without data tiling, Y the weights. Weights may come packed in the file,
    be packed at load, beside originals that are dropped or held, or in every run; in the joint plan
    each lives as its goals have it. Six searches. Exit code 3 if nothing is admissible.
    """
    watch = Onlooker()
    with stops_at_once(watch=watch):
        from eqsat.api.footprint import JOINT_GOALS, check_footprint_place

        if out is not None:
            check_footprint_place(out)
        with talk.progress(watch):
            found = eqsat.footprint(
                asked.read(program, size),
                **asked.request(time_limit),
                goals=tuple(goal or JOINT_GOALS),
                progress=watch,
            )
    if out is not None:
        found.save(out)
    talk.found(found)
    if out is not None:
        talk.say(f"wrote {out}    why: `eqsat explain {out / 'joint'}`")
    return 0


# ---- the layouts of a state ----------------------------------------------------------------------
def state(
    program: o.ProgramName,
    asked: o.Asked,
    talk: o.Talk,
    pairs: Annotated[
        list[str] | None,
        Option(
            "--state",
            metavar="ARGUMENT=RESULT",
            help="An argument, and the number of the result that replaces it in the next call.",
        ),
    ] = None,
    layout: o.Layouts = None,
    time_limit: Annotated[str, Option(help="CPU time of each search: `60s`.")] = "60s",
    out: Annotated[
        Path | None, Option("-o", "--out", help="Keep the best run in this folder.")
    ] = None,
) -> int:
    """Price every layout in which a program may keep its state, such as a cache, between calls.

    `NAME_state = {"cache": 1}` beside the function, or --state, says which result replaces which
    argument in the next call. The layout of an argument or result with `--layout NAME=free` is
    chosen in the same way; `free(calls=100)` prices one conversion by the caller in 100 calls. Each
    choice of layouts is one search; states with the same candidate layouts are kept alike.
    """
    from eqsat.api.reading import read_state
    from eqsat.report.state import row_text
    from eqsat.run.artefact import check_run_place

    if out is not None:
        check_run_place(out)
    given = dict(_pair(p) for p in pairs or ()) or read_state(program)
    watch = Onlooker()
    with talk.progress(watch):
        outcome = eqsat.keep_state(
            asked.read(program),
            state=given,
            layouts=o.layouts(layout),
            **asked.request(time_limit),
            progress=watch,
            on_tried=lambda row: None if talk.as_json else talk.say(row_text(row.told())),
        )
    if out is not None:
        outcome.run.save(out)
    talk.found(outcome)
    if out is not None:
        talk.say(f"wrote {out}")
    return 0


def _pair(text: str) -> tuple[str, int]:
    """`cache=1`; EqsatError E397 for anything else."""
    name, equals, number = text.partition("=")
    if not name or not equals or not number.isdigit():
        raise fail(
            "E397", f"`--state {text}` is not ARGUMENT=RESULT", help="e.g. `--state cache=1`"
        )
    return name, int(number)


# ---- a program for every size --------------------------------------------------------------------
def switch(
    program: o.ProgramName,
    asked: o.Asked,
    talk: o.Talk,
    sizes: Annotated[
        str,
        Option(
            metavar="NAME=FIRST..LAST",
            help="The sizes of an unknown dim: `m=1..1024`, or `m=16..1024:16`, in steps of 16.",
        ),
    ],
    goal: o.Goals = None,
    size: o.Sizes = None,
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
) -> int:
    """Find the best program of every size, and the sizes at which it changes, with proof.

    `eqsat.load(DIR)` is one function that picks its program by the size of its arguments. The time
    limit is of each search. Exit code 3 if a size has no admissible program.
    """
    from eqsat.run.artefact import SWITCH, check_place

    if out is not None:
        check_place(out, SWITCH, "a switch")
    watch = Onlooker()
    with talk.progress(watch):
        found = eqsat.switch(
            asked.read(program, size),
            sizes,
            **asked.request(time_limit),
            goals=o.goals(goal),
            within=within,
            searches=searches,
            progress=watch,
        )
    if out is not None:
        found.save(out)
    talk.found(found)
    if out is not None:
        talk.say(f"wrote {out}    call it: `eqsat.load({str(out)!r})`")
    return 0
