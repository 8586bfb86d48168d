"""Goals that are sums over the chosen dispatches: eqsat's own, and those that plug-ins bring."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from eqsat.model.attr import loop_order
from eqsat.model.control import Control
from eqsat.model.diag import EqsatError, fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.goal import Goal
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS, permutes
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.plugins import brought_by, load_plugin, plugged_in

# among answers that are equal by every goal, the one that converts least: conversions inside of
# dispatches cost nothing in the model, but nobody wants them without a reason
TIE_BREAK = "ties"
OTHERS = ("memory", "resident", "load_peak")  # goals that are no sums


class Time:
    """Picoseconds, one dispatch after another."""

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        return group.time_ps

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        return sum(g.time_ps for g in selection.groups)


class Dispatches:
    """How many kernels there are; of a loop or branch those of its bodies, once each."""

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        return kernels(egraph, group.members)

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        return sum(kernels(egraph, g.members) for g in selection.groups)


def kernels(egraph: EGraph, members: Iterable[int]) -> int:
    """Dispatches that a group stands for: 1, or those of the loop or branch that it is."""
    attrs = (egraph.nodes[m].attr for m in members)
    return next((a.kernels for a in attrs if isinstance(a, Control)), 1)


class RelayoutBytes:
    """Bytes of data that run-time conversions move, inside of other dispatches or not."""

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        return sum(moved_bytes(egraph, m) for m in group.members)

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        return sum(self.build(egraph, target, g) for g in selection.groups)


class Permutes:
    """Transposes, packs and unpacks of a run that change the order of elements."""

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        return sum(_permutes(egraph.nodes[m]) for m in group.members)

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        return sum(self.build(egraph, target, g) for g in selection.groups)


def _permutes(node: ENode) -> int:
    if isinstance(node.attr, Control) and node.attr.schedules:
        return node.attr.total([s.permutes for s in node.attr.schedules])
    return permutes(node.op, node.attr)


def moved_bytes(egraph: EGraph, node: int) -> int:
    """The data a conversion moves, without padding; 0 for every other node."""
    n = egraph.nodes[node]
    if isinstance(n.attr, Control) and n.attr.schedules:
        return n.attr.total([s.relayout_bytes for s in n.attr.schedules])
    if n.op not in CONVERSIONS:
        return 0
    return min(egraph.types[c][0].nbytes for c in (n.eclass, *n.children))


REWRITTEN = 64  # ops that a contraction weighs which is not as it is written


def tie(egraph: EGraph, target: Target, i: int, moved: int) -> int:
    """The tie-break of a node that moves so many bytes."""
    node = egraph.nodes[i]
    is_op = node.op not in LEAVES and node.op not in VIEWS
    ops, views = is_op + bool(loop_order(node.attr)), node.op in VIEWS
    ops += REWRITTEN * _is_rewritten(egraph, target, node)
    # one byte moved weighs as much as 4,096 ops, and an op as much as four views
    return (moved << 14) + (ops << 2) + views


def _is_rewritten(egraph: EGraph, target: Target, node: ENode) -> bool:
    """Whether this is an unpacked contraction in another order than those of the input program.

    Its loops are interchanged, or it computes its result transposed.
    """
    g = node.attr
    if node.rule < 0 or not isinstance(g, Generic) or g.tile or not g.reductions:
        return False
    is_other = bool(g.order) or node.eclass not in egraph.reduced
    keeps = target.fusion.contraction_order == "written"
    return keeps and is_other and contraction_roles(g) is not None


class Ties:
    """Bytes that conversions move, then how many ops there are, then views: none is there in vain.

    An op whose loops are interchanged counts twice, so that none is without a reason. A contraction
    that is rewritten counts as many, so another op is interchanged where that does as well.
    """

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        return sum(tie(egraph, target, m, moved_bytes(egraph, m)) for m in group.members)

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        return sum(self.build(egraph, target, g) for g in selection.groups)


# in the order in which they decide between dispatches that are alike
OWN: dict[str, Goal] = {"time": Time(), TIE_BREAK: Ties(), "dispatches": Dispatches()}
ASKED: dict[str, Goal] = {
    "relayout": RelayoutBytes(),
    "permutes": Permutes(),
}  # only if somebody asks for them


def linear_goals(names: Iterable[str]) -> dict[str, Goal]:
    """eqsat's own goals, and those among `names` that are asked for or plugged in.

    EqsatError E600 if a plug-in cannot be used.
    """
    plug_ins = plugged_in("goals")
    taken = [n for n in plug_ins if n in (*OWN, *ASKED, *OTHERS)]
    if taken:
        what = f"eqsat has a goal `{taken[0]}` of its own"
        raise fail("E600", f"{brought_by('goals', taken[0])} cannot be used: {what}")
    more = [n for n in names if n not in OWN]
    return OWN | {n: ASKED.get(n) or _plugged(n) for n in more if n in ASKED or n in plug_ins}


def _plugged(name: str) -> Goal:
    plug_in = load_plugin("goals", name)
    goal = plug_in() if isinstance(plug_in, type) else plug_in
    missing = [part for part in ("build", "value") if not callable(getattr(goal, part, None))]
    if missing:
        what = f"it has no method `{missing[0]}`"
        raise fail("E600", f"{brought_by('goals', name)} cannot be used: {what}")
    return goal


def added(name: str, goal: Goal, egraph: EGraph, target: Target, group: Group) -> int:
    """A dispatch's share of a goal; E602 (exit code 4) if a plug-in says nonsense."""
    return _asked(name, "build", lambda: goal.build(egraph, target, group))


def value_stated(
    name: str, goal: Goal, egraph: EGraph, target: Target, selection: Selection
) -> int:
    """A goal's value by its second statement; E602 (exit code 4) if a plug-in says nonsense."""
    return _asked(name, "value", lambda: goal.value(egraph, target, selection))


def _asked(name: str, part: str, ask: Callable[[], Any]) -> int:
    if name in OWN or name in ASKED:
        return ask()
    try:
        number = ask()
    except Exception as error:
        raise broken(name, f"`{part}` fails: {type(error).__name__}: {error}") from error
    # sums of larger numbers are too much for the solver
    if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number < 2**50:
        raise broken(name, f"`{part}` gives {number!r}, not a whole number from 0 to 2^50")
    return operator.index(number)


def broken(name: str, what: str) -> EqsatError:
    """The error for a goal that does not do what it promises."""
    return fail("E602", f"{brought_by('goals', name)} breaks its word: {what}", exit_code=4)
