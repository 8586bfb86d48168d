"""Bodies of loops and branches are searched first; then the program around them.

In the surrounding program a loop or branch is one op, and no rule matches inside it. The input
program has it with the baselines of its bodies; an equality states that it equals the op with the
answers of the bodies' searches (`Equalities`). So the answer is never worse than the input, and
budgets cover everything together.

A loop also equals programs with a smaller loop, or with none (`ops.programs.loopforms`). Saturation
starts from these as well as from the program itself, so rules apply to the parts that left a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eqsat.model.attr import Attr
from eqsat.model.control import COND, Control, controls
from eqsat.model.diag import EqsatError
from eqsat.model.egraph import EGraph, RuleStat
from eqsat.model.equalities import Equalities
from eqsat.model.generic import Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.selection import Cut, GoalResult, Selection
from eqsat.model.symbols import NO_ORIGIN
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.programs.loopforms import loop_forms
from eqsat.ops.spelling.passes import canonical
from eqsat.schedule.hoist import (
    Hoisted,
    NotStackable,
    carried_layouts,
    hoist,
    packed_type,
    with_fixed_weights,
    with_packed_state,
)

if TYPE_CHECKING:
    from eqsat.run import Run

RULE = "body"  # who made a loop with searched bodies, where rules are named
_DOC = "the bodies of a loop or branch, searched by themselves"
LEAVING = "leave-loop"  # who made what a loop is equal to with less in its body
_LEAVING_DOC = "what is the same in every step, or can be computed for all of them, leaves the loop"
INADMISSIBLE = "E410"
Search = Callable[[Program], "Sequence[Run]"]  # a body → its searches, the wanted one first


@dataclass(frozen=True)
class Site:
    """A loop or branch of the canonical program, or of what equals one, and others in its place.

    Numbers are nodes of the canonical program and of what is known beside it. home: the node of
    the loop or branch of the canonical program. original: as it came in.
    """

    node: int
    home: int
    original: Other
    attr: Control  # as it was read
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

    equalities: of loops and branches with what the searches found. runs: `%loop/body` → the search
    of that body. has_baseline: whether every body as it came in is admissible on the target.
    """

    canonical: Program
    equalities: tuple[Equalities, ...]
    sites: tuple[Site, ...]
    runs: Mapping[str, Run]
    has_baseline: bool

    def chosen(self, egraph: EGraph, selection: Selection) -> dict[str, Run]:
        """`%loop/body` → the search that scheduled that body in this selection.

        Where the bodies stay as they came in, the search that left them so.
        """
        nodes = (egraph.nodes[m] for g in selection.groups for m in g.members)
        used = {n.attr for n in (*nodes, *(egraph.nodes[i] for i in selection.ahead))}
        runs: dict[str, Run] = {}
        for site in self.sites:
            for form in (o for o in (site.original, *site.others) if o.loop.attr in used):
                labels = form.loop.attr.labels
                home = self.canonical.value_name(site.home)
                runs |= {f"{home}/{k}": r for k, r in zip(labels, form.runs, strict=True)}
        return runs

    def proven_in(self, selection: Selection) -> Selection:
        """The selection with what is not proven of the bodies, whose found values it was priced by.

        Any program takes at least the bounds of its bodies, so at least the whole's bound times the
        least share that a body's bound has of its value.
        """
        within = [f.selection for f in self._searches if f.selection is not None]
        cuts = Counter[tuple[str, str]]()
        goals = tuple((name, _at_most(g, name, within)) for name, g in selection.goals)
        for c in (c for s in (selection, *within) for c in s.cuts):
            cuts[c.what, c.by] += c.count
        stops = [s.stop for s in (selection, *within)]
        done = ("optimal", "gap")
        stop = next((s for s in stops if s not in done), "gap" if "gap" in stops else stops[0])
        return replace(
            selection,
            goals=goals,
            cuts=tuple(Cut(what, count, by) for (what, by), count in cuts.items()),
            stop=stop,
            candidates=sum(s.candidates for s in (selection, *within)),
        )

    @property
    def _searches(self) -> list[Run]:
        """All searches of bodies, in every form of a loop, each once."""
        searches = [r for s in self.sites for form in (s.original, *s.others) for r in form.runs]
        return list({id(r): r for r in searches}.values())

    def counted_in(self, egraph: EGraph) -> EGraph:
        """The e-graph with the work of the bodies' searches counted beside that of the whole."""
        rules = {r.name: r for r in egraph.rules}
        for run in self._searches:
            for r in run.egraph.rules if run.egraph is not None else ():
                rules[r.name] = _sum(rules[r.name], r) if r.name in rules else r
        return replace(egraph, rules=tuple(rules.values()))


