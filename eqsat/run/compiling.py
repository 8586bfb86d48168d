"""A program and its answers → what the compiler of a device that is not here tells of each."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
from eqsat.model.compiled import ARGUMENTS, CONSTANTS, Figures, Prediction, Told
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.oracle import DEVICES, Oracle, oracle_of
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.schedule.mainmemory import placed_peak_bytes

if TYPE_CHECKING:
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
