"""Candidates of equal blocks are copied; what breaks the symmetry is enumerated by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import eqsat
from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.enumeration import Enumerated, enumerated
from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.shifted import Shifted
from eqsat.extract.candidates.space import Space
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
from eqsat.model.selection import Selection
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

# a residual layer with a bias, an activation and a norm of its rows
LAYER = """weight w{i}: f32[8, 8]
weight b{i}: f32[8]
m{i} = matmul(h{i}, w{i})
a{i} = generic(m{i}, b{i}, loops=[8, 8], maps=[[d0, d1], [d1]], body=tanh(add(x0, x1)))
r{i} = add(h{i}, a{i})
s{i} = generic(r{i}, loops=[8, 8], maps=[[d0, d1]], body=x0, combine=max) : f32[8]
h{j} = generic(r{i}, s{i}, loops=[8, 8], maps=[[d0, d1], [d0]], body=mul(sub(x0, x1), 0.5))"""
RULES = "layout/transpose"  # few layouts, so that all is cheap
COUNT = 7
ODD = 5  # the layer that differs


def odd(*changes: tuple[str, str], at: tuple[int, ...] = (ODD,)) -> list[str]:
    """The layers, one of which (or all that are named) differs."""
    changed = LAYER
    for old, new in changes:
        assert old in changed
        changed = changed.replace(old, new)
    return [changed if i in at else LAYER for i in range(COUNT)]


def tied(first: int, *layers: int) -> list[str]:
    """Layers that have the weight of an earlier one."""
    own = ("weight w{i}: f32[8, 8]\n", ""), ("matmul(h{i}, w{i})", f"matmul(h{{i}}, w{first})")
    return odd(*own, at=layers)


# name -> layers, what is behind them
CASES: dict[str, tuple[list[str], str]] = {
    "nothing differs": ([LAYER] * COUNT, ""),
    "a constant": (odd(("0.5", "0.25")), ""),
    "an activation": (odd(("tanh", "sin")), ""),
    "no residual": (odd(("add(h{i}, a{i})", "exp(a{i})")), ""),
    "an op more": (odd(("= matmul(h{i}, w{i})", "= exp(matmul(h{i}, w{i}))")), ""),
    "a weight of two layers": (tied(5, 6), ""),
    "a weight of all but one": (tied(1, *range(2, COUNT)), ""),
    "a result of a middle layer": ([LAYER] * COUNT, ", r4"),
    "a result of every layer": ([LAYER] * COUNT, ", s0, s1, s2, s3, s4, s5, s6"),
    "a value that is read behind": ([LAYER] * COUNT, ", y"),
    "another type": (
        odd(("b{i}: f32", "b{i}: f16"), ("add(x0, x1)", "add(x0, cast(x1, f32))")),
        "",
    ),
}
TARGETS = ("avx512-xla", "iree-like", "gfx942")


def small(name: str) -> Target:
    """A target whose dispatches have few members, and templates all the same."""
    target = eqsat.target(name)
    return replace(target, fusion=replace(target.fusion, members=2, template=8))


def text_of(case: str) -> str:
    layers, behind = CASES[case]
    body = "\n".join(text.format(i=i, j=i + 1) for i, text in enumerate(layers))
    reads = f"y = add(h{COUNT}, a4)\n" if behind == ", y" else ""
    return f"program p\ninput h0: f32[8, 8]\n{body}\n{reads}return h{COUNT}{behind}\n"


@cache
def graph_of(case: str, target: str) -> tuple[EGraph, Target]:
    program = merge_elementwise(parse_program(text_of(case), "p.eqs"))
    there = small(target)
    return saturate(program, eqsat.rules(RULES), there), there


def candidates(graph: EGraph, target: Target, *, copying: bool = True) -> tuple[Pool, Enumerated]:
    whole = replace(graph)
    if not copying:
        whole.__dict__["shift"] = None
    space = Space(whole)
    pool = Pool(Legality(space, target), False, frozenset(("time", "memory")))
    return pool, enumerated(pool, Costs(space, target))


def told(space: Space, found: tuple[Candidate, ...]) -> set[tuple[object, ...]]:
    """What candidates are, whatever the order of their parts and the shapes they read."""
    buffers = [
        [frozenset(space.buffer[x] for x in side) for side in (c.reads, c.writes, c.exposable)]
        for c in found
    ]
    return {
        (frozenset(c.members), *sides, c.time_ps, c.slack_ps)
        for c, sides in zip(found, buffers, strict=True)
    }


# dispatches of avx512 may hold most of two layers, so little of few layers is copied
@pytest.mark.parametrize(
    ("case", "target"),
    [*((case, target) for case in CASES for target in TARGETS), ("nothing differs", "avx512")],
)
def test_copies_are_what_direct_enumeration_finds(case: str, target: str):
    graph, there = graph_of(case, target)
    pool, copied = candidates(graph, there)
    _, direct = candidates(graph, there, copying=False)
    assert not len(direct.copies)
    assert direct.all == direct.candidates
    assert told(pool.space, copied.all) == told(pool.space, direct.all)
    assert {r.what for r in copied.removed} == {r.what for r in direct.removed}
    assert copied.cuts == direct.cuts
    assert sum(copied.copies.sinks) == sum(direct.copies.sinks)
    assert copied.copies.sinks[1] > 0


@pytest.mark.parametrize("case", sorted(CASES.keys() - {"nothing differs"}))
def test_without_certificates_copies_would_be_wrong(case: str, monkeypatch: pytest.MonkeyPatch):
    graph, there = graph_of(case, "avx512-xla")
    _, direct = candidates(graph, there, copying=False)
    monkeypatch.setattr(Shifted, "_is_alike", lambda self, value: True)
    pool, copied = candidates(graph, there)
    assert told(pool.space, copied.all) != told(pool.space, direct.all)


def test_more_layers_cost_copies_alone():
    sinks = []
    for count in (6, 9):
        body = "\n".join(LAYER.format(i=i, j=i + 1) for i in range(count))
        text = f"program p\ninput h0: f32[8, 8]\n{body}\nreturn h{count}\n"
        program = merge_elementwise(parse_program(text, "p.eqs"))
        there = small("avx512-xla")
        _, found = candidates(saturate(program, eqsat.rules(RULES), there), there)
        sinks.append((found.copies.sinks[0], len(found.candidates)))
    assert sinks[0] == sinks[1]


def test_merges_around_what_all_layers_read_are_copied():
    layer = """weight w{i}: f32[8, 8]
