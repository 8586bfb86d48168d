"""The pairs of tests/fuzz/pairs: both sides compute the same, from a stated source."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from fuzz.pairs import PAIRS, THEMES
from seeds import one_in

SCALE = 32
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# sums of squares less squares of sums cancel, and norms are of numbers around 1
TOLERANCE = 1e-9


@pytest.mark.parametrize("name", one_in(12, PAIRS))
def test_sides_are_equal(name: str) -> None:
    """In float64 both functions give the same numbers, of the same shapes."""
    pair = PAIRS[name].at(SCALE)
    with jax.enable_x64(True):
        arrays = pair.draw("float64")
        both = jax.jit(lambda *a: (pair.naive(*a), pair.better(*a))).lower(*arrays)
        naive, better = map(jax.tree.leaves, both.compile(compiler_options=QUICK)(*arrays))
    assert [a.shape for a in naive] == [b.shape for b in better]
    for a, b in zip(naive, better, strict=True):
        assert np.abs(np.asarray(a)).max() > 0, "all zero: nothing is compared"
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)


def test_catalogue() -> None:
    """There are as many pairs as are promised, of all themes, with a sentence and a source each."""
    assert len(PAIRS) >= 55
    assert {e.theme for e in PAIRS.values()} == {t.__name__.rpartition(".")[2] for t in THEMES}
    for name, entry in PAIRS.items():
        assert entry.doc, name
        assert entry.doc.splitlines()[0].endswith("."), name
        assert entry.source, name
