"""Peak memory in the model: live bytes of every step, from monotone "still read" bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.extract.cpsat import Model


def memory_rows(model: Model, peak: Any, unit: int) -> None:
    """peak ≥ fixed + resident + Σ live temporaries, for each step; in units of `unit` bytes."""
    problem = model.problem
    resident = _resident(model)
    base = problem.fixed_bytes // unit
    rows: dict[int, list[tuple[int, Any]]] = {o.step: [] for o in problem.options}
    steps = sorted(rows)
    for b in problem.writers:
        if b in problem.roots:
            continue
        size = problem.nbytes[b] // unit
        for step, literal in _live(model, b, steps):
            rows[step].append((size, literal))
    weights = [(problem.nbytes[b] // unit, v) for b, v in resident.items()]
    fixed = sum(s * v for s, v in weights) + base
    if not rows:
        model.model.add(peak >= fixed)
    for step in steps:
        model.model.add(sum(s * v for s, v in rows[step]) + fixed <= peak)


def _resident(model: Model) -> dict[int, Any]:
    """Per weight buffer: whether a chosen dispatch reads it."""
    readers: dict[int, list[Any]] = {}
    for i, o in enumerate(model.problem.options):
        for b in o.resident:
            readers.setdefault(b, []).append(model.x[i])
    return {b: model.at_least_any(r) for b, r in readers.items()}


def _live(model: Model, buffer: int, steps: list[int]) -> list[tuple[int, Any]]:
    """(step, literal or sum that is 1 if the buffer is live there)."""
    problem = model.problem
    options = problem.options
    at: dict[int, list[Any]] = {}
    for i in problem.writers[buffer]:
        at.setdefault(options[i].step, []).append(model.x[i])
    read = _still_read(model, buffer)
    last_writer, last_reader = max(at), max(read, default=-1)
    found: list[tuple[int, Any]] = []
    known: dict[tuple[int, int], Any] = {}
    for step in steps:
        if step < min(at) or step > max(last_writer, last_reader):
            continue
        before = [v for s, vs in at.items() if s < step for v in vs]
        later = min((s for s in read if s >= step), default=None)
        if not before or later is None:
            found += [(step, v) for v in at.get(step, [])]
        elif step > last_writer:
            found.append((step, read[later]))
        else:
            key = (len(before), later)
            if key not in known:
                known[key] = model.both(read[later], before)
            found += [(step, known[key]), *((step, v) for v in at.get(step, []))]
    return found


def _still_read(model: Model, buffer: int) -> dict[int, Any]:
    """Per step that may read the buffer: whether this or a later step reads it."""
    by_step: dict[int, list[Any]] = {}
    for h in model.problem.readers.get(buffer, []):
        by_step.setdefault(model.problem.options[h].step, []).append(model.x[h])
    found: dict[int, Any] = {}
    following: list[Any] = []
    for step in sorted(by_step, reverse=True):
        literals = by_step[step] + following
        found[step] = literals[0] if len(literals) == 1 else model.at_least_any(literals)
        following = [found[step]]
    return found
