"""Legality of a schedule on a target, read from the target's keys (docs/dispatches.md) alone.

Lives of numbers and buffers have to make sense, and buffers the bytes they may have on the target.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from eqsat.model.control import every_program
from eqsat.model.generic import Generic
from eqsat.model.nest import NoNest
from eqsat.model.ops import CONVERSIONS, VIEWS
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import MOVES, ORIGINALS, Target
from eqsat.model.tensor import TensorType
from eqsat.model.text import with_names
from eqsat.ops.contractions.roles import kind
from eqsat.ops.generics.access import is_cheap, widens
from eqsat.ops.targets.inorder import is_in_order
from eqsat.ops.targets.rows import has_its_rows
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.updates import nest_in_place
from eqsat.schedule.devices import by_device, device_faults
from eqsat.schedule.fused import OneDispatch
from eqsat.schedule.rebuilt import replanned_faults


# ---- lives ---------------------------------------------------------------------------------------
def number_faults(schedule: Schedule) -> list[str]:
    """Nodes that do not exist, and nodes ahead of time that are none."""
    nodes = range(len(schedule.program.nodes))
    faults = [
        f"dispatch {i} names a node that does not exist"
        for i, d in enumerate(schedule.dispatches)
        if not all(n in nodes for n in (*d.members, *d.reads, *d.writes))
    ]
    named = [b.node for b in schedule.buffers]
    named += [n for pair in schedule.in_place for n in pair]
    named += [n for n, _ in (*schedule.padded, *schedule.narrowed)]
    if not all(n in nodes for n in (*named, *schedule.ahead)):
        return [*faults, "a buffer, or what is computed ahead, names a node that does not exist"]
    if any(schedule.program.nodes[i].op == "input" for i in schedule.ahead):
        faults.append("an argument is computed ahead")
    if schedule.originals not in ORIGINALS:
        faults.append(f"weights are `{schedule.originals}`, which says nothing")
    return faults


def life_faults(schedule: Schedule) -> Iterator[str]:
    """Every buffer has its role, is one, and is there when it is written."""
    written = {w: d.step for d in schedule.dispatches for w in d.writes}
    there = [b.node for b in schedule.buffers]
    if len(set(there)) < len(there):
        yield "a value has two buffers"
    yield from (f"%{w} is written and has no buffer" for w in written if w not in there)
    for b in schedule.buffers:
        role = _role(schedule, b.node, written)
        if b.role != role:
            yield f"%{b.node} is a {role}, not a {b.role}"
        step = written.get(b.node)
        if step is not None and not b.first <= step <= b.last:
            life = f"its buffer lives from {b.first} to {b.last}"
            yield f"%{b.node} is written at step {step}, {life}"


def _role(schedule: Schedule, node: int, written: dict[int, int]) -> str:
    """The role of a buffer."""
    program = schedule.program
    if program.nodes[node].op == "input":
        return "argument"
    if node not in written and (node in schedule.ahead or node in program.weights):
        return "weight"
    return "result" if node in map(schedule.buffer_of, program.results) else "temporary"


# ---- sizes of buffers ----------------------------------------------------------------------------
SHOWN = frozenset({*VIEWS, *CONVERSIONS, "slice"})  # what a product may be seen through


def size_faults(schedule: Schedule, target: Target) -> Iterator[str]:
    """A buffer has the bytes of its elements at least, and at most those that its padding takes.

    Elements are those of a narrower type where `padding.narrowed` keeps them so.
    """
    if schedule.target != target.name:  # one of another target may pad otherwise, or not at all
        return
    where, nodes = target.place("padding"), schedule.program.nodes
    narrow = _narrowed(schedule, target)
    sizes = dict(schedule.padded) | {b.node: b.nbytes for b in schedule.buffers}
    for node, nbytes in sizes.items():
        t = nodes[node].types[0]
        least = TensorType(narrow.get(node, t.dtype), t.shape).nbytes
        most = t.nbytes if target.padding is None else target.padding.buffer_bytes(t.shape, t.dtype)
        if not least <= nbytes <= most:
            yield f"%{node} has {nbytes:,} bytes, {t} takes {most:,} ({where})"


def _narrowed(schedule: Schedule, target: Target) -> dict[int, str]:
    """Per node of which contractions read less than its elements: the type that they read."""
    if target.padding is None or not target.padding.narrowed:
        return {}
    program, narrowed = schedule.program, dict[int, str]()
    outside = {*program.inputs, *program.weights, *schedule.ahead}
    outside |= {schedule.buffer_of(r) for r in program.results}
    read = _readings(program)
    for reading, dtype in target.padding.narrowed:
        mine = [i for i, r in read.items() if r == {reading} and i not in outside]
        narrowed |= {i: dtype for i in mine if _rounds_a_product(program, i)}
    return narrowed


def _rounds_a_product(program: Program, node: int) -> bool:
    """Whether a value is a product, or an elementwise op of one that stands once in its body.

    Views, conversions and slices of such a value are looked through.
    """
    n = program.nodes[node]
    if n.op in SHOWN:
        return _rounds_a_product(program, n.operands[0])
    what = kind(n.op, n.attr)
    if what != "elementwise" or not isinstance(n.attr, Generic):
        return what == "contraction"
    args: list[object] = []  # numbers of operands, as often as they stand there
    for y in n.attr.yields:
        for e in y.body.walk():
            args += [a.value for a in e.args if a.fn == "arg"]
        args += [y.body.value] if y.body.fn == "arg" else []
    return any(args.count(i) == 1 and _is_product(program, o) for i, o in enumerate(n.operands))


def _is_product(program: Program, node: int) -> bool:
    """Whether a contraction is behind a value, its views, conversions and slices."""
    n = program.nodes[node]
    if n.op in SHOWN:
        return _is_product(program, n.operands[0])
    return kind(n.op, n.attr) == "contraction"


def _readings(program: Program) -> dict[int, set[str]]:
    """Per node: by contractions of which type and precision it is read; "" by anything else.

    Views and conversions are looked through, from the last op to the first.
    """
    readings: dict[int, set[str]] = defaultdict(set)
    for i in reversed(range(len(program.nodes))):
        n = program.nodes[i]
        passes = n.op in VIEWS or n.op in CONVERSIONS
        types = {program.nodes[o].type.dtype for o in n.operands}
        is_one = kind(n.op, n.attr) == "contraction" and len(types) == 1
        reading = ""
        if is_one and isinstance(n.attr, Generic):
            reading = f"{types.pop()}/{n.attr.precision}"
        for o in n.operands:
            readings[o] |= readings[i] if passes else {reading}
    return readings


# ---- the schedule as a whole ---------------------------------------------------------------------
_ENCODINGS = frozenset({"set_encoding", "unset_encoding"})


def faults(schedule: Schedule, target: Target, given: Program | None = None) -> list[str]:
    """Faults of a schedule on a target, and by which key; nothing if it is legal.

    given: the program as its author wrote it, whose own tiles and encodings are no fault.
    """
    return [with_names(schedule.program, fault) for fault in _faults(schedule, target, given)]


def _faults(schedule: Schedule, target: Target, given: Program | None) -> list[str]:
    """The faults, with values by their numbers."""
    try:
        schedule.program.verify()
        if unknown := number_faults(schedule):
            return unknown
        schedule.verify()
    except ValueError as error:
        return [str(error)]
    if broken := list(life_faults(schedule)):
        return broken
    faults = [*_flow_faults(schedule), *size_faults(schedule, target), *_plan_faults(schedule)]
    if schedule.target == target.name:
        faults += replanned_faults(schedule, target)
    machines = dict(target.devices)
    for i, d in enumerate(schedule.dispatches):
        is_native = schedule.target == target.name
        one = OneDispatch(i, d, schedule.program, machines.get(d.device, target), is_native)
        faults += [f"dispatch {i} ({d.ops}): {fault}" for fault in one.faults()]
        faults += _body_faults(schedule, i, target, given)
    programs = () if given is None else every_program(given)
    written = tuple(n.attr for p in programs for n in p.nodes)
    faults += device_faults(schedule, target, written)
    for part, machine in by_device(schedule, target):
        faults += _tiling_faults(part, machine, written) + _clone_faults(part, machine)
    return faults + _budget_faults(schedule, target)


# ---- the whole schedule --------------------------------------------------------------------------
def _flow_faults(schedule: Schedule) -> list[str]:
    """Every dispatch reads what is written to memory, and every result is there in the end."""
    program = schedule.program
    there = {*program.inputs, *program.weights, *schedule.ahead}
    faults = []
    for i, d in enumerate(schedule.dispatches):
        faults += [
            f"dispatch {i} reads %{r}, which was not written" for r in d.reads if r not in there
        ]
        there |= set(d.writes)
    bases = [program.behind_views(r) for r in program.results]
    return faults + [f"result %{b} is never written" for b in bases if b not in there]


def _plan_faults(schedule: Schedule) -> list[str]:
    """Every plan computes what its dispatch does: each element once, of all products."""
    messages = []
    for i, d in enumerate(schedule.dispatches):
        try:
            plan = d.plan
            faults = [] if plan is None else plan_faults(nest_in_place(schedule, d), plan)
            messages += [f"dispatch {i} ({d.ops}) has a plan, and {fault}" for fault in faults]
        except NoNest as why:
            messages.append(f"dispatch {i} ({d.ops}) has a plan and no nest: {why}")
    return messages


def _body_faults(
    schedule: Schedule, dispatch: int, target: Target, given: Program | None
) -> list[str]:
    """The bodies of a loop or branch are schedules of their own; budgets are those of the whole."""
    control = schedule.control(schedule.dispatches[dispatch])
    if control is None:
        return []
    broken = [
        f"dispatch {dispatch}, {label}: {fault}"
        for label, body in zip(control.labels, control.schedules, strict=True)
        for fault in faults(body, replace(target, budget=()), given)
    ]
    if any(s.program.weights or s.ahead for s in control.schedules):
        broken.append(f"dispatch {dispatch} computes something from weights in every step")
    return broken


def _clone_faults(schedule: Schedule, target: Target) -> list[str]:
    nodes = schedule.program.nodes
    count = Counter(m for d in schedule.dispatches for m in dict.fromkeys(d.members))
    where = target.place("fusion.clone")
    return [
        f"%{m} ({nodes[m].op}) is computed in {n} dispatches and may not be cloned ({where})"
        for m, n in count.items()
        if n > 1 and not _is_cloneable(nodes[m], target.fusion.clone)
    ]


def _is_cloneable(node: Node, clone: tuple[str, ...]) -> bool:
    what = kind(node.op, node.attr)
    if what in ("leaf", "view"):
        return True
    if what in ("elementwise", "conversion") and ("all" in clone or what in clone):
        return True
    if ("dequantise" in clone and widens(node.attr)) or ("cheap" in clone and is_cheap(node.attr)):
        return True
    if node.op in MOVES and node.op in clone:
        return True
    if what != "elementwise" or not isinstance(node.attr, Generic):
        return False
    bodies = [y.body for y in node.attr.yields]
    if any(b.count() for b in bodies):
        return False
    casts = any(e.fn == "cast" for b in bodies for e in b.walk())
    return ("cast" if casts else "broadcast") in clone


def _budget_faults(schedule: Schedule, target: Target) -> list[str]:
    needs = {
        "time": (schedule.time_ps, "ps"),
        "memory": (schedule.peak_bytes, "bytes"),
        "dispatches": (schedule.kernels, "dispatches"),
        "relayout": (schedule.relayout_bytes, "bytes"),
        "permutes": (schedule.permutes, "permutes"),
        "resident": (schedule.resident_bytes, "bytes"),
        "load_peak": (schedule.load_peak_bytes, "bytes"),
    }
    return [
        f"needs {needs[goal][0]:,} {needs[goal][1]}, the budget is {bound:,}"
        f" ({target.place(f'budget.{goal}')})"
        for goal, bound in target.budget
        if goal in needs and needs[goal][0] > bound  # goals of plug-ins are not known here
    ]


def _tiling_faults(schedule: Schedule, target: Target, written: tuple[object, ...]) -> list[str]:
    """Tiles where there must be some, none where there is no data tiling."""
    nodes, faults = schedule.program.nodes, []
    for m in dict.fromkeys(m for d in schedule.dispatches for m in d.members):
        attr, op = nodes[m].attr, nodes[m].op
        tile = attr.tile if isinstance(attr, Generic) else ()
        if kind(op, attr) == "contraction" and target.tiles_forced and not tile:
            where = target.place("tiles_forced")
            faults.append(f"%{m} is an unpacked contraction, tiles are forced ({where})")
        if target.orders_forced and isinstance(attr, Generic) and not is_in_order(target, attr):
            where = target.place("orders_forced")
            faults.append(f"%{m} reads or writes in another order than its kernel ({where})")
        if isinstance(attr, Generic) and not has_its_rows(target, attr):
            where = target.place("row_padding")
            faults.append(f"%{m} reads rows that are not padded as asked ({where})")
        if target.data_tiling or attr in written:
            continue
        where = target.place("data_tiling")
        if op in _ENCODINGS:
            faults.append(f"%{m} ({op}) is left, the target does no data tiling ({where})")
        if tile:
            text = "x".join(map(str, tile))
            faults.append(f"%{m} is packed by {text}, the target does no data tiling ({where})")
    return faults
