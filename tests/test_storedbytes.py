"""Bytes move as bytes: what widens them is computed by their readers, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.lang.programs import parse_program
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.spelling.passes import canonical

WIDE = "mul(cast(sub(cast(x0, i32), 124), f32), 0.036180686205625534)"
NARROW = "cast(min(max(add(round_even(div(x0, 0.036180686205625534)), 124.0), 0.0), 255.0), u8)"


def program(*lines: str) -> Program:
    return parse_program("\n".join(("program p", *lines)), "p.eqs")


def each(name: str, x: str, body: str, shape: tuple[int, ...]) -> str:
    loops = ", ".join(f"d{i}" for i in range(len(shape)))
    return f"{name} = generic({x}, loops={list(shape)}, maps=[[{loops}]], body={body})"


def settled(p: Program, *given: np.ndarray) -> Program:
    """The program in its canonical form, which computes the same bits."""
    found = canonical(p)
    before, after = (evaluate_program(q, given, {}) for q in (p, found))
    for a, b in zip(before, after, strict=True):
        assert np.array_equal(a, b) and np.array_equal(np.signbit(a), np.signbit(b))
    return found


def ops(p: Program) -> list[tuple[str, str]]:
    return [(n.op, n.type.dtype) for n in p.nodes if n.op not in ("input", "weight", "reshape")]


def every_byte(dtype: str = "u1") -> np.ndarray:
    return np.arange(256, dtype="u1").view(dtype).reshape(16, 16)


@pytest.mark.parametrize(
    ("move", "kept"),
    [
        ("pad(y, low=[1, 0], high=[0, 2], value=0.0)", "value=124"),
        ("transpose(y, perm=[1, 0])", "perm=[1, 0]"),
        ("reshape(y, shape=[4, 64])", "shape=[4, 64]"),
        ("slice(y, start=[1, 0], limit=[15, 9], stride=[2, 3])", "stride=[2, 3]"),
        ("concat(y, y, axis=0)", "axis=0"),
    ],
)
def test_moves_are_of_bytes(move: str, kept: str) -> None:
    p = program("input x: u8[16, 16]", each("y", "x", WIDE, (16, 16)), f"z = {move}", "return z")
    found = settled(p, every_byte())
    (moved,) = [n for n in found.nodes if kept in n.attr.text(n.op)]
    assert moved.type.dtype == "u8"


@pytest.mark.parametrize("value", ["-0.0", "0.01", "nan", "inf"])
def test_a_pad_that_no_byte_gives_stays(value: str) -> None:
    pad = f"z = pad(y, low=[1, 0], high=[0, 2], value={value})"
    p = program("input x: u8[16, 16]", each("y", "x", WIDE, (16, 16)), pad, "return z")
    assert ("pad", "f32") in ops(canonical(p))


WINDOWS = "loops=[8, 8, 3, 3], maps=[[2*d0 + d2, 2*d1 + d3]]"
POOL = f"m = generic(z, {WINDOWS}, body=x0, combine=max, rank=2)"


def pooled(low: int, body: str = WIDE, combine: str = "max") -> Program:
    ends = "-inf" if combine == "max" else "inf"
    pad = f"z = pad(y, low=[{low}, 1], high=[{2 - low}, 1], value={ends})"
    pool = POOL.replace("max", combine)
    wide = each("y", "x", body, (16, 16))
    return program("input x: u8[16, 16]", wide, pad, pool, "return m")


@pytest.mark.parametrize("combine", ["max", "min"])
def test_pools_are_of_bytes_padded_with_the_last_to_be_picked(combine: str) -> None:
    found = settled(pooled(1, combine=combine), every_byte())
    assert {d for op, d in ops(found)} == {"u8", "f32"}
    (pad,) = [n for n in found.nodes if n.op == "pad"]
    assert pad.attr.args[2] == ("0" if combine == "max" else "255")


def test_a_window_of_pads_alone_has_no_byte() -> None:
    far = program(
        "input x: u8[4, 16]", each("y", "x", WIDE, (4, 16)),
        "z = pad(y, low=[13, 1], high=[0, 1], value=-inf)", POOL, "return m",
    )  # fmt: skip
    found = settled(far, every_byte()[:4])
    assert ("pad", "f32") in ops(found)


@pytest.mark.parametrize(
    "body", ["neg(cast(x0, f32))", "abs(sub(cast(x0, f32), 7.0))", "exp(cast(x0, f32))"]
)
def test_what_does_not_grow_with_the_byte_is_computed_first(body: str) -> None:
    """exp does, but executors may round it in their own way."""
    assert ("pad", "f32") in ops(canonical(pooled(1, body)))


def test_quantising_what_was_dequantised_is_nothing() -> None:
    chain = (each("y", "x", WIDE, (16, 16)), each("q", "y", NARROW, (16, 16)))
    p = program("input x: u8[16, 16]", *chain, "return q")
    assert ops(settled(p, every_byte())) == []


@pytest.mark.parametrize("change", [("124.0", "123.0"), ("0.036180686205625534", "0.036")])
def test_another_scale_or_zero_point_is_not(change: tuple[str, str]) -> None:
    other = NARROW.replace(*change)
    chain = (each("y", "x", WIDE, (16, 16)), each("q", "y", other, (16, 16)))
    p = program("input x: u8[16, 16]", *chain, "return q")
    assert ops(settled(p, every_byte())) == [("generic", "u8")]


def test_signed_bytes_and_a_pool_between_equal_scales() -> None:
    """As onnxruntime writes a max pool: dequantised, padded, pooled, and quantised alike."""
    wide, narrow = "mul(cast(x0, f32), 0.02)", NARROW.replace("124.0", "0.0").replace("u8", "i8")
    narrow = narrow.replace("0.036180686205625534", "0.02").replace("255.0", "127.0")
    narrow = narrow.replace("max(add(round_even(div(x0, 0.02)), 0.0), 0.0)",
                            "max(round_even(div(x0, 0.02)), -128.0)")  # fmt: skip
    p = program(
        "input x: i8[16, 16]", each("y", "x", wide, (16, 16)),
        "z = pad(y, low=[1, 1], high=[1, 1], value=-inf)", POOL, each("q", "m", narrow, (8, 8)),
        "return q",
    )  # fmt: skip
    assert ops(settled(p, every_byte("i1"))) == [("pad", "i8"), ("generic", "i8")]


def test_several_readers_each_widen_what_they_read() -> None:
    add = "s = generic(y, w, loops=[16, 16], maps=[[d0, d1], [d0, d1]], body=add(x0, x1))"
    total = "t = generic(y, loops=[16, 16], maps=[[d0, d1]], body=x0, combine=add, rank=1)"
    p = program(
        "input x: u8[16, 16]", "input w: f32[16, 16]", each("y", "x", WIDE, (16, 16)), add, total,
        "return s, t",
    )  # fmt: skip
    found = settled(p, every_byte(), np.ones((16, 16), "f4"))
    assert [n.operands[0] for n in found.nodes if n.op == "generic"] == [0, 0]


def test_a_row_that_is_read_by_every_row_is_widened_once() -> None:
    add = "s = generic(y, w, loops=[16, 16], maps=[[d1], [d0, d1]], body=add(x0, x1))"
    p = program(
        "input x: u8[16]", "input w: f32[16, 16]", each("y", "x", WIDE, (16,)), add, "return s, y"
    )
    assert len(ops(canonical(p))) == 2
