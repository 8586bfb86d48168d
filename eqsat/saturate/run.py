"""Program × RuleSet → EGraph: small egglog steps, tables filled between them, limits watched."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from eqsat.model.egraph import BlockReuse, EGraph
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.symbols import sizes_of
from eqsat.model.target import Target
from eqsat.ops.binding import bind_attr
from eqsat.ops.encodings import encoding_tiles
from eqsat.ops.orders import target_orders
from eqsat.ops.tiles import target_tiles
from eqsat.saturate.blocks import Blocks, Short, find_blocks, shorten
from eqsat.saturate.encode import ASKS, Interner, RuleText, prelude, program_lines, variants
from eqsat.saturate.rows import Rows
from eqsat.saturate.snapshot import snapshot, tables
from eqsat.saturate.unroll import NotPeriodic, TooLarge, unroll

BORDERS = (1, 2)  # blocks searched at each end of the program, next to two in the middle
CHUNK = 20  # lines per egglog call: one big text is quadratic to load
STEP = (
    "(run-schedule (repeat 3 (seq (run phase_contract) (run phase_propagate)"
    " (repeat 3 (seq (run phase_leave) (run phase_cancel)"
    " (run phase_canonicalise))) (run phase_want))))"
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
    program: Program,
    rules: RuleSet,
    target: Target,
    limits: Limits | None = None,
    reuse_blocks: bool = True,
) -> EGraph:
    """The e-graph of everything the rules can reach from `program` under the target's vocabulary.

    Of many equal blocks four or six are searched, if that gives the same e-graph
    (`EGraph.blocks` says so); half of the time is kept for the direct search.
    Raises EqsatError (E110) if a rule builds an ill-typed term.
    """
    limits = limits or Limits()
    blocks = find_blocks(program) if reuse_blocks else None
    if blocks is None:
        return Saturation(program, program.uses, rules, target, limits).run()
    begin = time.perf_counter()
    why = ""
    for border in BORDERS:
        half = replace(limits, seconds=(limits.seconds - (time.perf_counter() - begin)) / 2)
        short = shorten(program, blocks, border)
        if short is None:
            break
        try:
            graph = _with_blocks(program, blocks, short, rules, target, half)
        except (TooLarge, NotComplete) as e:
            why = str(e)
            break
        except NotPeriodic as e:
            why = str(e)
            continue
        return replace(graph, seconds=time.perf_counter() - begin)
    left = max(0.0, limits.seconds - (time.perf_counter() - begin))
    rest = replace(limits, seconds=left)
    direct = Saturation(program, program.uses, rules, target, rest).run()
    whole = BlockReuse(blocks.count, blocks.count, why)
    return replace(direct, seconds=time.perf_counter() - begin, blocks=whole)


def _with_blocks(
    program: Program, blocks: Blocks, short: Short, rules: RuleSet, target: Target, limits: Limits
) -> EGraph:
    """Search few of the blocks and copy the rest; NotPeriodic if that would not be the same."""
    run = Saturation(short.program, short.uses, rules, target, limits)
    if any(t.marked for t in run.texts):  # what it does depends on when it looks
        raise NotComplete("a rule asks for `is_unpacked`")
    rounds, stop = run.search()
    if stop != "saturated":
        raise NotComplete(f"the limit of {stop} was reached")
    if run.is_cut():
        raise NotComplete("a rule reached its `max_matches`")
    full = unroll(program, blocks, short, tables(run), run.interner, limits.nodes)
    graph = snapshot(run, program, full, rounds, stop, 0.0)
    return replace(graph, blocks=BlockReuse(blocks.count, short.kept, ""))


def _priced(sizes: Mapping[str, int], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function asked about attributes at these sizes."""
    return lambda attr: function(bind_attr(attr, sizes)) if sizes else function(attr)


class NotComplete(NotPeriodic):
    """The search of few blocks would not end with all that the rules can reach."""


class Saturation:
    """One run; owns the egglog object, which never leaves this package."""

    def __init__(
        self,
        program: Program,
        uses: Sequence[int],
        rules: RuleSet,
        target: Target,
        limits: Limits,
    ):
        from egglog.bindings import EGraph as Engine

        self.program, self.uses, self.rules, self.limits = program, uses, rules, limits
        self.engine = Engine()
        self.interner = Interner()
        self.variants, self.signatures = variants(rules.rules, program)
        sizes = sizes_of(program.symbols)  # which tiles there are is judged at the priced sizes
        functions: dict[str, Callable[..., Any]] = {
            "target.tiles": cache(_priced(sizes, target_tiles(target))),
            "target.orders": cache(partial(target_orders, target)),
            "target.encoding_tiles": cache(_priced(sizes, partial(encoding_tiles, target))),
        }
        self.rows = [Rows(v, functions) for v in self.variants]
        self.texts = [RuleText(v) for v in self.variants]
        self.asked: list[set[str]] = [set() for _ in self.variants]  # rows of want, as printed
        self.found: Counter[str] = Counter()  # rows given, per rule
        self.work = Work(Counter(), defaultdict(float))

    def run(self) -> EGraph:
        begin = time.perf_counter()
        rounds, stop = self.search()
        seconds = time.perf_counter() - begin
        return snapshot(self, self.program, tables(self), rounds, stop, seconds)

    def search(self) -> tuple[int, str]:
        """Apply rules until nothing is new or a limit is reached: rounds and why it stopped."""
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
        # what is left alone has no class of its own, also where a limit cuts the search short
        self._call("(run-schedule (saturate (run phase_leave)))")
        return rounds, stop

    def is_cut(self) -> bool:
        """Whether a rule was stopped by its own `max_matches`."""
        return any(
            r.max_matches is not None and self.found[r.name] >= r.max_matches
            for r in self.rules.rules
        )

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
        lines = program_lines(self.program, self.uses, self.interner)
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

    def _answers(self, n: int, rows: Rows, asked: set[str]) -> list[str]:
        begin = time.perf_counter()
        text = str(self._call(f"(print-function want_{n} 10000000)")[0])
        lines = []
        for match in re.findall(rf"\(want_{n}((?: -?\d+)+)\)", text):
            if match not in asked:
                asked.add(match)
                lines += self._rows(n, rows, tuple(map(int, match.split())))
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
