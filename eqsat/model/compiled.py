"""Other compilers: a program as one of them cut it, and their answers for eqsat's programs.

An answer has the chosen program, the plain one and others, compiled or timed. Timed programs of one
search have a predicted and a measured time; one of them was kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.model.files import JsonRecord
from eqsat.model.oracle import Oracle, parse_oracle
from eqsat.model.program import Program


@dataclass(frozen=True)
class CutDispatch:
    """One dispatch: nodes computed together, and those it reads from and writes to memory.

    name, at: what the other compiler calls it, and where that stands (`file:line`).
    """

    name: str
    at: str
    members: tuple[int, ...]  # in topological order, leaves and reshapes aside
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class CutProgram:
    """Dispatches in the order they run; `program` holds their ops. source: who chose so.

    weights: arrays by content hash of its constants, as far as they are told.
    """

    program: Program
    dispatches: tuple[CutDispatch, ...]
    source: str
    notes: tuple[str, ...] = ()  # what was read otherwise than it is written
    weights: Mapping[str, Any] = field(default_factory=dict)

    def verify(self) -> None:
        """ValueError if a dispatch reads what none before it wrote, or a result is not written."""
        self.program.verify()
        there = {*self.program.inputs, *self.program.weights}
        for d in self.dispatches:
            if not set(d.reads) <= there:
                raise ValueError(f"`{d.name}` reads what no dispatch before it wrote")
            there |= set(d.writes)
        bases = {self.program.behind_views(r) for r in self.program.results}
        if not bases <= {self.program.behind_views(t) for t in there}:
            raise ValueError("a result is never written")


# where a timed program comes from
CHOSEN, NEAR, INPUT, INPUT_BY_XLA = "chosen", "near", "input", "input by XLA"


@dataclass(frozen=True)
class Timed:
    """One program: what the model predicts, medians of a call, and the ratio to the chosen one.

    predicted_us: None where the model has no prediction, as for the input as XLA compiles it.
    ratio: the chosen program's time on the wall over this one's, of the median round, with its 95 %
    interval.
    """

    name: str
    origin: str
    predicted_us: float | None
    wall_us: float
    cpu_us: float
    ratio: tuple[float, float, float]


@dataclass(frozen=True)
class Measured(JsonRecord):
    """All that were timed, the chosen one first, in `rounds` interleaved rounds of `calls` calls.

    kept: number of the program that the run holds: the fastest, unless the chosen one is as fast
    within the interval.
    """

    programs: tuple[Timed, ...]
    rounds: int
    calls: int
    kept: int
    asked: int  # programs that were asked for; fewer are known where there was no time, or no more

    @property
    def keeps_input_by_xla(self) -> bool:
        """Whether XLA's own form of the input was the fastest."""
        return self.programs[self.kept].origin == INPUT_BY_XLA


# figures in which answers are compared, the first that a compiler tells counts
COUNTS = ("cycles", "kernels", "peak_bytes")
# how XLA is told contractions on a TPU: products over several rows as convolutions, or all as
# products, convolutions of few images and channels as sums of them
BY_CONVOLUTIONS, BY_PRODUCTS = "", "products"
SPELLINGS = (BY_CONVOLUTIONS, BY_PRODUCTS)
# who says how free arguments and results lie: the search (or the caller), nobody, the compiler
SEARCHED, PLAIN, COMPILERS = "", "plain", "compiler's"
MOVES = ("reshape", "copy", "slice", "concatenate", "pad", "transpose")  # opcodes of XLA
_ARRAY = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")  # type and dims
CONSTANTS, ARGUMENTS = "constants", "arguments"  # what weights are of a module that is compiled


@dataclass(frozen=True)
class RefusedDispatch:
    """A dispatch of a schedule, by its number, that a compiler refused, and what it said."""

    dispatch: int
    says: str


@dataclass(frozen=True)
class Figures(JsonRecord):
    """One program as a compiler has it; None where it does not tell.

    kernels: launches, those of a loop's body once. peak_bytes: arguments, results and temporaries
    in the device's main memory. scratch_bytes: of the kernel with the most. registers: of a
    thread, likewise. spill_bytes: of all kernels. cycles: the compiler's own estimate, of all
    kernels that have one. uncounted: kernels without, by what they are; `cycles` is then a lower
    bound. relayout_copies: copies that change a layout. refused: why it was not compiled, in the
    compiler's words. refused_dispatches: those that it named.
    """

    kernels: int | None = None
    peak_bytes: int | None = None
    scratch_bytes: int | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    cycles: int | None = None
    uncounted: tuple[str, ...] = ()
    relayout_copies: int | None = None
    refused: str | None = None
    refused_dispatches: tuple[RefusedDispatch, ...] = ()

    def is_better(self, other: Figures, count: str, *, or_equal: bool = False) -> bool:
        """Whether it surely has less of a count than the other one, or no more.

        Kernels without cycles may take any time: an answer is better only if the other one has all
        of those that it has.
        """
        amount, theirs = getattr(self, count), getattr(other, count)
        if self.refused is not None or amount is None:
            return False
        if other.refused is not None or theirs is None:
            return True
        is_less = amount <= theirs if or_equal else amount < theirs
        return is_less and not (count == "cycles" and self.has_more_unknown(other))

    def has_more_unknown(self, other: Figures) -> bool:
        """Whether a kernel without cycles is none that the other one has, too.

        A kernel that only moves data may stand for one of the same kind that moves as much.
        """
        theirs = list((Counter(other.uncounted) - Counter(self.uncounted)).elements())
        labels = (Counter(self.uncounted) - Counter(other.uncounted)).elements()
        for label in sorted(labels, key=_label_bytes, reverse=True):
            match = [t for t in theirs if _stands_for(label, t)]
            if not match:
                return True
            theirs.remove(max(match, key=_label_bytes))
        return False


