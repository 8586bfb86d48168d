"""A finished run as text for a terminal: phases with seconds, the table, what each rule did.

Before that, how its search proceeds: a line, a log, and a table of it afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from eqsat.model.control import every_program
from eqsat.model.diag import Diagnostic
from eqsat.model.egraph import EGraph
from eqsat.model.executor import Execution
from eqsat.model.layout import MemoryOrders
from eqsat.model.progress import LIMITED, Curve, Point, Progress, ended, listener
from eqsat.model.rules import RuleCheck
from eqsat.model.schedule import Schedule
from eqsat.model.selection import CAP, TIME_LIMIT, Selection
from eqsat.report.compiled import checked_lines, measured_lines
from eqsat.report.facts import GoalFact, RunFacts
from eqsat.report.finished import Finished, by_figures, claim_text
from eqsat.report.formatting import (
    bytes_text,
    count_text,
    goal_text,
    heading,
    ratio_text,
    seconds_text,
)
from eqsat.report.mesh import mesh_claim, mesh_lines
from eqsat.report.paddedrows import padding_line
from eqsat.report.weights import life_line

BUSY = 1.2  # times its CPU time that a search is counted as, from which on the line says why


def summary_text(run: Finished, shown: Collection[str] = ()) -> str:
    """One line per phase that ran, what is not known of the rules, then baseline against chosen.

    shown: the phases whose lines are left out.
    """
    facts = RunFacts(run)
    lines = [*_target_line(run), *_kept_line(run), *phase_lines(run, shown), *rule_check_lines(run)]
    lines += [*_rounding_line(facts), *_border_lines(facts)]
    if run.schedule is not None and facts.weights is not None:
        lines += ["", *goal_table(facts), *life_line(facts.weights)]
        lines += [*padding_line(run.schedule), *cut_lines(run)]
        lines += _arena_line(run.schedule)
        lines += execution_lines(run.execution)
        lines += _device_lines(facts)
        lines += _mesh_lines(run)
        lines += measured_lines(run.measured)
        lines += checked_lines(run.checked)
    return "\n".join(lines) + "\n"


def _target_line(run: Finished) -> list[str]:
    """Which target was used and why, where none was named."""
    target = run.target
    return [f"target {target.name}: {target.chosen}"] if target.chosen else []


def _kept_line(run: Finished) -> list[str]:
    """Where nothing was searched: since when the answer is there."""
    if not run.searched_at:
        return []
    return [f"answer kept since {run.searched_at}, with the seconds of its search (`--no-cache`)"]


def _rounding_line(facts: RunFacts) -> list[str]:
    """The rules of the answer that may round otherwise than the program."""
    rules = ", ".join(f"{name} ({bound})" for name, bound in facts.inexact.items())
    return [f"rounds otherwise by {rules}"] if rules else []


def _border_lines(facts: RunFacts) -> list[str]:
    """A line per argument and result that crosses packed, or lies in another order."""
    crossing = [f"{name} crosses as {text}" for name, text in facts.packed_borders.items()]
    return crossing + order_lines(facts.run.orders)


def cut_lines(run: Finished) -> list[str]:
    """A line where candidates were left out: of how many the answer is the best, and which."""
    selection = run.selection
    if selection is None or not selection.cuts:
        return []
    left_out = [_CUT[c.what, c.by].format(c.count) for c in selection.cuts]
    return [f"{selection.claim}; {'; '.join(left_out)}"]


_CUT = {
    ("groups", CAP): "a cap left out groups behind {:,} e-nodes (bounds are of the others)",
    ("merges", CAP): "a cap left out merges around {:,} values (bounds are of the others)",
    ("groups", TIME_LIMIT): "time was up before all groups behind {:,} e-nodes were looked at",
    ("merges", TIME_LIMIT): "time was up before merges were looked at",
}


def _arena_line(s: Schedule) -> list[str]:
    """Only where the arena of the temporaries is larger than what is live in it at once."""
    if s.arena_bytes is None or s.arena_bytes == s.arena_bound:
        return []
    arena, bound = bytes_text(s.arena_bytes), bytes_text(s.arena_bound)
    return [f"temporaries lie in an arena of {arena}; {bound} of it are live at once"]


def _device_lines(facts: RunFacts) -> list[str]:
    """A line per device, if there are several."""
    return [
        f"on {name} ({f['target']}): {count_text(int(f['dispatches']), 'dispatch', 'dispatches')},"
        f" {goal_text('time', int(f['time_ps']))}, peak {bytes_text(int(f['peak_bytes']))}"
        for name, f in facts.devices.items()
    ]


def _mesh_lines(run: Finished) -> list[str]:
    """The plan for a mesh, if the target has one."""
    if run.mesh_plan is None:
        return []
    by = by_figures(run.target, run.goals)
    return ["", *mesh_lines(run.mesh_plan, run.cut_schedule.program, by)]


def phase_lines(run: Finished, shown: Collection[str] = ()) -> list[str]:
    """`read`, `saturate`, `extract` … with wall seconds each, and what of them a limit counts."""
    rows = phase_facts(run)
    width = max(len(name) for _, name, _ in rows)
    lines = [_phase_line(run, *row, width) for row in rows if row[0] not in shown]
    cpu = run.seconds.get("cpu")
    if cpu is not None:
        wall = sum(run.seconds.get(phase) or 0.0 for phase in LIMITED)
        text = f"{seconds_text(cpu)} of CPU time, which the time limit counts"
        counted = run.seconds.get("counted") or cpu
        if counted > BUSY * cpu:
            text += f": {seconds_text(counted)} with a fifth of waiting, as the machine is busy"
        lines.append(f"{'search':9} {seconds_text(wall):>7}  {'':{width}}  {text}")
    return lines


def _phase_line(run: Finished, phase: str, name: str, text: str, width: int) -> str:
    seconds = seconds_text(run.seconds.get(phase))
    return f"{phase:9} {seconds:>7}  {name:{width}}  {text}".rstrip()


def phase_facts(run: Finished) -> list[tuple[str, str, str]]:
    """Each phase that ended: what it worked on, and what it made."""
    rows = [("read", run.program.name, _read_text(run))]
    if run.seconds.get("hunt") is not None and run.rule_check is not None:
        rows.append(("hunt", run.rules.name, _hunt_text(run.rule_check)))
    if run.egraph is not None:
        rows.append(("saturate", run.rules.name, _saturate_text(run.egraph, len(run.rules.rules))))
    if run.selection is not None:
        rows.append(("extract", run.target.name, _extract_text(run, run.selection)))
    if run.schedule is not None:
        rows.append(("schedule", "", _schedule_text(run.schedule, run.baseline_schedule)))
        if run.mesh_plan is not None:
            rows.append(
                (
                    "mesh",
                    run.mesh_plan.mesh.to_text(),
                    mesh_claim(run.mesh_plan, by_figures(run.target, run.goals)),
                )
            )
        if run.seconds.get("compile") is not None:
            packs = count_text(run.schedule.counts()["weight_packs"], "pack")
            rows.append(("compile", "jax", f"{packs} of weights, ahead of time"))
    if run.verification is not None:
        rows.append(("verify", "float64", verification_text(run.verification)))
    return rows


def _hunt_text(check: RuleCheck) -> str:
    hunted = f"{count_text(len(check.hunted), 'rule')} that eqsat does not ship"
    rest = f", no instance of {len(check.no_instance)} more" if check.no_instance else ""
    return f"{hunted}: no counterexample found{rest}"


def rule_check_lines(run: Finished) -> list[str]:
    """Rules whose soundness was not tested, by name; nothing if there are none."""
    return check_lines(run.rule_check)


def check_lines(check: RuleCheck | None) -> list[str]:
    """The rule check as lines, one for each thing to know."""
    if check is None:
        return []
    sentences = (
        ("used unchecked", check.unchecked),
        ("not hunted, as no instance was found", check.no_instance),
    )
    return [f"{count_text(len(n), 'rule')} {what}: {', '.join(n)}" for what, n in sentences if n]


def _saturate_text(egraph: EGraph, rules: int) -> str:
    classes, nodes = len(egraph.types), len(egraph.nodes)
    size = f"{count_text(classes, 'class', 'classes')}, {count_text(nodes, 'node')}"
    stop = f"{egraph.stop} after {count_text(egraph.rounds, 'round')}"
    return f"{count_text(rules, 'rule')}: {size}, {stop}"


def _extract_text(run: Finished, selection: Selection) -> str:
    goals = ", ".join(f"{name} {goal_text(name, g.value)}" for name, g in selection.goals)
    return f"{goals} ({_ended(run, selection)})"


def _ended(run: Finished, selection: Selection) -> str:
    """The claim, and why the search ended before it could claim more."""
    claim = claim_text(selection, run.target, run.goals)
    early = selection.cuts and selection.stop != "cut"
    return f"{claim}; {selection.stop}" if early else claim


def verification_text(v: Any) -> str:
    """`ok, max error 3.1e-07, limit 4e-07 (4 samples)`, with the place of a mismatch.

    Where it was by elements, what these were: `(8,018 elements in float64 of 18 dispatches …)`.
    """
    if v.outcome == "unproven":
        return f"NOT VERIFIED: {v.reason}"
    verdict = "ok" if v.ok else f"MISMATCH at {v.where}"
    samples = f"{count_text(v.samples, 'sample')}{_ON_ARENA.get(v.arena, '')}"
    if v.how == "sampled":
        samples = f"sampled: {v.elements:,} elements in float64, of {v.checked}"
    samples += _drawn_text(v.drawn)
    of_input = "" if v.input_error is None else f" (of the input {v.input_error:.1e})"
    verdict = f"{verdict}, max error {v.max_error:.1e}{of_input}, limit {v.limit:.1e} ({samples})"
    return verdict if v.arena != "unproven" else f"{verdict}; {v.arena_reason}"


def _drawn_text(weights: int) -> str:
    return f", {count_text(weights, 'weight')} drawn at random, too" if weights else ""


_ON_ARENA = {"ok": ", also on one arena"}


def verification_problem(v: Any) -> Diagnostic:
    """The diagnostic of a verification that is not ok: E500 a mismatch, E507 nothing proven."""
    if v.outcome == "unproven":
        hint = "`--work-limit` raises it" if "work limit" in v.reason else ""
        return Diagnostic("E507", f"not verified: {v.reason}", help=hint)
    error = f"error {v.max_error:.1e}, limit {v.limit:.1e}"
    return Diagnostic("E500", f"result differs from the reference: {error}, {v.reason or v.where}")


GOAL_COLUMNS = ("", "baseline", "chosen", "ratio", "bound", "gap", "proof")
GOAL_FIGURES = range(1, 6)  # columns of figures


def goal_table(facts: RunFacts) -> list[str]:
    """Goals and bytes moved: baseline, chosen, ratio, bound, gap and proof."""
    table = [GOAL_COLUMNS, *goal_cells(facts)]
    widths = [max(len(row[i]) for row in table) for i in range(len(GOAL_COLUMNS))]
    lines = [
        "  ".join(
            c.rjust(w) if i in GOAL_FIGURES else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    lines[0] = heading(lines[0].rstrip())
    if facts.run.baseline_schedule is None:
        lines.append("the input itself is not admissible here, so nothing is claimed against it")
    return [line.rstrip() for line in lines]


def goal_cells(facts: RunFacts) -> list[tuple[str, ...]]:
    """Rows of GOAL_COLUMNS, printed."""
    return [_cells(g, _proof(facts, g)) for g in facts.table]


def _cells(g: GoalFact, proof: str) -> tuple[str, ...]:
    before = "–" if g.baseline is None else goal_text(g.kind, g.baseline)
    ratio = "–" if g.baseline is None else ratio_text(g.baseline, g.chosen)
    bound = "" if g.bound is None else goal_text(g.kind, g.bound)
    gap = "" if g.gap is None else f"{g.gap:.1%}"
    return (g.name, before, goal_text(g.kind, g.chosen), ratio, bound, gap, proof)


def _proof(facts: RunFacts, g: GoalFact) -> str:
    """The proof of a goal; where candidates were left out, over which of them it is the best."""
    selection = facts.run.selection
    is_best = selection is not None and g.gap == 0 and selection.stop == "cut"
    return f"best of {selection.among}" if selection is not None and is_best else g.proof


def rules_table(rules: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Rules of `RunFacts.rules_by` as rows of RULE_COLUMNS, printed."""
    return [
        (
            f["rule"],
            f"{f['matches']:,}",
            f"{f['nodes']:,}",
            seconds_text(f["seconds"]),
            f"{f['in_result']:,}",
            f["at"],
        )
        for f in rules
    ]


