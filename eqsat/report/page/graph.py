"""A schedule, or a program that has none, as the graph the page draws, and why it is so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.model.control import COND, Control
from eqsat.model.generic import Generic
from eqsat.model.ops import LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.report.alternatives import SHOWN, OtherChoice, price_text
from eqsat.report.explain import Choice, explained
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.names import Names, RuleStep, op_word
from eqsat.report.page.data import (
    PageAlternative,
    PageBody,
    PageChoice,
    PageDispatch,
    PageEdge,
    PageGraph,
    PageRule,
    PageSource,
    PageValue,
)
from eqsat.report.page.labels import (
    DispatchWork,
    Scope,
    dispatch_name,
    folds,
    is_relayout,
    is_speaking,
    layers_by_name,
    layout_names,
    main_weight,
    op_words,
    shown_name,
)


@dataclass
class RuleTable:
    """Rules by number, in the order in which they are first named."""

    numbers: dict[PageRule, int] = field(default_factory=dict)

    def chain(self, steps: tuple[RuleStep, ...]) -> tuple[int, ...]:
        """The rules of a chain, the first applied first."""
        rules = [PageRule(s.rule, s.at, s.doc) for s in reversed(steps)]
        return tuple(self.numbers.setdefault(r, len(self.numbers)) for r in rules)

    @property
    def rules(self) -> tuple[PageRule, ...]:
        return tuple(self.numbers)


@dataclass(frozen=True)
class Reasons:
    """Per dispatch of a schedule its choices in execution order, and the ops of the user's program.

    bodies: of loops and branches, by number of the dispatch and label of the body.
    """

    choices: Mapping[int, tuple[PageChoice, ...]] = field(default_factory=dict)
    bodies: Mapping[tuple[int, str], Reasons] = field(default_factory=dict)
    sources: Mapping[int, tuple[PageSource, ...]] = field(default_factory=dict)


UNKNOWN = Reasons()


def reasons(run: Finished, table: RuleTable) -> Reasons:
    """Why a run's dispatches are as they are, those of its bodies too; rules go into the table."""
    assert run.schedule is not None
    number = {id(d): i for i, d in enumerate(run.schedule.dispatches)}
    choices_of: dict[int, list[PageChoice]] = {}
    bodies = {}
    for choice in explained(run).choices:
        if choice.dispatch is None:
            continue
        i = number[id(choice.dispatch)]
        choices_of.setdefault(i, []).append(_shown(choice, table))
        for path in choice.holds:
            body = run.bodies.get(path)
            if body is not None and body.schedule is not None:
                bodies[i, path.rpartition("/")[2]] = reasons(body, table)
    told = {i: tuple(choices) for i, choices in choices_of.items()}
    return Reasons(told, bodies, _sources(run))


def _sources(run: Finished) -> dict[int, tuple[PageSource, ...]]:
    """Per dispatch the ops of the program that it computes, in whatever layout or shape."""
    egraph, selection, _ = finished_stages(run)
    names, program = Names(egraph, run.canonical), run.canonical
    ops: dict[int, list[int]] = {}
    for i, c in enumerate(egraph.values):
        if program.nodes[i].op not in LEAVES | VIEWS:
            ops.setdefault(names.logical[c], []).append(i)
    sources = {}
    for number, group in enumerate(selection.groups):
        classes = dict.fromkeys(names.logical[egraph.nodes[m].eclass] for m in group.members)
        asked = sorted({i for c in classes for i in ops.get(c, ())})
        sources[number] = tuple(PageSource(program.nodes[i].origin.at, _op_text(program, i))
                                for i in asked)  # fmt: skip
    return sources


def _op_text(program: Program, i: int) -> str:
    """`%h = contraction(x, w)`: an op in short."""
    n = program.nodes[i]
    operands = ", ".join(map(program.value_name, n.operands))
    return f"{program.value_name(i)} = {op_word(n)}({operands})"


