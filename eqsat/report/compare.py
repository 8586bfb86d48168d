"""What differs between two extracted programs, and the rules behind each difference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from eqsat.model.egraph import EGraph
from eqsat.model.leaves import Leaf
from eqsat.model.schedule import Schedule
from eqsat.model.selection import Selection
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.origins import Names, RuleStep, op_word, rule_chain
from eqsat.report.units import bytes_text, time_text


@dataclass(frozen=True)
class Side:
    """One of the two programs: its schedule and, for names and rules, where it came from."""

    name: str
    names: Names
    selection: Selection
    schedule: Schedule

    @property
    def egraph(self) -> EGraph:
        return self.names.egraph


@dataclass(frozen=True)
class ComparedDispatch:
    """One dispatch as the comparison sees it."""

    number: int
    key: tuple[str, ...]  # logical values it writes (or, for different inputs, what it computes)
    ops: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    nbytes: int
    time_ps: int
    rules: tuple[tuple[str, str], ...]  # name, place

    def line(self) -> str:
        return f"{' + '.join(self.ops)}  ({bytes_text(self.nbytes)}, {time_text(self.time_ps)})"


@dataclass(frozen=True)
class Difference:
    """A dispatch of one side, of both but unlike, or the layouts of a value."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    rules_a: tuple[tuple[str, str], ...] = ()
    rules_b: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Facts as (name, a, b) in raw integers, and the differences in execution order."""

    names: tuple[str, str]
    same_input: bool
    facts: tuple[tuple[str, int, int], ...]
    dispatches: tuple[Difference, ...]
    layouts: tuple[Difference, ...]
    same: int  # dispatches equal on both sides
    settings: tuple[tuple[str, str, str], ...] = field(default=())

    def to_text(self) -> str:
        """Plain text for a terminal."""
        lines = _heading(self)
        for title, found in (("dispatches", self.dispatches), ("layouts", self.layouts)):
            if found:
                lines += ["", title]
            for d in found:
                lines += difference_lines(d, self.names)
        if not self.dispatches and not self.layouts:
            lines += ["", "the two programs do the same work in the same layouts"]
        return "\n".join(lines) + "\n"

    __str__ = to_text

    def to_json(self) -> dict[str, Any]:
        """A plain dict for `--output-format json`."""
        return {
            "format": 1,
            "names": list(self.names),
            "same_input": self.same_input,
            "settings": {k: [a, b] for k, a, b in self.settings},
            "facts": {k: [a, b] for k, a, b in self.facts},
            "same_dispatches": self.same,
            "dispatches": [vars(d) for d in self.dispatches],
            "layouts": [vars(d) for d in self.layouts],
        }


def compare_runs(a: Finished, b: Finished, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Two runs of equal or different inputs; EqsatError (E405) if one stopped early."""
    sides = []
    for run, name in zip((a, b), names, strict=True):
        egraph, selection, schedule = finished_stages(run)
        sides.append(Side(name, Names(egraph, run.canonical), selection, schedule))
    settings = tuple(
        (what, x, y)
        for what, x, y in (
            ("program", a.program.name, b.program.name),
            ("target", a.target.name, b.target.name),
            ("rules", a.rules.name, b.rules.name),
            ("goals", _goals(a), _goals(b)),
        )
        if x != y
    )
    return compare_schedules(sides[0], sides[1], settings)


def compare_schedules(
    a: Side, b: Side, settings: tuple[tuple[str, str, str], ...] = ()
) -> Comparison:
    """Dispatches matched by the logical values they write, layouts per value.

    Values of equal input programs are matched by name; for different inputs a dispatch is matched
    by the kind and shapes of what it computes, and layouts are not compared.
    """
    same_input = a.names.program == b.names.program
    works = [_works(s, same_input) for s in (a, b)]
    dispatches, same = _match(*works)
    layouts = _layouts(a, b) if same_input else ()
    facts = tuple(
        (k, x, y) for (k, x), (_, y) in zip(_facts(a.schedule), _facts(b.schedule), strict=True)
    )
    return Comparison(
        (a.name, b.name), same_input, facts, dispatches, layouts, same, settings
    )  # fmt: skip


def _goals(run: Finished) -> str:
    return ", ".join(g.name if g.weight is None else f"{g.name}:{g.weight:g}" for g in run.goals)


def _facts(s: Schedule) -> list[tuple[str, int]]:
    return [
        ("time_ps", s.time_ps),
        ("peak_bytes", s.peak_bytes),
        ("bytes_moved", s.bytes_moved),
        ("relayout_bytes", s.relayout_bytes),
        ("resident_bytes", s.resident_bytes),
        *sorted(s.counts().items()),
    ]


def _works(side: Side, by_value: bool) -> list[ComparedDispatch]:
    return [_work(side, i, by_value) for i in range(len(side.selection.groups))]


def _work(side: Side, number: int, by_value: bool) -> ComparedDispatch:
    egraph, names = side.egraph, side.names
    group = side.selection.groups[number]
    nodes = [egraph.nodes[m] for m in group.members]
    ops = tuple(n.attr.name if isinstance(n.attr, Leaf) else op_word(n) for n in nodes)
    writes = tuple(names.of(c) for c in group.writes)
    key = (
        tuple(sorted({names.logical_name(c) for c in group.writes}))
        if by_value
        else (*sorted(ops), *(names.type_of(c) for c in group.writes))
    )
    traffic = sum(t.nbytes for c in (*group.reads, *group.writes) for t in egraph.types[c])
    steps = [s for m in group.members for s in rule_chain(egraph, m)]
    reads = tuple(_placed(names, c) for c in group.reads)
    return ComparedDispatch(number, key, ops, reads, writes, traffic, group.time_ps, _named(steps))


