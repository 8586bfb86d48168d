"""Permissions of the spread rules of a rule set: cuts of ops, spreads of values, collectives.

Each is asked about one axis at a time. A thing is permitted if the conditions of one rule hold for
it; the first such rule, in the order of the set, is the one that is named. What one axis may cut
together shares its origins: the columns of a weight are the features behind it, the first dim of an
argument is the batch of all that is computed from it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from eqsat.model.attr import Attr
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Fill
from eqsat.model.mesh import PARTIAL, REPLICATED, Axis, Mesh
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Program
from eqsat.model.rules import AttrExpr, Compare, Field, Name, Not, SpreadRule, Value
from eqsat.ops.mesh.cuts import OpCut, cuts_of, loop_of

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
            for cut in cuts_of(n.op, n.attr, shapes, devices):
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
