"""Strategies of an op on a mesh, and the spread rules that permit them.

Each axis cuts one thing, or computes the same everywhere. A device runs the same op over the blocks
that it holds. An axis that cuts a parallel loop leaves operands without this loop whole on every
device. Where it cuts their summed loop instead, each device holds a block of it; the op gathers a
panel of every block, multiplies, and adds up (SUMMA). What is sent is what a gather of the whole
operand sends, but a device holds one panel of it at a time (van de Geijn and Watts, 1997). An axis
that cuts the summed loop besides leaves a part of the panels to each of its layers (Solomonik and
Demmel, 2011).

Permissions are asked about one axis at a time. A thing is permitted if the conditions of one rule
hold for it; the first such rule, in the order of the set, is the one that is named. What one axis
may cut together shares its origins: the columns of a weight are the features behind it, the first
dim of an argument is the batch of all that is computed from it.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from eqsat.model.attr import Attr, Shape
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Fill
from eqsat.model.mesh import PARTIAL, REPLICATED, Axis, Mesh, Spread
from eqsat.model.movement import Move, Reshape, Transpose, move_of
from eqsat.model.program import Program
from eqsat.model.rules import AttrExpr, Compare, Field, Name, Not, SpreadRule, Value
from eqsat.ops.mesh.cuts import OpCut, cuts_of, loop_of, stream_of
from eqsat.ops.mesh.gathers import batch_dims

# ---- origins of dims -----------------------------------------------------------------------------
WEIGHT = "weight"
Origin = frozenset[int | str]  # dims of arguments, and WEIGHT
Origins = dict[int, tuple[Origin, ...]]  # node → one per dim
NOWHERE: Origin = frozenset()


def origins(program: Program, ops: Sequence[int], leaves: Collection[int], mesh: Mesh) -> Origins:
    """Of leaves and of computed values, in program order."""
    origins: Origins = {}
    for v in leaves:
        rank = len(program.nodes[v].types[0].shape)
        is_input = program.nodes[v].op == "input"
        origins[v] = tuple(frozenset([d if is_input else WEIGHT]) for d in range(rank))
    for m in ops:
        n = program.nodes[m]
        by_dim: list[Origin] = [NOWHERE] * len(n.types[0].shape)
        shapes = tuple(program.nodes[o].types[0].shape for o in n.operands)
        for devices in sorted(set(mesh.sizes)):
            for cut in cuts_of(n.op, n.attr, shapes, devices, batch_dims(program, m)):
                if isinstance(cut.result, int) and cut.result < len(by_dim):
                    by_dim[cut.result] |= origin_of(cut, n.operands, origins)
        origins[m] = tuple(by_dim)
    return origins


def origin_of(
    cut: OpCut, operands: Sequence[int], origins: Mapping[int, tuple[Origin, ...]]
) -> Origin:
    """Of what a cut divides: that of every dim of an operand that it cuts."""
    origin = NOWHERE
    for i, (kind, o) in enumerate(zip(cut.operands, operands, strict=True)):
        if isinstance(kind, int) and o in origins and i not in cut.streams:
            origin |= origins[o][kind]
    return origin


def origin_facts(origin: Origin) -> dict[str, int | bool]:
    """As conditions of rules name them."""
    dims = [d for d in origin if isinstance(d, int)]
    return {
        "argument_dim": min(dims, default=-1),
        "of_argument": bool(dims),
        "of_weight": WEIGHT in origin,
    }


# ---- permissions ---------------------------------------------------------------------------------
Facts = dict[str, Any]  # of one variable of a condition, by field
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


class Permits:
    """The spread rules of one request; it counts how often each one was the first to permit."""

    def __init__(self, rules: Sequence[SpreadRule]):
        self.rules = tuple(rules)
        self.admitted: Counter[str] = Counter()

    def cut(self, axis: Axis, facts: Facts, form: str) -> str | None:
        """The rule by which an axis may do this to an op; None if there is none."""
        return self._first("cut", form, {"axis": axis_facts(axis), "cut": facts})

    def keep(self, axis: Axis, value: Facts, kind: int | str, origin: Origin) -> str | None:
        """The rule by which a value may be held so along an axis; kind: an entry of a spread."""
        form = "blocks" if isinstance(kind, int) else "parts" if kind in PARTIAL else "whole"
        asked = {"axis": axis_facts(axis), "value": value, "block": block_facts(kind, origin)}
        return self._first("keep", form, asked)

    def convert(self, axis: Axis, value: Facts, collective: str) -> str | None:
        """The rule by which a value may be converted so along an axis."""
        return self._first("convert", collective, {"axis": axis_facts(axis), "value": value})

    def _first(self, verb: str, what: str, facts: Mapping[str, Facts]) -> str | None:
        for rule in self.rules:
            if (
                rule.verb == verb
                and rule.what == what
                and all(_value(c, facts) for c in rule.where)
            ):
                self.admitted[rule.name] += 1
                return rule.name
        return None


def _value(e: AttrExpr, facts: Mapping[str, Facts]) -> Any:
    match e:
        case Value(value=value):
            return value
        case Field(base=Name(name=name), name=field):
            return facts[name][field]
        case Not(inner=inner):
            return not _value(inner, facts)
        case Compare(op=op, left=left, right=right):
            return _COMPARE[op](_value(left, facts), _value(right, facts))
    raise AssertionError(f"{e} is in no condition of a spread rule")


# ---- facts ---------------------------------------------------------------------------------------
def axis_facts(axis: Axis) -> Facts:
    return {"name": axis.name, "devices": axis.devices}


def cut_facts(op: str, attr: Attr, cut: OpCut | None, origin: Origin) -> Facts:
    """Facts of a cut; cut: None for nothing."""
    role = "" if cut is None else loop_role(attr, cut)
    return {"op": op, "kind": _kind(attr), "role": role} | origin_facts(origin)


@lru_cache(maxsize=5_000)
def _kind(attr: Attr) -> str:
    if isinstance(attr, Generic):
        if attr.has_precision:
            return "contraction"
        return "reduction" if any(y.combine for y in attr.yields) else "elementwise"
    if isinstance(attr, Transpose | Reshape | Move):
        return "movement"
    return "fill" if isinstance(attr, Fill) else "result" if isinstance(attr, Result) else "other"


def loop_role(attr: Attr, cut: OpCut) -> str:
    """`m`, `n`, `k` or `batch` of a loop of a contraction, "" of anything else."""
    if not isinstance(attr, Generic) or not attr.has_precision or loop_of(cut.name) is None:
        return ""
    lhs, rhs = (cut.operands[i] != REPLICATED and i not in cut.streams for i in (0, 1))
    if not isinstance(cut.result, int):
        return "k"
    return "batch" if lhs and rhs else "m" if lhs else "n"


def block_facts(kind: int | str, origin: Origin) -> Facts:
    """kind: an entry of a spread; dim -1 where nothing is cut."""
    return {"dim": kind if isinstance(kind, int) else -1} | origin_facts(origin)


def value_facts(role: str, name: str, shape: Sequence[int], axis: Axis) -> Facts:
    """role: argument, weight, result or activation; name: of the first three."""
    divides = any(s and s % axis.devices == 0 for s in shape)
    return {"role": role, "name": name, "rank": len(shape), "divides": divides}


# ---- operands gathered panel by panel ------------------------------------------------------------
LEAST_PANEL = 128  # elements of the summed loop: fewer leave lanes of a matrix unit idle
PANELS = (8, 4, 2)


def taken(reads: Sequence[Spread], cuts: Sequence[OpCut | None]) -> tuple[Spread, ...]:
    """Spreads an op computes on, where it reads so: streamed axes hold nothing of their own."""
    return tuple(
        tuple(
            REPLICATED if c is not None and i in c.streams else kind
            for kind, c in zip(spread, cuts, strict=True)
        )
        for i, spread in enumerate(reads)
    )


def panels_agree(cuts: Sequence[OpCut | None], mesh: Mesh) -> bool:
    """Whether all operands' panels are of the same elements of one summed loop.

    They are if every axis that divides the loop for good walks it with the same stride in each
    operand, of which the blocks that axes stream are a part.
    """
    loops = {stream_of(c.name) for c in cuts if c is not None and c.streams}
    if not loops:
        return True
    if len(loops) > 1 or any(c is not None and c.form == "parts" for c in cuts):
        return False
    (loop,) = loops
    fixed = {i for i, c in enumerate(cuts) if c is not None and c.name == f"d{loop}"}
    operands = len(next(c for c in cuts if c is not None).operands)
    strides = {tuple(_strides(o, cuts, fixed, mesh)) for o in range(operands)}
    return len(strides) == 1


def _strides(
    operand: int, cuts: Sequence[OpCut | None], fixed: set[int], mesh: Mesh
) -> list[tuple[int, int]]:
    """(axis, into how many blocks it and the axes before it divide the loop) of each fixed axis."""
    strides, blocks = [], 1
    for i, c in enumerate(cuts):
        if i in fixed or (c is not None and operand in c.streams):
            blocks *= mesh.sizes[i]
        if i in fixed:
            strides.append((i, blocks))
    return strides


def panels(g: Generic, cuts: Sequence[str], streams: Sequence[int], mesh: Mesh) -> int:
    """In how many steps the summed loop is walked. streams: per operand, blocks it is gathered of.

    As many as leave a panel LEAST_PANEL elements of every block, at most eight.
    """
    loop = next(k for name in cuts if (k := stream_of(name)) is not None)
    fixed = math.prod(n for n, name in zip(mesh.sizes, cuts, strict=True) if name == f"d{loop}")
    blocks = math.lcm(*streams)
    run = g.sizes[loop] // (fixed * blocks)
    return next((p for p in PANELS if run % p == 0 and run // p * blocks >= LEAST_PANEL), 1)


# ---- strategies ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Strategy:
    """One way to run an op: what each axis cuts (`""` for nothing), what it reads and makes.

    share: how much of the work of the whole op one device does. taken: what it computes on, where
    it gathers operands itself, in so many panels (`ops.mesh.strategies`).
    """

    cuts: tuple[str, ...]
    reads: tuple[Spread, ...]
    made: Spread
    share: float
    taken: tuple[Spread, ...]
    panels: int = 0  # 0: it gathers nothing


@lru_cache(maxsize=5_000)
def strategies(
    op: str,
    attr: Attr,
    operands: tuple[Shape, ...],
    result: Shape,
    mesh: Mesh,
    batch: tuple[int, ...] = (),
) -> tuple[Strategy, ...]:
    """Every assignment of axes to cuts whose blocks are of one size; the first one cuts nothing.

    Axes that cut the same thing divide it together, the first of them outermost. batch: as of
    `cuts_of`.
    """
    sizes = mesh.sizes
    cuts_of = known_cuts(op, attr, operands, mesh, batch)
    names = list(dict.fromkeys(c for cuts in cuts_of.values() for c in cuts))
    fitting: list[Strategy] = []
    for choice in product(["", *names], repeat=len(sizes)):
        cuts = _fitting(choice, sizes, cuts_of)
        if cuts is not None and panels_agree(cuts, mesh):
            strategy = _strategy(attr, choice, cuts, len(operands), mesh)
            if _fits(strategy, operands, result, mesh):
                fitting.append(strategy)
    return tuple(fitting)


@lru_cache(maxsize=5_000)
def known_cuts(
    op: str, attr: Attr, operands: tuple[Shape, ...], mesh: Mesh, batch: tuple[int, ...] = ()
) -> dict[int, dict[str, OpCut]]:
    """The cuts of an op by their names, for every number of blocks that axes make together."""
    return {
        n: {c.name: c for c in cuts_of(op, attr, operands, n, batch)}
        for n in sorted({math.prod(s) for s in _subsets(mesh.sizes)})
    }


def _subsets(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    masks = product((False, True), repeat=len(sizes))
    return [tuple(s for s, k in zip(sizes, which, strict=True) if k) for which in masks]


def _fitting(
    choice: Sequence[str], sizes: Sequence[int], cuts_of: dict[int, dict[str, OpCut]]
) -> list[OpCut | None] | None:
    """Per axis its cut; None if something is not cut into so many blocks."""
    total: dict[str, int] = {}
    for name, size in zip(choice, sizes, strict=True):
        total[name] = total.get(name, 1) * size
    cuts = [cuts_of[total[name]].get(name) if name else None for name in choice]
    if any(n and c is None for n, c in zip(choice, cuts, strict=True)):
        return None
    return cuts if _meet(cuts) else None


def _meet(cuts: Sequence[OpCut | None]) -> bool:
    """Whether what cuts a dim of an operand of a movement is one cut, whatever axes it takes."""
    moved = {c for c in cuts if c is not None and loop_of(c.name) is None}
    dims = [(i, k) for c in moved for i, k in enumerate(c.operands) if isinstance(k, int)]
    return len(set(dims)) == len(dims)


def _strategy(
    attr: Attr, choice: tuple[str, ...], cuts: Sequence[OpCut | None], operands: int, mesh: Mesh
) -> Strategy:
    reads = tuple(
        tuple(REPLICATED if c is None else c.operands[i] for c in cuts) for i in range(operands)
    )
    result = tuple(REPLICATED if c is None else c.result for c in cuts)
    divided = [s for s, n in zip(mesh.sizes, choice, strict=True) if n not in ("", "parts")]
    whole = taken(reads, cuts)
    steps = 0
    if whole != reads:
        assert isinstance(attr, Generic)
        steps = panels(
            attr, choice, [_gathered(a, b, mesh) for a, b in zip(reads, whole, strict=True)], mesh
        )
    return Strategy(choice, reads, result, 1 / math.prod(divided), whole, steps)


def _gathered(read: Spread, whole: Spread, mesh: Mesh) -> int:
    """Of how many blocks an operand is gathered."""
    each = zip(mesh.sizes, read, whole, strict=True)
    return math.prod(size for size, a, b in each if a != b)


def _fits(s: Strategy, operands: Sequence[Shape], result: Shape, mesh: Mesh) -> bool:
    """Whether blocks are of one size where several axes cut a dim."""
    every = [*zip(s.reads, operands, strict=True), (s.made, result)]
    return all(mesh.fits(spread, shape) for spread, shape in every)


def local_loops(g: Generic, cuts: Sequence[str], mesh: Mesh, panels: int = 1) -> Shape:
    """The extents of a nest's loops on one device, where each axis cuts one of them or none.

    panels: in how many steps the loop is walked along which operands are gathered.
    """
    sizes = list(g.sizes)
    for name, devices in zip(cuts, mesh.sizes, strict=True):
        loop = loop_of(name)
        if loop is not None:
            sizes[loop] //= devices
    streamed = {k for name in cuts if (k := stream_of(name)) is not None}
    for loop in streamed:
        sizes[loop] //= panels
    return tuple(sizes)


# ---- the op on one device ------------------------------------------------------------------------
def local_attr(
    attr: Attr,
    operands: Sequence[Shape],
    result: Shape,
    cuts: Sequence[str],
    mesh: Mesh,
    panels: int = 1,
) -> Attr:
    """The attribute for operands and a result of these shapes; cuts: per axis what it divides.

    panels: of so many it computes one.
    """
    if isinstance(attr, Generic):
        loops = local_loops(attr, cuts, mesh, panels)
        return replace(attr, sizes=loops, shapes=tuple(operands))
    if isinstance(attr, Reshape):
        return Reshape(operands[0], result)
    if isinstance(attr, Transpose):
        return replace(attr, source=operands[0])
    if isinstance(attr, Fill):
        return replace(attr, type=attr.type.with_shape(result))
    if isinstance(attr, Move):
        return _local_move(attr, operands)
    return attr


def _local_move(move: Move, operands: Sequence[Shape]) -> Move:
    """The movement on one device; a slice takes all of a dim that is cut."""
    args = move.args
    if move.op == "slice":
        start, limit, stride = args
        ends = zip(limit, move.sources[0], operands[0], strict=True)
        args = start, tuple(b if s == n else n for b, s, n in ends), stride
    return move_of(move.op, operands, *args)