def _stands_for(label: str, other: str) -> bool:
    kind, _, _ = label.partition(" ")
    is_move = kind in MOVES and other.startswith(f"{kind} ")
    return is_move and _label_bytes(label) <= _label_bytes(other)


def _label_bytes(label: str) -> int:
    """Of the arrays that a kernel's label names: `reshape bf16[1,1,2048]`."""
    nbytes = 0
    for letters, bits, dims in _ARRAY.findall(label):
        size = math.prod(int(d) for d in dims.split(",") if d)
        nbytes += size * (int(bits or 8) if letters != "pred" else 8) // 8
    return nbytes


@dataclass(frozen=True)
class Prediction:
    """Prediction of eqsat's cost model for the chosen program, on the target of the run."""

    target: str
    dispatches: int
    peak_bytes: int
    temporary_bytes: int | None  # of the arena
    time_ps: int


@dataclass(frozen=True)
class Told:
    """Answer of a device's compiler for the chosen program and for the plain one.

    weights: whether they were `arguments` or `constants` of what was compiled. plain: the
    `function` that was traced, or the input `program` of a run that was saved.
    """

    oracle: str
    weights: str
    chosen: Figures
    plain: Figures
    plain_is: str
    predicted: Prediction

    @property
    def device(self) -> str:
        return parse_oracle(self.oracle).device

    @property
    def asked(self) -> Oracle:
        return parse_oracle(self.oracle)

    def summary(self) -> dict[str, Any]:
        """The object that `eqsat compile --json` prints."""
        p = self.predicted
        predicted = {
            "target": p.target, "dispatches": p.dispatches, "peak_bytes": p.peak_bytes,
            "temporary_bytes": p.temporary_bytes, "time_us": p.time_ps / 1e6,
        }  # fmt: skip
        return {
            "format": 1,
            "device": self.device,
            "compiler": self.asked.compiler,
            "weights": self.weights,
            **self.chosen.to_json(),
            "predicted": predicted,
            "plain": {"is": self.plain_is, **self.plain.to_json()},
        }


@dataclass(frozen=True)
class Compiled(JsonRecord):
    """All that compilers told of a run, one entry per device, in the order of asking."""

    FORMAT = 1

    told: tuple[Told, ...] = ()

    def with_told(self, one: Told) -> Compiled:
        """With the answer for one device, in place of an earlier one for it."""
        return Compiled((*(t for t in self.told if t.oracle != one.oracle), one))


@dataclass(frozen=True)
class Weighed:
    """One program that `--check-compile` asked about; predicted_us: None of the plain function.

    layouts: of arguments and results that are free: as the search has them, plain, or the
    compiler's. spelling: one of `SPELLINGS`.
    """

    name: str
    origin: str
    predicted_us: float | None
    figures: Figures
    layouts: str = ""
    spelling: str = BY_CONVOLUTIONS


@dataclass(frozen=True)
class Checked(JsonRecord):
    """Programs of a search as their oracle counts them, the chosen one first, and which was kept.

    count: one of `COUNTS`; "" where the compiler told none of them of any program.
    """

    oracle: str
    count: str
    weights: str
    programs: tuple[Weighed, ...]
    kept: int

    @property
    def spelling(self) -> str:
        """How XLA is told the contractions of what was kept."""
        return self.programs[self.kept].spelling

    @property
    def plain_cycles(self) -> int | None:
        """Of the function with plain arguments and results; it is the last that is asked about."""
        last = self.programs[-1]
        return last.figures.cycles if last.origin == INPUT_BY_XLA else None

    @property
    def auto_cycles(self) -> int | None:
        """Of the function where the compiler chooses the layouts that are free; None: none are."""
        timed = [p for p in self.programs if p.origin == INPUT_BY_XLA and p.layouts == COMPILERS]
        return timed[-1].figures.cycles if timed else None

    @property
    def keeps_input_by_xla(self) -> bool:
        """Whether the function as the compiler has it was kept."""
        return self.programs[self.kept].origin == INPUT_BY_XLA
