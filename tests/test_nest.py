"""Nests of dispatches: loops, strides, bounds and stages, held to what the members mean."""

from __future__ import annotations

import pytest
from nests import mismatch, values_of

from eqsat.execute.draw import drawn_weights
from eqsat.lang.programs import parse_program
from eqsat.model.nest import Nest, NoNest
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.ops.nests.nest import nest_of_dispatch


def one_dispatch(text: str) -> tuple[Schedule, Dispatch]:
    """A program as a single dispatch."""
    program = parse_program(text)
    nodes = program.nodes
    leaves = [i for i, n in enumerate(nodes) if n.op in ("input", "weight")]
    members = tuple(i for i in range(len(nodes)) if i not in leaves)
    d = Dispatch(members, tuple(leaves), tuple(dict.fromkeys(program.results)), 0, 0, "")
    return Schedule(program, (d,), (), (), ""), d


def nest_of_text(text: str) -> Nest:
    """The nest of a program, which means what its ops do."""
    schedule, d = one_dispatch(text)
    nest = nest_of_dispatch(schedule, d)
    values = values_of(schedule.program, drawn_weights(schedule.program))
    assert not mismatch(nest, d, values), f"{mismatch(nest, d, values)}\n{nest}"
    return nest


def test_a_matmul_on_a_packed_weight_reads_it_by_panels():
    nest = nest_of_text(
        """program p
        input x: f32[6, 8]
        weight w: f32[3, 8, 4] key=w
        input b: f32[12]
        u = unpack(w, shape=[8, 12], pos=[1], tiles=[4], outer=[1, 0]) : f32[8, 12]
        y = matmul(x, u)
        z = generic(y, b, loops=[6, 12], maps=[[d0, d1], [d1]], body=max(add(x0, x1), 0.0))
        return z"""
    )
    assert nest.sizes == (6, 3, 4, 8)  # m, panels of n, n in a panel, k
    x, w = nest.stages[0].arguments
    assert (x.strides, w.strides) == ((8, 0, 0, 1), (0, 32, 1, 4))
    assert nest.stages[1].arguments[1].strides == (0, 4, 1, 0)
    assert nest.stores[0].access.strides == (12, 4, 1, 0)
    assert not nest.bounds


def test_a_tile_that_does_not_divide_cuts_its_loop_with_a_bound():
    nest = nest_of_text(
        """program p
        input x: f32[6, 8]
        weight w: f32[3, 8, 5] key=w
        u = unpack(w, shape=[8, 13], pos=[1], tiles=[5], outer=[1, 0], pad=0) : f32[8, 13]
        y = matmul(x, u)
        return y"""
    )
    assert nest.sizes == (6, 3, 5, 8)
    assert [(b.strides, b.extent) for b in nest.bounds] == [((0, 5, 1, 0), 13)]
    assert not any(a.bounds for a in nest.accesses)


def test_open_lanes_of_a_packed_result_are_a_condition_of_its_store():
    nest = nest_of_text(
        """program p
        input x: f32[5, 8]
        weight w: f32[8, 7] key=w
        y = matmul(x, w)
        z = pack(y, pos=[1], tiles=[4], outer=[1, 0], pad=0) : f32[2, 5, 4]
        return z"""
    )
    (store,) = nest.stores
    assert (store.access.fill, len(store.access.bounds)) == (0, 1)
    assert not nest.bounds


def test_loops_of_softmax_are_rows_and_columns():
    nest = nest_of_text(
        """program p
        input x: f32[2, 3, 5]
        m = generic(x, loops=[2, 3, 5], rank=2, maps=[[d0, d1, d2]], body=x0, combine=max)
        e = generic(x, m, loops=[2, 3, 5], maps=[[d0, d1, d2], [d0, d1]], body=exp(sub(x0, x1)))
        s = generic(e, loops=[2, 3, 5], rank=2, maps=[[d0, d1, d2]], body=x0, combine=add)
        y = generic(e, s, loops=[2, 3, 5], maps=[[d0, d1, d2], [d0, d1]], body=div(x0, x1))
        return y"""
    )
    assert nest.sizes == (6, 5)
    assert [(s.loops, s.reduced) for s in nest.stages] == [
        ((0,), (1,)), ((0, 1), ()), ((0,), (1,)), ((0, 1), ()),
    ]  # fmt: skip


