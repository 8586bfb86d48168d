"""Selection × EGraph → Schedule: the chosen nodes as a program, cut into dispatches and buffers.

Results are written where operands lie that nothing reads any more; dispatches have the plans of
their kernels, and what these cost in parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from eqsat.model.attr import Attr
from eqsat.model.control import CONTROL
from eqsat.model.diag import fail
from eqsat.model.egraph import AGAIN, EGraph, ENode
from eqsat.model.leaves import Leaf, is_donated
from eqsat.model.movement import Reshape
from eqsat.model.nest import NoNest
from eqsat.model.ops import LEAVES, SAME_BYTES, VIEWS
from eqsat.model.program import Builder, Node
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.selection import Group, Selection
from eqsat.model.sets import union_find
from eqsat.model.symbols import Origin, unique
from eqsat.model.target import HELD, Target
from eqsat.model.text import with_names
from eqsat.ops.contractions.roles import kind
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.planner import BufferFacts, class_bytes, plan_alike, planner_of, weight_classes
from eqsat.plan.storage import dying_buffers, in_place, line_buffers, narrowed_types
from eqsat.plan.updates import few_points, lines_of, nest_in_place
from eqsat.schedule.devices import with_devices


# ---- results in place ----------------------------------------------------------------------------
def with_in_place(schedule: Schedule, *, updates: bool = True) -> Schedule:
    """The schedule with results in place of operands, where it can; the rest has its own bytes.

    A donated argument holds a result that is computed from it element by element. updates: also, in
    place of a donated argument or of each other, the values of which few elements change.
    """
    arguments = [i for i in schedule.program.inputs if is_donated(schedule.program.nodes[i].attr)]
    in_place: dict[int, int] = {}  # operand → what is written in its place
    for d in schedule.dispatches:
        for old in d.reads:
            given = old in arguments
            if given or updates:
                new = next(_written_over(schedule, d, old, given, updates), None)
                if new is not None and new not in in_place.values():
                    in_place[old] = new
    results = {schedule.buffer_of(r) for r in schedule.program.results}
    for a in arguments:  # XLA uses up no argument that no result takes the place of
        if a in in_place and _last(in_place, a) not in results:
            del in_place[a]
    changed = replace(schedule, in_place=tuple((new, old) for old, new in in_place.items()))
    return _living_longer(changed, in_place)


def _written_over(
    schedule: Schedule, writer: Dispatch, old: int, is_given: bool, updates: bool
) -> Iterator[int]:
    """The result that may be written in the bytes of a value that nothing reads later."""
    nodes = schedule.program.nodes
    results = {schedule.buffer_of(r) for r in schedule.program.results}
    written = {w for d in schedule.dispatches for w in d.writes}
    others = [d for d in schedule.dispatches if d is not writer]
    if old in results or not (is_given or old in written):
        return
    if any(old in d.reads and d.step >= writer.step for d in others):
        return
    for new in writer.writes:
        if nodes[new].type != nodes[old].type or any(new in d.writes for d in others):
            continue
        try:
            nest = in_place(nest_of_dispatch(schedule, writer), old, new)
        except NoNest:
            continue
        is_update = updates and few_points(nest, lines_of(schedule, writer.reads)) is not None
        if is_update or (is_given and new in results):
            yield new


def _last(in_place: Mapping[int, int], node: int) -> int:
    while node in in_place:
        node = in_place[node]
    return node


def _living_longer(schedule: Schedule, in_place: Mapping[int, int]) -> Schedule:
    """The first of values that lie in its bytes, one after another, lives as long as they do."""
    ends = {b.node: b.last for b in schedule.buffers}
    last = {
        n: max(ends[n], ends[_last(in_place, n)]) for n in in_place if n in schedule.owners.values()
    }
    buffers = tuple(
        replace(b, last=last[b.node]) if b.role == "temporary" and b.node in last else b
        for b in schedule.buffers
    )
    return replace(schedule, buffers=buffers)


# ---- plans ---------------------------------------------------------------------------------------
def with_plans(
    schedule: Schedule,
    egraph: EGraph,
    target: Target,
    weights: Collection[int],
    dying: Collection[int],
) -> Schedule:
    """Every dispatch with its plan, or with the reason why it has none.

    weights: nodes whose buffers follow from weights alone. dying: nodes that nothing reads once
    their next state is there. EqsatError E902 (our bug) if a plan takes another time than the
    search used: what it took for written in place may have a later reader in the end.
    """
    machines = dict(target.devices) or {"": target}
    planners = {k: planner_of(egraph, t) for k, t in machines.items() if t.is_planned}

    def planned(d: Dispatch) -> Dispatch:
        if d.device not in planners:
            return d
        nodes, planner = schedule.program.nodes, planners[d.device]
        result_types = {nodes[w].type for w in d.writes}
        known_reads = BufferFacts(
            tuple(r for r in d.reads if is_donated(nodes[r].attr)),
            tuple(r for r in d.reads if r in dying and nodes[r].type in result_types),
            lines_of(schedule, d.reads),
        )
        try:
            read_weights = [
                r for r in d.reads if r in weights
            ]  # what it writes may be read as one later
            _, parts = planner(nest_of_dispatch(schedule, d), read_weights, known_reads)
            chosen = plan_alike(nest_in_place(schedule, d), planner.target.machine)[1]
            if isinstance(chosen, str):
                raise NoNest(chosen)
        except NoNest as why:
            return replace(d, no_plan=with_names(schedule.program, str(why)))
        if parts.time_ps != d.time_ps:
            message = f"the plan of {d.name} takes {parts.time_ps} ps, not {d.time_ps}"
            raise fail("E902", message, exit_code=4)
        return replace(d, plan=chosen, parts=parts)

    if not planners:
        return schedule
    return replace(schedule, dispatches=tuple(map(planned, schedule.dispatches)))


# ---- the schedule --------------------------------------------------------------------------------
def build(egraph: EGraph, selection: Selection, target: Target) -> Schedule:
    """The schedule of a selection.

    EqsatError E902 (our bug) if its time or peak differs from what the search promised.
    """
    writer = _Writer(egraph, selection, target)
    schedule = writer.write()
    promised = dict(selection.goals)
    actual = {
        "time": schedule.time_ps,
        "memory": schedule.peak_bytes,
        "dispatches": schedule.kernels,
        "resident": schedule.resident_bytes,
        "load_peak": schedule.load_peak_bytes,
    }
    for name, value in actual.items():
        if name in promised and promised[name].value != value:
            raise fail(
                "E902",
                f"the schedule's {name} is {value}, the search promised {promised[name].value}",
                exit_code=4,
            )
    schedule = with_in_place(schedule, updates=target.is_planned)
    return with_plans(schedule, egraph, target, writer.from_weights, writer.dying)


class _Writer:
    """Writes the chosen e-nodes into a program; remembers which node holds which class."""

    def __init__(self, egraph: EGraph, selection: Selection, target: Target):
        self.egraph, self.selection, self.target = egraph, selection, target
        self.builder = Builder("schedule")
        self.names: dict[str, int] = {}  # of its nodes
        # a node per e-node: at given sizes two values may be computed by the same words
        self.node_of: dict[tuple[str, tuple[int, ...], Attr, int], int] = {}
        self.held: dict[int, int] = {}  # class -> node, for what is in memory
        self.first: dict[int, int] = {}  # buffer -> the class of it that was held first
        self.owner: dict[int, int] = {}  # node -> the node whose buffer it views
        self.written: dict[int, int] = {}  # node -> step that writes its buffer
        self.read: dict[int, int] = {}  # node -> last step that reads its buffer
        self.from_weights: set[int] = set()  # nodes whose buffers follow from weights alone
        self.classes: dict[int, int] = {}  # node -> its class

    def write(self) -> Schedule:
        self._inputs()
        ahead = self._ahead()
        self._forget(ahead)
        dispatches = tuple(self._dispatch(g) for g in self.selection.groups)
        results = [self._value(r, self.held) for r in self.egraph.roots]
        program = self.builder.build(results)
        dispatches = with_devices(dispatches, program, self.target)
        buffers = self._buffers(set(ahead), [self._base(r) for r in results])
        ahead_nodes = tuple(i for i in ahead if program.nodes[i].op != "weight")
        rest = self.target.name, self.target.originals
        padded = tuple(self._padded())
        return Schedule(
            program, dispatches, buffers, ahead_nodes, *rest, padded=padded,
            narrowed=tuple(self._narrowed()),
        )  # fmt: skip

    # ---- values -----------------------------------------------------------------------------
    @cached_property
    def buffer(self) -> tuple[int, ...]:
        """Per class, the smallest class that is a reshape of it: the same bytes."""
        reshapes = ((n.eclass, n.children[0]) for n in self.egraph.nodes if n.op == "reshape")
        return union_find(len(self.egraph.types), reshapes)

    @cached_property
    def _weights(self) -> frozenset[int]:
        """Buffers that follow from weights alone."""
        return frozenset(self.buffer[c] for c in weight_classes(self.egraph))

    def _is_weight(self, eclass: int) -> bool:
        return self.buffer[eclass] in self._weights

    def _value(self, eclass: int, *written: dict[int, int]) -> int:
        """The node of a class, through a reshape if only another shape of its bytes is known."""
        for values in written:
            if eclass in values:
                return values[eclass]
            if (c := self._same(eclass, values)) is not None:
                return self._reshaped(values[c], eclass)
        raise fail("E903", f"class {eclass} is read before it is written", exit_code=4)

    def _same(self, eclass: int, values: dict[int, int]) -> int | None:
        """The first class of these that is another shape of the same bytes."""
        b = self.buffer[eclass]
        if values is self.held:
            return self.first.get(b)
        return next((c for c in values if self.buffer[c] == b), None)

    def _hold(self, eclass: int, node: int) -> int:
        """Remember that a class is in memory."""
        self.held[eclass] = node
        self.classes.setdefault(node, eclass)
        self.first.setdefault(self.buffer[eclass], eclass)
        return node

    def _reshaped(self, node: int, eclass: int) -> int:
        (wanted,) = self.egraph.types[eclass]
        attr = Reshape(self.builder.type(node).shape, wanted.shape)
        self.builder.origin = self._origin(eclass)
        view = self.builder.add("reshape", (node,), attr)
        self.classes[view] = eclass
        self.owner[view] = self._base(node)
        return view

    def _origin(self, eclass: int) -> Origin:
        """The name of a class; where its value is computed once more, with a number."""
        name = unique(self.egraph.class_names[eclass], self.names, AGAIN)
        self.names.setdefault(name, 1)
        return Origin(name)

    def _base(self, node: int) -> int:
        """The node whose buffer this one reads or views."""
        while node in self.owner:
            node = self.owner[node]
        return node

    def _add(self, n: ENode, *written: dict[int, int]) -> int:
        operands = tuple(self._value(c, *written) for c in n.children)
        key = n.op, operands, n.attr, n.eclass
        if key not in self.node_of:
            self.builder.origin = self._origin(n.eclass)
            self.node_of[key] = self.builder.append(n.op, operands, n.attr)
        node = self.node_of[key]
        self.classes.setdefault(node, n.eclass)
        if n.op in SAME_BYTES:
            self.owner.setdefault(node, self._base(operands[0]))
        return node

    @cached_property
    def dying(self) -> frozenset[int]:
        """Nodes that nothing reads once their next state is there, as prices have it."""
        lines = line_buffers(self.egraph, self.buffer)
        dying = dying_buffers(self.egraph, self.buffer, lines)
        return frozenset(i for i, c in self.classes.items() if self.buffer[c] in dying)

    # ---- phases -----------------------------------------------------------------------------
    def _inputs(self) -> None:
        leaves = [n for n in self.egraph.nodes if n.op == "input"]
        for n in sorted(leaves, key=_argument_number):
            self._hold(n.eclass, self._add(n))
        if self.target.originals == HELD:  # all are there, read or not
            for n in self.egraph.nodes:
                if n.op == "weight":
                    self._add(n)

    def _ahead(self) -> list[int]:
        """Weights and what is computed from them once; operands first."""
        waiting = [self.egraph.nodes[i] for i in self.selection.ahead]
        done: list[int] = []
        there = set(self.first)
        while waiting:
            ready, later = [], []
            for n in waiting:
                is_ready = all(self.buffer[c] in there for c in n.children)
                (ready if is_ready else later).append(n)
            waiting = later
            if not ready:
                raise fail("E903", "an ahead-of-time node reads a run-time value", exit_code=4)
            for n in ready:
                before = len(self.builder.nodes)
                node = self._hold(n.eclass, self._add(n, self.held))
                done += [*range(before, len(self.builder.nodes)), node]
            there |= {self.buffer[n.eclass] for n in ready}
        return list(dict.fromkeys(done))

    def _forget(self, ahead: list[int]) -> None:
        """Write anew what dispatches compute, even where the same was computed ahead."""
        leaves = {i for i in ahead if self.builder.nodes[i].op in LEAVES}
        gone = set(ahead) - leaves
        self.node_of = {k: i for k, i in self.node_of.items() if i not in gone}
        written = {self.buffer[c] for g in self.selection.groups for c in g.writes}
        arguments = {n.eclass for n in self.egraph.nodes if n.op == "input"}
        self.held = {
            c: i for c, i in self.held.items() if c in arguments or self.buffer[c] not in written
        }
        self.first = {self.buffer[c]: c for c in reversed(self.held)}

    def _dispatch(self, g: Group) -> Dispatch:
        inside: dict[int, int] = {}
        members: list[int] = []
        reads = [self._base(self._value(c, self.held)) for c in g.reads]
        for i in g.members:
            n = self.egraph.nodes[i]
            inside[n.eclass] = self._add(n, inside, self.held)
            members += [*self._views(inside[n.eclass], members), inside[n.eclass]]
        for c in g.writes:
            node = self._base(self._value(c, inside))
            self._hold(c, self._value(c, inside))
            self.written[node] = g.step
        for r in reads:
            self.read[r] = max(self.read.get(r, -1), g.step)
        self.from_weights |= {r for c, r in zip(g.reads, reads, strict=True) if self._is_weight(c)}
        members = list(dict.fromkeys(members))
        writes = [self._base(self.held[c]) for c in g.writes]
        sides, ops = (_unique(reads), _unique(writes)), self._ops(members)
        name = self.builder.nodes[writes[0]].origin.name
        return Dispatch(
            tuple(members), *sides, g.time_ps, g.step, ops, pipeline=g.pipeline, name=name
        )

    def _views(self, node: int, members: list[int]) -> list[int]:
        """The views between a node's operands and the buffers they are of, operands first."""
        views: list[int] = []
        for operand in self.builder.nodes[node].operands:
            chain, view = [], operand
            while view in self.owner and view not in members:
                chain.append(view)
                (view,) = self.builder.nodes[view].operands
            views += reversed(chain)
        return views

    def _ops(self, members: list[int]) -> str:
        """The kinds of the members in order, views left out: `contraction+elementwise`."""
        nodes = [self.builder.nodes[m] for m in members]
        words = [n.op if _is_named(n) else kind(n.op, n.attr) for n in nodes if n.op not in VIEWS]
        return "+".join(words)

    def _buffers(self, ahead: set[int], results: list[int]) -> tuple[Buffer, ...]:
        last = max((g.step for g in self.selection.groups), default=0)
        arguments = [i for i, n in enumerate(self.builder.nodes) if n.op == "input"]
        # a constant that helped to make a weight may be computed again by a dispatch: no weight
        weights = [i for i in sorted(ahead) if i in self.read or i in results]
        if self.target.originals == HELD:
            weights += [i for i, n in enumerate(self.builder.nodes) if n.op == "weight"]
        weights = [i for i in weights if i not in self.written]
        weights = [i for i in dict.fromkeys(map(self._base, weights)) if i not in arguments]
        taken = {*arguments, *weights}
        buffers = [self._buffer(i, "argument", 0, last) for i in arguments]
        buffers += [self._buffer(i, "weight", 0, last) for i in weights]
        for r in dict.fromkeys(results):
            if r not in taken:
                buffers.append(self._buffer(r, "result", self.written.get(r, 0), last))
        taken |= set(results)
        for i, step in sorted(self.written.items()):
            if i not in taken:
                buffers.append(self._buffer(i, "temporary", step, self.read.get(i, step)))
        return tuple(buffers)

    def _buffer(self, node: int, role: str, first: int, last: int) -> Buffer:
        return Buffer(node, self._bytes(node), role, first, last)

    def _bytes(self, node: int) -> int:
        return self._sizes[self.classes[node]]

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return class_bytes(self.egraph, self.target.padding)

    def _padded(self) -> Iterator[tuple[int, int]]:
        """Nodes that memory pads, and the bytes of their buffers."""
        if self.target.padding is not None:
            for node, eclass in sorted(self.classes.items()):
                if self._sizes[eclass] != self.builder.nodes[node].types[0].nbytes:
                    yield node, self._sizes[eclass]

    def _narrowed(self) -> Iterator[tuple[int, str]]:
        """Nodes that memory keeps in another type, which other ops than contractions never read."""
        padding = self.target.padding
        if padding is not None and padding.narrowed:
            narrowed = narrowed_types(self.egraph, padding, weight_classes(self.egraph))
            for node, eclass in sorted(self.classes.items()):
                if eclass in narrowed:
                    yield node, narrowed[eclass]


def _is_named(n: Node) -> bool:
    """Whether its op says more than its kind."""
    return n.op in CONTROL or kind(n.op, n.attr) in ("conversion", "move")


def _argument_number(n: ENode) -> int:
    assert isinstance(n.attr, Leaf)
    return n.attr.index


def _unique(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(nodes))
