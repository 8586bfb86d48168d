"""Broken and hostile ONNX files: a sentence, exit code 2, bounded work, nothing outside is read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxmodels as models
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxmodels import FLOAT, INT64, Writer, value

from eqsat.cli.app import run as command
from eqsat.frontends.onnxgraph import read_onnx
from eqsat.model.diag import EqsatError


def refused(data: bytes, folder: Path, capsys: Any, *flags: str) -> str:
    """What the command line says of a file; it must end with exit code 2."""
    path = folder / "bad.onnx"
    path.write_bytes(data)
    code = command(
        ["optimize", str(path), "--target", "reference", "--stop-after", "program", "-q", *flags]
    )
    told = capsys.readouterr()
    assert code == 2, told.err
    assert "Traceback" not in told.err
    assert told.out == ""
    return told.err


def relu() -> Any:
    """x f32[2, 3] → Relu → y, with one initializer that is added."""
    w = Writer()
    h = w.op("Add", "/Add", "x", w.constant("b", np.asarray([1, 2, 3], np.float32)))
    y = w.op("Relu", "/Relu", h)
    return w.model([value("x", FLOAT, 2, 3)], [value(y, FLOAT, 2, 3)])


RELU = relu().SerializeToString()


def data_of(change: Callable[[Any], None]) -> bytes:
    model = relu()
    change(model)
    return model.SerializeToString()


def initializer(model: Any) -> Any:
    return model.graph.initializer[0]


def _opset(version: int) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        m.opset_import[0].version = version

    return change


def _old(m: Any) -> None:
    m.opset_import[0].version = 9
    m.graph.node[1].op_type = "Upsmaple"


def _cycle(m: Any) -> None:
    m.graph.node[0].input[0] = "/Relu_output_0"


def _twice(m: Any) -> None:
    m.graph.node[1].output[0] = "/Add_output_0"
    m.graph.output[0].name = "/Add_output_0"


def _undefined(m: Any) -> None:
    m.graph.node[0].input[1] = "bb"


def _short_raw(m: Any) -> None:
    initializer(m).raw_data = b"\0" * 8


def _typed_short(m: Any) -> None:
    t = initializer(m)
    t.ClearField("raw_data")
    t.float_data.extend([1.0, 2.0])


def _dims(*shape: int) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        del initializer(m).dims[:]
        initializer(m).dims.extend(shape)

    return change


def _type(number: int) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        initializer(m).data_type = number

    return change


def _input_dim(size: int) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size

    return change


def _operator(op: str, domain: str = "") -> Callable[[Any], None]:
    def change(m: Any) -> None:
        m.graph.node[1].op_type, m.graph.node[1].domain = op, domain
        m.opset_import.append(helper.make_opsetid(domain, 1)) if domain else None

    return change


def _attribute(name: str, held: Any) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        m.graph.node[1].attribute.append(helper.make_attribute(name, held))

    return change


def _no_output(m: Any) -> None:
    m.graph.output[0].name = "nothing"


def _sparse(m: Any) -> None:
    m.graph.sparse_initializer.add().dims.append(3)


def _sequence(m: Any) -> None:
    elem = helper.make_tensor_type_proto(FLOAT, [2])
    m.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(elem))


def _no_shape(m: Any) -> None:
    m.graph.input[0].type.tensor_type.ClearField("shape")


def _no_import(m: Any) -> None:
    del m.opset_import[:]


def _too_few(m: Any) -> None:
    del m.graph.node[0].input[1:]


def _many_operands(m: Any) -> None:
    m.graph.node[1].input.append("x")


def _segment(m: Any) -> None:
    initializer(m).segment.begin = 0


def _mismatch(m: Any) -> None:
    _dims(2)(m)
    initializer(m).raw_data = b"\0" * 8


def _other_type(m: Any) -> None:
    initializer(m).data_type = 6  # int32, of as many bytes


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "opset 9": (_old, r"E361.*opset before 13.*cannot convert it.*Upsmaple"),
    "opset 99": (_opset(99), r"E361.*uses opset 99; opsets 1 to"),
    "no opset": (_no_import, r"E361.*imports no opset"),
    "cycle": (_cycle, r"E362.*cyclic: node `/Add` \(Add\), node `/Relu` \(Relu\)"),
    "two definitions": (_twice, r"E362.*defines the value `/Add_output_0` twice"),
    "undefined": (_undefined, r"E362.*node `/Add` \(Add\) reads `bb`, which nothing defines"),
    "undefined output": (_no_output, r"E362.*gives `nothing`"),
    "operand missing": (_too_few, r"E362.*`/Add` \(Add\) has 1 operands"),
    "operands": (_many_operands, r"E362.*`/Relu` \(Relu\) has 2 operands"),
    "raw data short": (_short_raw, r"E363.*`b` is f32\[3\], 12 bytes, but holds 8"),
    "typed data short": (_typed_short, r"E363.*holds 2 values of 3"),
    "negative dim": (_dims(-3), r"E363.*not a shape"),
    "absurd dims": (_dims(2**40, 2**40), r"E363.*too many"),
    "overflowing dims": (_dims(*[2**31] * 8), r"E363.*too many"),
    "rank 1000": (_dims(*[1] * 1000), r"E363.*of rank 1000: not a shape"),
    "declared large": (_dims(2**26), r"E363.*bytes, but holds 12"),
    "strings": (_type(8), r"E363.*element type strings"),
    "complex": (_type(14), r"E363.*complex64"),
    "unknown type": (_type(77), r"E363.*number 77"),
    "segment": (_segment, r"E363.*segments"),
    "sparse": (_sparse, r"E363.*sparse"),
    "sequence": (_sequence, r"E363.*`x` is a sequence"),
    "no rank": (_no_shape, r"E367.*`x` has no shape"),
    "negative input": (_input_dim(-1), r"E363.*negative dimension"),
    "huge input": (_input_dim(2**50), r"E363.*too large"),
    "not this operator": (_operator("Rleu"), r"E365.*`/Relu` \(Rleu\).*did you mean `Relu`"),
    "unread operator": (_operator("NonMaxSuppression"), r"E365.*`/Relu` \(NonMaxSuppression\)"),
    "custom domain": (_operator("Relu", "my.ops"), r"E365.*my\.ops\.Relu.*`my\.ops`"),
    "attribute": (_attribute("alhpa", 1.0), r"E362.*attribute `alhpa`"),
    "shapes": (_mismatch, r"E368.*`/Add` \(Add\).*float32\[2, 3\], float32\[2\]"),
    "types": (_other_type, r"E368.*`/Add` \(Add\) has operands of float32 and int32"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_broken_model_is_told_in_a_sentence(case: str, tmp_path: Path, capsys: Any) -> None:
    change, wanted = CHANGES[case]
    told = refused(data_of(change), tmp_path, capsys)
    one_line = told.replace("\n", " ")
    assert re.search(wanted, one_line), told


def test_files_that_are_no_models(tmp_path: Path, capsys: Any) -> None:
    whole = relu().SerializeToString()
    for data in (b"", b"\x00" * 40, b"hello world, this is text", os.urandom(300), whole[:-9]):
        assert "E36" in refused(data, tmp_path, capsys)
    assert command(["optimize", str(tmp_path / "none.onnx")]) == 2


def test_without_the_package_a_sentence_says_how_to_install_it(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    told = refused(RELU, tmp_path, capsys)
    assert "not installed" in told and "pip install 'eqsat[onnx]'" in told


def test_a_name_that_is_not_utf8(tmp_path: Path, capsys: Any) -> None:
    data = relu().SerializeToString().replace(b"/Relu_output_0", b"/Relu_output_\xff")
    assert "not UTF-8" in refused(data, tmp_path, capsys)


def test_huge_names_are_cut_in_messages(tmp_path: Path, capsys: Any) -> None:
    def change(m: Any) -> None:
        m.graph.node[1].name = "n\x1b[31m" * 100_000
        m.graph.node[1].op_type = "Z" * 1_000_000

    told = refused(data_of(change), tmp_path, capsys)
    assert len(told) < 1000 and "\x1b" not in told


# ---- hostile graphs ------------------------------------------------------------------------------
def _free(name: str) -> Any:
    return helper.make_empty_tensor_value_info(name)


def test_graphs_inside_each_other(tmp_path: Path, capsys: Any) -> None:
    """A chain of one branch each: protobuf itself stops at 100 messages inside each other."""
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [_free("y")])
    for _ in range(33):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [_free("y")])
    graph.input.extend([value("x", FLOAT, 2), value("c", TensorProto.BOOL)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert "E36" in refused(model.SerializeToString(), tmp_path, capsys)


def function(name: str, *calls: str) -> Any:
    """A function that calls others, one after the other."""
    values = ["x", *(f"v{i}" for i in range(len(calls) - 1)), "y"]
    nodes = [
        helper.make_node(call, [a], [b], domain="" if call == "Relu" else "f")
        for call, a, b in zip(calls, values, values[1:], strict=False)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["x"], ["y"], nodes, imports)


def calling(*functions: Any) -> bytes:
    w = Writer()
    w.nodes.append(helper.make_node(functions[0].name, ["x"], ["y"], domain="f"))
    imports = [helper.make_opsetid("f", 1)]
    given, result = [value("x", FLOAT, 2)], [value("y", FLOAT, 2)]
    return w.model(given, result, functions, imports).SerializeToString()


def test_functions_that_call_themselves(tmp_path: Path, capsys: Any) -> None:
    assert "E362" in refused(calling(function("a", "a")), tmp_path, capsys)
    both = calling(function("a", "b"), function("b", "a"))
    assert "calls inside each other" in refused(both, tmp_path, capsys)


def test_functions_that_multiply(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """40 functions that each call the next twice would be a trillion nodes."""
    from eqsat.frontends.onnxgraph import interpret

    monkeypatch.setattr(interpret, "MOST_STEPS", 2000)
    chain = [function(f"f{i}", f"f{i + 1}", f"f{i + 1}") for i in range(40)]
    told = refused(calling(*chain, function("f40", "Relu")), tmp_path, capsys)
    assert "too many to run" in told


def grown(op: str, shape: list[int], **attributes: Any) -> bytes:
    """A node that makes a tensor of this shape."""
    w = Writer()
    given = (
        ["x", w.whole("shape", *shape)] if op != "ConstantOfShape" else [w.whole("shape", *shape)]
    )
    y = w.op(op, "/Grow", *given, **attributes)
    return w.model([value("x", FLOAT, 1)], [_free(y)]).SerializeToString()


@pytest.mark.parametrize("op", ["Expand", "ConstantOfShape", "Tile"])
def test_tensors_grown_beyond_all_bounds(op: str, tmp_path: Path, capsys: Any) -> None:
    shape = [2**62] if op == "Tile" else [2**31, 2**31]
    assert "E368" in refused(grown(op, shape), tmp_path, capsys)


def test_doubling_stops(tmp_path: Path, capsys: Any) -> None:
    w, x = Writer(), "x"
    for i in range(60):
        x = w.op("Concat", f"/c{i}", x, x, axis=0)
    data = w.model([value("x", FLOAT, 8)], [_free(x)]).SerializeToString()
    assert "too large" in refused(data, tmp_path, capsys)


def test_ranges_and_windows_beyond_all_bounds(tmp_path: Path, capsys: Any) -> None:
    w = Writer()
    bounds = [w.constant(n, np.asarray(v)) for n, v in (("a", 0), ("b", 2**60), ("c", 1))]
    y = w.op("Range", "/Range", *bounds)
    data = w.model([], [_free(y)]).SerializeToString()
    assert "too many" in refused(data, tmp_path, capsys)
    w = Writer()
    y = w.op("MaxPool", "/Pool", "x", kernel_shape=[2**40, 2])
    data = w.model([value("x", FLOAT, 1, 1, 8, 8)], [_free(y)]).SerializeToString()
    assert "E368" in refused(data, tmp_path, capsys)


def test_shapes_that_depend_on_inputs(tmp_path: Path, capsys: Any) -> None:
    w = Writer()
    y = w.op("Reshape", "/Reshape", "x", "shape")
    given = [value("x", FLOAT, 4), value("shape", INT64, 2)]
    told = refused(w.model(given, [_free(y)]).SerializeToString(), tmp_path, capsys)
    assert "E366" in told and "needs its shape known" in told


def test_a_graph_without_nodes_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "same.onnx"
    path.write_bytes(
        Writer().model([value("x", FLOAT, 2)], [value("x", FLOAT, 2)]).SerializeToString()
    )
    program = read_onnx(path).program
    assert program.results == program.inputs


# ---- external data -------------------------------------------------------------------------------
def external(folder: Path, **entries: str) -> Path:
    """`m/model.onnx` whose initializer lies outside, at these entries; `m/w.bin` has 12 bytes."""
    model = relu()
    t = initializer(model)
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, held in entries.items():
        t.external_data.add(key=key, value=held)
    (folder / "m").mkdir()
    (folder / "m" / "w.bin").write_bytes(np.asarray([1, 2, 3], np.float32).tobytes())
    (folder / "secret.bin").write_bytes(b"s" * 100)
    (folder / "m" / "link.bin").symlink_to(folder / "secret.bin")
    (folder / "m" / "loop.bin").symlink_to(folder / "m" / "loop.bin")
    (folder / "m" / "folder").mkdir()
    path = folder / "m" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


EXTERNAL: dict[str, tuple[dict[str, str], str]] = {
    "parent": ({"location": "../secret.bin"}, "not a path inside the model's folder"),
    "inner parent": ({"location": "folder/../../secret.bin"}, "not a path inside"),
    "absolute": ({"location": "/etc/passwd"}, "not a path inside"),
    "windows": ({"location": "C:\\secret.bin"}, "not a path inside"),
    "no location": ({"offset": "0"}, "not a path inside"),
    "null": ({"location": "w.bin\0x"}, "not a path inside"),
    "link": ({"location": "link.bin"}, "a link that leads out"),
    "link loop": ({"location": "loop.bin"}, "E364"),
    "folder": ({"location": "folder"}, "there is no such file"),
    "missing": ({"location": "gone.bin"}, "initializer `b` keeps its data in `gone.bin`"),
    "long": ({"location": "a" * 5000}, "E364"),
    "short": ({"location": "w.bin", "offset": "4"}, "needs bytes 4 to 16 of `w.bin`, which has 12"),
    "far": ({"location": "w.bin", "offset": "999999999999"}, "which has 12"),
    "length": ({"location": "w.bin", "length": "8"}, "its entry says 8"),
    "negative": ({"location": "w.bin", "offset": "-4"}, "no number"),
    "words": ({"location": "w.bin", "offset": "zero"}, "no number"),
}


@pytest.mark.parametrize("case", EXTERNAL)
def test_external_data_is_read_from_the_models_folder_only(
    case: str, tmp_path: Path, capsys: Any
) -> None:
    entries, wanted = EXTERNAL[case]
    path = external(tmp_path, **entries)
    assert command(["optimize", str(path), "--stop-after", "program", "-q"]) == 2
    told = capsys.readouterr().err
    assert wanted in told and "E364" in told


def test_external_data_inside_the_folder_is_read(tmp_path: Path) -> None:
    found = read_onnx(external(tmp_path, location="w.bin"))
    assert [a.tolist() for a in found.weights.values()] == [[1, 2, 3]]


# ---- fuzz ----------------------------------------------------------------------------------------
def victim() -> bytes:
    """A small model with most kinds of fields: floats, shapes, attributes, a branch."""
    w = Writer()
    h = w.op("Conv", "/conv", "x", w.weight("k", 2, 1, 3, 3), pads=[1] * 4, strides=[2, 2])
    h = w.op("Reshape", "/reshape", h, w.whole("shape", 0, -1))
    h = w.op("Gemm", "/fc", h, w.weight("fc", 8, 3), w.weight("bias", 3), alpha=0.5)
    h = w.op("Slice", "/slice", h, w.whole("a", 0), w.whole("b", 2), w.whole("axis", 1))
    y = w.op("Softmax", "/softmax", h, axis=-1)
    return w.model([value("x", FLOAT, 1, 1, 4, 4)], [value(y, FLOAT, 1, 2)]).SerializeToString()


def mutants(data: bytes, count: int) -> list[bytes]:
    """Bytes replaced, inserted, removed, or pieces of the file repeated."""
    rng = np.random.default_rng(11)
    found = []
    for n in range(count):
        held = bytearray(data)
        for _ in range(int(rng.integers(1, 3))):
            at, much = int(rng.integers(len(held))), int(rng.integers(1, 9))
            piece = rng.integers(0, 256, much).astype(np.uint8).tobytes()
            kind = n % 4
            if kind == 0:
                held[at] = piece[0]
            elif kind == 1:
                held[at:at] = piece
            elif kind == 2:
                del held[at : at + much]
            else:
                other = int(rng.integers(len(held)))
                held[at : at + 4 * much] = held[other : other + 4 * much]
        found.append(bytes(held))
    return found


@pytest.mark.filterwarnings("ignore::eqsat.model.diag.EqsatWarning")
def test_any_bytes_are_read_or_refused(tmp_path: Path) -> None:
    read, codes = 0, []
    for n, data in enumerate(mutants(victim(), 400)):
        path = tmp_path / f"{n}.onnx"
        path.write_bytes(data)
        try:
            program = read_onnx(path).program
            program.verify()
            read += 1
        except EqsatError as error:
            codes += [d.code for d in error.diagnostics]
    assert all(code.startswith("E3") for code in codes)
    assert read > 20 and len(codes) > 100


def test_fields_changed_one_by_one_are_read_or_refused(tmp_path: Path) -> None:
    """Numbers of the message set to odd values: deeper than bytes that break the parse."""
    odd = (-1, 0, 2, 7, 2**31, 2**62, -(2**63))
    model = onnx.ModelProto.FromString(victim())
    seen: set[str] = set()
    for at, node in enumerate(model.graph.node):
        for i, a in enumerate(node.attribute):
            for change in odd:
                changed = onnx.ModelProto.FromString(victim())
                held = changed.graph.node[at].attribute[i]
                if a.ints:
                    held.ints[0] = change
                elif a.type == 2:
                    held.i = change
                else:
                    held.f = float("nan")
                seen.add(_outcome(changed, tmp_path))
    for i in range(len(model.graph.initializer)):
        for change in odd:
            changed = onnx.ModelProto.FromString(victim())
            t = changed.graph.initializer[i]
            array = np.array(numpy_helper.to_array(t))
            if array.dtype == np.int64:
                array.flat[0] = change
                t.raw_data = array.tobytes()
            else:
                t.dims[0] = change
            seen.add(_outcome(changed, tmp_path))
    assert {"read", "E363", "E368"} <= seen
    assert all(s == "read" or s.startswith("E36") for s in seen)


def _outcome(model: Any, folder: Path) -> str:
    path = folder / "changed.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        read_onnx(path)
    except EqsatError as error:
        return error.diagnostics[0].code
    return "read"


def test_models_of_the_other_tests_are_sound() -> None:
    """What is broken here is broken by the change alone."""
    for model in (relu(), models.encoder(), models.qdq_block()):
        onnx.checker.check_model(model)