def test_attention_is_two_contractions_over_one_loop_of_keys():
    nest = nest_of_text(
        """program p
        input q: f32[2, 4, 6]
        input k: f32[2, 5, 6]
        input v: f32[2, 5, 3]
        s = generic(q, k, loops=[2, 4, 5, 6], rank=3, maps=[[d0, d1, d3], [d0, d2, d3]], body=mul(x0, x1), combine=add)
        m = generic(s, loops=[2, 4, 5], rank=2, maps=[[d0, d1, d2]], body=x0, combine=max)
        e = generic(s, m, loops=[2, 4, 5], maps=[[d0, d1, d2], [d0, d1]], body=exp(sub(x0, x1)))
        t = generic(e, loops=[2, 4, 5], rank=2, maps=[[d0, d1, d2]], body=x0, combine=add)
        p = generic(e, t, loops=[2, 4, 5], maps=[[d0, d1, d2], [d0, d1]], body=div(x0, x1))
        y = generic(p, v, loops=[2, 4, 3, 5], rank=3, maps=[[d0, d1, d3], [d0, d3, d2]], body=mul(x0, x1), combine=add)
        return y"""  # noqa: E501
    )
    assert sorted(nest.sizes) == [2, 3, 4, 5, 6]


def test_a_gather_reads_where_its_index_says():
    nest = nest_of_text(
        """program p
        input t: f32[9, 4]
        input i: i32[6]
        input b: f32[6, 4]
        g = gather(t, i, axis=0)
        y = generic(g, b, loops=[6, 4], maps=[[d0, d1], [d0, d1]], body=add(x0, x1))
        return y"""
    )
    (table, _) = nest.stages[0].arguments
    (found,) = table.lookups
    (index,) = found.arguments
    assert (found.stride, found.extent, index.strides) == (4, 9, (1, 0))
    assert len(nest.reads) == 3


TABLES = """program p
    input t: f32[9, 4]
    input u: f32[5, 4]
    input i: i32[2, 3]
    input k: i32[6]
    input b: f32[6, 4]
    flat = reshape(i, shape=[6])
    low = generic(flat, loops=[6], maps=[[d0]], body=lt(x0, 0)) : bool[6]
    above = generic(flat, loops=[6], maps=[[d0]], body=add(x0, 9))
    at = generic(low, above, flat, loops=[6], maps=[[d0], [d0], [d0]], body=select(x0, x1, x2))
    g = gather(t, at, axis=0)
    chosen = gather(at, k, axis=0)
    h = gather(u, chosen, axis=0)
    y = generic(g, h, b, loops=[6, 4], maps=[[d0, d1], [d0, d1], [d0, d1]], body=add(add(x0, x1), x2))
    return y"""  # noqa: E501


def test_what_a_gather_looks_up_by_may_be_computed():
    nest = nest_of_text(TABLES)
    assert nest.sizes == (6, 4) and len(nest.stages) == 1 and len(nest.reads) == 5
    (table, other, _) = nest.stages[0].arguments
    assert str(table.lookups[0].body) == "select(lt(x0, 0), add(x0, 9), x0)"
    assert (table.lookups[0].dtype, table.lookups[0].extent) == ("i32", 9)
    (deep,) = other.lookups[0].arguments  # an element of `i` where an element of `k` says
    assert deep.lookups and "x0" in nest.to_text()


def test_a_constant_index_is_no_lookup():
    nest = nest_of_text(
        """program p
        input t: f32[9, 4]
        i = fill(value=12) : i32[6]
        y = gather(t, i, axis=0)
        return y"""
    )
    (read,) = nest.stages[0].arguments
    assert (read.base, read.lookups) == (8 * 4, ())


def test_an_index_that_is_reduced_is_none():
    with pytest.raises(NoNest, match="looks up by indices that a reduction computes inside"):
        nest_of_text(
            """program p
            input t: f32[9, 4]
            input i: i32[6, 3]
            m = generic(i, loops=[6, 3], rank=1, maps=[[d0, d1]], body=x0, combine=max)
            y = gather(t, m, axis=0)
            return y"""
        )


def test_pads_and_windows_are_strides_with_bounds():
    nest = nest_of_text(
        """program p
        input x: f32[5, 5, 3]
        weight w: f32[3, 3, 3, 2] key=w
        h = generic(x, loops=[5, 5, 3], maps=[[d0, d1, d2]], body=max(x0, 0.0))
        a = pad(h, low=[1, 1, 0], high=[1, 1, 0], value=0.0) : f32[7, 7, 3]
        y = generic(a, w, loops=[3, 3, 2, 3, 3, 3], rank=3, maps=[[2*d0 + d3, 2*d1 + d4, d5], [d3, d4, d5, d2]], body=mul(x0, x1), combine=add)
        return y"""  # noqa: E501
    )
    assert [s.fill for s in nest.stages if s.bounds] == [0.0]  # max(any, 0) is not the pad