m{i} = matmul(h{i}, w{i})
a{i} = mul(m{i}, t)
b{i} = add(m{i}, t)
h{j} = matmul(a{i}, b{i})"""
    counts = []
    for count in (5, 7):
        body = "\n".join(layer.format(i=i, j=i + 1) for i in range(count))
        text = f"program p\ninput h0: f32[8, 8]\nweight c: f16[8, 8]\nt = cast(c, f32)\n{body}\n"
        there = small("avx512-xla")
        there = replace(there, fusion=replace(there.fusion, members=4))
        graph = saturate(parse_program(f"{text}return h{count}\n"), eqsat.rules(RULES), there)
        pool, copied = candidates(graph, there)
        _, direct = candidates(graph, there, copying=False)
        assert told(pool.space, copied.all) == told(pool.space, direct.all)
        around = {
            i for i, n in enumerate(graph.nodes) if n.op == "generic" and pool.is_ahead_node(i)
        }
        merges = [c for c in copied.candidates if len(c.writes) > 1 and around & {*c.members}]
        assert merges
        counts.append(len(merges))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "case", ["nothing differs", "a constant", "no residual", "a weight of two layers"]
)
def test_an_answer_is_as_good_and_tells_the_copies(case: str, monkeypatch: pytest.MonkeyPatch):
    """Of the whole search, and what is computed by it is right."""
    options = {"rules": RULES, "target": small("avx512-xla")}
    program = parse_program(text_of(case), "p.eqs")
    copied = eqsat.optimize(program, verify=case != "nothing differs", **options)
    monkeypatch.setattr("eqsat.model.egraph.find_shift", lambda egraph: None)
    direct = eqsat.optimize(program, **options)
    assert copied.selection is not None
    assert direct.selection is not None
    assert copied.selection.stop == direct.selection.stop == "optimal"
    assert copied.selection.goals == direct.selection.goals
    sinks = copied.summary()["sinks"]
    assert sinks == dict(zip(("direct", "copied"), copied.selection.sinks, strict=True))
    assert sinks["copied"] > 0
    assert direct.summary()["sinks"] == {"direct": sum(copied.selection.sinks), "copied": 0}
    assert Selection.from_json(copied.selection.to_json()) == copied.selection
