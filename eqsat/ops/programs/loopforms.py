"""Control → Programs: a loop with less in its body, and what left it in front of it and behind.

Loop-invariant code motion, and vectorisation over the steps of a scan: x_t W for all steps is one
product, as in cuDNN's recurrent layers (Appleyard et al. 2016, arXiv 1604.01946, section 3.2).
Which form is worth its memory is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import dim
from eqsat.model.control import SCAN, WHILE, Control
from eqsat.model.expr import arg, call, const, rebuilt
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import NONE, TensorType, is_float
from eqsat.ops.generics.canonical import canonical_generic, generic_node
from eqsat.ops.programs.loopparts import (
    LoopParts,
    Sum,
    along_steps,
    depending,
    fixed_ahead,
    stacked_node,
)

FEWEST = 2  # steps of a loop that is worth changing


def loop_forms(attr: Control, inexact: bool) -> list[Program]:
    """Programs that take the operands of a loop and give its results, none of them the loop alone.

    inexact: sums of floats may be taken in another order. Empty for branches, for loops of less
    than two steps, and where nothing can leave.
    """
    if not attr.programs:
        return []
    if attr.op == WHILE and attr.trips is not None and attr.trips >= FEWEST:
        counted = _counted(attr, attr.trips)
        return [_alone(counted), *loop_forms(counted, inexact)]
    if attr.op == WHILE and attr.trips is None:
        return _While(attr).forms()
    if attr.op != SCAN or attr.length < FEWEST:
        return []
    forms = [_Scan(attr, parts).form() for parts in _parts(attr, inexact)]
    return list(dict.fromkeys(forms))


def _parts(attr: Control, inexact: bool) -> list[LoopParts]:
    """Partitions of a loop, by how much leaves it: all that can, or what is equal in all steps."""
    whole = LoopParts(attr, inexact)
    if not (whole.ahead or whole.behind or whole.sums or whole.is_empty):
        return []
    fixed = whole.only_fixed()
    return [whole, fixed] if fixed.ahead else [whole]


def _counted(attr: Control, trips: int) -> Control:
    """A while loop that is known to run so often, as a scan."""
    body = attr.programs[1]
    return Control(SCAN, (body,), attr.consts, attr.carries, trips)


def _alone(attr: Control) -> Program:
    b = Builder("loop")
    given = _operands(b, attr)
    return b.build(_results(b, b.add(attr.op, tuple(given), attr), attr))


def _operands(b: Builder, attr: Control) -> list[int]:
    """Inputs for the operands of a loop, called as its body calls them."""
    body = attr.programs[-1]
    names = [body.leaf(i).name for i in body.inputs]
    types = enumerate(zip(names, attr.operand_types, strict=True))
    return [b.append("input", (), Leaf(name, t, index=k)) for k, (name, t) in types]


def _results(b: Builder, loop: int, attr: Control) -> list[int]:
    """The results of a loop; the op itself if it has only one."""
    count = len(attr.result_types)
    return [loop] if count == 1 else [b.add("result", (loop,), Result(i)) for i in range(count)]


class _Inner:
    """A body in the making: nodes of the old one, with inputs for those computed ahead."""

    def __init__(self, old: Program):
        self.old, self.b = old, Builder("body")
        self.new: dict[int, int] = {}

    def input(self, i: int, name: str, t: TensorType) -> None:
        self.new[i] = self.b.append("input", (), Leaf(name, t, index=len(self.new)))

    def name(self, i: int) -> str:
        attr = self.old.nodes[i].attr
        return attr.name if isinstance(attr, Leaf) else f"ahead{i}"

    def write(self, wanted: Sequence[int]) -> Program:
        """The body that gives these nodes."""
        for i in sorted(self.inside(wanted)):
            n = self.old.nodes[i]
            self.new[i] = self.b.add(n.op, tuple(self.new[o] for o in n.operands), n.attr)
        return self.b.build([self.new[i] for i in wanted])

    def inside(self, wanted: Iterable[int]) -> set[int]:
        """Nodes that have to be computed for them; all inputs are known."""
        needed, waiting = set[int](), list(wanted)
        while waiting:
            i = waiting.pop()
            if i not in needed and i not in self.new:
                needed.add(i)
                waiting += self.old.nodes[i].operands
        return needed


# ---- scans ---------------------------------------------------------------------------------------
class _Scan:
    """The program around what is left of a scan."""

    def __init__(self, attr: Control, parts: LoopParts):
        self.attr, self.parts, self.body = attr, parts, parts.body
        self.b = Builder("loop")
        self.given = _operands(self.b, attr)
        self.new = dict(zip(self.body.inputs, self.given, strict=True))  # body's node → outside
        for k in range(attr.carries):
            if k not in parts.constant:
                del self.new[parts.state[k]]

    def form(self) -> Program:
        self._write(self.parts.ahead)
        behind = self._closure()
        results = self.body.results[self.attr.carries :]
        outside = behind | self.new.keys()
        stacked = [r for r in results if r not in outside]
        border = sorted({o for i in behind for o in self.body.nodes[i].operands} - outside)
        last = self._loop(list(dict.fromkeys([*stacked, *border])))
        self._write(behind)
        slices = [self._stack(r) for r in results]
        state = [self._state(k, last) for k in range(self.attr.carries)]
        return prune(self.b.build([*state, *slices]))

    def _write(self, some: Iterable[int]) -> None:
        """Compute these nodes outside, for all steps where they differ."""
        for i in sorted(some):
            n = self.body.nodes[i]
            if i not in self.new:
                for o in n.operands:
                    self._constant(o)
                operands = tuple(self.new[o] for o in n.operands)
                stacks = [o not in self.parts.fixed for o in n.operands]
                self.new[i] = stacked_node(self.b, n, operands, stacks, self.attr.length)

    def _constant(self, i: int) -> None:
        n = self.body.nodes[i]
        if isinstance(n.attr, Fill) and i not in self.new:
            self.new[i] = self.b.add(n.op, (), n.attr)

    def _closure(self) -> set[int]:
        """Nodes computed behind, with all that they need of what no state reaches."""
        added = [s.added for s in self.parts.sums.values() if s.added is not None]
        results = self.body.results[self.attr.carries :]
        once = [r for r in results if r in self.parts.fixed]
        closure, waiting = set[int](), [*self.parts.behind, *added, *once]
        while waiting:
            i = waiting.pop()
            if i not in closure and i not in self.new:
                closure.add(i)
                there = self.parts.free | self.parts.behind
                waiting += [o for o in self.body.nodes[i].operands if o in there]
        return closure

    def _stack(self, i: int) -> int:
        """The values of a node in all steps."""
        value = self.new[i]
        return along_steps(self.b, value, self.attr.length) if i in self.parts.fixed else value

    # ---- the loop that is left -----------------------------------------------------------------
    def _loop(self, stacked: Sequence[int]) -> dict[int, int]:
        """Write the loop, with the values of these nodes stacked; its last states by number."""
        carried = self.parts.carried
        if not carried and not stacked:
            return {}
        wanted = [*(self.body.results[k] for k in carried), *stacked]
        body, consts, slices = self._inner(wanted)
        attr = replace(
            self.attr, programs=(body,), consts=len(consts), carries=len(carried)
        )  # fmt: skip
        first = [self.given[self.attr.consts + k] for k in carried]
        operands = [*(self.new[i] for i in consts), *first, *(self.new[i] for i in slices)]
        results = _results(self.b, self.b.add(SCAN, tuple(operands), attr), attr)
        self.new |= dict(zip(stacked, results[len(carried) :], strict=True))
        return dict(zip(carried, results, strict=False))

    def _inner(self, wanted: Sequence[int]) -> tuple[Program, list[int], list[int]]:
        """The body that gives these nodes, and what outside gives its consts and its slices."""
        inner = _Inner(self.body)
        states = [self.parts.state[k] for k in self.parts.carried]
        outside = [i for i in self.new if not isinstance(self.body.nodes[i].attr, Fill)]
        inner.new = dict.fromkeys([*outside, *states], -1)
        inside = inner.inside(wanted)
        read = {o for i in inside for o in self.body.nodes[i].operands} | {*wanted}
        given = sorted(read.intersection(outside))
        consts = [i for i in given if i in self.parts.fixed]
        slices = [i for i in given if i not in self.parts.fixed]
        inner.new = {}
        for i in (*consts, *states, *slices):
            inner.input(i, inner.name(i), self.body.nodes[i].type)
        return inner.write(wanted), consts, slices

    # ---- states --------------------------------------------------------------------------------
    def _state(self, k: int, last: dict[int, int]) -> int:
        """A state behind the last step."""
        start = self.given[self.attr.consts + k]
        if k in self.parts.constant:
            return start
        return last[k] if k not in self.parts.sums else self._sum(self.parts.sums[k], k, start)

    def _sum(self, s: Sum, k: int, start: int) -> int:
        n = self.body.nodes[s.node]
        assert isinstance(n.attr, Generic)
        state = self.parts.state[k]
        if s.added is None:
            g = _times(n.attr, self.attr.length) if s.combine == "add" else n.attr
            return self.b.add(n.op, (start,), g)
        total = self._total(s, s.added)
        return self.b.add(n.op, tuple(start if o == state else total for o in n.operands), n.attr)

    def _total(self, s: Sum, added: int) -> int:
        """Sum over all steps of what is added."""
        x = self.new[added]
        if added in self.parts.fixed:
            return x if s.combine != "add" else self._multiplied(x)
        alone, inner = self.body.uses[added] == 1, self.body.nodes[added]
        if alone and isinstance(inner.attr, Transpose | Reshape) and inner.operands[0] in self.new:
            return self.b.add(inner.op, (self._total(s, inner.operands[0]),), inner.attr)
        n = self.b.nodes[x]
        g = n.attr
        if alone and isinstance(g, Generic) and g.combine == s.combine and not g.tile:
            return self.b.add("generic", n.operands, _summed(g))
        t = self.b.type(x)
        rank = len(t.shape) - 1
        m = (dim(rank), *(dim(d) for d in range(rank)))
        y = Yield(arg(0), t.dtype, s.combine)
        sizes = (*t.shape[1:], t.shape[0])
        return generic_node(self.b, sizes, range(rank), [(x, m)], [y], precision=NONE)

    def _multiplied(self, x: int) -> int:
        t = self.b.type(x)
        body = call("mul", arg(0), const(_wrapped(self.attr.length, t.dtype)))
        loops = range(len(t.shape))
        reads = [(x, tuple(dim(d) for d in loops))]
        return generic_node(self.b, t.shape, loops, reads, [Yield(body, t.dtype)], precision=NONE)


def _summed(g: Generic) -> Generic:
    """A generic over a stack, summed over the stack too."""
    return canonical_generic(
        g.sizes, range(1, g.rank), g.maps, g.shapes, g.yields, (), g.dtypes, precision=g.precision
    )


def _times(g: Generic, count: int) -> Generic:
    """A generic that adds a literal, so often at once."""
    (y,) = g.yields
    args = [
        const(_wrapped(a.value * count, y.dtype)) if a.fn == "const" else a for a in y.body.args
    ]
    return replace(g, yields=(replace(y, body=rebuilt(y.body, args)),))


def _wrapped(value: float, dtype: str) -> int | float:
    """A number as its type holds it: integers wrap."""
    if is_float(dtype):
        return float(value)
    bits = TensorType(dtype, ()).nbytes * 8
    low = int(value) & ((1 << bits) - 1)
    return low - (1 << bits) if dtype.startswith("i") and low >> (bits - 1) else low


# ---- while loops ---------------------------------------------------------------------------------
@dataclass
class _While:
    """A while loop with what is the same in every step in front of it."""

    attr: Control

    def forms(self) -> list[Program]:
        attr = self.attr
        last = attr.programs[1]
        state = range(attr.consts, attr.consts + attr.carries)
        changing = [k for k in state if last.results[k - attr.consts] != last.inputs[k]]
        ahead = [fixed_ahead(p, [p.inputs[k] for k in changing]) for p in attr.programs]
        if not any(ahead):
            return []
        b = Builder("loop")
        given = _operands(b, attr)
        written = [self._written(b, given, *p) for p in zip(attr.programs, ahead, strict=True)]
        read = list(dict.fromkeys(x for w in written for x in w.values()))
        bodies = tuple(
            self._body(b, p, w, read) for p, w in zip(attr.programs, written, strict=True)
        )
        loop = replace(attr, programs=bodies, consts=attr.consts + len(read))
        operands = (*given[: attr.consts], *read, *given[attr.consts :])
        return [b.build(_results(b, b.add(WHILE, operands, loop), loop))]

    def _written(
        self, b: Builder, given: Sequence[int], p: Program, ahead: set[int]
    ) -> dict[int, int]:
        """Compute these nodes of a body outside; those that are read inside, by their node."""
        new = dict(zip(p.inputs, given, strict=True))
        for i in sorted(ahead | depending(p, ahead)):
            n = p.nodes[i]
            if i not in new:
                new[i] = b.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        left = [n for i, n in enumerate(p.nodes) if i not in ahead]
        read = {o for n in left for o in n.operands} | {*p.results}
        return {i: new[i] for i in sorted(ahead & read)}

    def _body(self, b: Builder, p: Program, written: dict[int, int], read: list[int]) -> Program:
        inner = _Inner(p)
        inputs = p.inputs
        for i in inputs[: self.attr.consts]:
            inner.input(i, inner.name(i), p.nodes[i].type)
        first = len(inner.b.nodes)
        leaves = [inner.b.append("input", (), Leaf(f"ahead{x}", b.type(x), index=first + j))
                for j, x in enumerate(read)]  # fmt: skip
        for j, i in enumerate(inputs[self.attr.consts :], first + len(read)):
            leaf = Leaf(inner.name(i), p.nodes[i].type, index=j)
            inner.new[i] = inner.b.append("input", (), leaf)
        inner.new |= {i: leaves[read.index(x)] for i, x in written.items()}
        return inner.write(p.results)
