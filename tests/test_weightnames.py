"""Arguments of files become weights by name: packed ahead, resident, their values given later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxmodels import FLOAT, Writer, value

import eqsat
from eqsat.cli.app import run as cli
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.ops.programs.binding import argument_numbers, as_weights

MLIR = """
func.func @linear(%x: tensor<64x48xf32>, %w: tensor<48x32xf32>, %2: tensor<64x32xf32>)
    -> tensor<64x32xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<64x48xf32>, tensor<48x32xf32>)
    outs(%2 : tensor<64x32xf32>) -> tensor<64x32xf32>
  return %0 : tensor<64x32xf32>
}
"""


@pytest.fixture
def linear(tmp_path: Path) -> str:
    (tmp_path / "linear.mlir").write_text(MLIR)
    return str(tmp_path / "linear.mlir")


def _leaves(source: eqsat.Source) -> tuple[list[str], list[str]]:
    program = source.program
    program.verify()
    return tuple([program.leaf(i).name for i in at] for at in (program.inputs, program.weights))


@pytest.mark.parametrize(
    ("names", "inputs", "weights"),
    [
        (("w",), ["x", "arg2"], ["w"]),
        (("%w", "arg2"), ["x"], ["w", "arg2"]),
        (("arg0", "w"), ["arg2"], ["x", "w"]),  # the first argument, which has a name of its own
        ((), ["x", "w", "arg2"], []),
    ],
)
def test_arguments_of_mlir_are_named_or_numbered(linear, names, inputs, weights):
    assert _leaves(eqsat.read(linear, weights=names)) == (inputs, weights)


def test_a_named_weight_is_packed_ahead_and_takes_values(linear):
    source = eqsat.read(linear, weights=("w",))
    run = eqsat.optimize(source, target="avx512-xla", settings=["tiles_forced=true"])
    assert run.schedule is not None
    assert [run.schedule.program.nodes[i].op for i in run.schedule.ahead] == ["pack"]
    with pytest.raises(EqsatError, match=r"E503.*`w`"):
        run.compile()(*[np.zeros(s, np.float32) for s in ((64, 48), (64, 32))])
    with pytest.raises(EqsatError, match=r"E324.*no weight `v`"):
        run.use_weights({"v": np.zeros(3)})
    with pytest.raises(EqsatError, match=r"E503.*f64\[3\]"):
        run.use_weights({"w": np.zeros(3)})
    rng = np.random.default_rng(0)
    x, w, c = (rng.standard_normal(s).astype(np.float32) for s in ((64, 48), (48, 32), (64, 32)))
    run.use_weights({"w": w})
    np.testing.assert_allclose(run.compile()(x, c)[0], x @ w + c, rtol=1e-5, atol=1e-5)


def test_inputs_of_onnx_and_of_text_are_named(tmp_path):
    w = Writer()
    y = w.op("MatMul", "/MatMul", "x.in", "w.in")
    inputs = [value("x.in", FLOAT, 4, 6), value("w.in", FLOAT, 6, 5)]
    model = w.model(inputs, [value(y, FLOAT, 4, 5)])
    path = tmp_path / "product.onnx"
    path.write_bytes(model.SerializeToString())
    assert _leaves(eqsat.read(str(path), weights=("w.in",))) == (["x_in"], ["w_in"])
    text = tmp_path / "sum.eqs"
    text.write_text("input a: f32[4]\ninput b: f32[4]\nweight c: f32[4]\n"
                    "d = add(a, b)\ne = mul(d, c)\nreturn e\n")  # fmt: skip
    assert _leaves(eqsat.read(str(text), weights=("b", "c"))) == (["a"], ["b", "c"])


def test_a_traced_source_takes_them_too():
    source = eqsat.read("encoder.py:encoder")
    assert source.traced is not None
    (first, *rest), held = _leaves(source)
    named = eqsat.optimize(
        source, weights=(first,), stop_after="program", target="reference"
    ).source
    assert _leaves(named) == (rest, [first, *held])
    assert named.traced is not None
    assert len(named.traced.input_labels) == len(rest)


def test_an_unknown_name_is_refused_with_the_list(linear, capsys):
    assert cli(["optimize", linear, "--target", "reference", "--weights", "x,ww"]) == 2
    err = capsys.readouterr().err
    assert "error[E324]: `weights` names `ww`, which is no argument of `linear`" in err
    assert "did you mean `w`? its arguments: `x`, `w`, `arg2`" in err
    program = eqsat.read(linear).program
    with pytest.raises(EqsatError, match="arg3"):
        argument_numbers(program, ["arg3"])


def test_a_weight_has_a_known_shape():
    text = "symbol m size=8\ninput a: f32[m, 4]\nb = add(a, a)\nreturn b\n"
    program = parse_program(text, "t.eqs")
    with pytest.raises(EqsatError, match=r"E324.*`a`.*dim m is not known"):
        as_weights(program, [0])
