"""Programs of seven small layers: all equal, or one that differs, and their e-graphs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import eqsat
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import Enumerated, enumerated
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
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


def candidates(graph: EGraph, target: Target) -> tuple[Pool, Enumerated]:
    space = Space(graph)
    pool = Pool(Legality(space, target), False, frozenset(("time", "memory")))
    return pool, enumerated(pool, Costs(space, target))
