"""Transposes and reshapes that a contraction reads and something else too, as models have them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import eqsat
from eqsat.model.program import Program
from eqsat.ops.programs.sharedmoves import shared_moves
from eqsat.ops.spelling.passes import canonical

SHARED = "t = transpose(x, perm=[1, 0])\n"


def program(tmp_path: Path, lines: str) -> Program:
    file = tmp_path / "p.eqs"
    head = "program p\ninput x: f32[64, 64]\nweight w: f32[64, 64] key=w\n"
    file.write_text(head + lines)
    return eqsat.read(str(file)).program


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (SHARED + "return matmul(t, w), t", [(1, 1)]),  # packed, and a result
        (SHARED + "return matmul(t, w), relu(t)", [(1, 1)]),
        (SHARED + "return matmul(t, w), matmul(w, t)", [(2, 0)]),  # two packs
        (SHARED + "return matmul(t, w)", []),  # nobody else reads it
        (SHARED + "return relu(t), t", []),  # nobody packs it
        (SHARED + "return matmul(relu(t), w), t", []),  # not itself
        (SHARED + "u = transpose(t, perm=[1, 0])\nreturn matmul(u, w), t", [(1, 1)]),  # behind more
        ("t = transpose(w, perm=[1, 0])\nreturn matmul(x, t), t", []),  # made once, ahead of time
    ],
)
def test_a_shared_move_has_a_packed_reader_and_another_one(
    tmp_path: Path, lines: str, wanted: list[tuple[int, int]]
):
    found = shared_moves(program(tmp_path, f"{lines}\n"))
    assert [(m.packed, m.others) for m in found] == wanted


def kinds(spec: str) -> Counter[tuple[str, int, int]]:
    """What is moved, its packed and its other readers -> how often."""
    p = canonical(eqsat.read(spec).program)
    return Counter(
        (f"{p.nodes[m.node].op} {p.nodes[m.node].type}", m.packed, m.others)
        for m in shared_moves(p)
    )


def test_the_summary_and_the_rows_of_an_experiment_count_them(tmp_path: Path):
    run = eqsat.optimize("transposed_pack", target="reference")
    assert run.summary()["program"]["shared_moves"] == 1
    file = tmp_path / "count.yaml"
    file.write_text("experiment: count\ndoc: x\nprograms: transposed_pack\ntargets: reference\n")
    (row,) = eqsat.Experiment.read(str(file)).run().rows()
    assert row["shared_moves"] == 1


# the census of experiments/README.md, of whole models
WHOLE = {"gpt2.py:gpt2": 24, "swin.py:swin": 12, "bert.py:bert": 0, "llama.py:llama": 0}
SLOW = {"stablecode.py:stable_code": 0, "sdxl.py:sdxl": 1, "llama.py:llama2_7b": 0}


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_whole_model_has_so_many(name: str):
    assert sum(kinds(name).values()) == WHOLE[name]


@pytest.mark.slow  # 20 s to read them
@pytest.mark.parametrize("name", list(SLOW))
def test_a_large_model_has_so_many(name: str):
    found = kinds(name)
    assert sum(found.values()) == SLOW[name]
    if found:  # the keys and values of all 70 attentions to the prompt
        assert found == {("reshape f32[77, 2048]", 140, 0): 1}


def test_the_parts_that_are_priced_are_those_of_the_models():
    whole = kinds("gpt2.py:gpt2")
    part = kinds("sites.py:gpt2_attention")
    assert whole == {kind: 12 * n for kind, n in kinds("sites.py:gpt2_layer").items()}
    assert sum(part.values()) == 2
    stages = [kinds(f"sites.py:swin_{i}") for i in range(4)]
    assert all(sum(s.values()) == 1 for s in stages)
    depths = (2, 2, 6, 2)
    counted = sum(
        (Counter({k: d * n for k, n in s.items()}) for s, d in zip(stages, depths, strict=True)),
        Counter(),
    )
    assert counted == kinds("swin.py:swin")
