"""Program × RuleSet → EGraph: equal blocks searched once, rules that match too often left out.

At the end layouts that are the same bytes become reshapes of each other. Rules write a conversion
that moves nothing as a reshape, but two conversions in a row may undo each other as well: NCHW
packed and packed again is NHWC. Every layout of a value is a list of digits of the place that its
elements have in one of them: conversions without padding permute digits, and reshapes cut or join
them. Equal lists are equal bytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from eqsat.model.attr import Attr, Shape
from eqsat.model.deadline import elapsed
from eqsat.model.egraph import BlockReuse, EGraph, ENode, RuleStat
from eqsat.model.equalities import Equalities
from eqsat.model.layout import Layout
from eqsat.model.limits import Limits, check_room
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.sets import union_find
from eqsat.model.target import Target
from eqsat.ops.movement.lists import inverse, undone
from eqsat.ops.programs.facts import FACTS, facts_of
from eqsat.saturate.blocks import Blocks, Short, find_blocks, first_of_equals, shorten
from eqsat.saturate.encode import too_wide
from eqsat.saturate.joins import too_many
from eqsat.saturate.rows import is_moot, variables_asked
from eqsat.saturate.search import Clock, Saturation, target_facts
from eqsat.saturate.snapshot import snapshot, tables
from eqsat.saturate.unroll import NotPeriodic, TooLarge, unroll

BORDERS = (1, 2)  # blocks searched at each end of the program, next to two in the middle


class NotComplete(NotPeriodic):
    """The search of few blocks would not end with all that the rules can reach."""


def saturate(
    program: Program,
    rules: RuleSet,
    target: Target,
    limits: Limits | None = None,
    reuse_blocks: bool = True,
    deadline: float | None = None,
    equalities: Sequence[Equalities] = (),
) -> EGraph:
    """The e-graph of everything the rules can reach from `program` under the target's vocabulary.

    A rule that matches the program itself too often, or ops with too many operands, is left out
    (`EGraph.left_out`, stop `matches`). Of many equal blocks four or six are searched, if that
    gives the same e-graph (`EGraph.blocks` says so); if there is a clock, half of the time is kept
    for the direct search.
    equalities: what else equals values of the program.
    deadline: a `elapsed` at which to stop (`time`), between steps; the e-graph holds the
    program at least. Raises EqsatError: E110 if a rule builds an ill-typed term, E408 if the
    program has more nodes than `limits` allow.
    """
    limits = (limits or Limits()).resolved(program.op_count)
    check_room(limits, len(set(first_of_equals(program))), program.name)
    begin = elapsed()
    clock = Clock.of(limits.seconds, deadline)
    assert limits.matches is not None
    facts = target_facts(target)
    rules = replace(rules, rules=tuple(r for r in rules.rules if not is_moot(r, facts)))
    asked = [name for name in FACTS if any(variables_asked(r, name) for r in rules.rules)]
    known_facts = facts_of(program, asked)
    none_hold = {name for name, held in known_facts.holds.items() if not any(held)}
    idle = {r.name for r in rules.rules if any(variables_asked(r, name) for name in none_hold)}
    rules = replace(rules, rules=tuple(r for r in rules.rules if r.name not in idle))
    wide = too_many(rules.rules, program, program.uses, limits.matches)
    wide |= too_wide(rules.rules, program)
    search = partial(Saturation, rules=rules, target=target, limits=limits, left_out=wide)
    why, blocks = "", None
    if reuse_blocks and not clock.over(len(program.nodes)):
        blocks = find_blocks(program, known_facts)
    for border in BORDERS if blocks is not None else ():
        assert blocks is not None
        short = shorten(program, blocks, border, known_facts)
        if short is None:
            break
        try:
            short_equalities = short.knows(equalities)
            run = search(
                short.program, short.facts, clock=clock.halved(), equalities=short_equalities
            )
            graph = _with_blocks(program, blocks, short, run)
        except (TooLarge, NotComplete) as e:
            why = str(e)
            break
        except NotPeriodic as e:
            why = str(e)
            continue
        return _finished(graph, target, begin)
    graph = search(program, known_facts, clock=clock, equalities=equalities).run()
    whole = None if blocks is None else BlockReuse(blocks.count, blocks.count, why)
    return _finished(replace(graph, blocks=whole), target, begin)


def _finished(graph: EGraph, target: Target, begin: float) -> EGraph:
    """With its seconds; for kernels, which read all layouts by strides, each of them but once."""
    graph = with_same_bytes(graph) if target.is_planned else graph
    return replace(graph, seconds=elapsed() - begin)


def _with_blocks(program: Program, blocks: Blocks, short: Short, run: Saturation) -> EGraph:
    """Search few of the blocks and copy the rest; NotPeriodic if that would not be the same.

    A limit on nodes counts all copies, one on matches the work that is done.
    """
    if any(t.marked for t in run.texts):  # what it does depends on when it looks
        raise NotComplete("a rule asks for `is_unpacked`")
    rounds, stop = run.search()
    if stop != run.ended:
        raise NotComplete(f"the limit of {stop} was reached")
    if run.is_cut():
        raise NotComplete("a rule reached its `max_matches`")
    full = unroll(program, blocks, short, tables(run), run.interner, run.most_nodes)
    graph = snapshot(run, program, full, rounds, stop, 0.0)
    return replace(graph, blocks=BlockReuse(blocks.count, short.block_count, ""))


SAME_BYTES = "same-bytes"
SAME_BYTES_DOC = "layouts that are the same bytes are reshapes of each other"


class LayoutDigit(NamedTuple):
    """A part of a place: `size` values, `weight` places apart in the first layout."""

    size: int
    weight: int


Digits = tuple[LayoutDigit, ...]  # the slowest first


def with_same_bytes(egraph: EGraph) -> EGraph:
    """The e-graph with a reshape from one layout to each that is the same bytes.

    As it is where rules replaced nodes: what they took out of the search would be back.
    """
    if any(n.subsumed for n in egraph.nodes):
        return egraph
    groups = _groups(egraph)
    shapes = [(n.eclass, n.children[0]) for n in egraph.nodes if n.op == "reshape"]
    buffer = union_find(len(egraph.types), shapes)
    pairs: list[tuple[int, int]] = []
    for group in groups:
        first: dict[int, int] = {}  # buffer -> its first class
        # by shapes, as numbers would lead another way in another block
        for c in sorted(group, key=lambda c: (egraph.types[c][0].shape, c)):
            first.setdefault(buffer[c], c)
        one, *others = first.values()
        pairs += [(one, c) for c in others]
    if not pairs:
        return egraph
    reached = [any(not egraph.nodes[i].extra for i in c) for c in egraph.classes]
    nodes = tuple(
        ENode(
            "reshape",
            Reshape(egraph.types[a][0].shape, egraph.types[b][0].shape),
            (a,), b, len(egraph.rules), extra=not (reached[a] and reached[b]),
        )
        for a, b in pairs
    )  # fmt: skip
    stat = RuleStat(SAME_BYTES, "", SAME_BYTES_DOC, len(nodes), len(nodes), 0.0)
    return replace(egraph, nodes=egraph.nodes + nodes, rules=(*egraph.rules, stat))


def _groups(egraph: EGraph) -> Iterator[tuple[int, ...]]:
    """Classes of the same bytes, where there are several."""
    leads: dict[int, list[tuple[str, Attr, int]]] = defaultdict(list)
    for n in egraph.nodes:
        if _permutes(n.op, n.attr):
            (a,) = n.children
            leads[a].append((n.op, n.attr, n.eclass))
            leads[n.eclass].append((*_inverse(n.op, n.attr), a))
    grouped: set[int] = set()
    for start in range(len(egraph.types)):
        if start in grouped or start not in leads:
            continue
        digits_of = {start: _plain(egraph.types[start][0].shape)}
        waiting = [start]
        while waiting:
            at = waiting.pop()
            for op, attr, to in leads[at]:
                if (
                    to not in digits_of
                    and (digits := _applied(op, attr, digits_of[at])) is not None
                ):
                    digits_of[to] = digits
                    waiting.append(to)
        grouped.update(digits_of)
        alike: dict[Digits, list[int]] = defaultdict(list)
        for c in sorted(digits_of):
            alike[_joined(digits_of[c])].append(c)
        yield from (tuple(same) for same in alike.values() if len(same) > 1)


def _permutes(op: str, attr: Attr) -> bool:
    """Whether an op only puts the elements of its operand into another order, of known sizes."""
    if op not in ("reshape", "transpose", "pack", "unpack"):
        return False
    operands, shape = attr.operand_shapes(op), attr.value_shape(op)
    assert operands is not None
    assert shape is not None
    sizes = (*operands[0], *shape)
    is_whole = not isinstance(attr, Layout) or not attr.is_padded
    return is_whole and all(type(s) is int and s > 0 for s in sizes)


def _inverse(op: str, attr: Attr) -> tuple[str, Attr]:
    if isinstance(attr, Reshape):
        return op, undone(attr)
    if isinstance(attr, Transpose):
        return op, Transpose(attr.result_shape, inverse(attr.perm))
    return "unpack" if op == "pack" else "pack", attr


def _plain(shape: Shape) -> Digits:
    """Of a layout whose elements lie in their order."""
    return (LayoutDigit(math.prod(shape), 1),)


def _applied(op: str, attr: Attr, digits: Digits) -> Digits | None:
    """The digits of a result; None if one of them would be cut where it cannot be."""
    if isinstance(attr, Transpose):
        shape, perm = attr.source, attr.perm
    elif isinstance(attr, Layout) and op == "pack":
        shape, perm = attr.blocked(attr.source)
    elif isinstance(attr, Layout):
        shape, perm = attr.packed_shape, attr.unblocked(attr.packed_shape)[0]
    else:
        return digits
    dims = _cut(digits, shape)
    return None if dims is None else tuple(d for p in perm for d in dims[p])


def _cut(digits: Digits, shape: Sequence[int]) -> list[list[LayoutDigit]] | None:
    """Per dim of this shape its digits."""
    left, dims = list(reversed(digits)), list[list[LayoutDigit]]()
    for size in shape:
        dim, wanted = list[LayoutDigit](), size
        while wanted > 1:
            d = left.pop()
            part = math.gcd(d.size, wanted)
            if part not in (d.size, wanted):
                return None
            rest = d.size // part
            dim.append(LayoutDigit(part, d.weight * rest))
            if rest > 1:
                left.append(LayoutDigit(rest, d.weight))
            wanted //= part
        dims.append(dim)
    return dims


def _joined(digits: Digits) -> Digits:
    """With digits joined that lie side by side, as they are in every other list of the same."""
    joined: list[LayoutDigit] = []
    for d in digits:
        if joined and joined[-1].weight == d.size * d.weight:
            joined[-1] = LayoutDigit(joined[-1].size * d.size, d.weight)
        elif d.size > 1:
            joined.append(d)
    return tuple(joined)
