"""`scf.for`, `scf.while` and `scf.if` → one op whose bodies are Programs, as those of JAX.

A region is read like a function of its own. What it reads from outside and never changes becomes
one of the op's `consts`. A slice that the index of a loop takes of a tensor becomes an operand that
is stacked, and a tensor that is filled slice by slice a result that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eqsat.frontends.control import BodyRead, ControlMaker
from eqsat.frontends.mlir.items import DYNAMIC, Item, Nothing, numbers, segments
from eqsat.frontends.values import Context, Tensor
from eqsat.model.control import COND, SCAN, WHILE
from eqsat.model.expr import arg, call
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, prune
from eqsat.model.tensor import TensorType

if TYPE_CHECKING:
    from eqsat.frontends.mlir.reader import FunctionReader


def read_scf(reader: FunctionReader, op: Any) -> list[Item]:
    """The results of a loop or branch; EqsatError E375 for a form that no program has."""
    return list(SCF[op.name](reader, op))


# ---- regions -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Some:
    """A block, of which some operations are read."""

    operations: Sequence[Any]


@dataclass
class _Regions:
    """The regions of one op: what they read from outside, each value an operand once."""

    reader: FunctionReader
    op: Any
    aside: frozenset[Any] = frozenset()  # values that are no consts
    nodes: list[int] = field(default_factory=list)

    @cached_property
    def held(self) -> dict[Any, Item | None]:
        """Values from outside: those without a node as they are, None for those that are consts."""
        scope = self.reader.scope
        read = [v for v in _captured(list(self.op.regions)) if v not in self.aside]
        items: dict[Any, Item | None] = {v: scope.item(v, self.op) for v in read}
        for v, item in items.items():
            if isinstance(item, Tensor) and not item.is_constant:
                self.nodes.append(scope.ctx.materialise(item))
                items[v] = None
        return items

    def body(
        self,
        region: Any,
        rest: Sequence[tuple[Any, TensorType]],
        results: Sequence[Any],
        skipped: Sequence[Any] = (),
    ) -> BodyRead:
        """A region as a program of its consts and of `rest`, values that change, with their types.

        results: the values that it gives. skipped: operations not read, as a loop has them.
        """
        reader, held = self.reader, self.held
        ctx, outer = Context(Builder("body")), reader.scope.ctx.builder
        values: dict[Any, Item] = {v: Nothing() for o in skipped for v in o.results}
        values |= {v: item for v, item in held.items() if item is not None}
        outside = [v for v, item in held.items() if item is None]
        consts = [(v, outer.type(n)) for v, n in zip(outside, self.nodes, strict=True)]
        for i, (v, t) in enumerate((*consts, *rest)):
            values[v] = ctx.add("input", (), Leaf(ctx.name("x"), t, index=i))
        inside = reader.inner(ctx, values)
        (block,) = region.blocks
        *run, end = (o.operation for o in block.operations)
        inside.run(_Some([o for o in run if o not in skipped]))
        reader.read = inside.read
        nodes = [ctx.materialise(inside.scope.tensor(v, end)) for v in results]
        return BodyRead(ctx, len(consts), prune(ctx.builder.build(nodes)))

    def starts(self, values: Sequence[Any]) -> tuple[list[int], list[TensorType]]:
        """The nodes of operands, and their types."""
        ctx = self.reader.scope.ctx
        nodes = [ctx.materialise(self.reader.scope.tensor(v, self.op)) for v in values]
        return nodes, [ctx.builder.type(n) for n in nodes]


def _captured(regions: Sequence[Any]) -> list[Any]:
    """Values that regions read and that are made outside, in the order in which they are read."""
    inside: set[Any] = set()
    read: dict[Any, None] = {}
    for block in _blocks(regions):
        inside.update(block.arguments)
        for o in block.operations:
            inside.update(o.operation.results)
            read |= dict.fromkeys(o.operation.operands)
    return [v for v in read if v not in inside]


def _blocks(regions: Sequence[Any]) -> Iterator[Any]:
    for block in (b for r in regions for b in r.blocks):
        yield block
        for o in block.operations:
            yield from _blocks(list(o.operation.regions))


def _end(region: Any) -> Any:
    """The last operation of a region."""
    (block,) = region.blocks
    return list(block.operations)[-1].operation


# ---- for -----------------------------------------------------------------------------------------
@dataclass
class _Slice:
    """A slice at the loop's index: the op, and what it is taken of or put into."""

    op: Any
    whole: Any
    slope: int
    start: int


