"""What has no plan is priced as XLA runs it, op by op; and nests of loops that reach too far."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from contracted import AVX512
from fuzz.edges import machines
from test_nest import nest_of_text, one_dispatch

import eqsat
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.planfloors import PlanFloors
from eqsat.extract.dispatch.plans import PlanPrices
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.ragged import Ragged
from eqsat.extract.selected import graph_of_program
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.nest import Nest, NoNest
from eqsat.model.target import Target
from eqsat.ops.nests.nest import nest_of_dispatch
from eqsat.plan.contraction import Tiling
from eqsat.plan.planner import plan, plan_alike

# rows of 12 are cut by 8: no loops are both, so the two ops together are no nest
CUT = """program cut
input x: f32[10, 12]
e = generic(x, loops=[10, 12], maps=[[d0, d1]], body=exp(x0))
s = generic(e, loops=[10, 12, 12], maps=[[d0, d2]], body=x0, combine=add, rank=2)
r = reshape(s, shape=[120])
y = pack(r, pos=[0], tiles=[8], outer=[0], pad=0) : f32[15, 8]
return y
"""
# channels of 6 are exchanged before a depthwise window over them
SHUFFLED = """program shuffled
input x: f32[6, 9, 9]
input w: f32[6, 3, 3]
r = reshape(x, shape=[2, 3, 9, 9])
t = transpose(r, perm=[1, 0, 2, 3])
s = reshape(t, shape=[6, 9, 9])
p = pad(s, low=[0, 1, 1], high=[0, 1, 1], value=0.0)
y = generic(p, w, loops=[6, 9, 9, 3, 3], maps=[[d0, d1 + d3, d2 + d4], [d0, d3, d4]], \
body=mul(x0, x1), combine=add, rank=3)
f = reshape(y, shape=[6, 81])
return f
"""


@cache
def graph(text: str) -> Space:
    return Space(graph_of_program(parse_program(text)))


def time_ps(space: Space, target: Target, *members: int) -> int:
    """Of these nodes as one dispatch that writes what the last one makes."""
    inside = {space.egraph.nodes[m].eclass for m in members}
    read = [c for m in members for c in space.egraph.nodes[m].children if c not in inside]
    written = space.egraph.nodes[members[-1]].eclass
    return Costs(space, target).group_ps(members, tuple(dict.fromkeys(read)), (written,))


def has_plan(space: Space, target: Target, *members: int) -> bool:
    written = (space.egraph.nodes[members[-1]].eclass,)
    first = space.egraph.nodes[members[0]].children
    return PlanPrices(space, target).time_ps(members, first, written) is not None


@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_ops_without_a_plan_take_as_long_as_each_by_itself(name: str) -> None:
    space, target = graph(CUT), load_target(name)
    e, s, r, y = 1, 2, 3, 4
    assert not has_plan(space, target, s, r, y) and has_plan(space, target, e)
    together = time_ps(space, target, e, s, r, y)
    apart = [time_ps(space, target, m) for m in (e, s, y)]
    assert together > sum(apart)
    more = eqsat.optimize(parse_program(CUT), target=target).selection
    assert more is not None and more.goal("time").value <= together
    one_by_one = Costs(space, target).one_by_one
    assert together == one_by_one.dispatch_ps((e, s, y)), "views are free"


def test_the_start_of_an_op_is_the_targets() -> None:
    space = graph(CUT)
    slow = override(load_target("avx512"), ["kernels.xla_op=1 ms"])
    assert time_ps(space, slow, 1, 2, 3, 4) >= 3 * 10**9
    assert time_ps(space, slow, 1) < 10**9, "it has a plan"


@pytest.mark.parametrize("text", [CUT, SHUFFLED])
def test_floors_are_below_what_has_no_plan(text: str) -> None:
    space, target = graph(text), load_target("avx512")
    nodes = [i for i, k in enumerate(space.kinds) if k not in ("leaf", "view")]
    floors, costs = PlanFloors(space, target), Costs(space, target)
    for first in range(len(nodes)):
        members = tuple(nodes[first:])
        inside = {space.result[m] for m in members}
        read = frozenset(b for m in members for b in space.operands[m]) - inside
        written = (space.result[members[-1]],)
        found = floors.of(Ragged.of([members]), Ragged.of([read]), Ragged.of([written]))
        unplanned = costs.one_by_one.dispatch_ps(members)
        assert 0 < int(found[0]) <= unplanned
        assert int(found[0]) <= time_ps(space, target, *members)


def test_the_answer_of_a_shuffle_is_not_cut_where_nothing_is_planned() -> None:
    """Measured: 4.2 times as slow as its input, when what had no plan was priced as one kernel."""
    run = eqsat.optimize(parse_program(SHUFFLED), target="avx512")
    assert run.schedule is not None and all(d.plan is not None for d in run.schedule.dispatches)


# ---- loops that begin below a result, or end behind it ------------------------------------------
FRAMED = """program framed
input x: f32[{m}, {n}]
r = generic(x, loops=[{m}, {a}, {n}, {b}], maps=[[d0, d2]], body=exp(x0), rank=4)
q = reshape(r, shape=[{p}, {q}])
y = pad(q, low=[{low}, {low}], high=[1, {high}], value=2.5)
return y
"""
PANELS = """program panels
input x: f32[7, 5]
input v: f32[{panels}, 5, {tile}]
h = generic(x, v, loops=[7, {panels}, {tile}, 5], maps=[[d0, d3], [d1, d3, d2]], \
body=mul(x0, x1), combine=add, rank=3)
y = unpack(h, pos=[1], tiles=[{tile}], outer=[0, 1], pad=any, shape=[7, {n}]) : f32[7, {n}]
z = generic(h, loops=[7, {panels}, {tile}], maps=[[d0, d1, d2]], body=max(x0, 0.0))
return {results}
"""


def framed(m: int, n: int, a: int, b: int, low: int, high: int) -> str:
    return FRAMED.format(m=m, n=n, a=a, b=b, p=m * a, q=n * b, low=low, high=high)


@pytest.mark.parametrize(
    "sizes", [(3, 4, 2, 2, 1, 1), (2, 17, 1, 3, 1, 0), (3, 5, 3, 2, 4, 5), (1, 2, 2, 4, 7, 1)]
)
def test_what_is_repeated_is_written_in_a_frame(sizes: tuple[int, ...]) -> None:
    """The pad moves rows by what is no whole tile of them."""
    nest = nest_of_text(framed(*sizes))
    assert len(nest.stores) == 1 and nest.stores[0].access.fill == 2.5


@pytest.mark.parametrize("results", ["z, y", "y, z"])
def test_a_product_is_written_as_it_is_and_in_panels(results: str) -> None:
    nest = nest_of_text(PANELS.format(panels=3, tile=4, n=10, results=results))
    assert sum(bool(s.combine) for s in nest.stages) == 1, "the product is computed once"
    assert sorted(len(s.bounds) for s in nest.stores) == [0, 1] and not nest.bounds


def test_a_sum_is_not_cut_below_its_first_row() -> None:
    """Loops that a reduction runs over begin where it does."""
    text = """program p
    input x: f32[12]
    r = reshape(x, shape=[6, 2])
    s = generic(r, loops=[6, 2], maps=[[d0, d1]], body=exp(x0))
    q = reshape(s, shape=[12])
    p = pad(q, low=[1], high=[1], value=0.0)
    y = generic(p, loops=[14], maps=[[d0]], body=x0, combine=add, rank=0)
    return y"""
    schedule, d = one_dispatch(text)
    with pytest.raises(NoNest, match="cuts loops that others cut in another way"):
        nest_of_dispatch(schedule, d)


def test_only_the_first_digit_of_a_result_begins_below_it() -> None:
    """Elements of 6 to 32 of a row lie side by side: one more on the left is the row above's."""
    text = """program parts
    input x: f32[5, 3, 16]
    input z: f32[135, 1]
    u = unpack(x, pos=[1], tiles=[16], outer=[0, 1], pad=any, shape=[5, 33]) : f32[5, 33]
    s = slice(u, start=[0, 6], limit=[5, 33])
    r = reshape(s, shape=[135, 1])
    y = concat(r, z, axis=1)
    return y"""
    schedule, d = one_dispatch(text)
    with pytest.raises(NoNest, match="cuts loops that others cut in another way"):
        nest_of_dispatch(schedule, d)


