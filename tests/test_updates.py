"""What was just written is not read back; what was just read is not written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from loops import array

from eqsat.frontends.jaxpr import trace
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.spelling.passes import canonical

X, U = array(1, 9, 6), array(2, 9, 3)
CASES: dict[str, tuple[Callable[..., Any], int]] = {  # and how many gathers are left
    "read": (lambda x, u, i, j: _read(_write(x, u, i), i, 3) * 2.0, 0),
    "read-at-another-place": (lambda x, u, i, j: _read(_write(x, u, i), j, 3) * 2.0, 2),
    "read-more": (lambda x, u, i, j: _read(_write(x, u, i), i, 4) * 2.0, 2),
    "write": (lambda x, u, i, j: _write(x, _read(x, i, 3), i) + 1.0, 0),
    "write-elsewhere": (lambda x, u, i, j: _write(x, _read(x, j, 3), i) + 1.0, 2),
    "write-to-another": (lambda x, u, i, j: _write(x + 1.0, _read(x, i, 3), i), 2),
}


def _read(x: Any, at: Any, width: int) -> Any:
    return lax.dynamic_slice_in_dim(x, at, width, axis=1)


def _write(x: Any, u: Any, at: Any) -> Any:
    return lax.dynamic_update_slice_in_dim(x, u, at, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_blocks(name: str) -> None:
    function, left = CASES[name]
    source = trace(function, (X, U, np.int32(0), np.int32(0)))
    found = canonical(source.program)
    assert sum(n.op == "gather" for n in found.nodes) == left
    for i, j in ((0, 0), (1, 2), (3, 0), (7, 2), (-2, 1)):
        inputs = (X, U, np.int32(i), np.int32(j))
        wanted = np.asarray(function(*map(jnp.asarray, inputs)))
        values = evaluate_program(found, inputs, source.weights)
        assert np.array_equal(np.float32(values[0]), wanted)
