"""Compilers of devices that are not here, asked about a program and its answers.

`--check-compile` asks about several answers and keeps the best. The compiler is told whole
programs, so what it makes of several ops at once, such as its own kernel for a softmax, counts. The
input as the compiler has it is one of them: the answer is never worse than it by the compiler's own
count.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eqsat.execute.compilers.ask import (
    DEFAULT_LIMIT,
    Lowered,
    Way,
    ask_iree,
    ask_xla,
    ask_xla_ways,
    need_compiler,
    place_for,
)
from eqsat.export.plan import Exported
from eqsat.export.write import check_word, export, write_files
from eqsat.frontends.source import Source
from eqsat.model.compiled import (
    ARGUMENTS,
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
    Prediction,
    Told,
    Weighed,
)
from eqsat.model.deadline import tick
from eqsat.model.diag import EqsatError, did_you_mean, fail
from eqsat.model.layout import SEARCH, Border, MemoryOrders
from eqsat.model.oracle import DEVICES, Oracle, oracle_of, parse_oracle
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.movement.lists import inverse
from eqsat.run import Run
from eqsat.run.contenders import (
    Contender,
    chosen_contender,
    diverse,
    input_contenders,
    near_contenders,
)
from eqsat.schedule.mainmemory import placed_peak_bytes

if TYPE_CHECKING:
    import numpy as np

    from eqsat.execute.compilers.lower import DeviceLowering

AUTO = "auto"
WEIGHTS = (AUTO, CONSTANTS, ARGUMENTS)
MOST_CONSTANT_BYTES = 256 * 2**20  # more than that, and compiling takes longer than anybody waits
TEXT = "module.mlir"
FUNCTION, PROGRAM = "function", "program"


def oracle_for(device: str) -> Oracle:
    """The compiler asked about a device; EqsatError E460 if there is none."""
    try:
        return oracle_of(device)
    except KeyError:
        message = f"no compiler is known for a device `{device}`"
        raise fail("E460", message, help=did_you_mean(device, DEVICES)) from None


@dataclass(frozen=True)
class CompilerQuestions:
    """A source whose programs one compiler is asked about.

    arrays: of weights, by key. weights: `constants` of what is compiled, or its `arguments`;
    `auto`: arguments of XLA's, so that memory has them, constants of IREE's, which packs no
    arguments ahead of time. limit: seconds of one answer.
    """

    oracle: Oracle
    source: Source
    arrays: Mapping[str, np.ndarray[Any, Any]]
    weights: str = AUTO
    limit: float = DEFAULT_LIMIT

    @property
    def held_as(self) -> str:
        """The kind that weights are; those that a call brings, or large ones, are arguments."""
        if self.oracle.compiler == "iree":
            return CONSTANTS if self.weights == AUTO else self.weights
        kind = ARGUMENTS if self.weights == AUTO else self.weights
        return weights_as(self.source.program, self.arrays, kind)

    @property
    def plain_is(self) -> str:
        """Whether the plain program is the traced function, or its ops."""
        traced = self.source.traced
        is_function = traced is not None and not traced.captured
        return FUNCTION if is_function and self.oracle.compiler != "iree" else PROGRAM

    def module(self, schedule: Schedule, target: Target) -> Lowered:
        """The program of a schedule, as the compiler reads it.

        EqsatError: E464 if it cannot be lowered for the device, E380 for IREE if an op has no form.
        """
        if self.oracle.compiler == "iree":
            return self._packed_text(schedule)
        return self._lowering.of_schedule(schedule, self.source, self.arrays, target)

    def plain_module(self) -> Lowered:
        """The input, unrewritten; EqsatError as of `module`."""
        if self.oracle.compiler == "iree":
            return self._packed_text(self.source.program)
        return self._lowering.of_program(self.source, self.arrays)

    @property
    def _lowering(self) -> DeviceLowering:
        from eqsat.execute.compilers.lower import DeviceLowering

        return DeviceLowering(self.oracle, self.held_as)

    def answers(self, module: Lowered, ways: Sequence[Way]) -> list[Figures]:
        """As `answer`, of a TPU's compiler, for each way in which arguments and results may lie."""
        return ask_xla_ways(self.oracle, module.data, ways, self.limit)

    def answer(self, module: Lowered) -> Figures:
        """The compiler's answer about a module; EqsatError: E461 to E463 where it gives none."""
        if self.oracle.compiler != "iree":
            return ask_xla(self.oracle, module.data, self.limit)
        with place_for(self.oracle) as folder:
            text = folder / TEXT
            files = json.loads(module.data)
            write_files(Exported(tuple((k, b64decode(v)) for k, v in files), 0), text)
            return ask_iree(self.oracle.device, text, self.limit, self._border_bytes)

    def _packed_text(self, what: Program | Schedule) -> Lowered:
        """The files of an MLIR module, as one."""
        places = "auto" if self.held_as == CONSTANTS else ARGUMENTS
        exported = export(
            what, "mlir", self.arrays, self.source.opaque, weights=places, external=f"{TEXT}.data",
            name=self.source.program.name,
        )  # fmt: skip
        files = [(k, b64encode(v).decode()) for k, v in exported.files]
        return Lowered(json.dumps(files).encode())

    @property
    def _border_bytes(self) -> int:
        """Of arguments and results, which IREE does not allocate."""
        program = self.source.program
        borders = {*program.inputs, *program.results}
        borders |= set(program.weights) if self.held_as == ARGUMENTS else set()
        return sum(program.nodes[i].type.nbytes for i in borders)


