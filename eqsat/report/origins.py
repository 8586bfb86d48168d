"""Where a chosen node came from: rule chains, names of classes, logical values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.attr import loop_order_text
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.ops import CONVERSIONS, VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.selection import Selection
from eqsat.model.sets import union_find
from eqsat.ops.contractions.roles import kind


@dataclass(frozen=True)
class RuleStep:
    """One rule of a chain: its name, place and doc line, and the e-node it made."""

    rule: str
    at: str
    doc: str
    node: int


def rule_chain(egraph: EGraph, node: int) -> tuple[RuleStep, ...]:
    """Rules that led to this e-node, the last one first; empty if it stood in the input.

    Follows `ENode.source`, the outermost node each rule matched.
    """
    steps: list[RuleStep] = []
    seen: set[int] = set()
    while node >= 0 and node not in seen and egraph.nodes[node].rule >= 0:
        seen.add(node)
        stat = egraph.rules[egraph.nodes[node].rule]
        steps.append(RuleStep(stat.name, stat.at, stat.doc, node))
        node = egraph.nodes[node].source
    return tuple(steps)


def chosen_nodes(selection: Selection) -> tuple[int, ...]:
    """Every e-node of the answer once, ahead-of-time nodes first."""
    members = (m for g in selection.groups for m in g.members)
    return tuple(dict.fromkeys([*selection.ahead, *members]))


def rules_in_result(egraph: EGraph, selection: Selection) -> Counter[str]:
    """How many chosen e-nodes each rule led to, as the last or an earlier step of their chain."""
    count: Counter[str] = Counter()
    for node in chosen_nodes(selection):
        count.update({s.rule for s in rule_chain(egraph, node)})
    return count


@dataclass(frozen=True)
class Names:
    """Names of the classes of an e-graph; the searched program prints its values so."""

    egraph: EGraph
    program: Program

    @cached_property
    def values(self) -> dict[int, str]:
        """Class → name, for classes that are values of the program."""
        return {c: self.value_name(i) for i, c in reversed([*enumerate(self.egraph.values)])}

    @cached_property
    def logical(self) -> tuple[int, ...]:
        """Per class, the smallest class that holds the same data in another layout or shape."""
        return self._joined(CONVERSIONS | VIEWS - {"result"})

    @cached_property
    def buffer(self) -> tuple[int, ...]:
        """Per class, the smallest class that holds the same bytes in another shape."""
        return self._joined(frozenset({"reshape"}))

    def _joined(self, ops: frozenset[str]) -> tuple[int, ...]:
        nodes = (n for n in self.egraph.nodes if n.op in ops and len(n.children) == 1)
        return union_find(len(self.egraph.types), ((n.eclass, n.children[0]) for n in nodes))

    @cached_property
    def groups(self) -> dict[int, str]:
        """Logical value → the name of its first value in the program."""
        names: dict[int, str] = {}
        for i, c in enumerate(self.egraph.values):
            names.setdefault(self.logical[c], self.value_name(i))
        return names

    def value_name(self, i: int) -> str:
        """The name of value i in the program's text: a leaf's name, else `%h.matmul`."""
        return self.program.value_name(i)

    def type_of(self, c: int) -> str:
        return ", ".join(map(str, self.egraph.types[c]))

    def logical_name(self, c: int) -> str:
        """The name of the data of class c, in whatever layout."""
        return self.groups.get(self.logical[c]) or self.of(self.logical[c])

    def of(self, c: int) -> str:
        """`%h`, or `%h@16x16` for another layout of it; as the schedule names what it computes."""
        return self.values.get(c) or f"%{self.egraph.class_names[c]}"

    def node_text(self, node: ENode) -> str:
        """The e-node as a short term: names for operands, a word for generics."""
        if isinstance(node.attr, Leaf):
            return node.attr.name
        operands = ", ".join(map(self.of, node.children))
        if isinstance(node.attr, Generic):
            return f"{generic_word(node)}({operands})"
        attrs = node.attr.text(node.op)
        return f"{node.op}({', '.join(t for t in (operands, attrs) if t)})"


def op_word(node: ENode | Node) -> str:
    """The op as a word: what a generic computes, and the order of loops if it has one."""
    return generic_word(node) if node.op == "generic" else node.op + loop_order_text(node.attr)


def generic_word(node: ENode | Node) -> str:
    """`contraction 16x16x1`, `reduction max` or the scalar function of an elementwise op.

    Behind it, `in loop order [1, 0]`: the parallel loops as they are executed, if interchanged.
    """
    assert isinstance(node.attr, Generic)
    return _word(node) + loop_order_text(node.attr)


def _word(node: ENode | Node) -> str:
    assert isinstance(node.attr, Generic)
    what = kind(node.op, node.attr)
    if what == "contraction":
        tile = "x".join(map(str, node.attr.tile))
        return f"contraction {tile}" if tile else "contraction"
    if what == "reduction":
        return f"reduction {node.attr.combine}"
    fns = [e.fn for y in node.attr.yields for e in y.body.walk() if e.fn not in ("arg", "const")]
    names = list(dict.fromkeys(fns))
    if not names:
        return "copy"
    return "+".join(reversed(names[:3])) + ("…" if len(names) > 3 else "")
