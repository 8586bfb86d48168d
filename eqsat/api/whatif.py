"""What-if questions: a finished run without some of its rules, or with a value kept in a layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.api.again import searched_again
from eqsat.lang.borders import read_layout
from eqsat.model.diag import EqsatError, did_you_mean, fail
from eqsat.model.egraph import AT, ENode
from eqsat.model.layout import ROW_MAJOR, Layout
from eqsat.model.movement import Transpose
from eqsat.model.printed import Printed
from eqsat.model.selection import EXACT, NOT_ADMISSIBLE, Price, Question
from eqsat.model.tensor import TensorType
from eqsat.report.alternatives import price_text
from eqsat.report.compare import Comparison, compare_runs
from eqsat.report.explain import removed_lines
from eqsat.report.finished import by_figures, claim_text, finished_stages
from eqsat.report.formatting import delta_text, goal_text, table_text
from eqsat.report.mesh import counts_text, mesh_claim
from eqsat.report.names import Names, asked_value
from eqsat.report.state import layout_word
from eqsat.run import Run
from eqsat.run.phases import schedule_of

NOTHING_MATCHED = "no rule that is left out matches anything in this e-graph"
NOTHING_ADMISSIBLE = 3  # exit code of an error: no program is admissible, or none was found
GOALS = ("time", "memory", "dispatches")  # what is told of every answer


@dataclass(frozen=True)
class WhatIf(Printed):
    """A run before and after a change, `asked`; `after` is None if there is no program then.

    notes: further remarks, a sentence each.
    """

    asked: str
    before: Run
    after: Run | None
    notes: tuple[str, ...] = ()
    price: Price | None = None  # of a forced choice, in the first goal

    @property
    def comparison(self) -> Comparison | None:
        """The differences between the two programs."""
        if self.after is None:
            return None
        return compare_runs(self.before, self.after, ("as it is", "then"))

    def figures(self) -> list[tuple[str, int, int | None]]:
        """(goal, as it is, then) for every goal that is reported; None: there is no program."""
        _, selection, _ = finished_stages(self.before)
        other = None if self.after is None else finished_stages(self.after)[1]
        present = dict(selection.goals)
        names = dict.fromkeys([*(g.name for g in self.before.goals), *GOALS])
        there = dict(other.goals) if other is not None else {}
        return [
            (n, present[n].value, there[n].value if n in there else None)
            for n in names
            if n in present
        ]

    def to_text(self) -> str:
        """Figures beside each other, what is proven of them, and the dispatches that differ."""
        head = f"{self.before.program.name} on {self.before.target.name} {self.asked}"
        lines = [head, "", *(table_text(_COLUMNS, [_row(f) for f in self.figures()]).splitlines())]
        lines += [self._proof(), *self.notes] if self.after is not None else list(self.notes)
        comparison = self.comparison
        if comparison is not None:
            lines += ["", *_differences(comparison)]
        return "\n".join(lines).rstrip() + "\n"

    def _proof(self) -> str:
        assert self.after is not None
        assert self.before.selection is not None
        assert self.after.selection is not None
        before, by = _claim(self.before), by_figures(self.before.target, self.before.goals)
        if self.price is not None:
            basis = "" if by in before else by  # once in a line
            proof = f"proven{basis}" if self.price.status == EXACT else "not proven"
            return f"as it is: {before}; the best program so: {price_text(self.price)}, {proof}"
        return f"as it is: {before}; then: {_claim(self.after)}"

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints; figures in ps, bytes and counts."""
        comparison = self.comparison
        return {
            "format": 1,
            "asked": self.asked,
            "goals": {n: {"as_it_is": a, "then": b} for n, a, b in self.figures()},
            "claims": [
                None if r is None or r.selection is None else r.selection.claim
                for r in (self.before, self.after)
            ],
            "price": self.price and self.price.to_json(),
            "notes": list(self.notes),
            "comparison": comparison and comparison.to_json(),
        }


def _claim(run: Run) -> str:
    assert run.selection is not None
    return claim_text(run.selection, run.target, run.goals)


_COLUMNS = ("", "as it is", "then", "difference")


def _row(figure: tuple[str, int, int | None]) -> tuple[str, ...]:
    name, before, after = figure
    if after is None:
        return (name, goal_text(name, before), "–", "no program")
    share = f" ({(after - before) / before:+.1%})" if before and after != before else ""
    delta = f"{delta_text(name, after - before)}{share}" if after != before else "equal"
    return (name, goal_text(name, before), goal_text(name, after), delta)


def _differences(comparison: Comparison) -> list[str]:
    if not comparison.differences:
        return ["the same dispatches"]
    return [
        f"{comparison.same} dispatches are the same, these are not",
        *comparison.difference_lines(),
    ]


