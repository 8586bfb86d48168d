"""Programs with a choice that the best one does not make: nearly as good ones, or one asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.extract.ask.counterfactual import Counterfactuals, counterfactuals
from eqsat.extract.choice.columns import Answer
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.memory.bestorder import in_best_order
from eqsat.extract.minimiser import SHARES, Outcome
from eqsat.extract.selected import selection_of, with_floors
from eqsat.extract.session import verify_selection
from eqsat.model.deadline import OutOfTime, elapsed, until
from eqsat.model.egraph import EGraph
from eqsat.model.selection import AT_LEAST, GoalRequest, Price, Question, Selection
from eqsat.model.target import Target

# how much worse than the best, by the first goal: about what prices are wrong by; then more, where
# there are not as many programs as are wanted
TOLERANCES = (0.1, 0.3)


def near_optimal(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    chosen: Selection,
    baseline: Selection | None,
    *,
    count: int,
    seconds: float,
    seed: int = 0,
) -> tuple[Selection, ...]:
    """At most `count` programs other than the chosen one, as different as can be, the best first.

    They keep the budgets and are worse by at most the last of `TOLERANCES`. Each question forces a
    choice that no program known so far makes: an e-node, a value in memory, a value that is not.
    """
    end = elapsed() + seconds
    answers: list[Answer] = []
    pricer: Counterfactuals | None = None
    try:
        with until(end):
            pricer = counterfactuals(
                egraph, target, goals, chosen, baseline, seed,
                enough=elapsed() + SHARES.candidates * seconds,
            )  # fmt: skip
            for tolerance in TOLERANCES:
                # more programs are looked for than are wanted, to choose different ones
                answers = _answers(pricer, tolerance, 4 * count, end)
                if len(answers) >= count:
                    break
    except OutOfTime:
        pass
    if pricer is None:
        return ()
    return tuple(_selection(pricer, a) for a in _different(pricer, answers, count))


def _answers(pricer: Counterfactuals, tolerance: float, most: int, end: float) -> list[Answer]:
    """Answers within the tolerance, the chosen one not among them."""
    chosen = frozenset(pricer.chosen_columns.tolist())
    best = sum(w * pricer.chosen.goal(g).value for g, w in pricer.weights.items())
    cap = int(best * (1 + tolerance))

    def near() -> list[Answer]:
        every = {frozenset(a.columns): a for a in pricer.answers}
        choice = pricer.choice
        return [
            a for columns, a in every.items()
            if columns != chosen
            and choice.worth(a, pricer.weights) <= cap and choice.keeps(a, pricer.budget)
        ]  # fmt: skip

    tasks = [pricer.task(q) for q in _questions(pricer)]
    for task in sorted((t for t in tasks if t.least <= cap), key=lambda t: t.least):
        left = end - elapsed()
        if left <= 0 or len(near()) >= most:
            break
        worth = pricer.incumbent_worth(task)
        if task.choice.forced == () or (worth is not None and worth <= cap):
            continue
        try:
            pricer.solve(task, cap, SHARES.near * left)
        except OutOfTime:
            break
    return near()


def _questions(pricer: Counterfactuals) -> Iterator[Question]:
    """Choices that were not made, of what is computed and of what is kept in memory."""
    space, egraph = pricer.assembly.pool.space, pricer.assembly.pool.space.egraph
    members = {m for g in pricer.chosen.groups for m in g.members}
    written = {space.buffer[w] for g in pricer.chosen.groups for w in g.writes}
    for i, kind in enumerate(space.kinds):
        if kind not in ("leaf", "view") and i not in members:
            yield Question("node", i)
    for c in sorted({n.eclass for n in egraph.nodes}):
        if space.buffer[c] not in written:
            yield Question("written", c)
    for g in pricer.chosen.groups:
        for w in g.writes:
            yield Question("inside", w)


def _different(pricer: Counterfactuals, answers: Sequence[Answer], count: int) -> list[Answer]:
    """So many of these, each the farthest from the chosen one and those before; the best first."""

    def worth(a: Answer) -> int:
        return pricer.choice.worth(a, pricer.weights)

    def distance(a: Answer, b: Answer) -> float:
        one, other = set(a.columns), set(b.columns)
        return len(one ^ other) / max(len(one | other), 1)

    taken = [Answer(tuple(pricer.chosen_columns.tolist()), 0)]
    rest = sorted(answers, key=lambda a: (worth(a), a.columns))
    picked: list[Answer] = []
    while rest and len(picked) < count:
        one = max(rest, key=lambda a: min(distance(a, t) for t in (*taken, *picked)))
        rest.remove(one)
        picked.append(one)
    return sorted(picked, key=lambda a: (worth(a), a.columns))


def _selection(pricer: Counterfactuals, answer: Answer) -> Selection:
    """An answer as a checked selection; the bound of the first goal holds for every one."""
    first, pool = pricer.goals[0].name, pricer.assembly.pool
    bounds = {first: pricer.chosen.goal(first).bound}
    outcome = Outcome("gap", in_best_order(pricer.choice, answer.columns), bounds)
    selection = with_floors(selection_of(pricer.assembly, outcome, pricer.goals, 0.0), bounds)
    asked = linear_goals(dict.fromkeys([*(g.name for g in pricer.goals), *pricer.budget]))
    verify_selection(pool.space.egraph, pool.legality.target, selection, asked)
    return selection


# ---- one question's program ----------------------------------------------------------------------
@dataclass(frozen=True)
class Forced:
    """The price of a question, and the best program found that makes its choice, if any was."""

    question: Question
    price: Price
    selection: Selection | None


def forced(
    egraph: EGraph,
    target: Target,
    goals: tuple[GoalRequest, ...],
    chosen: Selection,
    baseline: Selection | None,
    questions: Sequence[Question],
    *,
    seconds: float,
    seed: int = 0,
) -> list[Forced]:
    """Each question's price and program, within so many seconds for all of them."""
    begin = elapsed()
    try:
        with until(begin + seconds):
            sides = egraph, target, goals, chosen, baseline, seed
            pricer = counterfactuals(*sides, enough=begin + SHARES.candidates * seconds)
            left = begin + seconds - elapsed()
            prices = pricer.prices(questions, SHARES.asking * left)
            best = min(range(len(prices)), key=lambda i: prices[i].key)
            _come_near(pricer, questions[best], begin + seconds - elapsed())
    except OutOfTime:
        nothing = Price(goals[0].name, AT_LEAST)
        return [Forced(q, nothing, None) for q in questions]
    return [Forced(q, p, _program(pricer, q, p)) for q, p in zip(questions, prices, strict=True)]


def _come_near(pricer: Counterfactuals, question: Question, seconds: float) -> None:
    """Look for a program of the price that has few other dispatches than the chosen one."""
    task = pricer.task(question)
    worth = pricer.incumbent_worth(task)
    if worth is not None and pricer.has_sum:
        pricer.solve(task, worth, seconds, nearest=True)


def _program(pricer: Counterfactuals, question: Question, price: Price) -> Selection | None:
    """The best known answer that makes the choice; None if there is none."""
    answer = pricer.best_making(pricer.task(question)) if price.delta is not None else None
    return None if answer is None else _selection(pricer, answer)
