"""NumPy meaning of every op, against plain NumPy written another way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.model.affine import affine, dim
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf, Opaque
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.ops import ATTR_CLASSES
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import evaluate_node, evaluate_program
from eqsat.ops.meaning.structured import evaluate_generic

RNG = np.random.default_rng(7)


def one(op, attr, *operands, opaque=None):
    (got,) = evaluate_node(op, attr, list(operands), opaque)
    return got


def loops(g: Generic, operands):
    """The generic, one iteration at a time."""
    out = []
    for y in g.yields:
        result = np.full(g.result_shape, np.nan).astype(object)
        for at in itertools.product(*map(range, g.sizes)):
            xs = [
                x[tuple(e.constant + sum(s * at[d] for d, s in e.terms) for e in m)]
                for x, m in zip(operands, g.maps, strict=True)
            ]
            value = scalar.hold(scalar.evaluate_body(y.body, xs), y.dtype)[()]
            where = at[: g.rank]
            first = all(i == 0 for i in at[g.rank :])
            combine = scalar.FUNCTIONS[y.combine or "add"].numpy
            with np.errstate(all="ignore"):
                result[where] = value if first else combine(result[where], value)
        out.append(result.astype(scalar.held_dtype(y.dtype)))
    return out


CASES = {
    "matmul": ([4, 5, 3], 2, [((dim(0), dim(2)), (4, 3)), ((dim(2), dim(1)), (3, 5))], "mul"),
    "batched, transposed": (
        [2, 3, 4, 5],
        3,
        [((dim(3), dim(0), dim(1)), (5, 2, 3)), ((dim(0), dim(2), dim(3)), (2, 4, 5))],
        "mul",
    ),
    "strided convolution": (
        [1, 3, 4, 2, 3],
        3,
        [
            ((dim(0), affine([(1, 2), (4, 1)]), dim(3)), (1, 7, 2)),
            ((dim(4), dim(3), dim(2)), (3, 2, 4)),
        ],
        "mul",
    ),
    "reduction in one factor": (
        [4, 3, 2],
        1,
        [((dim(0), dim(1)), (4, 3)), ((dim(1), dim(2)), (3, 2))],
        "mul",
    ),
    "loop nobody reads": ([4, 3, 2], 1, [((dim(0),), (4,)), ((dim(1),), (3,))], "mul"),
    "reversed and shifted": (
        [4, 3],
        1,
        [((affine([(0, -1)], 3), dim(1)), (4, 3)), ((affine([(1, 1)], 2),), (5,))],
        "sub",
    ),
    "diagonal": ([4, 3], 1, [((dim(0), dim(0)), (4, 4)), ((affine([]), dim(1)), (1, 3))], "max"),
    "broadcast": ([4, 3], 2, [((dim(0), dim(1)), (4, 3)), ((dim(1),), (3,))], "add"),
}


def make(name: str, dtype: str, combine: str = "add") -> Generic:
    sizes, rank, operands, fn = CASES[name]
    y = Yield(call(fn, arg(0), arg(1)), dtype, combine if len(sizes) > rank else "")
    maps = tuple(m for m, _ in operands)
    return Generic(
        tuple(sizes), rank, maps, tuple(s for _, s in operands), (y,), (), (dtype, dtype)
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["f32", "i8"])
@pytest.mark.parametrize("limit", [2**27, 5])
def test_generics_mean_their_loops(name, dtype, limit):
    g = make(name, dtype)
    xs = [RNG.integers(-50, 50, s).astype(scalar.held_dtype(dtype)) for s in g.shapes]
    (want,) = loops(g, xs)
    (got,) = evaluate_generic(g, xs, limit)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("combine", ["max", "min", "mul"])
def test_reductions_by_other_functions(combine):
    g = make("reversed and shifted", "f32", combine)
    xs = [RNG.standard_normal(s) for s in g.shapes]
    for limit in (2**27, 3):
        np.testing.assert_allclose(evaluate_generic(g, xs, limit)[0], loops(g, xs)[0])


def test_casts_inside_contractions_are_exact():
    y = Yield(call("mul", cast(arg(0), "i32"), cast(arg(1), "i32")), "i32", "add")
    g = Generic(
        (1, 1, 400), 2, ((dim(0), dim(2)), (dim(2), dim(1))), ((1, 400), (400, 1)), (y,), (),
        ("i8", "i8"),
    )  # fmt: skip
    x = np.full((1, 400), 127, np.int8)
    assert evaluate_generic(g, [x, x.T])[0][0, 0] == 400 * 127 * 127
    wrapped = Yield(cast(call("mul", arg(0), arg(1)), "i32"), "i32", "add")
    narrow = Generic(g.sizes, 2, g.maps, g.shapes, (wrapped,), (), ("i8", "i8"))
    assert evaluate_generic(narrow, [x, x.T])[0][0, 0] == 400 * 1  # 127 * 127 wraps to 1


def test_several_results_and_no_reduction_over_nothing():
    yields = (Yield(arg(0), "f32", "add"), Yield(call("mul", arg(0), const(2.0)), "f32", "max"))
    g = Generic((3, 4), 1, ((dim(0), dim(1)),), ((3, 4),), yields, (), ("f32",))
    x = RNG.standard_normal((3, 4))
    total, largest = evaluate_generic(g, [x])
    np.testing.assert_allclose(total, x.sum(1))
    np.testing.assert_allclose(largest, 2 * x.max(1))
    empty = Generic((3, 0), 1, ((dim(0), dim(1)),), ((3, 0),), yields, (), ("f32",))
    total, largest = evaluate_generic(empty, [np.zeros((3, 0))])
    assert total.tolist() == [0, 0, 0]
    assert largest.tolist() == [-np.inf] * 3


def element(layout: Layout, x, at):
    """One element of a pack, from its definition in LinalgRelayoutOps.td."""
    rank = len(layout.source)
    index = [at[layout.outer.index(d)] for d in range(rank)]
    for j, (d, t) in enumerate(zip(layout.pos, layout.tiles, strict=True)):
        index[d] = index[d] * t + at[rank + j]
    inside = all(i < s for i, s in zip(index, layout.source, strict=True))
    return x[tuple(index)] if inside else None


layouts = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.tuples(*[st.integers(1, 6)] * n),
        st.permutations(range(n)),
        st.permutations(range(n)),
        st.integers(1, n),
        st.tuples(*[st.integers(1, 4)] * n),
    )
)


@settings(max_examples=60, deadline=None)
@given(layouts, st.sampled_from(["0", "?", "1.5"]))
def test_pack_means_its_definition(drawn, pad):
    source, outer, pos, k, tiles = drawn
    pos, tiles = tuple(pos[:k]), tuple(tiles[:k])
    pads = tuple("-" if source[d] % t == 0 else pad for d, t in zip(pos, tiles, strict=True))
    layout = Layout(source, pos, tiles, tuple(outer), pads)
    layout.verify()
    x = np.random.default_rng(0).standard_normal(source)
    packed = one("pack", layout, x)
    assert packed.shape == layout.packed_shape
    filling = np.nan if pad == "?" else float(pad)
    for at in np.ndindex(packed.shape):
        want = element(layout, x, at)
        np.testing.assert_equal(packed[at], filling if want is None else want)
    assert np.array_equal(one("unpack", layout, packed), x)


def test_padding_of_integers_cannot_hide_and_retype_masks():
    loose = Layout((3,), (0,), (4,), (0,), ("?",))
    zeros = Layout((3,), (0,), (4,), (0,), ("0",))
    x = np.array([1, 2, 3], np.int32)
    packed = one("pack", loose, x)
    assert packed[0, 3] == np.iinfo(np.int32).max
    assert one("relax", zeros, packed) is packed
    assert one("retype", zeros, packed).tolist() == [[1, 2, 3, 0]]


def test_movement_ops():
    x = RNG.standard_normal((3, 4))
    assert np.array_equal(one("transpose", Transpose((3, 4), (1, 0)), x), x.T)
    assert np.array_equal(one("reshape", Reshape((3, 4), (2, 6)), x), x.reshape(2, 6))
    pad = Move("pad", ((3, 4),), ((1, 0), (0, 2), "-inf"), (4, 6))
    assert np.array_equal(one("pad", pad, x)[1:, :4], x)
    assert np.isneginf(one("pad", pad, x)[0]).all()
    cut = Move("slice", ((3, 4),), ((0, 1), (3, 4), (2, 2)), (2, 2))
    assert np.array_equal(one("slice", cut, x), x[::2, 1::2])
    joined = Move("concat", ((3, 4), (3, 1)), (1,), (3, 5))
    assert np.array_equal(one("concat", joined, x, x[:, :1]), np.hstack([x, x[:, :1]]))
    taken = Move("gather", ((3, 4), (2, 2)), (1,), (3, 2, 2))
    at = np.array([[0, 3], [9, -1]])
    assert np.array_equal(one("gather", taken, x, at), x[:, [[0, 3], [3, 0]]])
    tag = Encoding((3, 4), "lhs")
    assert one("set_encoding", tag, x) is x
    assert one("unset_encoding", tag, x) is x
    fill = Fill(2, TensorType("i8", (2,)))
    assert one("fill", fill).dtype == np.int8
    assert one("fill", fill).tolist() == [2, 2]


def program_with_opaque():
    b = Builder("p")
    t = TensorType("f32", (3,))
    x = b.add("input", (), Leaf("x", t, index=0))
    w = b.add("weight", (), Leaf("w", t, key="k"))
    attr = Opaque("twice", "key", (t, t), (t, t))
    both = b.add("opaque", (x, w), attr)
    return b.build([b.add("result", (both,), Result(1)), b.add("result", (both,), Result(0)), x])


def test_programs_bind_leaves_and_call_opaque_ops_in_their_types():
    seen = []

    def twice(a, b):
        seen.append((a.dtype, b.dtype))
        return [a + a, b + b]

    p = program_with_opaque()
    p.verify()
    x, w = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    got = evaluate_program(p, [x], {"k": w}, {"key": twice})
    assert seen == [(np.float32, np.float32)]
    assert [g.tolist() for g in got] == [[2, 2, 2], [0, 2, 4], [0, 1, 2]]
    assert all(g.dtype == np.float64 for g in got)


@pytest.mark.parametrize(
    ("inputs", "weights", "opaque", "code"),
    [
        ([], {"k": np.ones(3)}, {}, "E503"),
        ([np.ones(4)], {"k": np.ones(3)}, {}, "E503"),
        ([np.ones(3)], {}, {}, "E503"),
        ([np.ones(3)], {"k": np.ones(3)}, {}, "E501"),
    ],
)
def test_missing_pieces_are_named(inputs, weights, opaque, code):
    with pytest.raises(EqsatError) as e:
        evaluate_program(program_with_opaque(), inputs, weights, opaque)
    assert e.value.diagnostics[0].code == code


def test_every_op_has_a_meaning_or_is_a_leaf():
    tested = {
        "generic", "pack", "unpack", "retype", "relax", "transpose", "reshape", "pad", "slice",
        "concat", "gather", "set_encoding", "unset_encoding", "fill", "opaque", "result",
    }  # fmt: skip
    elsewhere = {"scan", "while_loop", "cond", "transfer"}  # test_control.py, test_devices.py
    assert set(ATTR_CLASSES) == tested | elsewhere | {"input", "weight"}
