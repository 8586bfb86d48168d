"""The nest of a dispatch: its members' loops unified into one list, all else strides and bounds.

Elements are pulled from what is written: at a point over the loops of the results, down through
views, conversions and moves, whose maps compose, to buffers and to the members that compute. A
tile that divides an index cuts its loops. Where a value is read at a new point, that point's loops
become those at which the value is computed already if that changes no op's loops; else it is
computed again there, which reductions are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from eqsat.model.affine import Affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import Expr, arg, cast, const
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move
from eqsat.model.nest import Nest, NoNest, refused_by_check
from eqsat.model.ops import SAME_BYTES
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.meaning import scalar
from eqsat.ops.nests.draft import (
    ComputedValue,
    Constant,
    Element,
    Layer,
    LookupNumber,
    Numbers,
    Piece,
    ReadValue,
    StageDraft,
    Step,
    Written,
    mapped,
    number_now,
    step,
)
from eqsat.ops.nests.finish import finished
from eqsat.ops.nests.loops import LoopRun, Loops, Point, Uneven, affine_sum
from eqsat.ops.nests.reached import nest_faults

MOST_STAGES = 128  # of one kernel: each is code of its own to write and compile
MOST_PIECES = 16  # that results are cut into where concats join: each is written by its own code


class Member(NamedTuple):
    """An op of a dispatch; of a node that is read, only `types` is looked at."""

    number: int
    op: str
    attr: Attr
    operands: tuple[int, ...]
    types: tuple[TensorType, ...]


def nest_of(ops: Iterable[Member], reads: Iterable[int], writes: Iterable[int]) -> Nest:
    """The nest of these ops, operands first. NoNest says which op keeps them from being one.

    ops: all between what is read and what is written: views and fills as well, and the nodes that
    are read. The answer is remembered by structure: numbers do not matter.
    """
    records = tuple(ops)
    at = {m.number: i for i, m in enumerate(records)}
    buffers = set(reads)
    key = tuple(
        [
            _Op("", m.types[0], ())
            if m.number in buffers
            else _Op(m.op, m.attr, tuple([at[o] for o in m.operands]))
            for m in records
        ]
    )
    nest = _nest(
        _NestMembers(key, tuple([at[w] for w in writes]), tuple([m.types for m in records]))
    )
    numbers = [m.number for m in records]
    if isinstance(nest, str):
        raise NoNest(re.sub(r"%(\d+)", lambda m: f"%{numbers[int(m[1])]}", nest))
    return nest if numbers == list(range(len(numbers))) else nest.renumbered(numbers)


def nest_of_dispatch(schedule: Schedule, dispatch: Dispatch) -> Nest:
    """The nest of a dispatch of a schedule; NoNest says why it is none."""
    nodes = schedule.program.nodes
    needed, left = set(dispatch.reads), list(dispatch.writes)
    while left:
        i = left.pop()
        if i not in needed:
            needed.add(i)
            left += nodes[i].operands
    records = [
        Member(i, nodes[i].op, nodes[i].attr, nodes[i].operands, nodes[i].types)
        for i in sorted(needed)
    ]
    return nest_of(records, dispatch.reads, dispatch.writes)


def undecided(schedule: Schedule, dispatch: Dispatch) -> list[str]:
    """Properties of a dispatch's nest that the check cannot decide, each in a sentence."""
    nodes, nest = schedule.program.nodes, nest_of_dispatch(schedule, dispatch)
    return _verdict(nest, {b: nodes[b].types[0].size for b in (*nest.reads, *nest.writes)}, {
        s.node: nodes[s.node].attr for s in nest.stages
    })[1]  # fmt: skip


def _verdict(
    nest: Nest, elements: Mapping[int, int], attrs: Mapping[int, object]
) -> tuple[list[str], list[str]]:
    """Faults of a nest, and what cannot be decided; attrs: of the ops it computes."""
    generics = ((i, g) for i, g in attrs.items() if isinstance(g, Generic) and g.reductions)
    summed = {i: math.prod(g.sizes[d] for d in g.reductions) for i, g in generics}
    return nest_faults(nest, elements, summed)


def forget() -> None:
    """Forget all nests that are remembered, to time how long one takes."""
    _nest.cache_clear()


class _Op(NamedTuple):
    """An op whose operands are places in the list of ops."""

    op: str
    attr: Attr | TensorType  # a type: of what is read
    operands: tuple[int, ...]


