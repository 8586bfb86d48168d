"""`--check-compile`: the compiler of the device is asked about several answers; its best is kept.

It is told whole programs, so what it makes of several ops at once, such as its own kernel for a
softmax, counts. The input as the compiler has it is one of them: the answer is never worse than it
by the compiler's own count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.execute.compilers.ask import Lowered, Way
from eqsat.model.compiled import (
    BY_CONVOLUTIONS,
    BY_PRODUCTS,
    CHOSEN,
    COMPILERS,
    CONSTANTS,
    COUNTS,
    INPUT,
    INPUT_BY_XLA,
    NEAR,
    PLAIN,
    SEARCHED,
    SPELLINGS,
    Checked,
    Figures,
    Weighed,
)
from eqsat.model.deadline import tick
from eqsat.model.diag import EqsatError
from eqsat.model.layout import SEARCH, Border, MemoryOrders
from eqsat.model.oracle import parse_oracle
from eqsat.ops.movement.lists import inverse
from eqsat.run import Run
from eqsat.run.compiling import CompilerQuestions
from eqsat.run.contenders import (
    Contender,
    chosen_contender,
    diverse,
    input_contenders,
    near_contenders,
)

NEAR_COUNT = 16  # programs near the chosen one that are looked for
NEAR_COMPILED = 4  # of them that are compiled; some differ in their fusion alone, and are one to it
BYTES = ("memory", "resident", "load_peak")  # goals of which memory is the count
# how a program's name goes on
NAMED = {SEARCHED: "", PLAIN: "plain layouts", COMPILERS: "the compiler's layouts"}
NAMED |= {BY_PRODUCTS: "as products"}
FAILED = ("E380", "E462", "E463", "E464")  # no answer for one program


def checked(run: Run, seconds: float, limit: float) -> Run:
    """The run with that of its answers which the oracle of its target counts best.

    seconds: for finding others near the chosen one. limit: seconds of one compilation. EqsatError:
    E461 if the compiler is not installed, what it failed with (E462 to E464) if it tells nothing of
    the chosen program nor of the input.
    """
    assert run.target.oracle is not None
    weighing = _Weighing(CompilerQuestions(
        parse_oracle(run.target.oracle), run.source, run.weights, CONSTANTS, limit
    ), run)  # fmt: skip
    contenders: list[Contender] = []
    weighed: list[Weighed] = []
    for contender in _contenders(run, seconds):
        tick()  # somebody may have asked to stop
        for one in weighing.weigh(contender):
            contenders.append(contender)
            weighed.append(one)
    count = _count(run, weighed)
    if not count and weighing.errors:
        raise weighing.errors[0]
    winner = best(weighed, count) if count else 0
    result = Checked(run.target.oracle, count, weighing.questions.held_as, tuple(weighed), winner)
    chosen = contenders[winner]
    return replace(run, selection=chosen.selection, schedule=chosen.schedule, checked=result)


def _contenders(run: Run, seconds: float) -> Iterator[Contender]:
    """The chosen one, a few near it unless it has loops (searched for one answer), the input."""
    chosen, inputs = chosen_contender(run), tuple(input_contenders(run, by_xla=True))
    yield chosen
    if not run.bodies:
        near = tuple(near_contenders(run, NEAR_COUNT, seconds))
        yield from diverse(near, (chosen, *inputs))
    yield from inputs


@dataclass
class _Weighing:
    """Answers so far, by what was compiled: programs that differ in their fusion alone are one."""

    questions: CompilerQuestions
    run: Run
    answers: dict[str, list[Figures]] = field(default_factory=dict)
    errors: list[EqsatError] = field(default_factory=list)
    compiled: int = 0  # programs near the chosen one

    def weigh(self, contender: Contender) -> Iterator[Weighed]:
        """None of one near the chosen program, if it is compiled as others, or enough were."""
        plain = contender.origin == INPUT_BY_XLA
        predicted = None if plain else round(contender.schedule.time_ps / 1e6, 3)
        for spelling in self._spellings(contender):
            for layouts, figures in self._figures(contender, spelling):
                how = ", ".join(w for w in (NAMED[layouts], NAMED[spelling]) if w)
                name = f"{contender.name}, {how}" if how else contender.name
                yield Weighed(name, contender.origin, predicted, figures, layouts, spelling)

    def _spellings(self, contender: Contender) -> tuple[str, ...]:
        """Only a TPU's compiler counts what it is told in another way as another program."""
        by_us = contender.origin in (CHOSEN, INPUT) and self.run.runs_on.executor == "xla"
        return SPELLINGS if by_us and self.is_tpu else (BY_CONVOLUTIONS,)

    @property
    def is_tpu(self) -> bool:
        return self.questions.oracle.compiler == "libtpu"

    def _figures(self, contender: Contender, spelling: str) -> list[tuple[str, Figures]]:
        near = contender.origin == NEAR
        if near and self.compiled == NEAR_COMPILED:
            return []
        ways = self._ways(contender.origin)
        try:
            module = self._module(contender, spelling)
            key = hashlib.sha256(module.data).hexdigest()
            if (near or spelling) and key in self.answers:
                return []
            self.compiled += near
            if key not in self.answers:
                self.answers[key] = self._asked(module, ways[:1] if near else ways)
            if near and ways[1:] and self._is_promising(self.answers[key][0]):
                self.answers[key] += self._asked(module, ways[1:])
            return list(zip(ways, self.answers[key], strict=False))
        except EqsatError as error:
            if error.diagnostics[0].code not in FAILED:
                raise
            self.errors.append(error)
            return [(w, Figures(refused=error.diagnostics[0].message)) for w in ways]

    def _module(self, contender: Contender, spelling: str) -> Lowered:
        itself = contender.origin == CHOSEN and self._is_function and not spelling
        if itself or contender.origin == INPUT_BY_XLA:
            return self.questions.plain_module()
        return self.questions.module(
            contender.schedule, replace(self.run.runs_on, spelling=spelling)
        )

    def _is_promising(self, figures: Figures) -> bool:
        """Whether a near program, in the compiler's layouts, has fewer cycles than the function.

        What has not is not asked about in plain layouts, in which it hardly has fewer.
        """
        module = self.questions.plain_module()
        key = hashlib.sha256(module.data).hexdigest()
        if key not in self.answers:
            self.answers[key] = self._asked(module, self._ways(INPUT_BY_XLA))
        return figures.is_better(self.answers[key][-1], "cycles")

    def _asked(self, module: Lowered, ways: Sequence[str]) -> list[Figures]:
        if tuple(ways) == (SEARCHED,):
            return [self.questions.answer(module)]
        orders = self.run.orders
        assert orders is not None
        return self.questions.answers(module, [way_of(orders, w, module.inputs) for w in ways])

    def _ways(self, origin: str) -> tuple[str, ...]:
        """The deciders of the layouts of free borders; plain ones come last, for comparison."""
        orders = self.run.orders
        if orders is None or not self.is_tpu or not free_borders(orders):
            return (SEARCHED,)
        itself = origin == INPUT_BY_XLA or (origin == CHOSEN and self._is_function)
        is_ordered = any(o.by == SEARCH for o in orders.chosen)
        if itself or origin == NEAR or not is_ordered:
            return (COMPILERS, PLAIN)
        return (COMPILERS, SEARCHED, PLAIN)

    @property
    def _is_function(self) -> bool:
        """Whether a call of the chosen program is a call of the traced function."""
        return self.run.callee is not None and self.run.callee.is_input


