"""Commands of the laboratory: experiment, query for what its store holds, discover."""

from __future__ import annotations

import csv
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from eqsat.cli import completion
from eqsat.cli import options as o
from eqsat.cli.talk import KEPT, say, say_diagnostics, stops_at_once
from eqsat.cli.terminal import live_line
from eqsat.model.deadline import Stop
from eqsat.model.diag import fail
from eqsat.report.formatting import count_text, table_text

if TYPE_CHECKING:
    from eqsat.lab.discover.find import Ask, Discoveries
    from eqsat.lab.store.record import RunRecord

FOUND_SOMETHING = 1


def experiment(
    file: Annotated[
        str,
        Argument(
            autocompletion=completion.experiments, help="An experiment: a YAML file or a name."
        ),
    ],
    talk: o.Talk,
    row: Annotated[list[str] | None, Option(help="Only this row, repeatable.")] = None,
    out: Annotated[
        Path, Option("-o", "--out", help="Folder of the store, the results and the page.")
    ] = Path("results"),
    jobs: Annotated[
        int, Option(min=1, help="The number of rows at a time, each in a process of its own.")
    ] = 1,
    dask: Annotated[
        str, Option(metavar="ADDRESS", help="Run rows on the Dask cluster at this address.")
    ] = "",
    force: Annotated[bool, Option("--force", help="Run rows again that the store has.")] = False,
    screen: Annotated[
        bool,
        Option("--screen", help="Run rows of `ablate:` only if the rule they leave out matched."),
    ] = False,
    target: Annotated[str, Option(help="This target in place of the experiment's only one.")] = "",
    pivot: Annotated[
        str,
        Option(
            metavar="ROWS,COLUMNS[,FIGURE]",
            help="Print a table of two keys: `program,rules`, `program,tile,measured` …",
        ),
    ] = "",
    pages: Annotated[
        bool | None,
        Option(
            "--pages/--no-pages",
            help="Write a page for the run of each row, and one beside the best row of its program;"
            " if neither is given, for up to 60 rows.",
        ),
    ] = None,
    threads: o.Threads = 2,
) -> int:
    """Run the missing rows of an experiment; print its table, write its results and its page.

    Each row is stored as it ends, in one store for all experiments of the folder, and is not run
    again unless its program, rules, target or settings change. After Ctrl-C or a crash the same
    command goes on. Exit code 1 if a row is not as expected, or differs from the reference.
    """
    board, keys = Board(talk.quiet), pivot.split(",") if pivot else []
    if pivot and len(keys) not in (2, 3):
        raise typer.BadParameter("two keys and perhaps a figure: `program,rules,time_us`")
    with stops_at_once(watch=board):
        from eqsat.lab.experiment import Experiment
        from eqsat.lab.resultpage import MOST
        from eqsat.run.artefact import check_writable

        check_writable(out)
        plan = Experiment.read(file).on(target) if target else Experiment.read(file)
        board.rows = len(row or plan.plan.cells)
        with board.live():
            results = plan.run(
                out, rows=tuple(row or ()), jobs=jobs, dask=dask, force=force, screen=screen,
                threads=threads, watcher=board,
            )  # fmt: skip
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    text = partial(results.pivot, *keys) if keys else partial(results.to_text, columns)
    talk.show(results.to_json, text)
    every_row = results.whole([c.name for c in plan.plan.cells])
    paged = len(every_row.outcomes) <= MOST if pages is None else pages
    with stops_at_once(watch=board):
        written, (_, undrawn) = every_row.write(out, pages=paged), every_row.drawn
    if undrawn is not None:
        say_diagnostics([undrawn], talk.as_json)
    talk.say("\n".join(f"wrote {path}" for path in written))
    problems = results.problems()
    if problems:
        say_diagnostics(problems, talk.as_json)
    return FOUND_SOMETHING if problems else 0


