"""The worst element of a result beside what was wanted, for tests and benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.execute.compare import distance, element, misshapen, size

Array = np.ndarray[Any, Any]


def worst_error(got: Array, wanted: Array, slack: Array | None = None) -> tuple[float, str]:
    """(relative error, text of the worst element); inf if shapes, integers, NaN or inf differ.

    slack: how far each element may be off without that being an error.
    """
    if got.shape != wanted.shape:
        return float("inf"), misshapen(got, wanted)
    if not wanted.size:
        return 0.0, ""
    found = distance(got, wanted)
    if slack is not None:
        found = np.where(found <= slack, 0.0, found)
    worst = int(np.argmax(found))
    error = float(found.flat[worst]) / size(wanted)
    if wanted.dtype.kind in "iub" and error:
        error = float("inf")
    return error, element(got, wanted, worst)
