"""Commands that run one part of eqsat on a public format: extract, place, shard."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, say_diagnostics, stops_at_once
from eqsat.model.deadline import OUT_OF_TIME, Stop
from eqsat.model.diag import Diagnostic, fail
from eqsat.model.files import write_text
from eqsat.model.serialized import INFINITE_COST

NOTHING_ADMISSIBLE = 3
SHOWN_ROOTS = 5
SHOWN_NODES = 16  # of a sharding, whose strategies are printed in the nodes' order
FITS = ("optimal", "feasible")  # statuses of what has an answer
STOPPED = {
    OUT_OF_TIME: "at its time limit",
    "memory": "out of memory",
    "interrupted": "by Ctrl-C",
    "size": "early, as the e-graph is too large to search",
}
Found = dict[str, Any]  # what the API gives
AllOfIt = Annotated[str, Option(help="CPU time for all of it, reading included: `60s`.")]


def extract_egraph(
    file: Annotated[
        Path, Argument(help="An e-graph as egraph-serialize JSON.", metavar="EGRAPH.json")
    ],
    talk: o.Talk,
    time_limit: AllOfIt = "30s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="Write the node chosen for each class here, as JSON."),
    ] = None,
) -> int:
    """Extract the cheapest DAG of an e-graph: each chosen node is paid once, from the roots.

    Prints status, DAG cost, and a proven lower bound. If time runs out, it prints the best answer
    so far, and a warning. Exit code 3 if the e-graph has no finite extraction.
    """
    with _stopping(out) as stop:
        from eqsat.api import extract_egraph

        found = extract_egraph(file, time_limit=o.seconds(time_limit), seed=seed, stop=stop)
    _write(out, found, lambda: json.dumps(found, indent=1) + "\n")
    _print(found, ("choices", "lacking"), _extraction_lines, talk)
    if found["status"] == "infeasible":
        raise _no_extraction(file, found["lacking"])
    return _told(found, out, talk, partial(_stopped_early, found))


def place_buffers(
    file: Annotated[
        Path, Argument(help="Buffers as CSV: `id,lower,upper,size`.", metavar="BUFFERS.csv")
    ],
    talk: o.Talk,
    capacity: Annotated[
        str | None,
        Option(help="Only find a placement within `1MiB` (or bytes, `1048576`), not the lowest."),
    ] = None,
    time_limit: AllOfIt = "60s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Write the same columns and `offset` here, as CSV.")
    ] = None,
) -> int:
    """Place buffers in one arena: no overlap while both are live, and as low as possible.

    A buffer is live in the steps lower <= t < upper. Prints status, the height of the arena, and a
    proven lower bound. Exit code 3 if nothing fits the capacity (proven), or nothing that fits was
    found in time: the message says which.
    """
    limit, most = o.seconds(time_limit), _capacity(capacity)
    with _stopping(out) as stop:
        from eqsat.api import place_buffers
        from eqsat.frontends.contests import placed_text

        found = place_buffers(file, capacity=most, time_limit=limit, seed=seed, stop=stop)
    _write(out, found, lambda: placed_text(found["rows"]))
    _print(found, ("rows",), _placement_lines, talk)
    early = partial(_placed_early, found) if most is None else None
    return _told(found, out, talk, early, partial(_does_not_fit, found, most), "fits")


def shard_graph(
    file: Annotated[
        Path, Argument(help="A graph as IOPDDL JSON, `.gz` or not.", metavar="GRAPH.json")
    ],
    talk: o.Talk,
    time_limit: AllOfIt = "60s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Write the strategy of each node here, as JSON.")
    ] = None,
) -> int:
    """Choose a strategy for each node of a graph: least costs of nodes and edges, usage in limits.

    A node uses its strategy's usage in the steps lower <= t < upper. Prints status, cost, and a
    proven lower bound. One core. Exit code 3 if nothing is allowed (proven), or nothing that is
    allowed was found in time: the message says which.
    """
    with _stopping(out) as stop:
        from eqsat.api import shard_graph

        found = shard_graph(file, time_limit=o.seconds(time_limit), seed=seed, stop=stop)
    _write(out, found, lambda: json.dumps({"format": 1, **found}) + "\n")
    _print(found, ("strategies",), _sharding_lines, talk)
    return _told(
        found,
        out,
        talk,
        partial(_sharded_early, found),
        partial(_no_sharding, file, found),
        "is allowed",
    )


# ---- what the three have in common ---------------------------------------------------------------
@contextmanager
def _stopping(out: Path | None) -> Iterator[Stop]:
    """Ctrl-C ends the search inside: at once, or with its answer so far if a file is to have it."""
    stop = Stop()
    with stops_at_once(None if out is None else stop):
        _check_file(out)
        yield stop


def _check_file(out: Path | None) -> None:
    """Before the search, not after it: can this file be written? EqsatError (E407)."""
    if out is None:
        return
    from eqsat.run.artefact import check_writable

    if out.is_dir():
        raise fail("E407", f"cannot write `{out}`: it is a folder")
    check_writable(out.absolute().parent)


def _write(out: Path | None, found: Found, text: Callable[[], str]) -> None:
    if out is not None and found["status"] in FITS:
        write_text(out, text())


def _print(
    found: Found, left_out: Collection[str], lines: Callable[[Found], Iterator[str]], talk: o.Talk
) -> None:
    shown = {k: v for k, v in found.items() if k not in left_out}
    talk.show(lambda: shown, lambda: "".join(f"{line}\n" for line in lines(found)))


def _told(
    found: Found,
    out: Path | None,
    talk: o.Talk,
    early: Callable[[], Diagnostic] | None,
    problem: Callable[[], Diagnostic] | None = None,
    lacking: str = "",
) -> int:
    """Say what is not proven (early), or not there (problem), and what was written; the exit code.

    lacking: what nothing does where there is no answer.
    """
    fits = found["status"] in FITS
    if not fits and problem is not None:
        say_diagnostics([problem()], talk.as_json)
    elif found["status"] == "feasible" and early is not None and not talk.quiet:
        say_diagnostics([early()], talk.as_json)
    if out is not None:
        talk.say(f"wrote {out}" if fits else f"nothing was written to {out}, as nothing {lacking}")
    if found["stop"] == "interrupted":
        return KEPT
    return 0 if fits else NOTHING_ADMISSIBLE


def _early(found: Found, what: str, figures: str) -> Diagnostic:
    message = f"the {what} stopped {_stop_word(found)}: {figures}"
    return Diagnostic("E401", message, help=_longer(found, "more"), severity="warning")


def _longer(found: Found, what: str) -> str:
    return f"a longer `--time-limit` may find {what}" if found["stop"] == OUT_OF_TIME else ""


def _stop_word(found: Found) -> str:
    return STOPPED.get(found["stop"], "early")


# ---- extract -------------------------------------------------------------------------------------
def _extraction_lines(found: Found) -> Iterator[str]:
    yield f"status    {found['status']}"
    if found["status"] != "infeasible":
        yield f"dag cost  {found['dag_cost']:.12g}"
        yield f"bound     {found['bound']:.12g}   (gap {100 * found['gap']:.2f} %)"
        yield f"chosen    {len(found['choices'])} nodes"
    yield f"seconds   {found['seconds']:.2f}"


def _stopped_early(found: Found) -> Diagnostic:
    figures = f"{found['dag_cost']:.9g} was found, nothing below {found['bound']:.9g} is possible"
    return _early(found, "extraction", f"{figures} (gap {100 * found['gap']:.1f} %)")


def _no_extraction(file: Path, lacking: list[str]) -> Exception:
    roots = ", ".join(f"`{r}`" for r in lacking[:SHOWN_ROOTS])
    more = f" and {len(lacking) - SHOWN_ROOTS} more" if len(lacking) > SHOWN_ROOTS else ""
    return fail(
        "E415",
        f"`{file}` has no finite extraction: every choice for root {roots}{more} needs itself, or a"
        f" node whose cost counts as infinite ({INFINITE_COST} and more)",
        exit_code=NOTHING_ADMISSIBLE,
    )


# ---- place ---------------------------------------------------------------------------------------
def _capacity(text: str | None) -> int | None:
    """Bytes, with or without a unit."""
    from eqsat.lang.units import read_quantity

    if text is None:
        return None
    plain = text.strip().replace("_", "")
    if plain.isascii() and plain.isdigit() and len(plain) < 20:
        return int(plain)
    return int(read_quantity(text, "size", "--capacity"))


def _placement_lines(found: Found) -> Iterator[str]:
    yield f"status   {found['status']}"
    if found["status"] != "infeasible":
        yield f"height   {found['height']}"
    yield f"bound    {found['bound']}"
    yield f"seconds  {found['seconds']:.2f}"


def _does_not_fit(found: Found, capacity: int | None) -> Diagnostic:
    if found["status"] == "infeasible":
        message = f"nothing fits {capacity} bytes: no placement is lower than {found['bound']}"
        return Diagnostic("E416", f"{message}, that is proven")
    message = (
        f"it is not known whether {capacity} bytes are enough: the search stopped"
        f" {_stop_word(found)}, its lowest placement is {found['height']} bytes high,"
        f" and nothing below {found['bound']} is possible"
    )
    return Diagnostic("E416", message, help=_longer(found, "more"))


def _placed_early(found: Found) -> Diagnostic:
    figures = f"{found['height']} bytes were found, nothing below {found['bound']} is possible"
    return _early(found, "placement", figures)


# ---- shard ---------------------------------------------------------------------------------------
def _sharding_lines(found: Found) -> Iterator[str]:
    yield f"status   {found['status']}"
    if found["cost"] is not None:
        yield f"cost     {found['cost']}"
    if found["bound"] is not None:
        gap = "" if found["gap"] is None else f"   (gap {100 * found['gap']:.2f} %)"
        yield f"bound    {found['bound']}{gap}"
    if chosen := found["strategies"]:
        more = f" …   (all {len(chosen)}: `-o FILE`)" if len(chosen) > SHOWN_NODES else ""
        yield f"chosen   {' '.join(map(str, chosen[:SHOWN_NODES]))}{more}"
    yield f"seconds  {found['seconds']:.2f}"


def _no_sharding(file: Path, found: Found) -> Diagnostic:
    if found["status"] == "infeasible":
        return Diagnostic(
            "E438",
            f"`{file}` has no allowed answer, that is proven: whatever is chosen, a cost is 10^18"
            " or more, or a step uses more than the limit",
        )
    message = (
        f"nothing that is allowed was found: the search stopped {_stop_word(found)}, and whether"
        f" `{file}` has an answer is not known"
    )
    return Diagnostic("E438", message, help=_longer(found, "one"))


def _sharded_early(found: Found) -> Diagnostic:
    figures = f"a cost of {found['cost']} was found, nothing below {found['bound']} is possible"
    return _early(found, "search", figures)
