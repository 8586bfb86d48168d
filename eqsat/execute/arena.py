"""Interpreter of schedules in NumPy, temporaries at their offsets in an arena; executor `arena`.

What a schedule says of memory is taken at its word here: a dispatch sees the bytes of the buffers
it names and nothing else, its results are written at their offsets, and bytes are overwritten when
no buffer holds them any more. So a wrong lifetime, offset or border is a fault or a wrong number.

Every op is computed as the float64 reference does, and its values are rounded to their element
types: what two dispatches compute, each for itself, is equal, as a gradient of a maximum asks.
The executor runs this
under the calls of JAX, slow and to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from eqsat.execute.executable import JaxExecutable
from eqsat.execute.reference import WorkBudget, operations
from eqsat.model.control import Control, every_program
from eqsat.model.diag import EqsatError, fail
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.leaves import Opaque
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.tensor import DTYPES, TensorType, is_float
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.elements import DTYPE_NAMES
from eqsat.ops.meaning.programs import (
    bind_leaves,
    element_dtype,
    evaluate_control,
    evaluate_node,
)

Array = np.ndarray[Any, Any]
OpaqueFunctions = Mapping[str, Callable[..., Sequence[Any]]]
POISON = 0xFF  # what bytes hold that nobody wrote: NaN in every wide float, -1 in integers


class ArenaFault(Exception):
    """Access of a dispatch that its schedule's buffers do not allow, as a sentence."""


def _rounded(x: Array, t: TensorType) -> Array:
    if not is_float(t.dtype):
        return x
    with np.errstate(all="ignore"):
        return scalar.hold(np.asarray(x).astype(element_dtype(t.dtype)), t.dtype)


