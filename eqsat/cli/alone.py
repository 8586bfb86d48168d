"""Commands that run one part of eqsat on a public format: extract, place, shard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, say, say_diagnostics, stops_at_once
from eqsat.model.deadline import OUT_OF_TIME
from eqsat.model.diag import Diagnostic, fail
from eqsat.model.files import write_text
from eqsat.model.serialized import INFINITE_COST

NOTHING_ADMISSIBLE = 3
SHOWN_ROOTS = 5
SHOWN_NODES = 16  # of a sharding, whose strategies are printed in the nodes' order
STOPPED = {OUT_OF_TIME: "at its time limit", "memory": "out of memory", "interrupted": "by Ctrl-C"}


def extract_egraph(
    file: Annotated[
        Path, Argument(help="An e-graph as egraph-serialize JSON.", metavar="EGRAPH.json")
    ],
    time_limit: Annotated[
        str, Option(help="CPU time for all of it, reading included: `30s`.")
    ] = "30s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="Write the node chosen for each class here, as JSON."),
    ] = None,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Extract the cheapest DAG of an e-graph: each chosen node is paid once, from the roots.

    Prints status, DAG cost, and a proven lower bound. If time runs out, it prints the best answer
    so far, and a warning. Exit code 3 if the e-graph has no finite extraction.
    """
    from eqsat.model.deadline import Stop

    limit = o.seconds(time_limit)
    stop = Stop()
    with stops_at_once(None if out is None else stop):
        from eqsat.api import extract_egraph

        _check_file(out)
        extraction = extract_egraph(file, time_limit=limit, seed=seed, stop=stop)
    if out is not None and extraction["status"] != "infeasible":
        write_text(out, json.dumps(extraction, indent=1) + "\n")
    _print_extraction(extraction, output_format)
    if extraction["status"] == "infeasible":
        raise _no_extraction(file, extraction["lacking"])
    if extraction["status"] == "feasible" and not quiet:
        say_diagnostics([_stopped_early(extraction)], output_format is o.Format.json)
    if out is not None and not quiet:
        say(f"wrote {out}")
    return KEPT if extraction["stop"] == "interrupted" else 0


def place_buffers(
    file: Annotated[
        Path, Argument(help="Buffers as CSV: `id,lower,upper,size`.", metavar="BUFFERS.csv")
    ],
    capacity: Annotated[
        str | None,
        Option(help="Only find a placement within `1MiB` (or bytes, `1048576`), not the lowest."),
    ] = None,
    time_limit: Annotated[
        str, Option(help="CPU time for all of it, reading included: `60s`.")
    ] = "60s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Write the same columns and `offset` here, as CSV.")
    ] = None,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Place buffers in one arena: no overlap while both are live, and as low as possible.

    A buffer is live in the steps lower <= t < upper. Prints status, the height of the arena, and a
    proven lower bound. Exit code 3 if nothing fits the capacity (proven), or nothing that fits was
    found in time: the message says which.
    """
    from eqsat.model.deadline import Stop

    limit, most = o.seconds(time_limit), _capacity(capacity)
    stop = Stop()
    with stops_at_once(None if out is None else stop):
        from eqsat.api import place_buffers

        _check_file(out)
        placement = place_buffers(file, capacity=most, time_limit=limit, seed=seed, stop=stop)
    fits = placement["status"] in ("optimal", "feasible")
    if out is not None and fits:
        from eqsat.frontends.contests import placed_text

        write_text(out, placed_text(placement["rows"]))
    _print_placement(placement, output_format)
    if not fits:
        say_diagnostics([_does_not_fit(placement, most)], output_format is o.Format.json)
    elif placement["status"] == "feasible" and most is None and not quiet:
        say_diagnostics([_placed_early(placement)], output_format is o.Format.json)
    if out is not None and not quiet:
        say(f"wrote {out}" if fits else f"nothing was written to {out}, as nothing fits")
    if placement["stop"] == "interrupted":
        return KEPT
    return 0 if fits else NOTHING_ADMISSIBLE


def shard_graph(
    file: Annotated[
        Path, Argument(help="A graph as IOPDDL JSON, `.gz` or not.", metavar="GRAPH.json")
    ],
    time_limit: Annotated[
        str, Option(help="CPU time for all of it, reading included: `60s`.")
    ] = "60s",
    seed: o.Seed = 0,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Write the strategy of each node here, as JSON.")
    ] = None,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Choose a strategy for each node of a graph: least costs of nodes and edges, usage in limits.

    A node uses its strategy's usage in the steps lower <= t < upper. Prints status, cost, and a
    proven lower bound. One core. Exit code 3 if nothing is allowed (proven), or nothing that is
    allowed was found in time: the message says which.
    """
    from eqsat.model.deadline import Stop

    limit = o.seconds(time_limit)
    stop = Stop()
    with stops_at_once(None if out is None else stop):
        from eqsat.api import shard_graph

        _check_file(out)
        sharding = shard_graph(file, time_limit=limit, seed=seed, stop=stop)
    fits = sharding["status"] in ("optimal", "feasible")
    if out is not None and fits:
        write_text(out, json.dumps({"format": 1, **sharding}) + "\n")
    _print_sharding(sharding, output_format)
    if not fits:
        say_diagnostics([_no_sharding(file, sharding)], output_format is o.Format.json)
    elif sharding["status"] == "feasible" and not quiet:
        say_diagnostics([_sharded_early(sharding)], output_format is o.Format.json)
    if out is not None and not quiet:
        say(f"wrote {out}" if fits else f"nothing was written to {out}, as nothing is allowed")
    if sharding["stop"] == "interrupted":
        return KEPT
    return 0 if fits else NOTHING_ADMISSIBLE


