"""Why a program looks as it does: rules behind each choice, the next best, what limits removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqsat.model.attrs import LEAVES
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.egraph import EGraph
from eqsat.model.selection import Group, Removed, Selection
from eqsat.report.finished import Finished, chosen
from eqsat.report.origins import Names, Step, chosen_nodes, rule_chain
from eqsat.report.units import bytes_text, count_text, delta_text, time_text

Price = Callable[[int], int | None]
_SHOWN = 6  # alternatives and removed groups listed before "and n more"


@dataclass(frozen=True)
class Alternative:
    """Another node of the same class, which the search did not take."""

    text: str
    chain: tuple[Step, ...]
    subsumed: bool  # given up by a rule with `apply: replace`


@dataclass(frozen=True)
class Choice:
    """One chosen e-node: where it runs, which rules made it, what it reads and could have been."""

    node: int
    text: str
    type: str
    where: str  # "dispatch 2 (…)" | "ahead of time"
    chain: tuple[Step, ...]  # the last rule first; empty: as in the input
    reads: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    priced: bool = False
    price: int | None = None  # first goal without this node, minus the chosen value


@dataclass(frozen=True)
class Explanation:
    """Choices in execution order, and the groups that limits of the target removed."""

    title: str
    goal: str
    choices: tuple[Choice, ...]
    elsewhere: tuple[Choice, ...]  # the same data in other layouts
    removed: tuple[Removed, ...]

    def to_text(self) -> str:
        """Plain text for a terminal."""
        lines = [self.title, ""]
        for c in self.choices:
            lines += [*_choice_lines(c, self.goal), ""]
        if self.elsewhere:
            lines += ["the same data in other layouts", ""]
        for c in self.elsewhere:
            lines += [*_choice_lines(c, self.goal), ""]
        return "\n".join([*lines, *removed_lines(self.removed)]).rstrip() + "\n"

    __str__ = to_text


def explain(run: Finished, value: str | None = None, price: Price | None = None) -> Explanation:
    """All choices of a run, or those behind one value (`%5`, a leaf's name).

    price: e-node → first goal's increase if this node were forbidden, None if nothing admissible
    is left; asked only when a value is named, as each price is another search. Raises EqsatError
    (E303 no such value, E405 the run stopped before extraction).
    """
    egraph, selection, _ = chosen(run)
    names = Names(egraph, run.canonical)
    goal = run.goals[0].name
    everything = _choices(names, selection)
    if value is None:
        title = f"{run.program.name} on {run.target.name}: {_answer(selection, goal)}"
        return Explanation(title, goal, everything, (), selection.removed)
    number = _value_number(names, value)
    c = egraph.values[number]
    here = tuple(x for x in everything if egraph.nodes[x.node].eclass == c)
    same = names.logical[c]
    elsewhere = tuple(
        x
        for x in everything
        if egraph.nodes[x.node].eclass != c and names.logical[egraph.nodes[x.node].eclass] == same
    )
    if price is not None:
        here = tuple(_priced(x, price) for x in here)
        elsewhere = tuple(_priced(x, price) if x.alternatives else x for x in elsewhere)
    known = {names.value_name(i) for i, v in enumerate(egraph.values) if names.logical[v] == same}
    removed = tuple(r for r in selection.removed if known & set(r.what.split()))
    title = _value_title(names, selection, number, bool(here))
    return Explanation(title, goal, here, elsewhere, removed)


def removed_lines(removed: tuple[Removed, ...]) -> list[str]:
    """What limits of the target took out of the search, the largest first."""
    if not removed:
        return []
    most = sorted(removed, key=lambda r: (-r.bytes, r.what))
    lines = ["removed by limits"]
    for r in most[:_SHOWN]:
        size = f"{r.bytes:,} bytes" if r.limit_name != "operands" else f"{r.bytes} operands"
        lines.append(f"  {r.what}: needs {size}, the {r.limit_name} limit is {r.limit:,}")
        lines.append(f"      {r.place}")
    return lines + _more(len(most))


def _more(count: int) -> list[str]:
    return [f"  and {count - _SHOWN} more"] if count > _SHOWN else []


def _answer(selection: Selection, goal: str) -> str:
    found = selection.goal(goal)
    gap = "proven best" if found.gap == 0 else f"at most {found.gap:.1%} from the best"
    nodes = count_text(len(selection.groups), "dispatch", "dispatches")
    return f"{nodes}, {goal} {gap} of this e-graph under this cost model (stop: {selection.stop})"


def _value_number(names: Names, value: str) -> int:
    known = {names.value_name(i): i for i in reversed(range(len(names.program.nodes)))}
    known |= {f"%{i}": i for i in range(len(names.program.nodes))}
    text = value if value in known else f"%{value}"
    if text not in known:
        raise fail(
            "E303", f"the program has no value `{value}`", help=did_you_mean(value, list(known))
        )
    return known[text]


def _value_title(names: Names, selection: Selection, number: int, computed: bool) -> str:
    egraph, node = names.egraph, names.program.nodes[number]
    c = egraph.values[number]
    head = f"{names.value_name(number)}: {node.op} : {', '.join(map(str, node.types))}"
    if node.op in LEAVES and not computed:
        return f"{head}, an {node.op}" if node.op == "input" else f"{head}, a {node.op}"
    kept = [i for i, g in enumerate(selection.groups) if c in g.writes]
    if kept:
        return f"{head}, written to memory by dispatch {kept[0]}"
    if computed:
        return f"{head}, lives inside a dispatch only"
    return f"{head}, never computed in this form: its users read the data in another form"


def _choices(names: Names, selection: Selection) -> tuple[Choice, ...]:
    egraph = names.egraph
    nodes = set(chosen_nodes(selection))
    found = [_choice(names, n, "ahead of time", None, nodes) for n in selection.ahead]
    for i, g in enumerate(selection.groups):
        where = f"dispatch {i} ({time_text(g.time_ps)})"
        found += [_choice(names, n, where, g, nodes) for n in g.members]
    return tuple(c for c in found if egraph.nodes[c.node].op not in LEAVES)


def _choice(names: Names, node: int, where: str, group: Group | None, nodes: set[int]) -> Choice:
    egraph = names.egraph
    n = egraph.nodes[node]
    inside = {egraph.nodes[m].eclass for m in group.members} if group else set()
    reads = tuple(_read(names, c, c in inside, group is None) for c in n.children)
    others = tuple(
        Alternative(names.node_text(egraph.nodes[i]), rule_chain(egraph, i), _given_up(egraph, i))
        for i in egraph.classes[n.eclass]
        if i != node and i not in nodes
    )
    return Choice(
        node,
        f"{names.of(n.eclass)} = {names.node_text(n)}",
        names.type_of(n.eclass),
        where,
        rule_chain(egraph, node),
        tuple(dict.fromkeys(reads)),
        others,
    )


def _given_up(egraph: EGraph, node: int) -> bool:
    return egraph.nodes[node].subsumed


def _read(names: Names, c: int, inside: bool, ahead: bool) -> str:
    if ahead:
        return f"{names.of(c)} ahead of time"
    size = sum(t.nbytes for t in names.egraph.types[c])
    return f"{names.of(c)} " + (
        "inside the dispatch" if inside else f"from memory ({bytes_text(size)})"
    )


def _priced(choice: Choice, price: Price) -> Choice:
    values = {**vars(choice), "priced": True, "price": price(choice.node)}
    return Choice(**values)


def _choice_lines(c: Choice, goal: str) -> list[str]:
    lines = [f"{c.text} : {c.type}", f"    in     {c.where}"]
    for i, s in enumerate(c.chain):
        lines.append(f"    {'by' if i == 0 else '  '}     {s.rule}  {s.at}")
    if not c.chain:
        lines.append("    by     the input program")
    else:
        lines.append("    from   the input program")
    lines += [f"    reads  {r}" for r in c.reads]
    if c.priced:
        lines.append(f"    next best: {_price_text(c.price, goal)}")
    for a in c.alternatives[:_SHOWN]:
        by = a.chain[0].rule if a.chain else "the input program"
        lines.append(f"    or     {a.text}  ({by}{', given up by a rule' if a.subsumed else ''})")
    if len(c.alternatives) > _SHOWN:
        lines.append(f"    and {len(c.alternatives) - _SHOWN} more")
    return lines


def _price_text(price: int | None, goal: str) -> str:
    if price is None:
        return "none, no admissible program goes without it"
    if price <= 0:
        return f"another program of equal {goal} goes without it"
    return f"{delta_text(goal, price)} {goal} without it"
