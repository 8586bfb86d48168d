"""One spelling at reading: what can be written in many ways is one program before the search."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from fuzz.equal import are_equal
from fuzz.respell import IDENTITIES, RESPELLINGS
from fuzz.small import small_program
from fuzz.spellings import programs
from seeds import one_in

from eqsat.cli import run as command
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program, is_same
from eqsat.ops.spelling.normal import normal
from eqsat.ops.spelling.passes import PASSES, canonical

ONE_SPELLING = (
    *IDENTITIES,
    "map-for-transpose", "map-for-slice", "broadcast", "unit-dims", "operands-swapped",
    "split-elementwise", "merged-elementwise", "recomputed", "duplicated", "two-step-extremum",
)  # fmt: skip


@cache
def small(seed: int) -> tuple[Program, Program]:
    """A small program, and the one spelling of it."""
    program = small_program(seed)
    return program, canonical(program)


@pytest.mark.parametrize("kind", one_in(2, ONE_SPELLING))
def test_a_respelling_is_the_same_program(kind: str):
    for seed in range(2):
        first, spelled = small(seed)
        other = RESPELLINGS[kind](first, random.Random(seed))
        if other is not None:
            assert is_same(spelled, canonical(other)), f"{first}\n{other}"


def test_the_one_spelling_computes_the_same_and_is_itself_in_it():
    for seed in (0, 6, 9, 20, 34):
        found = canonical(small_program(seed))
        found.verify()
        assert canonical(found) == found
        if max(t.size for n in found.nodes for t in n.types) < 20_000:
            assert are_equal(small_program(seed), found)


def read(text: str) -> Program:
    return parse_program("program p\n" + text)


def one(first: str, other: str) -> bool:
    a, b = read(first), read(other)
    assert are_equal(a, b)
    return is_same(canonical(a), canonical(b))


SPLIT = """
input x: f32[6, 8]
a = slice(x, start=[0, 0], limit=[6, 4])
b = slice(x, start=[0, 4], limit=[6, 8])
"""
STACK = (
    SPLIT
    + """