# ---- extract -------------------------------------------------------------------------------------
def _print_extraction(extraction: dict[str, Any], output_format: o.Format) -> None:
    shown = {k: v for k, v in extraction.items() if k not in ("choices", "lacking")}
    if output_format is o.Format.json:
        print(json.dumps(shown))
        return
    print(f"status    {extraction['status']}")
    if extraction["status"] != "infeasible":
        print(f"dag cost  {extraction['dag_cost']:.12g}")
        print(f"bound     {extraction['bound']:.12g}   (gap {100 * extraction['gap']:.2f} %)")
        print(f"chosen    {len(extraction['choices'])} nodes")
    print(f"seconds   {extraction['seconds']:.2f}")


def _stopped_early(extraction: dict[str, Any]) -> Diagnostic:
    why = STOPPED | {"size": "early, as the e-graph is too large to search"}
    message = (
        f"the extraction stopped {why[extraction['stop']]}: {extraction['dag_cost']:.9g} was"
        f" found, nothing below {extraction['bound']:.9g} is possible"
        f" (gap {100 * extraction['gap']:.1f} %)"
    )
    longer = "a longer `--time-limit` may find more" if extraction["stop"] == OUT_OF_TIME else ""
    return Diagnostic("E401", message, help=longer, severity="warning")


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


def _print_placement(placement: dict[str, Any], output_format: o.Format) -> None:
    if output_format is o.Format.json:
        print(json.dumps({k: v for k, v in placement.items() if k != "rows"}))
        return
    print(f"status   {placement['status']}")
    if placement["status"] != "infeasible":
        print(f"height   {placement['height']}")
    print(f"bound    {placement['bound']}")
    print(f"seconds  {placement['seconds']:.2f}")


def _does_not_fit(placement: dict[str, Any], capacity: int | None) -> Diagnostic:
    if placement["status"] == "infeasible":
        message = f"nothing fits {capacity} bytes: no placement is lower than {placement['bound']}"
        return Diagnostic("E416", f"{message}, that is proven")
    message = (
        f"it is not known whether {capacity} bytes are enough: the search stopped"
        f" {STOPPED[placement['stop']]}, its lowest placement is {placement['height']} bytes high,"
        f" and nothing below {placement['bound']} is possible"
    )
    longer = "a longer `--time-limit` may find more" if placement["stop"] == OUT_OF_TIME else ""
    return Diagnostic("E416", message, help=longer)


def _placed_early(placement: dict[str, Any]) -> Diagnostic:
    message = (
        f"the placement stopped {STOPPED[placement['stop']]}: {placement['height']} bytes were"
        f" found, nothing below {placement['bound']} is possible"
    )
    longer = "a longer `--time-limit` may find more" if placement["stop"] == OUT_OF_TIME else ""
    return Diagnostic("E401", message, help=longer, severity="warning")


# ---- shard ---------------------------------------------------------------------------------------
def _print_sharding(sharding: dict[str, Any], output_format: o.Format) -> None:
    if output_format is o.Format.json:
        print(json.dumps({k: v for k, v in sharding.items() if k != "strategies"}))
        return
    print(f"status   {sharding['status']}")
    if sharding["cost"] is not None:
        print(f"cost     {sharding['cost']}")
    if sharding["bound"] is not None:
        gap = "" if sharding["gap"] is None else f"   (gap {100 * sharding['gap']:.2f} %)"
        print(f"bound    {sharding['bound']}{gap}")
    if chosen := sharding["strategies"]:
        more = f" …   (all {len(chosen)}: `-o FILE`)" if len(chosen) > SHOWN_NODES else ""
        print(f"chosen   {' '.join(map(str, chosen[:SHOWN_NODES]))}{more}")
    print(f"seconds  {sharding['seconds']:.2f}")


def _no_sharding(file: Path, sharding: dict[str, Any]) -> Diagnostic:
    if sharding["status"] == "infeasible":
        return Diagnostic(
            "E438",
            f"`{file}` has no allowed answer, that is proven: whatever is chosen, a cost is 10^18"
            " or more, or a step uses more than the limit",
        )
    message = (
        f"nothing that is allowed was found: the search stopped {_stop_word(sharding)}, and whether"
        f" `{file}` has an answer is not known"
    )
    longer = "a longer `--time-limit` may find one" if sharding["stop"] == OUT_OF_TIME else ""
    return Diagnostic("E438", message, help=longer)


def _sharded_early(sharding: dict[str, Any]) -> Diagnostic:
    message = (
        f"the search stopped {_stop_word(sharding)}: a cost of {sharding['cost']} was found,"
        f" nothing below {sharding['bound']} is possible"
    )
    longer = "a longer `--time-limit` may find more" if sharding["stop"] == OUT_OF_TIME else ""
    return Diagnostic("E401", message, help=longer, severity="warning")


def _stop_word(sharding: dict[str, Any]) -> str:
    return STOPPED.get(sharding["stop"], "early")


# ---- files ---------------------------------------------------------------------------------------
def _check_file(out: Path | None) -> None:
    """Before the search, not after it: can this file be written? EqsatError (E407)."""
    if out is None:
        return
    from eqsat.run.artefact import check_writable

    if out.is_dir():
        raise fail("E407", f"cannot write `{out}`: it is a folder")
    check_writable(out.absolute().parent)
