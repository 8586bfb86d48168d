"""Products that others are cut out of: what every answer holds of them, and the bound it gives."""

from __future__ import annotations

from functools import cache

from problems import questions
from tabulated import sources_of

from eqsat.extract.candidates.assemble import Choices
from eqsat.extract.candidates.dominators import served_by
from eqsat.extract.candidates.sources import Sources
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.minimiser import SearchLimits
from eqsat.extract.reducedcosts import fix_by_reduced_cost
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import load_target
from eqsat.model.deadline import elapsed
from eqsat.model.selection import GoalRequest

SIDES = ("q", "k", "v")


def projections() -> str:
    """Three products of one input, each with a bias."""
    lines = ["program m", "input x: f32[128, 384]"]
    for s in SIDES:
        maps = "[[d0, d2], [d2, d1]]"
        body = f"loops=[128, 384, 384], maps={maps}, body=mul(x0, x1), combine=add, rank=2"
        lines += [f"weight w{s}: f32[384, 384]", f"weight b{s}: f32[384]"]
        lines.append(f"{s} = generic(x, w{s}, {body}) : f32[128, 384]")
        body = "loops=[128, 384], maps=[[d0, d1], [d1]], body=add(x0, x1), rank=2"
        lines.append(f"out{s} = generic({s}, b{s}, {body}) : f32[128, 384]")
    return "\n".join([*lines, "return outq, outk, outv", ""])


@cache
def sources() -> Sources:
    target = load_target("avx512-xla")
    return sources_of(parse_program(projections()), target, (), "algebra/merge")


def test_a_product_that_may_be_cut_out_of_another_one_is_served_by_both():
    pool = sources().pool
    nodes, kinds = pool.space.egraph.nodes, pool.space.kinds
    products = {i for i, k in enumerate(kinds) if k == "contraction"}
    assert pool.served.keys() == products
    assert {len(values) for values in pool.served.values()} == {1, 2, 3}
    for node, values in pool.served.items():
        (made,) = pool.space.egraph.types[nodes[node].eclass]
        assert values <= frozenset(pool.needed)
        assert len(values) == made.shape[-1] // 384


def test_weights_of_alternatives_are_not_made_in_every_run():
    assert not sources().pool.optional


def test_the_bound_counts_a_shared_product_as_a_whole():
    best = questions(choice_of(sources())).least({"time": 1}, {})
    assert best.status == "optimal" and best.proof == "relaxation"
    limits = SearchLimits(elapsed() + 60, 0)
    found = fix_by_reduced_cost(Choices(sources(), (), ()), (GoalRequest("time"),), {}, limits)
    assert found.least["time"] == (best.bound, "relaxation")
    left = questions(found.assembly.choice).least({"time": 1}, {})
    assert (left.status, left.bound) == ("optimal", best.bound)


def test_a_column_serves_what_it_writes_not_what_else_is_cut_out_of_its_product():
    """Of a product with three weights side by side a dispatch may compute one part alone."""
    some, alone = sources(), 0
    choice, space = choice_of(some), some.space
    for column, writes in enumerate(choice.writes.tuples):
        members = some.candidates[int(choice.candidate[column])].members
        written = {space.value[b] for b in writes}
        found = served_by(some.pool, members, written)
        assert set(choice.serves.tuples[column]) == found
        held = {x for m in members for x in some.pool.served.get(m, ())}
        assert found <= held
        inside = space.computes(members)
        assert found == {x for x in held if x in inside or written & some.pool.behind[x]}
        alone += found < held and len(found) == 1
    assert alone
    assert set(choice.facts.served.tolist()) == set().union(*some.pool.served.values())