# ---- without rules -------------------------------------------------------------------------------
def without_rules(run: Run, names: Sequence[str]) -> WhatIf:
    """The run's program searched again without these rules, rule sets or tags.

    Under the run's own limits, goals and budgets. Raises EqsatError: E007 if it was searched with
    no such rule, E405 if it stopped early; `after` is None where nothing is admissible then.
    """
    egraph, _, _ = finished_stages(run)
    left_out = _rules_of(run, names)
    question = f"without {', '.join(dict.fromkeys(names))}"
    used = {r.name for r in egraph.rules if r.matches} | set(egraph.left_out)
    if run.mesh_plan is not None:
        used |= {r.name for r in run.mesh_plan.rules if r.permits}
    if run.family is None and not run.bodies and used.isdisjoint(left_out):
        return WhatIf(question, run, run, (NOTHING_MATCHED,))
    try:
        after = searched_again(run, rules=run.rules.without(*left_out))
    except EqsatError as e:
        if e.exit_code != NOTHING_ADMISSIBLE:
            raise
        return WhatIf(question, run, None, tuple(d.message for d in e.diagnostics))
    return WhatIf(question, run, after, (*_on_mesh(run, after), *_proven(run, after)))


def _on_mesh(before: Run, after: Run) -> tuple[str, ...]:
    """The plans for a mesh beside each other."""
    if before.mesh_plan is None or after.mesh_plan is None:
        return ()
    plans = before.mesh_plan, after.mesh_plan
    by = by_figures(before.target, before.goals)
    as_it_is, then = (f"{mesh_claim(p, by)}, {counts_text(p)}" for p in plans)
    return (f"on the mesh {before.mesh_plan.mesh.to_text()}: {as_it_is}; then: {then}",)


def _proven(before: Run, after: Run) -> tuple[str, ...]:
    """A sentence if a search ended early, as the difference is then not only that of the rules."""
    assert before.selection is not None
    assert after.selection is not None
    goal = before.goals[0].name
    if all(s.selection is not None and s.selection.goal(goal).gap == 0 for s in (before, after)):
        return ()
    low = after.selection.goal(goal).bound - before.selection.goal(goal).value
    high = after.selection.goal(goal).value - before.selection.goal(goal).bound
    sides = f"{delta_text(goal, low)} and {delta_text(goal, high)}"
    return (f"not both are proven: the optimum differs by something between {sides}",)


