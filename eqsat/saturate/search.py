"""One search: small egglog steps, tables filled between them, limits watched.

Its clock is a limit in seconds, or the deadline of the whole run.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

from eqsat.model.deadline import SATURATION_TIME, elapsed, tick
from eqsat.model.egraph import EGraph
from eqsat.model.equalities import Equalities
from eqsat.model.limits import Limits
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.symbols import sizes_judged
from eqsat.model.target import Target
from eqsat.ops.algebra.quantised import sums_integers
from eqsat.ops.contractions.encodings import encoding_tiles
from eqsat.ops.generics.interchange import index_relation
from eqsat.ops.programs.binding import bind_attr
from eqsat.ops.programs.facts import Facts
from eqsat.ops.targets.inorder import (
    forces_orders,
    passed_above,
    passed_below,
    result_orders,
    straight,
)
from eqsat.ops.targets.kernels import target_orders
from eqsat.ops.targets.rows import rows_asked
from eqsat.ops.targets.tiles import target_tiles
from eqsat.saturate.encode import (
    ASKS,
    Interner,
    RuleText,
    equality_lines,
    first_stage,
    prelude,
    program_lines,
    row_tables,
    variants,
)
from eqsat.saturate.joins import few_uses
from eqsat.saturate.rows import Answers, fact_key
from eqsat.saturate.snapshot import snapshot, tables

HANDING_OVER = 6e-5  # seconds a node takes from egglog's tables to an `EGraph`, measured, and some


@dataclass(frozen=True)
class Clock:
    """`until` is a `elapsed`; `name` is why a search stops then."""

    until: float = math.inf
    name: str = SATURATION_TIME

    @classmethod
    def of(cls, seconds: float | None, deadline: float | None) -> Clock:
        """Whichever of a limit in seconds from now and a deadline comes first."""
        limit = math.inf if seconds is None else elapsed() + seconds
        share = math.inf if deadline is None else deadline
        return cls(limit, "seconds") if limit < share else cls(share)

    def halved(self) -> Clock:
        """One that gives up after half of the time that is left."""
        now = elapsed()
        return replace(self, until=now + (self.until - now) / 2)

    def over(self, nodes: int) -> str:
        """Why to stop now, with an e-graph of so many nodes still to be handed over; or "".

        OutOfTime if the whole search is to stop.
        """
        tick()
        if math.isinf(self.until):
            return ""
        return self.name if elapsed() + nodes * HANDING_OVER >= self.until else ""


BINDINGS = "egglog.bindings"
CHUNK = 20  # lines per egglog call: one big text is quadratic to load
# A round runs these phases three times, the inner ones up to three times each. Every phase is a
# call of its own, as nothing can stop egglog inside of one.
OUTER = ("contract", "propagate")
INNER = ("leave", "cancel", "canonicalise")
TIMES = 3  # and then the tables are asked, which costs Python's time
LOOK = 64  # matches between two looks at the clock


@dataclass
class Tally:
    """Counts of what the rules did so far, by rule name."""

    matches: Counter[str]
    seconds: defaultdict[str, float]


def target_facts(target: Target) -> dict[str, Callable[..., Any]]:
    """The functions that tell facts of a target and take no arguments."""
    return {
        "target.index_relation": partial(index_relation, target),
        "target.orders_forced": partial(forces_orders, target),
        "target.sums_integers": partial(sums_integers, target),
    }


def target_answers(
    target: Target, judged: Sequence[Mapping[str, int]]
) -> dict[str, Callable[..., Any]]:
    """The answers of a target to what rules ask of it, at any of these sizes of symbols."""
    encodings = partial(encoding_tiles, target)
    return {
        "target.tiles": cache(_at_any(judged, _bound(target_tiles(target)))),
        "target.orders": cache(_at_any(judged, partial(target_orders, target))),
        "target.result_orders": cache(partial(result_orders, target)),
        "target.rows_asked": cache(partial(rows_asked, target)),
        "target.passed_above": cache(partial(passed_above, target)),
        "target.passed_below": cache(partial(passed_below, target)),
        "target.straight": cache(partial(straight, target)),
        "target.encoding_tiles": cache(_at_any(judged, _bound(encodings))),
        **target_facts(target),
    }


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of sizes, and of an attribute in which they are put."""
    return lambda sizes, attr: function(bind_attr(attr, sizes))