RULE_COLUMNS = ("rule", "matches", "nodes", "time", "in result", "at")


def _read_text(run: Finished) -> str:
    p = run.program
    opaque = sum(n.op == "opaque" for q in every_program(p) for n in q.nodes)
    text = f"{count_text(p.op_count, 'op')}, {count_text(len(p.weights), 'weight')}"
    if p.weights:
        text += f" ({bytes_text(p.weight_bytes)})"
    if run.family is not None:
        shown = (f"{s.name} = {s.size}" for s in run.family.symbols)
        text += f", priced at {', '.join(shown)}"
    return f"{text}, {opaque} opaque (not independently checked)" if opaque else text


def _schedule_text(s: Schedule, base: Schedule | None) -> str:
    was = f" (was {base.kernels})" if base else ""
    text = f"{count_text(s.kernels, 'dispatch', 'dispatches')}{was}"
    before = f" (was {bytes_text(base.peak_bytes)})" if base else ""
    return f"{text}, memory {bytes_text(s.peak_bytes)}{before}"


# ---- by whom it runs -----------------------------------------------------------------------------
SHOWN = 12  # numbers of dispatches that a line names


def execution_lines(execution: Execution) -> list[str]:
    """The plan's meaning to the executor, and a line per reason not to follow it."""
    lines = [f"executor {execution.executor}{execution.plan and ': '}{execution.sentence}"]
    by_reason: dict[str, list[int]] = {}
    for number, why in execution.declined:
        by_reason.setdefault(why, []).append(number)
    return lines + [f"{_named(n)} not run as planned: {why}" for why, n in by_reason.items()]


