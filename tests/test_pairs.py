"""What is asked of tables is what a plain loop finds: pairs of groups, what joins, orders."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest
from plain_options import plain_options, plain_undominated
from seeds import seeds

import eqsat
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.sources import CandidateTable, Sources
from eqsat.extract.candidates.space import Space, order
from eqsat.extract.choice.linear import linear_goals
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.groups.grow import Candidate, Grower
from eqsat.extract.groups.merge import MergePairs, MergePart, Merger
from eqsat.lang.programs import parse_program

TEXT = """program blocks
input x: f32[64, 96]
weight w: f32[96, 96]
weight v: f32[96, 48]
y = matmul(x, w)
z = relu(y)
a = exp(z)
b = tanh(z)
c = add(a, b)
d = matmul(c, v)
e = transpose(c, perm=[1, 0])
return d, e, a
"""


# pairs of values turned by an angle, as of rotary positions: little arithmetic, many layouts
TURN = (
    "generic({}, {}, c, s, loops=[64, 32], maps=[[d0, d1], [d0, d1], [d0, d1], [d0, d1]], body={})"
)
TURNED = f"""program turned
input x: f32[64, 96]
weight w: f32[96, 64]
weight v: f32[64, 96]
weight c: f32[64, 32]
weight s: f32[64, 32]
y = matmul(x, w)
p = slice(y, start=[0, 0], limit=[64, 32], stride=[1, 1])
q = slice(y, start=[0, 32], limit=[64, 64], stride=[1, 1])
a = {TURN.format("p", "q", "sub(mul(x0, x2), mul(x1, x3))")}
b = {TURN.format("q", "p", "add(mul(x0, x2), mul(x1, x3))")}
d = concat(a, b, axis=1)
e = matmul(d, v)
return e
"""


@cache
def found(target: str, text: str = TEXT) -> tuple[Pool, Costs, tuple[Candidate, ...]]:
    run = eqsat.optimize(parse_program(text), target=target, stop_after="egraph")
    space = Space(run.egraph)
    pool, costs = Pool(Legality(space, run.target), input_only=False), Costs(space, run.target)
    return pool, costs, enumerated(pool, costs).candidates


@cache
def values_without(pool: Pool, value: int) -> frozenset[int]:
    """What can be made by nodes that do not compute a value."""
    space = pool.space
    nodes = [i for i in range(len(space.kinds)) if value not in space.computes((i,))]
    there = {space.result[i] for i, kind in enumerate(space.kinds) if kind == "leaf"}
    there |= pool.resident
    size = -1
    while size < len(there):
        size = len(there)
        for i in nodes:
            if pool.allows(i) and there.issuperset(space.operands[i]):
                there |= {space.result[i], *space.output_buffers[i]}
    return frozenset(space.value[b] for b in there)


def waits(pool: Pool, part: MergePart, other: MergePart) -> bool:
    """Whether a part's value cannot be made without the other's, which one dispatch computes."""
    space, exclusive = pool.space, pool.legality.exclusive
    number = pool.legality.value_number(other.value)
    computing = {i for i in range(len(space.kinds)) if other.value in space.computes((i,))}
    return (
        all(number in exclusive((i,)) for i in computing)
        and not computing.isdisjoint(other.ops)
        and computing.isdisjoint(part.ops)
        and part.value not in values_without(pool, other.value)
    )


def may_merge(merger: Merger, a: MergePart, b: MergePart) -> bool:
    """The rules of a merge, one after the other."""
    space, legality, fusion = merger.space, merger.legality, merger.legality.fusion
    ops = a.ops | b.ops
    both = (a, b)
    reads = {space.buffer[r] for p in both for r in p.candidate.reads}
    computed = space.computes(ops)
    users = [space.consumers.get(p.value, frozenset()) for p in both]
    return (
        a.value != b.value
        and a.touched.isdisjoint(b.makers)
        and b.touched.isdisjoint(a.makers)
        and all(
            a.makers[o] == b.makers[o] or space.kinds[max(a.makers[o], b.makers[o])] == "view"
            for o in a.makers.keys() & b.makers.keys()
        )
        and len(ops) <= fusion.members
        and sum(map(legality.is_root, ops)) <= fusion.roots
        and len(reads) + 2 <= fusion.operands
        and not any(u <= computed for u in users)
        and not waits(merger.pool, a, b)
        and not waits(merger.pool, b, a)
    )


@pytest.mark.parametrize("apart", [False, True])
def test_pairs_are_those_that_a_loop_finds(apart: bool):
    pool, costs, candidates = found("avx512-xla")
    merger = Merger(pool, costs)
    parts = [merger.part(c) for c in candidates if merger.is_small(c)]
    wanted = [
        (a, b)
        for a, b in combinations(parts, 2)
        if may_merge(merger, a, b) and not (apart and a.ops & b.ops)
    ]
    assert len(parts) > 50
    assert wanted
    pairs = MergePairs(pool, parts)
    one, two = pairs.mergeable(range(len(parts)), apart=apart)
    assert [(parts[i], parts[j]) for i, j in zip(one, two, strict=True)] == wanted
    assert not len(pairs.mergeable([0], apart=apart)[0])


@pytest.mark.slow  # 4 s; the gate `pairs` counts them
def test_merges_that_are_not_made_are_in_no_undominated_option():
    pool, costs, candidates = found("avx512-xla", TURNED)
    every = enumerated(replace(pool, keeps_all=True), costs).candidates
    goals = linear_goals(["time", "memory", "dispatches"])
    told = [
        {
            (frozenset(v.writes), v.adds, v.reads, v.resident, v.exclusive)
            for v in plain_undominated(plain_options(sources))
        }
        for sources in (Sources(pool, costs, CandidateTable(c), goals) for c in (candidates, every))
    ]
    assert set(candidates) < set(every)
    assert told[0] == told[1]


@pytest.mark.parametrize("target", seeds(1, ["avx512", "avx512-xla", "iree-like"]))
def test_what_joins_by_structure_is_what_joins(target: str):
    asked = 0
    for text in (TEXT, TURNED):
        pool, costs, candidates = found(target, text)
        uses, grower = pool.legality.uses, Grower(pool, costs)
        for sink in {c.members[-1] for c in candidates}:
            for state in grower.grown(sink):
                for b in state.reads:
                    producers = pool.producers.get(b, ())
                    made = uses.of(state.readers, b)
                    plain = tuple(p for p in producers if all(uses.may_join(p, u) for u in made))
                    assert grower.joined(state, b) == plain
                    asked += len(producers)
    assert asked > 20


def test_nodes_are_ordered_behind_what_they_read():
    pool, _, candidates = found("avx512-xla")
    space = pool.space
    for c in candidates:
        assert order(space, set(c.members)) == c.members
        for at, n in enumerate(c.members):
            before = {space.result[m] for m in c.members[:at]}
            later = {space.result[m] for m in c.members[at + 1 :]} - before
            assert later.isdisjoint(space.needs[n])


def test_an_answer_about_row_blocks_does_not_depend_on_what_was_asked_before():
    pool, _, candidates = found("avx512")
    known = pool.legality.row_blocks
    for c in candidates:
        makers = {b: m for m in c.members for b in pool.space.output_buffers[m]}
        fresh = Legality(pool.space, pool.legality.target).row_blocks
        for by_rows in (False, True):
            assert known.is_legal(makers, by_rows=by_rows) == fresh.is_legal(
                makers, by_rows=by_rows
            )
