"""Where time ends between relaxations, an answer is looked for near the last one."""

from __future__ import annotations

import pytest

from eqsat.extract.candidates.assemble import Choices, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.legal import is_legal, plain_columns
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.minimiser import SearchLimits
from eqsat.extract.reducedcosts import Narrowed, fix_by_reduced_cost
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.deadline import OutOfTime, elapsed
from eqsat.model.selection import GoalRequest, short_of_time
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_deadline import ticks  # noqa: F401 (a fixture)
from tests.test_every_order import ONE, spelled

GOALS = (GoalRequest("time"), GoalRequest("memory"))
ENDS = range(0, 400, 16)  # ticks after which time ends


@pytest.fixture(scope="module")
def found() -> Choices:
    """Of a program that takes several relaxations, as plans are made between them."""
    target = load_target("avx512")
    graph = saturate(merge_elementwise(spelled(ONE)), load_rulesets(["default"]), target)
    return choices(Pool(Legality(Space(graph), target), False, frozenset({"time", "memory"})))


def narrowed(found: Choices) -> Narrowed | None:
    return fix_by_reduced_cost(found, GOALS, {}, SearchLimits(elapsed() + 1000, 0))


def best_value(narrowed: Narrowed) -> int:
    choice, best = narrowed.assembly.choice, narrowed.best
    assert best is not None and is_legal(choice, best.columns)
    return choice.value("time", best)


def test_an_answer_near_the_last_one_is_kept(found: Choices, ticks: dict[str, int]) -> None:  # noqa: F811
    whole = narrowed(found)
    assert whole is not None and not short_of_time(whole.assembly.cuts)
    bound, _ = whole.least["time"]
    values = list[int]()
    for ends in ENDS:
        ticks["left"] = ends
        try:
            part = narrowed(found)
        except OutOfTime:  # before the first relaxation
            part = None
        finally:
            ticks["left"] = 1 << 60
        if part is None or not short_of_time(part.assembly.cuts):
            continue
        assert not part.least and not part.is_refused
        values.append(best_value(part))
    assert values and min(values) >= bound
    alone = found.single_ops().assembled()
    assert min(values) < alone.choice.total("time", columns_of_one_op(found))


def columns_of_one_op(found: Choices) -> tuple[int, ...]:
    alone = found.single_ops().assembled()
    columns = plain_columns(alone.choice, alone.single_ops)
    assert columns is not None
    return columns


def test_dispatches_of_one_op_are_an_answer_and_a_cut(found: Choices) -> None:
    few = found.single_ops()
    assert short_of_time(few.cuts)
    is_op, candidates = few.sources.space.is_op, few.sources.candidates.candidates
    assert all(sum(is_op[m] for m in c.members) <= 1 for c in candidates)
    assert 0 < len(candidates) < len(found.sources.candidates)
    assert columns_of_one_op(found)
