"""Prices of choices: alternatives to a chosen e-node, and what another compiler chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from eqsat.model.selection import (
    AT_LEAST,
    EXACT,
    NOT_ADMISSIBLE,
    Group,
    Price,
    Question,
    Selection,
    Tied,
)
from eqsat.report.formatting import count_text, delta_text, goal_text, table_text, time_text
from eqsat.report.names import Names, RuleStep, rule_chain

Prices = Callable[[Sequence[Question]], Sequence[Price]]
SHOWN = 6  # alternatives listed before "and n more"
NAMED = 8  # values that tie for one reason, named before "and n more"


@dataclass(frozen=True)
class OtherChoice:
    """A choice that was not made: another e-node of the class, or another place for the value."""

    text: str
    question: Question | None  # None: nothing to ask, as it is made ahead of time
    chain: tuple[RuleStep, ...] = ()
    subsumed: bool = False  # given up by a rule with `apply: replace`
    price: Price | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "rules": [s.rule for s in self.chain],
            "subsumed": self.subsumed,
            "price": self.price and self.price.to_json(),
        }


def other_nodes(names: Names, node: int, chosen: set[int], ahead: bool) -> list[OtherChoice]:
    """The e-nodes of the same class that the search did not take."""
    egraph = names.egraph
    return [
        OtherChoice(
            names.node_text(egraph.nodes[i]),
            None if ahead else Question("node", i),
            rule_chain(egraph, i),
            egraph.nodes[i].subsumed,
        )
        for i in egraph.classes[egraph.nodes[node].eclass]
        if i != node and i not in chosen
    ]


@dataclass(frozen=True)
class Placements:
    """Which values a selection keeps in memory."""

    names: Names
    selection: Selection

    @cached_property
    def written(self) -> frozenset[int]:
        """Buffers that dispatches write."""
        buffer = self.names.buffer
        return frozenset(buffer[w] for g in self.selection.groups for w in g.writes)

    @cached_property
    def read(self) -> frozenset[int]:
        """Buffers that dispatches read."""
        buffer = self.names.buffer
        return frozenset(buffer[r] for g in self.selection.groups for r in g.reads)

    def other_places(self, node: int) -> list[OtherChoice]:
        """Memory or not, and in which layout; asked where a value is computed, not converted."""
        names, egraph = self.names, self.names.egraph
        c = egraph.nodes[node].eclass
        value = names.logical[c]
        if len(egraph.types[c]) > 1:
            return []
        in_memory = {b for b in self.written if names.logical[b] == value}
        choices = [
            OtherChoice(f"{names.of(b)} kept in memory, {names.type_of(b)}", question)
            for b, question in self._layouts(value, in_memory)
        ]
        results = {names.logical[r] for r in egraph.roots}
        if in_memory and value not in results:
            text = f"{names.of(c)} computed inside of what reads it, not kept in memory"
            choices.append(OtherChoice(text, Question("inside", c)))
        return choices

    def _layouts(self, value: int, in_memory: set[int]) -> list[tuple[int, Question]]:
        """Layouts of a value that the program or a dispatch could read, and are not kept."""
        every = sorted(self._readable.get(value, set()) - in_memory)
        return [(b, Question("written", b)) for b in every]

    @cached_property
    def _readable(self) -> dict[int, set[int]]:
        """Per value, its layouts that some op of the e-graph reads."""
        names, layouts = self.names, dict[int, set[int]]()
        for b in {names.buffer[c] for n in names.egraph.nodes for c in n.children}:
            layouts.setdefault(names.logical[b], set()).add(b)
        return layouts


def prices_of(questions: Sequence[Question], prices: Prices) -> dict[Question, Price]:
    """Each question's price; equal questions are asked once."""
    once = list(dict.fromkeys(questions))
    return dict(zip(once, prices(once), strict=True))


def priced(
    choices: tuple[OtherChoice, ...], prices: dict[Question, Price]
) -> tuple[OtherChoice, ...]:
    """The choices with their prices, cheapest first."""
    with_price = [
        a if a.question is None else replace(a, price=prices[a.question]) for a in choices
    ]
    last = (True, 0, True)
    return tuple(sorted(with_price, key=lambda a: a.price.key if a.price else last))


