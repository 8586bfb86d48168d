"""Why a dispatch is as it is: the rules from the input to its ops, and what else there was."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.report.alternatives import SHOWN, OtherChoice, price_text
from eqsat.report.explain import Choice, explained
from eqsat.report.finished import Finished
from eqsat.report.origins import RuleStep
from eqsat.report.page.data import PageAlternative, PageChoice, PageRule


@dataclass
class RuleTable:
    """Rules by number, in the order in which they are first named."""

    numbers: dict[PageRule, int] = field(default_factory=dict)

    def chain(self, steps: tuple[RuleStep, ...]) -> tuple[int, ...]:
        """The rules of a chain, the first applied first."""
        rules = [PageRule(s.rule, s.at, s.doc) for s in reversed(steps)]
        return tuple(self.numbers.setdefault(r, len(self.numbers)) for r in rules)

    @property
    def rules(self) -> tuple[PageRule, ...]:
        return tuple(self.numbers)


def reasons(run: Finished, table: RuleTable) -> dict[int, tuple[PageChoice, ...]]:
    """Per dispatch of the schedule, its choices in execution order; rules go into the table."""
    assert run.schedule is not None
    number = {id(d): i for i, d in enumerate(run.schedule.dispatches)}
    found: dict[int, list[PageChoice]] = {}
    for choice in explained(run).choices:
        if choice.dispatch is not None:
            found.setdefault(number[id(choice.dispatch)], []).append(_shown(choice, table))
    return {i: tuple(choices) for i, choices in found.items()}


def _shown(choice: Choice, table: RuleTable) -> PageChoice:
    others = choice.alternatives
    return PageChoice(
        choice.text,
        choice.type,
        table.chain(choice.chain),
        tuple(_alternative(o, table) for o in others[:SHOWN]),
        max(0, len(others) - SHOWN),
    )


def _alternative(other: OtherChoice, table: RuleTable) -> PageAlternative:
    price = "" if other.price is None else price_text(other.price)
    if other.subsumed:
        price = f"{price} given up by a rule".strip()
    return PageAlternative(other.text, table.chain(other.chain), price)
