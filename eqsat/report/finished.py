"""A finished run as reports read it: its stages, how far its answer is proven, by whose figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from eqsat.lang.owntarget import differences
from eqsat.model.compiled import Checked, Compiled, Measured
from eqsat.model.control import EXACT, controls
from eqsat.model.diag import Diagnostic, fail
from eqsat.model.egraph import EGraph, RuleStat
from eqsat.model.equalities import Family
from eqsat.model.executor import Execution
from eqsat.model.layout import MemoryOrders
from eqsat.model.limits import Limits
from eqsat.model.mesh import MeshPlan
from eqsat.model.program import Program
from eqsat.model.progress import Curve
from eqsat.model.rules import Rule, RuleCheck, RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GREEDY, GoalRequest, Selection
from eqsat.model.target import Target
from eqsat.report.formatting import count_text, goal_text


class Finished(Protocol):
    """A run with everything it made; stages that did not run are None."""

    @property
    def program(self) -> Program: ...
    @property
    def canonical(self) -> Program: ...
    @property
    def family(self) -> Family | None: ...
    @property
    def target(self) -> Target: ...
    @property
    def rules(self) -> RuleSet: ...
    @property
    def rule_check(self) -> RuleCheck | None: ...
    @property
    def goals(self) -> tuple[GoalRequest, ...]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def seconds(self) -> dict[str, float | None]: ...
    @property
    def egraph(self) -> EGraph | None: ...
    @property
    def selection(self) -> Selection | None: ...
    @property
    def schedule(self) -> Schedule | None: ...
    @property
    def baseline(self) -> Selection | None: ...
    @property
    def baseline_schedule(self) -> Schedule | None: ...
    @property
    def execution(self) -> Execution: ...
    @property
    def bodies(self) -> Mapping[str, Finished]: ...
    @property
    def orders(self) -> MemoryOrders | None: ...
    @property
    def mesh_plan(self) -> MeshPlan | None: ...
    @property
    def cut_schedule(self) -> Schedule: ...
    @property
    def measured(self) -> Measured | None: ...
    @property
    def checked(self) -> Checked | None: ...
    @property
    def compiled(self) -> Compiled | None: ...
    @property
    def curve(self) -> Curve | None: ...
    @property
    def searched_at(self) -> str: ...
    @property
    def verification(self) -> Any: ...
    def summary(self) -> dict[str, Any]: ...


def finished_stages(run: Finished) -> tuple[EGraph, Selection, Schedule]:
    """The stages of a run that went to the end; EqsatError (E405) if it stopped before."""
    if run.egraph is None or run.selection is None or run.schedule is None:
        raise fail("E405", "this run stopped before a schedule was made")
    return run.egraph, run.selection, run.schedule


ELSEWHERE = "for figures not measured here"
MEASURED = ("memory", "launch", "kernels")  # keys of a target's file that `calibrate` writes
FIGURES = (*MEASURED, "rates", "relayout", "tiles", "untiled", "untiled_rate", "elementwise_rate")


def claim_text(selection: Selection, target: Target, goals: Iterable[GoalRequest]) -> str:
    """`optimal for figures not measured here`: what is claimed, and by whose figures."""
    claim = selection.claim
    is_proof = claim == "optimal" or claim.startswith("best of")
    return f"{claim}{by_figures(target, goals)}" if is_proof else claim


def proof_text(
    selection: Selection, goal: str, target: Target, goals: Iterable[GoalRequest]
) -> str:
    """`proven for figures not measured here`, over which candidates it is the best, or a gap."""
    gap = selection.goal(goal).gap
    if gap >= 0.001:
        return f"gap {gap:.1%}"
    word = f"best of {selection.among}" if selection.cuts else "proven"
    return f"{word}{' to 0.1 %' if gap else ''}{by_figures(target, goals)}"


def is_best(selection: Selection, goals: Sequence[GoalRequest]) -> bool:
    """Whether nothing that the rules reach is better by the first goal, or by the weighted sum."""
    is_met = goals[0].weight is None and selection.goal(goals[0].name).gap == 0
    return selection.stop == "optimal" or (is_met and not selection.cuts)


def by_figures(target: Target, goals: Iterable[GoalRequest]) -> str:
    """The limit of a proof: ` for figures not measured here`; "" if all of them were.

    ` for 5 figures measured here` where these scale all others. Also "" where no time is proven:
    bytes and counts of dispatches follow from no measured figure.
    """
    if not any(g.name == "time" for g in goals):
        return ""
    if not is_measured_here(target):
        return f" {ELSEWHERE}"
    count = max(t.measured_on.figures if t.measured_on else 0 for t in _parts(target))
    return f" for {count} figures measured here" if count else ""


def is_measured_here(target: Target) -> bool:
    """Whether a target's figures were measured on this machine, all or those that scale all."""
    return all(_is_measured_here(t) for t in _parts(target))


def _parts(target: Target) -> tuple[Target, ...]:
    return (target, *(t for _, t in target.devices))


def _is_measured_here(target: Target) -> bool:
    """Whether the figures are still those of the file that says where they were measured: here."""
    if target.measured_on is None or differences(target.measured_on):
        return False
    places = dict(target.places)
    file = _file(places.get("measured_on", ""))
    is_set = any(
        at.startswith("--set") and key.split(".")[0] in FIGURES for key, at in places.items()
    )
    return not is_set and all(_file(places[k]) == file for k in MEASURED if k in places)


