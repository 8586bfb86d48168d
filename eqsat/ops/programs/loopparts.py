"""Loop-invariant and loop-trailing parts of a scan's body: ahead of the loop, or behind it.

A value that no state reaches is computed ahead: once if no slice reaches it, else for all steps at
once. A value that reaches no state is computed behind, from the stacked values it reads. A state
that is only added to is the sum of what is added. An op on every slice of a stack at once has
attributes with one more dim in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.control import CONTROL, Control
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Node, Program
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.algebra.reductions import ORDERLESS
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import generic_node, identity
from eqsat.ops.movement.moves import gather_of


# ---- ops on stacks -------------------------------------------------------------------------------
class NotStackable(Exception):
    """This op has no form with one more dim in front."""


def stacked_attr(op: str, attr: Attr, length: int, stacks: Sequence[bool]) -> Attr:
    """The attribute for operands of which those in `stacks` have one more dim in front.

    NotStackable if there is none.
    """
    match attr:
        case Generic() if not attr.tile and len(attr.yields) == 1:
            return _generic(attr, length, stacks)
        case Layout():
            source = (length, *attr.source)
            outer = (0, *_behind(attr.outer))
            return replace(attr, source=source, pos=_behind(attr.pos), outer=outer)
        case Transpose():
            return Transpose((length, *attr.source), (0, *_behind(attr.perm)))
        case Reshape():
            return Reshape((length, *attr.source), (length, *attr.shape))
        case Move() if all(stacks):
            return _move(op, attr, length)
        case Move() if op == "gather" and attr.args == (0,) and not stacks[0]:
            table, rows = attr.sources
            return gather_of(table, (length, *rows), 0)
    raise NotStackable(op)


def stacked_node(
    b: Builder, n: Node, operands: tuple[int, ...], stacks: Sequence[bool], length: int
) -> int:
    """The op of another program on these operands, some of them stacks; NotStackable as above."""
    if n.op == "concat" and any(stacks):
        pairs = zip(operands, stacks, strict=True)
        operands = tuple([o if is_stack else along_steps(b, o, length) for o, is_stack in pairs])
        stacks = [True] * len(operands)
    attr = stacked_attr(n.op, n.attr, length, stacks) if any(stacks) else n.attr
    return b.add(n.op, operands, attr)


def has_stacked_form(n: Node, stacks: Sequence[bool], length: int) -> bool:
    """Whether `stacked_node` can write it."""
    try:
        whole = [True] * len(stacks) if n.op == "concat" else stacks
        stacked_attr(n.op, n.attr, length, whole)
    except NotStackable:
        return False
    return True


def along_steps(b: Builder, x: int, length: int) -> int:
    """A stack of which every slice is the value x."""
    t = b.type(x)
    loops = range(1, len(t.shape) + 1)
    reads = [(x, tuple(dim(d) for d in loops))]
    sizes = (length, *t.shape)
    return generic_node(
        b, sizes, range(len(sizes)), reads, [Yield(arg(0), t.dtype)], precision=NONE
    )


def _behind(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dims)


def _generic(g: Generic, length: int, stacks: Sequence[bool]) -> Generic:
    loops = list(range(1, len(g.sizes) + 1))
    maps: list[Map] = []
    shapes: list[Shape] = []
    for m, shape, is_stack in zip(g.maps, g.shapes, stacks, strict=True):
        moved = tuple(e.rename(loops) for e in m)
        maps.append((dim(0), *moved) if is_stack else moved)
        shapes.append((length, *shape) if is_stack else shape)
    sizes = (length, *g.sizes)
    return replace(g, sizes=sizes, rank=g.rank + 1, maps=tuple(maps), shapes=tuple(shapes))


def _move(op: str, attr: Move, length: int) -> Move:
    match op:
        case "pad":
            low, high, value = attr.args
            args = ((0, *low), (0, *high), value)
        case "slice":
            start, limit, stride = attr.args
            args = ((0, *start), (length, *limit), (1, *stride))
        case "concat":
            args = (attr.args[0] + 1,)
        case _:
            raise NotStackable(op)
    sources = tuple((length, *s) for s in attr.sources)
    return replace(attr, sources=sources, args=args, shape=(length, *attr.shape))


# ---- parts of a body -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Sum:
    """A state that every step combines with a value, and nothing else reads.

    node: the body's op that gives the next state. added: the node of that value, and how the loops
    of the state read it; None if it is a literal of the op.
    """

    node: int
    added: int | None
    map: Map
    combine: str


class LoopParts:
    """The values of a scan's body by when they are computed; all by their node.

    ahead: before the loop. behind: after it. free: what can be ahead. fixed: of the free ones, what
    has one value for all steps. constant: states that are handed on as they came.
    """

    def __init__(self, attr: Control, inexact: bool):
        self.attr, (self.body,) = attr, attr.programs
        self.state = [self.body.inputs[attr.consts + k] for k in range(attr.carries)]
        results = self.body.results
        self.constant = {k for k, i in enumerate(self.state) if results[k] == i}
        self.readers: list[list[int]] = [[] for _ in self.body.nodes]
        for i, n in enumerate(self.body.nodes):
            for o in n.operands:
                self.readers[o].append(i)
        self.sums = self._sums(inexact)
        while True:
            self._divide()
            stay = {k for k, s in self.sums.items() if not self._is_outside(s)}
            if not stay:
                break
            # a sum of what the loop computes is a state as any other
            self.sums = {k: s for k, s in self.sums.items() if k not in stay}

    def _divide(self) -> None:
        self.ends = {s.node for s in self.sums.values()}
        self.added = self._added()
        self.needed = self._needed()
        self._reach()
        self.is_empty = not self.carried and self.needed <= self.stackable
        self.ahead = self._ahead()
        self.behind = self._behind()

    def only_fixed(self) -> LoopParts:
        """With no more ahead than what is the same in every step, and nothing behind."""
        parts = copy(self)
        parts.sums, parts.is_empty = {}, False
        parts._divide()
        parts.ahead = fixed_ahead(
            self.body, [*self.slices, *(self.state[k] for k in parts.carried)]
        )
        parts.behind = set()
        return parts

    @property
    def carried(self) -> list[int]:
        """The states that go from step to step, by number."""
        left = self.constant | self.sums.keys()
        return [k for k in range(self.attr.carries) if k not in left]

    @property
    def slices(self) -> tuple[int, ...]:
        """The body's inputs that are another slice in every step."""
        return self.body.inputs[self.attr.consts + self.attr.carries :]

    # ---- what reaches what ---------------------------------------------------------------------
    def _needed(self) -> set[int]:
        """Nodes that results are computed from, without the ops that add to sums."""
        wanted = [r for k, r in enumerate(self.body.results) if k not in self.sums]
        return depending(
            self.body, wanted + [s.added for s in self.sums.values() if s.added is not None]
        )

    def _reach(self) -> None:
        """Which nodes change from step to step, and which have a form for all steps at once."""
        nodes = self.body.nodes
        states = {self.state[k] for k in range(self.attr.carries) if k not in self.constant}
        inputs = set(self.body.inputs)
        changing, self.free, self.stackable = states | {*self.slices}, inputs - states, {*inputs}
        for i, n in enumerate(nodes):
            if i in inputs:
                continue
            stacks = [o in changing for o in n.operands]
            if any(stacks):
                changing.add(i)
            if not any(stacks) or has_stacked_form(n, stacks, self.attr.length):
                self.stackable.add(i)
                if self.free.issuperset(n.operands):
                    self.free.add(i)
        self.fixed = self.free - changing

    # ---- sums ----------------------------------------------------------------------------------
    def _sums(self, inexact: bool) -> dict[int, Sum]:
        sums: dict[int, Sum] = {}
        for k, state in enumerate(self.state):
            s = None if k in self.constant else self._sum(state, self.body.results[k])
            is_rounded = is_float(self.body.nodes[state].type.dtype)
            if s is not None and (inexact or s.combine in ORDERLESS or not is_rounded):
                sums[k] = s
        return sums

    def _sum(self, state: int, node: int) -> Sum | None:
        g, operands = self.body.nodes[node].attr, self.body.nodes[node].operands
        alone = self.body.uses[node] == 1 and self.body.uses[state] == 1
        if not alone or state not in operands or not isinstance(g, Generic):
            return None
        at = operands.index(state)
        if len(g.yields) != 1 or g.rank < len(g.sizes) or g.maps[at] != identity(g.rank):
            return None
        combine = "add" if g.body.fn == "sub" else g.body.fn
        if combine not in ("add", *ORDERLESS) or g.yields[0].dtype == "bool":
            return None
        numbers = [e.value if e.fn == "arg" else None for e in g.body.args]
        if at not in numbers or (g.body.fn == "sub" and numbers[0] != at):
            return None
        other = g.body.args[1 - numbers.index(at)]
        if other.fn == "const":
            return Sum(node, None, (), combine)
        if other.fn != "arg" or g.dtypes[other.value] != g.yields[0].dtype:
            return None
        return Sum(node, operands[other.value], g.maps[other.value], combine)

    def _added(self) -> set[int]:
        """Nodes that sums add, in any order of dims."""
        added: set[int] = set()
        for s in self.sums.values():
            i = s.added
            while i is not None and i not in added:
                added.add(i)
                n = self.body.nodes[i]
                turned = isinstance(n.attr, Transpose | Reshape) and self.body.uses[i] == 1
                i = n.operands[0] if turned else None
        return added

    def _is_outside(self, s: Sum) -> bool:
        """Whether what a sum adds is computed outside of the loop."""
        if s.added is None or s.added in self.behind or s.added in self.ahead:
            return True
        return s.added in self.free and not self.body.nodes[s.added].operands

    # ---- ahead and behind ----------------------------------------------------------------------
    def _ahead(self) -> set[int]:
        ahead: set[int] = set()
        for i in sorted(self.free & self.needed):
            if self.is_empty or self._pays(i) or self._follows(i, ahead):
                ahead |= depending(self.body, [i])
        return {i for i in ahead if self.body.nodes[i].operands}

    def _pays(self, i: int) -> bool:
        """Whether it is worth by itself that a node is computed ahead.

        For all steps at once: products of what is fixed, which is read once then.
        """
        return pays_once(self.body, i) if i in self.fixed else self._is_product(i)

    def _is_product(self, i: int) -> bool:
        """Whether a node is a product with something fixed, or one that is only added up."""
        n = self.body.nodes[i]
        if not isinstance(n.attr, Generic) or contraction_roles(n.attr) is None:
            return False
        return not self.fixed.isdisjoint(n.operands) or i in self.added

    def _follows(self, i: int, ahead: set[int]) -> bool:
        """Whether a node reads what is computed ahead for all steps, and is no larger."""
        nodes = self.body.nodes
        if nodes[i].op == "result":
            return ahead.issuperset(nodes[i].operands)
        read = [o for o in nodes[i].operands if o in ahead - self.fixed and nodes[o].operands]
        others = [o for o in nodes[i].operands if o not in ahead and nodes[o].operands]
        size = sum(nodes[o].type.nbytes for o in read)
        return bool(read) and not others and nodes[i].type.nbytes <= size

    def _behind(self) -> set[int]:
        nodes = self.body.nodes
        closed: set[int] = set()  # what can be computed behind, as all can that reads it
        core = depending(self.body, [self.body.results[k] for k in self.carried])
        for i in sorted(self.needed - core - self.ahead, reverse=True):
            later = set(self.readers[i]) & self.needed - self.ends
            if nodes[i].operands and i in self.stackable and later <= closed:
                closed.add(i)
        behind: set[int] = set()
        for i in sorted(closed):
            if self.is_empty or self._is_product(i) or not behind.isdisjoint(nodes[i].operands):
                behind.add(i)
        self._pull(behind, closed)
        return behind

    def _pull(self, behind: set[int], closed: set[int]) -> None:
        """Also what those read, if what that reads is no more to keep of every step."""
        nodes = self.body.nodes
        stacked = set(self.body.results[self.attr.carries :])
        for i in sorted(closed - behind - stacked, reverse=True):
            more = {*nodes[i].operands} - self.free - stacked - behind
            size = sum(nodes[o].type.nbytes for o in more)
            if not behind.isdisjoint(self.readers[i]) and size <= nodes[i].type.nbytes:
                behind.add(i)