def _shown(choice: Choice, table: RuleTable) -> PageChoice:
    others = choice.alternatives
    return PageChoice(
        choice.text,
        choice.type,
        table.chain(choice.chain),
        tuple(_alternative(o, table) for o in others[:SHOWN]),
        max(0, len(others) - SHOWN),
    )


def _alternative(other: OtherChoice, table: RuleTable) -> PageAlternative:
    price = "" if other.price is None else price_text(other.price)
    if other.subsumed:
        price = f"{price} given up by a rule".strip()
    return PageAlternative(other.text, table.chain(other.chain), price)


MOST_LAYERS = 3  # that read one value; if more do, it is a tag


@dataclass(frozen=True)
class Drawn:
    """A graph and the graphs of the bodies of its loops and branches, by key."""

    key: str
    graph: PageGraph
    bodies: Mapping[str, PageGraph] = field(default_factory=dict)

    @property
    def graphs(self) -> dict[str, PageGraph]:
        return {self.key: self.graph, **self.bodies}


def schedule_graph(schedule: Schedule, key: str, title: str, why: Reasons = UNKNOWN) -> Drawn:
    """The dispatches of a schedule; bodies of its loops and branches are graphs of their own."""
    return _Reader(schedule, key, title, why).drawn()


def program_graph(program: Program, key: str, title: str) -> Drawn:
    """A program as if every op were a dispatch; views, and what follows from weights, are none."""
    from_weights = _from_weights(program)
    results: dict[int, list[int]] = {}
    for i, n in enumerate(program.nodes):
        if n.op == "result":
            results.setdefault(n.operands[0], []).append(i)
    dispatches = []
    for i, n in enumerate(program.nodes):
        if n.op in VIEWS | LEAVES or i in from_weights:
            continue
        reads = dict.fromkeys(program.behind_views(o) for o in n.operands)
        shown = tuple(r for r in reads if program.nodes[r].op != "fill")
        writes = tuple(results.get(i, [i]))
        dispatches.append(Dispatch((i,), shown, writes, 0, len(dispatches), n.op))
    schedule = Schedule(program, tuple(dispatches), (), tuple(sorted(from_weights)), "")
    drawn = _Reader(schedule, key, title, UNKNOWN).drawn()
    plain = [replace(d, time_ps=None) for d in drawn.graph.dispatches]
    return replace(drawn, graph=replace(drawn.graph, dispatches=tuple(plain), time_ps=None))


def _from_weights(program: Program) -> set[int]:
    """Ops that follow from weights and constants alone."""
    derived = {i for i, n in enumerate(program.nodes) if n.op in ("weight", "fill")}
    for i, n in enumerate(program.nodes):
        if n.operands and all(o in derived for o in n.operands):
            derived.add(i)
    return {i for i in derived if program.nodes[i].operands}


