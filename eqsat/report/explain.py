"""Why a program looks as it does: rules behind each choice, the next best, what limits removed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from eqsat.model.compiled import Checked
from eqsat.model.control import Control
from eqsat.model.egraph import AGAIN
from eqsat.model.generic import Result
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.pipelines import PipelineTold
from eqsat.model.printed import Printed
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.selection import (
    CAP,
    REFUSED,
    RESULT_RELATION,
    TIME_LIMIT,
    Group,
    Price,
    Question,
    Removed,
    Selection,
)
from eqsat.report import alternatives
from eqsat.report.alternatives import (
    OtherChoice,
    Placements,
    Prices,
    is_tied,
    other_nodes,
    priced,
    prices_of,
    without_text,
)
from eqsat.report.compiled import checked_kept
from eqsat.report.finished import Finished, by_figures, finished_stages
from eqsat.report.formatting import PS_PER_US, bytes_text, count_text, table_text, time_text
from eqsat.report.mesh import MeshTold
from eqsat.report.names import Names, Questions, RuleStep, chosen_nodes, rule_chain
from eqsat.report.paddedrows import PADDED_COLUMNS, PaddedBuffer, padded_buffers
from eqsat.report.text import execution_lines, order_lines
from eqsat.report.weights import COLUMNS, WeightLives, life_rows, weights_json

_SHOWN = 6  # removed groups listed before "and n more"


@dataclass(frozen=True)
class Choice:
    """One chosen e-node: where it runs, which rules made it, what it reads and could have been."""

    node: int
    text: str
    type: str
    where: str  # "dispatch 2 (…)" | "ahead of time"
    chain: tuple[RuleStep, ...]  # the last rule first; empty: as in the input
    reads: tuple[str, ...]
    alternatives: tuple[OtherChoice, ...]
    is_read: bool = True  # at run time
    holds: tuple[str, ...] = ()  # bodies of a loop or branch, by the names that explain knows
    price: Price | None = None  # of going without this node; ahead of time: without its result
    dispatch: Dispatch | None = None  # that computes it; None: ahead of time

    @property
    def name(self) -> str:
        """The value that it computes."""
        return self.text.split(" = ")[0]

    @property
    def without(self) -> tuple[Question, ...]:
        """The questions for the next best; none for steps on the way to a packed weight."""
        return (Question("without", self.node),) if self.is_read else ()

    @property
    def questions(self) -> tuple[Question, ...]:
        """Everything to ask about it."""
        return (*self.without, *(a.question for a in self.alternatives if a.question))

    def to_json(self) -> dict[str, Any]:
        rules = [{"rule": s.rule, "at": s.at} for s in self.chain]
        return {
            "text": self.text,
            "type": self.type,
            "where": self.where,
            "rules": rules,
            "reads": list(self.reads),
            "holds": list(self.holds),
            "dispatch": None if self.dispatch is None else dispatch_json(self.dispatch),
            "without": self.price and self.price.to_json(),
            "alternatives": [a.to_json() for a in self.alternatives],
        }


def dispatch_json(d: Dispatch) -> dict[str, Any]:
    """The price of a dispatch: its plan and the parts of its time, null where it has none."""
    return {
        "name": d.name,
        "ops": d.ops,
        "time_us": d.time_ps / PS_PER_US,
        "plan": d.plan and d.plan.to_text(),
        "parts": d.parts and d.parts.to_json(),
        "layouts_tie": d.layouts_tie,
        "no_plan": d.no_plan or None,
    }


@dataclass(frozen=True)
class Explanation(Printed):
    """Choices in execution order, and the groups that limits of the target removed."""

    title: str
    goal: str
    choices: tuple[Choice, ...]
    elsewhere: tuple[Choice, ...]  # the same data in other layouts
    removed: tuple[Removed, ...]
    weights: WeightLives | None = None  # of the whole program
    checked: Checked | None = None  # which of several answers a compiler counted best
    notes: tuple[str, ...] = ()  # who runs it; in which order arguments and results lie, and why
    mesh: tuple[MeshTold, ...] = ()  # spreads over a mesh and conversions between them
    padded: tuple[PaddedBuffer, ...] = ()  # buffers in longer rows, of the whole program
    pipelines: tuple[PipelineTold, ...] = ()  # of dispatches: why no other, how full the units are

    def to_text(self) -> str:
        """Plain text for a terminal."""
        checked = [] if self.checked is None else [checked_kept(self.checked)]
        lines = [self.title, *checked, *self.notes, ""]
        priced_before: list[Dispatch] = []  # the price of a dispatch is told once
        for c in self.choices:
            lines += [*choice_lines(c, c.dispatch not in priced_before, folded=self.is_whole), ""]
            priced_before += [c.dispatch] if c.dispatch is not None else []
        if self.elsewhere:
            lines += ["the same data in other layouts", ""]
        for c in self.elsewhere:
            lines += [*choice_lines(c), ""]
        if self.is_whole:
            prices = [(c.name, c.price) for c in self.choices if c.price is not None]
            ties = alternatives.ties_lines(prices, "choice")
            lines += [*ties, ""] if ties else []
        told_mesh = [line for t in self.mesh for line in t.lines()]
        lines += ["on the mesh", *told_mesh, ""] if told_mesh else []
        told = [line for t in self.pipelines for line in t.lines()]
        lines += ["pipelines", *told, ""] if told else []
        padded = [b.cells() for b in self.padded]
        lines += [table_text(PADDED_COLUMNS, padded)] if padded else []
        rows = [] if self.weights is None else life_rows(self.weights)
        if rows:
            lines += ["weights", table_text(COLUMNS, rows)]
        return "\n".join([*lines, *removed_lines(self.removed)]).rstrip() + "\n"

    def rejected(self, schedule: Schedule) -> dict[int, list[str]]:
        """What the values of each dispatch of the run's schedule could have been, by its number."""
        numbers = {id(d): i for i, d in enumerate(schedule.dispatches)}
        texts: dict[int, list[str]] = {}
        for c in self.choices:
            if c.dispatch is not None:
                others = [f"{c.name}: {a.text}" for a in c.alternatives]
                texts.setdefault(numbers[id(c.dispatch)], []).extend(others)
        return texts

    @property
    def is_whole(self) -> bool:
        """Whether it is of the whole program, and not of one value."""
        return self.weights is not None

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints; prices in the solver's integers."""
        return {
            "format": 1,
            "title": self.title,
            "notes": list(self.notes),
            "goal": self.goal,
            "choices": [c.to_json() for c in self.choices],
            "elsewhere": [c.to_json() for c in self.elsewhere],
            "mesh": [t.to_json() for t in self.mesh],
            "padded_rows": [asdict(b) for b in self.padded],
            "pipelines": [t.to_json() for t in self.pipelines],
            "removed": [dict(vars(r)) for r in self.removed],
            "weights": weights_json(self.weights),
            "checked": None if self.checked is None else self.checked.to_json(),
        }