def pays_once(body: Program, i: int) -> bool:
    """Whether a node that is the same in every step is worth computing ahead, by itself.

    It computes something, and leaves no more bytes to read than it reads, or sums.
    """
    n = body.nodes[i]
    g = n.attr
    if not n.operands or n.op == "result":
        return False
    if not isinstance(g, Generic):
        return n.op in CONTROL or n.op == "opaque"
    if g.rank < len(g.sizes):
        return True
    size = sum(t.nbytes for t in n.types)
    read = sum(body.nodes[o].type.nbytes for o in {*n.operands})
    computes = any(y.body.args for y in g.yields)
    return computes and size <= read and n.types[0].size > 1


def fixed_ahead(body: Program, changing: Iterable[int]) -> set[int]:
    """Nodes that pay to be computed ahead of all that no `changing` input reaches."""
    reached, ahead = {*changing}, set[int]()
    for i, n in enumerate(body.nodes):
        if not reached.isdisjoint(n.operands):
            reached.add(i)
        elif pays_once(body, i) or (n.op == "result" and ahead.issuperset(n.operands)):
            ahead |= depending(body, [i])
    return {i for i in ahead if body.nodes[i].operands}


def depending(body: Program, some: Iterable[int]) -> set[int]:
    """These nodes and all that they are computed from."""
    needed = set(some)
    for i in range(len(body.nodes) - 1, -1, -1):
        if i in needed:
            needed.update(body.nodes[i].operands)
    return needed
