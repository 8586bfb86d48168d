"""Program × RuleSet → EGraph: small egglog steps, tables filled between them, limits watched."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.target import Target
from eqsat.ops.tiles import target_tiles
from eqsat.saturate.encode import Interner, RuleText, prelude, program_lines, variants
from eqsat.saturate.rows import Rows
from eqsat.saturate.snapshot import snapshot

CHUNK = 20  # lines per egglog call: one big text is quadratic to load
STEP = (
    "(run-schedule (repeat 3 (seq (run phase_contract) (run phase_propagate)"
    " (repeat 3 (seq (run phase_cancel) (run phase_canonicalise))) (run phase_want))))"
)


@dataclass(frozen=True)
class Limits:
    """When saturation stops at the latest; reaching one is reported as `EGraph.stop`."""

    nodes: int = 200_000
    rounds: int = 100
    seconds: float = 30.0


@dataclass
class Work:
    """What the rules did so far, by rule name."""

    matches: Counter[str]
    seconds: defaultdict[str, float]


def saturate(
    program: Program, rules: RuleSet, target: Target, limits: Limits | None = None
) -> EGraph:
    """The e-graph of everything the rules can reach from `program` under the target's vocabulary.

    Raises EqsatError (E110) if a rule builds an ill-typed term.
    """
    return Saturation(program, rules, target, limits or Limits()).run()


class Saturation:
    """One run; owns the egglog object, which never leaves this package."""

    def __init__(self, program: Program, rules: RuleSet, target: Target, limits: Limits):
        from egglog.bindings import EGraph as Engine

        self.program, self.rules, self.limits = program, rules, limits
        self.engine = Engine()
        self.interner = Interner()
        self.variants, self.signatures = variants(rules.rules, program)
        functions: dict[str, Callable[..., Any]] = {"target.tiles": target_tiles(target)}
        self.rows = [Rows(v, functions) for v in self.variants]
        self.texts = [RuleText(v) for v in self.variants]
        self.asked: list[set[tuple[int, ...]]] = [set() for _ in self.variants]
        self.found: Counter[str] = Counter()  # rows given, per rule
        self.work = Work(Counter(), defaultdict(float))

    def run(self) -> EGraph:
        begin = time.perf_counter()
        self._load()
        rounds, stop = 0, ""
        size = self._sizes()
        while not stop:
            rounds += 1
            self._call("(run-schedule (run phase_want))" if rounds == 1 else STEP)
            before, size = size, self._sizes()
            added = self._answer(size)
            elapsed = time.perf_counter() - begin
            stop = self._stop(rounds, added, before, size, elapsed)
        return snapshot(self, rounds, stop, time.perf_counter() - begin)

    def _stop(
        self, rounds: int, added: int, before: dict[str, int], size: dict[str, int], elapsed: float
    ) -> str:
        if rounds > 1 and not added and before == size:
            return "saturated"
        if self._nodes(size) > self.limits.nodes:
            return "nodes"
        if rounds >= self.limits.rounds:
            return "rounds"
        return "seconds" if elapsed > self.limits.seconds else ""

    def _nodes(self, size: dict[str, int]) -> int:
        return sum(n for name, n in size.items() if name.startswith("op_"))

    def _load(self) -> None:
        self._call(prelude(self.signatures))
        for text in self.texts:
            self._call(text.text())
        lines = program_lines(self.program, self.interner)
        for i in range(0, len(lines), CHUNK):
            self._call("\n".join(lines[i : i + CHUNK]))

    def _call(self, text: str) -> list[Any]:
        out = self.engine.run_program(*self.engine.parse_program(text))
        for o in out:
            report = getattr(o, "report", None)
            if report is not None:
                self._note(report)
        return out

    def _note(self, report: Any) -> None:
        for name, n in report.num_matches_per_rule.items():
            self.work.matches[name.split("#")[0]] += n
        for name, seconds in report.search_and_apply_time_per_rule.items():
            self.work.seconds[name.split("#")[0]] += seconds.total_seconds()

    def _sizes(self) -> dict[str, int]:
        text = str(self._call("(print-size)")[0])
        return {name: int(n) for name, n in re.findall(r"\('?([^\s(),']+)'?,? (\d+)\)", text)}

    def _answer(self, size: dict[str, int]) -> int:
        """Fill the tables for everything newly asked for; the number of rows added."""
        lines: list[str] = []
        for rows, asked in zip(self.rows, self.asked, strict=True):
            n = rows.variant.number
            if size.get(f"want_{n}", 0) > len(asked):
                lines += self._answers(n, rows, asked)
        for i in range(0, len(lines), CHUNK):
            self._call("\n".join(lines[i : i + CHUNK]))
        return len(lines)

    def _answers(self, n: int, rows: Rows, asked: set[tuple[int, ...]]) -> list[str]:
        begin = time.perf_counter()
        text = str(self._call(f"(print-function want_{n} 10000000)")[0])
        lines = []
        for match in re.findall(rf"\(want_{n}((?: -?\d+)+)\)", text):
            key = tuple(map(int, match.split()))
            if key in asked:
                continue
            asked.add(key)
            lines += self._rows(n, rows, key)
        self.work.seconds[rows.rule.name] += time.perf_counter() - begin
        return lines

    def _rows(self, n: int, rows: Rows, key: tuple[int, ...]) -> list[str]:
        ids, counts = key[: rows.width], key[rows.width :]
        if 0 in ids:
            return []  # "leave alone" is rewritten away before anything else sees it
        uses = dict(zip(self.texts[n].uses, counts, strict=True))
        found = rows.rows([self.interner[i] for i in ids], uses)
        most = rows.rule.max_matches
        if most is not None:
            found = found[: max(0, most - self.found[rows.rule.name])]
        self.found[rows.rule.name] += len(found)
        return [
            f"(do_{n} {' '.join(map(str, (*key, *(self.interner.id(a) for a in row))))})"
            for row in found
        ]