class Arena:
    """Runs one schedule. opaque: key → function of NumPy arrays in the op's element types."""

    def __init__(self, schedule: Schedule, opaque: OpaqueFunctions, work: WorkBudget | None = None):
        self.schedule, self.opaque = schedule, opaque
        self.work = work or WorkBudget(float("1e30"))

    def __call__(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Array]:
        """The results in held form, for flat inputs and weights by content key.

        ArenaFault if the schedule is wrong; OverWork if that takes more work than is left.
        EqsatError E501 and E503 as `ops.meaning.programs.evaluate_program`.
        """
        program = self.schedule.program
        leaves = bind_leaves(program, inputs, weights)
        values = {i: [leaves[i]] for i in program.weights}
        for i in sorted(self.schedule.ahead):
            if i not in values:
                values[i] = self._evaluated(i, lambda o: values[o], None)
        ahead = {i: v[0] for i, v in values.items()}
        return self.run([leaves[i] for i in program.inputs], ahead)

    def run(
        self, inputs: Sequence[Array], ahead: Mapping[int, Array], inside: Array | None = None
    ) -> list[Array]:
        """The results in held form; ahead: what is computed from weights, by node.

        inside: the bytes that are the arena, where another schedule has made room for it.
        """
        schedule, program = self.schedule, self.schedule.program
        memory = Buffers(schedule, inside)
        for node, x in [*zip(program.inputs, inputs, strict=True), *ahead.items()]:
            memory.give(schedule.buffer_of(node), x)
        numbered = enumerate(schedule.dispatches)
        for step, group in groupby(numbered, key=lambda pair: pair[1].step):
            together = list(group)
            memory.begin(step, [w for _, d in together for w in d.writes])
            for i, d in together:
                memory.who = f"dispatch {i} ({d.ops})"
                outputs = self.dispatch(d, [memory.read(r) for r in d.reads], memory)
                for w, x in zip(d.writes, outputs, strict=True):
                    memory.write(w, x)
        memory.who = "the caller"
        read = {b: [memory.read(b)] for b in map(schedule.buffer_of, program.results)}
        return [self._viewed(r, read)[0] for r in program.results]

    def dispatch(
        self, d: Dispatch, reads: Sequence[Array], memory: Buffers | None = None
    ) -> list[Array]:
        """Results of one dispatch, from the buffers it reads, each in the order it names them."""
        held = {r: [x] for r, x in zip(d.reads, reads, strict=True)}
        nodes = self.schedule.program.nodes
        for i in self.schedule.inside(d):
            if i not in held and nodes[i].op not in ("input", "weight"):
                scratch = None if memory is None else self._scratch(i, d, memory)
                results = self._evaluated(i, lambda o, i=i: self._viewed(o, held, i), scratch)
                held[i] = [_rounded(x, t) for x, t in zip(results, nodes[i].types, strict=True)]
        return [self._viewed(w, held, w)[0] for w in d.writes]

    def _viewed(
        self, node: int, held: Mapping[int, list[Array]], reader: int | None = None
    ) -> list[Array]:
        """The value of a node that is held itself, or as another view of its bytes."""
        if node in held:
            return held[node]
        nodes = self.schedule.program.nodes
        base = self.schedule.buffer_of(node)
        same = (i for i in held if self.schedule.buffer_of(i) == base)
        at = base if base in held else next(same, None)
        if at is None:
            who = f"%{reader} ({nodes[reader].op})" if reader is not None else "the caller"
            what = f"%{node} ({nodes[node].op})"
            raise ArenaFault(f"{who} takes {what}, which its dispatch neither reads nor computes")
        return [held[at][0].reshape(nodes[node].type.shape)]

    def _scratch(self, loop: int, d: Dispatch, memory: Buffers) -> Array | None:
        """The bytes that a loop's bodies have for their temporaries: its result that is scratch."""
        node = self.schedule.program.nodes[loop]
        if not isinstance(node.attr, Control) or not node.attr.scratch_types:
            return None
        last = len(node.types) - 1
        nodes = self.schedule.program.nodes
        for w in d.writes:
            n = nodes[w]
            if w == loop and last == 0:
                return memory.bytes_of(w)
            if n.op == "result" and n.operands == (loop,) and n.attr.index == last:  # type: ignore[attr-defined]
                return memory.bytes_of(w)
        raise ArenaFault(f"%{loop} ({node.op}) has no bytes for the temporaries of its bodies")

    def _evaluated(
        self, i: int, value: Callable[[int], list[Array]], scratch: Array | None
    ) -> list[Array]:
        node = self.schedule.program.nodes[i]
        several = node.op == "result"
        operands = value(node.operands[0]) if several else [value(o)[0] for o in node.operands]
        if isinstance(node.attr, Control) and node.attr.schedules:
            return self._control(node.attr, operands, scratch)
        self.work.spend(operations(node))
        return evaluate_node(node.op, node.attr, operands, self.opaque)

    def _control(
        self, attr: Control, operands: Sequence[Array], scratch: Array | None
    ) -> list[Array]:
        """A loop or branch, each run of a body in the bytes that are there for all of them."""
        bodies = {id(s.program): Arena(s, self.opaque, self.work) for s in attr.schedules}
        room = np.zeros(0, np.uint8) if scratch is None else scratch
        room = room[: len(room) - attr.carried_bytes]  # the rest is the state of the next step

        def run(body: Program, xs: Sequence[Array]) -> list[Array]:
            return bodies[id(body)].run(xs, {}, room)

        results = evaluate_control(attr, operands, run, most_steps=None)
        return results + [np.full(t.shape, POISON, np.uint8) for t in attr.scratch_types]


