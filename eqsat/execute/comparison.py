"""Results against what they should be, by ever closer looks: right, or which element is wrong.

1. Is a result within what roundings of these types, precisions and reduction lengths explain?
2. Is each element within what they do to *this* element (`rounding.Noise`)?
3. Is it no further off than a witness, which is known to be right, or than what is executed moves
   when its inputs move by a unit in the last place?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from eqsat.execute.compare import LEEWAY, distance, dominated, element, misshapen, proof, size
from eqsat.execute.rounding import Noise, error_limit, moves
from eqsat.model.program import Program

Array = np.ndarray[Any, Any]
FEW, MANY = 3, 16  # pairs of noisy evaluations: at first, and for elements they do not explain
NUDGES = 6  # runs of the witness on inputs moved by a unit in the last place
Nudged = np.random.Generator | None


@dataclass
class Judged:
    """Verdict on one sample; per result the share of its elements that say something."""

    error: float
    limit: float
    where: str
    ok: bool = True
    reason: str = ""
    proofs: list[float] = field(default_factory=list)
    meant: list[float] = field(default_factory=list)  # the same of the chosen program in float64


def sample_names(sample: str) -> Callable[[int], str]:
    """How the results of a sample are called."""
    return lambda result: f"{sample}, result {result}"


@dataclass(frozen=True)
class Examined:
    """A program that is evaluated again to see what rounding does to its results.

    again: its results with these roundings. exact: of float64 alone. witness: results that are
    right, of the same inputs or of inputs moved at random. shaken: how far such a move of the
    inputs moves each element of what is executed, where there is no witness. name: of a result.
    place: of an element of a result, where that is a list of elements of a larger one.
    """

    program: Program
    again: Callable[[Noise], Sequence[Array]]
    name: Callable[[int], str]
    platform: str
    seed: int = 0
    exact: bool = False
    witness: Callable[[Nudged], Sequence[Array]] | None = None
    shaken: Callable[[], Sequence[Array]] | None = None
    place: Callable[[int, int], str] | None = None
    limit: float | None = None  # of error; that of the program if it is not given


def judged(sample: Examined, wanted: Sequence[Array], got: Sequence[Array]) -> Judged:
    """Verdict on these results; OverWork if it takes more work than that."""
    for r, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if a.shape != b.shape:
            where = f"{sample.name(r)}{misshapen(a, b)}"
            return Judged(float("inf"), 0.0, where, False, where, [0.0] * len(got))
    return _Comparison(sample, wanted, got).judged()


class Again(Protocol):
    """Elements that can be evaluated again (`ondemand.Elements`)."""

    def __call__(self, ops: Any = ...) -> list[Array]: ...
    def only(self, which: Sequence[Array]) -> Self: ...
    def place(self, at: int, element: int) -> str: ...


E = TypeVar("E", bound=Again)


def judged_elements(
    ask: Callable[[E], Examined], elements: E, wanted: Sequence[Array], got: Sequence[Array]
) -> Judged:
    """Verdict as of `judged`, with closer looks at the elements that the first leaves open."""
    first = _Comparison(ask(elements), wanted, got)
    open_ = [d > a for d, a in zip(first.distances, first.allowed, strict=True)]
    if not any(o.any() for o in open_):
        return first.judged()
    rest = elements.only(open_)
    return judged(ask(rest), _picked(wanted, open_), _picked(got, open_))


def _picked(arrays: Sequence[Array], which: Sequence[Array]) -> list[Array]:
    return [x[w] for x, w in zip(arrays, which, strict=True)]


class _Comparison:
    def __init__(self, sample: Examined, wanted: Sequence[Array], got: Sequence[Array]):
        self.sample, self.wanted, self.got = sample, wanted, got
        limit = sample.limit
        if limit is None:
            limit = error_limit(sample.program, sample.platform, exact=sample.exact)
        self.allowed = [
            np.full(w.shape, limit * size(w)) if w.dtype.kind == "f" else np.zeros(w.shape)
            for w in wanted
        ]
        self.distances = [distance(a, b) for a, b in zip(got, wanted, strict=True)]

    def judged(self) -> Judged:
        if self._open():
            self._widen()
        return self._judged()

    def _open(self) -> list[int]:
        """Results with elements that nothing explains so far."""
        pairs = zip(self.distances, self.allowed, strict=True)
        return [r for r, (d, a) in enumerate(pairs) if (d > a).any()]

    def _widen(self) -> None:
        """Look closer until everything is explained or nothing is left to look at."""
        self.allowed = [np.zeros(w.shape) for w in self.wanted]
        for pair, moved in enumerate(self._noise()):
            self._allow(moved)
            if pair + 1 >= FEW and not self._open():
                return
        if self.sample.witness is not None:
            self._ask_witness(self.sample.witness)
        if self.sample.shaken is not None:
            self._allow([LEEWAY * m for m in self.sample.shaken()])
            self._allow_poles()

    def _allow_poles(self) -> None:
        """Infinity where no digit of an element is certain: what it is divided by may be zero."""
        for r, (got, wanted) in enumerate(zip(self.got, self.wanted, strict=True)):
            if wanted.dtype.kind == "f":
                lost = (self.allowed[r] >= np.abs(wanted)) & (wanted != 0)
                self.allowed[r][lost & np.isinf(got)] = np.inf

    def _allow(self, moved: Sequence[Array]) -> None:
        pairs = zip(self.allowed, moved, strict=True)
        self.allowed = [np.maximum(a, m) for a, m in pairs]

    def _noise(self) -> Iterator[list[Array]]:
        """Per pair of noisy evaluations, how far they move each element."""
        sample = self.sample
        for pair in range(MANY):
            yield moves(
                sample.program, sample.again, self.wanted, [sample.seed, pair], sample.platform,
                exact=sample.exact,
            )  # fmt: skip

    def _ask_witness(self, witness: Callable[[Nudged], Sequence[Array]]) -> None:
        """Allow the errors of the witness itself, near these inputs."""
        rng = np.random.default_rng(self.sample.seed)
        explained = self.allowed
        unperturbed: list[Array] = []
        for nudge in range(1 + NUDGES):
            outputs = witness(rng if nudge else None)
            away = [distance(a, b) for a, b in zip(outputs, self.wanted, strict=True)]
            unperturbed = unperturbed or away
            pairs = zip(away, explained, strict=True)
            self._allow([np.where(d > e, LEEWAY * d, d) for d, e in pairs])
            if not self._open():
                return
        for r in self._open():
            if dominated(self.distances[r], unperturbed[r], explained[r]):
                self.allowed[r] = np.maximum(self.allowed[r], self.distances[r])

    def _judged(self) -> Judged:
        """The worst element: of those not allowed if there are any."""
        open_ = self._open()
        best = Judged(0.0, 0.0, "", not open_)
        for r in open_ or range(len(self.wanted)):
            d, allowed, wanted = self.distances[r], self.allowed[r], self.wanted[r]
            if not d.size:
                continue
            looked = np.where(d > allowed, d, -1.0) if open_ else np.where(np.isfinite(d), d, 0.0)
            at = int(np.argmax(looked))
            error, limit = (float(x.flat[at]) / size(wanted) for x in (d, allowed))
            if error > best.error or not best.where:
                best.error, best.limit = error, limit
                best.where = f"{self.sample.name(r)}{self._element(r, at)}"
        best.reason = "" if best.ok else best.where
        best.proofs = [proof(w, a) for w, a in zip(self.wanted, self.allowed, strict=True)]
        return best

    def _element(self, result: int, at: int) -> str:
        got, wanted = self.got[result], self.wanted[result]
        place = None if self.sample.place is None else self.sample.place(result, at)
        return element(got, wanted, at, place)