def _named(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"dispatch {numbers[0]} is"
    named = ", ".join(map(str, numbers[:SHOWN]))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"{len(numbers)} dispatches ({named}{more}) are"


# ---- orders of dims ------------------------------------------------------------------------------
def order_lines(orders: MemoryOrders | None, name: str = "") -> list[str]:
    """A line per argument and result that is not plain and why; of one alone if a name is given.

    Where the search chose, also what no order could be below.
    """
    if orders is None:
        return []
    shown = [o for o in orders.chosen if name in ("", o.name)]
    lines = [f"{o.name} lies in order {list(o.order)}: {o.why}" for o in shown]
    if name:
        return lines
    if orders.why:
        lines.append(f"orders of dims: {orders.why}")
    if orders.bound is not None and orders.plain is not None and orders.value is not None:
        texts = [
            goal_text(orders.goal, round(v)) for v in (orders.plain, orders.value, orders.bound)
        ]
        lines.append(
            f"{orders.goal} with plain orders {texts[0]}, with these {texts[1]}, no order is below "
            f"{texts[2]} ({orders.tried} searches)"
        )
    return lines


CURVE_COLUMNS = ("after", "phase", "goal", "value", "bound", "gap")
CURVE_FIGURES = (0, 3, 4, 5)


def progress_line(now: Progress) -> str:
    """`candidates, 3.1 s of 60 s: time 4.5 us, bound 4.1 us, gap 8.9 %`, as far as it is known."""
    limit = "" if now.limit is None else f" of {now.limit:g} s"
    return f"{now.phase}, {now.seconds:.1f} s{limit}: {known_text(now)}"


def known_text(now: Progress) -> str:
    """The best value of the first goal so far, its proven lower bound, and the gap."""
    best = now.best
    if best is None:
        return "no answer yet"
    text = f"{now.goal} {goal_text(now.goal, best.value)}"
    if best.bound == 0 < best.value:
        return text
    return f"{text}, bound {goal_text(now.goal, best.bound)}, gap {best.gap:.1%}"


def curve_rows(curve: Curve) -> list[tuple[str, ...]]:
    """Rows of CURVE_COLUMNS, one per point."""
    return [_row(p) for p in curve.points]


def _row(p: Point) -> tuple[str, ...]:
    value, bound = ("" if n is None else goal_text(p.goal, n) for n in (p.value, p.bound))
    gap = "" if p.value is None else f"{_gap(p):.1%}"
    return (seconds_text(p.seconds), p.phase, p.goal, value, bound, gap)


def _gap(p: Point) -> float:
    bound = p.bound or 0
    return (p.value - bound) / p.value if p.value and p.value > bound else 0.0


# ---- Python's logging ----------------------------------------------------------------------------
def log_phase(run: Finished, phase: str) -> None:
    """The result of a phase, as `optimize` prints it.

    Each phase has a logger of its own (`eqsat.saturate`, `eqsat.extract`), so that
    `logging.getLogger("eqsat").setLevel("INFO")` hears all of them and one can be silenced.
    """
    logger = _logger(phase)
    if listener() is None and not logger.isEnabledFor(logging.INFO):
        return
    width = max(len(run.program.name), len(run.rules.name), len(run.target.name))
    for name, what, text in phase_facts(run):
        if name == phase:
            logger.info("%s", "  ".join(filter(None, (what, text))))
            ended(phase, _phase_line(run, name, what, text, width))


def log_progress(now: Progress) -> None:
    """The newest of what a search knows: a phase begins, or value and bound of the first goal."""
    if not now.points or now.points[-1].goal not in ("", now.goal):
        return
    point = now.points[-1]
    logger = _logger(point.phase)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", known_text(now) if point.goal else "begins")


def _logger(phase: str) -> logging.Logger:
    return logging.getLogger(f"eqsat.{phase.replace(' ', '-')}")
