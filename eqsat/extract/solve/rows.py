"""Peak memory in the model: live bytes of every step, from monotone "still read" bits.

Without an order: live bytes when each needed value is computed, whatever the order (`anyorder`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eqsat.extract.solve.anyorder import AnyOrder
from eqsat.extract.solve.anyrows import AnyOrderRows
from eqsat.extract.solve.live import Claims, liveness
from eqsat.model.deadline import tick

if TYPE_CHECKING:
    from eqsat.extract.solve.cpsat import Model


def memory_rows(model: Model, peak: Any, unit: int) -> None:
    """peak ≥ fixed + resident + Σ live temporaries, for each step; in units of `unit` bytes."""
    problem = model.problem
    base = problem.fixed_bytes // unit
    if isinstance(problem, AnyOrder):
        fixed = _weights(model, unit) + base
        AnyOrderRows(model, problem, unit, peak - fixed, any_chosen).add()
        return
    known = liveness(problem)
    reads: list[Any] = []
    for read in known.reads:
        tick()
        reads.append(_bit(model, read.claims, reads, read.later))
    spans = [
        model.both(reads[span.read], [model.x[i] for i in span.writers]) for span in known.spans
    ]
    kept = ((size, _bit(model, claims, [], None)) for size, claims in known.weights)
    fixed = sum(size // unit * v for size, v in kept) + base
    model.model.add(peak >= fixed)
    for row in known.rows:
        tick()
        terms = [(size, model.x[i]) for size, i in row.written]
        terms += [(size, reads[n]) for size, n in row.read]
        terms += [(size, spans[n]) for size, n in row.spans]
        model.model.add(sum(size // unit * v for size, v in terms) + fixed <= peak)


def _bit(model: Model, claims: Claims, bits: list[Any], later: int | None) -> Any:
    """A literal that is true if an option of the claims is chosen, or the bit `later` is true."""
    options = dict.fromkeys(i for claim in claims for i in claim)
    if later is None and len(options) == 1:
        return model.x[next(iter(options))]
    after = [] if later is None else [bits[later]]
    found = model.true_if_any([*(model.x[i] for i in options), *after])
    for v in after:
        model.model.add_implication(v, found)
    for claim in claims:
        model.model.add_at_most_one([*(model.x[i] for i in claim), found.negated()])
    return found


def _weights(model: Model, unit: int) -> Any:
    """Resident bytes of what the chosen dispatches read."""
    nbytes = model.problem.nbytes
    return sum(nbytes[b] // unit * v for b, v in _resident(model).items())


def _resident(model: Model) -> dict[int, Any]:
    """Per weight buffer: whether a chosen dispatch reads it."""
    readers: dict[int, list[int]] = {}
    for i, o in enumerate(model.problem.options):
        for b in o.resident:
            readers.setdefault(b, []).append(i)
    return {b: any_chosen(model, r) for b, r in readers.items()}


def any_chosen(model: Model, options: Sequence[int]) -> Any:
    """A literal that is true if one of these options is chosen.

    Of options that hold one exclusive number at most one is chosen, so their sum is at most the
    literal: without that the relaxation pays a small part of a weight that is read for sure.
    """
    literals = [model.x[i] for i in options]
    if len(literals) == 1:
        return literals[0]
    found = model.at_least_any(literals)
    for clique in _cliques(model, options):
        model.model.add_at_most_one([*(model.x[i] for i in clique), found.negated()])
    return found


def _cliques(model: Model, options: Sequence[int]) -> list[list[int]]:
    """Options that exclude each other, two or more, by the numbers they hold."""
    holders: dict[int, list[int]] = {}
    for i in options:
        for n in model.problem.options[i].exclusive:
            holders.setdefault(n, []).append(i)
    return list({tuple(h): h for h in holders.values() if len(h) > 1}.values())