def _file(place: str) -> str:
    """`targets/host.yaml:3:1` → `targets/host.yaml`."""
    return place.rsplit(":", 2)[0]


# ---- warnings ------------------------------------------------------------------------------------
NAMED = 3  # rules that a warning names
LEAST_SHARE = 0.01  # of the e-nodes: who made less is not why a search stopped


def stop_warnings(run: Finished) -> list[Diagnostic]:
    """Warnings for what was not searched or priced in full.

    E402 saturation and E401 extraction stopped at a limit, E409 the price of a loop is bounded.
    """
    warnings = [
        _bounded(run.canonical.value_name(i)) for i, a in controls(run.canonical) if a.is_bounded
    ]
    if run.egraph is not None and run.egraph.stop != "saturated":
        rules = {r.name: r for r in run.rules.rules}
        limits = run.limits.resolved(len(run.canonical.nodes))
        warnings.append(_unsaturated(run.egraph, rules, limits))
    if run.selection is not None:
        requested = {g.name for g in run.goals}
        among = f" among {run.selection.among}" if run.selection.is_capped else ""
        warnings += [
            Diagnostic(
                "E401",
                f"extraction stopped ({run.selection.stop}): {name} {goal_text(name, g.value)}"
                f" found, nothing below {goal_text(name, g.bound)} is possible{among}"
                f" (gap {g.gap:.1%})",
                help=_LONGER if run.selection.stop.endswith(" time") else "",
                severity="warning",
            )
            for name, g in run.selection.goals
            if name in requested and g.gap > 0 and run.selection.stop not in ("optimal", GREEDY)
        ]
    return warnings


_LONGER = "each phase has a share of the time limit, `--time-limit` raises all of them"


def _bounded(loop: str) -> Diagnostic:
    most = goal_text("time", EXACT)
    return Diagnostic(
        "E409",
        f"the loop `{loop}` takes more than {most}: its price is bounded, and less than its time",
        severity="warning",
    )


# ---- saturation ----------------------------------------------------------------------------------
def _unsaturated(egraph: EGraph, rules: Mapping[str, Rule], limits: Limits) -> Diagnostic:
    if egraph.stop == "matches" and egraph.left_out:
        return _left_out(egraph, rules)
    most = _that_grew(egraph)
    size = count_text(len(egraph.nodes), "node")
    text = f"saturation stopped ({egraph.stop}) at {size} in round {egraph.rounds}"
    if not most:
        return Diagnostic("E402", text, severity="warning")
    shares = "; ".join(_share(stat, egraph) for stat in most)
    return Diagnostic(
        "E402", f"{text}; of these {shares}", help=_guard(most[0], rules, egraph, limits),
        severity="warning",
    )  # fmt: skip


def _that_grew(egraph: EGraph) -> list[RuleStat]:
    """The rules that made most of the e-graph, most first."""
    grown = [r for r in egraph.rules if r.nodes > LEAST_SHARE * len(egraph.nodes)]
    return sorted(grown, key=lambda r: (-r.nodes, r.name))[:NAMED]


def _share(stat: RuleStat, egraph: EGraph) -> str:
    place = f" ({stat.at})" if stat.at else ""
    matches = count_text(stat.matches, "match", "matches")
    share = stat.nodes / len(egraph.nodes)
    return f"{share:.0%} by rule `{stat.name}`{place} in {matches}"


def _guard(stat: RuleStat, rules: Mapping[str, Rule], egraph: EGraph, limits: Limits) -> str:
    """Advice to bound the rule that grew the e-graph most, leave it out, or let it grow."""
    rule = rules.get(stat.name)
    if rule is None:  # a fact that was found before the search
        return _more_room(egraph, limits)
    guard = (
        "bound what it joins (`where: uses(x) <= 8`)"
        if rule.also
        else "let it match only values of which part is not read (`where: wasted(t)`)"
    )
    if rule.max_matches is None:
        guard += f" or stop it after so many matches (`max_matches: {max(stat.matches // 2, 1)}`)"
    without = f"leave it out (`--without {stat.name}`)"
    return f"in the file of `{stat.name}`, {guard}; {without}; {_more_room(egraph, limits)}"


def _more_room(egraph: EGraph, limits: Limits) -> str:
    if not hasattr(limits, egraph.stop):
        return "or give the search more time (`--time-limit`)"
    return f"or raise the limit (`--limit {egraph.stop}={2 * getattr(limits, egraph.stop)}`)"


def _left_out(egraph: EGraph, rules: Mapping[str, Rule]) -> Diagnostic:
    names = ", ".join(
        f"`{name}` ({rules[name].at})" if name in rules else f"`{name}`" for name in egraph.left_out
    )
    return Diagnostic(
        "E402",
        f"saturation left {names} out: more matches in the program itself than the limit (matches),"
        " or ops of too many operands",
        help="bound the join, such as `where: uses(x) <= 8`, or allow them: `--limit matches=N`;"
        " a concat of a hundred operands can be written as several",
        severity="warning",
    )
