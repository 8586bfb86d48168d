"""Commands about files: check, list, schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

import eqsat
from eqsat.cli import options as o
from eqsat.cli.talk import say_diagnostics
from eqsat.cli.terminal import painted
from eqsat.model.diag import Diagnostic, EqsatError, did_you_mean, fail, sort_diagnostics
from eqsat.plugins import find_names, plugged_in
from eqsat.report.formatting import table_text

if TYPE_CHECKING:
    from eqsat.hunt.findings import Findings
    from eqsat.model.rules import RuleSet
    from eqsat.ops.vocabulary import AttrFunction

Row = tuple[str, ...]


class What(StrEnum):
    """Kinds of names that can be listed."""

    rules = "rules"
    sets = "sets"
    targets = "targets"
    ops = "ops"
    functions = "functions"
    programs = "programs"
    executors = "executors"
    passes = "passes"


class FileFormat(StrEnum):
    """A YAML format of ours."""

    ruleset = "ruleset"
    target = "target"
    experiment = "experiment"
    devices = "devices"


def check_files(
    files: Annotated[
        list[Path],
        Argument(help="Rule sets, targets, experiments, `.eqs`, saved runs, or folders."),
    ],
    talk: o.Talk,
    test: Annotated[
        bool, Option("--test", help="Run the examples of rules, and hunt for counterexamples.")
    ] = False,
    instances: Annotated[int, Option(min=1, help="With --test: matches tried of each rule.")] = 200,
    target: Annotated[
        str | None, Option(help="Check saved runs against this target, not their own.")
    ] = None,
    seed: o.Seed = 0,
    verbose: o.Verbose = False,
) -> int:
    """Validate files and the schedules of saved runs; print all problems of all of them.

    With --test every rule that a file defines is tried on random matches, both sides by their
    NumPy meaning; -v prints how many had padding and how often each condition held. The schedule of
    a saved run is checked against its target. Exit codes: 2 if a file is wrong, 1 if only an
    example fails, a rule is unsound, or a schedule is not legal.
    """
    paths = _expand(files)
    broken: list[Diagnostic] = []
    failed: list[Diagnostic] = []
    hunted: list[Findings] = []
    for path in paths:
        try:
            if path.is_dir():
                failed += _schedule_faults(path, target)
                continue
            ruleset = _check_file(path)
            if test and ruleset is not None:
                hunted += (findings := _hunted(ruleset, instances, seed))
                failed += _failures(ruleset, findings)
        except EqsatError as error:
            broken += error.diagnostics
    problems = sort_diagnostics(dict.fromkeys(broken + failed))
    if talk.quiet and problems:
        say_diagnostics(problems, talk.as_json)
    for d in () if talk.quiet else problems:
        print(json.dumps(d.to_json()) if talk.as_json else f"{painted(d.full(), sys.stdout)}\n")
    if verbose and hunted and not talk.as_json:
        print(_hunt_table(hunted))
    errors = [d for d in problems if d.severity == "error"]
    talk.say(f"checked {len(paths)} file(s): {len(errors) or 'no'} problem(s)")
    if broken:
        return 2
    return 1 if errors else 0


def list_(
    what: Annotated[What, Argument(help="What to list.")],
    printed: o.Output,
    names: Annotated[
        str, Argument(help="Only these: `fold-*`, `*transpose*`.", metavar="GLOB")
    ] = "*",
    notation: Annotated[
        bool, Option("--notation", help="Of rules: each as one line of algebra.")
    ] = False,
) -> int:
    """List rules, rule sets, targets, ops, functions of rules, passes, or programs, a line each."""
    if notation and what is not What.rules:
        help = "`eqsat list rules --notation`"
        raise fail("E400", f"`--notation` is about rules, not {what.value}", help=help)
    columns, every = _notations() if notation else LISTS[what]()
    rows = [row for row in every if fnmatchcase(row[0], names)]
    if not rows:
        hint = did_you_mean(names, [row[0] for row in every], f"eqsat list {what.value}")
        raise fail("E400", f"no name of {what.value} is like `{names}`", help=hint)
    printed.show(
        lambda: [dict(zip(columns, row, strict=True)) for row in rows],
        lambda: table_text(columns, rows),
    )
    return 0


def schema(
    what: Annotated[FileFormat, Argument(help="Which format.")],
    output_format: o.OutputFormat = o.Format.json,
) -> int:
    """Print the JSON schema of a YAML format, for editors."""
    from eqsat.lang.schema import schema as schema_of

    print(json.dumps(schema_of(what.value), indent=2))
    return 0


# ---- check ---------------------------------------------------------------------------------------
def _expand(files: list[Path]) -> list[Path]:
    paths: list[Path] = []
    for path in files:
        if path.is_dir() and _is_run(path):
            paths.append(path)
        elif path.is_dir():
            files_here = sorted(p for end in ("yaml", "eqs") for p in path.rglob(f"*.{end}"))
            if not files_here:
                raise fail("E001", f"no `.yaml` or `.eqs` file in `{path}`, and it is no run")
            paths += files_here
        elif path.is_file():
            paths.append(path)
        else:
            raise fail("E001", f"no file `{path}`")
    return list(dict.fromkeys(paths))


def _is_run(folder: Path) -> bool:
    from eqsat.run.artefact import FILES

    return (folder / FILES["manifest"]).is_file()


def _schedule_faults(folder: Path, target: str | None) -> list[Diagnostic]:
    """Violations of a target (E417), its own if none is named, by a saved run's schedule.

    EqsatError E314 if its stages do not follow from its e-graph.
    """
    from eqsat.run.saved import stage_faults, stages_of
    from eqsat.schedule import faults

    run = o.load_run(folder)
    if run.schedule is None:
        raise fail("E405", f"`{folder}` stopped before a schedule was made")
    if other := stage_faults(stages_of(run)):  # of its baseline, too
        message = f"`{folder}` is not what eqsat makes of its e-graph: {'; '.join(other)}"
        raise fail("E314", message, help=f"search again: `eqsat optimize PROGRAM -o {folder}`")
    machine = run.target if target is None else eqsat.target(target)
    hint = f"`eqsat optimize … --target {machine.name}` finds one that is"
    return [
        Diagnostic("E417", f"`{folder}` is not legal on `{machine.name}`: {fault}", None, help=hint)
        for fault in faults(run.schedule, machine, run.canonical if target is None else None)
    ]


def _check_file(path: Path) -> RuleSet | None:
    """Read a file; its rules, if it is a rule set. EqsatError holds what is wrong with it."""
    if path.suffix == ".eqs":
        from eqsat.lang.programs import load_program

        load_program(path)
        return None
    kind = _kind(path)
    if kind is FileFormat.target:
        from eqsat.lang.targets import load_target

        load_target(path)
        return None
    if kind is FileFormat.experiment:
        from eqsat.lang.experiments import load_experiment

        load_experiment(path)
        return None
    if kind is FileFormat.devices:
        from eqsat.lang.devices import load_devices, machine

        machine(load_devices(path))
        return None
    from eqsat.lang.rulesets import load_ruleset

    return load_ruleset(str(path))


def _hunted(ruleset: RuleSet, instances: int, seed: int) -> list[Findings]:
    """A hunt of every rule that the set defines itself; imports have files of their own.

    What it finds counts for the rules' first use too, unless it was shorter than the hunt there.
    """
    from eqsat.hunt.findings import INSTANCES, remember
    from eqsat.hunt.search import hunt

    defined = [r for r in ruleset.rules if r.ruleset == ruleset.name]
    findings = [hunt(r, instances=instances, seed=seed) for r in defined]
    for f in findings:
        if f.counterexample is not None or instances >= INSTANCES:
            remember(f)
    return findings


def _failures(ruleset: RuleSet, hunted: list[Findings]) -> list[Diagnostic]:
    """Failing examples, unsound rules, and rules that were tried too little (a warning)."""
    from eqsat.hunt.findings import diagnose, shortage
    from eqsat.hunt.instances import check_examples

    problems = [d for f in hunted for d in (diagnose(f), shortage(f)) if d is not None]
    return check_examples(ruleset) + problems


def _hunt_table(hunted: list[Findings]) -> str:
    """A line per rule: what it was tried on, and how often each condition was met and missed."""
    columns = ("rule", "instances", "padded", "refused", "conditions met/missed")
    rows = []
    for f in hunted:
        conditions = "; ".join(f"{c.text} {c.met}/{c.missed}" for c in f.conditions)
        figures = (str(f.instances), str(f.padded), str(f.refused))
        rows.append((f.rule.name, *figures, conditions or "-"))
    return table_text(columns, rows)


def _kind(path: Path) -> FileFormat:
    from eqsat.lang.source import load_yaml

    data = load_yaml(path).data
    for kind in FileFormat:
        if isinstance(data, dict) and kind.value in data:
            return kind
    raise fail(
        "E004",
        f"`{path}` does not say what it is",
        help="it starts with `ruleset: NAME`, `target: NAME`, `devices: NAME` or"
        " `experiment: NAME`",
    )


# ---- list ----------------------------------------------------------------------------------------
def _rules() -> tuple[Row, list[Row]]:
    from eqsat.api.ruleplaces import every_rule
    from eqsat.model.rules import Rule

    rows: list[Row] = [
        (r.name, r.ruleset, r.phase if isinstance(r, Rule) else f"{r.verb} {r.what}", r.doc)
        for r in every_rule()
    ]
    return ("rule", "set", "phase", "doc"), rows


def _notations() -> tuple[Row, list[Row]]:
    from eqsat.api.ruleplaces import every_rule
    from eqsat.lang.content import notation

    return ("rule", "notation"), [(r.name, notation(r)) for r in every_rule()]


def _sets() -> tuple[Row, list[Row]]:
    from eqsat.lang.rulesets import load_ruleset

    sets = [(n, load_ruleset(n)) for n in find_names("rules", ".yaml")]
    return ("set", "rules", "doc"), [(n, _count(s), s.doc) for n, s in sets]


def _count(of: RuleSet) -> str:
    """`112 + 13`: rules that a search applies, and those of spreads, which only a mesh asks for."""
    applied, spreads = len(of.rules), len(of.spreads)
    return f"{applied} + {spreads}" if applied and spreads else str(applied or spreads)


def _targets() -> tuple[Row, list[Row]]:
    from eqsat.lang.targets import load_target

    targets = [(n, load_target(n)) for n in find_names("targets", ".yaml")]
    return ("target", "executor", "doc"), [(n, t.executor, t.doc) for n, t in targets]


def _executors() -> tuple[Row, list[Row]]:
    from eqsat.execute.executors import find_executor
    from eqsat.model.executor import BUILT_IN

    executors = [find_executor(name) for name in sorted({*BUILT_IN, *plugged_in("executors")})]
    return ("executor", "doc", "plan"), [(e.name, e.doc, e.plan) for e in executors]


def _ops() -> tuple[Row, list[Row]]:
    from eqsat.ops.registry import all_ops

    return ("op", "kind", "doc"), sorted((r.name, r.kind, r.doc) for r in all_ops().values())


def _passes() -> tuple[Row, list[Row]]:
    from eqsat.ops.spelling.passes import PASSES

    return ("pass", "doc"), [(p.name, f"{p.rewrites} ({p.reason})") for p in PASSES]


def _functions() -> tuple[Row, list[Row]]:
    from eqsat.ops.attrs import FUNCTIONS

    rows: list[Row] = [
        (name, ", ".join(f.args), f.result, ", ".join(_columns(f)), f.doc)
        for name, f in sorted(FUNCTIONS.items())
    ]
    return ("function", "takes", "gives", "columns", "doc"), rows


def _columns(function: AttrFunction) -> list[str]:
    """What stands behind the dot of the row that it gives."""
    from eqsat.ops.attrs import ROWS

    rows = (r.partition("row:")[2] for r in function.result.replace("rows:", "row:").split("|"))
    return list(dict.fromkeys(column for r in rows for column in ROWS.get(r, ())))


def _programs() -> tuple[Row, list[Row]]:
    return ("program", "file"), shipped_programs()


def shipped_programs() -> list[Row]:
    """Programs on the search path: name and file."""
    from eqsat.lang.experiments import PROGRAM_SUFFIXES

    rows: list[Row] = []
    for suffix in PROGRAM_SUFFIXES:
        for name, path in find_names("experiments", suffix).items():
            if name.startswith("programs/"):
                rows += _program_rows(name.removeprefix("programs/"), path)
    return sorted(rows)


def _program_rows(name: str, path: Path) -> list[Row]:
    """A Python file holds one program per function that has a `…_example` beside it."""
    if path.suffix == ".eqs":
        return [(name, str(path))]
    if path.suffix != ".py":
        return [(f"{name}{path.suffix}", str(path))]
    import ast

    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return [(f"{name}.py:{f}", str(path)) for f in sorted(functions) if f"{f}_example" in functions]


LISTS: dict[What, Callable[[], tuple[Row, list[Row]]]] = {
    What.rules: _rules,
    What.sets: _sets,
    What.targets: _targets,
    What.ops: _ops,
    What.functions: _functions,
    What.programs: _programs,
    What.executors: _executors,
    What.passes: _passes,
}
