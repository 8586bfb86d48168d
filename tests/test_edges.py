"""Kernels at the edges of their sizes: right, in every way that plans run, and checked for real."""

from __future__ import annotations

import pytest
from fuzz import edges
from fuzz.edgeprograms import KINDS
from runnable import WIDEST
from seeds import some

from eqsat.execute.kernels import ir
from eqsat.plan.contraction import Blocking

pytestmark = pytest.mark.skipif(not edges.machines(), reason="no kernels run here")

# what plans of a kind do at these sizes, at the least
WAYS = {
    "contraction": {
        "copied panels", "copied rows", "blocks of the reduction", "several items", "fused", "wide",
        "in order", "sums along the reduction", "finished in memory",
    },
    "points": {"copied rows", "copied panels", "finished in memory", "several items", "windows"},
    "windows": {"windows", "strips", "fused", "copied panels"},
    "rows": {"lanes are rows", "squares", "kept", "several items"},
    "row_blocks": {"keys in place", "columns in order", "several items"},
    "copies": {"squares", "lanes are rows", "several items"},
}  # fmt: skip


AVX512_WAYS = {"columns in order"}  # of the first seed's cases no other machine has one


@pytest.mark.parametrize("kind", some(["windows", "row_blocks"], KINDS))
def test_kernels_are_right_at_their_edges(kind):
    rows = [edges.checked(e) for e in edges.cases((kind,), range(1))]
    assert not [r for r in rows if "wrong" in r or "alarm" in r]
    kernels = [r for r in rows if "plan" in r]
    assert len(kernels) > 0.8 * len(rows)
    ways = WAYS[kind] if WIDEST == "avx512" else WAYS[kind] - AVX512_WAYS
    assert {t for r in kernels for t in r["traits"]} >= ways


FOUND = {
    "a sum of bf16": """input x: bf16[7, 33]
y = generic(x, loops=[7, 33], maps=[[d0, d1]], body=x0, combine=max, rank=1) : bf16[7]
return y""",
    "products of u8 in pairs": """input x: u8[27, 64]
input w: u8[64, 8]
y = generic(x, w, loops=[27, 8, 64], maps=[[d0, d2], [d2, d1]],
  body=mul(cast(x0, i32), cast(x1, i32)), combine=add, rank=2) : i32[27, 8]
return y""",
    "nothing but pads": """input x: f32[1, 7, 17]
input w: f32[1, 1, 17, 33]
a = pad(x, low=[1, 0, 0], high=[0, 1, 0], value=0.0)
y = generic(a, w, loops=[1, 4, 33, 1, 1, 17],
  maps=[[2*d0 + 2*d3, 2*d1 + 2*d4, d5], [d3, d4, d5, d2]], body=mul(x0, x1), combine=add, rank=3)
return y""",
    "a sum of parts that are products": """input p: f32[7, 33]
input q: f32[7, 33]
u = generic(p, loops=[7, 33], maps=[[d0, d1]], body=mul(x0, 2.0), rank=2)
v = generic(q, loops=[7, 33], maps=[[d0, d1]], body=mul(x0, 3.0), rank=2)
a = reshape(u, shape=[7, 1, 33])
b = reshape(v, shape=[7, 1, 33])
x = concat(a, b, axis=1)
y = generic(x, loops=[7, 33, 2], maps=[[d0, d2, d1]], body=x0, combine=add, rank=2)
return y""",
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_wrong_once(name):
    """Kernels that were wrong, that LLVM refused, or that the checks refused though right."""
    for machine in edges.machines():
        row = edges.checked(edges.Edge(name, name, machine, f"program edge\n{FOUND[name]}\n"))
        assert "plan" in row and "wrong" not in row and "alarm" not in row, row


def _one_lane_less(monkeypatch):
    whole = ir.Code.first_lanes

    def first_lanes(self, count, lanes):
        return whole(self, self.sub(count, 1), lanes)

    monkeypatch.setattr(ir.Code, "first_lanes", first_lanes)


def _one_panel_less(monkeypatch):
    whole = Blocking.last_width.func
    monkeypatch.setattr(Blocking, "last_width", property(lambda s: max(1, whole(s) - 1)))


def _a_row_too_few(monkeypatch):
    whole = Blocking.full_tiles.func
    monkeypatch.setattr(Blocking, "full_tiles", property(lambda s: max(0, whole(s) - 1)))


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("rows", _one_lane_less), ("contraction", _one_panel_less), ("contraction", _a_row_too_few)],
)
def test_a_broken_generator_is_found(kind, broken, monkeypatch):
    broken(monkeypatch)
    assert edges.faults(limit=1, kinds=(kind,), numbers=range(1))
