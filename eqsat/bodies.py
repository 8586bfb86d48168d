"""Bodies of loops and branches are searched first; then the program around them.

Around it a loop or branch is one op that no rule looks into. The input program holds it with the
bodies' baselines; the e-graph gets it once more, with what the searches of its bodies found. So
the answer is never worse than the input, and budgets hold for everything together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eqsat.model.control import COND, Control
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.generic import Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.program import Builder, Node, Program, infer
from eqsat.schedule.carried import carried_layouts, packed_type, with_packed_state
from eqsat.schedule.hoist import Hoisted, NotStackable, hoist, with_weights

if TYPE_CHECKING:
    from eqsat.model.selection import Selection
    from eqsat.run import Run

RULE = "body"  # who made a loop with searched bodies, where rules are named
_DOC = "the bodies of a loop or branch, searched by themselves"
Search = Callable[[Program], "Sequence[Run]"]  # a body → its searches, the wanted one first


@dataclass(frozen=True)
class Site:
    """A loop or branch of the canonical program, and others in its place.

    Numbers are nodes of the canonical program.
    """

    node: int
    index: tuple[int, ...]  # what selects a branch
    given: tuple[int, ...]  # the other operands, as the input program has them
    others: tuple[Other, ...]


@dataclass(frozen=True)
class Other:
    """Another form of a loop or branch, and the search of each of its bodies.

    packed: carries it keeps in a layout, by number.
    """

    loop: Hoisted
    runs: tuple[Run, ...]
    packed: Mapping[int, Layout] = field(default_factory=dict)


@dataclass
class Bodies:
    """The canonical program with scheduled bodies, and the runs that scheduled them.

    runs: `%7/body` → the search of that body. has_baseline: whether every body as it came in is
    admissible on the target.
    """

    canonical: Program
    sites: list[Site] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)
    has_baseline: bool = True

    def chosen(self, egraph: EGraph, selection: Selection) -> dict[str, Run]:
        """`%7/body` → the search that scheduled that body in this selection.

        Where the bodies stay as they came in, the search that left them so.
        """
        nodes = (egraph.nodes[m] for g in selection.groups for m in g.members)
        used = {n.attr for n in (*nodes, *(egraph.nodes[i] for i in selection.ahead))}
        found = dict(self.runs)
        for site in self.sites:
            for other in (o for o in site.others if o.loop.attr in used):
                labels = other.loop.attr.labels
                found |= {f"%{site.node}/{k}": r for k, r in zip(labels, other.runs, strict=True)}
        return found

    def added_to(self, egraph: EGraph) -> EGraph:
        """The e-graph with what the searches of the bodies found, and the work they did."""
        extended = _Extended(egraph)
        for site in self.sites:
            for other in site.others:
                extended.add(site, other)
        return extended.egraph(list({id(r): r for r in self.runs.values()}.values()))


def search_bodies(program: Program, search: Search) -> Bodies:
    """Search every body of a canonical program; equal ones once."""
    return _Planner(program, search).plan()


class _Planner:
    def __init__(self, program: Program, search: Search):
        self.program, self.search = program, search
        self.builder = Builder(program.name)
        self.known: dict[Program, Sequence[Run]] = {}
        self.found = Bodies(program)

    def plan(self) -> Bodies:
        new: dict[int, int] = {}
        fixed = _from_weights(self.program)
        for i, n in enumerate(self.program.nodes):
            operands = tuple(new[o] for o in n.operands)
            if isinstance(n.attr, Control) and n.attr.programs:
                new[i] = self._site(n.attr, operands, [o in fixed for o in n.operands])
            elif n.op == "result" and operands[0] in self._whole():
                new[i] = self._result(n, operands[0])
            else:
                new[i] = self.builder.add(n.op, operands, n.attr)
        built = self.builder.build([new[r] for r in self.program.results])
        whole = replace(self.program, nodes=built.nodes, results=built.results)
        self.found.canonical = whole
        return self.found

    def _whole(self) -> set[int]:
        return {s.node for s in self.found.sites}

    def _result(self, n: Node, node: int) -> int:
        if len(self.builder.nodes[node].types) == 1:
            return node
        return self.builder.add("result", (node,), n.attr)

    def _site(self, attr: Control, operands: tuple[int, ...], fixed: Sequence[bool]) -> int:
        """Add the op with the baselines of its bodies; its single result if it has only one."""
        first = int(attr.op == COND)
        index, given = operands[:first], operands[first:]
        carried = range(attr.consts, attr.consts + attr.carries)
        known = [k for k in range(len(given)) if fixed[first + k] and k not in carried]
        try:
            runs, own, others = self._searched(attr, known)
        except NotStackable:  # what is made of slices of weights is made in every step
            runs, own, others = self._searched(attr, [k for k in known if k < attr.consts])
        made = self._ahead(own.ahead, given)
        node = self.builder.add(attr.op, (*index, *own.operands(given, made)), own.attr)
        different = [other for other in others if other.loop.attr != own.attr]
        different += self._packed(attr, own, runs)
        self.found.sites.append(Site(node, index, given, tuple(different)))
        for label, found in zip(attr.labels, runs, strict=True):
            self.found.runs[f"%{node}/{label}"] = found[0]
            self.found.has_baseline &= found[0].baseline_schedule is not None
        return self._first(own.attr, node)

    def _searched(
        self, attr: Control, known: Sequence[int]
    ) -> tuple[list[Sequence[Run]], Hoisted, list[Other]]:
        """The searches of the bodies; the op with their baselines; and with what each found."""
        runs = [self._runs(with_weights(body, known)) for body in attr.bodies]
        whole = [found[0].baseline_schedule or found[0].schedule for found in runs]
        own = hoist(attr, [s for s in whole if s is not None], known)
        others = []
        for each in zip(*runs, strict=True):
            schedules = [r.schedule for r in each if r.schedule is not None]
            others.append(Other(hoist(attr, schedules, known), each))
        return runs, own, others

    def _packed(self, attr: Control, own: Hoisted, runs: Sequence[Sequence[Run]]) -> list[Other]:
        """The loop with its state kept packed, if the search of its body packs it in each step."""
        body = runs[-1][0].schedule
        if not attr.carries or body is None:
            return []
        known, found = sorted(own.inputs.fixed), []
        for layouts in carried_layouts(attr, body):
            _, _, others = self._searched(with_packed_state(attr, layouts), known)
            found += [replace(other, packed=layouts) for other in others]
        return found

    def _runs(self, body: Program) -> Sequence[Run]:
        key = replace(body, name="body")
        if key not in self.known:
            self.known[key] = self.search(body)
        return self.known[key]

    def _ahead(self, ahead: Program, given: tuple[int, ...]) -> list[int]:
        new: dict[int, int] = {}
        for i, n in enumerate(ahead.nodes):
            if isinstance(n.attr, Leaf):
                new[i] = given[n.attr.index]
            else:
                new[i] = self.builder.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        return [new[r] for r in ahead.results]

    def _first(self, attr: Control, node: int) -> int:
        """All results, so that each has its bytes; scratch among them."""
        types = self.builder.nodes[node].types
        if len(types) == 1:
            return node
        made = [self.builder.add("result", (node,), Result(i)) for i in range(len(types))]
        return made[0] if len(attr.result_types) == 1 else node


def _from_weights(program: Program) -> set[int]:
    """Nodes computed from weights and constants alone, a weight among them."""
    found: set[int] = set()
    constant: set[int] = set()
    for i, n in enumerate(program.nodes):
        if n.op == "weight":
            found.add(i)
        elif n.op == "fill":
            constant.add(i)
        elif n.op != "input" and {*n.operands} <= found | constant:
            (found if found & {*n.operands} else constant).add(i)
    return found


class _Extended:
    """An e-graph with more nodes in classes that it has."""

    def __init__(self, egraph: EGraph):
        self.old = egraph
        self.nodes = list(egraph.nodes)
        self.types = list(egraph.types)
        self.at = {(n.op, n.attr, n.children): i for i, n in enumerate(self.nodes)}
        self.rule = len(egraph.rules)
        self.made = 0

    def add(self, site: Site, other: Other) -> None:
        """The op with other bodies: a class of its own, results in the classes of the known one."""
        classes, attr = self.old.values, other.loop.attr
        given = [classes[c] for c in site.given]
        made = self._ahead(other.loop.ahead, given)
        for k, layout in other.packed.items():
            at = other.loop.inputs.consts + k
            given[at] = self._pack(given[at], layout)
        operands = other.loop.operands(given, made)
        children = (*(classes[i] for i in site.index), *operands)
        known = classes[site.node]
        source = next(
            i for i in self.old.classes[known] if self.old.nodes[i].attr.kind == attr.kind
        )
        alone = len(attr.result_types + attr.scratch_types) == 1
        if alone and len(self.types[known]) == 1 and not other.packed:
            self._node(attr.op, attr, children, known, source)
            return
        own = self._class(attr.op, attr, children, source)
        for i in range(len(self.types[own])):
            self._result(own, i, known, other)

    def _result(self, own: int, i: int, known: int, other: Other) -> None:
        """Result i of another form as that of the known one; scratch is a class of its own."""
        if i >= len(other.loop.attr.result_types):
            self._node("result", Result(i), (own,), None, -1)
        elif i in other.packed:
            value = own
            if len(self.types[own]) > 1:
                value = self._class("result", Result(i), (own,), -1)
            self._node("unpack", other.packed[i], (value,), self._result_class(known, i), -1)
        else:
            to = self._result_class(known, i)
            assert self.types[to] == (self.types[own][i],)
            self._node("result", Result(i), (own,), to, -1)

    def _pack(self, eclass: int, layout: Layout) -> int:
        """The class of a packed value; a constant is one in any layout."""
        found = self._class("pack", layout, (eclass,), -1)
        fills = [n.attr for n in self.nodes if n.eclass == eclass and isinstance(n.attr, Fill)]
        if fills and not layout.is_padded:
            packed = replace(fills[0], type=packed_type(fills[0].type, layout))
            self._node("fill", packed, (), found, -1)
        return found

    def _result_class(self, known: int, i: int) -> int:
        if len(self.types[known]) == 1:
            return known
        return self.nodes[self.at["result", Result(i), (known,)]].eclass

    def _ahead(self, ahead: Program, given: Sequence[int]) -> list[int]:
        new: dict[int, int] = {}
        for i, n in enumerate(ahead.nodes):
            if isinstance(n.attr, Leaf):
                new[i] = given[n.attr.index]
            else:
                new[i] = self._class(n.op, n.attr, tuple(new[o] for o in n.operands), -1)
        return [new[r] for r in ahead.results]

    def _class(self, op: str, attr: object, children: tuple[int, ...], source: int) -> int:
        """The class of a node, a new one if there is no such node."""
        found = self.at.get((op, attr, children))  # type: ignore[arg-type]
        if found is not None:
            return self.nodes[found].eclass
        return self._node(op, attr, children, None, source)

    def _node(
        self, op: str, attr: object, children: tuple[int, ...], eclass: int | None, source: int
    ) -> int:
        if eclass is None:
            eclass = len(self.types)
            self.types.append(infer(op, attr, [self.types[c] for c in children]))  # type: ignore[arg-type]
        if (op, attr, children) not in self.at:  # type: ignore[comparison-overlap]
            self.at[op, attr, children] = len(self.nodes)  # type: ignore[index]
            self.nodes.append(ENode(op, attr, children, eclass, self.rule, source))  # type: ignore[arg-type]
            self.made += 1
        return eclass

    def egraph(self, runs: Sequence[Run]) -> EGraph:
        """With the work of the bodies' searches counted beside that of the whole."""
        rules = {r.name: r for r in self.old.rules}
        inner = [r for run in runs if run.egraph is not None for r in run.egraph.rules]
        for r in inner:
            rules[r.name] = _sum(rules[r.name], r) if r.name in rules else r
        body = RuleStat(RULE, "", _DOC, self.made, self.made, 0.0)
        rules[RULE] = _sum(rules[RULE], body) if RULE in rules else body
        order = [r.name for r in self.old.rules]
        order += [name for name in (RULE, *rules) if name not in order]
        listed = tuple(rules[name] for name in dict.fromkeys(order))
        return replace(self.old, nodes=tuple(self.nodes), types=tuple(self.types), rules=listed)


def _sum(a: RuleStat, b: RuleStat) -> RuleStat:
    return replace(
        a, matches=a.matches + b.matches, nodes=a.nodes + b.nodes, seconds=a.seconds + b.seconds
    )
