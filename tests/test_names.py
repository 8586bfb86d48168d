"""One name per value: from the source through e-graph and schedule to everything that prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import one_in

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.symbols import LONGEST, Origin, spoken, unique, without_origins
from eqsat.ops.spelling.passes import canonical
from eqsat.report.names import Names

PROGRAMS = Path(__file__).parents[1] / "experiments" / "programs"
NAME = re.compile(r"%[\w.@~-]*\w")
MLP = """
program mlp
input x: f32[64, 48]
weight w: f32[48, 32]
weight v: f32[32, 64]
h = matmul(x, w)
y = relu(h)
%out.sum = matmul(y, v)
return %out.sum
"""
NUMBERED = """
program mlp
input x: f32[64, 48]
weight w: f32[48, 32]
weight v: f32[32, 64]
%3 = matmul(x, w)
%4 = relu(%3)
%5 = matmul(%4, v)
return %5
"""


def layer(p: Any, x: Any) -> Any:
    return jax.nn.relu(x @ p["dense"]["kernel"] + p["dense"]["bias"])


def model(p: Any, x: Any) -> Any:
    for q in p["layers"]:
        x = layer(q, x)
    with jax.named_scope("head"):
        return x @ p["out"]["kernel"]


def example() -> tuple[Any, Any]:
    def f(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    dense = {"dense": {"kernel": f(32, 32), "bias": f(32)}}
    return {"layers": [dense, dense], "out": {"kernel": f(32, 16)}}, f(8, 32)


def names_of(p: Program) -> list[str]:
    return [p.value_name(i) for i, n in enumerate(p.nodes) if not isinstance(n.attr, Leaf)]


def onnx_file(folder: Path) -> Path:
    helper, onnx = pytest.importorskip("onnx.helper"), pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    t = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["1"], name="/net/layer.0/key/MatMul"),
        helper.make_node("Relu", ["1"], ["2"], name="/net/layer.0/Relu"),
        helper.make_node("Softmax", ["2"], ["3"], name=""),
        helper.make_node("Add", ["3", "b"], ["sum of all"], name=""),
    ]
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(s).astype("f4"), n)
        for n, s in (("w", (32, 32)), ("b", (8, 32)))
    ]
    sides = (helper.make_tensor_value_info(n, t, [8, 32]) for n in ("x", "sum of all"))
    given, gives = sides
    graph = helper.make_graph(nodes, "net", [given], [gives], weights)
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], eqsat.Run]:
    folder = tmp_path_factory.mktemp("names")
    options: dict[str, Any] = {"target": "avx512", "verify": False, "time_limit": 600.0}

    @cache
    def searched(kind: str) -> eqsat.Run:
        match kind:
            case "eqs":
                return eqsat.optimize(parse_program(MLP), **options)
            case "jax":
                return eqsat.optimize(model, *example(), weights=("p",), **options)
            case "encoder":
                return eqsat.optimize("encoder", **options, goals=["time"])
            case "onnx":
                return eqsat.optimize(eqsat.read(str(onnx_file(folder))), **options)
        return eqsat.optimize(eqsat.read(str(PROGRAMS / "transposed_pack.mlir")), **options)

    return searched


# ---- where names come from -----------------------------------------------------------------------
def test_text_names_values_and_reads_them_back():
    p = parse_program(MLP)
    assert names_of(p) == ["%h", "%y", "%out.sum"]
    again = parse_program(p.to_text())
    assert again == p and again.to_text() == p.to_text()
    assert Program.from_json(p.to_json()).to_text() == p.to_text()


def test_text_with_numbers_is_read_as_before():
    p = parse_program(NUMBERED)
    assert p == parse_program(MLP) and names_of(p) == ["%3", "%4", "%5"]
    assert parse_program(p.to_text()).to_text() == p.to_text()


def test_modules_weights_and_calls_name_jax_values():
    p = eqsat.optimize(model, *example(), weights=("p",), stop_after="program").canonical
    assert names_of(p) == [
        "%layers.0.dense.matmul",
        "%relu",
        "%layers.1.dense.matmul",
        "%relu_2",
        "%head.matmul",
    ]
    line = f"tests/test_names.py:{layer.__code__.co_firstlineno + 1}"
    assert [n.origin.at for n in p.nodes if n.op == "generic"][:4] == [line] * 4


def test_nodes_of_a_model_name_values(tmp_path: Path):
    p = eqsat.read(str(onnx_file(tmp_path))).program
    names = names_of(p)
    assert {"%layer.0.key.matmul", "%layer.0.relu", "%softmax", "%sum_of_all"} <= set(
        n.replace("%net.", "%") for n in names
    )


def test_ssa_values_name_those_of_mlir():
    names = names_of(eqsat.read(str(PROGRAMS / "transposed_pack.mlir")).program)
    assert len(set(names)) == len(names) and all(NAME.fullmatch(n) for n in names)
    eqs = names_of(eqsat.read(str(PROGRAMS / "transposed_pack.eqs")).program)
    assert set(eqs) <= set(names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "...",
        "a b",
        "a/b",
        "%x",
        "x\n= 1",
        "1",
        "é.ß",
        "a" * 500,
        "a." * 300,
        "x]); y",
        "_",
    ],
)
def test_any_text_becomes_a_name_that_may_stand_in_a_program(text: str):
    name = spoken(text)
    assert len(name) <= LONGEST + 1 and re.fullmatch(r"[\w.]*", name) and not name.isdigit()
    b = Builder("p")
    x = b.add("input", (), Leaf("x", eqsat.model.tensor.TensorType("f32", (4,)), 0))  # type: ignore[attr-defined]
    b.origin = Origin(name)
    from eqsat.model.movement import Reshape

    p = b.build([b.add("reshape", (x,), Reshape((4,), (2, 2)))])
    assert parse_program(p.to_text()) == p


def test_the_same_name_twice_gets_a_number():
    taken: dict[str, int] = {}
    found = []
    for _ in range(3):
        found.append(unique("a", taken))
        taken.setdefault(found[-1], 1)
    assert found == ["a", "a_2", "a_3"]


# ---- names decide nothing ------------------------------------------------------------------------
def test_names_are_no_part_of_what_is_equal():
    one, two = parse_program(MLP), parse_program(NUMBERED)
    assert one == two and one.nodes == two.nodes and hash(one.nodes[-1]) == hash(two.nodes[-1])
    assert without_origins(one.to_json()) == without_origins(two.to_json())
    options: dict[str, Any] = {"target": "avx512", "time_limit": 20.0}
    a, b = eqsat.optimize(one, **options), eqsat.optimize(two, **options)
    assert a.selection is not None and b.selection is not None and a.egraph is not None
    assert a.selection.groups == b.selection.groups and a.schedule == b.schedule
    assert b.egraph is not None and a.egraph.nodes == b.egraph.nodes


# ---- from end to end -----------------------------------------------------------------------------
KINDS = ("eqs", "jax", "encoder", "onnx", "mlir")


@pytest.mark.parametrize("kind", one_in(4, KINDS))
def test_a_value_has_the_same_name_everywhere(run_of: Callable[[str], eqsat.Run], kind: str):
    run = run_of(kind)
    assert run.egraph is not None and run.schedule is not None and run.selection is not None
    names = Names(run.egraph, run.canonical)
    assert len(set(run.egraph.class_names)) == len(run.egraph.types)
    for i, c in enumerate(run.egraph.values):
        assert names.of(c) == run.canonical.value_name(run.egraph.values.index(c)), i
    program = run.schedule.program
    assert len({program.value_name(i) for i in range(len(program.nodes))}) == len(program.nodes)
    known = {f"%{n}" for n in run.egraph.class_names} | {*run.egraph.class_names}
    for i in range(len(program.nodes)):
        assert program.value_name(i).partition("~")[0] in known
    assert parse_program(program.to_text()) == program
    for g, d in zip(run.selection.groups, run.schedule.dispatches, strict=True):
        assert d.name in {run.egraph.class_names[c] for c in g.writes} or "@" in d.name
    exported = run.export("mlir", weights="arguments").data.decode()
    assert all(f"{d.name}: {d.ops}" in exported for d in run.schedule.dispatches)


@pytest.mark.parametrize("kind", one_in(3, KINDS))
def test_every_name_that_is_printed_is_explained(
    run_of: Callable[[str], eqsat.Run], kind: str, tmp_path: Path
):
    run = eqsat.load(run_of(kind).save(tmp_path / "run"))
    assert run.schedule is not None and run.egraph is not None
    told = [run.explain(price=False).to_text(), run.schedule.to_text(), run.canonical.to_text()]
    told += [run.program.to_text(), eqsat.compare(run, run).to_text()]
    names = {n for text in told for n in NAME.findall(text)}
    assert len(names) > 2
    names |= {d.name for d in run.schedule.dispatches}
    names |= {f"dispatch {i}" for i in range(len(run.schedule.dispatches))}
    names |= {n.attr.name for n in run.canonical.nodes if isinstance(n.attr, Leaf)}
    names |= {r.name for r in run.egraph.rules}
    for name in sorted(names):
        assert run.explain(name, price=False).title, name


def test_rules_lines_and_mistakes_are_answered(run_of: Callable[[str], eqsat.Run]):
    run = run_of("eqs")
    assert run.egraph is not None
    matched = {r.name for r in run.egraph.rules if r.matches}
    never = next(r.name for r in run.rules.rules if r.name not in matched)
    assert run.explain(never, price=False).title.endswith("it never matched")
    used = {s.rule: s.at for c in run.explain(price=False).choices for s in c.chain}
    rule, at = next(iter(used.items()))
    found = run.explain(rule, price=False)
    assert "of the answer" in found.title and all(
        rule in {s.rule for s in c.chain} for c in found.choices
    )
    assert run.explain(":".join(at.split(":")[:2]), price=False).title.startswith("rule ")
    run, line = run_of("jax"), layer.__code__.co_firstlineno + 1
    found = run.explain(f"test_names.py:{line}", price=False)
    assert found.choices and found.title.count("matmul") == 2
    with pytest.raises(EqsatError, match=r"did you mean `%head.matmul`"):
        run.explain("%head.matmull")


def test_a_value_inside_of_another_is_told(run_of: Callable[[str], eqsat.Run]):
    run = run_of("jax")
    inside = set(names_of(run.program)) - set(names_of(run.canonical))
    assert "%layers.0.dense.add" in inside
    title = run.explain("layers.0.dense.add", price=False).title
    assert title.startswith("%layers.0.dense.add: computed inside of %relu; ")


def test_runs_without_names_are_still_told(run_of: Callable[[str], eqsat.Run], tmp_path: Path):
    run = run_of("eqs")
    assert run.egraph is not None
    bare = Program.from_json(without_origins(run.canonical.to_json()))
    assert bare == run.canonical and bare.value_name(3) == "%3"
    assert canonical(bare).value_name(3) == "%3"