class _NestMembers:
    """Ops and what they write: equal where both are, as the types follow from the ops."""

    __slots__ = ("_hash", "key", "types")

    def __init__(
        self,
        ops: tuple[_Op, ...],
        writes: tuple[int, ...],
        types: tuple[tuple[TensorType, ...], ...],
    ):
        self.key, self.types = (ops, writes), types
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NestMembers) and self.key == other.key


class _Cut(Exception):
    """A concat needs the written tensors in these pieces."""

    def __init__(self, pieces: list[Piece]):
        super().__init__()
        self.pieces = pieces


@lru_cache(maxsize=20_000)
def _nest(group: _NestMembers) -> Nest | str:
    """The nest of ops that name each other by place, or why there is none."""
    concats = any(o.op == "concat" for o in group.key[0])
    try:
        return _built(group, chooses=False)
    except NoNest as why:
        if not concats:
            return str(why)
    try:
        return _built(group, chooses=True)
    except NoNest as why:
        return str(why)


def _built(group: _NestMembers, chooses: bool) -> Nest:
    """The nest; concats cut what is written, or choose what is read."""
    pieces: list[Piece] | None = None
    while True:
        try:
            b = _NestBuilder(group, pieces, chooses)
            return _checked(group, finished(b.loops, b.drafts, b.written))
        except _Cut as cut:
            pieces = cut.pieces


def _checked(group: _NestMembers, nest: Nest) -> Nest:
    """The nest, held against its ops; NoNest if it means something else."""
    elements = {b: group.types[b][0].size for b in (*nest.reads, *nest.writes)}
    faults, _ = _verdict(nest, elements, {i: o.attr for i, o in enumerate(group.key[0])})
    if faults:
        raise NoNest(refused_by_check("nest", faults[0], nest))
    return nest


