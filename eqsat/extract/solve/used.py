"""A forced choice in the model: it is chosen, its result is read, and so is what reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.extract.solve.cpsat import ChoiceModel


def forced_rows(model: ChoiceModel) -> None:
    """One of `problem.forced` is chosen and serves a root.

    Without the second half a forced dispatch would be added where it is not needed, and its price
    would be that of useless work. A buffer has one writer, which comes before all its readers, so
    following "somebody reads it" from the forced dispatch ends at a root.
    """
    problem = model.problem
    assert problem.forced is not None
    roots = set(problem.roots)
    read = {
        b: model.only_if_any([model.x[h] for h in problem.readers.get(b, [])])
        for b in problem.writers
        if b not in roots
    }
    for i, option in enumerate(problem.options):  # (C5) x ≤ Σ read[written]
        if roots.isdisjoint(option.writes):
            model.model.add_bool_or([*(read[b] for b in option.writes), model.x[i].negated()])
    ways: list[Any] = []
    for i, buffers in problem.forced:
        if not roots.isdisjoint(buffers):
            ways.append(model.x[i])
            continue
        seen = model.only_if_any([read[b] for b in buffers])
        ways.append(model.only_if_both(model.x[i], seen))
    model.model.add_bool_or(ways)  # (C6) Σ forced ≥ 1