class Buffers:
    """The buffers of a schedule as bytes, and which of them are written, and which are gone.

    who: the name of the next reader or writer, for faults.
    """

    def __init__(self, schedule: Schedule, inside: Array | None = None):
        self.padded = dict(schedule.padded)
        # this machine rounds no operands, so it has no narrow values: they lie beside the arena
        self.apart = {node for node, _ in schedule.narrowed}
        self.nodes: tuple[Node, ...] = schedule.program.nodes
        self.buffers = {b.node: b for b in schedule.buffers}
        self.step, self.who = 0, "the caller"
        size = schedule.arena_bytes or 0
        self.arena = np.full(size, POISON, np.uint8) if inside is None else inside[:size]
        if len(self.arena) < size:
            raise ArenaFault(
                f"the arena takes {size} bytes, {len(self.arena)} are there for it in the loop"
            )
        self.arena[:] = POISON
        self.bytes = {b.node: self._place(b) for b in schedule.buffers}
        self.in_place = {old: new for new, old in schedule.in_place}
        self.bytes |= {n: self.bytes[owner] for n, owner in schedule.owners.items()}
        self.taken: set[int] = set()  # whose writer has begun
        self.written: set[int] = set()
        self.gone: set[int] = set()

    def _place(self, b: Buffer) -> Array:
        if b.offset is None or b.node in self.apart:
            return np.full(self._size(b), POISON, np.uint8)
        if b.offset < 0:
            raise ArenaFault(f"%{b.node} lies in front of the arena")
        return self.arena[b.offset : b.offset + self._size(b)]

    def _size(self, b: Buffer) -> int:
        """Bytes that are read and written: of what the target's memory pads, the elements."""
        return self.nodes[b.node].type.nbytes if b.node in self.padded else b.nbytes

    def give(self, node: int, x: Array) -> None:
        """Write an argument of the caller, if it has a buffer."""
        if node in self.buffers:
            self._fill(node, x.reshape(self.nodes[node].type.shape))

    def begin(self, step: int, writes: Sequence[int]) -> None:
        """Let go of what has died before this step, and make room for what it writes."""
        self.step = step
        for node, b in self.buffers.items():
            if b.last < step and b.role == "temporary" and node not in self.gone:
                self.gone.add(node)
                if node not in self.in_place:  # else what was written over it is there
                    self.bytes[node][:] = POISON
        for node in writes:
            self._claim(node)

    def _claim(self, node: int) -> None:
        """A buffer is its writer's from the start of the step on: others may not be live in it."""
        b = self.buffers.get(node)
        if b is None or b.offset is None:
            return
        for a in self.buffers.values():
            if a.offset is None or a.node == node or a.node not in self.taken:
                continue
            if a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
                self._may_overwrite(b, a)
        self.taken.add(node)
        self.bytes[node][:] = POISON

    def _may_overwrite(self, b: Buffer, a: Buffer) -> None:
        if a.nbytes and b.nbytes and a.first <= self.step <= a.last:
            raise ArenaFault(
                f"%{b.node} ({self.nodes[b.node].op}) is written at step {self.step} to bytes of"
                f" %{a.node} ({self.nodes[a.node].op}), which is live from step {a.first} to"
                f" {a.last}"
            )

    def bytes_of(self, node: int) -> Array:
        """The bytes of a buffer that is written in this step; ArenaFault if there is none."""
        self._live(node, "writes")
        return self.bytes[node]

    def read(self, node: int) -> Array:
        """The value of a buffer in held form; ArenaFault if it is not there."""
        self._live(node, "reads")
        n = self.nodes[node]
        if node not in self.written:
            raise ArenaFault(f"{self.who} reads %{node} ({n.op}), which was not written")
        if self.in_place.get(node) in self.written:
            what = f"%{self.in_place[node]} was written in its place"
            raise ArenaFault(f"{self.who} reads %{node} ({n.op}), but {what}")
        return from_bytes(self.bytes[node], n.type)

    def write(self, node: int, x: Array) -> None:
        """A value to its buffer; ArenaFault if that is not there at this step."""
        self._live(node, "writes")
        self._fill(node, x)

    def _live(self, node: int, verb: str) -> None:
        b, what = self.buffers.get(node), f"{self.who} {verb} %{node} ({self.nodes[node].op})"
        if b is None:
            raise ArenaFault(f"{what}, which has no buffer")
        if not b.first <= self.step <= b.last:
            live = f"its buffer is live from step {b.first} to {b.last}"
            raise ArenaFault(f"{what} at step {self.step}, but {live}")

    def _fill(self, node: int, x: Array) -> None:
        data = to_bytes(x, self.nodes[node].type)
        if len(data) != len(self.bytes[node]):
            raise ArenaFault(f"%{node} has {len(data)} bytes, its buffer {len(self.bytes[node])}")
        self.bytes[node][:] = data
        self.written.add(node)


