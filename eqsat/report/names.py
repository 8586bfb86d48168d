"""Names of a finished run: of e-classes and rule chains, and the object that a question names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.attr import loop_order_text
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.egraph import AGAIN, EGraph, ENode
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch
from eqsat.model.selection import Selection
from eqsat.model.sets import union_find
from eqsat.ops.contractions.roles import kind
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.formatting import count_text
from eqsat.report.mesh import spread_text


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


_DISPATCH = re.compile(r"dispatch[ :=#-]?(\d+)")
_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?")


@dataclass(frozen=True)
class Asked:
    """title: one line that says what it is. nodes: chosen e-nodes it is about.

    near: a class, if it is about one value, whose other layouts are told as well.
    """

    title: str
    nodes: frozenset[int]
    near: int | None = None


@dataclass(frozen=True)
class Questions:
    """Finds what a text names in a run that has a schedule."""

    run: Finished
    names: Names
    selection: Selection
    dispatches: Sequence[Dispatch]

    def asked(self, text: str) -> Asked:
        """The value, dispatch, rule or line that a text names; else EqsatError (E303)."""
        for find in (self._value, self._dispatch, self._rule, self._line):
            answer = find(text)
            if answer is not None:
                return answer
        names = [*map(self.names.of, self.said), *self._merged, *self._rules]
        names = [n if text.startswith("%") else n.removeprefix("%") for n in names]
        what = "no value, dispatch, rule or line is called"
        help = did_you_mean(text, names, "eqsat show DIR canonical")
        raise fail("E303", f"{what} `{text}`", help=help)

    # ---- values --------------------------------------------------------------------------------
    @cached_property
    def said(self) -> tuple[int, ...]:
        """Classes whose names are printed: values of the program, and what is computed."""
        nodes = self.names.egraph.nodes
        chosen = (nodes[i].eclass for i in chosen_nodes(self.selection))
        return tuple(dict.fromkeys([*self.names.egraph.values, *chosen]))

    @cached_property
    def _classes(self) -> dict[str, int]:
        """Every name of a class, without `%`; numbers of values where no name is one."""
        egraph, program = self.names.egraph, self.names.program
        by_name = {name: c for c, name in enumerate(egraph.class_names)}
        for i, c in enumerate(egraph.values):
            by_name.setdefault(program.value_name(i).removeprefix("%"), c)
            for name in program.nodes[i].origin.also:
                by_name.setdefault(name, c)
        if not any(map(str.isdigit, by_name)):  # or numbers would be names of other values
            by_name |= {str(i): c for i, c in enumerate(egraph.values)}
        return by_name

    @cached_property
    def _merged(self) -> dict[str, int]:
        """Values of the program as it came in that are computed inside of another: its class."""
        program = self.run.program
        readers, classes = _readers(program), dict[str, int]()
        for i in range(len(program.nodes) - 1, -1, -1):
            name = program.value_name(i).removeprefix("%")
            if name not in self._classes:
                above = (program.value_name(r).removeprefix("%") for r in readers[i])
                at = next((c for r in above if (c := self._class(r, classes)) is not None), None)
                classes |= {} if at is None else {name: at}
        return classes

    def _class(self, name: str, others: dict[str, int]) -> int | None:
        return self._classes.get(name, others.get(name))

    def _value(self, text: str) -> Asked | None:
        name = text.removeprefix("%")
        c = self._classes.get(name, self._classes.get(name.partition(AGAIN)[0]))
        if c is not None:
            return Asked(self._title(c), self._of_class(c), c)
        if name in self._merged:
            c = self._merged[name]
            inside = f"%{name}: computed inside of {self.names.of(c)}"
            return Asked(f"{inside}; {self._title(c)}", self._of_class(c), c)
        return None

    def _of_class(self, c: int) -> frozenset[int]:
        nodes = self.names.egraph.nodes
        return frozenset(i for i in chosen_nodes(self.selection) if nodes[i].eclass == c)

    def _title(self, c: int) -> str:
        names, egraph = self.names, self.names.egraph
        first = egraph.nodes[egraph.classes[c][0]]
        if c in egraph.values:
            first = names.program.nodes[egraph.values.index(c)]
        head = f"{names.of(c)}: {first.op} : {names.type_of(c)}"
        computed = bool(self._of_class(c))
        if first.op in LEAVES and not computed:
            return f"{head}, an {first.op}" if first.op == "input" else f"{head}, a {first.op}"
        writers = [i for i, g in enumerate(self.selection.groups) if c in g.writes]
        if writers:
            return f"{head}, written to memory by dispatch {writers[0]}"
        if computed:
            return f"{head}, lives inside a dispatch only"
        return f"{head}, never computed in this form: its users read the data in another form"

    # ---- dispatches ----------------------------------------------------------------------------
    def _dispatch(self, text: str) -> Asked | None:
        """`dispatch 3`; one by its name is the value that it writes."""
        match = _DISPATCH.fullmatch(text)
        number = int(match[1]) if match else int(text) if text.isdigit() else -1
        if not 0 <= number < len(self.dispatches):
            return None
        d = self.dispatches[number]
        nodes = frozenset(self.selection.groups[number].members)
        return Asked(f"dispatch {number}, {d.name}: {d.ops}", nodes)

    # ---- rules ---------------------------------------------------------------------------------
    @cached_property
    def _rules(self) -> dict[str, str]:
        """Where each rule stands, by name: those of the search, and those that are asked of."""
        places = {r.name: str(r.at) for r in self.run.rules.everything}
        return places | {r.name: r.at for r in self.names.egraph.rules}

    def _rule(self, text: str) -> Asked | None:
        if text not in self._rules:
            return None
        egraph = self.names.egraph
        nodes = self._led_to([text])
        stats = [r for r in egraph.rules if r.name == text]
        matches, added = sum(r.matches for r in stats), sum(r.nodes for r in stats)
        head = f"rule {text}  {self._rules[text]}".rstrip()
        if text in {r.name for r in self.run.rules.spreads}:
            return Asked(f"{head}: {spread_text(self.run.mesh_plan, text)}", frozenset())
        if not matches:
            return Asked(f"{head}: it never matched", nodes)
        did = (
            f"{head}: {count_text(matches, 'match', 'matches')}, {count_text(added, 'new e-node')}"
        )
        if not nodes:
            return Asked(f"{did}, none of them in the answer", nodes)
        return Asked(f"{did}; it led to {count_text(len(nodes), 'e-node')} of the answer", nodes)

    def _led_to(self, rules: Iterable[str]) -> frozenset[int]:
        egraph, wanted = self.names.egraph, set(rules)
        return frozenset(
            i
            for i in chosen_nodes(self.selection)
            if any(s.rule in wanted for s in rule_chain(egraph, i))
        )

    # ---- lines ---------------------------------------------------------------------------------
    def _line(self, text: str) -> Asked | None:
        """`mlp.py:12`: the values that this line asked for; of a file of rules, the rule there."""
        match = _PLACE.fullmatch(text)
        if match is None:
            return None
        place = f"{match['file']}:{match['line']}"
        for rule, at in self._rules.items():
            if _is_at(":".join(at.split(":")[:2]), place):
                return self._rule(rule)
        program = self.run.program
        here = [i for i, n in enumerate(program.nodes) if _is_at(n.origin.at, place)]
        answers = [self._value(program.value_name(i)) for i in here]
        if not here:
            return None
        names = ", ".join(program.value_name(i) for i in here)
        nodes = frozenset[int]().union(*(a.nodes for a in answers if a is not None))
        return Asked(f"{place}: {names}", nodes)


def asked_value(run: Finished, names: Names, text: str) -> int:
    """The class of the value that a text names; EqsatError (E303) if it names none."""
    _, selection, schedule = finished_stages(run)
    answer = Questions(run, names, selection, schedule.dispatches).asked(text)
    if answer.near is None:
        raise fail("E303", f"`{text}` is no value", help=f"it is {answer.title}")
    return answer.near


def _is_at(at: str, place: str) -> bool:
    """Whether one of two places is the other, said with more of its path."""
    a, b = at.split("/"), place.split("/")
    n = min(len(a), len(b))
    return bool(at) and a[-n:] == b[-n:]


def _readers(program: Program) -> dict[int, list[int]]:
    """Per value those that read it."""
    readers: dict[int, list[int]] = {i: [] for i in range(len(program.nodes))}
    for i, n in enumerate(program.nodes):
        for o in n.operands:
            readers[o].append(i)
    return readers