@dataclass(frozen=True)
class _Reader:
    """Reads one schedule."""

    schedule: Schedule
    key: str
    title: str
    why: Reasons

    @property
    def program(self) -> Program:
        return self.schedule.program

    def drawn(self) -> Drawn:
        s = self.schedule
        dispatches = tuple(self._dispatch(i) for i in range(len(s.dispatches)))
        layers_folded = folds([self._work(i, d) for i, d in enumerate(dispatches)])
        layer_of = {i: (f, n) for f, fold in enumerate(layers_folded) for n, layer in
                    enumerate(fold.layers) for i in layer.dispatches}  # fmt: skip
        graph = PageGraph(
            self.title, dispatches, self._values(layer_of), tuple(self._edges), layers_folded,
            s.time_ps, s.arena_bytes, self._live_bytes(),
        )  # fmt: skip
        return Drawn(self.key, graph, self._bodies())

    # ---- values ---------------------------------------------------------------------------------
    @cached_property
    def layouts(self) -> tuple[str, ...]:
        return layout_names(self.program)

    @cached_property
    def number(self) -> dict[int, int]:
        """Node of a value that a dispatch reads or writes → its number on the page."""
        nodes = (n for d in self.schedule.dispatches for n in (*d.reads, *d.writes))
        return {n: i for i, n in enumerate(dict.fromkeys(nodes))}

    @cached_property
    def writers(self) -> dict[int, int]:
        """Node → the dispatch that writes it."""
        return {n: i for i, d in enumerate(self.schedule.dispatches) for n in d.writes}

    @cached_property
    def _edges(self) -> list[PageEdge]:
        return [
            PageEdge(self.writers[r], i, self.number[r])
            for i, d in enumerate(self.schedule.dispatches)
            for r in d.reads
            if self.writers.get(r, i) < i
        ]

    def _values(self, layer_of: Mapping[int, tuple[int, int]]) -> tuple[PageValue, ...]:
        buffers = {b.node: b for b in self.schedule.buffers}
        results = {self.schedule.buffer_of(r) for r in self.program.results}
        readers: dict[int, set[object]] = {}
        for i, d in enumerate(self.schedule.dispatches):
            for r in d.reads:
                readers.setdefault(r, set()).add(layer_of.get(i, "around"))
        values = []
        for n in self.number:
            node, b = self.program.nodes[n], buffers.get(n)
            nbytes = b.nbytes if b else sum(t.nbytes for t in node.types)
            value = PageValue(
                shown_name(self.program, n), ", ".join(map(str, node.types)), self.layouts[n],
                nbytes, b.role if b else self._role(n), self.writers.get(n, -1),
                is_tag=len(readers.get(n, set()) - {"around"}) > MOST_LAYERS,
                is_result=n in results,
            )  # fmt: skip
            if b is not None:
                value = replace(value, first=b.first, last=b.last, offset=b.offset)
            values.append(value)
        return tuple(values)

    def _role(self, n: int) -> str:
        """Of what has no buffer, in a program without a schedule."""
        if n in self.schedule.ahead or self.program.nodes[n].op == "weight":
            return "weight"
        return "argument" if self.program.nodes[n].op == "input" else "temporary"

    def _live_bytes(self) -> tuple[int, ...]:
        steps = 1 + max((d.step for d in self.schedule.dispatches), default=-1)
        changes = [0] * (steps + 1)
        for b in self.schedule.temporaries:
            changes[b.first] += b.nbytes
            changes[min(b.last, steps - 1) + 1] -= b.nbytes
        live = [0]
        for c in changes[:steps]:
            live.append(live[-1] + c)
        return tuple(live[1:])

    # ---- dispatches -----------------------------------------------------------------------------
    def _weights(self, d: Dispatch) -> list[int]:
        """Weights that a dispatch works with, as the program has them; the largest first."""
        nodes = self.program.nodes
        weights = {w for r in d.reads for w in self.schedule.sources.get(r, ())}
        return sorted(weights, key=lambda w: (-nodes[w].type.nbytes, w))

    def _dispatch(self, i: int) -> PageDispatch:
        d, nodes = self.schedule.dispatches[i], self.program.nodes
        weight = main_weight(self.program, d, self._weights(d))
        parts = d.parts
        sides: list[tuple[str, int]] = []
        if parts is not None:
            sides = [("compute", parts.compute_ps), *parts.traffic_ps]
            sides += [("relayout", parts.relayout_ps), ("launch", parts.launch_ps)]
        work = [nodes[m] for m in d.members]
        return PageDispatch(
            dispatch_name(self.program, d, weight),
            op_words(self.program, d.members),
            tuple(self.number[r] for r in d.reads),
            tuple(self.number[w] for w in d.writes),
            self.layouts[d.writes[-1]],
            sum(is_relayout(n) for n in work),
            sum(map(flops, work)),
            sum(t.nbytes for n in (*d.reads, *d.writes) for t in nodes[n].types),
            d.step, d.time_ps, tuple((k, ps) for k, ps in sides if ps), d.bound_text,
            d.plan.to_text() if d.plan else d.no_plan,
            " by ".join(filter(None, (d.device, d.pipeline))),
            self.why.choices.get(i, ()), self._body_links(i),
            d.name if self.why.choices and "/" not in self.key and d.name != d.ops else "",
            weight, self.why.sources.get(i, ()),
        )  # fmt: skip

    def _work(self, i: int, shown: PageDispatch) -> DispatchWork:
        d, nodes = self.schedule.dispatches[i], self.program.nodes
        work = [nodes[m] for m in d.members if nodes[m].op not in VIEWS | LEAVES]
        what = tuple(sorted(_work_text(n) for n in work if not is_relayout(n)))
        sides = [(str(nodes[n].types[0]), self.layouts[n]) for n in (*d.reads, *d.writes)]
        names = [d.name, *(shown_name(self.program, w) for w in self._weights(d))]
        scopes = max((self._scopes[n] for n in names if n in self._scopes), default=())
        reads = tuple(self.writers[r] for r in d.reads if self.writers.get(r, i) < i)
        exactly = (shown.ops, tuple(sides), shown.plan)
        return DispatchWork(what, exactly, scopes, reads, bool(work) and not what)

    @cached_property
    def _scopes(self) -> dict[str, tuple[Scope, ...]]:
        """By the names of weights and those of dispatches, if they are more than numbers."""
        names = {d.name: None for d in self.schedule.dispatches if is_speaking(d)}
        names |= {shown_name(self.program, w): None for w in self.program.weights}
        return layers_by_name(names)

    # ---- bodies ---------------------------------------------------------------------------------
    def _body_key(self, i: int, label: str) -> str:
        return f"{self.key}/{i}/{label}"

    def _body_links(self, i: int) -> tuple[PageBody, ...]:
        control = self.schedule.control(self.schedule.dispatches[i])
        if control is None:
            return ()
        runs = None if control.op == COND else control.runs
        return tuple(PageBody(k, self._body_key(i, k), runs) for k in control.labels)

    def _bodies(self) -> dict[str, PageGraph]:
        graphs: dict[str, PageGraph] = {}
        for i, d in enumerate(self.schedule.dispatches):
            control = self.schedule.control(d)
            if control is None:
                continue
            for label, part in zip(control.labels, _parts(control), strict=True):
                key, title = self._body_key(i, label), f"{label} of dispatch {i}"
                inner = (
                    schedule_graph(part, key, title, self.why.bodies.get((i, label), UNKNOWN))
                    if isinstance(part, Schedule)
                    else program_graph(part, key, title)
                )
                graph = replace(inner.graph, parent=self.key, parent_dispatch=i)
                graphs |= {**inner.bodies, key: graph}
        return graphs


def _parts(control: Control) -> tuple[Schedule, ...] | tuple[Program, ...]:
    return control.schedules or control.programs


def _work_text(node: Node) -> str:
    """The work of an op in words, with its elements: equal in every layout."""
    attr, size = node.attr, sum(t.size for t in node.types)
    if not isinstance(attr, Generic):
        return f"{node.op} {size}"
    fns = sorted({e.fn for y in attr.yields for e in y.body.walk()} - {"arg", "const", "cast"})
    over = "" if attr.is_elementwise else f" over {attr.combine}"
    return f"{'+'.join(fns)}{over} {size}"


def flops(node: Node) -> int:
    """Operations of an op, a multiply-add as two, counted without lanes of padding of its own."""
    attr = node.attr
    if not isinstance(attr, Generic):
        return 0
    per_point = sum(sum(1 for e in y.body.walk() if e.args and e.fn != "cast") for y in attr.yields)
    combined = 0 if attr.is_elementwise else len(attr.yields)
    return math.prod(attr.sizes) * (per_point + combined)
