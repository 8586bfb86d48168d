"""egglog's tables → EGraph: classes numbered and typed, every node with the rule that made it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eqsat.model.attr import ShapeError
from eqsat.model.control import Control
from eqsat.model.diag import EqsatError, fail
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.program import Program, infer
from eqsat.model.tensor import TensorType
from eqsat.saturate.encode import EXTRA, INSTEAD_OF, SOURCE_BITS, constructor, value_name

if TYPE_CHECKING:
    from eqsat.saturate.search import Saturation

# op, attribute id, classes of the operands, class, subsumed
Raw = tuple[str, int, tuple[int, ...], int, bool]
Makers = dict[tuple[str, int, tuple[int, ...]], int]


@dataclass(frozen=True)
class Tables:
    """The tables of egglog, with classes as plain numbers; `values[i]` is the class of node i.

    instead_of: the class of a loop with other bodies → that of the loop.
    """

    nodes: list[Raw]
    makers: Makers  # node -> number of the variant that made it and the attribute it matched, or -1
    values: list[int]
    instead_of: dict[int, int]


def tables(run: Saturation) -> Tables:
    """Everything egglog knows about the program."""
    names = {constructor(op, n): op for op, n in run.signatures}
    functions = run.engine.freeze().functions
    to_int = run.engine.value_to_i64
    ids: dict[Any, int] = {}
    nodes: list[Raw] = []
    makers: Makers = {}
    first: set[tuple[str, int, tuple[int, ...]]] = set()
    for name, function in functions.items():
        op = names.get(name.removeprefix("made_").removeprefix("first_"))
        if op is None:
            continue
        for row in function.rows:
            attr, *inner = row.inputs
            attr = to_int(attr)
            if attr == 0:
                continue
            children = tuple(ids.setdefault(c, len(ids)) for c in inner)
            if name.startswith("first_"):
                first.add((op, attr, children))
            elif name.startswith("made_"):
                makers[op, attr, children] = to_int(row.output)
            else:
                cls = ids.setdefault(row.output, len(ids))
                nodes.append((op, attr, children, cls, row.subsumed))
    if run.is_second_stage:
        rules = range(len(run.variants) << SOURCE_BITS)  # what else is known has no stages
        makers = {
            k: by | EXTRA if by in rules and k not in first else by for k, by in makers.items()
        }
    lets = (functions[value_name(i)].rows[0].output for i in range(len(run.program.nodes)))
    pairs = functions[INSTEAD_OF].rows
    instead_of = {ids[row.inputs[0]]: ids[row.inputs[1]] for row in pairs}
    return Tables(nodes, makers, [ids[v] for v in lets], instead_of)


def snapshot(
    run: Saturation, program: Program, database: Tables, rounds: int, stop: str, seconds: float
) -> EGraph:
    """The tables as an e-graph; deterministic: numbered from the input program on."""
    numbers, order = _number(database)
    types = _types(run, program, database, numbers, order)
    renamed = [
        (numbers[cls], attr, op, tuple([numbers[c] for c in children]), i)
        for i, (op, attr, children, cls, _) in enumerate(database.nodes)
    ]
    renamed.sort()
    instead_of = {numbers[c]: numbers[loop] for c, loop in database.instead_of.items()}
    nodes = _nodes(run, database, renamed, instead_of)
    values = tuple(numbers[v] for v in database.values)
    roots = tuple(values[r] for r in program.results)
    stats = _stats(run, nodes)
    return EGraph(
        tuple(nodes), types, roots, values, stats, rounds, stop, seconds, left_out=run.left_out,
        names=program.value_names,
    )  # fmt: skip


def _number(database: Tables) -> tuple[dict[int, int], list[Raw]]:
    """Classes 0, 1, … : those of the program first, then as they are reached from known ones.

    Also the nodes in an order in which each comes after its operands have a number.
    """
    numbers: dict[int, int] = {}
    for v in database.values:
        numbers.setdefault(v, len(numbers))
    missing = [len(set(r[2])) for r in database.nodes]
    readers: dict[int, list[int]] = defaultdict(list)
    for i, r in enumerate(database.nodes):
        for c in set(r[2]):
            readers[c].append(i)
    ready = [i for i, m in enumerate(missing) if not m]
    fresh = list(numbers)
    order: list[Raw] = []
    while fresh or ready:
        for c in fresh:
            for i in readers[c]:
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
        before = len(order)
        order += map(database.nodes.__getitem__, ready)
        new = [r for r in order[before:] if r[3] not in numbers]
        new.sort(key=lambda r: ([numbers[c] for c in r[2]], r[1], r[0]))
        count = len(numbers)
        for r in new:
            numbers.setdefault(r[3], len(numbers))
        fresh, ready = list(numbers)[count:], []
    if len(order) < len(database.nodes):
        raise fail("E901", "the e-graph has a class no term can reach", exit_code=4)
    return numbers, order


def _types(
    run: Saturation, program: Program, database: Tables, numbers: dict[int, int], order: list[Raw]
) -> tuple[tuple[TensorType, ...], ...]:
    """The type of every class; EqsatError (E110) if rules made values of two types equal."""
    ids: dict[tuple[TensorType, ...], int] = {}  # hashing a type is slow, a number is not
    every: list[tuple[TensorType, ...]] = []

    def number(types: tuple[TensorType, ...]) -> int:
        if types not in ids:
            ids[types] = len(every)
            every.append(types)
        return ids[types]

    types: dict[int, int] = {}
    for cls, n in zip(database.values, program.nodes, strict=True):
        t = number(n.types)
        if types.setdefault(cls, t) != t:
            raise _mixed(run, every[types[cls]], n.types)
    number_of: dict[tuple[Any, ...], int] = {}
    for op, attr, children, cls, _ in order:
        key = (op, attr, *[types[c] for c in children])
        t = number_of.get(key)
        if t is None:
            t = number_of[key] = number(_infer(run, op, attr, [every[k] for k in key[2:]]))
        if types.setdefault(cls, t) != t:
            raise _mixed(run, every[types[cls]], every[t])
    return tuple(every[types[c]] for c in numbers)


def _infer(
    run: Saturation, op: str, attr: int, operands: list[tuple[TensorType, ...]]
) -> tuple[TensorType, ...]:
    try:
        return infer(op, run.interner[attr], operands)
    except ShapeError as e:
        raise _blamed(run, str(e)) from e


def _mixed(run: Saturation, one: tuple[TensorType, ...], two: tuple[TensorType, ...]) -> EqsatError:
    shown = " and ".join(", ".join(map(str, t)) for t in (one, two))
    return _blamed(run, f"values of the types {shown} became equal")


def _blamed(run: Saturation, what: str) -> EqsatError:
    """The rules that matched, as one of them must be unsound."""
    names = [r.name for r in run.rules.rules if run.work.matches[r.name]]
    matched = ", ".join(f"`{n}`" for n in names[:8])
    help = "run `eqsat check --test` on their files, or leave them out with `--without`"
    message = f"a rule is unsound: {what}; rules that matched: {matched}"
    return fail("E110", message, help=help, exit_code=1)


# class, attribute id, op, operands, place in the tables
Renamed = tuple[int, int, str, tuple[int, ...], int]


def _nodes(
    run: Saturation, database: Tables, order: list[Renamed], instead_of: Mapping[int, int]
) -> list[ENode]:
    """Nodes in order; each names the node its rule matched: same class, remembered attribute."""
    number = {id(r): i for i, r in enumerate(run.rules.rules)}
    rules = [(number[id(v.rule)], v.rule.left.op) for v in run.variants]
    rules += [
        (len(number) + k, "") for k in range(len(run.equalities))
    ]  # beside them: of the same op
    at: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for i, (cls, attr, op, _, _) in enumerate(order):
        at[cls, attr, op].append(i)
    made_by, sources, extra = [-1] * len(order), [-1] * len(order), [False] * len(order)
    for i, (cls, attr, op, _, place) in enumerate(order):
        by = database.makers.get((op, attr, database.nodes[place][2]), -1)
        if by >= 0:
            made_by[i], matched = rules[(by & ~EXTRA) >> SOURCE_BITS]
            extra[i] = bool(by & EXTRA)
            home = cls if matched else instead_of.get(cls, cls)
            source = by & ((1 << SOURCE_BITS) - 1)
            loop = run.interner[source] if source and not matched else None
            was = loop.op if isinstance(loop, Control) else matched or op
            fitting = at.get((home, source, was), ())
            sources[i] = next((j for j in fitting if j != i), -1)
    _cut_cycles(sources)
    return [
        ENode(op, run.interner[attr], inner, cls, by, source, database.nodes[place][4], late)
        for (cls, attr, op, inner, place), by, source, late in zip(
            order, made_by, sources, extra, strict=True
        )
    ]


def _cut_cycles(sources: list[int]) -> None:
    """Attributes do not always tell two matched nodes apart: what leads back to itself ends."""
    seen: dict[int, int] = {}  # node -> the start it was reached from
    for start in range(len(sources)):
        i = last = start
        while i >= 0 and i not in seen:
            seen[i], last, i = start, i, sources[i]
        if i >= 0 and seen[i] == start and last != i:
            sources[last] = -1


def _stats(run: Saturation, nodes: list[ENode]) -> tuple[RuleStat, ...]:
    node_counts = Counter(n.rule for n in nodes)
    work = run.work
    stats = [
        RuleStat(
            r.name,
            r.at,
            r.doc,
            work.matches[r.name],
            node_counts[i],
            round(work.seconds[r.name], 6),
        )
        for i, r in enumerate(run.rules.rules)
    ]
    for facts in run.equalities:
        count = node_counts[len(stats)]
        stats.append(RuleStat(facts.rule, "", facts.doc, count, count, 0.0))
    return tuple(stats)
