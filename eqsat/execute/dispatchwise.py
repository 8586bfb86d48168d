"""Every dispatch of an executable, checked from the operands that it really had.

What comes in is an executable and flat inputs; what goes out is what was found of its dispatches
and of the weights that were computed ahead. Elements are computed in float64, on demand
(`ondemand`): corners, borders of tails and parts, some at random, and whichever differ from what
XLA's own ops make of the same operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eqsat.execute.compare import distance, size
from eqsat.execute.comparison import NUDGES, Examined, Judged, judged_elements
from eqsat.execute.lowering import evaluate
from eqsat.execute.ondemand import Elements
from eqsat.execute.openlanes import open_elements
from eqsat.execute.rounding import error_limit, error_limits
from eqsat.execute.sampling import LEAST, part_borders, sampled
from eqsat.execute.stepping import DispatchRun, steps
from eqsat.execute.witness import nudged
from eqsat.execute.work import OverWork, WorkBudget
from eqsat.model.deadline import tick
from eqsat.model.executor import Executable
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.tensor import is_float
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
NONE: Array = np.zeros(0, np.int64)
SHARE = 20  # of the work that is left, one dispatch may take one part of so many
SUSPECTS = 64  # elements of a buffer that differ from XLA's, the farthest first


@dataclass
class DispatchesFound:
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


class Dispatchwise:
    """Checks the dispatches of one executable.

    schedule: what it should run. weights: by content key, what its packed weights are made from.
    """

    def __init__(
        self,
        executable: Executable,
        schedule: Schedule,
        weights: Mapping[str, Any],
        opaque: Mapping[str, Any],
        platform: str,
        work: WorkBudget,
        seed: int = 0,
    ):
        self.executable, self.schedule = executable, schedule
        self.weights, self.opaque = weights, opaque
        self.platform, self.work, self.seed = platform, work, seed
        self.rng = np.random.default_rng(seed)
        self.open = open_elements(self.schedule.program)
        self._jitted: dict[Program, Any] = {}

    def check(self, inputs: Sequence[Any]) -> DispatchesFound:
        """All dispatches on these inputs, and what is packed, up to the first that is wrong."""
        found = DispatchesFound(Judged(0.0, 0.0, ""))
        self._check_packed(found)
        for step in steps(self.executable, inputs) if found.worst.ok else ():
            tick()
            self._check_step(step, found)
            if not found.worst.ok:
                break
        return found

    def _check_step(self, step: DispatchRun, found: DispatchesFound) -> None:
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
        found.dispatches += self._compare(values, looked, suspects, found)

    def _check_packed(self, found: DispatchesFound) -> None:
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
            self._compare(values, looked, [NONE], found)
            if not found.worst.ok:
                return

    def _compare(
        self,
        values: _Values,
        looked: Sequence[Array],
        suspects: Sequence[Array],
        found: DispatchesFound,
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
            found.elements += sum(map(len, flat))
            return self._decided(values, elements, wanted, found)
        found.undecided += (f"{values.what} takes more than {limit:.1e} operations",)
        return False

    def _decided(
        self, v: _Values, elements: Elements, wanted: list[Array], found: DispatchesFound
    ) -> bool:
        try:
            said = self._judged(v, elements, wanted)
        except OverWork:
            found.undecided += (f"why {v.what} has an error takes more operations than are left",)
            return False
        finally:
            self.work.spent += min(elements.work.spent, elements.work.limit)
        if not said.ok or not found.worst.where or said.error > found.worst.error:
            found.worst = said
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
        found = []
        for w, got, other in zip(d.writes, step.writes, others, strict=True):
            t = self.schedule.program.nodes[w].type
            away = distance(got, other).reshape(-1)
            if w in self.open:
                away = np.where(self.open[w].reshape(-1), 0.0, away)
            far = np.flatnonzero(away > (limit * size(other) if is_float(t.dtype) else 0.0))
            found.append(far[np.argsort(-away[far], kind="stable")[:SUSPECTS]])
        return found

    def _shaken(self, v: _Values, flat: Sequence[Array]) -> list[Array]:
        """How far XLA's ops move these elements when operands move by a unit in the last place."""
        rng = np.random.default_rng(self.seed)
        types = [v.program.nodes[i].type for i in v.program.inputs]
        own = self._by_xla(v.program, v.reads)
        found = [np.zeros(len(f)) for f in flat]
        for _ in range(NUDGES):
            reads = [nudged(x, t, rng) for x, t in zip(v.reads, types, strict=True)]
            pairs = zip(self._by_xla(v.program, reads), own, strict=True)
            away = [distance(a, b).reshape(-1)[f] for (a, b), f in zip(pairs, flat, strict=True)]
            found = [np.maximum(f, d) for f, d in zip(found, away, strict=True)]
        return found

    def _by_xla(self, local: Program, reads: Sequence[Array]) -> list[Array]:
        """What the dispatch writes, by XLA's ops from these operands; equal ones compile once."""
        import jax

        if local not in self._jitted:
            self._jitted[local] = jax.jit(partial(_lowered, local, self.opaque))
        return [np.asarray(x) for x in self._jitted[local](list(reads))]


def _fewer(elements: Array) -> Array:
    if len(elements) <= LEAST:
        return elements
    return elements[np.linspace(0, len(elements) - 1, LEAST).astype(np.int64)]


def _lowered(local: Program, opaque: Mapping[str, Any], reads: Sequence[Any]) -> list[Any]:
    known = dict(zip(local.inputs, reads, strict=True))
    values = evaluate(local, local.needed, known, opaque)
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
