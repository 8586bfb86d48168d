"""The constants of plans from measured dispatches: least squares on the logarithm of the time.

Shapes that say nothing of a constant leave it where it was: every constant is held back a little.
The error of the fit is that of dispatches it did not see: each group of them is left out once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from eqsat.lang.owntarget import FIELDS
from eqsat.model.dispatch import Work
from eqsat.model.files import JsonRecord
from eqsat.plan.price import Rates, Stream, priced_parts

HELD_BACK = 0.02  # residual of a constant that becomes e times as large, as a relative error
LARGE = 0.1  # relative error from which on a residual counts linearly: a disturbed measurement
STEP = 0.02  # of a logarithm, for derivatives
FARTHEST = math.log(30)  # of a constant from its start
LEAST_SHARE = 0.8  # predicted over measured that is near
APART = 1.05  # times that differ by less are not to be ordered


class ObservedTime(Protocol):
    """A dispatch and what it took; dispatches of a group are to be ordered."""

    @property
    def group(self) -> str: ...
    @property
    def time_ps(self) -> float: ...


@dataclass(frozen=True)
class Observed:
    """A dispatch with what its price is made of, and what it took."""

    name: str
    group: str
    work: Work
    first: tuple[Stream, ...]
    time_ps: float


@dataclass(frozen=True)
class Quality(JsonRecord):
    """How far predictions are from measured times; errors are |predicted / measured - 1|."""

    median_error: float
    error_90: float  # nine of ten are below
    kendall_tau: float
    ordered: int  # pairs of one group, further apart than `APART`, that are ordered right
    pairs: int
    near: float = 0.0  # share that is predicted within `LEAST_SHARE` and its inverse


@dataclass(frozen=True)
class Fit:
    """Constants, and how well they predict."""

    rates: Rates
    predicted_ps: tuple[float, ...]  # of every observed dispatch by the fit of all
    unseen_ps: tuple[float, ...]  # of every one by a fit without its group
    seen: Quality
    unseen: Quality


def fit(
    observed: Sequence[Observed], start: Rates, progress: Callable[[float], None] = lambda _: None
) -> Fit:
    """The constants that predict these times best; progress: share of the fits that are done.

    start: constants to begin from, and what else of a target a price needs.
    """
    groups = list(dict.fromkeys(o.group for o in observed))
    best = _solve(observed, start, [0.0] * (len(_values(start)) - 1) + [start.constants.overlap])
    fitted = _rates(start, best)
    unseen: dict[str, float] = {}
    for i, group in enumerate(groups):
        progress((i + 1) / (len(groups) + 1))
        rest = [o for o in observed if o.group != group]
        rates = fitted if not rest else _rates(start, _solve(rest, start, best))
        unseen |= {o.name: predict(o, rates) for o in observed if o.group == group}
    predicted = tuple(predict(o, fitted) for o in observed)
    left_out = tuple(unseen[o.name] for o in observed)
    return Fit(
        fitted, predicted, left_out, quality(observed, predicted), quality(observed, left_out)
    )


def predict(o: Observed, rates: Rates) -> float:
    """Picoseconds by these constants."""
    return float(priced_parts(o.work, rates, o.first).time_ps)


def quality(observed: Sequence[ObservedTime], predicted: Sequence[float]) -> Quality:
    """How far these predictions are from what was measured, and how well they order it."""
    from scipy.stats import kendalltau

    measured = [o.time_ps for o in observed]
    errors = sorted(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True))
    pairs = list(_pairs(observed))
    right = [(measured[i] > measured[j]) == (predicted[i] > predicted[j]) for i, j in pairs]
    tau: Any = kendalltau(measured, predicted)[0] if len(measured) > 1 else 1.0
    at_90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    near = [
        LEAST_SHARE <= p / m <= 1 / LEAST_SHARE for p, m in zip(predicted, measured, strict=True)
    ]
    return Quality(
        round(statistics.median(errors), 4),
        round(at_90, 4),
        round(float(tau), 4),
        sum(right),
        len(pairs),
        round(sum(near) / len(near), 4),
    )


def _pairs(observed: Sequence[ObservedTime]) -> Iterator[tuple[int, int]]:
    """Dispatches of one group whose times differ."""
    for i, j in combinations(range(len(observed)), 2):
        a, b = observed[i], observed[j]
        if a.group == b.group and max(a.time_ps / b.time_ps, b.time_ps / a.time_ps) > APART:
            yield i, j


# ---- constants as a vector: logarithms of what each is times its start, and the overlap ----------
def _values(rates: Rates) -> list[float]:
    constants = [getattr(rates.constants, name) for name in FIELDS]
    return [*constants, *(m.bandwidth for m in rates.memory), float(rates.launch_ps), 0.0]


def _rates(start: Rates, x: Sequence[float]) -> Rates:
    values = [v * math.exp(z) for v, z in zip(_values(start)[:-1], x[:-1], strict=True)]
    constants_by_name = dict(zip(FIELDS, values, strict=False))
    bandwidths = values[len(FIELDS) : -1]
    memory = tuple(replace(m, bandwidth=b) for m, b in zip(start.memory, bandwidths, strict=True))
    constants = replace(start.constants, **constants_by_name, overlap=float(x[-1]))
    return replace(start, constants=constants, memory=memory, launch_ps=round(values[-1]))


def _solve(observed: Sequence[Observed], start: Rates, x: Sequence[float]) -> list[float]:
    from scipy.optimize import least_squares

    measured = np.log([o.time_ps for o in observed])

    def residuals(x: Any) -> Any:
        rates = _rates(start, x)
        predicted = np.log([max(predict(o, rates), 1.0) for o in observed])
        return np.concatenate([predicted - measured, HELD_BACK * x[:-1]])

    def derivatives(x: Any) -> Any:
        steps = np.eye(len(x)) * STEP
        return np.stack([(residuals(x + s) - residuals(x - s)) / (2 * STEP) for s in steps], 1)

    low, high = [-FARTHEST] * (len(x) - 1) + [0.0], [FARTHEST] * (len(x) - 1) + [1.0]
    begin = np.clip(x, np.add(low, 1e-6), np.subtract(high, 1e-6))
    solution = least_squares(
        residuals, begin, jac=derivatives, bounds=(low, high),
        loss="soft_l1", f_scale=LARGE, max_nfev=40,
    )  # fmt: skip
    return [float(v) for v in solution.x]