def _at_most(total: GoalResult, name: str, within: Sequence[Selection]) -> GoalResult:
    """A goal's result with its bound times the least share of bound and value among these."""
    inexact = [g for w in within for n, g in w.goals if n == name and g.gap]
    if not inexact:
        return total
    bound = min(total.bound * g.bound // g.value for g in inexact)
    return replace(total, bound=bound, proof="")


def _sum(a: RuleStat, b: RuleStat) -> RuleStat:
    return replace(
        a, matches=a.matches + b.matches, nodes=a.nodes + b.nodes, seconds=a.seconds + b.seconds
    )


def search_bodies(program: Program, search: Search, inexact: bool) -> Bodies:
    """Search every body of a canonical program; equal ones once.

    inexact: what leaves a loop may sum floats in another order.
    """
    return _Planner(program, search, inexact).plan()


class _Planner:
    def __init__(self, program: Program, search: Search, inexact: bool):
        self.program, self.search = program, search
        self.builder = Builder(program.name)
        self.inexact = inexact
        self.cache: dict[Program, Sequence[Run]] = {}
        self.fixed: set[int] = set()  # nodes computed from weights
        self.sites: dict[int, Site] = {}
        self.has_baseline = True

    def plan(self) -> Bodies:
        new = self._write(self.program, {})
        built = self.builder.build([new[r] for r in self.program.results])
        program = replace(self.program, nodes=built.nodes, results=built.results)
        runs = {
            f"{program.value_name(s.home)}/{label}": run
            for s in self.sites.values()
            for label, run in zip(s.original.loop.attr.labels, s.original.runs, strict=True)
        }
        has_baseline = all(r.baseline_schedule is not None for r in runs.values())
        equalities = (self._left(), self._equalities())
        return Bodies(program, equalities, tuple(self.sites.values()), runs, has_baseline)

    def _write(
        self, program: Program, given: Mapping[int, int], home: int | None = None
    ) -> dict[int, int]:
        """Add a program, with searched bodies, on nodes for its inputs; its nodes' numbers.

        home: the loop that the program stands for.
        """
        new = dict(given)
        fixed = _from_weights(program, {i for i, x in given.items() if x in self.fixed})
        for i, n in enumerate(program.nodes):
            if i in new:
                continue
            before, self.builder.origin = len(self.builder.nodes), n.origin
            operands = tuple(new[o] for o in n.operands)
            if isinstance(n.attr, Control) and n.attr.programs:
                new[i] = self._site(n.attr, operands, [o in fixed for o in n.operands], home)
            elif n.op == "result" and operands[0] in self.sites:
                new[i] = self._result(operands[0], n.attr)
            else:
                new[i] = self.builder.add(n.op, operands, n.attr)
            self.builder.settle(before, new[i])
        self.builder.origin = NO_ORIGIN
        self.fixed |= {new[i] for i in fixed}
        return new

    # ---- what leaves a loop ----------------------------------------------------------------------
    def _left(self) -> Equalities:
        """The programs that loops are equal to, beside the canonical program."""
        first = len(self.builder.nodes)
        equal: list[tuple[int, int]] = []
        instead_of: list[tuple[int, int]] = []
        for site in list(self.sites.values()):
            for form in map(canonical, loop_forms(site.attr, self.inexact)):
                given = dict(zip(form.inputs, site.given, strict=True))
                try:
                    new = self._write(form, given, site.home)
                except EqsatError as e:
                    if e.diagnostics[0].code != INADMISSIBLE:
                        raise
                    continue  # the target cannot compute it
                results = [new[r] for r in form.results]
                loops = [new[i] for i, _ in controls(form)]
                instead_of += [(n, site.node) for n in (loops or results[:1])]
                equal += [(r, self._result(site.node, Result(i))) for i, r in enumerate(results)]
        nodes = tuple(self.builder.nodes[first:])
        facts = tuple(equal), tuple(instead_of)
        return Equalities(LEAVING, _LEAVING_DOC, first, nodes, *facts, is_open=True)

    # ---- bodies ----------------------------------------------------------------------------------

    def _result(self, node: int, attr: Attr) -> int:
        """A result of an op; the op itself if it has no other."""
        if len(self.builder.nodes[node].types) == 1:
            return node
        return self.builder.add("result", (node,), attr)

    def _site(
        self, attr: Control, operands: tuple[int, ...], fixed: Sequence[bool], home: int | None
    ) -> int:
        """Add the op with the baselines of its bodies; its single result if it has only one."""
        first = int(attr.op == COND)
        index, given = operands[:first], operands[first:]
        carried = range(attr.consts, attr.consts + attr.carries)
        fixed_weights = {
            k: self._line(given[k]) if k < attr.consts else ""
            for k in range(len(given))
            if fixed[first + k] and k not in carried
        }
        try:
            runs, baseline, others = self._searched(attr, fixed_weights)
        except NotStackable:  # what is made of slices of weights is made in every step
            fixed_weights = {k: key for k, key in fixed_weights.items() if k < attr.consts}
            runs, baseline, others = self._searched(attr, fixed_weights)
        ahead = self._ahead(baseline.ahead, given)
        node = self.builder.add(attr.op, (*index, *baseline.operands(given, ahead)), baseline.attr)
        different = [other for other in others if other.loop.attr != baseline.attr]
        different += self._packed(attr, fixed_weights, runs)
        if node not in self.sites:
            as_it_is = Other(baseline, tuple(of_body[0] for of_body in runs))
            home = node if home is None else home
            self.sites[node] = Site(node, home, as_it_is, attr, index, given, tuple(different))
        return self._first(baseline.attr, node)

    def _line(self, node: int) -> str:
        """The key of a weight that holds 0, 1, …: with it a body knows what is written in place."""
        attr = self.builder.nodes[node].attr
        return attr.key if isinstance(attr, Leaf) and is_iota(attr) else ""

    def _searched(
        self, attr: Control, weights: Mapping[int, str]
    ) -> tuple[list[Sequence[Run]], Hoisted, list[Other]]:
        """The searches of the bodies; the op with their baselines; and with what each found."""
        state = range(attr.consts, attr.consts + attr.carries)
        *first, last = attr.bodies
        bodies = [*(with_fixed_weights(b, weights) for b in first),
                  with_fixed_weights(last, weights, state)]  # fmt: skip
        runs = [self._runs(body) for body in bodies]
        schedules_of = [of_body[0].baseline_schedule or of_body[0].schedule for of_body in runs]
        baseline = hoist(attr, [s for s in schedules_of if s is not None], weights)
        others = []
        for each in zip(*runs, strict=True):
            schedules = [r.schedule for r in each if r.schedule is not None]
            others.append(Other(hoist(attr, schedules, weights), each))
        return runs, baseline, others

    def _packed(
        self, attr: Control, weights: Mapping[int, str], runs: Sequence[Sequence[Run]]
    ) -> list[Other]:
        """The loop with its state kept packed, if the search of its body packs it in each step."""
        body = runs[-1][0].schedule
        if not attr.carries or body is None:
            return []
        forms = []
        for layouts in carried_layouts(attr, body):
            _, _, others = self._searched(with_packed_state(attr, layouts), weights)
            forms += [replace(other, packed=layouts) for other in others]
        return forms

    def _runs(self, body: Program) -> Sequence[Run]:
        key = replace(body, name="body")
        if key not in self.cache:
            self.cache[key] = self.search(body)
        return self.cache[key]

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
        results = [self._result(node, Result(i)) for i in range(count)]
        return results[0] if len(attr.result_types) == 1 else node

    # ---- what the searches found -----------------------------------------------------------------
    def _equalities(self) -> Equalities:
        first = len(self.builder.nodes)
        equal: list[tuple[int, int]] = []
        instead_of: list[tuple[int, int]] = []
        for site, other in ((s, o) for s in self.sites.values() for o in s.others):
            node = self._with(site, other)
            instead_of.append((node, site.node))
            equal += self._results(node, site, other)
        nodes = tuple(self.builder.nodes[first:])
        return Equalities(RULE, _DOC, first, nodes, tuple(equal), tuple(instead_of))

    def _with(self, site: Site, other: Other) -> int:
        """The op in its other form; the states it keeps packed come packed."""
        loop, given = other.loop, list(site.given)
        ahead = self._ahead(loop.ahead, given)
        for k, layout in other.packed.items():
            given[loop.inputs.consts + k] = self._packed_value(site.given, loop, k, layout)
        return self.builder.add(
            loop.attr.op, (*site.index, *loop.operands(given, ahead)), loop.attr
        )

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


def _from_weights(program: Program, inputs: set[int]) -> set[int]:
    """Nodes computed from weights and constants alone, a weight among them.

    inputs: those that are such.
    """
    derived = set(inputs)
    constant: set[int] = set()
    for i, n in enumerate(program.nodes):
        if n.op == "weight":
            derived.add(i)
        elif n.op == "fill":
            constant.add(i)
        elif n.op != "input" and {*n.operands} <= derived | constant:
            (derived if derived & {*n.operands} else constant).add(i)
    return derived