def to_bytes(x: Array, t: TensorType) -> Array:
    """An array in held form as the bytes its elements have in memory; below 8 bits side by side,
    the first in the low bits."""
    if x.shape != t.shape:
        raise ArenaFault(f"a value of shape {list(x.shape)} is written as {t}")
    with np.errstate(over="ignore", invalid="ignore"):
        stored = np.ascontiguousarray(x).astype(element_dtype(t.dtype))
    raw = np.frombuffer(stored.tobytes(), np.uint8)
    bits = DTYPES[t.dtype][0]
    if bits >= 8:
        return raw
    each = np.unpackbits(raw[:, None], axis=1, bitorder="little")[:, :bits]
    return np.packbits(each.reshape(-1), bitorder="little")


def from_bytes(data: Array, t: TensorType) -> Array:
    """Undo `to_bytes`, into held form."""
    bits, dtype = DTYPES[t.dtype][0], element_dtype(t.dtype)
    if bits < 8:
        each = np.unpackbits(data, bitorder="little")[: t.size * bits].reshape(t.size, bits)
        data = np.packbits(each, axis=1, bitorder="little").reshape(-1)
    stored = np.frombuffer(data.tobytes(), dtype).reshape(t.shape)
    return stored.astype(scalar.held_dtype(t.dtype))


# ---- the executor --------------------------------------------------------------------------------
class ArenaExecutable(JaxExecutable):
    """NumPy behind a callback; compiled calls go without one."""

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        program = self.schedule.program
        self._refuse_opaque()
        results = [program.nodes[r].type for r in program.results]
        numbers = sorted(packed)

        def host(weights: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
            return self._on_host(dict(zip(numbers, weights, strict=True)), inputs)

        return _callback(host, results, [packed[i] for i in numbers], self.typed(inputs))

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        nodes, d = self.schedule.program.nodes, self.schedule.dispatches[number]
        arena = Arena(self.schedule, self.opaque)

        def host(reads: Sequence[Any]) -> list[Any]:
            outputs = arena.dispatch(d, [_held(x) for x in reads])
            return [_stored(x, nodes[w].type) for x, w in zip(outputs, d.writes, strict=True)]

        return lambda *reads: _callback(host, [nodes[w].type for w in d.writes], list(reads))

    def compile(self) -> Callable[..., tuple[Any, ...]]:
        packed = {i: np.asarray(x) for i, x in self.packed.items()}
        return lambda *inputs: tuple(self._on_host(packed, self.typed(inputs)))

    def _on_host(self, packed: Mapping[int, Any], inputs: Sequence[Any]) -> list[Any]:
        program = self.schedule.program
        weights = {i: _held(x) for i, x in packed.items()}
        try:
            results = Arena(self.schedule, self.opaque).run([_held(x) for x in inputs], weights)
        except ArenaFault as fault:
            raise _wrong(fault) from None
        types = [program.nodes[r].type for r in program.results]
        return [_stored(x, t) for x, t in zip(results, types, strict=True)]

    def _refuse_opaque(self) -> None:
        """A callback that waits for JAX may wait for ever."""
        nodes = (n for p in every_program(self.schedule.program) for n in p.nodes)
        for n in nodes:
            if isinstance(n.attr, Opaque):
                raise fail(
                    "E512",
                    f"the executor `arena` cannot call `{n.attr.primitive}` in a JAX function",
                    help="`eqsat run` and `run.executable.compile()` can; or take another target",
                )


def _callback(host: Any, results: Sequence[TensorType], *operands: Any) -> tuple[Any, ...]:
    import jax

    shapes = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in results]
    return tuple(jax.pure_callback(host, shapes, *operands, vmap_method="sequential"))


def _held(x: Any) -> np.ndarray[Any, Any]:
    """An array of an element type in held form."""
    array = np.asarray(x)
    return array.astype(scalar.held_dtype(DTYPE_NAMES[array.dtype.name]))


def _stored(x: Any, t: TensorType) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(element_dtype(t.dtype))


def _wrong(fault: ArenaFault) -> EqsatError:
    return fail(
        "E511", f"the schedule cannot run: {fault}", help="search again; if that helps, report it"
    )


ARENA = Executor(
    "arena",
    BUILT_IN["arena"],
    "every dispatch sees the buffers it names, at their offsets in one arena",
    ArenaExecutable,
)