def lines(choices: tuple[OtherChoice, ...], *, folded: bool = False) -> list[str]:
    """`or     matmul(%3, w)  (the input program): +4.2 us`, so many, and a count of the rest.

    folded: what ties is counted only.
    """
    tied = [a for a in choices if folded and is_tied(a.price)]
    same = f"    or     {len(tied)} others of equal {_goal(tied)}" if tied else ""
    if len(tied) == 1:
        same = f"    or     {tied[0].text}{_origin(tied[0])}: equal {_goal(tied)}"
    rest = tuple(a for a in choices if a not in tied)
    return [*([same] if tied else []), *_listed(rest)]


def _goal(tied: Sequence[OtherChoice]) -> str:
    return next(a.price.goal for a in tied if a.price)


def _listed(choices: tuple[OtherChoice, ...]) -> list[str]:
    text = [f"    or     {a.text}{_origin(a)}{_price(a)}" for a in choices[:SHOWN]]
    hopeless = sum(map(_is_hopeless, choices[SHOWN:]))
    more = len(choices[SHOWN:]) - hopeless
    text += [f"    and {more} more"] if more else []
    return text + ([f"    and {hopeless} that are not admissible"] if hopeless else [])


def _is_hopeless(a: OtherChoice) -> bool:
    return a.price is not None and a.price.status == NOT_ADMISSIBLE


def _origin(a: OtherChoice) -> str:
    if a.question is not None and a.question.kind != "node":
        return ""
    by = a.chain[0].rule if a.chain else "the input program"
    return f"  ({by}{', given up by a rule' if a.subsumed else ''})"


def _price(a: OtherChoice) -> str:
    return "" if a.price is None else f": {price_text(a.price)}"


def price_text(p: Price) -> str:
    """`+9.8 us`, `equal`, `at least +3 us`; see `Price`."""
    if p.status == NOT_ADMISSIBLE:
        return "none, not admissible"
    least = f"at least {delta_text(p.goal, p.bound)}" if p.bound > 0 else ""
    if p.bound == 1 and p.delta is None:  # all that do not tie
        least = f"more {p.goal}, how much is not known in this time"
    if p.delta is None:
        return least or "not known in this time"
    text = f"equal {p.goal}{_tie(p.tie)}" if p.delta == 0 else delta_text(p.goal, p.delta)
    if p.delta < 0:
        text += ", better than what was found"
    if p.status != AT_LEAST:
        return text
    return f"at most {text}" + (f", {least}" if least else "")


def _tie(tie: Tied | None) -> str:
    """` (the same bytes move); at most +192 KiB memory`."""
    return "" if tie is None else f" ({tie.why}){later_text(tie)}"


def later_text(tie: Tied) -> str:
    """The later goals' differences of programs that tie, if there are any."""
    if not tie.goal:
        return ""
    most = "at most " if tie.delta > 0 else ""
    name = "" if tie.goal == "weighted" else f" {tie.goal}"
    return f"; {most}{delta_text(tie.goal, tie.delta)}{name}"


def ties_lines(prices: Sequence[tuple[str, Price]], what: str) -> list[str]:
    """Names whose price is nothing, by reason, in place of a line for each."""
    tied = [(name, p) for name, p in prices if is_tied(p)]
    if not tied:
        return []
    goal = tied[0][1].goal
    head = f"{len(tied)} of {count_text(len(prices), what)} tie in {goal}: as much is the best"
    lines = [f"{head} program that goes without one of them, by reason:"]
    by_reason: dict[str, list[str]] = {}
    for name, p in tied:
        assert p.tie is not None
        by_reason.setdefault(f"{p.tie.why}{later_text(p.tie)}", []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda r: (-len(r[1]), r[0])):
        once = list(dict.fromkeys(names))
        rest = f", and {len(once) - NAMED} more" if len(once) > NAMED else ""
        lines.append(f"  {len(names)}  {reason}: {', '.join(once[:NAMED])}{rest}")
    return lines


def is_tied(p: Price | None) -> bool:
    """Whether it is proven that the best program that chooses otherwise is as good."""
    return p is not None and p.status == EXACT and p.delta == 0 and p.tie is not None


