"""Pools come before products, and filters of several sizes that are added are one filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest
from jax import lax
from seeds import one_in

import eqsat

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, "float32")


def conv(x: Any, w: Any, form: tuple[str, str, str] = LAST, step: int = 1) -> Any:
    return lax.conv_general_dilated(x, w, (step, step), "SAME", dimension_numbers=form)


def pool(x: Any, size: tuple[int, ...], step: tuple[int, ...]) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, size, step, "VALID")


CASES: dict[str, tuple[Callable[..., Any], list[jax.ShapeDtypeStruct], set[str]]] = {
    "channels-first": (
        lambda x, w, v: conv(x, w, FIRST) + conv(x, v, FIRST),
        [shape(1, 8, 16, 16), shape(8, 8, 3, 3), shape(8, 8, 1, 1)],
        {"join-filters"},
    ),
    "three-filters-with-steps": (
        lambda x, w, v, u: jax.nn.relu(
            conv(x, w, step=2) + conv(x, v, step=2) - conv(x, u, step=2)
        ),
        [shape(2, 9, 9, 8), shape(5, 5, 8, 8), shape(3, 3, 8, 8), shape(1, 1, 8, 8)],
        {"join-filters", "join-padded-filters"},
    ),
    "the-small-one-first": (
        lambda x, v, w, b: conv(x, v) * 0.5 + conv(x, w) + b,
        [shape(1, 24, 24, 8), shape(1, 1, 8, 8), shape(3, 3, 8, 8), shape(8)],
        {"join-filters-last"},
    ),
    "overlapping-pool": (
        lambda x, w: pool(conv(x, w, FIRST), (1, 1, 3, 3), (1, 1, 2, 2)) / 9,
        [shape(2, 16, 15, 15), shape(16, 16, 1, 1)],
        {"pool-left-ahead", "scale-left-sum"},
    ),
}


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_what_reads_windows_does_less(name: str) -> None:
    function, specs, rules = CASES[name]
    alone = ["fusion.siblings=false"]  # else two sums that read one image are one dispatch anyway
    asked = {"target": "avx512-xla", "goals": ("time",), "settings": alone, "verify": True}
    found = eqsat.optimize(function, *specs, rules=["full"], **asked)
    assert found.verification is not None and found.verification.ok
    assert rules <= {r.name for r in found.egraph.rules if r.matches}
    summary = found.summary()
    assert summary["goals"]["time_us"]["value"] < summary["baseline"]["time_us"]


def test_windows_that_do_not_lie_in_each_other_stay_two() -> None:
    """A filter of two to the left of the pixel and one of three around it."""

    def function(x: Any, w: Any, v: Any) -> Any:
        form = ("NWC", "WIO", "NWC")
        around = lax.conv_general_dilated(x, w, (1,), [(1, 1)], dimension_numbers=form)
        return around + lax.conv_general_dilated(x, v, (1,), [(2, -1)], dimension_numbers=form)

    specs = [shape(2, 16, 8), shape(3, 8, 8), shape(2, 8, 8)]
    alone = ["fusion.siblings=false"]  # else two sums that read one image are one dispatch anyway
    asked = {"target": "avx512-xla", "goals": ("time",), "settings": alone, "verify": True}
    found = eqsat.optimize(function, *specs, rules=["full"], **asked)
    assert found.verification is not None and found.verification.ok
    assert not any(r.name.startswith("join-") and r.matches for r in found.egraph.rules)
