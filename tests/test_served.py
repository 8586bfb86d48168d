"""Products that others are cut out of: what every answer holds of them, and the bound it gives."""

from __future__ import annotations

from functools import cache

from eqsat.extract.candidates.cover import served_by
from eqsat.extract.candidates.free import free_problem, unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.solve.linear import OWN
from eqsat.extract.survivors import narrowed
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.saturate import saturate
from tests.test_survivors import least

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
def variants() -> Variants:
    target = load_target("avx512-xla")
    egraph = saturate(parse_program(projections()), load_rulesets(["algebra/merge"]), target)
    space = Space(egraph)
    pool, costs = Pool(Legality(space, target), False), Costs(space, target)
    return Variants(pool, costs, enumerated(pool, costs).candidates, OWN)


def test_a_product_that_may_be_cut_out_of_another_one_is_served_by_both():
    pool = variants().pool
    nodes, kinds = pool.space.egraph.nodes, pool.space.kinds
    products = {i for i, k in enumerate(kinds) if k == "contraction"}
    assert pool.served.keys() == products
    assert {len(values) for values in pool.served.values()} == {1, 2, 3}
    for node, values in pool.served.items():
        (made,) = pool.space.egraph.types[nodes[node].eclass]
        assert values <= frozenset(pool.needed)
        assert len(values) == made.shape[-1] // 384


def test_weights_of_alternatives_are_not_made_in_every_run():
    assert not variants().pool.optional


def test_the_bound_counts_a_shared_product_as_a_whole():
    _, free = free_problem(variants())
    best = least(free, {"time": 1}, {})
    found = narrowed(variants(), {"time": 1}, {}, best, lambda _: None)
    assert found is not None
    assert found.bound == best
    left = unordered(variants(), found.options)
    assert least(left, {"time": 1}, {}) == best


def test_an_option_serves_what_it_writes_not_what_else_is_cut_out_of_its_product():
    """Of a product with three weights side by side a dispatch may compute one part alone."""
    v = variants()
    space, alone = v.space, 0
    for option in FreeOptions.of(v).objects():
        written = {space.value[b] for b in option.writes}
        found = served_by(v.pool, option.candidate.members, written)
        held = {x for m in option.candidate.members for x in v.pool.served.get(m, ())}
        assert found <= held
        inside = space.computes(option.candidate.members)
        assert found == {x for x in held if x in inside or written & v.pool.behind[x]}
        alone += found < held and len(found) == 1
    assert alone


def test_tables_say_of_options_what_is_said_of_each_alone():
    v = variants()
    table = FreeOptions.of(v)
    for option, row in zip(table.objects(), table.problem.serves, strict=True):
        written = [v.space.value[b] for b in option.writes]
        assert set(row.tolist()) == served_by(v.pool, option.candidate.members, written)
