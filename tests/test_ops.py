"""Every op has what an op has, or a word why not; two more are added to a copy of the package."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import eqsat
from eqsat.model.attr import Attr
from eqsat.model.devices import Transfer
from eqsat.model.layout import Encoding, Layout
from eqsat.model.movement import make_move
from eqsat.model.ops import ATTR_CLASSES
from eqsat.ops.registry import builtin_ops

ROOT = Path(eqsat.__file__).parent.parent
HOUSE = Path(__file__).parent / "house"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """The script that writes docs/ops.md."""
    spec = importlib.util.spec_from_file_location("ops_page", ROOT / "docs" / "ops.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_op_has_every_capability_or_a_reason(page: ModuleType) -> None:
    rows = page.rows()
    missing = [
        (name, capability)
        for name, *words in rows
        for capability, word in zip(page.CAPABILITIES, words, strict=True)
        if word == page.MISSING
    ]
    assert not missing, f"say in docs/ops.py why: {missing}"
    for capability, ops in page.ABSENT.items():
        idle = [name for name in ops if page.CAPABILITIES[capability](builtin_ops()[name])]
        assert not idle, f"`{capability}` is there now, for {idle}"


def test_the_page_shows_what_is_there(page: ModuleType) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text) == text, "python docs/ops.py"


def test_records_and_attribute_classes_name_the_same_ops() -> None:
    assert {name: r.attr for name, r in builtin_ops().items()} == ATTR_CLASSES
    assert all(r.kind == r.attr.ops[name] and r.doc for name, r in builtin_ops().items())


PADDED = Layout((5,), (0,), (4,), (0,), ("?",))


@pytest.mark.parametrize(
    ("op", "attr", "shape"),
    [
        ("relax", PADDED, (2, 4)),
        ("set_encoding", Encoding((5,), "lhs"), (5,)),
        ("unset_encoding", Encoding((5,), "lhs"), (5,)),
        ("transfer", Transfer((5,), "cpu", "gpu"), (5,)),
    ],
)
def test_ops_that_move_nothing_give_their_operand_back(
    op: str, attr: Attr, shape: tuple[int, ...]
) -> None:
    x = np.arange(math.prod(shape), dtype=float).reshape(shape)
    assert attr.is_in_place(op)
    meaning = builtin_ops()[op].numpy
    assert meaning is not None
    assert np.array_equal(np.asarray(meaning(attr, x)), x)


def test_packs_move_and_padding_is_what_is_put_in() -> None:
    assert not PADDED.is_in_place("pack") and not PADDED.is_in_place("unpack")
    assert PADDED.padding() == ()  # `?` puts in nothing
    assert Layout((5,), (0,), (4,), (0,), ("0",)).padding() == ("0",)
    padded = make_move("pad", ((5,),), {"low": (1,), "high": (0,), "value": "-inf"})
    assert padded.padding() == ("-inf",)


# ---- two ops more --------------------------------------------------------------------------------
LOWERINGS = "LOWERINGS: dict[str, Callable[..., Any]] = {"
MLIR = "WRITERS: dict[str, Callable[..., str | list[str]]] = {"
ONNX = "WRITERS: dict[str, Callable[..., Value | list[Value]]] = {"
FILL = "from eqsat.model.leaves import Fill"
# file -> (a line, the line that stands below it in a house with `flip`)
FLIP = {
    "execute/lowering.py": [
        (
            LOWERINGS,
            '    "flip": lambda v, x: x[(slice(None),) * v["axis"] + (slice(None, None, -1),)],',
        ),
    ],
    "export/mlir/ops.py": [
        (FILL, "from eqsat.ops.builtin.flip import reversal"),
        (
            MLIR,
            '    "flip": lambda w, a, xs, *r: write_generic(w, reversal(a, r[0].dtype), xs, *r),',
        ),
    ],
    "export/onnxmodel/model.py": [
        (FILL, "from eqsat.ops.builtin.flip import strides"),
        (ONNX, '    "flip": lambda graph, a, x: graph.slice(x, *strides(a)),'),
    ],
    "frontends/primitives.py": [
        ("from eqsat.frontends.values import (", "    recorded,"),
        (
            '        "rev": _rev,',
            '        "rev": lambda ctx, eqn, xs:'
            ' [recorded(ctx, "flip", *xs, axis=eqn.params["dimensions"][0])],',
        ),
    ],
}
# the same for sums from behind, which MLIR's dialects do not have
SUMS = {
    "execute/lowering.py": [
        (
            LOWERINGS,
            '    "cumsum_back": lambda v, x: x[::-1].cumsum(0)[::-1] if v["axis"] == 0'
            " else x[:, ::-1].cumsum(1)[:, ::-1],",
        ),
    ],
    "export/onnxmodel/model.py": [
        (
            ONNX,
            '    "cumsum_back": lambda g, a, x: g.add('
            '"CumSum", [x, g.scalar(a.field("axis"), "i64")], x.dtype, x.shape, reverse=1),',
        ),
    ],
    "frontends/primitives.py": [
        (
            '        "cumsum": running("add"),',
            '        **{"cumsum": lambda ctx, eqn, xs:'
            ' [recorded(ctx, "cumsum_back", *xs, axis=eqn.params["axis"])]'
            ' if eqn.params["reverse"] else running("add")(ctx, eqn, xs)},',
        ),
    ],
}
LINES = 10  # of both in all files beside their own, imports included
RULES = """
ruleset: flips
doc: What is said of flip.
rules:
  - name: twice
    doc: Reversed twice is as it was.
    rewrite: flip(flip(x, axis=a), axis=a)
    to:      x
