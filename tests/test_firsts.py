"""Layouts that are converted in a circle: what keeps them from that holds for every answer."""

from __future__ import annotations

import random

import numpy as np
import pytest
from problems import Column, choice_of, keeps_the_rules, sets_of, value
from seeds import seeds

from eqsat.extract.choice.columns import Columns
from eqsat.extract.choice.relax import relaxation
from eqsat.extract.choice.statement import Statement

# value 1 has the layouts 10, 11 and 12; results of ops, 20, 30 and 40, are made from it
VALUE = {10: 1, 11: 1, 12: 1, 20: 2, 30: 3, 40: 4}


def column(time: int, reads: tuple[int, ...], writes: tuple[int, ...], *held: int) -> Column:
    """It computes the values that it alone may compute."""
    return Column((time,), tuple(sorted(reads)), tuple(sorted(writes)), held, (), held)


def choice(columns: list[Column], roots: tuple[int, ...]) -> Columns:
    return choice_of(columns, dict.fromkeys(VALUE, 4), roots, value_of=VALUE, linear=("time",))


@pytest.mark.parametrize("seed", seeds(3, 6))
def test_no_answer_is_ruled_out(seed: int):
    draw = random.Random(seed)
    columns = [column(1, (), (draw.choice((10, 11, 12)),), 1) for _ in range(2)]
    for result in (20, 20, 20, 30, 30, 30, 0, 0):
        reads = tuple(draw.sample((10, 11, 12), draw.choice((1, 1, 2))))
        more = [b for b in (10, 11, 12) if b not in reads and draw.random() < 0.5]
        if result or more:
            writes = ((result,) if result else ()) + tuple(more)
            held = (VALUE[result],) if result else ()
            columns.append(column(draw.randint(1, 9), reads, writes, *held))
    found = choice(columns, (20, 30))
    known = [c for c in sets_of(len(found)) if keeps_the_rules(found, c)]
    told, relaxed = Statement(found), relaxation(found, {"time": 1})
    least = min((value(found, "time", a) for a in known), default=None)
    assert relaxed is not None or least is None
    matrix = told.table.matrix(len(told.upper))
    for answer in known:
        x = np.zeros(len(told.upper))
        for v, size in told.smallest(answer).items():
            x[v] = size
        assert (matrix @ x <= told.table.high).all() and (matrix @ x >= told.table.low).all()
    if relaxed is not None and least is not None:
        assert relaxed.bound <= least
        near = set(relaxed.within(least).tolist())
        assert all(near >= set(a) for a in known if value(found, "time", a) == least)
