"""The price of a plan: every part counts, levels hold what lies between two uses, JSON is whole."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.diag import EqsatError
from eqsat.model.dispatch import Parts, Plan, Work
from eqsat.model.expr import arg, call
from eqsat.model.nest import Access, Lookup, Nest, Stage, Store
from eqsat.model.schedule import Dispatch
from eqsat.model.target import Target
from eqsat.plan.estimate import jumps
from eqsat.plan.price import first_fetches, price, priced_parts, rates, touched_bytes

TARGETS = Path(__file__).parent.parent / "targets"
CPU = load_target(TARGETS / "avx512.yaml")
RATES = rates(CPU)
COUNTS = ("fma", "loads", "scalar", "strided", "pages", "tiles", "loops", "copied")


class Pass(NamedTuple):
    loops: tuple[int, ...]
    lanes: int


@dataclass(frozen=True)
class Sample(Plan):
    kind: ClassVar[str] = "sample"
    tile: tuple[int, int] = (13, 2)
    blocks: tuple[tuple[str, int], ...] = ()
    passes: tuple[Pass, ...] = ()
    parts: tuple[Plan, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"parts": [p.to_json() for p in self.parts]}

    def to_text(self) -> str:
        return f"register tile {self.tile}"


def _matmul(m: int, k: int, n: int) -> Nest:
    """x[m, k] · w[k, n], plain: buffers 0, 1 and 2."""
    x, w = Access(0, "f32", (k, 0, 1)), Access(1, "f32", (0, 1, n))
    body = call("mul", arg(0), arg(1))
    stage = Stage(2, (0, 1), body, (x, w), "f32", "add", (2,))
    return Nest((m, n, k), (stage,), (Store(Access(2, "f32", (n, 1, 0)), 0, (0, 1)),))


@pytest.mark.parametrize("count", COUNTS)
def test_more_of_any_work_takes_longer(count: str):
    """Beside nothing else; multiply-adds and loads hide behind each other, traffic behind both."""
    little, much = Work(**{count: 1e4}), Work(**{count: 2e4})
    a, b = priced_parts(little, RATES, ()), priced_parts(much, RATES, ())
    assert a.time_ps < b.time_ps and a.time_ps > CPU.launch_ps
    twice = 2 * (a.time_ps - CPU.launch_ps)
    assert b.time_ps - CPU.launch_ps == pytest.approx(twice, abs=1)  # times are whole picoseconds
    whole = Work(*[1e4] * 6, items=1, copied=1e4, streams=((1e6, 1e4),), loops=1e4)
    more = replace(whole, **{count: getattr(whole, count) * 2})
    assert priced_parts(more, RATES, ()).time_ps >= priced_parts(whole, RATES, ()).time_ps


def test_the_parts_are_the_time():
    work = Work(fma=1e5, copied=4e4)
    found = priced_parts(work, RATES, ((2**19, 1e5),))
    (name, moved), hidden = found.traffic_ps[0], RATES.constants.overlap
    assert (name, found.compute_ps, found.bound) == (
        "l2",
        RATES.constants.fma_ps * 10**5,
        "compute",
    )
    expected = found.compute_ps + (1 - hidden) * moved + found.relayout_ps + found.launch_ps
    assert found.time_ps == pytest.approx(expected, abs=2)
    assert found.peak_share == pytest.approx(found.compute_ps / found.time_ps, abs=1e-4)
    assert Parts.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_bytes_come_from_the_level_that_holds_what_lies_between():
    sizes = (2**14, 2**19, 2**24, 2**40)
    found = [dict(priced_parts(Work(), RATES, ((s, 1e6),)).traffic_ps) for s in sizes]
    assert [list(f) for f in found] == [["l1"], ["l2"], ["l3"], ["dram"]]
    assert priced_parts(Work(streams=((2**24, 1e6),)), RATES, ()).bound == "l3"


def test_a_cache_is_left_little_by_little():
    """No element more makes a pass a third slower; beyond, all comes from the next level."""
    l2 = next(m for m in CPU.memory if m.name == "l2").size_bytes
    shares = (0.7, 0.75, 1.0, 1.25, 1.5, 1.6)
    times = [priced_parts(Work(), RATES, ((s * l2, 1e6),)).time_ps for s in shares]
    assert times[0] == times[1] < times[2] < times[3] < times[4] == times[5]
    both = dict(priced_parts(Work(), RATES, ((1.125 * l2, 1e6),)).traffic_ps)
    alone = {m.name: 1e6 * PS_PER_SECOND / m.bandwidth for m in CPU.memory}
    assert both == {name: round(alone[name] / 2) for name in ("l2", "l3")}


def test_arithmetic_and_loads_issue_beside_each_other():
    c = RATES.constants
    work = Work(fma=1e4, scalar=1e4, loads=1e4)
    found = priced_parts(work, RATES, ()).compute_ps
    assert found == round(1e4 * max(c.fma_ps + c.scalar_ps, c.load_ps))
    more = priced_parts(replace(work, loads=1e5), RATES, ()).compute_ps
    assert more == round(1e5 * c.load_ps)


def test_weights_come_from_where_all_of_them_are():
    """Eight of 1 MiB are read like one of 8 MiB, whatever a dispatch takes of them."""
    nest = _matmul(1, 512, 512)
    alone = first_fetches(nest, {1}, 2**20)
    beside = first_fetches(nest, {1}, 2**23)
    assert [s for s, _ in alone][:2] == [512 * 4 + 2**20 + 512 * 4] * 2
    assert beside[1] == (2**23, 2**20) and beside[0] == alone[0]
    plan = Sample(work=Work(fma=512 * 32))
    whole = price(_matmul(1, 4096, 512), plan, RATES, {1}, 2**23)
    eight = price(nest, plan, RATES, {1}, 2**23)
    traffic = [dict(p.traffic_ps)["l3"] for p in (whole, eight)]
    assert traffic[0] == pytest.approx(8 * traffic[1], rel=0.01)


ENDS = ((0, (1, 0)), (1, (0, 1)))  # of a concat: its loop is the only one


def test_touched_bytes_count_rows_of_a_gather_and_windows_once():
    body = arg(0)
    rows = Access(
        0, "f32", (0, 1), lookups=(Lookup((Access(1, "i32", (1, 0)),), arg(0), "i32", 64, 1000),)
    )
    gather = Nest((8, 64), (Stage(2, (0, 1), body, (rows,), "f32"),), ())
    assert touched_bytes(gather) == {0: 8 * 64 * 4, 1: 8 * 4}
    window = Access(0, "f32", (1, 1))
    slide = Nest((62, 3), (Stage(2, (0,), body, (window,), "f32", "add", (1,)),), ())
    assert touched_bytes(slide) == {0: 64 * 4}


def test_all_parts_of_a_result_are_touched():
    """A concat of two rows: it was priced as if it wrote one of them."""
    stages = [Stage(2 + i, (i,), arg(0), (Access(i, "f32", one),), "f32") for i, one in ENDS]
    stores = [Store(Access(9, "f32", one, base=64 * i), i, (i,)) for i, one in ENDS]
    both = Nest((64, 32), tuple(stages), tuple(stores))
    assert touched_bytes(both) == {0: 64 * 4, 1: 32 * 4, 9: 96 * 4}
    alike = replace(both, stores=(stores[0], replace(stores[0], stage=0)))
    assert touched_bytes(alike)[9] == 64 * 4, "the same loops: the same elements, as far as known"


def test_cores_share_work_items():
    work = Work(fma=1e6, items=3)
    two = replace(RATES, cores=2)
    assert priced_parts(work, two, ()).compute_ps == pytest.approx(
        priced_parts(work, RATES, ()).compute_ps * 2 / 3
    )


def test_plans_and_parts_go_through_json():
    part = Sample(4, 1024, Work(fma=3, streams=((8.0, 9.0),)), blocks=(("n", 32),))
    plan = replace(part, passes=(Pass((), 8), Pass((2, 1), 1)), parts=(part, part))
    d = Dispatch(
        (1,), (0,), (1,), 5, 0, "contraction", plan=plan, parts=priced_parts(Work(), RATES, ())
    )
    again = Dispatch.from_json(json.loads(json.dumps(d.to_json())))
    assert again == d and str(again) == str(d)
    older = {k: v for k, v in d.to_json().items() if k not in ("plan", "parts", "no_plan")}
    assert Dispatch.from_json(older).plan is None
    with pytest.raises(ValueError, match="no plan of the kind"):
        Plan.from_json(plan.to_json() | {"kind": "unknown"})


def test_a_target_says_what_plans_need():
    avx2 = load_target(TARGETS / "avx2.yaml")
    assert avx2.is_planned and avx2.machine.lanes() == 8 and avx2.machine.registers == 16
    assert avx2.machine.caches == tuple(m.size_bytes for m in avx2.memory[:-1])
    assert Target.from_json(json.loads(json.dumps(avx2.to_json()))) == avx2
    slower = override(avx2, ["kernels.fma=1 ns"])
    assert slower.kernels == replace(
        avx2.kernels, constants=replace(avx2.kernels.constants, fma_ps=1000.0)
    )
    other = load_target(TARGETS / "avx512-xla.yaml")
    assert not other.is_planned
    with pytest.raises(ValueError, match="no `kernels`"):
        _ = other.machine
    with pytest.raises(EqsatError, match="no share"):
        override(avx2, ["kernels.overlap=2"])


def test_the_counts_are_those_of_work():
    assert {*COUNTS, "items", "streams"} == {f.name for f in fields(Work)}


def test_rows_of_another_page_are_counted_where_outer_sums_jump_to_them():
    """Not where a panel goes on: weights as [kh, kw, c, 32], beside images as [c, h, w]."""
    nest = Nest((64, 3, 3, 32), (), (), ())
    image = Access(0, "f32", (226 * 226, 226, 1, 0), 0)
    assert 63 <= jumps(image, (0, 1, 2), nest) <= 63 + 64 * 2 * 0.05
    panel = Access(0, "f32", (32, 3 * 64 * 32, 64 * 32, 1), 0)
    assert jumps(panel, (1, 2, 0), nest) < 0.01
    assert jumps(replace(panel, strides=(32, 0, 0, 1)), (1, 2, 0), nest) == 8  # back to its start
