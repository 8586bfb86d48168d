"""Commands that search one program: optimize, run against the reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import eqsat
from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, Onlooker, say, say_diagnostics, stops_at_once
from eqsat.model.deadline import Stop
from eqsat.model.diag import EqsatError
from eqsat.model.limits import WORK_LIMIT

if TYPE_CHECKING:
    from eqsat.api import Run


def optimize(
    program: o.ProgramName,
    asked: o.Asked,
    talk: o.Talk,
    goal: o.Goals = None,
    originals: o.Originals = None,
    layout: o.Layouts = None,
    layouts: o.AllLayouts = None,
    donate: o.Donated = None,
    size: o.Sizes = None,
    devices: o.DeviceMapName = None,
    mesh: o.MeshSizes = None,
    shard: o.Shards = None,
    mesh_front: Annotated[
        int,
        Option(
            min=0,
            metavar="N",
            help="Also print up to N plans for the mesh, from the quickest to the smallest.",
        ),
    ] = 0,
    time_limit: o.TimeLimit = "60s",
    stop_after: Annotated[o.Phase | None, Option(help="Stop after this phase.")] = None,
    verify: Annotated[
        bool, Option("--verify", help="Execute, and check against a float64 reference.")
    ] = False,
    print_after: o.PrintAfter = None,
    work_limit: o.WorkLimit = WORK_LIMIT,
    measure: Annotated[
        int,
        Option(
            min=0,
            metavar="N",
            help="Time N programs here (the best, nearly as good ones, the input) and keep the"
            " fastest.",
        ),
    ] = 0,
    check_compile: Annotated[
        bool,
        Option(
            "--check-compile",
            help="Ask the target's `oracle` about the best answers and the input; keep its best.",
        ),
    ] = False,
    compile_limit: o.CompileLimit = "300s",
    out: Annotated[Path | None, Option("-o", "--out", help="Keep the run in this folder.")] = None,
    device: o.DeviceName = None,
    extractor: o.Extractor = "cpsat",
    threads: o.Threads = 2,
    no_cache: o.NoCache = False,
) -> int:
    """Search for the best equivalent program and print what was found.

    Rules that eqsat does not ship are hunted for counterexamples first, for a second, once per
    machine. Exit codes: 1 if one is refuted or the result differs from the reference, 3 if nothing
    is admissible or nothing could be verified. Ctrl-C prints the best answer so far and saves it
    with `-o`, or says that there is none yet (exit code 130).
    """
    after = (("--verify", verify), ("--measure", measure), ("--check-compile", check_compile))
    later = [name for name, on in after if on]
    for option in later:
        if stop_after not in (None, o.Phase.schedule):
            raise typer.BadParameter(f"`{option}` needs a schedule, so it cannot stop before")
    stop, watch = Stop(), Onlooker()
    with stops_at_once(stop, watch):
        from eqsat.report.finished import stop_warnings

        _check_place(out)
        request: dict[str, Any] = {
            "goals": o.goals(goal),
            **asked.request(time_limit, originals),
            "layouts": o.layouts(layout, layouts),
            "donate": o.names(donate),
            "devices": devices,
            "mesh": mesh,
            "shards": o.shards(shard),
            "stop_after": stop_after.value if stop_after else None,
            "measure": measure,
            "check_compile": check_compile,
            "compile_limit": o.seconds(compile_limit, "--compile-limit"),
            "extractor": extractor,
            "threads": threads,
            "cache": not (no_cache or print_after),
            "stop": stop,
            "progress": watch,
            "verify": verify,
            "work_limit": work_limit if verify else None,
        }
        saved = _kept_first(out if later else None, request)
        with saved, o.on_device(device), talk.progress(watch), _said_after(print_after):
            run = eqsat.optimize(asked.read(program, size), **request)
    if out is not None:
        run.save(out)
    _print_run(run, talk, watch.phases if sys.stdout.isatty() else ())
    if mesh_front:
        _print_front(run, mesh_front, o.seconds(time_limit), talk.as_json)
    for warning in stop_warnings(run):  # a search that did not end by proof says so (E401)
        talk.say(warning.full())
    if out is not None:
        talk.say(f"wrote {out}    why: `eqsat explain {out}`    page: `eqsat report {out}`")
    if stop.is_requested:
        return KEPT
    return _verdict(run, talk.as_json)


def run_saved(
    folder: o.RunFolder,
    printed: o.Output,
    samples: o.Samples = 4,
    work_limit: o.WorkLimit = WORK_LIMIT,
    size: o.Sizes = None,
    seed: o.Seed = 0,
    device: o.DeviceName = None,
) -> int:
    """Execute a saved run and check it against a float64 reference.

    With `--size` at other sizes of the program's symbols, without another search. Exit codes: 1 if
    the result differs, 3 if nothing could be verified.
    """
    with stops_at_once(), o.on_device(device):
        run = o.load_run(folder, o.symbol_sizes(size))
        run.verify(samples=samples, seed=seed, work_limit=work_limit)
    _print_run(run, printed)
    return _verdict(run, printed.as_json)


def _said_after(passes: list[str] | None) -> AbstractContextManager[None]:
    """Says the program after these passes."""
    if not passes:
        return nullcontext()
    from eqsat.ops.spelling.passes import heard_after

    return heard_after(passes, say)


def _check_place(out: Path | None) -> None:
    """Before the search, not after it: can a run be kept there?"""
    if out is not None:
        from eqsat.run.artefact import check_run_place

        check_run_place(out)


@contextmanager
def _kept_first(out: Path | None, request: dict[str, Any]) -> Iterator[None]:
    """The answer is saved before it is timed, checked or verified; said if that then fails."""
    saved: list[Path] = []
    if out is not None:
        request["on_answer"] = lambda run: saved.append(run.save(out))
    try:
        yield
    except EqsatError:
        if saved:
            say(f"the answer of the search is kept in {out}, what follows it has failed")
        raise


def _print_run(run: Run, printed: o.Output, shown: Collection[str] = ()) -> None:
    """shown: the phases of which the terminal has a line already."""
    from eqsat.report.text import summary_text

    printed.show(run.summary, lambda: summary_text(run, shown))


def _print_front(run: Run, points: int, seconds: float, as_json: bool) -> None:
    """The front of a mesh: a table, or a JSON object of its own on the next line."""
    from eqsat.report.finished import by_figures
    from eqsat.report.mesh import front_table, plan_summary

    plans, program = run.mesh_front(points, seconds), run.cut_schedule.program
    if as_json:
        print(json.dumps({"format": 1, "points": [plan_summary(p, program) for p in plans]}))
    else:
        print(front_table(plans, by_figures(run.target, run.goals)), end="")


def _verdict(run: Run, as_json: bool) -> int:
    from eqsat.report.text import verification_problem

    v = run.verification
    if v is None or v.ok:
        return 0
    problem = verification_problem(v)
    say_diagnostics([problem], as_json)
    return 1 if problem.code == "E500" else 3