def _placed(names: Names, c: int) -> str:
    return f"{names.logical_name(c)} as {names.type_of(c)}"


def _named(steps: list[RuleStep]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((s.rule, s.at) for s in steps))


def _match(
    a: list[ComparedDispatch], b: list[ComparedDispatch]
) -> tuple[tuple[Difference, ...], int]:
    """Dispatches that write the same values face each other; equal ones are only counted."""
    keys = list(dict.fromkeys(w.key for w in (*a, *b)))
    found: list[Difference] = []
    same = 0
    for key in keys:
        left, right = [w for w in a if w.key == key], [w for w in b if w.key == key]
        x, y = Counter(map(_essence, left)), Counter(map(_essence, right))
        same += (x & y).total()
        left, right = _rest(left, y), _rest(right, x)
        if left or right:
            found.append(_unlike(key, left, right))
    return tuple(found), same


def _essence(w: ComparedDispatch) -> tuple[object, ...]:
    return (tuple(sorted(w.ops)), tuple(sorted(w.reads)), tuple(sorted(w.writes)))


def _rest(
    works: list[ComparedDispatch], other: Counter[tuple[object, ...]]
) -> list[ComparedDispatch]:
    left = Counter(other)
    rest = []
    for w in works:
        if left[_essence(w)]:
            left[_essence(w)] -= 1
        else:
            rest.append(w)
    return rest


def _unlike(
    key: tuple[str, ...], left: list[ComparedDispatch], right: list[ComparedDispatch]
) -> Difference:
    return Difference(
        "writes " + ", ".join(key),
        tuple(w.line() for w in left),
        tuple(w.line() for w in right),
        _only(left, right),
        _only(right, left),
    )


def _only(
    these: list[ComparedDispatch], others: list[ComparedDispatch]
) -> tuple[tuple[str, str], ...]:
    known = {r for w in others for r in w.rules}
    return tuple(dict.fromkeys(r for w in these for r in w.rules if r not in known))


def _layouts(a: Side, b: Side) -> tuple[Difference, ...]:
    x, y = _stored(a), _stored(b)
    found = []
    for value in sorted(set(x) | set(y), key=_value_order):
        left, right = sorted(set(x.get(value, ()))), sorted(set(y.get(value, ())))
        if left != right:
            rules = [_makers(s, value) for s in (a, b)]
            only = [tuple(r for r in rules[i] if r not in rules[1 - i]) for i in (0, 1)]
            found.append(Difference(value, tuple(left), tuple(right), only[0], only[1]))
    return tuple(found)


def _value_order(name: str) -> tuple[int, str]:
    return (int(name[1:]), "") if name[1:].isdigit() and name[0] == "%" else (-1, name)


def _stored(side: Side) -> dict[str, list[str]]:
    """Logical value → types of its buffers at dispatch borders."""
    found: dict[str, list[str]] = {}
    for c in _buffers(side.selection):
        found.setdefault(side.names.logical_name(c), []).append(side.names.type_of(c))
    return found


def _buffers(selection: Selection) -> tuple[int, ...]:
    return tuple(dict.fromkeys(c for g in selection.groups for c in (*g.reads, *g.writes)))


def _makers(side: Side, value: str) -> tuple[tuple[str, str], ...]:
    """Rules of the chosen nodes that write this value's buffers."""
    names, egraph = side.names, side.egraph
    nodes = [*side.selection.ahead, *(m for g in side.selection.groups for m in g.members)]
    mine = [n for n in nodes if names.logical_name(egraph.nodes[n].eclass) == value]
    return _named([s for n in mine for s in rule_chain(egraph, n)])


def _heading(c: Comparison) -> list[str]:
    a, b = c.names
    lines = [f"comparing {a} and {b}"]
    lines += [f"  {what}: {x} and {y}" for what, x, y in c.settings]
    if not c.same_input:
        lines.append("  the inputs differ: dispatches are matched by what they compute")
    width = max(len(a), len(b), 12)
    lines += ["", f"{'':18}{a:>{width}}{b:>{width + 2}}"]
    for name, x, y in c.facts:
        note = "" if x == y else "   differs"
        lines.append(
            f"{_label(name):18}{_fact(name, x):>{width}}{_fact(name, y):>{width + 2}}{note}"
        )
    return [*lines, "", f"{c.same} dispatches are the same"]


def _label(name: str) -> str:
    return "time" if name == "time_ps" else name.replace("_", " ")


def _fact(name: str, value: int) -> str:
    if name == "time_ps":
        return time_text(value)
    is_size = name.endswith("_bytes") or name == "bytes_moved"
    return bytes_text(value) if is_size else f"{value:,}"


def difference_lines(d: Difference, names: tuple[str, str]) -> list[str]:
    lines = [f"  {d.what}"]
    sides = ((names[0], d.a, d.rules_a), (names[1], d.b, d.rules_b))
    for name, found, rules in sides:
        lines += [f"    {name}: {text}" for text in found or ("nothing",)]
        lines += [f"        by {rule}  {at}" for rule, at in rules]
    return lines