def query(
    store: Annotated[
        Path,
        Argument(help="The folder of a store, its file, or the JSON results of an experiment."),
    ],
    printed: o.Output,
    sql: Annotated[
        str, Argument(help="A SELECT over the tables; `eqsat query DIR` lists them.")
    ] = "",
    csv_: Annotated[bool, Option("--csv", help="Print comma-separated values.")] = False,
) -> int:
    """Query the store of experiments: print the result of a SELECT, or the tables and columns.

    The store is an SQLite file, which pandas, DuckDB and any SQL tool can read. Nothing is
    written.
    """
    with stops_at_once():  # SQLite asks nobody while it runs
        from eqsat.lab.store.query import ask

        columns, rows = ask(store, sql)
    if csv_:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([columns, *rows])
        return 0
    texts = [tuple("" if v is None else str(v) for v in r) for r in rows]
    printed.show(
        lambda: [dict(zip(columns, r, strict=True)) for r in rows],
        lambda: table_text(columns, texts),
    )
    return 0


# ---- what a person sees of a sweep ---------------------------------------------------------------
@dataclass
class Board:
    """Rows done, running and left; a sweep's `Watcher`, and what Ctrl-C says it had come to."""

    quiet: bool
    rows: int = 0
    reused: int = 0  # that were there already
    computed: int = 0
    running: dict[str, float] = field(default_factory=dict)  # row -> when it began
    lines: dict[str, str] = field(default_factory=dict)  # row -> how far its search is
    taken_s: float = 0.0  # by all rows that ended
    left_behind = "rows that ended are kept, and the same command goes on from there"

    @property
    def has_begun(self) -> bool:
        return self.rows > 0

    def began(self, name: str) -> None:
        self.running[name] = time.monotonic()

    def heard(self, name: str, line: str) -> None:
        self.lines[name] = line

    def noted(self, name: str, line: str) -> None:
        if not self.quiet:
            say(f"{name}: {line}")

    def ended(self, name: str, record: RunRecord, is_new: bool) -> None:
        from eqsat.lab.results import status_text

        self.lines.pop(name, None)
        if (begin := self.running.pop(name, None)) is not None:
            self.taken_s += time.monotonic() - begin
        self.computed += is_new
        self.reused += not is_new
        if not self.quiet:
            note = "" if is_new else " (kept from before)"
            say(f"{name}: {status_text(record)}{note}")

    @property
    def line(self) -> str:
        """`5 of 36 rows done, 2 running, about 40 s left; ROW: candidates, 3.1 s of 60 s: …`."""
        text = f"{self.reused + self.computed} of {count_text(self.rows, 'row')} done"
        text += f", {len(self.running)} running" if self.running else ""
        if self.computed and (left := self.rows - self.reused - self.computed):
            seconds = self.taken_s / self.computed * left / max(1, len(self.running))
            text += f", about {_duration(seconds)} left"
        texts = [f"{name}: {self.lines[name]}" for name in self.running if name in self.lines]
        return "; ".join([text, *texts])

    @contextmanager
    def live(self) -> Iterator[None]:
        """The line kept up to date while a person is watching."""
        if self.quiet or not sys.stderr.isatty():
            yield
            return
        from rich.text import Text

        with live_line(lambda: Text(self.line)):
            yield


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


SECONDS = 60.0


def discover(
    talk: o.Talk,
    ops: Annotated[
        list[str] | None,
        Option(
            metavar="NAMES",
            help="The ops of terms, with commas or repeatable: `matmul,sum,slice`;"
            " docs/discover.md lists them.",
        ),
    ] = None,
    rules: o.Rules = None,
    without: o.Without = None,
    leaves: Annotated[int, Option(help="The most operands of a term: 1 to 4.")] = 2,
    size: Annotated[int, Option(help="The most ops of a term: 1 to 5.")] = 3,
    programs: Annotated[
        list[str] | None,
        Option(metavar="PROGRAM", help="Rank proposals by their gain on this program, repeatable."),
    ] = None,
    target: o.TargetName = "reference",
    limit: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=N",
            help="`seconds=60` for all of it; `nodes=20000`, `rounds=10`, `matches=50000` of"
            " each proof; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, Option("-o", "--out", help="Write the proposed rules to this YAML file.")
    ] = None,
    seed: o.Seed = 0,
) -> int:
    """Find small equalities that the rules do not prove, and propose them as hunted rules.

    Terms over a few operands are enumerated, those with equal values are put into one e-graph, and
    pairs that the rules do not unite become rules with examples. Ctrl-C keeps what was found.
    """
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
    talk.show(discovery.to_json, lambda: _table(discovery))
    if not talk.quiet:
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
