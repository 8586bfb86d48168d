"""Bodies of loops and branches are searched first; then the program around them.

Around it a loop or branch is one op that no rule looks into. The input program holds it with the
bodies' baselines; saturation is told that it equals the one with what the searches of its bodies
found (`Equalities`). So the answer is never worse than the input, and budgets hold for everything
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eqsat.model.attr import Attr
from eqsat.model.control import COND, Control
from eqsat.model.egraph import EGraph, RuleStat
from eqsat.model.equalities import Equalities
from eqsat.model.generic import Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.program import Builder, Program
from eqsat.schedule.carried import carried_layouts, packed_type, with_packed_state
from eqsat.schedule.hoist import Hoisted, NotStackable, hoist, with_fixed_weights

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


@dataclass(frozen=True)
class Bodies:
    """The canonical program with scheduled bodies, and the runs that scheduled them.

    known: the loops and branches with what the searches found. runs: `%7/body` → the search of
    that body. has_baseline: whether every body as it came in is admissible on the target.
    """

    canonical: Program
    known: Equalities
    sites: tuple[Site, ...]
    runs: Mapping[str, Run]
    has_baseline: bool

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

    def counted_in(self, egraph: EGraph) -> EGraph:
        """With the work of the bodies' searches counted beside that of the whole."""
        rules = {r.name: r for r in egraph.rules}
        for run in {id(r): r for r in self.runs.values()}.values():
            for r in run.egraph.rules if run.egraph is not None else ():
                rules[r.name] = _sum(rules[r.name], r) if r.name in rules else r
        return replace(egraph, rules=tuple(rules.values()))


def _sum(a: RuleStat, b: RuleStat) -> RuleStat:
    return replace(
        a, matches=a.matches + b.matches, nodes=a.nodes + b.nodes, seconds=a.seconds + b.seconds
    )


def search_bodies(program: Program, search: Search) -> Bodies:
    """Search every body of a canonical program; equal ones once."""
    return _Planner(program, search).plan()


class _Planner:
    def __init__(self, program: Program, search: Search):
        self.program, self.search = program, search
        self.builder = Builder(program.name)
        self.found: dict[Program, Sequence[Run]] = {}
        self.sites: dict[int, Site] = {}
        self.runs: dict[str, Run] = {}
        self.has_baseline = True

    def plan(self) -> Bodies:
        new: dict[int, int] = {}
        fixed = _from_weights(self.program)
        for i, n in enumerate(self.program.nodes):
            operands = tuple(new[o] for o in n.operands)
            if isinstance(n.attr, Control) and n.attr.programs:
                new[i] = self._site(n.attr, operands, [o in fixed for o in n.operands])
            elif n.op == "result" and operands[0] in self.sites:
                new[i] = self._result(operands[0], n.attr)
            else:
                new[i] = self.builder.add(n.op, operands, n.attr)
        built = self.builder.build([new[r] for r in self.program.results])
        whole = replace(self.program, nodes=built.nodes, results=built.results)
        sites = tuple(self.sites.values())
        return Bodies(whole, self._equalities(sites), sites, self.runs, self.has_baseline)

    def _result(self, node: int, attr: Attr) -> int:
        """A result of an op; the op itself if it has no other."""
        if len(self.builder.nodes[node].types) == 1:
            return node
        return self.builder.add("result", (node,), attr)

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
        self.sites[node] = Site(node, index, given, tuple(different))
        for label, found in zip(attr.labels, runs, strict=True):
            self.runs[f"%{node}/{label}"] = found[0]
            self.has_baseline &= found[0].baseline_schedule is not None
        return self._first(own.attr, node)

    def _searched(
        self, attr: Control, known: Sequence[int]
    ) -> tuple[list[Sequence[Run]], Hoisted, list[Other]]:
        """The searches of the bodies; the op with their baselines; and with what each found."""
        runs = [self._runs(with_fixed_weights(body, known)) for body in attr.bodies]
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
        if key not in self.found:
            self.found[key] = self.search(body)
        return self.found[key]

    def _ahead(self, ahead: Program, given: Sequence[int]) -> list[int]:
        new: dict[int, int] = {}
        for i, n in enumerate(ahead.nodes):
            if isinstance(n.attr, Leaf):
                new[i] = given[n.attr.index]
            else:
                new[i] = self.builder.add(n.op, tuple(new[o] for o in n.operands), n.attr)
        return [new[r] for r in ahead.results]

    def _first(self, attr: Control, node: int) -> int:
        """All results, so that each has its bytes; scratch among them."""
        count = len(self.builder.nodes[node].types)
        made = [self._result(node, Result(i)) for i in range(count)]
        return made[0] if len(attr.result_types) == 1 else node

    # ---- what the searches found -----------------------------------------------------------------
    def _equalities(self, sites: Sequence[Site]) -> Equalities:
        first = len(self.builder.nodes)
        equal: list[tuple[int, int]] = []
        instead_of: list[tuple[int, int]] = []
        for site, other in ((s, o) for s in sites for o in s.others):
            node = self._with(site, other)
            instead_of.append((node, site.node))
            equal += self._results(node, site, other)
        nodes = tuple(self.builder.nodes[first:])
        return Equalities(RULE, _DOC, first, nodes, tuple(equal), tuple(instead_of))

    def _with(self, site: Site, other: Other) -> int:
        """The op in its other form; the states it keeps packed come packed."""
        loop, given = other.loop, list(site.given)
        made = self._ahead(loop.ahead, given)
        for k, layout in other.packed.items():
            given[loop.inputs.consts + k] = self._packed_value(site.given, loop, k, layout)
        return self.builder.add(loop.attr.op, (*site.index, *loop.operands(given, made)), loop.attr)

    def _packed_value(self, given: Sequence[int], loop: Hoisted, carry: int, layout: Layout) -> int:
        """A state before the first step; a constant is one in any layout."""
        value = given[loop.inputs.consts + carry]
        attr = self.builder.nodes[value].attr
        if isinstance(attr, Fill) and not layout.is_padded:
            return self.builder.add("fill", (), replace(attr, type=packed_type(attr.type, layout)))
        return self.builder.add("pack", (value,), layout)

    def _results(self, node: int, site: Site, other: Other) -> Iterator[tuple[int, int]]:
        """Each result and that of the op as it came in; scratch is nobody else's."""
        for i in range(len(self.builder.nodes[node].types)):
            value = self._result(node, Result(i))
            if i in other.packed:
                value = self.builder.add("unpack", (value,), other.packed[i])
            if i < len(other.loop.attr.result_types):
                yield value, self._result(site.node, Result(i))


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
