"""Program → Program: chains of elementwise ops become single generics before the search.

A producer that one op reads, over the same loops, is computed where it is read: nothing is
computed twice, no value is left in memory, and every dispatch that could be formed before can be
formed after. So the search space shrinks and its optimum stays (decision 3).

What is merged is decided first, node by node, on what each op would read; then every op that is
left is written once, with the body of all it took in. So a chain of any length costs its length.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.affine import Map, map_loops
from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Generic
from eqsat.model.limits import MOST_OPERANDS
from eqsat.model.program import Builder, Node, Program, prune
from eqsat.model.tensor import DTYPES
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import Operand, compose_maps, generic_node
from eqsat.ops.meaning.scalar import FUNCTIONS
from eqsat.ops.spelling.storedbytes import BYTES

MOST_OPERATIONS = 512  # of a merged body, which every signature that holds it carries along


def merge_elementwise(program: Program) -> Program:
    """The program with single-use elementwise producers inside their consumers."""
    while True:
        merged = _once(program)
        if merged == program:
            return merged
        program = merged  # equal operands were found: there may be room for one more


def merge_within(
    program: Program, place: Mapping[int, int], staying: Collection[int]
) -> tuple[Program, dict[int, int]]:
    """The program with elementwise ops inside readers of their own group, and the new nodes.

    place: the group of every op that may take in or be taken in. staying: ops that stay. Nothing
    that is taken in was left in memory, so casts to narrower types are, too.
    """
    groups = {i: (g, i in staying) for i, g in place.items()}
    b, new = _written(program, _decided(program, groups))
    return b.build([new[r] for r in program.results], program.symbols), new


@dataclass(frozen=True)
class _Chain:
    """A generic with what it took in: what all of it reads, over the generic's own loops.

    places: per operand of the generic, the number in `reads` of what it stands for; those of all
    that `taken[operand]` reads, if that op was taken in.
    """

    generic: Generic
    reads: tuple[Operand, ...]
    places: tuple[tuple[int, ...], ...]
    taken: dict[int, _Chain]
    operations: int
    function: str  # the outermost one

    @property
    def is_elementwise(self) -> bool:
        return self.generic.rank == len(self.generic.sizes)


def _once(program: Program) -> Program:
    b, new = _written(program, _decided(program, None))
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _written(program: Program, parts: Mapping[int, _Chain]) -> tuple[Builder, dict[int, int]]:
    """The program without merged ops, and the new nodes of its nodes."""
    inside = {id(p) for part in parts.values() for p in part.taken.values()}
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        part = parts.get(i)
        if part is None or not part.taken:
            if part is None or id(part) not in inside:
                new[i] = b.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        elif id(part) not in inside:
            g = part.generic
            reads = [(new[o], m) for o, m in part.reads]
            y = replace(g.yields[0], body=_body(part))
            new[i] = generic_node(b, g.sizes, range(g.rank), reads, [y], precision=g.precision)
    return b, new


# ---- what is merged ------------------------------------------------------------------------------
Groups = Mapping[int, tuple[int, bool]]  # of an op its group, and whether it stays


def _decided(program: Program, groups: Groups | None) -> dict[int, _Chain]:
    """Every op that may take in what it reads, with what it takes."""
    parts: dict[int, _Chain] = {}
    for i, n in enumerate(program.nodes):
        if _is_consumer(n) and (groups is None or i in groups):
            beside = parts if groups is None else _beside(n, parts, groups, groups[i][0])
            parts[i] = _part(program, n, beside, keeps_narrow=groups is None)
    return parts


def _beside(n: Node, parts: Mapping[int, _Chain], groups: Groups, group: int) -> dict[int, _Chain]:
    """The parts that an op reads, of its own group, which need not stay."""
    return {o: parts[o] for o in n.operands if o in parts and groups[o] == (group, False)}


def _is_consumer(n: Node) -> bool:
    g = n.attr
    return isinstance(g, Generic) and len(g.yields) == 1 and contraction_roles(g) is None


def _part(program: Program, n: Node, parts: Mapping[int, _Chain], *, keeps_narrow: bool) -> _Chain:
    g = n.attr
    assert isinstance(g, Generic)
    reads: list[Operand] = []
    places: list[tuple[int, ...]] = []
    taken: dict[int, _Chain] = {}
    operands, operations = MOST_OPERANDS - len(n.operands), g.body.count()
    for j, (o, m) in enumerate(zip(n.operands, g.maps, strict=True)):
        p = parts.get(o) if program.uses[o] == 1 else None
        sources: Sequence[Operand] = [(o, m)]
        fits = p is not None and _is_mergeable(p, g, m, operands, operations)
        if p is not None and fits and not (keeps_narrow and _narrows(program, p, g)):
            operands -= len(p.reads) - 1
            operations += p.operations
            taken[j] = p
            sources = [(x, compose_maps(inner, m)) for x, inner in p.reads]
        places.append(tuple(range(len(reads), len(reads) + len(sources))))
        reads += sources
    function = g.body.fn
    if function == "arg" and g.body.value in taken:
        function = taken[g.body.value].function
    distinct = _distinct_reads(g, reads, places, function)
    number = {r: k for k, r in enumerate(distinct)}
    # what is left out has no number, and nobody asks for it
    new = [number.get(r, 0) for r in reads]
    at = tuple(tuple(new[k] for k in ks) for ks in places)
    return _Chain(g, tuple(distinct), at, taken, operations, function)


def _is_mergeable(part: _Chain, g: Generic, m: Map, operands: int, operations: int) -> bool:
    """The part is elementwise over exactly the loops of g."""
    p = part.generic
    if not part.is_elementwise or not part.reads or len(part.reads) - 1 > operands:
        return False
    if part.operations + operations > MOST_OPERATIONS:
        return False
    loops = [e.dim for e in m]
    if None in loops or sorted(d for d in loops if d is not None) != list(range(len(g.sizes))):
        return False
    return tuple(g.sizes[d] for d in loops if d is not None) == p.sizes


def _narrows(program: Program, part: _Chain, reader: Generic) -> bool:
    """A cast to a narrower type stays: its result is the smaller thing to leave in memory.

    So do bytes in front of what widens them: products read these, and not what they were.
    """
    widest = max(DTYPES[program.nodes[o].type.dtype][0] for o, _ in part.reads)
    dtype = part.generic.yields[0].dtype
    whole = math.prod(part.generic.result_shape)
    if dtype in BYTES and any(program.nodes[o].type.size >= whole for o, _ in part.reads):
        widest = max(widest, DTYPES[reader.yields[0].dtype][0])
    return DTYPES[dtype][0] < widest


def _distinct_reads(
    g: Generic, reads: list[Operand], places: list[tuple[int, ...]], function: str
) -> list[Operand]:
    """Operands in the order `generic_node` would give them: each once, what no body reads left
    out, and the two sides of a commutative function by their maps."""
    used = g.body.operands()
    if len(used) < len(places):
        read = {k for j in used for k in places[j]}
        reads = [r for k, r in enumerate(reads) if k in read]
    distinct = list(dict.fromkeys(reads))
    called = FUNCTIONS.get(function)
    if len(distinct) == 2 and called is not None and called.commutative:
        (a, m), (b, n) = distinct
        (p, q), (r, s) = _order(m), _order(n)
        if (r, p, s, q, b, a) < (p, r, q, s, a, b):
            return distinct[::-1]
    return distinct


@lru_cache(maxsize=10_000)
def _order(m: Map) -> tuple[tuple[int, ...], tuple[object, ...]]:
    """Sort key of an operand read like this."""
    return tuple(sorted(map_loops(m))), tuple((e.terms, e.constant) for e in m)


# ---- the body of an op and all it took in --------------------------------------------------------
def _body(whole: _Chain) -> Expr:
    """The body over `whole.reads`: every generic's own body is walked once."""
    numbers = {id(whole): tuple(range(len(whole.reads)))}  # of what each part reads
    order = [whole]
    for part in order:
        for j, p in part.taken.items():
            numbers[id(p)] = tuple(numbers[id(part)][k] for k in part.places[j])
            order.append(p)
    bodies: dict[int, Expr] = {}
    for part in reversed(order):
        at = numbers[id(part)]
        operands = {
            j: bodies[id(part.taken[j])] if j in part.taken else arg(at[part.places[j][0]])
            for j in part.generic.body.operands()
        }
        bodies[id(part)] = part.generic.body.substitute(operands)
    return bodies[id(whole)]
