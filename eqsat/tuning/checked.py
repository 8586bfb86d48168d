"""`--check-compile`: the compiler of the device is asked about several answers; its best is kept.

It is told whole programs, so what it makes of several ops at once, such as its own kernel for a
softmax, counts. The input as the compiler has it is one of them: the answer is never worse than it
by the compiler's own count.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from eqsat.execute.compilers.ask import need_compiler
from eqsat.model.compiled import CONSTANTS, COUNTS, Checked, Figures, Weighed
from eqsat.model.deadline import tick
from eqsat.model.diag import EqsatError, fail
from eqsat.model.measured import CHOSEN, INPUT_BY_XLA, NEAR
from eqsat.model.oracle import parse_oracle
from eqsat.model.target import Target
from eqsat.run import Run
from eqsat.run.compiling import CompilerQuestions
from eqsat.tuning.contenders import Contender, chosen_contender, input_contenders, near_contenders

NEAR_COUNT = 10  # programs near the chosen one that are looked for
NEAR_COMPILED = 4  # of them that are compiled; some differ in their fusion alone, and are one to it
BYTES = ("memory", "resident", "load_peak")  # goals of which memory is the count
FAILED = ("E380", "E462", "E463", "E464")  # no answer for one program


def check_oracle(target: Target) -> None:
    """EqsatError E465 if the target names no compiler, E461 if what it needs is not installed."""
    if target.oracle is None:
        raise fail(
            "E465", f"target {target.name} names no compiler to ask",
            help="add `oracle: libtpu v5e` to the target, or `--set oracle='libtpu v5e'`",
        )  # fmt: skip
    need_compiler(parse_oracle(target.oracle))


def checked(run: Run, seconds: float, limit: float) -> Run:
    """The run with that of its answers which the oracle of its target counts best.

    seconds: for finding others near the chosen one. limit: seconds of one compilation. EqsatError:
    E461 if the compiler is not installed, what it failed with (E462 to E464) if it tells nothing of
    the chosen program nor of the input.
    """
    assert run.target.oracle is not None
    asked = _Weighing(CompilerQuestions(
        parse_oracle(run.target.oracle), run.source, run.weights, CONSTANTS, limit
    ), run)  # fmt: skip
    found: list[Contender] = []
    weighed: list[Weighed] = []
    for contender in _contenders(run, seconds):
        tick()  # somebody may have asked to stop
        one = asked.weigh(contender)
        if one is not None:
            found.append(contender)
            weighed.append(one)
    count = _count(run, weighed)
    if not count and asked.errors:
        raise asked.errors[0]
    kept = best(weighed, count) if count else 0
    told = Checked(run.target.oracle, count, asked.questions.held_as, tuple(weighed), kept)
    chosen = found[kept]
    return replace(run, selection=chosen.selection, schedule=chosen.schedule, checked=told)


def _contenders(run: Run, seconds: float) -> Iterator[Contender]:
    """The chosen one, a few near it unless it has loops (searched for one answer), the input."""
    yield chosen_contender(run)
    if not run.bodies:
        yield from near_contenders(run, NEAR_COUNT, seconds)
    yield from input_contenders(run, by_xla=True)


@dataclass
class _Weighing:
    """Answers so far, by what was compiled: programs that differ in their fusion alone are one."""

    questions: CompilerQuestions
    run: Run
    known: dict[str, Figures] = field(default_factory=dict)
    errors: list[EqsatError] = field(default_factory=list)
    compiled: int = 0  # programs near the chosen one

    def weigh(self, contender: Contender) -> Weighed | None:
        """None of one near the chosen program, if it is compiled as others, or enough were."""
        plain = contender.origin == INPUT_BY_XLA
        predicted = None if plain else round(contender.schedule.time_ps / 1e6, 3)
        figures = self._figures(contender, plain)
        if figures is None:
            return None
        return Weighed(contender.name, contender.origin, predicted, figures)

    def _figures(self, contender: Contender, plain: bool) -> Figures | None:
        asked, near = self.questions, contender.origin == NEAR
        if near and self.compiled == NEAR_COMPILED:
            return None
        try:
            itself = plain or (contender.origin == CHOSEN and self._is_function)
            module = (
                asked.plain_module() if itself
                else asked.module(contender.schedule, self.run.runs_on)
            )  # fmt: skip
            key = hashlib.sha256(module).hexdigest()
            if near and key in self.known:
                return None
            self.compiled += near
            if key not in self.known:
                self.known[key] = asked.answer(module)
            return self.known[key]
        except EqsatError as error:
            if error.diagnostics[0].code not in FAILED:
                raise
            self.errors.append(error)
            return Figures(refused=error.diagnostics[0].message)

    @property
    def _is_function(self) -> bool:
        """Whether a call of the chosen program is a call of the traced function."""
        return self.run.callee is not None and self.run.callee.is_input


def _count(run: Run, weighed: list[Weighed]) -> str:
    """What is compared: memory where that is the first goal, else the nearest thing to time."""
    order = COUNTS if run.goals[0].name not in BYTES else ("peak_bytes", *COUNTS)
    told = [w.figures for w in weighed if w.figures.refused is None]
    return next((c for c in order if any(getattr(f, c) is not None for f in told)), "")


def best(weighed: list[Weighed], count: str) -> int:
    """The number of the program with the least of a count that is surely no worse than the input.

    The first one of several; the input itself where nothing else is surely no worse. Where the
    compiler refuses the input, any program that it takes.
    """
    last = len(weighed) - 1
    base = weighed[last].figures if weighed[last].origin == INPUT_BY_XLA else Figures()
    fine = [i for i, w in enumerate(weighed) if _no_worse(w.figures, base, count)]
    if not fine:
        return 0
    found = fine[0]
    for i in fine[1:]:
        if weighed[i].figures.is_better(weighed[found].figures, count):
            found = i
    return found


def _no_worse(one: Figures, base: Figures, count: str) -> bool:
    own, theirs = getattr(one, count), getattr(base, count)
    if one.refused is not None or own is None:
        return False
    if base.refused is not None or theirs is None:
        return True
    unknown = Counter(one.uncounted) - Counter(base.uncounted)
    return own <= theirs and not (count == "cycles" and unknown)