def without_text(p: Price) -> str:
    """The price of going without the chosen e-node, as a sentence."""
    if p.status == NOT_ADMISSIBLE:
        return "none, no admissible program goes without it"
    if p.status == AT_LEAST:
        return f"{price_text(p)} without it"
    if p.delta is None or p.delta <= 0:
        return f"another program of equal {p.goal} goes without it{_tie(p.tie)}"
    return f"+{goal_text(p.goal, p.delta)} {p.goal} without it"


GOALS = ("time", "memory", "dispatches")
COLUMNS = ("", "judged", "best", "bound", "difference")
MOST_SENTENCES = 12  # lines of one kind before "and n more"


class OneDecision(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def price(self) -> Price | None: ...


def figure_rows(foreign: Selection, best: Selection) -> list[tuple[str, ...]]:
    """A row of COLUMNS per goal."""
    rows: list[tuple[str, ...]] = []
    for name in [g for g in GOALS if g in dict(best.goals)]:
        a, b = foreign.goal(name).value, best.goal(name).value
        share = f" ({(a - b) / b:+.1%})" if b and a != b else ""
        delta = f"{delta_text(name, a - b)}{share}" if a != b else "equal"
        bound = goal_text(name, best.goal(name).bound)
        rows.append((name, goal_text(name, a), goal_text(name, b), bound, delta))
    return rows


def judged_lines(
    head: str,
    claim: str,
    foreign: Selection,
    best: Selection,
    labels: Sequence[str],
    decisions: Sequence[OneDecision],
    sections: Sequence[tuple[str, Sequence[str]]],
) -> str:
    """Figures, dispatches, decisions by price, and lists of sentences under their titles.

    claim: how far the best is proven.
    """
    lines = [head, "", *table_text(COLUMNS, figure_rows(foreign, best)).splitlines()]
    lines.append(_difference(foreign, best, claim))
    lines += ["", "dispatches", *_dispatch_lines(foreign.groups, labels)]
    lines += ["", *_decision_lines(decisions)] if decisions else []
    for title, sentences in sections:
        if sentences:
            lines += ["", title, *_shown([f"  {s}" for s in sentences])]
    return "\n".join(lines) + "\n"


def _difference(foreign: Selection, best: Selection, claim: str) -> str:
    """The gap in words, and over which programs it is proven."""
    goal = best.goals[0][0]
    value, bound = foreign.goal(goal).value, best.goal(goal).bound
    if value < bound:
        return (
            f"its {goal} is below what any program of this e-graph takes: it uses what is not in it"
        )
    gap = (value - bound) / value if value else 0.0
    if gap == 0:
        return f"no program of this e-graph has less {goal} (the best: {claim})"
    return f"gap to the optimum: at most {gap:.1%} of its {goal} (the best: {claim})"


def _dispatch_lines(groups: Sequence[Group], labels: Sequence[str]) -> list[str]:
    both = zip(groups, labels, strict=True)
    return _shown([f"  {time_text(g.time_ps):>8}  {label}" for g, label in both])


def _decision_lines(decisions: Sequence[OneDecision]) -> list[str]:
    """Decisions that cost something, the dearest first; those that cost nothing in one line."""
    free = [d for d in decisions if _is_free(d.price)]
    rest = [d for d in decisions if not _is_free(d.price)]
    dear = sorted(rest, key=lambda d: (_key(d.price), d.text))
    count = count_text(len(decisions), "choice")
    lines = [f"decisions: the cost of {count} that it made, relative to eqsat's best program"]
    lines += _shown([f"  {_words(d.price)}: {d.text}" for d in dear])
    same = "as the best program does, or it ties"
    return [*lines, *([f"  nothing: {count_text(len(free), 'choice')}, {same}"] if free else [])]


def _is_free(price: Price | None) -> bool:
    return price is not None and price.status == EXACT and price.delta == 0


def _key(price: Price | None) -> tuple[bool, int]:
    if price is None:
        return True, 0
    least = price.bound if price.delta is None else price.delta
    return price.status != NOT_ADMISSIBLE, -least


def _words(price: Price | None) -> str:
    if price is None:
        return "not asked"
    if price.status == NOT_ADMISSIBLE:
        return "no program of this e-graph does so"
    return price_text(price)


def _shown(lines: list[str]) -> list[str]:
    more = len(lines) - MOST_SENTENCES
    return [*lines[:MOST_SENTENCES], *([f"  and {more} more"] if more > 0 else [])]
