"""Values that do not fit into memory: a sentence before anything is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eqsat
from eqsat import host
from eqsat.cli.app import run as command
from eqsat.execute import reference
from eqsat.execute.draw import drawn_weights
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError

HUGE = """
program huge
input x: f32[1000000000, 1000000000]
y = neg(x)
return y
"""


def test_a_search_needs_no_values_and_verifying_does(tmp_path: Path, capsys: Any):
    path = tmp_path / "huge.eqs"
    path.write_text(HUGE, encoding="utf-8")
    out = str(tmp_path / "run")
    assert command(["optimize", str(path), "--target", "reference", "-o", out, "-q"]) == 0
    capsys.readouterr()
    assert command(["run", out]) == 2
    told = capsys.readouterr().err
    assert "error[E508]: executing `huge` takes 6.9 EiB of memory" in told
    assert command(["export", out, "--to", "mlir"]) == 0


def test_weights_that_do_not_fit_are_not_drawn():
    program = parse_program(HUGE.replace("input x:", "weight x:").replace("]", "] key=k"), "w.eqs")
    with pytest.raises(EqsatError, match=r"E508.*drawing the weights of `huge` takes 3\.5 EiB"):
        drawn_weights(program)


def test_the_reference_is_wider_than_the_program(monkeypatch: pytest.MonkeyPatch):
    program = parse_program(HUGE.replace("f32[1000000000, 1000000000]", "i8[64, 64]"), "small.eqs")
    assert reference.reference_bytes(program) == 2 * 8 * 64 * 64
    run = eqsat.optimize(program, target="reference")
    monkeypatch.setattr(host, "machine_bytes", lambda: 20_000)
    with pytest.raises(EqsatError, match="float64 reference of `huge` takes 65536 B"):
        run.verify(samples=1)
    monkeypatch.setattr(host, "machine_bytes", lambda: None)  # a system that does not say
    assert run.verify(samples=1).ok


@pytest.mark.parametrize(("operands", "left_out"), [(40, False), (200, True)])
def test_rules_over_very_many_operands_are_left_out(operands: int, left_out: bool):
    """egglog keeps every op of a pattern with every name in it, so that is quadratic."""
    lines = ["program wide", "input x: f32[4]"]
    lines += [f"y{i} = mul(x, {i}.0)" for i in range(operands)]
    names = ", ".join(f"y{i}" for i in range(operands))
    text = "\n".join([*lines, f"z = concat({names}, axis=0)", "return z", ""])
    run = eqsat.optimize(parse_program(text, "wide.eqs"), stop_after="egraph", target="reference")
    assert run.egraph is not None
    assert ("pack-above-concat" in run.egraph.left_out) == left_out
    assert run.egraph.stop == ("matches" if left_out else "saturated")
