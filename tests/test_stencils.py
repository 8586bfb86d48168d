"""Stencils: overlapping slices are maps of one op, and its rows test no border inside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import planned
from rownests import check
from runnable import WIDEST, needs_kernels
from seeds import seeds
from test_kernel_math import AVX2, MACHINE
from test_nest import nest_of_text

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.ops.spelling.reads import as_stencils
from eqsat.plan import rows
from eqsat.plan.plancheck import row_faults
from eqsat.plan.rowwork import without_bounds

F32 = np.float32


def slices(*starts: int, size: int = 12, taken: int = 8, step: int = 1) -> str:
    """A sum of slices of one value."""
    ends = [s + (taken - 1) * step + 1 for s in starts]
    lines = [
        f"s{i} = slice(x, start=[{a}, 0], limit=[{b}, 5], stride=[{step}, 1])"
        for i, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]
    maps = ", ".join(["[d0, d1]"] * len(starts))
    body = "x0"
    for i in range(1, len(starts)):
        body = f"add({body}, x{i})"
    named = ", ".join(f"s{i}" for i in range(len(starts)))
    return "\n".join([
        "program p", f"input x: f32[{size}, 5]", *lines,
        f"y = generic({named}, loops=[{taken}, 5], maps=[{maps}], body={body})", "return y",
    ])  # fmt: skip


def ops(text: str) -> list[str]:
    return [n.op for n in as_stencils(parse_program(text)).nodes]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (slices(0, 2, 4), ["input", "generic"]),
        (slices(1, 2), ["input", "slice", "generic"]),  # of what they take together
        (slices(0, 1, 2, taken=4, step=2), ["input", "slice", "generic"]),
        (slices(0, 6, taken=6), ["input", "slice", "slice", "generic"]),  # halves of one value
        (slices(0, 1, taken=6, step=2), ["input", "slice", "slice", "generic"]),  # every second
    ],
)
def test_overlapping_slices_are_maps_of_their_reader(text: str, want: list[str]) -> None:
    assert ops(text) == want
    program = parse_program(text)
    x = np.arange(60, dtype=F32).reshape(12, 5)
    run = eqsat.optimize(program, target="reference", rules=())
    assert np.array_equal(run.compile()(x)[0], _summed(text, x))


def _summed(text: str, x: np.ndarray) -> np.ndarray:
    parts = [line for line in text.splitlines() if "slice(" in line]
    numbers = [[int(n) for n in line.replace("[", " ").replace("]", " ").replace(",", " ").split()
                if n.isdigit()] for line in parts]  # fmt: skip
    return np.sum([x[a:b:k] for a, _, b, _, k, _ in numbers], axis=0)


def jacobi(x: jax.Array, steps: int = 10, mode: Any = "constant") -> Any:
    for _ in range(steps):
        p = jnp.pad(x, 1, mode=mode)
        x = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return x


def stepped(x: np.ndarray, steps: int, mode: Any) -> np.ndarray:
    for _ in range(steps):
        p = np.pad(x.astype(np.float64), 1, mode=mode)
        x = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
    return x


def test_ten_steps_are_ten_dispatches_and_proven() -> None:
    x = np.random.default_rng(0).standard_normal((40, 70)).astype(F32)
    run = eqsat.optimize(jacobi, x, target=WIDEST, time_limit=60)
    summary = run.summary()
    assert summary["counts"]["dispatches"] == 10 and summary["stop"] == "optimal"
    assert run.schedule is not None
    assert [d.ops for d in run.schedule.dispatches] == ["pad+elementwise"] * 10
    error = np.abs(run.compile()(x) - stepped(x, 10, "constant")).max()
    assert error < 1e-6


@pytest.mark.parametrize("mode", seeds(1, ["reflect", "edge"]))
def test_pads_that_repeat_the_image(mode: str) -> None:
    x = np.random.default_rng(0).standard_normal((20, 35)).astype(F32)
    run = eqsat.optimize(lambda x: jacobi(x, 1, mode), x, target=WIDEST, time_limit=4)
    assert np.abs(run.compile()(x) - stepped(x, 1, mode)).max() < 1e-6


# ---- kernels -------------------------------------------------------------------------------------
def stencil(height: int, width: int, low: int = 1, high: int = 1, step: int = 1) -> str:
    """Of nine points of an image that is padded by 2."""
    reach = low + high
    h, w = ((n + reach - 3) // step + 1 for n in (height, width))
    at = [[f"{step}*d0 + {i}", f"{step}*d1 + {j}"] for i in range(3) for j in range(3)]
    maps = ", ".join(f"[{a}, {b}]" for a, b in at)
    body = "x0"
    for i in range(1, 9):
        body = f"add({body}, mul(x{i}, {i / 8}))"
    return f"""program p
    input x: f32[{height}, {width}]
    p = pad(x, low=[{low}, {low}], high=[{high}, {high}], value=2.0)
    y = generic({", ".join("p" * 9)}, loops=[{h}, {w}], maps=[{maps}], body={body})
    return y"""


WIDTHS = [1, 7, 15, 16, 17, 31, 33, 48, 79, 150]


@needs_kernels(MACHINE)
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_beside_borders_and_inside(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ITEM_COST", 60)
    nest = nest_of_text(stencil(9, width))
    for machine in (MACHINE, AVX2):
        plan = check(nest, f"stencil{width}{machine is AVX2}", machine)
        (part,) = plan.parts
        if width >= 79:
            assert part.inside is not None and part.inside.low == part.lanes
            assert f"inside {part.inside.low}:{part.inside.high}" in plan.to_text()


@needs_kernels(MACHINE)
@pytest.mark.parametrize(
    ("low", "high", "step"), [(1, 0, 1), (0, 1, 1), (2, 2, 1), (1, 1, 2), (5, 3, 1), (0, 0, 1)]
)
def test_rows_beside_any_border(low: int, high: int, step: int) -> None:
    check(nest_of_text(stencil(7, 70, low, high, step)), f"border{low}{high}{step}")


@needs_kernels(MACHINE)
@pytest.mark.parametrize(("channels", "combine"), [(5, "max"), (33, "max"), (20, "add")])
def test_pools_test_no_border_inside(channels: int, combine: str) -> None:
    value = "-inf" if combine == "max" else "0.0"
    for order in ("nhwc", "nchw"):
        shape = {"n": 2, "h": 11, "w": 40, "c": channels}
        sizes = [shape[d] // 2 + (shape[d] % 2) if d in "hw" else shape[d] for d in order]
        at = [f"2*d{i} + d{4 + 'hw'.index(d)}" if d in "hw" else f"d{i}"
              for i, d in enumerate(order)]  # fmt: skip
        low = [int(d in "hw") for d in order]
        nest = nest_of_text(f"""program p
            input x: f32[{", ".join(str(shape[d]) for d in order)}]
            p = pad(x, low={low}, high={low}, value={value})
            y = generic(p, loops=[{", ".join(map(str, (*sizes, 3, 3)))}],
              maps=[[{", ".join(at)}]], body=x0, combine={combine}, rank=4)
            return y""")
        plan = check(nest, f"pool{channels}{combine}{order}")
        assert plan.parts[0].inside is not None


def test_what_is_not_tested_holds() -> None:
    """Each row that is not looked at, or a vector more, is told."""
    nest = nest_of_text(stencil(9, 150))
    plan = rows.plan(nest, MACHINE)
    part = plan.parts[0]
    inside = part.inside
    assert inside is not None and list(row_faults(nest, plan)) == []
    changed = [inside._replace(rows=inside.rows[1:]), inside._replace(low=0)]
    changed += [inside._replace(high=150), inside._replace(rows=())]
    changed.append(inside._replace(low=inside.low // 2))
    for x in changed:
        other = replace(plan, parts=(part._replace(inside=x),))
        assert list(row_faults(nest, other)), x
    assert not any(a.bounds for a in without_bounds(nest, inside.bounds).accesses)


def test_searches_plan_stencils_with_an_inside() -> None:
    found = [p for _, p in planned("stencil") if isinstance(p, rows.Rows)]
    assert any(part.inside for p in found for part in p.parts)