p = reshape(a, shape=[1, 6, 4])
q = reshape(b, shape=[1, 6, 4])
"""
)
HEADS = "input x: f32[6, 8]\nr = reshape(x, shape=[6, 2, 4])\n"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        # the heads of attention
        (STACK + "y = concat(p, q, axis=0)\nreturn y",
         HEADS + "y = transpose(r, perm=[1, 0, 2])\nreturn y"),
        (SPLIT + "y = concat(a, b, axis=0)\nreturn y",
         HEADS + "t = transpose(r, perm=[1, 0, 2])\ny = reshape(t, shape=[12, 4])\nreturn y"),
        (SPLIT + "y = concat(a, b, axis=1)\nreturn y", "input x: f32[6, 8]\nreturn x"),
        # the heads side by side again
        ("""input x: f32[2, 6, 4]
            a = slice(x, start=[0, 0, 0], limit=[1, 6, 4])
            b = slice(x, start=[1, 0, 0], limit=[2, 6, 4])
            p = reshape(a, shape=[6, 4])
            q = reshape(b, shape=[6, 4])
            y = concat(p, q, axis=1)
            return y""",
         """input x: f32[2, 6, 4]
            t = transpose(x, perm=[1, 0, 2])
            y = reshape(t, shape=[6, 8])
            return y"""),
        # operands swapped where the body is no plain product
        ("""input x: f32[4, 4]
            input z: f32[4, 4]
            y = generic(x, z, loops=[4, 4], maps=[[d0, d1], [d1, d0]], body=exp(add(x0, x1)))
            return y""",
         """input x: f32[4, 4]
            input z: f32[4, 4]
            y = generic(z, x, loops=[4, 4], maps=[[d1, d0], [d0, d1]], body=exp(add(x0, x1)))
            return y"""),
        # a copy by a turned map is a slice and a transpose
        ("""input x: f32[9, 4]
            y = generic(x, loops=[4, 3], maps=[[2*d1 + 1, d0]], body=x0)
            return y""",
         """input x: f32[9, 4]
            s = slice(x, start=[1, 0], limit=[6, 4], stride=[2, 1])
            y = transpose(s, perm=[1, 0])
            return y"""),
        # two negations by two ops, and the sum of a spread value
        ("""input x: f32[4]
            a = neg(x)
            b = neg(a)
            y = generic(b, loops=[3, 4], maps=[[d1]], body=x0)
            z = exp(y)
            return z, y""",
         """input x: f32[4]
            z = generic(x, loops=[3, 4], maps=[[d1]], body=exp(x0))
            y = generic(x, loops=[3, 4], maps=[[d1]], body=x0)
            return z, y"""),
    ],
)  # fmt: skip
def test_two_spellings(first: str, other: str):
    assert one(first, other)


@pytest.mark.parametrize("name", ["bias", "convolution-1x1", "heads", "heads-together", "maximum"])
def test_a_jax_function_in_several_spellings(name: str):
    """But for a transposed bias and the rows of a convolution, which rules lead to each other."""
    first, *others = programs(name)
    same = [is_same(canonical(first), canonical(other)) for other in others]
    assert sum(same) >= len(others) - (name in ("bias", "convolution-1x1"))


ROWS = "input x: f32[4, 6]\nf = reshape(x, shape=[24])\nr = relu(f)\n"


def test_a_reshape_that_is_not_undone_stays_where_it_is():
    undone = read(ROWS + "y = reshape(r, shape=[4, 6])\nreturn y")
    assert [n.op for n in canonical(undone).nodes] == ["input", "generic"]
    kept = read(ROWS + "y = reshape(r, shape=[6, 4])\nreturn y")
    assert [n.op for n in canonical(kept).nodes] == ["input", "reshape", "generic", "reshape"]


@pytest.mark.parametrize(
    ("dtype", "combine", "count"),
    [("f32", "max", 1), ("f32", "add", 2), ("i32", "add", 1), ("bool", "and", 1)],
)
def test_two_steps_are_one_where_that_is_exact(dtype: str, combine: str, count: int):
    found = canonical(
        read(f"""input x: {dtype}[4, 2, 8]
    a = generic(x, loops=[4, 2, 8], maps=[[d0, d1, d2]], body=x0, combine={combine}, rank=2)
    y = generic(a, loops=[4, 2], maps=[[d0, d1]], body=x0, combine={combine}, rank=1)
    return y""")
    )
    assert found.op_count == count


def test_a_value_that_others_read_is_not_computed_in_a_body():
    text = "input x: f32[4, 6]\ninput z: f32[4, 6]\na = exp(x)\nb = %s\nreturn a, b"
    assert one(text % "add(a, z)", text % "add(exp(x), z)")
    other = canonical(read(text % "add(exp(z), x)"))
    assert "exp" in str(other.nodes[other.results[1]].attr.body)


DIFFERENT = [
    "a = slice(x, start=[0, 4], limit=[6, 8])\nb = slice(x, start=[0, 0], limit=[6, 4])\n"
    "y = concat(a, b, axis=1)",  # halves exchanged
    "a = slice(x, start=[0, 0], limit=[6, 4])\ny = concat(a, a, axis=1)",
    "y = add(x, 0.0)",  # -0.0 becomes 0.0
    "y = cast(cast(x, bf16), f32)",
    "y = generic(x, loops=[6, 8], maps=[[5 - d0, d1]], body=x0)",  # turned round
]


@pytest.mark.parametrize("line", DIFFERENT)
def test_what_does_something_stays(line: str):
    found = normal(read(f"input x: f32[6, 8]\n{line}\nreturn y"))
    assert found.op_count > 0
    assert are_equal(found, read(f"input x: f32[6, 8]\n{line}\nreturn y"))


PACKED = "input x: f32[8, 6]\np = pack(x, pos=[0], tiles=[4])\n"


def test_packs_that_were_written_stay_unless_they_are_undone():
    assert normal(read(PACKED + "u = unpack(p, pos=[0], tiles=[4])\nreturn u")).op_count == 0
    assert normal(read(PACKED + "r = relu(p)\nreturn r")).op_count == 2
    other = "u = unpack(p, pos=[0], tiles=[4])\nq = pack(u, pos=[0], tiles=[2])\nreturn q"
    assert [n.op for n in normal(read(PACKED + other)).nodes] == ["input", "pack"]


def test_a_pack_that_pads_is_undone_in_one_direction():
    padded = "pos=[0], tiles=[4], pad=0"
    text = f"input x: f32[7, 6]\np = pack(x, {padded})\nu = unpack(p, {padded}, shape=[7, 6])\n"
    assert normal(read(text + "return u")).op_count == 0
    text = f"input y: f32[2, 6, 4]\nu = unpack(y, {padded}, shape=[7, 6])\np = pack(u, {padded})\n"
    assert normal(read(text + "return p")).op_count == 2


# ---- the table of passes -------------------------------------------------------------------------
def test_the_page_lists_the_passes():
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(f"| `{p.name}` | {p.rewrites} |\n" in page for p in PASSES)


def test_a_pass_that_changes_the_program_prints_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    file = tmp_path / "p.eqs"
    file.write_text("input x: f32[1, 8]\ny = relu(x)\nz = exp(y)\nreturn z\n")
    assert command(["optimize", str(file), "--target", "reference", "--stop-after", "program",
                    "--print-after", "unit-dims", "--print-after", "equal-sums"]) == 0  # fmt: skip
    said = capsys.readouterr().err
    assert said.count("# p after unit-dims") >= 1
    assert "after equal-sums" not in said  # it changed nothing
    assert "after normal" not in said
    assert command(["optimize", str(file), "--print-after", "unit-dim"]) == 2
    assert "no pass `unit-dim`" in capsys.readouterr().err