def _for(reader: FunctionReader, op: Any) -> list[Tensor]:
    scope = reader.scope
    low, high, step, *starts = op.operands
    first, last, by = (scope.index(v, op) for v in (low, high, step))
    if by < 1 or not starts:
        raise scope.fail("E375", "a loop that gives nothing, or of a step below 1", op)
    length = max(0, -(-(last - first) // by))
    (block,) = op.regions[0].blocks
    _, *state = block.arguments
    places, skipped = _places(reader, block, (by, first))
    every_slice = [s for o in block.operations if (s := _slice(o.operation, places)) is not None]
    taken = [s for s in every_slice if s.op.name == "tensor.extract_slice" and s.whole not in state]
    given = list(_end(op.regions[0]).operands)
    grown = {
        i: s
        for i, v in enumerate(given)
        for s in every_slice
        if v in s.op.results and s.whole == state[i] and _uses(block, state[i]) == 1
    }
    slices = [*taken, *grown.values()]
    ways = {(s.slope, s.start) for s in slices}
    if not ways <= {(1, 0)} and not ways <= {(-1, length - 1)}:
        raise scope.fail("E375", "a loop whose slices are not one after another", op)
    for size in (s.whole.type.shape[0] for s in slices):
        if size != length:
            raise scope.fail("E375", f"a loop of {length} steps over slices of {size}", op)
    skipped += [s.op for s in slices]
    carried = [i for i in range(len(starts)) if i not in grown]
    regions = _Regions(reader, op, _only_sliced(block, taken))
    nodes, types = regions.starts([starts[i] for i in carried])
    stacks, stack_types = regions.starts([s.whole for s in taken])
    rest = [(state[i], t) for i, t in zip(carried, types, strict=True)]
    parts = [t.with_shape(t.shape[1:]) for t in stack_types]
    rest += [(s.op.results[0], t) for s, t in zip(taken, parts, strict=True)]
    results = [*(given[i] for i in carried), *(s.op.operands[0] for s in grown.values())]
    body = regions.body(op.regions[0], rest, results, skipped)
    maker = ControlMaker(SCAN, len(carried), length, (-1, length - 1) in ways and length > 1)
    outputs = maker.node(scope.ctx, regions.nodes, [*nodes, *stacks], [body])
    order = [*carried, *grown]
    return [outputs[order.index(i)] for i in range(len(starts))]


def _places(
    reader: FunctionReader, block: Any, index: tuple[int, int]
) -> tuple[dict[Any, tuple[int, int]], list[Any]]:
    """Values that follow from the index, (slope, start) over the steps, and what computes them."""
    places, skipped = {block.arguments[0]: index}, []
    for o in block.operations:
        op = o.operation
        if op.name not in ("arith.addi", "arith.subi") or not places.keys() & set(op.operands):
            continue
        a, b = (places.get(v) or (0, reader.scope.index(v, op)) for v in op.operands)
        sign = 1 if op.name == "arith.addi" else -1
        places[op.results[0]] = a[0] + sign * b[0], a[1] + sign * b[1]
        skipped.append(op)
    return places, skipped


def _slice(op: Any, places: dict[Any, tuple[int, int]]) -> _Slice | None:
    """The op as a slice of extent 1 along the first dim, whole along the others; or None."""
    if op.name not in ("tensor.extract_slice", "tensor.insert_slice"):
        return None
    *sides, offsets, sizes, strides = segments(op)
    whole = sides[-1][0]
    part = op.results[0] if op.name == "tensor.extract_slice" else op.operands[0]
    at, *others = numbers(op, "static_offsets")
    shape, rest = list(whole.type.shape), list(part.type.shape)
    is_one = numbers(op, "static_sizes") == [1, *rest] == [1, *shape[1:]]
    is_plain = not any(others) and set(numbers(op, "static_strides")) == {1}
    if at != DYNAMIC or sizes or strides or not (is_one and is_plain) or offsets[0] not in places:
        return None
    return _Slice(op, whole, *places[offsets[0]])


def _uses(block: Any, value: Any) -> int:
    """How often the operations of a block, and of those inside, read a value."""
    operations = (o.operation for o in block.operations)
    return sum(
        list(op.operands).count(value) + sum(_uses(b, value) for b in _blocks(list(op.regions)))
        for op in operations
    )


def _only_sliced(block: Any, taken: Sequence[_Slice]) -> frozenset[Any]:
    """Tensors from outside of which the loop reads nothing but slices."""
    count: dict[Any, int] = {}
    for s in taken:
        count[s.whole] = count.get(s.whole, 0) + 1
    return frozenset(v for v, n in count.items() if _uses(block, v) == n)


# ---- while, if -----------------------------------------------------------------------------------
def _while(reader: FunctionReader, op: Any) -> list[Tensor]:
    before, after = op.regions
    (first,), (second,) = before.blocks, after.blocks
    flag, *passed = _end(before).operands
    if passed != list(first.arguments):
        why = "a while loop whose condition hands on other values than it has"
        raise reader.scope.fail("E375", why, op)
    regions = _Regions(reader, op)
    nodes, types = regions.starts(list(op.operands))
    condition = regions.body(before, list(zip(first.arguments, types, strict=True)), [flag])
    rest = list(zip(second.arguments, types, strict=True))
    body = regions.body(after, rest, list(_end(after).operands))
    maker = ControlMaker(WHILE, len(nodes))
    return maker.node(reader.scope.ctx, regions.nodes, nodes, [condition, body])


def _if(reader: FunctionReader, op: Any) -> list[Tensor]:
    """The branch of number 1 is what runs where the flag is true."""
    scope = reader.scope
    if not list(op.results):
        raise scope.fail("E375", "a branch that gives nothing", op)
    then, other = op.regions
    flag = scope.tensor(op.operands[0], op)
    regions = _Regions(reader, op)
    bodies = [regions.body(r, [], list(_end(r).operands)) for r in (other, then)]
    index = scope.ctx.materialise(_number(scope.ctx, flag))
    return ControlMaker(COND).node(scope.ctx, regions.nodes, [], bodies, (index,))


def _number(ctx: Context, flag: Tensor) -> Tensor:
    sides = [Tensor((), "i32", constant=v) for v in (1, 0)]
    return ctx.elementwise(call("select", arg(0), arg(1), arg(2)), [flag, *sides], (), "i32")


def _once(reader: FunctionReader, op: Any) -> list[Item]:
    """A region that runs where it stands."""
    (region,) = op.regions
    (block,) = region.blocks
    *run, end = (o.operation for o in block.operations)
    reader.run(_Some(run))
    return [reader.scope.item(v, end) for v in end.operands]


SCF = {"scf.for": _for, "scf.while": _while, "scf.if": _if, "scf.execute_region": _once}