class _NestBuilder:
    def __init__(self, group: _NestMembers, pieces: list[Piece] | None, chooses: bool):
        self.ops, writes = group.key
        self.types, self.chooses = group.types, chooses
        self.cuts = not chooses and any(o.op == "concat" for o in self.ops)
        self.loops = Loops()
        self.drafts: list[StageDraft] = []
        self.written: list[Written] = []
        self._stages: dict[tuple[int, int], list[int]] = {}
        self._elements: dict[tuple[int, Shape], list[Point]] = {}
        self._dims: dict[int, tuple[int, int]] = {}  # loop → piece, dim: as long as it is uncut
        self._check_types()
        # the widest first: loops of a tensor with open lanes cannot be found from one without
        order = sorted(writes, key=lambda w: (-self.types[w][0].size, -w))
        self.pieces = pieces or [
            Piece(w, (0,) * self.types[w][0].rank, self.types[w][0].shape) for w in order
        ]
        for i in range(len(self.pieces)):
            self._write(i)

    def _check_types(self) -> None:
        for i, types in enumerate(self.types):
            for t in types:
                if any([type(d) is not int for d in t.shape]):
                    raise NoNest(f"{self._name(i)} has dims that are not known")
                if 0 in t.shape:
                    raise NoNest(f"{self._name(i)} is empty")

    def _name(self, i: int) -> str:
        op = self.ops[i].op
        return f"%{i} ({op})" if op else f"%{i}"

    def _write(self, number: int) -> None:
        piece = self.pieces[number]
        at = tuple([self.loops.new(s) for s in piece.sizes])
        for d, index in enumerate(at):
            for loop, _ in index.terms:
                self._dims[loop] = (number, d)
        self.loops.groups.append(LoopRun((), at, piece.sizes, reduces=False))
        offset = zip(at, piece.offsets, strict=True)
        value = self.read(piece.node, tuple([affine_sum([(i, 1)], a) for i, a in offset]))
        wanted = self.types[piece.node][0]
        self.written.append(Written(piece, wanted.shape, wanted.dtype, at, value))

    # ---- reading
    def read(self, node: int, at: Point, layers: tuple[Layer, ...] = ()) -> ReadValue:
        """The value of a node at a point."""
        reached = self._reach(node, at, layers)
        if isinstance(reached, ComputedValue):
            return ReadValue(
                self._stage(reached.node, reached.op, reached.result, reached.at), reached.layers
            )
        return reached

    def _reach(
        self, node: int, at: Point, layers: tuple[Layer, ...] = ()
    ) -> ReadValue | ComputedValue:
        """Value read at a point, down to elements and to what is computed."""
        result = 0
        while True:
            _, attr, operands = self.ops[node]
            base = self._buffer(node)
            if base is not None:
                return ReadValue(self._element(base, self.types[node][0].shape, at), layers)
            if isinstance(attr, Fill):
                return self._constant(node, Constant(attr.value, attr.type.dtype), layers)
            if isinstance(attr, Result):
                (node,), result = operands, attr.index
                continue
            if isinstance(attr, Move) and attr.op == "concat" and self.chooses:
                return self._chosen(node, attr, at, layers)
            below = self._step(node, at)
            if below is None:
                break
            node, at, layers = operands[below.operand], below.at, (*layers, *below.layers)
        if not isinstance(attr, Generic):
            raise NoNest(f"{self._name(node)} is no loop nest")
        return ComputedValue(node, attr, result, at, layers)

    def _buffer(self, node: int) -> int | None:
        """The buffer whose bytes a node is, if there are only views between."""
        while not isinstance(self.ops[node].attr, TensorType):
            if self.ops[node].op not in SAME_BYTES:
                return None
            (node,) = self.ops[node].operands
        return node

    def _step(self, node: int, at: Point) -> Step | None:
        op, attr, _ = self.ops[node]
        assert isinstance(attr, Attr)
        try:
            if isinstance(attr, Move) and attr.op in ("gather", "concat"):
                return self._moved(node, attr, at)
            return step(op, attr, at, self.loops)
        except Uneven:
            raise NoNest(f"{self._name(node)} cuts loops that others cut in another way") from None

    def _element(self, buffer: int, shape: Shape, at: Point) -> Element:
        """An element; fresh loops become those by which others read the same buffer so."""
        earlier = self._elements.setdefault((buffer, shape), [])
        if all(self.loops.all_now(e) != self.loops.all_now(at) for e in earlier):
            any(self.loops.unify(at, e, is_value=False) for e in earlier)
            earlier.append(at)
        return Element(buffer, self.types[buffer][0].dtype, shape, at)

    def _constant(self, node: int, fill: Constant, layers: tuple[Layer, ...]) -> ReadValue:
        if not layers:
            return ReadValue(fill, ())
        body = const(fill.value)
        self.drafts.append(StageDraft(node, 0, (), (), body, (), fill.dtype))
        return ReadValue(len(self.drafts) - 1, layers)

    def _stage(self, node: int, g: Generic, result: int, at: Point) -> int:
        """The number of the stage that computes a generic's result at a point."""
        stages, loops = self._stages.setdefault((node, result), []), self.loops
        point = loops.all_now(at)
        for s in stages:
            if loops.all_now(self.drafts[s].at) == point:
                return s
        for s in stages:
            if self._is_inside(at, self.drafts[s].at) and loops.unify(
                at, self.drafts[s].at, is_value=True
            ):
                return s
        is_contraction = contraction_roles(g) is not None
        reduced = tuple([loops.new(g.sizes[d], is_contraction) for d in g.reductions])
        if g.reductions:
            sizes = tuple([g.sizes[d] for d in g.reductions])
            loops.groups.append(LoopRun(at, reduced, sizes, reduces=True))
        y = g.yields[result]
        body, arguments = self._arguments(node, y.body, g, (*at, *reduced), y.dtype)
        self.drafts.append(
            StageDraft(
                node, result, at, reduced, body, arguments, y.dtype, y.combine, g.result_shape
            )
        )
        if len(self.drafts) > MOST_STAGES:
            raise NoNest(f"{self._name(node)} makes more than {MOST_STAGES} stages")
        stages.append(len(self.drafts) - 1)
        return stages[-1]

    def _is_inside(self, at: Point, other: Point) -> bool:
        """Whether a point reads no more of a value than another one, as far as it matters.

        The value of a piece is made of the operand of a concat that is there: not of the others.
        """
        if not self.cuts:
            return True
        spans = [[self.loops.span(i) for i in self.loops.all_now(p)] for p in (at, other)]
        return all(b[0] <= a[0] and a[1] <= b[1] for a, b in zip(*spans, strict=True))

    def _arguments(
        self, node: int, body: Expr, g: Generic, at: Point, dtype: str
    ) -> tuple[Expr, tuple[ReadValue, ...]]:
        values: list[ReadValue] = []
        new: dict[int, Expr] = {}
        for i in body.operands():
            value = self.read(self.ops[node].operands[i], mapped(g, i, at))
            if isinstance(value.source, Constant):
                constant = const(value.source.value)
                same = value.source.dtype == dtype
                new[i] = constant if same else cast(constant, value.source.dtype)
            else:
                new[i] = arg(len(values))
                values.append(value)
        return body.substitute(new), tuple(values)

    # ---- moves that choose what they read
    def _moved(self, node: int, attr: Move, at: Point) -> Step:
        (axis,) = attr.args
        if attr.op == "concat":
            operand, start = self._part(node, attr, at[axis])
            moved = affine_sum([(at[axis], 1)], -start)
            return Step(operand, (*at[:axis], moved, *at[axis + 1 :]))
        end = axis + len(attr.sources[1])
        numbers = Numbers(self._reach, lambda i: self.ops[i].operands, self.loops)
        try:
            number = numbers.number(self.ops[node].operands[1], at[axis:end])
        except NoNest as why:
            said = str(why)
            raise NoNest(said if said.startswith("%") else f"{self._name(node)} {said}") from None
        row = self._lookup(number, attr.sources[0][axis])
        return Step(0, (*at[:axis], row, *at[end:]))

    def _lookup(self, number: LookupNumber, size: int) -> Affine:
        """The row that is looked up: known, or as if it were a loop; one loop per number."""
        if not number.arguments:
            index = int(scalar.hold(scalar.evaluate_body(number.body, []), number.dtype))
            return Affine((), min(max(index, 0), size - 1))
        number = number_now(number, self.loops)
        for loop, other in self.loops.lookups.items():
            assert isinstance(other, LookupNumber)
            if self.loops.sizes[loop] == size and number_now(other, self.loops) == number:
                return dim(loop)
        return self.loops.lookup(number, size)

    def _chosen(self, node: int, attr: Move, at: Point, layers: tuple[Layer, ...]) -> ReadValue:
        """A concat's element as a choice between its operands'."""
        (axis,) = attr.args
        operands, dtype = self.ops[node].operands, self.types[node][0].dtype
        start = attr.shape[axis]
        chosen: ReadValue | None = None
        for i in reversed(range(len(operands))):
            size = attr.sources[i][axis]
            start -= size
            index = affine_sum([(at[axis], 1)], -start)
            low, high = self.loops.span(self.loops.now(index))
            if size == 0 or high < 0 or low >= size:
                continue
            value = self.read(operands[i], (*at[:axis], index, *at[axis + 1 :]))
            if isinstance(value.source, Constant):
                value = self._constant(operands[i], value.source, (Layer((), None),))
            if chosen is not None:
                choice = Layer((((index,), (size,)),), None)
                both = (value, chosen)
                stage = StageDraft(
                    node, i, at, (), arg(0), both, dtype, shape=attr.shape, choice=choice
                )
                self.drafts.append(stage)
                chosen = ReadValue(len(self.drafts) - 1, ())
            else:
                chosen = value
        assert chosen is not None
        return ReadValue(chosen.source, (*layers, *chosen.layers))

    def _part(self, node: int, attr: Move, index: Affine) -> tuple[int, int]:
        """Which operand of a concat holds these elements, and where it starts; else cut."""
        (axis,) = attr.args
        index = self.loops.now(index)
        low, high = self.loops.span(index)
        low, high = max(low, 0), min(high, attr.shape[axis] - 1)
        start = 0
        for i, s in enumerate(attr.sources):
            if start <= low and high < start + s[axis]:
                return i, start
            start += s[axis]
            if low < start <= high:
                self._cut(node, index, start)
        raise NoNest(f"{self._name(node)} is read where it has no elements")

    def _cut(self, node: int, index: Affine, border: int) -> None:
        """Start again, with what is written in two where this index reaches the border."""
        loop, stride = max(index.terms, key=lambda t: t[1])
        number, d = self._dims.get(loop, (-1, -1))
        rest = affine_sum([(index, 1)], -border)
        rest = Affine(tuple(t for t in rest.terms if t[0] != loop), rest.constant)
        where = -rest.constant // stride
        low, high = self.loops.span(rest)
        fits = rest.constant % stride == 0 and low == rest.constant and high < low + stride
        if number < 0 or loop in self.loops.became or not fits or len(self.pieces) >= MOST_PIECES:
            raise NoNest(f"{self._name(node)} cuts a loop that is no dim of a result")
        p = self.pieces[number]

        def part(start: int, stop: int) -> Piece:
            offsets = (*p.offsets[:d], p.offsets[d] + start, *p.offsets[d + 1 :])
            return Piece(p.node, offsets, (*p.sizes[:d], stop - start, *p.sizes[d + 1 :]))

        two = [part(0, where), part(where, p.sizes[d])]
        raise _Cut([*self.pieces[:number], *two, *self.pieces[number + 1 :]])
