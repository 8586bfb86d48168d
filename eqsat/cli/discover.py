"""`eqsat discover`: small equalities that a rule set does not prove, as rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, say, stops_at_once

if TYPE_CHECKING:
    from eqsat.lab.discover.find import Ask, Discoveries

SECONDS = 60.0


def discover(
    ops: Annotated[
        list[str] | None,
        typer.Option(
            "--ops",
            metavar="NAMES",
            help="The ops of terms, with commas or repeatable: `matmul,sum,slice`;"
            " docs/discover.md lists them.",
        ),
    ] = None,
    rules: o.Rules = None,
    without: o.Without = None,
    leaves: Annotated[
        int, typer.Option("--leaves", help="The most operands of a term: 1 to 4.")
    ] = 2,
    size: Annotated[int, typer.Option("--size", help="The most ops of a term: 1 to 5.")] = 3,
    programs: Annotated[
        list[str] | None,
        typer.Option(
            "--programs",
            metavar="PROGRAM",
            help="Rank proposals by their gain on this program, repeatable.",
        ),
    ] = None,
    target: o.TargetName = "reference",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="KEY=N",
            help="`seconds=60` for all of it; `nodes=20000`, `rounds=10`, `matches=50000` of"
            " each proof; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the proposed rules to this YAML file.")
    ] = None,
    seed: o.Seed = 0,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Find small equalities that the rules do not prove, and propose them as hunted rules.

    Terms over a few operands are enumerated, those with equal values are put into one e-graph, and
    pairs that the rules do not unite become rules with examples. Ctrl-C keeps what was found.
    """
    from eqsat.model.deadline import Stop

    stop = Stop()
    wish = _wish(ops, leaves, size, limit, seed)
    _check_place(out)
    with stops_at_once(stop):
        from eqsat import api
        from eqsat.lab.discover.find import discover as find
        from eqsat.lang.rulesets import load_rulesets
        from eqsat.lang.targets import load_target

        for name in programs or ():
            api.read(name)  # says what is wrong before a minute has passed
        ruleset = load_rulesets(rules or ("full",)).without(*(without or ()))
        discovery = find(wish, ruleset, load_target(target), tuple(programs or ()), stop)
    if out is not None:
        out.write_text(discovery.file(f"found/{_set_name(out)}"), encoding="utf-8")
    if output_format is o.Format.json:
        print(json.dumps(discovery.to_json()))
    else:
        print(_table(discovery), end="")
    if not quiet:
        _talk(discovery, out)
    return KEPT if discovery.stop == "interrupted" else 0


def _wish(ops: list[str] | None, leaves: int, size: int, limit: list[str] | None, seed: int) -> Ask:
    from eqsat.lab.discover.find import DEFAULT_FORMS, Ask

    limits = o.search_limits(limit)
    seconds = SECONDS if limits.seconds is None else limits.seconds
    return Ask(
        tuple(dict.fromkeys(o.names(ops))) or DEFAULT_FORMS, leaves, size, seconds, seed, limits
    )


def _check_place(out: Path | None) -> None:
    """EqsatError (E418) if the rules could not be written there when they are found."""
    from eqsat.model.diag import fail

    if out is None:
        return
    if out.suffix != ".yaml":
        raise fail("E418", f"--out {out}: a rule set is a `.yaml` file")
    if out.is_dir() or not out.parent.is_dir():
        raise fail("E418", f"--out {out}: no such folder", help="make the folder first")


def _set_name(out: Path) -> str:
    """A name for the rule set in this file: small letters, digits and dashes."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in out.stem.lower()).split()
    return "-".join(words) if words and words[0][0].isalpha() else "rules"


def _table(discovery: Discoveries) -> str:
    from eqsat.report.units import table_text

    columns = ("rule", "says", "work", "sizes", "matches", "gain")
    rows = []
    for r in discovery.rows():
        left, right = r["work"]
        gain = ", ".join(f"{name} {g:.1%}" for name, g in r["gains"].items())
        sizes = "any" if r["general"] else "these"
        work = f"{left / max(right, 1):.1f}x"
        rows.append((r["rule"], r["says"], work, sizes, str(r["matches"]), gain or "-"))
    return table_text(columns, rows) if rows else ""


def _talk(discovery: Discoveries, out: Path | None) -> None:
    say(
        f"{discovery.terms} terms, {discovery.equal} equal to a smaller one,"
        f" {discovery.unproven} of these not proven by the rules:"
        f" {len(discovery.proposals)} rule(s) proposed"
    )
    for why, count in discovery.unwritten.most_common(3):
        say(f"  {count} not proposed: {why}")
    if discovery.stop:
        say(f"stopped early ({discovery.stop}): more terms were left")
    if out is not None:
        say(f"wrote {out}    check it: `eqsat check --test {out}`")
