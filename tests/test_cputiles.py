"""The tiles of the CPU targets by element type, as docs/targets.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.generic import Generic
from eqsat.ops.targets.tiles import tiles_of

PAGE = Path(__file__).parent.parent / "docs" / "targets.md"
WIDE = {"f": "f32", "i": "i32", "u": "i32", "b": "f32"}


def matmul(lhs: str, rhs: str, m: int, n: int = 64, k: int = 64) -> str:
    wide = WIDE[lhs[0]]
    types = enumerate((lhs, rhs))
    left, right = (f"x{i}" if t == wide else f"cast(x{i}, {wide})" for i, t in types)
    return (
        f"input a: {lhs}[{m}, {k}]\nweight b: {rhs}[{k}, {n}]\n"
        f"y = generic(a, b, loops=[{m}, {n}, {k}], maps=[[d0, d2], [d2, d1]], "
        f"body=mul({left}, {right}), combine=add)\nreturn y\n"
    )


def tiles(target: str, text: str) -> list[tuple[int, ...]]:
    program = parse_program(text)
    (g,) = (n.attr for n in program.nodes if isinstance(n.attr, Generic))
    return [t.extents for t in tiles_of(eqsat.target(target), g)]


def listed() -> list[tuple[str, str, str, tuple[int, ...] | None]]:
    """(target, lhs, rhs, tile) of every row of the page's table about contractions."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| types |"))
    names = re.findall(r"`([\w-]+)`", lines[start])
    found = []
    for line in lines[start + 2 :]:
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) != len(names) + 1 or "convolution" in cells[0]:
            break
        lhs, _, rhs = cells[0].partition(" x ")
        for name, cell in zip(names, cells[1:], strict=True):
            tile = re.match(r"(\d+)x(\d+)x(\d+)", cell)
            found.append((name, lhs, rhs or lhs, tile and tuple(map(int, tile.groups()))))
    assert len(found) == 28
    return found


@pytest.mark.parametrize(("target", "lhs", "rhs", "tile"), listed())
def test_the_page_lists_the_tiles(target, lhs, rhs, tile):
    found = tiles(target, matmul(lhs, rhs, m=1 if tile and tile[0] == 1 else 64))
    assert found == ([] if tile is None else [tile])


@pytest.mark.parametrize(("target", "columns"), [("arm64", 8), ("riscv64", 32)])
def test_few_rows_have_narrow_tiles(target, columns):
    for m in (1, 2, 4):
        assert tiles(target, matmul("f32", "f32", m)) == [(m, columns, 1)]


@pytest.mark.parametrize(
    ("target", "types"),
    [("arm64", ("i8", "i4")), ("riscv64", ("f16", "f16")), ("avx512-xla", ("i16", "i16"))],
)
def test_a_packed_product_is_verified(target, types):
    program = parse_program(matmul(*types, m=20, n=40, k=24))
    run = eqsat.optimize(
        program, target=target, settings=["tiles_forced=true"], goals=["time"], verify=True
    )
    assert run.schedule is not None
    assert run.schedule.counts()["packs"] + run.schedule.counts()["fused_conversions"] >= 1
    assert run.verification is not None
    assert run.verification.ok


@pytest.mark.parametrize(("target", "cut"), [("arm64", 8), ("avx512-conv2d", 16)])
def test_convolutions_are_packed(target, cut):
    import jax
    import numpy as np

    def f(x, w):
        return jax.lax.conv(x, w, (1, 1), "VALID")

    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((1, 16, 10, 10), (16, 16, 3, 3))]
    run = eqsat.optimize(
        f, *shapes, weights=["w"], target=target, settings=["tiles_forced=true"], goals=["time"]
    )
    assert run.schedule is not None
    layouts = [n.attr for n in run.schedule.program.nodes if n.op == "pack"]
    assert layouts
    assert all(set(p.tiles) == {cut} for p in layouts)