def explained(run: Finished, value: str | None = None, prices: Prices | None = None) -> Explanation:
    """All choices of a run, or those behind one value, dispatch, rule or line of source.

    value: what `report.names` finds, such as `%h.matmul`, `%h@16x16`, `dispatch 3`, a rule's name,
    `mlp.py:12`. prices: asked once, for going without each choice and for all its alternatives.
    Raises EqsatError (E303 nothing is called so, E405 the run stopped before extraction).
    """
    egraph, selection, schedule = finished_stages(run)
    names = Names(egraph, run.canonical)
    goal = run.goals[0].name
    everything = _choices(names, selection, schedule.dispatches)
    if value is None:
        answer = _answer(selection, goal, by_figures(run.target, run.goals))
        title = f"{run.program.name} on {run.target.name}: {answer}"
        (all_choices,) = _priced(prices, everything)
        notes = (*execution_lines(run.execution), *order_lines(run.orders))
        rest = (selection.removed, WeightLives(schedule), run.checked, notes)
        padded = padded_buffers(schedule)
        return Explanation(title, goal, all_choices, (), *rest, padded=padded)
    asked = Questions(run, names, selection, schedule.dispatches).asked(value)
    here = tuple(x for x in everything if x.node in asked.nodes)
    elsewhere, removed = (), ()
    if asked.near is not None:
        same = names.logical[asked.near]
        others = (x for x in everything if x.node not in asked.nodes)
        elsewhere = tuple(x for x in others if names.logical[egraph.nodes[x.node].eclass] == same)
        names_of_value = {
            f"%{name}" for c, name in enumerate(egraph.class_names) if names.logical[c] == same
        }
        removed = tuple(r for r in selection.removed if names_of_value & set(r.what.split()))
    here, elsewhere = _priced(prices, here, elsewhere)
    notes = tuple(order_lines(run.orders, value.removeprefix("%")))
    return Explanation(asked.title, goal, here, elsewhere, removed, notes=notes)


def removed_lines(removed: tuple[Removed, ...]) -> list[str]:
    """Groups that the target's limits excluded, the largest first; then caps of the search."""
    if not removed:
        return []
    cuts = (CAP, TIME_LIMIT)
    most = sorted(removed, key=lambda r: (r.limit_name in cuts, -r.bytes, r.what))
    lines = ["removed by limits"]
    for r in most[:_SHOWN]:
        lines.append(f"  {r.what}" if r.limit_name == REFUSED else f"  {r.what}: {_needs(r)}")
        lines += [f"      {r.place}"] if r.place else []
    return lines + _more(len(most))


def _needs(r: Removed) -> str:
    if r.limit_name == TIME_LIMIT:
        return f"{r.bytes:,} candidates when the time was over, others were not tried"
    if r.limit_name == CAP:
        return f"more than {r.limit:,} candidates, the others were not tried"
    if r.limit_name == RESULT_RELATION:
        return f"writes permuted, {RESULT_RELATION} is identity"
    return f"needs {r.bytes:,} bytes, the {r.limit_name} limit is {r.limit:,}"