def way_of(orders: MemoryOrders, who: str, inputs: Sequence[int]) -> Way:
    """The arguments and results of a module that lie otherwise than row by row.

    Those with an order come transposed, so plain ones lie in the inverse of it.
    """
    layouts: dict[Border, Any] = {}
    if who == COMPILERS:
        layouts = dict.fromkeys(free_borders(orders), "auto")
    elif who == PLAIN:
        searched = (o for o in orders.chosen if o.by == SEARCH)
        layouts = {o.border: list(inverse(o.order)) for o in searched}
    came = {inputs[b.number]: how for b, how in layouts.items() if b.kind == "input"}
    return came, {b.number: how for b, how in layouts.items() if b.kind == "result"}


def free_borders(orders: MemoryOrders) -> list[Border]:
    """Borders the compiler may lay out as it likes; state is written in its place, so it stays."""
    state = {Border("input", a) for a, _ in orders.ties}
    state |= {Border("result", r) for _, r in orders.ties}
    ordered = {o.border for o in orders.chosen if o.by == SEARCH}
    return sorted({*orders.left, *orders.compiler, *ordered} - state)


def _count(run: Run, weighed: list[Weighed]) -> str:
    """The count to compare by: memory where that is the first goal, else the nearest to time."""
    order = COUNTS if run.goals[0].name not in BYTES else ("peak_bytes", *COUNTS)
    answered = [w.figures for w in weighed if w.figures.refused is None]
    return next((c for c in order if any(getattr(f, c) is not None for f in answered)), "")


def best(weighed: list[Weighed], count: str) -> int:
    """The number of the program with the least of a count that is surely no worse than the input.

    The first one of several; the input itself where nothing else is surely no worse. Where the
    compiler refuses the input, any program that it takes.
    """
    last = len(weighed) - 1
    base = weighed[last].figures if weighed[last].origin == INPUT_BY_XLA else Figures()
    fine = [i for i, w in enumerate(weighed) if w.figures.is_better(base, count, or_equal=True)]
    if not fine:
        return 0
    least = fine[0]
    for i in fine[1:]:
        if weighed[i].figures.is_better(weighed[least].figures, count):
            least = i
    return least
