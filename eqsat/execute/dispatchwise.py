"""Verification dispatch by dispatch, each from the operands that it really had.

What comes in is an executable and flat inputs; what goes out is a verdict on its dispatches and on
the weights that were computed ahead. The executable runs step by step, so that the operands and
results of every dispatch can be looked at. Elements are computed in float64, on demand
(`ondemand`): corners, borders of tails and parts, some at random, and whichever differ from what
XLA's own ops make of the same operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from eqsat.execute.compare import distance, size
from eqsat.execute.comparison import NUDGES, Examined, Judged, judged_elements
from eqsat.execute.elements import flat_indices, open_elements
from eqsat.execute.executable import held_view
from eqsat.execute.executors import nudged
from eqsat.execute.lowering import evaluate
from eqsat.execute.ondemand import Elements
from eqsat.execute.reference import OverWork, WorkBudget
from eqsat.execute.rounding import error_limit, error_limits
from eqsat.model.attr import Shape
from eqsat.model.deadline import tick
from eqsat.model.executor import Executable
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.tensor import is_float
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 30  # that the dispatches of one part write; all of them are held at once


@dataclass(frozen=True)
class DispatchRun:
    """A dispatch that ran: its number, the buffers it read and those it wrote, in their order."""

    number: int
    reads: list[Array]
    writes: list[Array]


def steps(
    executable: Executable, inputs: Sequence[Any], most_bytes: int = MOST_BYTES
) -> Iterator[DispatchRun]:
    """Every dispatch as the executor runs it, in order; values that nobody reads any more go.

    Dispatches are compiled together, in parts of so many bytes that they write.
    """
    import jax

    schedule = executable.schedule
    program = schedule.program
    typed = zip(program.inputs, executable.typed(inputs), strict=True)
    held: dict[int, Any] = dict(executable.packed) | dict(typed)
    last = {schedule.buffer_of(r): n for n, d in enumerate(schedule.dispatches) for r in d.reads}
    for numbers in _parts(schedule, most_bytes):
        reads_of = (r for n in numbers for r in schedule.dispatches[n].reads)
        buffers = set(map(schedule.buffer_of, reads_of))
        given = {i: x for i, x in held.items() if schedule.buffer_of(i) in buffers}
        held |= jax.jit(lambda given, numbers=numbers: _run(executable, numbers, given))(given)
        for n in numbers:
            d = schedule.dispatches[n]
            reads, writes = ([np.asarray(held_view(schedule, held, i)) for i in side]
                             for side in (d.reads, d.writes))  # fmt: skip
            yield DispatchRun(n, reads, writes)
        held = {i: x for i, x in held.items() if last.get(schedule.buffer_of(i), -1) > numbers[-1]}


def _parts(schedule: Schedule, most_bytes: int) -> Iterator[tuple[int, ...]]:
    part: list[int] = []
    written = 0
    for n, d in enumerate(schedule.dispatches):
        nbytes = sum(schedule.nbytes(w) for w in d.writes)
        if part and written + nbytes > most_bytes:
            yield tuple(part)
            part, written = [], 0
        part.append(n)
        written += nbytes
    if part:
        yield tuple(part)


def _run(
    executable: Executable, numbers: Sequence[int], given: Mapping[int, Any]
) -> dict[int, Any]:
    """Results of these dispatches; to be traced. XLA sees no dispatch through another, so that what
    one reads is what the other wrote."""
    from jax import lax

    schedule, held = executable.schedule, dict(given)
    written: dict[int, Any] = {}
    for n in numbers:
        d = schedule.dispatches[n]
        reads = [held_view(schedule, held, r) for r in d.reads]
        outputs = lax.optimization_barrier(executable.dispatch(n)(*reads))
        by_node = dict(zip(d.writes, outputs, strict=True))
        held, written = held | by_node, written | by_node
    return written


LEAST = 64  # elements of a buffer, all if it has fewer
AT_RANDOM = 96
EVERY = 256  # a buffer of so few is looked at whole
CORNERS = 16
NEAR = 2  # elements beside each border
EDGES = (4, 8, 16, 32, 64, 128, 256)  # where vectors, tiles, panels and blocks may end


def sampled(
    shape: Shape, is_open: Array | None, borders: Sequence[int], rng: np.random.Generator
) -> Array:
    """Flat indices, ascending, of elements that are not open.

    borders: where parts of the values begin that are computed with it (`part_borders`).
    """
    size = int(np.prod(shape, dtype=np.int64))
    if size <= EVERY:
        indices = np.arange(size)
    else:
        places = [*_corners(shape), *_at_borders(shape, borders, rng), *_anywhere(shape, rng)]
        columns = [np.array(c, np.int64) for c in zip(*places, strict=True)]
        indices = np.unique(flat_indices(columns, shape, len(places)))
    if is_open is None:
        return indices
    indices = indices[~is_open.reshape(-1)[indices]]
    rest = np.flatnonzero(~is_open.reshape(-1)) if len(indices) < LEAST else indices
    more = rng.choice(rest, min(LEAST, len(rest)), replace=False) if len(rest) else rest
    return np.unique(np.concatenate([indices, more])) if len(indices) < LEAST else indices


def part_borders(program: Program) -> tuple[int, ...]:
    """Indices at which, in some dim of some value, a part of it begins or ends."""
    borders: set[int] = set()
    for n in program.nodes:
        if n.op == "concat" and isinstance(n.attr, Move):
            sizes = [s[n.attr.args[0]] for s in n.attr.sources]
            borders.update(np.cumsum(sizes).tolist())
        elif n.op in ("pad", "slice") and isinstance(n.attr, Move):
            borders.update(x for side in n.attr.args[:2] for x in side)
            borders.update(a + s for a, s in zip(n.attr.args[0], n.attr.sources[0], strict=True))
    return tuple(sorted(borders - {0}))


def _corners(shape: Shape) -> list[tuple[int, ...]]:
    ends = [tuple(dict.fromkeys((0, s - 1))) for s in shape]
    return [*islice(product(*ends), CORNERS), tuple(e[-1] for e in ends)]


def _at_borders(
    shape: Shape, borders: Sequence[int], rng: np.random.Generator
) -> list[tuple[int, ...]]:
    """Per dim and border some elements there: of the other dims one at borders, one anywhere."""
    near = [_borders(s, borders) for s in shape]
    places = []
    for d, indices in enumerate(near):
        for index in indices:
            for other in (near, [range(s) for s in shape])[:NEAR]:
                at = [int(rng.integers(len(o))) for o in other]
                place = [o[i] for o, i in zip(other, at, strict=True)]
                places.append((*place[:d], index, *place[d + 1 :]))
    return places


def _borders(size: int, borders: Sequence[int]) -> list[int]:
    """The first and the last elements of a dim, and those at both sides of where a tail begins, the
    first of several begins again, or a part does."""
    marks = {*EDGES} | {size - size % e for e in EDGES} | set(borders)
    near = {x for m in marks for x in (m - 1, m)} | {0, 1, size - 2, size - 1}
    return sorted(x for x in near if 0 <= x < size)


def _anywhere(shape: Shape, rng: np.random.Generator) -> list[tuple[int, ...]]:
    drawn = rng.integers(0, shape, (AT_RANDOM, len(shape)))
    return [tuple(row) for row in drawn.tolist()]


NONE: Array = np.zeros(0, np.int64)
SHARE = 20  # of the work that is left, one dispatch may take one part of so many
SUSPECTS = 64  # elements of a buffer that differ from XLA's, the farthest first


@dataclass
class DispatchFindings:
    """worst: the worst element so far, wrong or not. elements: how many were computed in float64.
    undecided: of which dispatches nothing can be said, each with why."""

    worst: Judged
    elements: int = 0
    dispatches: int = 0
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Values:
    """Values that something computed, and the program and operands that say what they are.

    nodes: what they are in the program, held: its operands. names: of each. limit: of the error; it
    is that of the program if it is not given.
    """

    what: str
    program: Program
    nodes: Sequence[int]
    held: Mapping[int, Array]
    got: Sequence[Array]
    names: Sequence[str]
    limit: float | None = None
    reads: Sequence[Array] = ()  # of a dispatch


@dataclass(eq=False)
class Dispatchwise:
    """Checks the dispatches of one executable.

    schedule: what it should run. weights: by content key, what its packed weights are made from.
    """

    executable: Executable
    schedule: Schedule
    weights: Mapping[str, Any]
    opaque: Mapping[str, Any]
    platform: str
    work: WorkBudget
    seed: int = 0
    _jitted: dict[Program, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.open = open_elements(self.schedule.program)

    def check(self, inputs: Sequence[Any]) -> DispatchFindings:
        """All dispatches on these inputs, and what is packed, up to the first that is wrong."""
        findings = DispatchFindings(Judged(0.0, 0.0, ""))
        self._check_packed(findings)
        for step in steps(self.executable, inputs) if findings.worst.ok else ():
            tick()
            self._check_step(step, findings)
            if not findings.worst.ok:
                break
        return findings

    def _check_step(self, step: DispatchRun, findings: DispatchFindings) -> None:
        d, program = self.schedule.dispatches[step.number], self.schedule.program
        local = local_program(self.schedule, d)
        what = f"dispatch {step.number} ({d.name or d.ops})"
        held = dict(zip(local.inputs, step.reads, strict=True))
        names = [f"{what}, {program.value_name(w)}" for w in d.writes]
        values = _Values(what, local, local.results, held, step.writes, names, reads=step.reads)
        borders, suspects = part_borders(local), self._suspects(local, d, step)
        looked = [
            sampled(program.nodes[w].type.shape, self.open.get(w), borders, self.rng)
            for w in d.writes
        ]
        findings.dispatches += self._compare(values, looked, suspects, findings)

    def _check_packed(self, findings: DispatchFindings) -> None:
        """The weights as dispatches read them, from those that were given."""
        program, packed = self.schedule.program, self.executable.packed
        leaves = {i: np.asarray(self.weights[program.leaf(i).key]) for i in program.weights}
        limits = error_limits(program, self.platform)
        for i in sorted(packed):
            tick()
            name = f"weight {program.value_name(i)}"
            got = [np.asarray(packed[i])]
            values = _Values(name, program, (i,), leaves, got, [name], limits[i])
            shape = program.nodes[i].type.shape
            looked = [sampled(shape, self.open.get(i), (), self.rng)]
            self._compare(values, looked, [NONE], findings)
            if not findings.worst.ok:
                return

    def _compare(
        self,
        values: _Values,
        looked: Sequence[Array],
        suspects: Sequence[Array],
        findings: DispatchFindings,
    ) -> bool:
        """These elements of them, fewer where they are too much work, and the suspects. Whether
        that says something."""
        limit = (self.work.limit - self.work.spent) / SHARE
        for several in (looked, [_fewer(e) for e in looked]):
            flat = [np.union1d(e, s) for e, s in zip(several, suspects, strict=True)]
            work = WorkBudget(limit)
            elements = Elements(values.program, values.nodes, values.held, flat, self.opaque, work)
            try:
                wanted = elements()
            except OverWork:
                self.work.spent += min(work.spent, work.limit)
                continue
            findings.elements += sum(map(len, flat))
            return self._decided(values, elements, wanted, findings)
        findings.undecided += (f"{values.what} takes more than {limit:.1e} operations",)
        return False

    def _decided(
        self, v: _Values, elements: Elements, wanted: list[Array], findings: DispatchFindings
    ) -> bool:
        try:
            judged = self._judged(v, elements, wanted)
        except OverWork:
            findings.undecided += (
                f"why {v.what} has an error takes more operations than are left",
            )
            return False
        finally:
            self.work.spent += min(elements.work.spent, elements.work.limit)
        if not judged.ok or not findings.worst.where or judged.error > findings.worst.error:
            findings.worst = judged
        return True

    def _judged(self, v: _Values, elements: Elements, wanted: list[Array]) -> Judged:
        types = [v.program.nodes[i].types[0] for i in v.nodes]
        got = [
            scalar.hold(x.reshape(-1)[f], t.dtype)
            for x, f, t in zip(v.got, elements.flat, types, strict=True)
        ]

        def ask(these: Elements) -> Examined:
            return Examined(
                v.program, these, lambda r: v.names[r], self.platform, self.seed,
                limit=v.limit, place=these.place,
                shaken=partial(self._shaken, v, these.flat) if v.reads else None,
            )  # fmt: skip

        return judged_elements(ask, elements, wanted, got)

    # ---- all elements, by XLA ------------------------------------------------------------------
    def _suspects(self, local: Program, d: Dispatch, step: DispatchRun) -> list[Array]:
        """Per buffer the elements that are farther from what XLA's ops give than rounding explains
        of both, the farthest first."""
        limit = 2 * error_limit(local, self.platform)
        others = self._by_xla(local, step.reads)
        suspects = []
        for w, got, other in zip(d.writes, step.writes, others, strict=True):
            t = self.schedule.program.nodes[w].type
            away = distance(got, other).reshape(-1)
            if w in self.open:
                away = np.where(self.open[w].reshape(-1), 0.0, away)
            far = np.flatnonzero(away > (limit * size(other) if is_float(t.dtype) else 0.0))
            suspects.append(far[np.argsort(-away[far], kind="stable")[:SUSPECTS]])
        return suspects

    def _shaken(self, v: _Values, flat: Sequence[Array]) -> list[Array]:
        """How far XLA's ops move these elements when operands move by a unit in the last place."""
        rng = np.random.default_rng(self.seed)
        types = [v.program.nodes[i].type for i in v.program.inputs]
        unmoved = self._by_xla(v.program, v.reads)
        moved = [np.zeros(len(f)) for f in flat]
        for _ in range(NUDGES):
            reads = [nudged(x, t, rng) for x, t in zip(v.reads, types, strict=True)]
            pairs = zip(self._by_xla(v.program, reads), unmoved, strict=True)
            away = [distance(a, b).reshape(-1)[f] for (a, b), f in zip(pairs, flat, strict=True)]
            moved = [np.maximum(f, d) for f, d in zip(moved, away, strict=True)]
        return moved

    def _by_xla(self, local: Program, reads: Sequence[Array]) -> list[Array]:
        """Results of the dispatch by XLA's ops from these operands; equal ones compile once."""
        import jax

        if local not in self._jitted:
            self._jitted[local] = jax.jit(partial(_lowered, local, self.opaque))
        return [np.asarray(x) for x in self._jitted[local](list(reads))]


def _fewer(elements: Array) -> Array:
    if len(elements) <= LEAST:
        return elements
    return elements[np.linspace(0, len(elements) - 1, LEAST).astype(np.int64)]


def _lowered(local: Program, opaque: Mapping[str, Any], reads: Sequence[Any]) -> list[Any]:
    given = dict(zip(local.inputs, reads, strict=True))
    values = evaluate(local, local.needed, given, opaque)
    return [values[r][0] for r in local.results]


def local_program(schedule: Schedule, d: Dispatch) -> Program:
    """A dispatch as a program: the buffers it reads are inputs, those it writes are results."""
    b, nodes = Builder("dispatch"), schedule.program.nodes
    new: dict[int, int] = {}
    for number, r in enumerate(d.reads):
        new[r] = b.append("input", (), Leaf(f"read{number}", nodes[r].type, number))
    for i in schedule.inside(d):
        if i not in new:
            n = nodes[i]
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    return b.build([new[w] for w in d.writes])
