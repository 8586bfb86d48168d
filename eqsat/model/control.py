"""Loops and branches: ops that hold Programs, with the memory and time of their bodies."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from eqsat.model.attr import Attr, require
from eqsat.model.extents import Symbols
from eqsat.model.tensor import TensorType

if TYPE_CHECKING:
    from eqsat.model.program import Program
    from eqsat.model.schedule import Schedule

SCAN, WHILE, COND = "scan", "while_loop", "cond"
CONTROL = frozenset({SCAN, WHILE, COND})
MOST_NESTED = 16  # bodies inside of bodies
EXACT = 1 << 48  # figures of a loop up to here are what they are, larger ones are bounded
_INDEX = TensorType("i32", ())
_FLAG = TensorType("bool", ())


@dataclass(frozen=True, eq=True)
class Control(Attr):
    """`scan`, `while_loop` or `cond`: its bodies are Programs with inputs and without weights.

    scan: operands (consts, carries, stacked); one body (consts, carries, slices) → (carries,
    slices), run `length` times, from the last slice on if `reverse`; gives the last carries and
    the slices stacked. while_loop: operands (consts, carries); a condition (consts, carries) →
    bool[] and a body (consts, carries) → carries. cond: operands (index, consts); as many branches
    as there are bodies, each consts → results; the index is clipped into range.

    trips: how often a while_loop runs, where that is known (`ops.spelling.trips`).

    schedules: one per body once the bodies were searched; `programs` is then empty, and one more
    result, of bytes, stands for the memory that the bodies need while they run. No op reads it.
    """

    kind: ClassVar[str] = "control"
    ops: ClassVar[Mapping[str, str]] = dict.fromkeys((SCAN, WHILE, COND), "opaque")
    op: str
    programs: tuple[Program, ...]
    consts: int
    carries: int = 0
    length: int = 0
    reverse: bool = False
    schedules: tuple[Schedule, ...] = ()
    trips: int | None = None
    __hash__ = Attr.__hash__

    def __post_init__(self) -> None:
        """Bodies get their labels as names, so that equal bodies are equal records."""
        pairs = zip(self.programs, self.labels if self.programs else (), strict=True)
        same = tuple(p if p.name == name else replace(p, name=name) for p, name in pairs)
        object.__setattr__(self, "programs", same)

    @cached_property
    def bodies(self) -> tuple[Program, ...]:
        """The bodies, searched or not."""
        return self.programs or tuple(s.program for s in self.schedules)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the bodies: `body`, `condition`, `branch0` …"""
        count = len(self.programs or self.schedules)
        if self.op == SCAN and count == 1:
            return ("body",)
        if self.op == WHILE and count == 2:
            return ("condition", "body")
        return tuple(f"branch{i}" for i in range(count))

    # ---- types ------------------------------------------------------------------------------
    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(op == self.op and op in CONTROL, f"`{self.op}` attribute on `{op}`")
        require(operands == self.operand_types, self._misfit(operands))
        return self.result_types + self.scratch_types

    def _misfit(self, operands: tuple[TensorType, ...]) -> str:
        want, got = (", ".join(map(str, t)) for t in (self.operand_types, operands))
        return f"`{self.op}` takes ({want}), got ({got})"

    @cached_property
    def operand_types(self) -> tuple[TensorType, ...]:
        """The operand types of the bodies; ShapeError if they do not fit each other."""
        self._check()
        first = input_types(self.bodies[-1])
        if self.op == COND:
            return (_INDEX, *first)
        at = self.consts + self.carries
        return first[:at] + tuple(self._stacked(t) for t in first[at:])

    @cached_property
    def result_types(self) -> tuple[TensorType, ...]:
        """Types of the results that may be read: without scratch."""
        types = result_types(self.bodies[-1])
        if self.op != SCAN:
            return types
        return types[: self.carries] + tuple(self._stacked(t) for t in types[self.carries :])

    def _stacked(self, t: TensorType) -> TensorType:
        return t.with_shape((self.length, *t.shape))

    def _check(self) -> None:
        require(not (self.programs and self.schedules), f"`{self.op}` holds its bodies twice")
        counts = {SCAN: (1,), WHILE: (2,)}.get(self.op, range(1, 1 << 30))
        require(len(self.bodies) in counts, f"`{self.op}` has {len(self.bodies)} bodies")
        require(self.length >= 0, f"`{self.op}` runs {self.length} times")
        require(depth(self.bodies) <= MOST_NESTED, f"`{self.op}` is nested too deeply")
        for program in self.bodies:
            require(not program.weights, f"a body of `{self.op}` holds a weight")
            program.verify()
            same = input_types(program) == input_types(self.bodies[0])
            require(same, f"the bodies of `{self.op}` take different operands")
        self._check_results()

    def _check_results(self) -> None:
        last = self.bodies[-1]
        state = input_types(last)[self.consts : self.consts + self.carries]
        require(len(state) == self.carries, f"a body of `{self.op}` has too few inputs")
        if self.op == COND:
            same = {result_types(p) for p in self.bodies}
            require(len(same) == 1, "the branches of `cond` give different types")
            require(len(input_types(last)) == self.consts, "a branch of `cond` takes its consts")
            return
        types = result_types(last)[: self.carries]
        require(types == state, f"the body of `{self.op}` does not give what it carries")
        if self.op == WHILE:
            whole = len(input_types(last)) == self.consts + self.carries
            require(whole and len(result_types(last)) == self.carries, "`while_loop` only carries")
            require(result_types(self.bodies[0]) == (_FLAG,), "a condition gives bool[]")

    # ---- text -------------------------------------------------------------------------------
    @property
    def keywords(self) -> str:
        """Its keywords besides the bodies."""
        parts = [f"consts={self.consts}"]
        parts += [f"carries={self.carries}"] if self.op != COND else []
        parts += [f"length={self.length}"] if self.op == SCAN else []
        return ", ".join([*parts, "reverse=true"] if self.reverse else parts)

    def text(self, op: str) -> str:
        """The keywords, and a word for what the bodies are: loops with equal ones are equal."""
        texts = "".join(p.to_text() for p in self.bodies)
        return f'{self.keywords}, key="{hashlib.sha256(texts.encode()).hexdigest()[:16]}"'

    # ---- what the bodies cost together --------------------------------------------------------
    def total(self, of: Sequence[int], trips: int = 1) -> int:
        """A figure per body summed as they run, `bounded`.

        A while loop runs as often as it says, or `trips` times. Of the branches of `cond` the
        dearest counts.
        """
        if self.op == COND:
            return max(of)
        if self.op == SCAN:
            return bounded(self.length * of[0])
        runs = trips if self.trips is None else self.trips
        return bounded(runs * (of[0] + of[1]) + of[0])

    @property
    def runs(self) -> int | None:
        """How often a loop runs, if that is known."""
        return self.length if self.op == SCAN else self.trips

    @property
    def is_bounded(self) -> bool:
        """Whether a price of this loop is bounded: its time is more than `EXACT` ps."""
        if self.op == COND or not self.schedules:
            return False
        return self.total([s.time_ps for s in self.schedules]) > EXACT

    @cached_property
    def kernels(self) -> int:
        """Dispatches of all bodies, each counted once; 1 if none has any."""
        return max(1, sum(s.kernels for s in self.schedules))

    @cached_property
    def is_planned(self) -> bool:
        """Whether every dispatch of its bodies has a plan, or is such a loop."""
        inner = [(d, s.control(d)) for s in self.schedules for d in s.dispatches]
        return all(d.plan is not None if c is None else c.is_planned for d, c in inner)

    @cached_property
    def sliced(self) -> tuple[TensorType, ...]:
        """Types of the slices that one step of a scan reads and writes."""
        if self.op != SCAN:
            return ()
        last = self.bodies[-1]
        return input_types(last)[self.consts + self.carries :] + result_types(last)[self.carries :]

    @cached_property
    def carried_bytes(self) -> int:
        """Bytes of the state that goes from step to step."""
        state = input_types(self.bodies[-1])[self.consts : self.consts + self.carries]
        return sum(t.nbytes for t in state)

    @cached_property
    def scratch_bytes(self) -> int:
        """Bytes that live while it runs, beside operands and results.

        The largest arena of a body, and the state of one step while the next is computed.
        """
        arenas = [(s.arena_bytes, s.arena_bound) for s in self.schedules]
        most = max((live if placed is None else placed for placed, live in arenas), default=0)
        return most + self.carried_bytes

    @property
    def scratch_types(self) -> tuple[TensorType, ...]:
        """The result that stands for scratch; nothing where none is needed or known."""
        if not self.schedules or not self.scratch_bytes:
            return ()
        return (TensorType("u8", (self.scratch_bytes,)),)

    @cached_property
    def copied(self) -> tuple[tuple[TensorType, ...], ...]:
        """Per body: results that are its inputs, unchanged; each is a copy per run."""
        at = range(self.consts, self.consts + self.carries)
        return tuple(
            tuple(
                p.nodes[r].type
                for i, r in enumerate(p.results)
                if p.nodes[r].op == "input" and not _stays(p, r, i, at)
            )
            for p in self.bodies
        )

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        from eqsat.model.program import Program
        from eqsat.model.schedule import Schedule

        given = {k: v for k, v in data.items() if k != "kind"}
        given["programs"] = tuple(map(Program.from_json, data["programs"]))
        given["schedules"] = tuple(map(Schedule.from_json, data["schedules"]))
        return cls(**given)


