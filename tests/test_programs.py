"""`.eqs` text: what is printed is read back as it was, and sugar means what it says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.lang.programs import parse_program
from eqsat.model.affine import affine, dim
from eqsat.model.diag import Diagnostic, EqsatError
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.layout import Encoding
from eqsat.model.leaves import Fill, Leaf, Opaque
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.movement.layout import make_layout

HEAD = "input x: f32[8, 6]\ninput y: f32[8, 6]\nweight w: f32[6, 4]\n"
NAMES = [
    "x",
    "lambda",
    "params['w1']",
    "a.b[0]",
    "x",
    "odd name: 3 # %",
    'q"q',
    "%1",
    "größe",
    "and",
]
NUMBERS = [0.0, -1.5, 1e-05, math.inf, -math.inf, math.nan, 3.0]


def parsed(body: str) -> Program:
    return parse_program(HEAD + body, "t.eqs")


# ---- random programs -----------------------------------------------------------------------------
def leaves(draw: st.DrawFn, b: Builder) -> None:
    count = draw(st.integers(1, 3))
    order = draw(st.permutations(range(count)))
    for index in order:
        shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
        name = draw(st.sampled_from(NAMES))
        b.append("input", (), Leaf(name, TensorType("f32", shape), index))
    for _ in range(draw(st.integers(0, 2))):
        key = draw(st.sampled_from(["0123abcd", "a b", "#"]))
        b.append(
            "weight", (), Leaf(draw(st.sampled_from(NAMES)), TensorType("f32", (4, 3)), -1, key)
        )


def add_elementwise(draw: st.DrawFn, b: Builder, x: int) -> None:
    t = b.type(x)
    body = draw(
        st.sampled_from(
            [
                call("max", arg(0), const(0.0)),
                call("mul", arg(0), const(draw(st.sampled_from(NUMBERS)))),
                cast(call("exp", arg(0)), "f32"),
                call("select", call("lt", arg(0), const(1.0)), arg(0), const(2.0)),
            ]
        )
    )
    maps = (tuple(dim(d) for d in range(t.rank)),)
    b.append(
        "generic",
        (x,),
        Generic(t.shape, t.rank, maps, (t.shape,), (Yield(body, "f32"),), (), ("f32",)),
    )


def add_reduction(draw: st.DrawFn, b: Builder, x: int) -> None:
    """Reduces the last dims; an offset and a negative stride in the map."""
    t = b.type(x)
    kept = draw(st.integers(0, t.rank - 1))
    first = affine([(0, -1)], t.shape[0] - 1)
    maps = ((first, *(dim(d) for d in range(1, t.rank))),)
    combine = draw(st.sampled_from(["add", "max", "mul"]))
    yields = (Yield(arg(0), "f32", combine), Yield(call("neg", arg(0)), "f32", "max"))
    attr = Generic(t.shape, kept, maps, (t.shape,), yields, (), ("f32",))
    made = b.append("generic", (x,), attr)
    b.append("result", (made,), Result(draw(st.integers(0, 1))))


def add_movement(draw: st.DrawFn, b: Builder, x: int) -> None:
    t = b.type(x)
    kind = draw(st.sampled_from(["transpose", "reshape", "pad", "slice", "concat", "gather"]))
    if kind == "transpose":
        b.append("transpose", (x,), Transpose(t.shape, tuple(draw(st.permutations(range(t.rank))))))
    elif kind == "reshape":
        b.append("reshape", (x,), Reshape(t.shape, (t.size,)))
    elif kind == "pad":
        low = tuple(draw(st.integers(0, 2)) for _ in t.shape)
        high = tuple(draw(st.integers(0, 2)) for _ in t.shape)
        shape = tuple(s + a + c for s, a, c in zip(t.shape, low, high, strict=True))
        b.append("pad", (x,), Move("pad", (t.shape,), (low, high, "-inf"), shape))
    elif kind == "slice":
        args = (tuple(0 for _ in t.shape), t.shape, tuple(1 for _ in t.shape))
        b.append("slice", (x,), Move("slice", (t.shape,), args, t.shape))
    elif kind == "concat":
        shape = (2 * t.shape[0], *t.shape[1:])
        b.append("concat", (x, x), Move("concat", (t.shape, t.shape), (0,), shape))
    else:
        i = b.append("fill", (), Fill(0, TensorType("i32", (2,))))
        b.append("gather", (x, i), Move("gather", (t.shape, (2,)), (0,), (2, *t.shape[1:])))


def add_layout(draw: st.DrawFn, b: Builder, x: int) -> None:
    t = b.type(x)
    pos = draw(st.permutations(range(t.rank)))[: draw(st.integers(0, t.rank))]
    tiles = [draw(st.integers(1, 4)) for _ in pos]
    pads = [draw(st.sampled_from(["0", "?", "-inf"])) for _ in pos]
    layout = make_layout(t.shape, pos, tiles, draw(st.permutations(range(t.rank))), pads)
    packed = b.append("pack", (x,), layout)
    other = make_layout(t.shape, pos, tiles, layout.outer, ["?"] * len(pos))
    b.append(draw(st.sampled_from(["relax", "retype"])), (packed,), other)
    b.append("unpack", (packed,), layout)


def add_rest(draw: st.DrawFn, b: Builder, x: int) -> None:
    t = b.type(x)
    if draw(st.booleans()):
        encoding = Encoding(t.shape, "lhs", "matmul", ("f32", "f32", "f32"))
        b.append("unset_encoding", (b.append("set_encoding", (x,), encoding),), encoding)
        return
    results = (TensorType("i32", (3,)), TensorType("f32", ()))
    made = b.append("opaque", (x,), Opaque("sort", "00ff", (t,), results))
    b.append("result", (made,), Result(1))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    b = Builder(draw(st.sampled_from(["p", "a b", "x#1", "mlp-2"])))
    leaves(draw, b)
    steps = st.sampled_from([add_elementwise, add_reduction, add_movement, add_layout, add_rest])
    for _ in range(draw(st.integers(0, 6))):
        usable = [
            i for i, n in enumerate(b.nodes)
            if len(n.types) == 1 and n.type.dtype == "f32" and n.type.rank and n.type.size
        ]  # fmt: skip
        draw(steps)(draw, b, draw(st.sampled_from(usable)))
    single = [i for i, n in enumerate(b.nodes) if len(n.types) == 1]
    return b.build(draw(st.lists(st.sampled_from(single), max_size=3)))


@settings(max_examples=50, deadline=None)
@given(programs())
def test_what_is_printed_is_read_back(program: Program) -> None:
    program.verify()
    assert parse_program(program.to_text()) == program


@settings(max_examples=60, deadline=None)
@given(programs())
def test_json_is_read_back(program: Program) -> None:
    assert Program.from_json(program.to_json()) == program


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="xyw%=() :[]0123,.#'\"\nfadinput", max_size=80))
def test_any_text_is_read_or_refused_with_places(text: str) -> None:
    found: tuple[Diagnostic, ...] = ()
    try:
        parse_program(text).verify()
    except EqsatError as error:
        found = error.diagnostics
    assert all(d.span is not None and d.code.startswith("E3") for d in found)


# ---- sugar ---------------------------------------------------------------------------------------
def test_matmul_is_a_contraction() -> None:
    program = parsed("z = matmul(x, w) : f32[8, 4]\nreturn z\n")
    attr = program.nodes[program.results[0]].attr
    assert isinstance(attr, Generic)
    assert (attr.sizes, attr.rank, attr.combine, str(attr.body)) == (
        (8, 4, 6),
        2,
        "add",
        "mul(x0, x1)",
    )


def test_batched_and_small_matmuls() -> None:
    program = parse_program(
        "input a: bf16[2, 4, 8]\ninput b: bf16[2, 8, 3]\ninput c: i8[4, 8]\ninput d: i8[8, 3]\n"
        "return matmul(a, b), matmul(c, d)\n"
    )
    types = [str(program.nodes[r].type) for r in program.results]
    assert types == ["bf16[2, 4, 3]", "i32[4, 3]"]
    wide = parse_program(
        "input a: bf16[4, 8]\ninput b: bf16[8, 3]\nz = matmul(a, b) : f32[4, 3]\nreturn z\n"
    )
    assert "mul(cast(x0, f32), cast(x1, f32))" in wide.to_text()
    assert wide.op_count == 1


def test_elementwise_sugar() -> None:
    program = parsed("z = relu(add(x, mul(y, 2)))\nreturn z\n")
    text = program.to_text()
    assert "body=mul(x0, 2.0)" in text
    assert "body=max(x0, 0.0)" in text
    assert program.op_count == 3


def test_equal_terms_are_one_value_unless_numbered() -> None:
    assert parsed("a = relu(x)\nb = relu(x)\nreturn a, b\n").op_count == 1
    numbered = parsed(
        "%3 = transpose(x, perm=[1, 0])\n%4 = transpose(x, perm=[1, 0])\nreturn %3, %4\n"
    )
    assert numbered.op_count == 2


def test_fields_have_defaults() -> None:
    short = parsed(
        "p = pack(x, pos=[0, 1], tiles=[4, 4], pad=0)\n"
        "return unpack(p, pos=[0, 1], tiles=[4, 4], pad=0, shape=[8, 6])\n"
    )
    long = parsed(
        "p = pack(x, pos=[0, 1], tiles=[4, 4], outer=[0, 1], pad=[none, 0])\n"
        "return unpack(p, pos=[0, 1], tiles=[4, 4], outer=[0, 1], pad=[none, 0], shape=[8, 6])\n"
    )
    assert short == long


def test_unpack_without_shape_is_divisible() -> None:
    program = parsed(
        "p = pack(x, pos=[1], tiles=[3], outer=[1, 0])\n"
        "return unpack(p, pos=[1], tiles=[3], outer=[1, 0])\n"
    )
    assert str(program.nodes[program.results[0]].type) == "f32[8, 6]"


def test_rank_of_a_reduction() -> None:
    row = "generic(x, loops=[8, 6], maps=[[d0, d1]], body=x0, combine=max{})"
    assert parsed(f"z = {row.format('')} : f32[8]\nreturn z\n").nodes[-1].type.shape == (8,)
    assert parsed(f"return {row.format(', rank=0')}\n").nodes[-1].type.shape == ()
    with pytest.raises(EqsatError, match="E310"):
        parsed(f"return {row.format('')}\n")


def test_lines_go_on_while_a_bracket_is_open() -> None:
    text = "z = generic(x,  # first\n  loops=[8, 6],\n  maps=[[d0, d1]], body=exp(x0))\nreturn z\n"
    assert parsed(text) == parsed(text.replace("  # first\n", "").replace(",\n", ","))


def test_place_on_a_later_line_of_a_term() -> None:
    with pytest.raises(EqsatError) as caught:
        parsed("z = generic(x,\n  loops=[8, a], maps=[[d0, d1]], body=x0)\nreturn z\n")
    assert str(caught.value.diagnostics[0].span) == "t.eqs:5:13"


def test_numbered_names_are_names() -> None:
    program = parsed("%5 = relu(x)\nz = exp(%5)\nreturn z\n")
    assert program.op_count == 2


def test_weights_are_keyed_by_name_or_content() -> None:
    program = parse_program("weight a: f32[2]\nweight b: f32[2] key=00ff\nreturn a, b\n")
    assert [program.leaf(i).key for i in program.weights] == ["a", "00ff"]
    assert program.name == "program"


def test_a_refused_value_has_no_followers() -> None:
    with pytest.raises(EqsatError) as caught:
        parsed("h = matmul(x, y)\nz = relu(h)\nq = add(z, z)\nreturn q\n")
    assert [d.code for d in caught.value.diagnostics] == ["E301"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("z = matmul(x, y)", "inner sizes 6 and 8 differ"),
        ("z = matmul(x)", "takes 2 operands, got 1"),
        ("z = concat(x, w, axis=0)", "`concat`"),
        ("z = concat(x, axis=2)", "`axis` is one of 0 … 1"),
        ("z = reshape(x, shape=[7, 7])", "cannot reshape"),
        ("z = pack(x, pos=[2], tiles=[2])", "`pos` names dim 2"),
        ("z = slice(x, start=[0, 0], limit=[9, 6])", "outside a dim"),
        ("z = slice(x, start=[0, 0], limit=[8, 6], stride=[0, 1])", "a stride is at least 1"),
        ("z = pad(x, low=[-1, 0], high=[0, 0], value=0)", "not negative"),
        ("z = generic(x, loops=[8, 7], maps=[[d0, d1]], body=x0)", "reads elements"),
        ("z = generic(x, loops=[8, 6], maps=[[d0, d2]], body=x0)", "which does not exist"),
        ("z = generic(x, loops=[8, 6], maps=[[d0, d1]], body=x1)", "not there"),
        ("z = generic(x, loops=[8, 6], maps=[], body=x0)", "one indexing map per operand"),
        ("z = result(x, index=1)", "there is no result 1"),
        ("z = set_encoding(x, role=\"left\")", "`role`"),
        ("z = add(x, w)", "one shape"),
        ("z = exp(1)", "at least one tensor"),
        ("z = add(x, cast(y, i32))", "cast one of them"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_e301(body: str, part: str) -> None:
    with pytest.raises(EqsatError) as caught:
        parsed(f"{body}\nreturn x\n")
    (d,) = caught.value.diagnostics
    assert d.code == "E301"
    assert part in d.message
    assert d.span is not None
    assert d.span.line == 4
