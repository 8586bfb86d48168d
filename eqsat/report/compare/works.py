"""The dispatches of a run as a comparison sees them: values by the names of the program."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.classnames import AT
from eqsat.model.layout import ROW_MAJOR
from eqsat.model.leaves import Leaf
from eqsat.model.ops import CONVERSIONS, LEAVES
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.origins import Names, op_word, rule_chain

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
    found = []
    pairs = zip(selection.groups, schedule.dispatches, strict=True)
    for i, (group, dispatch) in enumerate(pairs):
        nodes = [egraph.nodes[m] for m in group.members if egraph.nodes[m].op not in LEAVES]
        reads = tuple(_held(names, c) for c in group.reads)
        writes = tuple(_held(names, c) for c in group.writes)
        steps = [s for m in group.members for s in rule_chain(egraph, m)]
        found.append(
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
    return found


def _held(names: Names, c: int) -> Held:
    """layout: what stands behind the name of the class; arguments and weights have no other."""
    node = names.egraph.nodes[names.egraph.classes[c][0]]
    name, _, layout = names.of(c).partition(AT)
    if isinstance(node.attr, Leaf):
        name, layout = node.attr.name, ""
    nbytes = sum(t.nbytes for t in names.egraph.types[c])
    return Held(names.logical_name(c), name, layout or ROW_MAJOR, names.type_of(c), nbytes)