def _stays(p: Program, result: int, number: int, carried: range) -> bool:
    """Whether a carried value is passed on unchanged, in its own place."""
    return p.leaf(result).index == carried.start + number and number < len(carried)


def bounded(total: int) -> int:
    """The total, or above `EXACT` something larger that stays below twice as much.

    A loop of 2^62 steps has a price that no solver can add to others in 64 bits. This map keeps the
    order of prices: m for m <= M, otherwise 2M - M²/m.
    """
    return total if total <= EXACT else 2 * EXACT - EXACT * EXACT // total


def input_types(p: Program) -> tuple[TensorType, ...]:
    """Types of a program's arguments."""
    return tuple(p.nodes[i].type for i in p.inputs)


def result_types(p: Program) -> tuple[TensorType, ...]:
    """Types of a program's results."""
    return tuple(p.nodes[r].type for r in p.results)


def controls(p: Program) -> list[tuple[int, Control]]:
    """The loops and branches of a program, with their nodes."""
    return [(i, n.attr) for i, n in enumerate(p.nodes) if isinstance(n.attr, Control)]


def depth(programs: Sequence[Program]) -> int:
    """How deep bodies stand inside of bodies; 1 for bodies that hold none."""
    inner = [depth(a.bodies) for p in programs for _, a in controls(p)]
    return 1 + max(inner, default=0)


def every_program(p: Program) -> list[Program]:
    """A program and all bodies inside it."""
    inner = [q for _, a in controls(p) for body in a.bodies for q in every_program(body)]
    return [p, *inner]