def _rules_of(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    """The rules that these names, sets and tags stand for."""
    by_name: dict[str, list[str]] = {}
    for r in run.rules.everything:
        for name in dict.fromkeys((r.name, r.ruleset, *r.tags)):
            by_name.setdefault(name, []).append(r.name)
    rules: dict[str, None] = {}
    for name in names:
        if name not in by_name:
            message = f"this run has no rule, rule set or tag `{name}` to leave out"
            raise fail("E007", message, help=did_you_mean(name, by_name, "eqsat rules DIR"))
        rules |= dict.fromkeys(by_name[name])
    return tuple(rules)


# ---- a value in a layout -------------------------------------------------------------------------
def forced_layout(run: Run, value: str, layout: str, *, time_limit: float = 30.0) -> WhatIf:
    """The best program in which a value is kept in memory in a layout, with its price.

    value: as `eqsat explain` names it. layout: `row-major` (as the program has it), `16x16` (tiles
    of these sizes), `pack(…)`, `transpose(…)`, a layout or type that `explain` prints. Raises
    EqsatError: E303 no such value, E394 no layout, E405 if the run stopped early.
    """
    from eqsat.extract.ask.near import forced

    egraph, selection, _ = finished_stages(run)
    names = Names(egraph, run.canonical)
    eclass = asked_value(run, names, value)
    question = f"with {names.of(eclass)} kept in memory as {layout}"
    layouts = layouts_of(names, eclass)
    classes = wanted(layout, egraph.types[eclass][0], names, layouts)
    if not classes:
        return WhatIf(question, run, None, _missing(run, names, eclass, layouts))
    buffers = _kept(run, names)
    if not buffers.isdisjoint(names.buffer[c] for c in classes):
        return WhatIf(question, run, run, ("that is how it is kept",))
    questions = [Question(kind, c) for c in classes for kind in ("written", "resident")]
    sides = egraph, run.target, run.goals, selection, run.baseline
    answers = forced(*sides, questions, seconds=time_limit, seed=run.search["seed"])
    best = min(answers, key=lambda f: f.price.key)
    if best.selection is None:
        notes = _missing(run, names, eclass, layouts) if best.price.status == NOT_ADMISSIBLE else ()
        return WhatIf(question, run, None, notes or (price_text(best.price),), best.price)
    after = replace(run, selection=best.selection, schedule=schedule_of(run, best.selection))
    return WhatIf(question, run, after, (), best.price)


def _kept(run: Run, names: Names) -> set[int]:
    """Buffers that dispatches write or read."""
    assert run.selection is not None
    return {names.buffer[c] for g in run.selection.groups for c in (*g.writes, *g.reads)}


def _missing(run: Run, names: Names, eclass: int, by_class: Known) -> tuple[str, ...]:
    """Why no program keeps it so: its layouts, the rules that made them, what limits excluded."""
    assert run.selection is not None
    egraph, same = names.egraph, names.logical[eclass]
    ways = [f"{ways_text(layouts)} ({names.type_of(c)})" for c, layouts in by_class.items()]
    packs = {n.rule for n in egraph.nodes if n.op == "pack" and n.rule >= 0}
    makers = [egraph.rules[r].name for r in sorted(packs)]
    by = f"packs of this run were made by {', '.join(makers)}" if makers else "no rule made a pack"
    mine = {f"%{name}" for c, name in enumerate(egraph.class_names) if names.logical[c] == same}
    removed = tuple(r for r in run.selection.removed if mine & set(r.what.split()))
    tiles = ", ".join(_tiles(run)) or "none"
    return (
        "no program here keeps it so",
        f"the e-graph has it as {'; '.join(ways)}",
        f"{by}; tiles of {run.target.name}: {tiles}",
        *removed_lines(removed),
    )


def _tiles(run: Run) -> list[str]:
    """The tiles of contractions that the target names."""
    texts = [
        f"{kind} {'x'.join(str(n) for _, n in t.sizes)}"
        for kind, tiles in run.target.tiles
        for t in tiles
    ]
    texts += [f"{kind} by the strategy {name}" for kind, name in run.target.strategies]
    return list(dict.fromkeys(texts))


# ---- the layouts of a value, by the words in which users write them ------------------------------
_TILES = re.compile(r"\d+(?:x\d+)*")
_TYPE = re.compile(r"\w+\[[\d, ]*\]")
FORMS = (
    f"write `{ROW_MAJOR}`, the tiles (`16x16`), `pack(pos=[0, 1], tiles=[16, 16])`,"
    " `transpose(perm=[1, 0])`, a layout (`@16x16.p1.0`) or type as `eqsat explain` prints it"
)
Known = dict[int, list[Layout]]  # class → how it holds a value


def layouts_of(names: Names, eclass: int) -> Known:
    """The classes that hold the data of a class in another layout, without the class itself."""
    egraph, same = names.egraph, names.logical[eclass]
    by_class: Known = {eclass: []}
    for n in egraph.nodes:
        if names.logical[n.eclass] != same:
            continue
        conversion = _held(n)
        if conversion is None:
            continue
        plain, packed, layout = conversion
        if (
            egraph.types[plain] == egraph.types[eclass]
            and names.buffer[plain] == (names.buffer[eclass])
        ):
            listed = by_class.setdefault(packed, [])
            listed += [layout] if layout not in listed and packed != eclass else []
    return by_class


def _held(n: ENode) -> tuple[int, int, Layout] | None:
    """(plain class, packed class, how) of a node that lays a value out."""
    if n.op == "transpose" and isinstance(n.attr, Transpose):
        return n.children[0], n.eclass, Layout(n.attr.source, (), (), n.attr.perm, ())
    if not isinstance(n.attr, Layout) or n.op not in ("pack", "unpack"):
        return None
    ends = (n.children[0], n.eclass) if n.op == "pack" else (n.eclass, n.children[0])
    return (*ends, n.attr)


def ways_text(layouts: Sequence[Layout]) -> str:
    """`pack(pos=[0, 1], …) or transpose(…)`; `row-major` for the program's own."""
    return " or ".join(map(layout_word, layouts)) or ROW_MAJOR


def wanted(text: str, of: TensorType, names: Names, by_class: Known) -> list[int]:
    """Classes that hold a value in the layout that a text names; EqsatError E394 if none."""
    plain = next(iter(by_class))
    if text == ROW_MAJOR:
        return [plain]
    if _TILES.fullmatch(text):
        tiles = tuple(map(int, text.split("x")))
        return [c for c, layouts in by_class.items() if any(x.tiles == tiles for x in layouts)]
    if _TYPE.fullmatch(text):
        same = names.logical[plain]
        shape = text.replace(" ", "")
        every = [c for c, v in enumerate(names.logical) if v == same]
        return [c for c in every if names.type_of(c).replace(" ", "") == shape]
    name = text.removeprefix("%").rpartition(AT)[2]
    called = [c for c in by_class if names.of(c).removeprefix("%").partition(AT)[2] == name]
    if called:
        return called
    if "(" not in text:
        words = did_you_mean(text, [ROW_MAJOR])
        raise fail("E394", f"`--force {text}` names no layout", help=f"{words}; {FORMS}")
    layout = read_layout(text, of, "--force")
    return [c for c, layouts in by_class.items() if layout in layouts]
