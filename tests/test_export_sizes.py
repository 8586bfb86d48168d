"""An export has fixed sizes: where a program leaves some open, they have to be named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eqsat
from eqsat.cli import run as command
from eqsat.model.diag import EqsatError

EQS = """program sym
symbol m divisor=16 size=128
input x: f32[m, 64]
weight w: f32[64, 32]
y = relu(matmul(x, w))
return y
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved run of a program with an unknown size."""
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "sym.eqs").write_text(EQS, encoding="utf-8")
    return eqsat.optimize(str(folder / "sym.eqs"), target="reference").save(folder / "run")


@pytest.mark.parametrize("to", ["mlir", "onnx"])
@pytest.mark.parametrize("of", ["schedule", "program"])
def test_an_unknown_size_is_no_size_it_was_priced_at(
    saved: Path, to: str, of: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / f"a.{to}"
    args = ["export", str(saved), "--to", to, "--of", of, "-o", str(out)]
    assert command(args) == 2
    told = capsys.readouterr().err
    assert "E395" in told and "`m` open" in told and "--size m=128" in told
    assert not out.exists()
    assert command([*args, "--size", "m=128"]) == 0
    assert out.exists()


def test_an_export_is_of_the_sizes_that_are_named(
    saved: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "a.mlir"
    assert command(["export", str(saved), "--to", "mlir", "--size", "m=256", "-o", str(out)]) == 0
    assert "tensor<256x64xf32>" in out.read_text(encoding="utf-8")
    for wrong, code in (("m=250", "E386"), ("k=16", "E385")):
        assert command(["export", str(saved), "--to", "mlir", "--size", wrong]) == 2
        assert code in capsys.readouterr().err


def test_in_python_the_run_has_the_sizes_that_are_named(saved: Path) -> None:
    run = eqsat.load(saved)
    with pytest.raises(EqsatError, match="E395"):
        run.export("mlir", sizes={"m": 256})
    bound = eqsat.bind(run, {"m": 256})
    assert b"tensor<256x64xf32>" in bound.export("mlir", sizes={"m": 256}).data
    with pytest.raises(EqsatError, match="E385"):
        bound.export("mlir", sizes={"m": 256, "n": 1})


def test_an_unknown_size_of_mlir_is_one(tmp_path: Path) -> None:
    text = """func.func @f(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %y = arith.addf %x, %x : tensor<?x4xf32>
      return %y : tensor<?x4xf32>
    }"""
    pytest.importorskip("iree.compiler")
    (tmp_path / "f.mlir").write_text(text, encoding="utf-8")
    run = eqsat.optimize(str(tmp_path / "f.mlir"), target="reference")
    (name,) = run.open_sizes
    with pytest.raises(EqsatError, match=rf"E395.*`{name}` open"):
        run.export("mlir")


def test_an_open_dim_of_onnx_is_one_also_of_a_saved_run(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", 4]) for n in ("x", "y"))
    graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "g.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)]), path)
    run = eqsat.optimize(eqsat.read(str(path), {"batch": 3}), target="reference")
    loaded = eqsat.load(run.save(tmp_path / "run"))
    for one in (run, loaded):
        with pytest.raises(EqsatError, match=r"E395.*`batch` open"):
            one.export("onnx")
        assert json.dumps(one.open_sizes) == '{"batch": 3}'
        assert one.export("onnx", sizes={"batch": 3}).data
