"""A program in, the same program with one place written by other ops out: nothing is canonical.

Equal nodes stay apart, copies stay, and operands stay in the order in which they were given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from eqsat.model.affine import Map
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Reshape, Transpose, move_of
from eqsat.model.ops import LEAVES
from eqsat.model.program import Builder, Node, Program
from eqsat.model.tensor import DEFAULT, is_float
from eqsat.ops.generics.canonical import Operand, canonical_generic, identity

Edge = tuple[int, int]  # reader, place of the operand; a reader of -1 is the caller
Write = Callable[[Builder, tuple[int, ...]], int]  # an op anew, on these operands


# ---- writing a program anew ----------------------------------------------------------------------
def rewritten(program: Program, writes: dict[int, Write]) -> Program:
    """The program with some nodes written by others; equal nodes stay apart, dead ones go."""
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in enumerate(program.nodes):
        operands = tuple(new[o] for o in n.operands)
        new[i] = writes[i](b, operands) if i in writes else b.append(n.op, operands, n.attr)
    return without_dead(b.build([new[r] for r in program.results], program.symbols))


def without_dead(program: Program) -> Program:
    """Without what no result needs; unlike `prune`, equal nodes stay apart."""
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i in sorted({*program.needed, *program.inputs}):
        n = program.nodes[i]
        new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    return b.build([new[r] for r in program.results], program.symbols)


def on_edge(program: Program, edge: Edge, insert: Callable[[Builder, int], int]) -> Program:
    """The program with what `insert` makes of a value where one reader reads it."""
    reader, at = edge
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in enumerate(program.nodes):
        operands = [new[o] for o in n.operands]
        if i == reader:
            operands[at] = insert(b, operands[at])
        new[i] = b.append(n.op, tuple(operands), n.attr)
    results = [new[r] for r in program.results]
    if reader < 0:
        results[at] = insert(b, results[at])
    return b.build(results, program.symbols)


def edges(program: Program, rank: int = 1, is_computed: bool = False) -> list[Edge]:
    """Where a float of at least this rank is read; is_computed: by no input or weight."""

    def fits(o: int) -> bool:
        n = program.nodes[o]
        is_leaf = n.op in LEAVES
        return (
            len(n.types) == 1
            and is_float(n.type.dtype)
            and n.type.rank >= rank
            and min(n.type.shape, default=1) > 0
            and not (is_computed and is_leaf)
        )

    found = [(i, k) for i, n in enumerate(program.nodes) for k, o in enumerate(n.operands)
             if n.op != "result" and fits(o)]  # fmt: skip
    return found + [(-1, k) for k, r in enumerate(program.results) if fits(r)]


def generics(program: Program, wanted: Callable[[Generic], bool]) -> list[int]:
    """Nodes that are generics of one result, without a tile, of this kind."""
    return [
        i
        for i, n in enumerate(program.nodes)
        if isinstance(n.attr, Generic) and len(n.attr.yields) == 1 and not n.attr.tile
        if wanted(n.attr)
    ]  # fmt: skip


def is_elementwise(g: Generic) -> bool:
    return g.rank == len(g.sizes)


def nest(
    b: Builder,
    sizes: Sequence[int],
    result_loops: Iterable[int],
    reads: Sequence[Operand],
    made: Yield,
    precision: str = DEFAULT,
) -> int:
    """A generic as it is written: no copy is dropped, no operand merged or moved."""
    nodes = tuple(n for n, _ in reads)
    types = [b.type(n) for n in nodes]
    attr = canonical_generic(
        sizes, tuple(result_loops), [m for _, m in reads], [t.shape for t in types], [made],
        dtypes=[t.dtype for t in types], precision=precision,
    )  # fmt: skip
    return b.append("generic", nodes, attr)


def plain(b: Builder, x: int, body: Expr) -> int:
    """An elementwise op of one operand."""
    t = b.type(x)
    return nest(b, t.shape, range(t.rank), [(x, identity(t.rank))], Yield(body, t.dtype))


def transposed(b: Builder, x: int, perm: Sequence[int]) -> int:
    return b.append("transpose", (x,), Transpose(b.type(x).shape, tuple(perm)))


def reshaped(b: Builder, x: int, shape: Shape) -> int:
    return b.append("reshape", (x,), Reshape(b.type(x).shape, tuple(shape)))


def moved(b: Builder, op: str, operands: tuple[int, ...], *args: object) -> int:
    sources = tuple(b.type(o).shape for o in operands)
    return b.append(op, operands, move_of(op, sources, *args))


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=lambda i: perm[i]))


def shuffled(rng: random.Random, rank: int) -> tuple[int, ...]:
    """A permutation that moves something."""
    perm = list(range(rank))
    while perm == list(range(rank)):
        rng.shuffle(perm)
    return tuple(perm)


def operands_of(program: Program, i: int) -> tuple[Node, Generic]:
    node = program.nodes[i]
    assert isinstance(node.attr, Generic)
    return node, node.attr


def operand_places(
    p: Program, wanted: Callable[[Generic, Map], bool]
) -> list[tuple[int, int]]:  # fmt: skip
    return [
        (i, k)
        for i in generics(p, lambda g: True)
        for k, m in enumerate(operands_of(p, i)[1].maps)
        if wanted(operands_of(p, i)[1], m)
    ]


def with_operand(
    p: Program, i: int, k: int, write: Callable[[Builder, int, Map], Operand]
) -> Program:
    """The program with operand k of generic i read in another way."""
    _, g = operands_of(p, i)

    def anew(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        reads[k] = write(b, *reads[k])
        return nest(b, g.sizes, range(g.rank), reads, g.yields[0], g.precision)

    return rewritten(p, {i: anew})
