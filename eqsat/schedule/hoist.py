"""Loops of a schedule: what leaves a body, and what stays packed from step to step.

What a body computes from weights alone moves out of its loop: it is computed once. Bodies may take
and give packed values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from eqsat.model.control import Control
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.loopparts import NotStackable, stacked_attr

# ---- values from weights alone -------------------------------------------------------------------
T = TypeVar("T")
Fixed = Mapping[int, str]  # inputs that weights give → what is known of these: a key, or nothing
_KEY = "input"


@dataclass(frozen=True)
class Hoisted:
    """A loop or branch with schedules without weights, and what moved out of it.

    `ahead` computes from operands (its inputs have the numbers of the bodies' inputs) what the
    schedules read instead of them.
    """

    attr: Control
    ahead: Program
    inputs: Inputs

    def operands(self, given: Sequence[T], computed: Sequence[T]) -> tuple[T, ...]:
        """The operands of `attr`, from those of the loop as it came in and the results of `ahead`.

        Without the index of `cond`.
        """
        at, n = self.inputs, self.inputs.moved_consts
        consts = [given[k] for k in at.kept_consts] + list(computed[:n])
        carries = list(given[at.consts : at.first_slice])
        return (*consts, *carries, *(given[k] for k in at.kept_slices), *computed[n:])


@dataclass(frozen=True)
class Inputs:
    """The inputs of a loop's bodies by number: consts, carries, slices; and which are weights."""

    consts: int
    carries: int
    total: int
    fixed: frozenset[int]
    moved_consts: int = 0  # consts that moved out; they stand behind those that are kept

    @property
    def first_slice(self) -> int:
        return self.consts + self.carries

    @cached_property
    def kept_consts(self) -> tuple[int, ...]:
        return tuple(k for k in range(self.consts) if k not in self.fixed)

    @cached_property
    def kept_slices(self) -> tuple[int, ...]:
        return tuple(k for k in range(self.first_slice, self.total) if k not in self.fixed)

    def moved(self, k: int) -> int:
        """The new number of an input that is kept."""
        if k < self.consts:
            return self.kept_consts.index(k)
        behind = len(self.kept_consts) + self.moved_consts
        if k < self.first_slice:
            return k - self.consts + behind
        return behind + self.carries + self.kept_slices.index(k)

    def const(self, i: int) -> int:
        """The number of the i-th const that moved out."""
        return len(self.kept_consts) + i

    def slice(self, i: int) -> int:
        """The number of the i-th stack that moved out."""
        return len(self.kept_consts) + self.moved_consts + self.carries + len(self.kept_slices) + i


def with_fixed_weights(body: Program, fixed: Fixed, state: Sequence[int] = ()) -> Program:
    """The body with these inputs as weights. state: inputs that no later step reads."""
    nodes = list(body.nodes)
    for i in body.inputs:
        leaf = body.leaf(i)
        if leaf.index in fixed:
            weight = replace(leaf, index=-1, key=fixed[leaf.index] or f"{_KEY}{leaf.index}")
            nodes[i] = replace(nodes[i], op="weight", attr=weight)
        elif leaf.index in state:
            nodes[i] = replace(nodes[i], attr=replace(leaf, donated=True))
    return replace(body, nodes=tuple(nodes))


def hoist(attr: Control, schedules: Sequence[Schedule], fixed: Fixed) -> Hoisted:
    """The loop with schedules of its `with_weights` bodies, without their weights.

    NotStackable if something is computed from stacked weights that has no form for whole stacks.
    """
    total = len(attr.bodies[0].inputs)
    inputs = Inputs(attr.consts, attr.carries, total, frozenset(fixed))
    ahead = _Ahead(attr, inputs.first_slice, fixed)
    parts = [_Emptied(s, ahead) for s in schedules]
    inputs = replace(inputs, moved_consts=len(ahead.consts))
    consts = len(inputs.kept_consts) + len(ahead.consts)
    done = tuple(p.schedule(ahead, inputs) for p in parts)
    stripped = replace(attr, programs=(), consts=consts, schedules=done)
    return Hoisted(stripped, ahead.builder.build([*ahead.consts, *ahead.slices]), inputs)


@dataclass
class _Ahead:
    """The program of what moves out of all bodies; equal computations are one."""

    attr: Control
    first_slice: int
    fixed: Fixed
    builder: Builder = field(default_factory=lambda: Builder("ahead"))
    consts: list[int] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)

    def take(self, program: Program, node: int) -> tuple[bool, int]:
        """Whether a body's node is computed for a whole stack, and its number among such."""
        copy, is_stack = self._copy(program, node)
        taken = self.slices if is_stack else self.consts
        if copy not in taken:
            taken.append(copy)
        return is_stack, taken.index(copy)

    def types(self) -> tuple[list[TensorType], list[TensorType]]:
        """Of consts and of slices, as a body sees them."""
        slices = [self.builder.type(n) for n in self.slices]
        consts = [self.builder.type(n) for n in self.consts]
        return consts, [t.with_shape(t.shape[1:]) for t in slices]

    def key(self, const: int) -> str:
        """The key of a const that is a weight as it came in, where bodies are to know it."""
        attr = self.builder.nodes[const].attr
        return self.fixed[attr.index] if isinstance(attr, Leaf) else ""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Key of a weight of a body → the input it stands for."""
        return {key or f"{_KEY}{k}": k for k, key in self.fixed.items()}

    def _copy(self, program: Program, node: int) -> tuple[int, bool]:
        n = program.nodes[node]
        if isinstance(n.attr, Leaf):
            number = self._numbers[n.attr.key]
            is_stack = number >= self.first_slice
            shape = (self.attr.length, *n.type.shape) if is_stack else n.type.shape
            leaf = Leaf(n.attr.name, n.type.with_shape(shape), index=number)
            return self.builder.add("input", (), leaf), is_stack
        inner = [self._copy(program, o) for o in n.operands]
        operands, stacks = tuple(o for o, _ in inner), [s for _, s in inner]
        attr = stacked_attr(n.op, n.attr, self.attr.length, stacks) if any(stacks) else n.attr
        self.builder.origin = n.origin
        return self.builder.add(n.op, operands, attr), any(stacks)


class _Emptied:
    """One body: which of its nodes move out, and what is left."""

    def __init__(self, schedule: Schedule, ahead: _Ahead):
        program = schedule.program
        computed = {m for d in schedule.dispatches for m in d.members}
        self.old = schedule
        self.gone = {*schedule.ahead, *program.weights} - computed
        left = [n for i, n in enumerate(program.nodes) if i not in self.gone]
        read = {o for n in left for o in n.operands} | set(program.results)
        self.place = {i: ahead.take(program, i) for i in sorted(read & self.gone)}

    def schedule(self, ahead: _Ahead, inputs: Inputs) -> Schedule:
        """The body with inputs for what moved out."""
        program = self.old.program
        b = Builder(program.name)
        consts, slices = ahead.types()
        leaves = {
            (False, i): _input(b, f"packed{i}", t, inputs.const(i), ahead.key(ahead.consts[i]))
            for i, t in _count(consts)
        }
        leaves |= {(True, i): _input(b, f"slice{i}", t, inputs.slice(i)) for i, t in _count(slices)}
        new = {i: leaves[at] for i, at in self.place.items()}
        for i, n in enumerate(program.nodes):
            if i in self.gone:
                continue
            attr = n.attr
            if isinstance(attr, Leaf):
                attr = replace(attr, index=inputs.moved(attr.index))
            b.origin = n.origin
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), attr)
        changed = b.build([new[r] for r in program.results])
        packed = list(leaves.values())
        dispatches = tuple(self._dispatch(d, changed, new, packed) for d in self.old.dispatches)
        last = max((d.step for d in dispatches), default=0)
        buffers = [Buffer(p, b.type(p).nbytes, "argument", 0, last) for p in packed]
        left = [x for x in self.old.buffers if x.node not in self.gone]
        buffers += [replace(x, node=new[x.node]) for x in left]
        in_place = tuple((new[result], new[old]) for result, old in self._in_place(ahead.attr))
        target = self.old.target
        return Schedule(changed, dispatches, tuple(buffers), (), target, in_place=in_place)

    def _in_place(self, attr: Control) -> Iterator[tuple[int, int]]:
        """Writes over other values: over a state only what leads to its own next one."""
        program, after = self.old.program, {old: new for new, old in self.old.in_place}
        states = [self.old.buffer_of(r) for r in program.results[: attr.carries]]
        for old, new in after.items():
            last = new
            while last in after:
                last = after[last]
            may_overwrite = program.nodes[old].op != "input" or (
                states.count(last) == 1
                and states.index(last) == program.leaf(old).index - attr.consts
            )
            if may_overwrite:
                yield new, old

    def _dispatch(
        self, d: Dispatch, program: Program, new: dict[int, int], packed: Sequence[int]
    ) -> Dispatch:
        members = tuple(new[m] for m in d.members)
        bases = [program.behind_views(o) for m in members for o in program.nodes[m].operands]
        reads = [new[r] for r in d.reads if r not in self.gone] + [b for b in bases if b in packed]
        writes = tuple(new[w] for w in d.writes)
        return replace(d, members=members, reads=tuple(dict.fromkeys(reads)), writes=writes)


def _count(types: Sequence[TensorType]) -> list[tuple[int, TensorType]]:
    return list(enumerate(types))


def _input(b: Builder, name: str, t: TensorType, index: int, key: str = "") -> int:
    return b.append("input", (), Leaf(name, t, index=index, key=key))


__all__ = ["Hoisted", "NotStackable", "hoist", "with_fixed_weights"]


# ---- packed states -------------------------------------------------------------------------------
def carried_layouts(attr: Control, body: Schedule) -> list[dict[int, Layout]]:
    """Layouts that a searched body suggests for its state, by carry; each is worth a search.

    Those it packs its state into, and those it unpacks values of the same type from.
    """
    program = body.program
    by_op: dict[str, dict[int, Layout]] = {"pack": {}, "unpack": {}}
    for k in range(attr.carries):
        (state,) = (i for i in program.inputs if program.leaf(i).index == attr.consts + k)
        for n in program.nodes:
            is_pack = n.op == "pack" and n.operands == (state,)
            is_unpack = n.op == "unpack" and n.type == program.nodes[state].type
            if (is_pack or is_unpack) and isinstance(n.attr, Layout) and "?" not in n.attr.pads:
                by_op[n.op].setdefault(k, n.attr)
    sets = [layouts for layouts in by_op.values() if layouts]
    return sets[:1] if len(sets) == 2 and sets[0] == sets[1] else sets


def with_packed_state(attr: Control, layouts: Mapping[int, Layout]) -> Control:
    """The loop with these carries packed; its bodies unpack what they read and pack what they give.

    The condition of a while loop gives no state.
    """
    last = len(attr.programs) - 1
    bodies = tuple(
        _packed(p, {attr.consts + k: a for k, a in layouts.items()}, layouts if i == last else {})
        for i, p in enumerate(attr.programs)
    )
    return replace(attr, programs=bodies)


def packed_type(t: TensorType, layout: Layout) -> TensorType:
    return t.with_shape(layout.packed_shape)


def _packed(p: Program, inputs: Mapping[int, Layout], results: Mapping[int, Layout]) -> Program:
    b = Builder(p.name)
    new: dict[int, int] = {}
    for i, n in b.following(p, new):
        layout = inputs.get(n.attr.index) if isinstance(n.attr, Leaf) else None
        if layout is not None and isinstance(n.attr, Leaf):
            leaf = replace(n.attr, type=packed_type(n.attr.type, layout))
            new[i] = b.add("unpack", (b.append("input", (), leaf),), layout)
        else:
            new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    packed = [new[r] for r in p.results]
    for k, layout in results.items():
        packed[k] = b.add("pack", (packed[k],), layout)
    return replace(p, nodes=tuple(b.nodes), results=tuple(packed))
