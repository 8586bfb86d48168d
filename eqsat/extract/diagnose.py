"""Why nothing is admissible: the budgets, what they would need, and the groups limits removed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.minimiser import SHARES, Minimiser
from eqsat.extract.session import Session
from eqsat.model.deadline import OutOfTime, elapsed, until
from eqsat.model.diag import EqsatError, fail
from eqsat.model.selection import CAP, REFUSED, RESULT_RELATION, TIME_LIMIT, Removed, short_of_time
from eqsat.model.target import Target

BYTES = ("memory", "resident", "load_peak", "relayout")  # goals that are counted in them
SHOWN = 5  # removed groups named in a message
UNITS = {"time": "ps", "dispatches": "dispatches"} | dict.fromkeys(BYTES, "bytes")


def _amount(goal: str, value: int) -> str:
    if goal == "time":
        return f"{value / 1e6:,.3f} us"
    return f"{value:,} {UNITS.get(goal, '')}".rstrip()


def removed_sentence(r: Removed) -> str:
    """`the unfused transpose %1 needs 524,288 bytes, the vector limit is 8,192 (place)`."""
    place = f" ({r.place})" if r.place else ""
    if r.limit_name == RESULT_RELATION:
        return f"the {r.what} writes permuted, {RESULT_RELATION} is identity{place}"
    if r.limit_name == REFUSED:
        return f"{r.what}{place}"
    what = r.what if r.what.startswith("a ") else f"the unfused {r.what}"
    return f"{what} needs {r.bytes:,} bytes, the {r.limit_name} limit is {r.limit:,}{place}"


def _reasons(assembly: Assembly, target: Target) -> list[str]:
    limits = [r for r in assembly.removed if r.limit_name not in (CAP, TIME_LIMIT)]
    reasons = [removed_sentence(r) for r in sorted(limits, key=lambda r: -r.bytes)[:SHOWN]]
    untiled = assembly.pool.untiled
    if untiled:
        layouts = map(assembly.pool.space.name, untiled)  # those of one value share its name
        names = ", ".join([*dict.fromkeys(layouts)][:SHOWN])
        if target.orders_forced:
            where = target.place("orders_forced")
            reasons.append(f"`orders_forced` ({where}) rules out {names} as they read and write")
        elif target.row_padding:
            where = target.place("row_padding")
            reasons.append(f"`row_padding` ({where}) rules out {names} in the rows they read")
        elif target.tiles_forced:
            where = target.place("tiles_forced")
            reasons.append(f"`tiles_forced` ({where}) rules out unpacked {names}")
        else:
            reasons.append(f"none of the `pipelines` ({target.place('pipelines')}) takes {names}")
    return reasons


def inadmissible(session: Session, proven: bool, seconds: float = math.inf) -> EqsatError:
    """The E410 error; it says whether this is proven or unknown at the time limit.

    seconds: how long it may look for what the budgets would have to be.
    """
    seconds = min(seconds, SHARES.message_seconds)
    assembly, target = session.assembly, session.target
    budget = dict(target.budget)
    sentences: list[str] | None = []
    if budget:
        asked = replace(session, least={}).questions(seconds)
        asked.tells_fewest = True
        with suppress(OutOfTime), until(elapsed() + seconds):
            sentences = _sentences(Budgets(asked, budget))
    lines = [_budget(target, goal, limit) for goal, limit in budget.items()]
    causes = [*lines, *(sentences or ()), *_reasons(assembly, target)]
    head = "no choice is admissible (proven)" if proven else "nothing admissible found in time"
    is_cut = short_of_time(assembly.cuts)
    if is_cut:
        head += ": candidates were left out for want of time"
    elif not budget:
        head += ": some result cannot be computed on this target"
    elif sentences is None:
        head += ": some result cannot be computed on this target, whatever the budgets"
    message = "; ".join([head, *causes])
    advice = "raise a budget or a limit, or add rules that reach other forms"
    if is_cut:
        advice = "give the search more time (`--time-limit`)"
    return fail("E410", message, help=advice, exit_code=3)


def _budget(target: Target, goal: str, limit: int) -> str:
    return f"the budget {_held({goal: limit}, (goal,))} ({target.place(f'budget.{goal}')})"


def _held(budget: Mapping[str, int], goals: Sequence[str]) -> str:
    """`time <= 300.000 us and memory <= 1,024 bytes`."""
    return _listed([f"{g} <= {_amount(g, budget[g])}" for g in goals])


def _listed(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([p for p in (", ".join(items[:-1]), *items[-1:]) if p])


def _sentences(budgets: Budgets) -> list[str] | None:
    """The needs of any choice, or budgets that exclude each other; None: whatever the budgets."""
    alone, impossible = budgets.alone, budgets.impossible
    if not any(alone.values()):
        return None
    needs = [_need(n) for n in alone.values() if n is not None and n.value]
    if len(budgets.budget) == 1:
        return needs
    if impossible:
        others = (tuple(o for o in budgets.budget if o != g) for g in impossible)
        both = [budgets.need(g, held) for g, held in zip(impossible, others, strict=True)]
        more = [n for n in both if n is not None and n.value > budgets.least(n.goal)]
        return needs + [_with(budgets, n) for n in more]
    conflict = budgets.conflict()
    if not conflict:
        return needs
    names = _listed([n.goal for n in conflict])
    return [f"the budgets {names} exclude each other", *(_with(budgets, n) for n in conflict)]


def _need(need: Need) -> str:
    amount = _amount(need.goal, need.value)
    if need.is_exact:
        return f"the least {need.goal} any choice needs is {amount}"
    return f"any choice needs a {need.goal} of at least {amount}"


def _with(budgets: Budgets, need: Need) -> str:
    """The least budget that would do while the others are held."""
    amount = _amount(need.goal, need.value)
    words = "the least {} is {}" if need.is_exact else "the {} is at least {}"
    value = words.format(need.goal, amount)
    short = len(need.held) + 1 < len(budgets.budget)
    more = " (alone not enough: the other budgets exclude each other as well)" if short else ""
    return f"with {_held(budgets.budget, need.held)} {value}{more}"


# ---- budgets that exclude each other -------------------------------------------------------------
@dataclass(frozen=True)
class Need:
    """The least value of a goal while others are held at their budgets, in any order.

    `is_exact`: some answer needs no more; else the value is a bound.
    """

    goal: str
    value: int
    is_exact: bool
    held: tuple[str, ...] = ()


@dataclass
class Budgets:
    """Questions about budgets that no choice keeps together."""

    asked: Minimiser
    budget: Mapping[str, int]
    needs: dict[tuple[str, tuple[str, ...]], Need | None] = field(default_factory=dict)

    def need(self, goal: str, held: tuple[str, ...] = ()) -> Need | None:
        """None if no choice keeps the budgets that are held, which is proven."""
        if (goal, held) not in self.needs:
            self.needs[goal, held] = Need(goal, 0, False, held)  # nobody knows
            with suppress(OutOfTime):
                self.needs[goal, held] = self._need(goal, held)
        return self.needs[goal, held]

    def _need(self, goal: str, held: tuple[str, ...]) -> Need | None:
        caps = {g: self.budget[g] for g in held}
        # more columns are not searched for the sake of a message
        is_look = len(self.asked.choice) > 10_000
        solved = self.asked.least({goal: 1}, caps, is_look=is_look)
        if solved.status == "infeasible":
            return None
        least = max(solved.bound, self.asked.least_alone(goal))
        best = None if solved.best is None else self.asked.choice.value(goal, solved.best)
        return Need(goal, least, best is not None and best <= least, held)

    @cached_property
    def alone(self) -> dict[str, Need | None]:
        """Per budget: what any choice needs."""
        return {goal: self.need(goal) for goal in self.budget}

    @property
    def impossible(self) -> list[str]:
        """Budgets that no choice keeps, whatever the others."""
        return [g for g in self.budget if self.least(g) > self.budget[g]]

    def least(self, goal: str) -> int:
        """The least value of a goal in any choice."""
        need = self.alone[goal]
        return 0 if need is None else need.value

    def conflict(self) -> tuple[Need, ...]:
        """Budgets of which no choice keeps all, and some choice all but any one, as far as known.

        Each with the least value that would do while all other budgets are held (where these
        exclude each other as well: those of the conflict). Nothing if it cannot be proven that
        there is such a conflict.
        """
        left = tuple(self.budget)
        for goal in self.budget:
            if goal in left and len(left) > 1:
                rest = tuple(g for g in left if g != goal)
                if self._exclude(rest):
                    left = rest
        if not self._exclude(left):
            return ()
        needs = [self._relaxed(g, left) for g in left]
        return tuple(n for n in needs if n is not None)

    def _relaxed(self, goal: str, conflict: tuple[str, ...]) -> Need | None:
        others = tuple(g for g in self.budget if g != goal)
        need = self.need(goal, others)
        if need is None and len(conflict) <= len(others):
            need = self.need(goal, tuple(g for g in conflict if g != goal))
        return need

    def _exclude(self, goals: tuple[str, ...]) -> bool:
        """Whether it is proven that no choice keeps all of these."""
        first, *others = goals
        need = self.need(first, tuple(others))
        return need is None or need.value > self.budget[first]
