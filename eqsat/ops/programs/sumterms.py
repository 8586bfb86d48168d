"""The terms that an elementwise op adds up, those of ops that it alone reads among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Generic
from eqsat.model.program import Node, Program
from eqsat.ops.generics.canonical import Operand, compose_maps


@dataclass(frozen=True)
class SumTerm:
    """What is added: a body over values that are read by the loops of the op that adds."""

    body: Expr
    reads: tuple[Operand, ...]


@dataclass(frozen=True)
class SumOfTerms:
    """A part of a body that adds up terms."""

    whole: Expr
    terms: tuple[SumTerm, ...]
    absorbed: frozenset[int]  # ops whose terms are among these


def sums_of(program: Program, n: Node) -> Iterator[SumOfTerms]:
    """The sums in the body of an elementwise op, the largest of each; of one value each."""
    g = n.attr
    if not isinstance(g, Generic) or g.tile or len(g.yields) != 1 or not g.is_elementwise:
        return
    added = {a for e in g.body.walk() if e.fn == "add" for a in e.args}
    for e in g.body.walk():
        if e.fn == "add" and e not in added:
            absorbed: set[int] = set()
            terms = tuple(_terms(program, n, e, absorbed))
            yield SumOfTerms(e, terms, frozenset(absorbed))


def _terms(program: Program, n: Node, e: Expr, absorbed: set[int]) -> Iterator[SumTerm]:
    g = n.attr
    assert isinstance(g, Generic)
    waiting = [e]
    while waiting:
        part = waiting.pop(0)
        if part.fn == "add":
            waiting[:0] = part.args
            continue
        used = part.operands()
        reads = tuple((n.operands[j], g.maps[j]) for j in used)
        body = part.substitute({j: arg(k) for k, j in enumerate(used)})
        inner = program.nodes[reads[0][0]] if body == arg(0) else None
        if inner is not None and _is_own(program, n, reads[0], inner):
            absorbed.add(reads[0][0])
            for t in _terms(program, inner, _body(inner), absorbed):
                yield SumTerm(t.body, tuple((o, compose_maps(m, reads[0][1])) for o, m in t.reads))
        else:
            yield SumTerm(body, reads)


def _body(n: Node) -> Expr:
    assert isinstance(n.attr, Generic)
    return n.attr.body


def _is_own(program: Program, n: Node, read: Operand, inner: Node) -> bool:
    """Whether a value is elementwise, of the same type, and read by this op alone, in order."""
    g, h = n.attr, inner.attr
    if not isinstance(g, Generic) or not isinstance(h, Generic) or h.tile or len(h.yields) != 1:
        return False
    is_alike = h.is_elementwise and bool(h.maps) and h.yields[0].dtype == g.yields[0].dtype
    in_order = [e.dim for e in read[1]] == list(range(g.rank))
    return is_alike and in_order and h.sizes == g.sizes and program.uses[read[0]] == 1
