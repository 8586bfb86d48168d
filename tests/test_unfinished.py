"""Groups that are left out while they grow are those that `alike` would leave out at the end."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.enumeration import enumerated
from eqsat.extract.candidates.groups import Grower
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.unfinished import Unfinished
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.program import Program
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_every_order import ONE, spelled

MANY = ("encoder", "residual")  # where most ops have several layouts
LIBRARY = ("residual", "two_packs", "transposed_pack", "three_readers", "padded_chain")
NORM = """
input x: f32[64, 96]
weight w: f32[96, 48]
m = generic(x, loops=[64, 96], maps=[[d0, d1]], body=x0, combine=add, rank=1)
c = generic(x, m, loops=[64, 96], maps=[[d0, d1], [d0]], body=sub(x0, mul(x1, 0.0104)))
v = generic(c, loops=[64, 96], maps=[[d0, d1]], body=mul(x0, x0), combine=add, rank=1)
n = generic(c, v, loops=[64, 96], maps=[[d0, d1], [d0]], body=div(x0, sqrt(add(x1, 0.1))))
y = generic(n, w, loops=[64, 48, 96], maps=[[d0, d2], [d2, d1]],
  body=mul(x0, x1), combine=add, rank=2)
z = generic(y, loops=[64, 48], maps=[[d0, d1]], body=max(x0, 0.0))
return z, n
""".replace(",\n  ", ", ")


def program(name: str) -> Program:
    if name == "encoder":
        return spelled(ONE)
    if name == "norm":
        return parse_program(NORM, "norm.eqs")
    return eqsat.optimize(eqsat.read(name), stop_after="program").program


@pytest.mark.parametrize("name", ["encoder", "norm", *LIBRARY])
def test_what_is_left_out_early_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = load_target("avx512")
    graph = saturate(merge_elementwise(program(name)), load_rulesets(["default"]), target)

    def candidates() -> tuple[list[object], int]:
        grown = list[int]()
        first = Grower.grown

        def counted(self: Grower, sink: int):
            for state in first(self, sink):
                grown.append(sink)
                yield state

        space = Space(graph)
        costs, pool = Costs(space, target), Pool(Legality(space, target), input_only=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Grower, "grown", counted)
            found = enumerated(pool, costs)
        return sorted(c[:4] for c in found.all), len(grown)

    few, made = candidates()
    monkeypatch.setattr(Unfinished, "may_ask", staticmethod(lambda checks: False))
    every, most = candidates()
    assert few == every
    assert made < most if name in MANY else made <= most