"""
WRONG = """
  - name: two-axes
    doc: Not so for two axes.
    rewrite: flip(flip(x, axis=a), axis=b)
    to:      x
  - name: summed
    doc: Sums from behind are not those from the front.
    rewrite: cumsum_back(flip(x, axis=a), axis=a)
    to:      flip(cumsum_back(x, axis=a), axis=a)
"""
USES = """
import jax, jax.numpy as jnp, numpy as np
import eqsat
from eqsat.export.write import export
from eqsat.hunt.search import hunt
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.ops.meaning.programs import evaluate_program


def traced(x, y):
    back = jax.lax.cumsum(y, axis=0, reverse=True)
    return jnp.tanh(jnp.flip(jnp.flip(jnp.flip(x, 1) + 1, 0), 0)), back


rules = read_ruleset(open("wrong.yaml").read(), "wrong.yaml").rules
found = [hunt(r, instances=40).counterexample for r in rules]
assert [c is None for c in found] == [True, False, False], found

x = np.random.default_rng(0).normal(size=(6, 4)).astype("f")
run = eqsat.optimize(traced, x, x, rules="flips.yaml", target="reference", verify=True)
assert run.verification.ok
program = run.schedule.program
ops = [n.op for n in program.nodes]
assert (ops.count("flip"), ops.count("cumsum_back")) == (1, 1), ops
text = run.source.program.to_text()
assert text.count(" = flip(") == 3 and parse_program(text).to_text() == text, text
for got, want in zip(run.compile()(x, x), traced(x, x), strict=True):
    assert np.allclose(got, want, atol=1e-5)

model = export(program, "onnx", {}, {})
with open("model.onnx", "wb") as file:
    file.write(model.data)
again = eqsat.read("model.onnx")
found = evaluate_program(again.program, [x, x], again.weights, again.opaque)
for got, want in zip(found, traced(x, x), strict=True):
    assert np.allclose(got, want, atol=1e-5)
module = export(program, "mlir", {}, {}, partial=True)
assert "linalg.generic" in module.data.decode()
(missing,) = module.missing
assert missing.op == "cumsum_back" and "no op of linalg" in missing.reason, missing
"""


@pytest.mark.slow  # a copy of the package, loaded and hunted
def test_two_ops_more_are_a_file_each_and_a_line_per_back_end(tmp_path: Path) -> None:
    """They are loaded, traced, searched, run, verified, hunted and exported as any other."""
    ignored = shutil.ignore_patterns("_data")  # bytecode is of use there, too
    package = shutil.copytree(ROOT / "eqsat", tmp_path / "eqsat", ignore=ignored)
    for name in ("rules", "targets", "devices", "experiments", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("flip", "sums"):
        shutil.copy(HOUSE / f"{name}.py", package / "ops" / "builtin")
    for file, added in (*FLIP.items(), *SUMS.items()):
        text = (package / file).read_text(encoding="utf-8")
        for old, new in added:
            assert text.count(f"{old}\n") == 1, (file, old)
            text = text.replace(f"{old}\n", f"{old}\n{new}\n")
        (package / file).write_text(text, encoding="utf-8")
    assert sum(len(added) for house in (FLIP, SUMS) for added in house.values()) == LINES
    (tmp_path / "flips.yaml").write_text(RULES)
    (tmp_path / "wrong.yaml").write_text(RULES + WRONG)
    done = subprocess.run(
        [sys.executable, "-c", USES], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
