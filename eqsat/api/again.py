"""A finished run again: searched with changes, applied to other sizes, compared with another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.deadline import elapsed, gc_paused
from eqsat.model.diag import EqsatError, fail
from eqsat.model.equalities import Family
from eqsat.model.progress import heard
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.symbols import resized, sizes_of
from eqsat.model.target import Target
from eqsat.ops.programs.binding import BoundGraph, bind_graph
from eqsat.report.compare.comparison import (
    BY_KIND,
    Comparison,
    Flip,
    compare_runs,
    target_differences,
)
from eqsat.report.compare.targetwords import key_word, setting_text
from eqsat.report.formatting import goal_text
from eqsat.report.names import rules_in_result
from eqsat.run import Run, RunUse
from eqsat.run.phases import at_sizes, searched, with_schedules


def searched_again(
    run: Run,
    *,
    rules: RuleSet | None = None,
    target: Target | None = None,
    goals: tuple[GoalRequest, ...] | None = None,
    time_limit: float | None = None,
) -> Run:
    """The program of a finished run searched again, with what is given here in place of its own.

    Values stay on their devices; the rest is as requested before. Raises EqsatError as `optimize`
    does, exit_code 3 if nothing is admissible.
    """
    from eqsat.ops.spelling.passes import canonical as merged

    source, program = run.source, run.program
    if run.family is not None:
        program = run.family.program
        source = replace(source, program=program)
    if run.target.devices:  # with transfers, which only a map of devices tells
        canonical = run.canonical if run.family is None else run.family.canonical
    else:
        canonical = merged(program)
    seconds: dict[str, float | None] = dict.fromkeys(run.seconds)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    rest = (seconds, run.search | limit, run.limits, run.rule_check)
    request = (target or run.target, rules or run.rules, goals or run.goals)
    again = Run(source, canonical, *request, *rest)
    if program.symbols:
        again = at_sizes(again, Family(program, canonical))
    deadline = elapsed() + again.search["time_limit"]
    with heard(None), gc_paused():
        return searched(again, None, None, deadline)


# ---- at other sizes ------------------------------------------------------------------------------
def search_at(run: Run, sizes: Mapping[str, int]) -> Run:
    """The program of a run searched at other sizes, over the e-graph that it has for all sizes.

    Its time limit is that of the run. EqsatError as `bind` and `optimize` raise it.
    """
    family = _searched_family(run)
    again = at_sizes(_emptied(run), family.resized(resized(family.symbols, sizes)))
    deadline = elapsed() + run.search["time_limit"]
    with heard(None), gc_paused():
        return searched(again, None, None, deadline)


def _searched_family(run: Run) -> Family:
    """EqsatError E385 if all sizes of the program are known, E405 if it has no e-graph."""
    if run.family is None:
        raise fail("E385", "the program has no symbols: all its sizes are known")
    if run.family.egraph is None:
        raise fail("E405", "this run stopped before a choice was made")
    return run.family


def bind(run: Run, sizes: Mapping[str, int]) -> Run:
    """The run's choices at other sizes, without a search; symbols not named keep their size.

    The e-graph is valid for every admissible size, so the program is correct at these. The choices
    were optimal at the sizes of the search, so nothing is proven about them here (`stop` is
    `sizes`). EqsatError: E385 for a name the program does not have, E386 for a size its divisor
    does not divide, E389 if a chosen op or dispatch does not exist at these sizes, E405 if the run
    stopped before its selection.
    """
    family, selection = _searched_family(run), run.selection
    if family.egraph is None or selection is None:
        raise fail("E405", "this run stopped before a choice was made")
    new = family.resized(resized(family.symbols, sizes))
    rebound = at_sizes(_emptied(run), new)
    graph = bind_graph(family.egraph, sizes_of(new.symbols))
    rebound = replace(rebound, egraph=graph.egraph)
    number = _renumbering(family, graph)
    base = None if run.baseline is None else _repriced(rebound, run.baseline, number)
    chosen = _repriced(rebound, selection, number)
    return with_schedules(replace(rebound, selection=chosen, baseline=base))


def _emptied(run: Run) -> Run:
    """The run without what depends on sizes."""
    nothing = dict.fromkeys(run.seconds)
    return replace(
        run, egraph=None, selection=None, schedule=None, baseline=None, baseline_schedule=None,
        measured=None, packed_file=None, seconds=nothing, use=RunUse(dict(run.use.weights)),
    )  # fmt: skip


def _renumbering(family: Family, graph: BoundGraph) -> dict[int, int]:
    """Nodes of the run's e-graph -> nodes of the new one, through those of the family's."""
    assert family.egraph is not None
    old = bind_graph(family.egraph, sizes_of(family.symbols)).number
    return {old[i]: n for i, n in graph.number.items() if i in old}


def _repriced(run: Run, selection: Selection, number: Mapping[int, int]) -> Selection:
    from eqsat.extract import reprice

    assert run.egraph is not None
    assert run.family is not None
    where = ", ".join(f"{s.name} = {s.size}" for s in run.family.symbols)
    return reprice(run.egraph, run.target, selection, number, where)


def compare(
    a: Run,
    b: Run,
    *,
    names: tuple[str, str] = ("A", "B"),
    flip: bool = False,
    time_limit: float = 60.0,
) -> Comparison:
    """Dispatches of both side by side, each difference with its bytes and time and its rules.

    flip: search `a` again with one thing changed at a time towards `b` (a rule, a key of the
    target, a budget, the goals) within `time_limit` seconds for all, and name for each difference
    the change after which `a` is as `b` there. Raises EqsatError (E405) if a run stopped early.
    """
    comparison = compare_runs(a, b, names)
    if not flip:
        return comparison

    return with_flips(comparison, a, b, time_limit)


# ---- which one change makes one answer the other's -----------------------------------------------
MOST = 12  # searches; of more differences the first ones are tried
NOTHING_ADMISSIBLE = 3


@dataclass(frozen=True)
class Change:
    """One thing of what a run was asked for, as the other run has it."""

    text: str
    rules: RuleSet | None = None
    target: Target | None = None
    goals: tuple[GoalRequest, ...] | None = None


def with_flips(comparison: Comparison, a: Run, b: Run, seconds: float) -> Comparison:
    """The comparison with every single change of `a` towards `b` searched, `seconds` for all.

    Nothing is searched if the programs came of different inputs, or do not differ. A change that
    runs out of time counts with its best answer.
    """
    if not comparison.same_input or not comparison.differences:
        return comparison.with_flips(())
    changes = list(single_changes(a, b))[:MOST]
    end = elapsed() + seconds
    flips = []
    for i, change in enumerate(changes):
        left = (end - elapsed()) / (len(changes) - i)
        if left > 0:
            flips.append(_flip(comparison, a, b, change, left))
    return comparison.with_flips(flips)


def single_changes(a: Run, b: Run) -> Iterator[Change]:
    """Differences of the requests, piece by piece: rules that answers use come first."""
    yield from _rule_changes(a, b)
    for key, _, value in target_differences(a.target, b.target):
        text = f"{key_word(key)}: {setting_text(key, value)}"
        yield Change(text, target=_with_key(a.target, key, value))
    x, y = dict(a.target.budget), dict(b.target.budget)
    for goal in sorted(x.keys() | y.keys()):
        if x.get(goal) != y.get(goal):
            budget = {k: v for k, v in {**x, goal: y.get(goal)}.items() if v is not None}
            bound = f"{goal}: {goal_text(goal, y[goal])}" if goal in y else f"without {goal}"
            target = replace(a.target, budget=tuple(budget.items()))
            yield Change(f"budget {bound}", target=target)
    if a.goals != b.goals:
        yield Change(f"goals {', '.join(g.name for g in b.goals)}", goals=b.goals)


def _rule_changes(a: Run, b: Run) -> Iterator[Change]:
    rules, other = ({r.name: r for r in run.rules.rules} for run in (a, b))
    if rules == other:
        return
    for name in _used(b):
        if name in other and name not in rules:
            more = replace(a.rules, rules=(*a.rules.rules, other[name]), imports=())
            yield Change(f"with rule {name}", rules=more)
    for name in _used(a):
        if name in rules and name not in other:
            yield Change(f"without rule {name}", rules=a.rules.without(name))
    yield Change(f"rules {b.rules.name}", rules=b.rules)


def _used(run: Run) -> list[str]:
    """Rules behind the answer, the one with most ops first."""
    assert run.egraph is not None
    assert run.selection is not None
    return [name for name, _ in rules_in_result(run.egraph, run.selection).most_common()]


def _with_key(target: Target, key: str, value: Any) -> Target:
    name, dot, inner = key.partition(".")
    if name in BY_KIND:
        entries = {k: v for k, v in (dict(getattr(target, name)) | {inner: value}).items() if v}
        value = tuple(entries.items())
    elif dot:
        value = replace(getattr(target, name), **{inner: value})
    return replace(target, **{name: value})


def _flip(comparison: Comparison, a: Run, b: Run, change: Change, seconds: float) -> Flip:
    goal = a.goals[0].name
    try:
        again = searched_again(
            a, rules=change.rules, target=change.target, goals=change.goals, time_limit=seconds
        )
    except EqsatError as error:
        if error.exit_code != NOTHING_ADMISSIBLE:
            raise
        return Flip(change.text, (), goal, None)
    assert again.selection is not None
    now = compare_runs(again, b)
    alike = {row.key for row in now.rows if row.is_same}
    left = {row.key for row in now.rows if row.a is not None}
    rows = tuple(
        row.key
        for row in comparison.differences
        if (row.key in alike if row.b is not None else row.key not in left)
    )
    goal = again.goals[0].name
    is_all = now.same == len(now.rows)
    return Flip(change.text, rows, goal, again.selection.goal(goal).value, is_all)
