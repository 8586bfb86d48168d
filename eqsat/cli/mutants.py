"""`eqsat check --test --mutants`: what became of each rule's mutants, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eqsat.model.rules import Rule


def mutant_text(rules: Sequence[Rule], seed: int) -> str:
    """A line per rule with the number of mutants per verdict; then those that were not refuted."""
    from eqsat.hunt.judge import EQUAL, KILLED, MISSED, REFUSED, SOUND, judge
    from eqsat.report.text import table_text

    words = (REFUSED, KILLED, EQUAL, SOUND, MISSED)
    rows, lines = [], []
    for rule in rules:
        found = judge(rule, seed)
        count = Counter(v.verdict for v in found)
        rows.append((rule.name, str(len(found)), *(str(count[w]) for w in words)))
        lines += [str(v) for v in found if v.verdict in (SOUND, MISSED)]
    return "\n".join([table_text(("rule", "mutants", *words), rows).rstrip(), *lines])