def _more(count: int) -> list[str]:
    return [f"  and {count - _SHOWN} more"] if count > _SHOWN else []


def _answer(selection: Selection, goal: str, by: str) -> str:
    result = selection.goal(goal)
    gap = f"at most {result.gap:.1%} from the best" if result.gap else "proven best"
    over = f"{gap} of this e-graph"
    if selection.is_capped or (selection.cuts and not result.gap):
        over = f"{gap} of {selection.among}" if result.gap else selection.claim
    nodes = count_text(len(selection.groups), "dispatch", "dispatches")
    return f"{nodes}, {goal} {over} under this cost model{by} (stop: {selection.stop})"


def _choices(
    names: Names, selection: Selection, dispatches: tuple[Dispatch, ...]
) -> tuple[Choice, ...]:
    nodes = set(chosen_nodes(selection))
    memory = Placements(names, selection)
    choices = [_choice(memory, n, "ahead of time", None, nodes) for n in selection.ahead]
    for i, (g, d) in enumerate(zip(selection.groups, dispatches, strict=True)):
        on = f" on {d.device}" if d.device else ""
        on += f" by {g.pipeline}" if g.pipeline else ""
        label = f", {d.name}" if d.name != d.ops else ""
        where = f"dispatch {i}{label}{on} ({time_text(g.time_ps)})"
        members = [_choice(memory, n, where, g, nodes) for n in g.members]
        choices += [replace(c, dispatch=d) for c in members]
    return tuple(c for c in choices if _is_told(names, c.node))


def _is_told(names: Names, node: int) -> bool:
    """Leaves tell nothing, nor does the result that stands for the scratch of a loop."""
    n, egraph = names.egraph.nodes[node], names.egraph
    if n.op != "result" or not isinstance(n.attr, Result):
        return n.op not in LEAVES
    loops = [egraph.nodes[i].attr for i in egraph.classes[n.children[0]]]
    return all(n.attr.index < len(a.result_types) for a in loops if isinstance(a, Control))


def _held(names: Names, node: int) -> tuple[str, ...]:
    n = names.egraph.nodes[node]
    if not isinstance(n.attr, Control):
        return ()
    loop = names.of(n.eclass).partition(AGAIN)[0]  # its other forms are searched with it
    return tuple(f"{loop}/{label}" for label in n.attr.labels)


def _choice(
    memory: Placements, node: int, where: str, group: Group | None, nodes: set[int]
) -> Choice:
    names = memory.names
    egraph = names.egraph
    n = egraph.nodes[node]
    inside = {names.buffer[egraph.nodes[m].eclass] for m in group.members} if group else set()
    reads = tuple(_read(names, c, names.buffer[c] in inside, group is None) for c in n.children)
    others = other_nodes(names, node, nodes, group is None)
    if group is not None and n.op not in CONVERSIONS | VIEWS:
        others += memory.other_places(node)
    return Choice(
        node,
        f"{names.of(n.eclass)} = {names.node_text(n)}",
        names.type_of(n.eclass),
        where,
        rule_chain(egraph, node),
        tuple(dict.fromkeys(reads)),
        tuple(others),
        group is not None or names.buffer[n.eclass] in memory.read,
        holds=_held(names, node),
    )


def _read(names: Names, c: int, inside: bool, ahead: bool) -> str:
    if ahead:
        return f"{names.of(c)} ahead of time"
    size = sum(t.nbytes for t in names.egraph.types[c])
    return f"{names.of(c)} " + (
        "inside the dispatch" if inside else f"from memory ({bytes_text(size)})"
    )


def _priced(prices: Prices | None, *sets: tuple[Choice, ...]) -> list[tuple[Choice, ...]]:
    """Choices with their prices, if there is a session to ask."""
    if prices is None:
        return list(sets)
    by_question = prices_of([q for choices in sets for c in choices for q in c.questions], prices)
    return [
        tuple(
            replace(
                c,
                price=next((by_question[q] for q in c.without), None),
                alternatives=priced(c.alternatives, by_question),
            )
            for c in choices
        )
        for choices in sets
    ]


def choice_lines(c: Choice, with_price: bool = True, *, folded: bool = False) -> list[str]:
    """A choice told in a terminal; with the price of its dispatch unless that was told before.

    folded: nothing of prices that tie, which are told together.
    """
    lines = [f"{c.text} : {c.type}", f"    in     {c.where}"]
    if with_price and c.dispatch is not None:
        lines += [f"           {line}" for line in c.dispatch.price_lines]
    for i, s in enumerate(c.chain):
        lines.append(f"    {'by' if i == 0 else '  '}     {s.rule}  {s.at}")
    if not c.chain:
        lines.append("    by     the input program")
    else:
        lines.append("    from   the input program")
    lines += [f"    reads  {r}" for r in c.reads]
    lines += [f"    holds  {h}: `eqsat explain DIR {h}` tells why" for h in c.holds]
    if c.price is not None and not (folded and is_tied(c.price)):
        lines.append(f"    next best: {without_text(c.price)}")
    return lines + alternatives.lines(c.alternatives, folded=folded)