def _at_any(
    judged: Sequence[Mapping[str, int]], function: Callable[..., Any]
) -> Callable[..., Any]:
    """The answers at all these sizes, each once; of a program without symbols, its own."""
    every = judged or ({},)
    return lambda attr: list(dict.fromkeys(x for sizes in every for x in function(sizes, attr)))


@cache
def _engine() -> Any:
    """The class of egglog's e-graphs, from its compiled part alone.

    The Python around that part takes longer to load than most searches take here, and keeps the
    frames it was imported from, with all that those hold: arrays of the first call of a jitted
    function, say. Who imports egglog gets all of it, before or after. Its commands, hundreds of
    lines, are logged only if its own logger is given a level.
    """
    log = logging.getLogger(BINDINGS.partition(".")[0])
    log.setLevel(log.level or logging.WARNING)
    loaded = sys.modules.get(BINDINGS)
    package = find_spec(BINDINGS.partition(".")[0])
    if loaded is not None or package is None:
        return import_module(BINDINGS).EGraph
    spec = PathFinder.find_spec(BINDINGS, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return import_module(BINDINGS).EGraph
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop(BINDINGS, None)  # a part of a package that is not imported
    return module.EGraph


class Saturation:
    """One run; owns the egglog object, which never leaves this package."""

    def __init__(
        self,
        program: Program,
        facts: Facts,
        rules: RuleSet,
        target: Target,
        limits: Limits,
        clock: Clock,
        left_out: Collection[str] = (),
        equalities: Sequence[Equalities] = (),
    ):
        self.program, self.facts, self.rules, self.clock = program, facts, rules, clock
        self.equalities = equalities
        assert limits.nodes and limits.rounds and limits.matches  # resolved
        self.most_nodes, self.most_rounds, self.most_matches = (
            limits.nodes, limits.rounds, limits.matches,
        )  # fmt: skip
        self.engine = _engine()()
        self.interner = Interner()
        functions = target_answers(target, sizes_judged(program.symbols))
        active = [r for r in rules.rules if r.name not in left_out]
        self.left_out = tuple(r.name for r in rules.rules if r.name in left_out)
        self.ended = "matches" if left_out else "saturated"  # the stop of a search that is done
        seen = [n for facts in equalities if facts.is_open for n in facts.nodes]
        self.variants, self.signatures = variants(active, [*program.nodes, *seen])
        self.signatures |= {(n.op, len(n.operands)) for facts in equalities for n in facts.nodes}
        self.rows = [Answers(v, functions) for v in self.variants]
        self.texts = [RuleText(v) for v in self.variants]
        self.most_made = max((len(t.outs) for t in self.texts), default=0)
        self.bounds = sorted({b for r in active if r.also for _, b in few_uses(r)})
        self.asked: list[set[tuple[int, ...]]] = [set() for _ in self.variants]  # rows of want
        self.rows_given: Counter[str] = Counter()  # rows given, per rule
        self.matches = 0  # that were looked at
        self.nodes = self.fresh = 0  # at the last count, and what phases added since at the most
        self.work = Tally(Counter(), defaultdict(float))
        self.is_second_stage = False
        self.waiting = self._staged()  # rules that begin when the others are done

    def run(self) -> EGraph:
        begin = time.perf_counter()
        rounds, stop = self.search()
        seconds = time.perf_counter() - begin
        return snapshot(self, self.program, tables(self), rounds, stop, seconds)

    def search(self) -> tuple[int, str]:
        """Apply rules until nothing is new or a limit is reached: rounds and why it stopped."""
        stop = self.clock.over(len(self.program.nodes))
        self._load(with_rules=not stop)
        rounds, size = 0, self._sizes()
        while not stop:
            rounds += 1
            before = size
            stop = self._step() if rounds > 1 else self._ask()[1]
            size = self._sizes()
            self._count(size)
            added = 0 if stop else self._answer(size)
            stop = stop or self._stop(rounds, added, before, size)
            if stop == self.ended and self._begin_waiting():
                stop = ""
        # what is left alone has no class of its own, also where a limit cuts the search short
        self._call("(run-schedule (saturate (run phase_leave)))")
        self._tell(is_open=False)  # last, so that no rule looks at what is a whole answer already
        return rounds, stop

    def _staged(self) -> list[RuleText]:
        """Rules that a set has beside the one it contains, whose e-graph is made first.

        So it is known which nodes are of that e-graph (`ENode.extra` are not), and it is whole
        where a limit ends the search later. All rules are one stage if one of them asks for what
        depends on when it looks.
        """
        first = self.rules.start
        if not first or any(t.marked for t in self.texts):
            return []
        return [t for t in self.texts if t.v.rule.name not in first]

    def _begin_waiting(self) -> bool:
        texts, self.waiting = self.waiting, []
        if texts:
            self.is_second_stage = True
            self._call(first_stage(self.signatures))
            self._call("(run-schedule (run phase_first))")
        for text in texts:
            self._call(text.text)
        return bool(texts)

    # ---- a round ------------------------------------------------------------------------------
    def _step(self) -> str:
        """Apply the rules to what their tables hold, and ask for more; the limit it met, or ""."""
        for _ in range(TIMES):
            changed, stop = self._phases(OUTER), self._over()
            for _ in range(0 if stop else TIMES):
                inner = self._phases(INNER)
                changed |= inner
                stop = self._over()
                if stop or not inner:
                    break
            if stop:
                return stop
            asked, stop = self._ask()
            if stop or not (changed or asked):
                return stop
        return ""

    def _phases(self, phases: Sequence[str]) -> bool:
        """Run phases once each, as long as there is time; whether anything changed."""
        changed = False
        for phase in phases:
            if self.clock.over(self.nodes):
                break
            changed |= self._run(phase)
        return changed

    def _run(self, phase: str) -> bool:
        """Run a phase once; whether anything changed."""
        changed = False
        for o in self._call(f"(run-schedule (run phase_{phase}))"):
            report = getattr(o, "report", None)
            if report is not None:
                changed |= report.updated
                self.fresh += self.most_made * sum(report.num_matches_per_rule.values())
        return changed

    def _ask(self) -> tuple[bool, str]:
        """Let the rules ask for rows of their tables; whether they did, and a limit that is met."""
        changed = self._run("want")
        return changed, self.clock.over(self.nodes)

    def _over(self) -> str:
        """The limit of nodes or time, if one is met. Nodes are counted where they may be many."""
        if self.nodes + self.fresh > self.most_nodes:
            self._count(self._sizes())
        return "nodes" if self.nodes > self.most_nodes else self.clock.over(self.nodes)

    def _count(self, size: Mapping[str, int]) -> None:
        self.nodes = sum(n for name, n in size.items() if name.startswith("op_"))
        self.fresh = 0

    def _stop(
        self, rounds: int, added: int, before: Mapping[str, int], size: Mapping[str, int]
    ) -> str:
        if rounds > 1 and not added and before == size:
            return self.ended
        if self.nodes > self.most_nodes:
            return "nodes"
        if self.matches >= self.most_matches:
            return "matches"
        return "rounds" if rounds >= self.most_rounds else self.clock.over(self.nodes)

    def is_cut(self) -> bool:
        """Whether a rule was stopped by its own `max_matches`."""
        return any(
            r.max_matches is not None and self.rows_given[r.name] >= r.max_matches
            for r in self.rules.rules
        )

    def _load(self, with_rules: bool) -> None:
        self._call(prelude(self.signatures, self.bounds, self.facts.holds))
        self._call(row_tables(self.texts))
        for text in self.texts if with_rules else ():
            if text not in self.waiting:
                self._call(text.text)
        self._lines(program_lines(self.program, self.facts, self.interner, self.bounds))
        self._tell(is_open=True)

    def _tell(self, is_open: bool) -> None:
        """Add what is known beside the rules: what they look at, or the rest."""
        nodes = list(self.program.nodes)
        for i, equalities in enumerate(self.equalities, len(self.variants)):
            if equalities.is_open == is_open:
                self._lines(equality_lines(equalities, nodes, i, self.interner, self.bounds))
            nodes += equalities.nodes

    def _lines(self, lines: Sequence[str]) -> None:
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
            if not name.endswith(ASKS):
                self.work.matches[name.split("#")[0]] += n
        for name, seconds in report.search_and_apply_time_per_rule.items():
            self.work.seconds[name.split("#")[0]] += seconds.total_seconds()

    def _sizes(self) -> dict[str, int]:
        """Rows per table. A tenth of what it takes to `freeze` the rows themselves."""
        return dict(self._call("(print-size)")[0].sizes)

    def _answer(self, size: Mapping[str, int]) -> int:
        """Fill the tables for everything newly asked for; the number of rows added."""
        lines: list[str] = []
        new = self._new_matches(size)
        for n, rows in enumerate(self.rows):
            if self._is_enough():
                break
            lines += self._answers(n, rows, new.get(n, ()))
        self._lines(lines)
        return len(lines)

    def _new_matches(self, size: Mapping[str, int]) -> dict[int, list[tuple[int, ...]]]:
        """New requests of each variant, in the order of its table."""
        row_count: Counter[str] = Counter()
        for text, asked in zip(self.texts, self.asked, strict=True):
            row_count[text.want] += len(asked)
        grown = [name for name, count in row_count.items() if size[name] > count]
        tables = self.engine.freeze().functions if grown else {}  # printed they take far longer
        to_int, matches = self.engine.value_to_i64, defaultdict[int, list[tuple[int, ...]]](list)
        for name in grown:
            for row in tables[name].rows:
                n, *match = map(to_int, row.inputs)
                key = tuple(match)
                if key not in self.asked[n]:
                    matches[n].append(key)
        return matches

    def _answers(self, n: int, rows: Answers, matches: Sequence[tuple[int, ...]]) -> list[str]:
        begin = time.perf_counter()
        lines = []
        for match in matches:
            self.asked[n].add(match)
            lines += self._rows(n, rows, match)
            self.matches += 1
            looks = self.matches % LOOK == 0 or self.matches >= self.most_matches
            if looks and self._is_enough():
                break
        self.work.seconds[rows.rule.name] += time.perf_counter() - begin
        return lines

    def _is_enough(self) -> bool:
        """Whether no more matches are to be looked at."""
        return self.matches >= self.most_matches or bool(self.clock.over(self.nodes))

    def _rows(self, n: int, rows: Answers, key: tuple[int, ...]) -> list[str]:
        ids, counts = key[: rows.width], key[rows.width :]
        if 0 in ids:
            return []  # "leave alone" is rewritten away before anything else sees it
        text = self.texts[n]
        uses = dict(zip(text.uses, counts, strict=True))
        uses |= {fact_key(f, x): 1 for f, x in text.asked_facts}  # it is matched where they hold
        new_rows = rows.rows([self.interner[i] for i in ids], uses)
        most = rows.rule.max_matches
        if most is not None:
            new_rows = new_rows[: max(0, most - self.rows_given[rows.rule.name])]
        self.rows_given[rows.rule.name] += len(new_rows)
        return [
            f"({text.do} {' '.join(map(str, (n, *key, *(self.interner.id(a) for a in row))))})"
            for row in new_rows
        ]
