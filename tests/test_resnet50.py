"""ResNet-50 where every contraction has to be packed: layouts meet, so hardly anything moves."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.execute.weights import run_time_nodes
from eqsat.model.generic import Generic
from eqsat.model.ops import CONVERSIONS
from eqsat.ops.contractions.roles import contraction_roles

# short dispatches: a tenth of the candidates, the same layouts
FORCED = (
    "tiles_forced=true", "tiles.conv2d=[{c: 16, k: 16, rate: 0.68}]",
    "fusion.members=2", "fusion.template=8",
)  # fmt: skip


@pytest.mark.slow  # 10 s; test_conversions has small nets, and so has the gate `optima`
def test_forced_tiles_cost_one_pack_and_one_conversion_inside_a_dispatch():
    """The image is packed where it is padded, the scores are unpacked where the bias is added."""
    run = eqsat.optimize(
        eqsat.read("resnet50"), target="avx512-xla", settings=FORCED, goals=["time"], time_limit=120
    )
    assert run.schedule is not None
    assert run.selection is not None
    assert run.selection.goal("time").gap == 0
    schedule, nodes = run.schedule, run.schedule.program.nodes
    contractions = [n.attr for n in nodes if isinstance(n.attr, Generic)]
    contractions = [g for g in contractions if contraction_roles(g) is not None]
    assert len(contractions) == 54  # 53 convolutions and the classifier
    assert all(g.tile for g in contractions)
    from_weights = {*schedule.program.weights, *schedule.ahead}
    for i, n in enumerate(nodes):  # weights may be packed in every run, too
        if n.operands and from_weights.issuperset(n.operands):
            from_weights.add(i)
    moved = [i for i in run_time_nodes(schedule) if nodes[i].op in CONVERSIONS]
    moved = [i for i in moved if i not in from_weights]
    assert [nodes[i].op for i in moved] == ["pack", "unpack"]
    alone = [d for d in schedule.dispatches if schedule.is_conversion(d)]
    assert alone == []
