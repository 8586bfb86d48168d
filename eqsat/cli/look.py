"""Commands about finished runs: compare, explain, rules, report, judge, export."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import eqsat
from eqsat.cli import completion
from eqsat.cli import options as o
from eqsat.cli.talk import say, stops_at_once
from eqsat.model.diag import fail
from eqsat.report.formatting import table_text

if TYPE_CHECKING:
    from eqsat.api import Run
    from eqsat.export.plan import Exported

_CODE = re.compile(r"[Ee]\d+")


class Sort(StrEnum):
    """A column of the rules table."""

    rule = "rule"
    matches = "matches"
    nodes = "nodes"
    time = "time"
    result = "result"


def compare(
    a: o.RunFolder,
    b: o.RunFolder,
    printed: o.Output,
    flip: Annotated[
        bool,
        Option(
            "--flip",
            help="Search again with one thing changed at a time (a rule, a key of the target, a"
            " budget, the goals): which change makes a choice of A that of B?",
        ),
    ] = False,
    time_limit: Annotated[str, Option(help="CPU time for all these searches: `60s`.")] = "60s",
    page: Annotated[Path | None, Option(help="Write the comparison as an HTML page here.")] = None,
) -> int:
    """Compare two runs: each difference with its time and bytes, and the rules behind it."""
    limit = o.seconds(time_limit)
    runs = o.load_run(a), o.load_run(b)
    with stops_at_once():
        comparison = eqsat.compare(*runs, names=(str(a), str(b)), flip=flip, time_limit=limit)
    if page is not None:
        from eqsat.report.compare.page import write_comparison

        say(f"page: file://{write_comparison(comparison, page).resolve()}")
    printed.found(comparison)
    return 0


def explain(
    what: Annotated[
        str,
        Argument(
            autocompletion=completion.runs, help="The folder of a run, or an error code: `E020`."
        ),
    ],
    printed: o.Output,
    value: Annotated[
        str | None, Argument(help="A value as `eqsat show DIR canonical` names it: `%3`.")
    ] = None,
    price: Annotated[
        bool | None,
        Option(
            "--price/--no-price",
            help="Search again for the price of each alternative; the default is to do so only if a"
            " value is named.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        Option(help="Search again without a rule, rule set or tag, repeatable, and compare."),
    ] = None,
    force: Annotated[
        str | None,
        Option(
            metavar="LAYOUT",
            help="Find the best program that keeps VALUE in memory in this layout: `row-major`,"
            " `16x16`, `pack(pos=[0], tiles=[16])`, `transpose(perm=[1, 0])`.",
        ),
    ] = None,
    time_limit: Annotated[str, Option(help="CPU time for all prices: `30s`.")] = "30s",
) -> int:
    """Explain choices: the rules behind them, alternatives with prices, what limits excluded.

    Alternatives are listed cheapest first. Or say what an error code means.
    """
    if _CODE.fullmatch(what) and not Path(what).exists():
        from eqsat.lang.explain import explain as explain_code

        print(explain_code(what), end="")
        return 0
    with stops_at_once():
        limit = o.seconds(time_limit)
        run = o.load_run(what)
        if without or force is not None:
            explanation = _what_if(run, value, without or [], force, limit)
        else:
            explanation = run.explain(value, price=price, time_limit=limit)
    printed.found(explanation)
    return 0


def _what_if(
    run: Run, value: str | None, without: list[str], force: str | None, seconds: float
) -> o.Printable:
    """The answer to `--without` or `--force`; EqsatError E400 if they are not asked so."""
    from eqsat.api.whatif import forced_layout, without_rules

    if force is None and value is None:
        return without_rules(run, without)
    if force is not None and value is not None and not without:
        return forced_layout(run, value, force, time_limit=seconds)
    if force is None:
        message, help = "`--without` is about the whole program", f"leave out `{value}`"
    elif without:
        message, help = "`--without` and `--force` are two questions", "ask one after the other"
    else:
        message, help = "`--force` needs a value", f"`eqsat explain DIR VALUE --force '{force}'`"
    raise fail("E400", message, help=help)


def rules(
    folder: o.RunFolder,
    printed: o.Output,
    sort: Annotated[Sort, Option(help="The column to sort by.")] = Sort.nodes,
) -> int:
    """Show each rule's matches, new e-nodes, time, contribution to the result, and place.

    `eqsat rules match RULE PROGRAM` says where a rule applies, without a search.
    """
    from eqsat.report.facts import rule_facts
    from eqsat.report.text import RULE_COLUMNS, rules_table

    facts = rule_facts(o.load_run(folder), sort.value)
    printed.show(lambda: facts, lambda: table_text(RULE_COLUMNS, rules_table(facts)))
    return 0


def match_rules(
    rule: Annotated[str, Argument(help="A rule, `mine.yaml`, or `mine.yaml:RULE`.")],
    program: o.ProgramName,
    printed: o.Output,
    target: o.TargetName = "auto",
    weights: o.Weights = None,
) -> int:
    """Say where a rule matches a program as it is read, without a search.

    What its variables are there, and which condition refuses it.
    """
    with stops_at_once():
        from eqsat.api.ruleplaces import rule_places, rules_named

        named = rules_named(rule)
        source = eqsat.read(program, weights=o.names(weights))
        run = eqsat.optimize(source, target=target, stop_after="program")
        places = rule_places(named, run.canonical, run.target)
    printed.found(places)
    return 0


def report(
    folder: o.RunFolder,
    talk: o.Talk,
    out: Annotated[
        Path | None, Option("-o", "--out", help="The page; `DIR/report.html` if not given.")
    ] = None,
    asm: Annotated[
        bool, Option("--asm", help="With the machine code of every kernel's inner loops.")
    ] = False,
) -> int:
    """Write one self-contained HTML page about a run; print its path.

    Of a folder of results (a store, saved runs, fronts): a page that lists and links them.
    """
    from eqsat.lab.indexpage import INDEX, holds_results, write_index

    if holds_results(folder):
        if asm:
            raise fail("E400", "`--asm` is of a run", help="name the folder of one")
        path = write_index(folder, out or folder / INDEX)
    else:
        run: Run = o.load_run(folder)
        path = run.report(out or folder / "report.html", asm=asm)
    talk.show(lambda: {"page": str(path)}, lambda: f"{path}\n")
    if not talk.as_json:
        talk.say(f"open it in any browser: file://{path.resolve()}")
    return 0


def judge(
    file: Annotated[
        Path,
        Argument(
            help="The folder of a run, a row `results/ROW`, XLA's HLO text after optimization"
            " (`jax.jit(f).lower(*args).compile().as_text()`), or IREE's dispatches"
            " (`iree-compile --compile-to=dispatch-creation`)."
        ),
    ],
    printed: o.Output,
    folder: Annotated[
        Path | None, Option("--run", help="The folder of the run to judge by, from `optimize -o`.")
    ] = None,
    program: Annotated[
        str | None, Option(help="Or the program, which is searched first: `x.py:function`.")
    ] = None,
    target: o.TargetName = "auto",
    rules: o.Rules = None,
    weights: o.Weights = None,
    time_limit: Annotated[
        str, Option(help="CPU time of the search, and of all prices: `60s`.")
    ] = "60s",
) -> int:
    """Price what another compiler chose: its gap to the best program, the price of each decision.

    Tells which of its dispatches the target does not permit, and which of its values no rule makes.
    """
    with stops_at_once():
        from eqsat.api.judge import judge as judged
        from eqsat.api.judge import read_foreign
        from eqsat.lab.loading import run_folder

        limit = o.seconds(time_limit)
        run = _best(folder, program, target, rules, weights, limit)
        place = file if file.is_file() else run_folder(file)
        judgement = judged(run, read_foreign(place, run), time_limit=limit)
    printed.found(judgement)
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
    if (folder is None) == (program is None):
        help = "`--run DIR` takes a search that was kept, `--program PROGRAM --target T` searches"
        which = "`--run` or `--program`" + (", not both" if folder is not None else "")
        raise fail("E400", f"`eqsat judge` judges by {which}", help=help)
    if folder is not None:
        if target != "auto" or rules or weights:
            what = "`--target`, `--rules` and `--weights` are those of the run"
            raise fail("E400", what, help="leave them out, or name the program instead of `--run`")
        return o.load_run(folder)
    assert program is not None
    request = {"target": target, "rules": tuple(rules or ("default",)), "weights": o.names(weights)}
    return eqsat.optimize(program, **request, time_limit=seconds)


# ---- for other tools -----------------------------------------------------------------------------
class Language(StrEnum):
    """File formats of other tools."""

    mlir = "mlir"
    onnx = "onnx"
    trace = "trace"
    dot = "dot"
    explorer = "explorer"


SUFFIX = {
    "trace": "trace.json",
    "explorer": "explorer.json",
}  # of the files of formats, where it is not the format's name


class WeightsPlace(StrEnum):
    """Where the weights go."""

    auto = "auto"
    constants = "constants"
    resources = "resources"
    arguments = "arguments"


class Exportable(StrEnum):
    """Parts of a run that can be written."""

    schedule = "schedule"
    program = "program"


def export(
    folder: o.RunFolder,
    to: Annotated[
        Language,
        Option(
            help="MLIR linalg text, an ONNX model; or the schedule: a trace, a DOT graph, a graph"
            " for Model Explorer."
        ),
    ],
    talk: o.Talk,
    out: Annotated[
        Path | None, Option("-o", "--out", help="The file; `DIR/export.mlir` if not given.")
    ] = None,
    of: Annotated[
        Exportable, Option(help="The chosen program with its packed weights, or the input program.")
    ] = Exportable.schedule,
    weights: Annotated[
        WeightsPlace,
        Option(
            help="In place; beside the text (ONNX: in a separate file); as arguments; or by"
            " their size."
        ),
    ] = WeightsPlace.auto,
    partial: Annotated[
        bool, Option("--partial", help="Write undefined functions for ops that cannot be exported.")
    ] = False,
    size: o.Sizes = None,
) -> int:
    """Write the chosen program, or its schedule as a trace or graph; print the path of the file.

    A program with sizes that are not known is written at those that `--size` names; a switch at
    several (`--size m=1 --size m=64`), as one function that picks by size. Exit code 2 if an op
    cannot be written: all such ops are listed, and nothing is written.
    """
    with stops_at_once():
        path = out or folder / f"export.{SUFFIX.get(to.value, to.value)}"
        several = o.sizes_of_switch(folder, size)
        if several is not None:
            exported = several[0].export(
                to.value, path, sizes=several[1], weights=weights.value, partial=partial
            )
        else:
            sizes = o.symbol_sizes(size)
            run = o.load_run(folder, sizes)
            exported = run.export(
                to.value, path, of=of.value, weights=weights.value, partial=partial, sizes=sizes
            )
    talk.show(lambda: _facts(to, path, exported), lambda: f"{path}\n")
    if not talk.quiet:
        _say(to, path, exported)
    return 0


def _facts(to: Language, path: Path, exported: Exported) -> dict[str, Any]:
    return {
        "to": to.value,
        "files": {
            str(path.parent / (name or path.name)): len(data) for name, data in exported.files
        },
        "ops": exported.ops,
        "expressible": exported.ops - len(exported.missing),
        "missing": [vars(m) for m in exported.missing],
    }


def _say(to: Language, path: Path, exported: Exported) -> None:
    """Says which ops are missing, and a command that reads the file."""
    for m in exported.missing:
        say(f"not written: {m}")
    if exported.missing:
        count = len(exported.missing)
        say(f"{count} of {exported.ops} ops are calls of undefined functions")
    elif to is Language.mlir:
        say(f"check it with IREE: iree-opt {path}")
    elif to is Language.trace:
        say("open it in ui.perfetto.dev or chrome://tracing")
    elif to is Language.dot:
        say(f"draw it with Graphviz: dot -Tsvg {path}")
    elif to is Language.explorer:
        times = path.parent / exported.files[1][0]
        say(f"look at it: model-explorer {path}; `{times}` is its node data")
    else:
        say(f"check it with ONNX: onnx.checker.check_model({str(path)!r}, full_check=True)")
