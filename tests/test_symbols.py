"""Dims that are not known: their arithmetic, one search for all sizes, runs at any of them."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.api import Source
from eqsat.cli import run as command
from eqsat.execute.draw import drawn_weights
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.equalities import Family
from eqsat.model.extents import at, bound, is_symbolic, names_of, read_extent
from eqsat.model.layout import Layout
from eqsat.model.ops import attr_from_json
from eqsat.model.program import Program
from eqsat.model.symbols import Size, Symbol, extents_of, read_size, resized, sized
from eqsat.model.tensor import TensorType, cdiv
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.programs.binding import bind_attr, bind_graph, bind_program
from eqsat.saturate import saturate

M, N = Symbol("m", 16, 128), Symbol("n", 1, 40)
TEXT = """program sizes
symbol m divisor=16 size=128
symbol n size=40
input x: f32[m, 64]
input b: f32[n, 48]
weight w: f32[64, 96]
weight v: f32[96, 48]
h = relu(matmul(x, w))
y = matmul(h, v)
z = matmul(b, transpose(y, perm=[1, 0]))
e = pad(b, low=[1, 0], high=[2, 0], value=0.0)
r = reshape(y, shape=[m // 16, 16, 48])
return z, e, r
"""
FORCED = ["tiles_forced=true"]


def source(text: str = TEXT, **sizes: int) -> Source:
    program = parse_program(text, sizes=sizes)
    return Source(program, drawn_weights(program))


@pytest.fixture(scope="module")
def searched() -> eqsat.Run:
    return eqsat.optimize(source(), target="avx512-xla", settings=FORCED)


# ---- extents -----------------------------------------------------------------------------------
def test_an_extent_prints_as_it_is_computed():
    m, n = M.extent, N.extent
    shown = [m, m * 64, m // 16, m + 3, m * n * 2, n // 7, f"{m}"]
    assert [str(s) for s in shown] == [
        "m",
        "m * 64",
        "m // 16",
        "3 + m",
        "m * n * 2",
        "n // 7",
        "m",
    ]
    assert str(TensorType("f32", (m // 4, 4))) == "f32[m // 4, 4]"
    assert names_of(m * n) == {"m", "n"}


@pytest.mark.parametrize("seed", seeds(15, 300))
def test_arithmetic_is_that_of_every_size(seed: int):
    """Any sum, product and quotient, at any sizes; texts and pickles say the same."""
    rng = random.Random(seed)
    value, steps = rng.choice((M, N)).extent, []
    for _ in range(rng.randint(1, 5)):
        op = rng.choice(("+", "-", "*", "//", "cdiv", "up"))
        other = rng.choice((M.extent, N.extent)) if op in "+-*" and rng.random() < 0.3 else 0
        other = other or rng.choice((1, 2, 3, 8, 16, 48))
        steps.append((op, other))
        value = apply(op, value, other)
    text = read_extent(str(value), {"m": M.extent, "n": N.extent})
    again = pickle.loads(pickle.dumps(value))
    for _ in range(5):
        sizes = {"m": 16 * rng.randint(1, 50), "n": rng.randint(1, 400)}
        assert at(value, sizes) == expected(seed, steps, sizes)
        assert text is not None
        assert at(text, sizes) == at(again, sizes) == at(value, sizes)
    assert text == again == value


def apply(op: str, a: int, b: int) -> int:
    return {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b,
        "cdiv": lambda: cdiv(a, b), "up": lambda: cdiv(a, b) * b,
    }[op]()  # fmt: skip


def expected(seed: int, steps: list[tuple[str, int]], sizes: dict[str, int]) -> int:
    """The same with plain numbers from the start."""
    value = sizes["m" if random.Random(seed).choice((M, N)) is M else "n"]
    for op, other in steps:
        value = apply(op, value, at(other, sizes))
    return value


def test_divisible_means_divisible_at_every_size():
    m, n = M.extent, N.extent
    assert [t for t in range(1, 65) if m % t == 0] == [1, 2, 4, 8, 16]
    assert [t for t in range(1, 65) if n % t == 0] == [1]
    assert m * 3 % 48 == 0
    assert m != n != 128
    assert m - m == 0
    assert not is_symbolic(m * n // m // n)
    assert M.extent == Symbol("m", 16, 4096).extent, "the size it is priced at is no part of it"
    assert M.extent != Symbol("m", 8, 128).extent


def test_no_symbol_is_lost():
    m, n = M.extent, N.extent
    assert str(64 // m) == "64 // m"
    assert at(64 % m, {"m": 48}) == 16
    assert at(m * n // (n + 1), {"m": 32, "n": 3}) == 24
    for lost in (range, int, float, np.zeros, lambda d: m**d, lambda d: d & 1):
        with pytest.raises(TypeError):
            lost(m)


def test_order_is_that_of_large_sizes():
    m, n = M.extent, N.extent
    assert m > 10**9
    assert -m < 0 < m - 5 < m < m + 1 < m * 2 < m * n
    assert m // 48 * 48 < m < cdiv(m, 48) * 48
    assert max(m, 4) is m
    assert m / 4 == float("inf")
    assert cdiv(n, 48) * 48 / n == 1
    assert abs(-n) == n
    assert not m * n // (n + 1) < 0


def test_json_restores_extents():
    layout = Layout((N.extent, 64), (0,), (16,), (0, 1), ("?",))
    data = json.loads(json.dumps(layout.to_json()))
    assert data["source"] == [{"extent": "n"}, 64]
    back = attr_from_json(data, extents_of([N]))
    assert isinstance(back, Layout)
    assert back == layout
    assert str(back.packed_shape) == str(layout.packed_shape)
    assert bound(back, {"n": 33}).packed_shape == (3, 64, 16)


def test_a_tile_that_divides_pads_nothing():
    layout = Layout((N.extent, 64), (0,), (16,), (0, 1), ("0",))
    assert bind_attr(layout, {"n": 33}).pads == ("0",)
    assert bind_attr(layout, {"n": 32}).pads == ("-",)


# ---- programs ----------------------------------------------------------------------------------
def test_text_and_json_keep_symbols():
    program = parse_program(TEXT)
    program.verify()
    assert program.symbols == (M, N)
    assert parse_program(program.to_text()) == program
    back = Program.from_json(json.loads(json.dumps(program.to_json())))
    assert back == program
    assert back.to_text() == program.to_text()
    assert "f32[m // 16, 16, 48]" in program.to_text()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("symbol m\ninput x: f32[m]\nreturn x", "E385", "size of `m`"),
        ("symbol m divisor=16 size=100\nreturn", "E386", "multiple of 16"),
        ("symbol m divisor=0 size=100\nreturn", "E386", "multiple of 0"),
        ("symbol lambda size=8\nreturn", "E387", "cannot name a symbol"),
        ("symbol m size=8\nsymbol m size=8\nreturn", "E387", "one already"),
        ("symbol m size=8\nweight w: f32[m]\nreturn w", "E388", "weight's size is known"),
        ("symbol m size=8\ninput x: f32[k]\nreturn x", "E300", "computed from m"),
        ("symbol m size=8\ninput x: f32[m // 0]\nreturn x", "E300", "whole number"),
        ("symbol m size=99999999999999\nreturn", "E300", "cannot read"),
    ],
)  # fmt: skip
def test_a_wrong_symbol_is_refused(text: str, code: str, words: str):
    with pytest.raises(EqsatError, match=words) as caught:
        parse_program(text)
    assert caught.value.diagnostics[0].code == code


def test_sizes_are_asked_for_by_name():
    assert sized("m", 4, None, {"m": 128}) == Symbol("m", 4, 128)
    assert sized("m", 4, 64, {"m": Size.of(128, 16)}) == Symbol("m", 16, 128)
    assert read_size("m=128:16")[1].divisor == 16
    assert resized((M, N), {"m": 32}) == (Symbol("m", 16, 32), N)
    for text in ("m", "m=", "=3", "m=1:0", "m=-1"):
        with pytest.raises(EqsatError):
            read_size(text)
    for sizes, code in (({"m": 100}, "E386"), ({"q": 16}, "E385"), ({"m": 0}, "E386")):
        with pytest.raises(EqsatError) as caught:
            resized((M, N), sizes)
        assert caught.value.diagnostics[0].code == code
    with pytest.raises(EqsatError):  # multiples of 24 are not all multiples of 16
        sized("m", 16, 48, {"m": Size.of(48, 24)})


def test_a_dim_without_its_symbol_is_no_program():
    program = parse_program(TEXT)
    with pytest.raises(ValueError, match="symbols are"):
        Program(program.name, program.nodes, program.results, (M,)).verify()


# ---- one search --------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["reference", "avx512-xla", "vmvx-like"])
def test_every_class_is_typed_at_every_size(target: str):
    """What the search made equal for all sizes has one type at each, padding or not."""
    graph = saturate(parse_program(TEXT), eqsat.rules("default"), eqsat.target(target))
    assert any(n.op == "pack" for n in graph.nodes)
    for sizes in ({"m": 16, "n": 1}, {"m": 48, "n": 16}, {"m": 4096, "n": 1000}):
        found = bind_graph(graph, sizes)
        found.egraph.verify()
        assert len(found.number) == len(graph.nodes)


def test_a_node_that_does_not_exist_is_left_out():
    text = "symbol m size=8\ninput x: f32[m]\ny = slice(x, start=[0], limit=[5])\nreturn y"
    graph = saturate(parse_program(text), eqsat.rules("default"), eqsat.target("reference"))
    assert len(bind_graph(graph, {"m": 4}).number) < len(graph.nodes)
    assert len(bind_graph(graph, {"m": 5}).number) == len(graph.nodes)
    with pytest.raises(EqsatError, match="does not exist at m = 4"):
        bind_program(parse_program(text), {"m": 4})


def test_prices_are_those_of_the_size(searched: eqsat.Run):
    """The same search, priced elsewhere, is the search of the program with these sizes."""
    assert searched.family is not None
    for sizes in ({"m": 256}, {"n": 1}):
        known = bind_program(parse_program(TEXT, sizes=sizes), {"m": 128, "n": 40} | sizes)
        static = eqsat.optimize(
            Source(known, drawn_weights(known)), target="avx512-xla", settings=FORCED
        )
        mine = eqsat.optimize(source(**sizes), target="avx512-xla", settings=FORCED)
        assert static.family is None
        assert mine.schedule is not None
        assert static.schedule is not None
        assert mine.schedule.time_ps == static.schedule.time_ps
        assert mine.schedule.peak_bytes == static.schedule.peak_bytes
    assert searched.summary()["program"]["symbols"] == {
        "m": {"divisor": 16, "size": 128}, "n": {"divisor": 1, "size": 40},
    }  # fmt: skip


def test_a_condition_is_judged_at_the_priced_size():
    text = """symbol m size={}
input x: f32[m, 64]
weight w: f32[64, 64]
return matmul(x, w)"""

    def tiles(size: int) -> set[tuple[int, ...]]:
        program = parse_program(text.format(size))
        graph = saturate(program, eqsat.rules("default"), eqsat.target("avx512-xla"))
        return {getattr(n.attr, "tile", ()) for n in graph.nodes} - {()}

    assert tiles(1) == {(1, 16, 1)}
    assert tiles(128) == {(16, 16, 1)}


@pytest.mark.parametrize(
    "sizes", [{"m": 256}, {"m": 16, "n": 1}, {"n": 16}, {"m": 48, "n": 48}, {"m": 128, "n": 128}]
)
def test_a_run_is_bound_to_other_sizes(searched: eqsat.Run, sizes: dict[str, int]):
    other = eqsat.bind(searched, sizes)
    assert other.schedule is not None
    assert other.selection is not None
    assert other.selection.stop == "sizes"
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(other.program.nodes[i].type.shape).astype(np.float32)
        for i in other.program.inputs
    ]
    weights = other.source.weights
    wanted = evaluate_program(other.program, inputs, weights)
    for program in (other.schedule.program, other.canonical):
        for a, b in zip(evaluate_program(program, inputs, weights), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert {d.ops for d in other.schedule.dispatches} == {
        d.ops for d in (searched.schedule or other.schedule).dispatches
    }


def test_a_bound_run_executes(searched: eqsat.Run):
    assert eqsat.bind(searched, {"m": 32, "n": 5}).verify(samples=1).ok


def test_a_saved_run_is_bound_too(searched: eqsat.Run, tmp_path: Path):
    folder = searched.save(tmp_path / "run")
    loaded = eqsat.load(folder)
    assert loaded.family == searched.family
    assert isinstance(loaded.family, Family)
    loaded.family.verify()
    one, two = (eqsat.bind(r, {"m": 64}) for r in (searched, loaded))
    assert one.schedule == two.schedule
    assert json.dumps(one.egraph.to_json()) == json.dumps(two.egraph.to_json())  # type: ignore[union-attr]


def test_binding_says_what_is_wrong(searched: eqsat.Run):
    for sizes, code in (({"m": 8}, "E386"), ({"k": 8}, "E385")):
        with pytest.raises(EqsatError) as caught:
            eqsat.bind(searched, sizes)
        assert caught.value.diagnostics[0].code == code
    plain = eqsat.optimize(parse_program("input x: f32[4]\nreturn exp(x)"), target="reference")
    with pytest.raises(EqsatError, match="no symbols"):
        eqsat.bind(plain, {"m": 8})


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, folder = tmp_path / "p.eqs", str(tmp_path / "run")
    file.write_text(TEXT)
    asked = ["--output-format", "json", "-q"]
    assert (
        command(
            ["optimize", str(file), "--target", "reference", "--size", "m=32", "-o", folder, *asked]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["program"]["symbols"]["m"] == {"divisor": 16, "size": 32}
    assert command(["run", folder, "--size", "m=64", "--size", "n=3", "--samples", "1"]) == 0
    assert "priced at m = 64, n = 3" in capsys.readouterr().out
    assert command(["optimize", str(file), "--target", "reference", "--size", "m=33", "-q"]) == 2
    assert "E386" in capsys.readouterr().err
    assert (
        command(["optimize", "mlp.py:mlp_784", "--target", "reference", "--size", "m=33", "-q"])
        == 2
    )
    assert "E385" in capsys.readouterr().err