def test_a_concat_is_written_piece_by_piece():
    nest = nest_of_text(
        """program p
        input x: f32[3, 8]
        a = slice(x, start=[0, 4], limit=[3, 8], stride=[1, 1])
        n = generic(a, loops=[3, 4], maps=[[d0, d1]], body=neg(x0))
        b = slice(x, start=[0, 0], limit=[3, 4], stride=[1, 1])
        y = concat(n, b, axis=1)
        z = generic(y, x, loops=[3, 8], maps=[[d0, d1], [d0, d1]], body=add(x0, x1))
        return z"""
    )
    assert len(nest.stores) == 2


def test_a_value_is_written_beside_what_is_computed_from_it():
    nest = nest_of_text(
        """program p
        input x: f32[6, 8]
        input w: f32[8, 7]
        y = matmul(x, w)
        z = pack(y, pos=[1], tiles=[4], outer=[1, 0], pad=0) : f32[2, 6, 4]
        t = transpose(y, perm=[1, 0])
        r = relu(t)
        return y, z, r"""
    )
    assert sum(bool(s.combine) for s in nest.stages) == 1
    assert [bool(s.bounds) for s in nest.stores].count(True) == 2  # the plain ones


PARTS = """program p
    input x: f32[3, 20]
    input w: f32[20, 72]
    input b: f32[24]
    y = matmul(x, w)
    s = slice(y, start=[0, {at}], limit=[3, {end}], stride=[1, 1])
    t = generic(s, b, loops=[3, 24], maps=[[d0, d1], [d1]], body=add(tanh(x0), x1))
    r = reshape(s, shape=[3, 4, 6])
    u = transpose(r, perm=[1, 0, 2])
    return {results}"""


@pytest.mark.parametrize("results", ["y, s", "y, t", "y, u", "t, u, y"])
@pytest.mark.parametrize("at", [0, 24, 41, 48])
def test_a_part_of_a_value_is_written_beside_it(results: str, at: int):
    """One contraction, however the parts are looked at."""
    schedule, d = one_dispatch(PARTS.format(at=at, end=at + 24, results=results))
    if at == 41 and "u" in results:  # heads of a part that begins within one
        with pytest.raises(NoNest, match=r"more than once|in another way"):
            nest_of_dispatch(schedule, d)
        return
    nest = nest_of_dispatch(schedule, d)
    assert sum(bool(s.combine) for s in nest.stages) == 1
    values = values_of(schedule.program, drawn_weights(schedule.program))
    assert not mismatch(nest, d, values)


def test_a_sum_beside_a_part_keeps_its_own_points():
    nest = nest_of_text(
        """program p
        input x: f32[3, 72]
        input w: f32[24, 5]
        n = generic(x, loops=[3, 72], maps=[[d0, d1]], body=neg(x0))
        s = slice(n, start=[0, 48], limit=[3, 72], stride=[1, 1])
        m = generic(w, loops=[24, 5], rank=1, maps=[[d0, d1]], body=x0, combine=add)
        t = generic(m, s, loops=[3, 24], maps=[[d1], [d0, d1]], body=add(x0, x1))
        return n, t"""
    )
    (total,) = (s for s in nest.stages if s.combine)
    assert nest.points(total.loops) == 24


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            """program p
            input x: f32[4, 6]
            y = generic(x, loops=[4, 6], rank=1, maps=[[d0, d1]], body=x0, combine=add)
            z = generic(y, y, loops=[4, 4], maps=[[d0], [d1]], body=add(x0, x1))
            return z""",
            "%1 (generic) would be computed more than once for some values",
        ),
        (
            """program p
            input x: f32[12]
            a = reshape(x, shape=[3, 4])
            b = reshape(x, shape=[4, 3])
            c = generic(a, loops=[3, 4], maps=[[d0, d1]], body=neg(x0))
            d = reshape(c, shape=[12])
            e = generic(b, loops=[4, 3], maps=[[d0, d1]], body=neg(x0))
            f = reshape(e, shape=[12])
            g = generic(d, f, loops=[12], maps=[[d0], [d0]], body=add(x0, x1))
            return g""",
            "cuts loops that others cut in another way",
        ),
    ],
)  # fmt: skip
def test_what_is_no_nest_says_why(text: str, reason: str):
    schedule, d = one_dispatch(text)
    with pytest.raises(NoNest) as e:
        nest_of_dispatch(schedule, d)
    assert reason in str(e.value)


def test_a_concat_that_is_written_and_reduced_is_read_whole():
    """The sum over all of it took what one piece reads for every element."""
    nest = nest_of_text(
        """program p
        input a: f32[12]
        input b: f32[10]
        weight w: f32[32, 4] key=w
        c = concat(a, b, b, axis=0)
        n = generic(c, loops=[32], maps=[[d0]], body=neg(x0))
        s = generic(n, w, loops=[4, 32], rank=1, maps=[[d1], [d1, d0]], body=mul(x0, x1), \
        combine=add)
        return n, s"""
    )
    assert len(nest.writes) == 2
