"""Unit dims dropped before the search, as IREE folds them, and reshapes that undo each other.

A batch of one makes two shapes of every value and several layouts of each, and none of them is
another program: `[1, 128, 384]` and `[128, 384]` are the same bytes. Arguments, weights and results
keep their shapes and are seen through a reshape, which is free.

Convolutions, and contractions that have no other m, n or k loop, need their unit dims. What is
computed around them, up to the next contraction or reshape, then keeps its own as well, so that no
reshape stands between ops that could be one dispatch. Programs with layouts of their own (packs,
encodings) stay as they are: their author wrote those shapes.

What is reshaped, computed and reshaped back is computed as it was; a reduction whose result stays
what it is reads what was reshaped for it. A reshape that is left, however, stays where it was
written: whether layouts pass it is for the rules to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from eqsat.model.affine import affine, dim
from eqsat.model.attr import Shape
from eqsat.model.devices import Transfer
from eqsat.model.generic import Generic
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.ops import LEAVES, TILINGS
from eqsat.model.program import Builder, Node, Program, prune, rewritten
from eqsat.model.sets import union_find
from eqsat.model.symbols import Origin
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node
from eqsat.ops.movement.collapse import RegroupedOperand, before_reshape

# ---- unit dims -----------------------------------------------------------------------------------
MOVED = frozenset({"pad", "slice", "concat"})


def drop_unit_dims(program: Program) -> Program:
    """The program on values without dims of extent 1, arguments and results aside."""
    computed = [n for n in program.nodes if n.op not in LEAVES]
    if any(n.op in TILINGS for n in computed) or not any(
        1 in t.shape for n in computed for t in n.types
    ):
        return program
    return _Squeezer(program).program()


def squeezed(shape: Shape) -> Shape:
    """The shape without its dims of extent 1."""
    return tuple(d for d in shape if d != 1)


class _Squeezer:
    """Writes every node once, in its plain or its squeezed shape, and reshapes where both meet."""

    def __init__(self, source: Program):
        self.source = source
        self.protected = _protected(source)
        self.builder = Builder(source.name)
        self.new: dict[int, int] = {}  # node of the source -> its node here, in either shape

    def program(self) -> Program:
        for i, n in self.builder.following(self.source, self.new):
            write = _WRITERS.get(n.op, _as_it_is)
            self.new[i] = write(self, i, n) if i not in self.protected else _as_it_is(self, i, n)
        results = [self._result(r) for r in self.source.results]
        return prune(self.builder.build(results, self.source.symbols))

    def _result(self, i: int) -> int:
        name = self.source.nodes[i].origin.name
        self.builder.origin = Origin(name and f"{name}.reshape")
        return self.plain(i)

    def plain(self, i: int) -> int:
        """A value of the source in its own shape."""
        node = self.source.nodes[i]
        if len(node.types) > 1:
            return self.new[i]
        if isinstance(node.attr, Fill):
            return self.builder.add("fill", (), node.attr)
        return self.shaped(self.new[i], node.type.shape)

    def small(self, i: int) -> int:
        """A value of the source without unit dims."""
        return self.shaped(self.new[i], squeezed(self.source.nodes[i].type.shape))

    def shaped(self, node: int, shape: Shape) -> int:
        source = self.builder.type(node).shape
        return (
            node
            if source == shape
            else self.builder.add("reshape", (node,), Reshape(source, shape))
        )

    def write(self, op: str, operands: Iterable[int], attr: Transpose | Move | Fill) -> int:
        return self.builder.add(op, tuple(operands), attr)


def _as_it_is(s: _Squeezer, i: int, n: Node) -> int:
    return s.builder.add(n.op, tuple(s.plain(o) for o in n.operands), n.attr)


def _generic(s: _Squeezer, i: int, n: Node) -> int:
    g = n.attr
    assert isinstance(g, Generic)
    left = _loops_left(g)
    new = {d: dim(at) for at, d in enumerate(left)}
    outer = [new.get(d, affine([])) for d in range(len(g.sizes))]
    reads: list[Operand] = []
    for o, m, shape in zip(n.operands, g.maps, g.shapes, strict=True):
        inner = tuple(e for e, size in zip(m, shape, strict=True) if size != 1)
        reads.append((s.small(o), compose_maps(inner, outer)))
    rank = sum(d < g.rank for d in left)
    sizes = [g.sizes[d] for d in left]
    return generic_node(s.builder, sizes, range(rank), reads, g.yields, precision=g.precision)


def _loops_left(g: Generic) -> list[int]:
    """Loops that are needed: one reduction at least, or the generic would be none any more."""
    reductions = [d for d in g.reductions if g.sizes[d] != 1] or list(g.reductions[:1])
    return [d for d in range(g.rank) if g.sizes[d] != 1] + reductions


def _transpose(s: _Squeezer, i: int, n: Node) -> int:
    t = n.attr
    assert isinstance(t, Transpose)
    left = [d for d, size in enumerate(t.source) if size != 1]
    perm = tuple(left.index(p) for p in t.perm if p in left)
    source = s.small(n.operands[0])
    if perm == tuple(range(len(perm))):
        return source
    return s.write("transpose", (source,), Transpose(squeezed(t.source), perm))


def _reshape(s: _Squeezer, i: int, n: Node) -> int:
    """One reshape of whatever shape the operand has."""
    return s.shaped(s.new[n.operands[0]], squeezed(n.type.shape))


def _fill(s: _Squeezer, i: int, n: Node) -> int:
    assert isinstance(n.attr, Fill)
    t = n.attr.type
    return s.write("fill", (), replace(n.attr, type=t.with_shape(squeezed(t.shape))))


def _move(s: _Squeezer, i: int, n: Node) -> int:
    """Without the dims that are 1 before and after; a dim that is cut down to 1 goes next."""
    move = n.attr
    assert isinstance(move, Move)
    shapes = (*move.sources, move.shape)
    left = [d for d in range(len(move.shape)) if any(shape[d] != 1 for shape in shapes)]
    sources = tuple(tuple(shape[d] for d in left) for shape in move.sources)
    if move.op == "concat":
        args = (left.index(move.args[0]),)
    else:
        args = tuple(tuple(a[d] for d in left) if isinstance(a, tuple) else a for a in move.args)
    shape = tuple(move.shape[d] for d in left)
    nodes = [s.shaped(s.new[o], source) for o, source in zip(n.operands, sources, strict=True)]
    moved = s.write(move.op, nodes, Move(move.op, sources, args, shape))
    return s.shaped(moved, squeezed(shape))


def _transfer(s: _Squeezer, i: int, n: Node) -> int:
    assert isinstance(n.attr, Transfer)
    attr = replace(n.attr, source=squeezed(n.attr.source))
    return s.builder.add("transfer", (s.small(n.operands[0]),), attr)


_WRITERS: dict[str, Callable[[_Squeezer, int, Node], int]] = {
    "generic": _generic,
    "transpose": _transpose,
    "reshape": _reshape,
    "fill": _fill,
    "transfer": _transfer,
    **dict.fromkeys(sorted(MOVED), _move),
}


# ---- what keeps its unit dims --------------------------------------------------------------------
def _protected(program: Program) -> frozenset[int]:
    """Nodes that stay as they are: those that need it, and what is linked to them."""
    root = union_find(len(program.nodes), _links(program))
    needing = {root[j] for j in _needing(program)}
    return frozenset(i for i in range(len(program.nodes)) if root[i] in needing)


def _needing(program: Program) -> Iterator[int]:
    """Generics that cannot lose their unit dims, and what they read."""
    for i, n in enumerate(program.nodes):
        if isinstance(n.attr, Generic) and _needs_units(n.attr):
            yield i
            yield from (o for o in n.operands if program.nodes[o].op not in LEAVES)


def _needs_units(g: Generic) -> bool:
    if len(g.yields) > 1 or g.tile or any(e.terms and e.dim is None for m in g.maps for e in m):
        return True
    roles = contraction_roles(g)
    if roles is None:
        return False
    return any(d and all(g.sizes[x] == 1 for x in d) for d in (roles.m, roles.n, roles.k))


def _links(program: Program) -> Iterator[tuple[int, int]]:
    """Values that one op other than a contraction or a reshape leads to one another."""
    for i, n in enumerate(program.nodes):
        g = n.attr
        is_pointwise = isinstance(g, Generic) and contraction_roles(g) is None
        if is_pointwise or isinstance(g, Transpose) or n.op in MOVED:
            yield from ((i, o) for o in n.operands if program.nodes[o].op not in LEAVES)


# ---- reshapes that undo each other ---------------------------------------------------------------
def through_views(program: Program) -> Program:
    """The program without reshapes that are undone behind the next op."""
    if not any(n.op == "reshape" for n in program.nodes):
        return program
    wanted = _wanted(program)
    return rewritten(program, lambda b, i, n, operands: _between(b, n, operands, wanted[i]))


def _wanted(program: Program) -> dict[int, set[Shape]]:
    """The shapes that every value is read in; () stands for its own."""
    shapes: dict[int, set[Shape]] = defaultdict(set)
    for n in program.nodes:
        for o in n.operands:
            shapes[o].add(n.type.shape if n.op == "reshape" else ())
    for r in program.results:
        shapes[r].add(())
    return shapes


def _between(b: Builder, n: Node, operands: tuple[int, ...], wanted: set[Shape]) -> int | None:
    """The op over the loops of what one of its operands is a reshape of, if no reshape is added."""
    g = n.attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or contraction_roles(g) is not None:
        return None
    for i, o in enumerate(operands):
        groups = b.nodes[o].attr
        regrouped = before_reshape(g, i, groups) if isinstance(groups, Reshape) else None
        if regrouped is None or not (
            regrouped.result is None or wanted == {regrouped.sig.result_shape}
        ):
            continue
        reads = _read_before(b, operands, i, regrouped)
        if reads is not None:
            y = b.add("generic", reads, regrouped.sig)
            return y if regrouped.result is None else b.add("reshape", (y,), regrouped.result)
    return None


def _read_before(
    b: Builder, operands: tuple[int, ...], i: int, regrouped: RegroupedOperand
) -> tuple[int, ...] | None:
    """New operands of the op: values of which its operands are reshapes, or operands."""
    reads: list[int] = []
    for x, groups in zip(operands, (*regrouped.before, None, *regrouped.after), strict=True):
        if groups is None and len(reads) != i:
            reads.append(x)
            continue
        shape = regrouped.sig.shapes[len(reads)]
        (below,) = b.nodes[x].operands if b.nodes[x].op == "reshape" else (x,)
        if b.type(below).shape != shape:
            return None
        reads.append(below)
    return tuple(reads)