def weights_as(program: Program, arrays: Mapping[str, Any], kind: str) -> str:
    """`asked`, but weights that a call brings, or that are too large, are no constants."""
    has_values = all(program.leaf(i).key in arrays for i in program.weights)
    small = program.weight_bytes <= MOST_CONSTANT_BYTES
    return kind if kind == ARGUMENTS or (has_values and small) else ARGUMENTS


def told_of(
    device: str,
    source: Source,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    schedule: Schedule,
    target: Target,
    runs_on: Target,
    *,
    itself: bool = False,
    weights: str = AUTO,
    limit: float = DEFAULT_LIMIT,
) -> Told:
    """Both sides of a run; EqsatError as `Run.compile_for` says.

    itself: whether a call of the answer is a call of the traced function.
    """
    check_word("place for weights", weights, WEIGHTS)
    oracle = oracle_for(device)
    need_compiler(oracle)
    questions = CompilerQuestions(oracle, source, arrays, weights, limit)
    itself = itself and questions.plain_is == FUNCTION
    read = questions.plain_module()
    module = read if itself else questions.module(schedule, runs_on)
    plain = questions.answer(read)
    chosen = plain if module == read else questions.answer(module)
    return Told(
        str(oracle),
        questions.held_as,
        chosen,
        plain,
        questions.plain_is,
        predicted(schedule, target),
    )


def predicted(schedule: Schedule, target: Target) -> Prediction:
    """The cost model's figures of a schedule."""
    s = schedule
    peak = placed_peak_bytes(s, target)
    return Prediction(target.name, s.kernels, peak, s.arena_bytes, s.time_ps)


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
    fine = [i for i, w in enumerate(weighed) if _no_worse(w.figures, base, count)]
    if not fine:
        return 0
    least = fine[0]
    for i in fine[1:]:
        if weighed[i].figures.is_better(weighed[least].figures, count):
            least = i
    return least


def _no_worse(one: Figures, base: Figures, count: str) -> bool:
    value, theirs = getattr(one, count), getattr(base, count)
    if one.refused is not None or value is None:
        return False
    if base.refused is not None or theirs is None:
        return True
    return value <= theirs and not (count == "cycles" and one.has_more_unknown(base))
