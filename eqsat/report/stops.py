"""Warnings of a finished run: what was not searched or not priced in full, and what to do then."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.model.control import EXACT, controls
from eqsat.model.diag import Diagnostic
from eqsat.model.egraph import EGraph, RuleStat
from eqsat.model.limits import Limits
from eqsat.model.rules import Rule
from eqsat.model.selection import GREEDY
from eqsat.report.finished import Finished
from eqsat.report.units import count_text, goal_text

NAMED = 3  # rules that a warning names
LEAST_SHARE = 0.01  # of the e-nodes: who made less is not why a search stopped


def stop_warnings(run: Finished) -> list[Diagnostic]:
    """Warnings for what was not searched or priced in full.

    E402 saturation and E401 extraction stopped at a limit, E409 the price of a loop is bounded.
    """
    found = [
        _bounded(run.canonical.value_name(i)) for i, a in controls(run.canonical) if a.is_bounded
    ]
    if run.egraph is not None and run.egraph.stop != "saturated":
        rules = {r.name: r for r in run.rules.rules}
        limits = run.limits.resolved(len(run.canonical.nodes))
        found.append(_unsaturated(run.egraph, rules, limits))
    if run.selection is not None:
        asked = {g.name for g in run.goals}
        among = f" among {run.selection.among}" if run.selection.is_capped else ""
        found += [
            Diagnostic(
                "E401",
                f"extraction stopped ({run.selection.stop}): {name} {goal_text(name, g.value)}"
                f" found, nothing below {goal_text(name, g.bound)} is possible{among}"
                f" (gap {g.gap:.1%})",
                help=_LONGER if run.selection.stop.endswith(" time") else "",
                severity="warning",
            )
            for name, g in run.selection.goals
            if name in asked and g.gap > 0 and run.selection.stop not in ("optimal", GREEDY)
        ]
    return found


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
    made = "; ".join(_share(stat, egraph) for stat in most)
    return Diagnostic(
        "E402", f"{text}; of these {made}", help=_guard(most[0], rules, egraph, limits),
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
    """What bounds the rule that grew the e-graph most, does without it, or lets it grow."""
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
