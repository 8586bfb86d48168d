"""Dispatches of schedules as nests, evaluated and compared with what their members mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.nestmeaning import disagreement

from eqsat.execute.draw import random_inputs
from eqsat.model.nest import Nest
from eqsat.model.program import Program
from eqsat.model.schedule import Dispatch
from eqsat.ops.meaning import programs as meaning

Array = np.ndarray[Any, Any]
Values = dict[int, Array]


def values_of(program: Program, weights: Any, opaque: Any = None, seed: int = 0) -> Values:
    """Every value of a program, in held form."""
    inputs = random_inputs(program, np.random.default_rng(seed))
    found = meaning.walk(program, inputs, weights, opaque)
    return {i: np.asarray(results[0]) for i, results in found}


def mismatch(nest: Nest, dispatch: Dispatch, values: Values) -> str:
    """What a nest of a dispatch writes otherwise than its members mean; "" if nothing."""
    assert set(nest.reads) <= set(dispatch.reads)
    assert set(nest.writes) == set(dispatch.writes)
    return disagreement(nest, values)
