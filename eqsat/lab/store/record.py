"""The record of one run as plain data, and its key: a hash of all that decides its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from pathlib import PurePath
from types import NoneType
from typing import Any

from eqsat.api import Run
from eqsat.model.diag import Diagnostic
from eqsat.model.files import code_digest, restored
from eqsat.model.rules import RuleCheck
from eqsat.model.symbols import without_origins
from eqsat.report.facts import RunFacts, scaled
from eqsat.report.formatting import PS_PER_US
from eqsat.report.names import Names, chosen_nodes, op_word, rule_chain
from eqsat.report.text import verification_problem
from eqsat.run.content import rules_content, target_content, used_versions


def run_key(request: Run, unchecked: bool, repeat: int = 1, judged: str = "") -> str:
    """32 hexadecimal digits for a run that stopped behind its program (`stop_after="program"`).

    The program as it was read, its weights by content; rules and target by what they say; goals,
    budgets, limits, seed, time limit and extractor; the versions of what searches, eqsat's own code
    included; judged: what another compiler chose, if that is the answer. Not: the machine, and how
    many threads and processes there are, which decide how soon an answer is there.
    """
    family = None if request.family is None else without_origins(request.family.to_json())
    content = {
        "program": without_origins(request.source.program.to_json()),
        "family": family,
        "opaque": {k: _digest(call.export()) for k, call in request.source.opaque.items()},
        "target": target_content(request.target),
        "rules": rules_content(request.rules),
        "goals": [astuple(g) for g in request.goals],
        "limits": request.limits.to_json(),
        "search": [request.search[k] for k in ("time_limit", "seed", "extractor")],
        "unchecked": unchecked,
        "repeat": repeat,
        "judged": judged,
        "versions": used_versions(),
        "code": code_digest(),
    }
    return _digest(json.dumps(content, sort_keys=True).encode())[:32]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FOUND, NO_PROGRAM, ERROR = "found", "no program", "error"
NOT_RUN = "not run"  # as its answer is known to be that of another row
NOTHING = 3  # exit code of an EqsatError that says that nothing is admissible


@dataclass(frozen=True)
class RunRecord:
    """One run; times in microseconds, sizes in bytes.

    run: its key. summary: `Run.summary()`, None if there is no answer. goals, dispatches, choices,
    rules: rows of the tables of these names. program_hash: equal for equal programs in equal
    dispatches. totals_s: seconds of each of `repeat` equal searches. folder: of its artefacts,
    below the store's; "" if it has none. diagnostics: why there is no answer. problems: what is
    wrong with the one there is.
    """

    run: str
    program: str
    target: str
    status: str  # found | no program | error | not run
    diagnostics: tuple[Diagnostic, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    summary: dict[str, Any] | None = None
    goals: tuple[dict[str, Any], ...] = ()
    dispatches: tuple[dict[str, Any], ...] = ()
    choices: tuple[dict[str, Any], ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    fired: tuple[str, ...] = ()  # rules that matched, in the bodies of loops as well
    program_hash: str = ""
    totals_s: tuple[float, ...] = ()
    folder: str = ""
    ended_at: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether running it again would tell the same: an error may be gone next time."""
        return self.status in (FOUND, NO_PROGRAM)

    @property
    def message(self) -> str:
        return "; ".join(d.message for d in self.diagnostics)

    def figures(self) -> dict[str, Any]:
        """Columns of the table `runs`; None for what there is not."""
        s = self.summary or {}
        goals, verify = s.get("goals") or {}, s.get("verify")
        return {
            "program": self.program,
            "target": self.target,
            "status": self.status,
            "claim": s.get("claim"),
            "stop": s.get("stop"),
            "time_us": (goals.get("time_us") or {}).get("value"),
            "peak_bytes": (goals.get("peak_bytes") or {}).get("value"),
            "dispatches": (s.get("counts") or {}).get("dispatches"),
            "bytes_moved": (s.get("bytes") or {}).get("bytes_moved"),
            "egraph_nodes": (s.get("egraph") or {}).get("nodes"),
            "verified": None if verify is None else int(verify["ok"]),
            "seconds": (s.get("seconds") or {}).get("total"),
        }

    def to_json(self) -> dict[str, Any]:
        return {"format": 1} | asdict(self)

    @classmethod
    def from_text(cls, text: str) -> RunRecord:
        """Undo `to_json`, as JSON; ValueError if it is no record of a run."""
        try:
            data = json.loads(text)
            record = restored(cls, {k: v for k, v in data.items() if k != "format"})
            record.check()
        except (AttributeError, LookupError, RecursionError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return record

    def check(self) -> None:
        """ValueError, LookupError or TypeError unless it has what its status promises."""
        if self.status not in (FOUND, NO_PROGRAM, ERROR, NOT_RUN):
            raise ValueError(f"no status `{self.status}`")
        if self.folder and not is_below(self.folder):
            raise ValueError(f"`{self.folder}` lies outside of the store")
        if (self.status == FOUND) == (self.summary is None or not self.goals):
            raise ValueError(f"it is {self.status}, and its figures say something else")
        if self.summary is None and not self.diagnostics:
            raise ValueError("it does not say why there is no answer")
        _check_shape(self.summary or {}, _SUMMARY if self.status == FOUND else {})
        for g in self.goals:
            _check_shape(g, _GOAL)
        summary = self.summary or {}
        _check_shape(summary.get("verify"), _VERIFY if summary.get("verify") else {})
        if summary.get("rule_check"):
            RuleCheck.from_json(summary["rule_check"])


def is_below(folder: str) -> bool:
    """Whether a path leads to something below where it starts."""
    path = PurePath(folder)
    return not path.is_absolute() and ".." not in path.parts


NUMBER = (int, float)
_VALUE = {"value": NUMBER, "bound": NUMBER, "gap": NUMBER}
_GOAL = _VALUE | {"goal": str, "input": (*NUMBER, NoneType)}
_VERIFY = {"outcome": str, "ok": bool, "max_error": (*NUMBER, NoneType)}
_COUNTS = ("dispatches", "packs", "unpacks", "transposes", "fused_conversions")
# what tables, pages and pivots read of the summary of a run
_SUMMARY: dict[str, Any] = {
    "goals": {"time_us": {"value": NUMBER}, "peak_bytes": {"value": NUMBER}},
    "counts": dict.fromkeys(_COUNTS, int),
    "bytes": {"bytes_moved": int},
    "egraph": {"nodes": int},
    "seconds": {"total": NUMBER},
    "stop": str,
    "claim": str,
    "candidates": int,
    "baseline": (dict, NoneType),
    "verify": (dict, NoneType),
    "rule_check": (dict, NoneType),
}


def _check_shape(data: Any, shape: Any) -> None:
    """TypeError or KeyError unless data has these keys, with values of these types."""
    for key, inner in shape.items():
        if isinstance(inner, dict):
            _check_shape(data[key], inner)
        elif not isinstance(data[key], inner):
            raise TypeError(f"`{key}` is {data[key]!r:.60}")


def record_of(key: str, run: Run, totals_s: Sequence[float]) -> RunRecord:
    """The record of a run that has an answer."""
    v, facts = run.verification, RunFacts(run)
    wrong = () if v is None or v.ok else (verification_problem(v),)
    return RunRecord(
        key, run.program.name, run.target.name, FOUND, problems=wrong, summary=run.summary(),
        goals=_goals(facts), dispatches=_dispatches(run), choices=_choices(run),
        rules=tuple(facts.rules_by("rule")), fired=_fired(run), program_hash=_program_hash(run),
        totals_s=tuple(totals_s),
    )  # fmt: skip


def failed_record(
    key: str, program: str, target: str, diagnostics: Sequence[Diagnostic], exit_code: int
) -> RunRecord:
    """The record of a run without an answer; the exit code says whether there is none."""
    status = NO_PROGRAM if exit_code == NOTHING else ERROR
    return RunRecord(key, program, target, status, tuple(diagnostics))


def _goals(facts: RunFacts) -> tuple[dict[str, Any], ...]:
    """The goals by rank, scaled to the units of the summary; `input`: what came in costs."""
    rows = []
    for rank, goal in enumerate(facts.run.goals, 1):
        g = facts.goals[goal.name]
        value, bound, before = (
            None if v is None else float(scaled(g.name, v)) for v in (g.chosen, g.bound, g.baseline)
        )
        rows.append(
            {
                "goal": g.name, "rank": rank, "value": value, "bound": bound, "gap": g.gap,
                "input": before,
            }
        )  # fmt: skip
    return tuple(rows)


def _dispatches(run: Run) -> tuple[dict[str, Any], ...]:
    egraph, selection, schedule = run.egraph, run.selection, run.schedule
    assert egraph is not None
    assert selection is not None
    assert schedule is not None
    names = Names(egraph, run.canonical)
    return tuple(
        {
            "dispatch": i,
            "name": d.name,
            "time_us": d.time_ps / PS_PER_US,
            "bound": d.bound_text,
            "plan": d.plan.to_text() if d.plan else d.no_plan,
            "reads": ", ".join(names.of(c) for c in g.reads),
            "writes": ", ".join(names.of(c) for c in g.writes),
        }
        for i, (g, d) in enumerate(zip(selection.groups, schedule.dispatches, strict=True))
    )


def _choices(run: Run) -> tuple[dict[str, Any], ...]:
    """Every chosen e-node that a rule made: its dispatch (None: ahead of time) and those rules."""
    egraph, selection = run.egraph, run.selection
    assert egraph is not None
    assert selection is not None
    at = {m: i for i, g in enumerate(selection.groups) for m in g.members}
    choices = []
    for node in chosen_nodes(selection):
        steps = rule_chain(egraph, node)
        if steps:
            e = egraph.nodes[node]
            choices.append(
                {
                    "number": len(choices), "dispatch": at.get(node), "op": op_word(e),
                    "type": ", ".join(map(str, egraph.types[e.eclass])),
                    "rules": ", ".join(dict.fromkeys(s.rule for s in steps)),
                }
            )  # fmt: skip
    return tuple(choices)


def _fired(run: Run) -> tuple[str, ...]:
    """Rules with matches, in the program or in a body."""
    graphs = [r.egraph for r in (run, *run.bodies.values()) if r.egraph is not None]
    return tuple(sorted({r.name for g in graphs for r in g.rules if r.matches}))


def _program_hash(run: Run) -> str:
    """Of what runs: the chosen program, its dispatches, and what of it is computed ahead."""
    schedule = run.schedule
    assert schedule is not None
    cut = [(d.members, d.plan and d.plan.to_text()) for d in schedule.dispatches]
    program = without_origins(schedule.program.to_json())
    parts = [program, schedule.ahead, cut, run.runs_on.executor]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
