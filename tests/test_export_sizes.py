"""An export has fixed sizes: where a program leaves some open, they have to be named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
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


TALL = """program tall
symbol m size=8
input x: f32[m, 64]
weight b: f32[64, 512]
y = matmul(x, b)
return y, x
"""


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved switch with a weight, and its array beside it."""
    folder = tmp_path_factory.mktemp("tall")
    (folder / "tall.eqs").write_text(TALL, encoding="utf-8")
    found = eqsat.switch(str(folder / "tall.eqs"), "m=1..64", target="avx2", searches=3)
    weight = np.random.default_rng(3).standard_normal((64, 512), np.float32)
    np.save(folder / "b.npy", weight)
    found.use_weights({"b": weight})
    return found.save(folder / "run")


def of_size(m: int) -> np.ndarray:
    return np.random.default_rng(m).standard_normal((m, 64), np.float32)


def test_a_switch_is_one_onnx_model_that_picks_by_size(tall: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    exported = eqsat.load(tall).export("onnx", sizes=[64, 1, 12])
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(exported.data, options)
    assert [i.shape for i in session.get_inputs()] == [["m", 64]]
    b = np.load(tall.parent / "b.npy")
    for m in (1, 12, 64):
        y, x = session.run(None, {"x": of_size(m)})
        np.testing.assert_allclose(y, of_size(m) @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(x, of_size(m))
    with pytest.raises(Exception, match="Reshape"):
        session.run(None, {"x": of_size(13)})


def test_a_switch_is_one_module_that_picks_by_size(tall: Path) -> None:
    pytest.importorskip("iree.compiler")
    import iree_oracle

    text = eqsat.load(tall).export("mlir", sizes=[1, 12, 64]).data.decode()
    assert text.count("dense_resource<w_b.pack>") in (0, 3)
    assert text.count('"0x') == 1, "programs that pack the weight alike share its resource"
    b = np.load(tall.parent / "b.npy")
    for m in (1, 12, 64):
        y, x = iree_oracle.run(text, [of_size(m)], function="tall")
        np.testing.assert_allclose(y, of_size(m) @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(x, of_size(m))
    with pytest.raises(Exception, match="m is none of 1, 12, 64"):
        iree_oracle.run(text, [of_size(13)], function="tall")


def test_sizes_of_an_exported_switch_are_asked_on_the_command_line(
    tall: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--size", "m=1", "--size", "m=64"]
    out = tmp_path / "tall.mlir"
    assert command(["export", str(tall), "--to", "mlir", *sizes, "-o", str(out)]) == 0
    assert "scf.if" in out.read_text(encoding="utf-8")
    assert command(["export", str(tall), "--to", "mlir", *sizes[:2], "--size", "m=65"]) == 2
    assert "E386" in capsys.readouterr().err
    assert command(["export", str(tall), "--to", "dot", *sizes]) == 2
    assert "E383" in capsys.readouterr().err
    assert command(["run", str(tall), *sizes]) == 2
    assert "gives a dim two sizes" in capsys.readouterr().err
