"""Why a dispatch is as it is: the rules from the input to its ops, and what else there was."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Reasons:
    """Per dispatch of a schedule its choices in execution order.

    bodies: of loops and branches, by number of the dispatch and label of the body.
    """

    choices: Mapping[int, tuple[PageChoice, ...]] = field(default_factory=dict)
    bodies: Mapping[tuple[int, str], Reasons] = field(default_factory=dict)


UNKNOWN = Reasons()


def reasons(run: Finished, table: RuleTable) -> Reasons:
    """Why a run's dispatches are as they are, those of its bodies too; rules go into the table."""
    assert run.schedule is not None
    number = {id(d): i for i, d in enumerate(run.schedule.dispatches)}
    choices_of: dict[int, list[PageChoice]] = {}
    bodies = {}
    for choice in explained(run).choices:
        if choice.dispatch is None:
            continue
        i = number[id(choice.dispatch)]
        choices_of.setdefault(i, []).append(_shown(choice, table))
        for path in choice.holds:
            body = run.bodies.get(path)
            if body is not None and body.schedule is not None:
                bodies[i, path.rpartition("/")[2]] = reasons(body, table)
    return Reasons({i: tuple(choices) for i, choices in choices_of.items()}, bodies)


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
