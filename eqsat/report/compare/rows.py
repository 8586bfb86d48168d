"""Dispatches of two programs in rows: those that write the same values face each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eqsat.model.egraph import AT
from eqsat.model.layout import ROW_MAJOR
from eqsat.model.leaves import Leaf
from eqsat.model.ops import CONVERSIONS, LEAVES
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.names import Names, op_word, rule_chain


@dataclass(frozen=True)
class Unlike:
    """One thing that is another one in b. value: at the border, "" for ops inside."""

    what: str  # `16x16 → row-major`, `− pack`
    value: str = ""
    verb: str = ""  # reads | writes, with `also` or `no longer`


@dataclass(frozen=True)
class AlignedRow:
    """A dispatch of either side, or one of each that do the same; and how they differ.

    changes: empty if both are alike. inside: the dispatch of the other side that computes what this
    one writes, if there is none to face it.
    """

    a: ComparedWork | None
    b: ComparedWork | None
    changes: tuple[Unlike, ...] = ()
    inside: ComparedWork | None = None

    @property
    def is_same(self) -> bool:
        """Equal ops on equal buffers."""
        return self.a is not None and self.b is not None and not self.changes

    @property
    def time_ps(self) -> int:
        """The time that b takes more than a."""
        return (self.b.time_ps if self.b else 0) - (self.a.time_ps if self.a else 0)

    @property
    def nbytes(self) -> int:
        """The bytes that b moves more than a."""
        return (self.b.nbytes if self.b else 0) - (self.a.nbytes if self.a else 0)

    @property
    def key(self) -> tuple[str, ...]:
        """The values it writes: what the row is called in other comparisons of the program."""
        work = self.b or self.a
        assert work is not None
        return tuple(sorted({h.value for h in work.writes}))

    @property
    def name(self) -> str:
        """The name of the dispatch, in b if both have one."""
        work = self.b or self.a
        assert work is not None
        return work.name

    @property
    def kind(self) -> tuple[object, ...]:
        """The key of a difference: equal for rows that differ alike, as those of equal layers."""
        works = tuple(w and (w.text, w.time_ps, w.nbytes) for w in (self.a, self.b))
        return works, tuple(sorted((c.verb, c.what) for c in self.changes)), self.rules

    @property
    def changes_text(self) -> tuple[str, ...]:
        """The changes in words; values that change alike share a line."""
        by_change: dict[tuple[str, str], list[str]] = {}
        for c in self.changes:
            by_change.setdefault((c.verb, c.what), []).append(c.value)
        return tuple(
            f"{verb} {', '.join(values)}: {what}" if verb else what + _times(len(values))
            for (verb, what), values in by_change.items()
        )

    @property
    def rules(self) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """Rules behind a alone, and behind b alone."""
        x, y = (w.rules if w else () for w in (self.a, self.b))
        return tuple(r for r in x if r not in y), tuple(r for r in y if r not in x)


def _times(count: int) -> str:
    return f" ×{count}" if count > 1 else ""


def aligned(
    a: Sequence[ComparedWork], b: Sequence[ComparedWork], by_value: bool
) -> tuple[AlignedRow, ...]:
    """All dispatches of both in the order of b, those of a alone where they run in a.

    by_value: both are of one program, so dispatches are matched by the values that they write;
    else by what they compute, in order.
    """
    partner = _partners(a, b, by_value)
    left = {j: i for i, j in partner.items()}
    waiting = [w for w in a if w.number not in partner]
    rows: list[AlignedRow] = []
    for work in b:
        i = left.get(work.number)
        while waiting and i is not None and waiting[0].number < i:
            rows.append(_alone(waiting.pop(0), b, True))
        if i is None:
            rows.append(_alone(work, a, False))
        else:
            rows.append(AlignedRow(a[i], work, tuple(_changes(a[i], work, by_value))))
    return (*rows, *(_alone(w, b, True) for w in waiting))


def _alone(work: ComparedWork, others: Sequence[ComparedWork], is_a: bool) -> AlignedRow:
    """A dispatch that nothing faces, and the one that computes its value on the other side."""
    wanted = {h.value for h in work.writes}
    inside = next((o for o in others if wanted & o.computes), None)
    return AlignedRow(work, None, (), inside) if is_a else AlignedRow(None, work, (), inside)


def _partners(
    a: Sequence[ComparedWork], b: Sequence[ComparedWork], by_value: bool
) -> dict[int, int]:
    """Numbers of a to numbers of b; equal writes first, then equal values, then shared ones."""
    pairs: dict[int, int] = {}
    keys = (_written, _values, _value) if by_value else (_computed,)
    for key in keys:
        free: dict[object, list[int]] = {}
        for w in b:
            if w.number not in pairs.values():
                free.setdefault(key(w), []).append(w.number)
        for w in a:
            if w.number not in pairs and free.get(key(w)):
                pairs[w.number] = free[key(w)].pop(0)
    return pairs


def _written(w: ComparedWork) -> object:
    return tuple(sorted((h.value, h.layout) for h in w.writes)), w.text


def _values(w: ComparedWork) -> object:
    return tuple(sorted({h.value for h in w.writes}))


def _value(w: ComparedWork) -> object:
    """The result of the dispatch itself: its last write."""
    return w.writes[-1].value if w.writes else w.name


def _computed(w: ComparedWork) -> object:
    return tuple(sorted(w.ops)), tuple(sorted(h.type for h in w.writes))


# ---- what is another one -------------------------------------------------------------------------
def _changes(a: ComparedWork, b: ComparedWork, by_value: bool) -> Iterator[Unlike]:
    if by_value:
        yield from _layouts("writes", a.writes, b.writes)
        yield from _layouts("reads", a.reads, b.reads)
    yield from _counts(a.conversions, b.conversions)
    yield from _counts(a.ops, b.ops)


def _layouts(verb: str, a: Sequence[Held], b: Sequence[Held]) -> Iterator[Unlike]:
    """`writes %h: row-major → 16x16`; a value that only one side has is told as well."""
    for value in dict.fromkeys(h.value for h in (*a, *b)):
        x, y = ([h.layout for h in side if h.value == value] for side in (a, b))
        if Counter(x) == Counter(y):
            continue
        names = {h.name for h in (*a, *b) if h.value == value}
        name = names.pop() if len(names) == 1 else value
        if not x:
            yield Unlike(", ".join(y), name, f"also {verb}")
        elif not y:
            yield Unlike(", ".join(x), name, f"no longer {verb}")
        else:
            yield Unlike(f"{', '.join(x)} → {', '.join(y)}", name, verb)


def _counts(a: Sequence[str], b: Sequence[str]) -> Iterator[Unlike]:
    """`+ pack`, `− unpack`; of an op in another form both: `contraction → contraction 16x16x1`."""
    x, y = Counter(a), Counter(b)
    gone, new = list((x - y).elements()), list((y - x).elements())
    for word in list(gone):
        other = next((n for n in new if n.split()[0] == word.split()[0]), None)
        if other is not None:
            gone.remove(word)
            new.remove(other)
            yield Unlike(f"{word} → {other}")
    yield from (Unlike(f"− {word}") for word in gone)
    yield from (Unlike(f"+ {word}") for word in new)


# ---- dispatches as a comparison sees them --------------------------------------------------------
Place = tuple[str, str]  # a rule, and file:line:column of it


@dataclass(frozen=True)
class Held:
    """A value in memory at the border of a dispatch.

    value: the first value of the program with its data, in whatever order. name: its own, without
    the layout.
    """

    value: str
    name: str
    layout: str  # `16x16`, `t1.0`; row-major: as the program has it
    type: str
    nbytes: int


@dataclass(frozen=True)
class ComparedWork:
    """One dispatch. computes: values that its ops compute, in memory or not."""

    number: int
    name: str
    ops: tuple[str, ...]  # what computes, as words
    conversions: tuple[str, ...]  # packs, unpacks and transposes inside
    computes: frozenset[str]
    reads: tuple[Held, ...]
    writes: tuple[Held, ...]
    time_ps: int
    nbytes: int  # read and written at its border
    bound: str  # what its time is bound by, where the target has plans
    rules: tuple[Place, ...]

    @property
    def text(self) -> str:
        """Its ops, conversions included."""
        return " + ".join((*self.conversions, *self.ops)) or "copy"


def works_of(run: Finished) -> list[ComparedWork]:
    """Every dispatch in the order of execution; EqsatError (E405) if the run stopped before."""
    egraph, selection, schedule = finished_stages(run)
    names = Names(egraph, run.canonical)
    works = []
    pairs = zip(selection.groups, schedule.dispatches, strict=True)
    for i, (group, dispatch) in enumerate(pairs):
        nodes = [egraph.nodes[m] for m in group.members if egraph.nodes[m].op not in LEAVES]
        reads = tuple(_held(names, c) for c in group.reads)
        writes = tuple(_held(names, c) for c in group.writes)
        steps = [s for m in group.members for s in rule_chain(egraph, m)]
        works.append(
            ComparedWork(
                number=i,
                name=dispatch.name or f"dispatch {i}",
                ops=tuple(op_word(n) for n in nodes if n.op not in CONVERSIONS),
                conversions=tuple(op_word(n) for n in nodes if n.op in CONVERSIONS),
                computes=frozenset(names.logical_name(n.eclass) for n in nodes),
                reads=reads,
                writes=writes,
                time_ps=dispatch.time_ps,
                nbytes=sum(h.nbytes for h in (*reads, *writes)),
                bound=dispatch.bound_text,
                rules=tuple(dict.fromkeys((s.rule, s.at) for s in steps)),
            )
        )
    return works


def _held(names: Names, c: int) -> Held:
    """layout: what stands behind the name of the class; arguments and weights have no other."""
    node = names.egraph.nodes[names.egraph.classes[c][0]]
    name, _, layout = names.of(c).partition(AT)
    if isinstance(node.attr, Leaf):
        name, layout = node.attr.name, ""
    nbytes = sum(t.nbytes for t in names.egraph.types[c])
    return Held(names.logical_name(c), name, layout or ROW_MAJOR, names.type_of(c), nbytes)