@pytest.mark.parametrize("name", sorted(machines()))
def test_plans_of_such_nests_are_made(name: str) -> None:
    """What they compute is tried by `make edges`, at every edge of their sizes."""
    machine = machines()[name]
    wide = machine.lanes(4) + 1
    for nest in (
        nest_of_text(framed(2, wide, 2, 2, 1, 1)),
        nest_of_text(PANELS.format(panels=2, tile=16, n=23, results="z, y")),
    ):
        assert isinstance(nest, Nest) and plan(nest, machine).items > 0
        assert np.prod(nest.sizes) > 0


DILATED = """program dilated
input x: f32[{h}, {w}, {c}]
input k: f32[{kh}, {kw}, {c}, 32]
p = pad(x, low=[{low}, {left}, 0], high=[{high}, {right}, 0], value=0.0)
y = generic(p, k, loops=[{oh}, {ow}, 32, {kh}, {kw}, {c}], \
maps=[[d0 + {by}*d3, d1 + {by}*d4, d5], [d3, d4, d5, d2]], body=mul(x0, x1), combine=add, rank=3)
return y
"""


@pytest.mark.parametrize("channels", [64, 256])
def test_taps_of_which_each_leaves_out_other_rows_are_cut_apart_by_no_part_of_a_sum(
    channels: int,
) -> None:
    """Sums over 64 channels are parts of several taps, which the check of plans refuses."""
    text = DILATED.format(h=1, w=29, c=channels, kh=3, kw=5, low=4, high=1, left=8, right=0,
                          oh=2, ow=29, by=2)  # fmt: skip
    plan_of = plan_alike(nest_of_text(text), AVX512)[1]
    assert not isinstance(plan_of, str), plan_of


def test_a_window_as_large_as_its_image_leaves_out_its_pads() -> None:
    text = DILATED.format(h=33, w=33, c=256, kh=3, kw=3, low=18, high=18, left=18, right=18,
                          oh=33, ow=33, by=18)  # fmt: skip
    plan_of = plan_alike(nest_of_text(text), AVX512)[1]
    assert isinstance(plan_of, Tiling) and plan_of.strips
