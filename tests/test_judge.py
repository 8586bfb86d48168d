"""Judging what another compiler chose: saved runs and HLO text."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brokenlines import codes_of_broken
from seeds import one_in, seeds

import eqsat
from eqsat.api.judge import foreign_cut, foreign_run, judge
from eqsat.cli import run as command
from eqsat.execute.reference import WorkBudget, reference
from eqsat.frontends.hlo import read_hlo
from eqsat.frontends.mlir.dispatches import read_flow
from eqsat.lab.cells import key_of, request_of
from eqsat.lang.experiments import read_experiment
from eqsat.model.diag import EqsatError
from eqsat.model.selection import EXACT, NOT_ADMISSIBLE

TARGETS = ("avx512-xla", "avx512", "reference", "iree-like")


def shape(*dims: int, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def mlp(x, w1, b1, w2):
    return jax.nn.softmax(jax.nn.relu(x @ w1 + b1) @ w2)


MLP = (shape(64, 256), shape(256, 512), shape(512), shape(512, 128))


def hlo_of(function, *args) -> str:
    return jax.jit(function).lower(*args).compile().as_text()


# ---- saved runs ----------------------------------------------------------------------------------
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", seeds(1, ["two_packs", "transposed_pack", "three_readers"]))
def test_an_own_answer_has_no_gap_and_its_decisions_cost_nothing(program: str, target: str):
    run = eqsat.optimize(program, target=target)
    found = judge(run, foreign_run(run, "own"))
    assert found.refused == ()
    assert found.missing == ()
    assert "the rules prove it" in found.sameness
    assert run.selection
    for g in ("time", "memory", "dispatches"):
        assert found.selection.goal(g).value == run.selection.goal(g).value
        assert found.gap(g) == run.selection.goal(g).gap == 0
    for d in found.decisions:
        assert d.price
        assert (d.price.status, d.price.delta) == (EXACT, 0), d.text


@pytest.mark.parametrize("target", seeds(1, ["avx512-xla", "separate-conversions"]))
@pytest.mark.parametrize(
    "rules", seeds(1, ["policy/keep", "policy/always-fold", "policy/fold-single-use"])
)
def test_a_judged_policy_has_the_price_it_was_predicted(rules: str, target: str):
    policy = eqsat.optimize("three_readers", target=target, rules=[rules])
    best = eqsat.optimize("three_readers", target=target)
    found = judge(best, foreign_run(policy, rules))
    assert policy.selection
    assert best.selection
    for g in ("time", "memory", "dispatches"):
        assert found.selection.goal(g).value == policy.selection.goal(g).value
    assert found.refused == ()
    more = found.selection.goal("time").value - best.selection.goal("time").value
    assert more >= 0
    for d in found.decisions:
        assert d.price
        assert d.price.delta is not None
        assert 0 <= d.price.delta <= more


def test_a_run_is_judged_by_another_target():
    run = eqsat.optimize("two_packs", target="avx512-xla")
    best = eqsat.optimize("two_packs", target="reference")
    found = judge(best, foreign_run(run, "elsewhere"))
    assert best.selection
    assert found.selection.goal("time").value >= best.selection.goal("time").bound


# ---- HLO -----------------------------------------------------------------------------------------
def test_hlo_of_a_small_function_is_read_and_priced():
    run = eqsat.optimize(mlp, *MLP, target="avx512-xla")
    found = judge(run, foreign_cut(read_hlo(hlo_of(mlp, *MLP), "mlp.hlo"), run))
    assert "random samples" in found.sameness or "prove it" in found.sameness
    times = [g.time_ps for g in found.selection.groups]
    assert all(t > 0 for t in times)
    assert found.selection.goal("time").value == sum(times)
    assert found.selection.goal("dispatches").value == len(times)
    assert len(times) == len(found.foreign.labels)
    priced = [d.price for d in found.decisions if d.price]
    assert all(p.status == NOT_ADMISSIBLE or (p.delta or 0) >= 0 for p in priced)
    json.dumps(found.to_json())


def gelu(x, w):
    return jax.nn.gelu(x @ w)


def turned(a, b):
    t = a.T
    return t @ b, t, t + t


def normed(x, s):
    m = x.mean(axis=-1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(axis=-1, keepdims=True) + 1e-5) * s


def joined(a, b):
    return jnp.concatenate([a[:, :8], jnp.pad(b, ((0, 0), (2, 2)))], axis=1).sum(0)


def heads(q, k):
    return jnp.einsum("bhqd,bhkd->bhqk", q, k), jnp.argmax(q.sum((0, 1)), -1) * 0


def picked(x):
    return jnp.where(x > 0.5, jnp.clip(x, 0.0, 1.0), -x) * (jnp.arange(16) + 1)


FUNCTIONS = {
    "gelu": (gelu, (shape(32, 64), shape(64, 48))),
    "turned": (turned, (shape(64, 32), shape(64, 48))),
    "normed": (normed, (shape(16, 64), shape(64))),
    "joined": (joined, (shape(16, 12), shape(16, 4))),
    "picked": (picked, (shape(8, 16),)),
    "mlp": (mlp, MLP),
}


@pytest.mark.parametrize("name", one_in(2, FUNCTIONS))
def test_what_is_read_of_hlo_computes_what_the_function_does(name: str):
    function, args = FUNCTIONS[name]
    cut = read_hlo(hlo_of(function, *args), f"{name}.hlo")
    cut.verify()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(a.shape).astype(np.float32) for a in args]
    got = reference(cut.program, inputs, cut.weights, {}, WorkBudget(10**10))
    want = jax.tree.leaves(function(*map(jnp.asarray, inputs)))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_another_function_is_refused():
    run = eqsat.optimize(gelu, *FUNCTIONS["gelu"][1], target="avx512-xla")

    def other(x, w):
        return jax.nn.gelu(x @ w) + 1

    def longer(x, w, b):
        return jax.nn.gelu(x @ w) + b

    args = FUNCTIONS["gelu"][1]
    for function, given, words in (
        (other, args, "computes other values"),
        (longer, (*args, shape(48)), "compiled another function"),
        (gelu, (shape(16, 64), args[1]), "compiled another function"),
        (lambda x, w: (x @ w)[:1], args, "returns"),
    ):
        cut = read_hlo(hlo_of(function, *given), "other.hlo")
        with pytest.raises(EqsatError, match="E347") as error:
            judge(run, foreign_cut(cut, run))
        assert words in str(error.value)


def test_weights_whose_values_are_left_out_are_told():
    rng = np.random.default_rng(0)
    w1, w2 = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))

    def two(x):
        return jnp.tanh(x @ w1) @ w2

    run = eqsat.optimize(two, shape(32, 64), target="avx512-xla")
    found = judge(run, foreign_cut(read_hlo(hlo_of(two, shape(32, 64)), "two.hlo"), run))
    assert "not verified" in found.sameness
    assert any("which weights" in m for m in found.missing)
    assert found.selection.goal("time").value > 0


LAYER = """HloModule layer
%f (p0: f32[64,512], p1: f32[512]) -> f32[64,512] {
  %p0 = f32[64,512]{1,0} parameter(0)
  %p1 = f32[512]{0} parameter(1)
  %b = f32[64,512]{1,0} broadcast(%p1), dimensions={1}
  ROOT %a = f32[64,512]{1,0} add(%p0, %b)
}

ENTRY %main (x: f32[64,256], w: f32[256,512], b: f32[512]) -> f32[64,512] {
  %x = f32[64,256]{1,0} parameter(0)
  %w = f32[256,512]{1,0} parameter(1)
  %b = f32[512]{0} parameter(2)
  %dot = f32[64,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %fusion = f32[64,512]{1,0} fusion(%dot, %b), kind=kLoop, calls=%f
}
"""


def layer(x, w, b):
    return x @ w + b


LAYER_ARGS = (shape(64, 256), shape(256, 512), shape(512))


def test_one_decision_is_all_the_difference():
    run = eqsat.optimize(layer, *LAYER_ARGS, target="avx512-xla")
    found = judge(run, foreign_cut(read_hlo(LAYER, "layer.hlo"), run))
    assert "the rules prove it" in found.sameness
    (kept,) = found.decisions
    assert "kept in memory" in kept.text
    assert run.selection
    more = found.selection.goal("time").value - run.selection.goal("time").value
    assert kept.price
    assert kept.price.delta == more > 0
    text = found.to_text()
    assert "layer.hlo:13" in text
    assert "gap to the optimum" in text


def test_layouts_are_transposes_in_memory():
    text = LAYER.replace("%dot = f32[64,512]{1,0} dot", "%dot = f32[64,512]{0,1} dot").replace(
        "%p0 = f32[64,512]{1,0}", "%p0 = f32[64,512]{0,1}"
    )
    run = eqsat.optimize(layer, *LAYER_ARGS, target="avx512-xla")
    found = judge(run, foreign_cut(read_hlo(text, "layer.hlo"), run))
    first = found.selection.groups[0]
    assert [str(found.foreign.egraph.types[w][0]) for w in first.writes] == ["f32[512, 64]"]
    plain = judge(run, foreign_cut(read_hlo(LAYER, "layer.hlo"), run))
    assert found.selection.goal("time").value >= plain.selection.goal("time").value


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    one_in(
        2,
        [
            ("HloModule layer", "module {", "E345", "no HLO text"),
            ("ENTRY ", "", "E345", "no ENTRY"),
            ("dot(%x, %w)", "dot(%x, %y)", "E345", "`y` is read before"),
            ("dot(%x, %w)", "dot(%x", "E345", "bracket"),
            ("dot(%x, %w)", "dot(%x)", "E345", "operands"),
            ("= f32[64,512]{1,0} dot", "= f32[64,513]{1,0} dot", "E345", "513"),
            ("= f32[64,512]{1,0} dot", "= c64[64,512]{1,0} dot", "E346", "element type `c64`"),
            ("= f32[64,512]{1,0} dot", "= f32[64,512]{1,1} dot", "E345", "no order"),
            ("= f32[64,512]{1,0} dot", "= f32[64,512]{1,0:T(8,128)} dot", "E346", "tiled layout"),
            ("dot(%x, %w)", "cholesky(%x, %w)", "E346", "`cholesky` is not read"),
            ("add(%p0, %b)", "adds(%p0, %b)", "E346", "did you mean `add`"),
            ("calls=%f", "calls=%g", "E345", "no computation `g`"),
            ("calls=%f", "calls=%main", "E345", ""),
            ("parameter(2)", "parameter(7)", "E345", "not numbered"),
            ("%p1 = f32[512]{0} parameter(1)", "%p1 = f32[512]{0} parameter(9)", "E345", "operand"),
            ("lhs_contracting_dims={1}", "lhs_contracting_dims={5}", "E345", ""),
            ("%dot = ", "dot dot ", "E345", "no instruction"),
            ("f32[64,512]{1,0} dot", "f32[6400000000,5120000000]{1,0} dot", "E345", "elements"),
        ],
    ),
)
def test_a_broken_file_gets_a_sentence_with_its_line(
    old: str, new: str, code: str, words: str, tmp_path: Path, capsys
):
    assert old in LAYER
    file = tmp_path / "layer.hlo"
    file.write_text(LAYER.replace(old, new))
    assert command(["judge", str(file), "--program", "two_packs", "--target", "reference"]) == 2
    told = capsys.readouterr().err
    assert f"error[{code}]" in told
    assert words in told
    assert "layer.hlo" in told


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_hostile_text_never_breaks_the_reader(seed: int):
    rng = random.Random(seed)
    text = list(LAYER)
    for _ in range(rng.randint(1, 12)):
        at = rng.randrange(len(text))
        text[at] = rng.choice(["", "{", "}", "(", ")", ",", "%", "9", "\n", "=", '"', "\0"])
    codes = set[str]()
    try:
        read_hlo("".join(text), "hostile.hlo").verify()
    except EqsatError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E345", "E346"}


# ---- IREE ----------------------------------------------------------------------------------------
def iree_of(source: str, folder: Path) -> str:
    """What IREE's own compiler makes of MLIR text."""
    pytest.importorskip("iree.compiler")
    from iree.compiler import tools

    (folder / "source.mlir").write_text(source)
    made = tools.compile_file(
        str(folder / "source.mlir"),
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=generic", "--compile-to=dispatch-creation"],
    )
    return made.decode()


PROGRAMS = Path(__file__).parent.parent / "experiments" / "programs"


def test_what_iree_makes_of_a_transpose_used_twice_is_judged(tmp_path: Path):
    text = iree_of((PROGRAMS / "transposed_pack.mlir").read_text(), tmp_path)
    cut = read_flow(text, "iree.mlir")
    cut.verify()
    run = eqsat.optimize("transposed_pack.mlir", target="reference")
    found = judge(run, foreign_cut(cut, run))
    assert found.foreign.source == "IREE"
    assert "the rules prove it" in found.sameness or "random samples" in found.sameness
    assert len(found.selection.groups) == text.count("= flow.dispatch.workgroups(")
    assert found.gap("time") >= 0
    rng = np.random.default_rng(0)
    types = [cut.program.nodes[i].type for i in cut.program.inputs]
    inputs = [rng.standard_normal(t.shape).astype(np.float32) for t in types]
    got = reference(cut.program, inputs, cut.weights, {}, WorkBudget(10**10))
    want = reference(run.program, inputs, run.weights, {}, WorkBudget(10**10))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


FLOW = re.search(
    r'```text title="double.mlir"\n(.*?)```',
    (Path(__file__).parent.parent / "docs" / "judge.md").read_text(),
    re.DOTALL,
)[1]


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("util.func public @double", "util.initializer @double", "E370", "expected"),
        ("flow.dispatch.workgroups(%0)", "flow.dispatch.workgroups(%7)", "E370", "undeclared"),
        ("flow.dispatch.workgroups(%0)", "flow.dispatch.workgroups(%0, %0)", "E370", "operands"),
        ("writeonly:", "readwrite:", "E346", "in place"),
        ("hal.tensor.import", "hal.tensor.alias", "E370", "expected"),
        ("flow.dispatch.workgroups(%0)", "flow.dispatch.region", "E370", "begin a region"),
        ("%2 = hal.tensor.export %1", "%2 = hal.tensor.export %5", "E370", "undeclared"),
        ("arith.addf", "arith.addx", "E37", ""),
        ("sizes = [512, 256]", "sizes = [512, 1000]", "E37", ""),
        ("tensor<512x256xf32>\n    %1", "tensor<?x256xf32>\n    %1", "E37", ""),
        ("    util.return %2", "    flow.what %2", "E370", "'flow.what'"),
    ],
)
def test_broken_dispatches_get_a_sentence(old: str, new: str, code: str, words: str):
    assert old in FLOW
    with pytest.raises(EqsatError, match=code) as error:
        read_flow(FLOW.replace(old, new), "double.mlir").verify()
    assert words in str(error.value)
    assert "double.mlir" in str(error.value)


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_hostile_dispatches_never_break_the_reader(seed: int):
    codes = codes_of_broken(FLOW, seed, 4)
    assert all(c.startswith(("E34", "E37", "E30")) for c in codes)


# ---- the command line ----------------------------------------------------------------------------
def test_the_command_judges_folders_and_files(tmp_path: Path, capsys):
    run = eqsat.optimize("two_packs", target="reference")
    folder = run.save(tmp_path / "run")
    assert command(["judge", str(folder), "--run", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["goals"]["time"]["gap"] == 0
    assert found["goals"]["time"]["judged"] == found["goals"]["time"]["best"]
    asked = ["--program", "two_packs", "--target", "reference"]
    assert command(["judge", str(folder), *asked]) == 0
    assert "no program of this e-graph has less time" in capsys.readouterr().out
    for words in (
        [],
        [*asked, "--run", str(folder)],
        ["--run", str(folder), "--target", "reference"],
    ):
        assert command(["judge", str(folder), *words]) == 2
        assert "error[E400]" in capsys.readouterr().err
    assert command(["judge", str(tmp_path / "nowhere"), *asked]) == 2
    assert "error[E3" in capsys.readouterr().err


# ---- experiments ---------------------------------------------------------------------------------
LAYER_FILE = """import jax
import jax.numpy as jnp


def layer(x, w, b):
    return x @ w + b


def layer_example():
    return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 256), (256, 512), (512,)))
"""
ROWS = """experiment: judged
rows:
  - {name: xla, program: "layer.py:layer", target: avx512-xla, judge: layer.hlo}
  - {name: eqsat, program: "layer.py:layer", target: avx512-xla}
  - {name: again, program: "layer.py:layer", target: avx512-xla, judge: results/eqsat}
measure: {runs: 2, warmup: 0, processes: 1}
"""


def test_a_row_may_be_what_another_compiler_chose(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("layer.py").write_text(LAYER_FILE)
    Path("layer.hlo").write_text(LAYER)
    Path("judged.yaml").write_text(ROWS.replace("  - {name: again", "# - {name: again"))
    assert command(["experiment", "judged.yaml", "-o", "results", "--quiet", "--json"]) == 0
    rows = {r["name"]: r for r in json.loads(capsys.readouterr().out)["rows"]}
    assert (rows["xla"]["dispatches"], rows["eqsat"]["dispatches"]) == (2, 1)
    assert rows["xla"]["judge"] == "layer.hlo"
    for name in ("xla", "eqsat"):
        assert eqsat.load(f"results/{name}").verification.ok
    best, judged = (eqsat.load(f"results/{n}").selection.goal("time") for n in ("eqsat", "xla"))
    assert judged.bound == best.bound == best.value < judged.value
    assert command(["judge", "results/xla", "--run", "results/eqsat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["goals"]["time"]["judged"] == judged.value


def test_the_file_of_a_row_is_read_before_the_first_row(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("layer.py").write_text(LAYER_FILE)
    Path("judged.yaml").write_text(ROWS)
    assert command(["experiment", "judged.yaml", "-o", "results", "--quiet"]) == 2
    assert "error[E345]: no file `layer.hlo`" in capsys.readouterr().err
    Path("layer.hlo").write_text(LAYER)
    key = [line for line in keys("judged.yaml") if line]
    Path("layer.hlo").write_text(LAYER.replace("f32[64,512]{1,0} add", "f32[64,512]{1,0} maximum"))
    assert keys("judged.yaml")[0] != key[0]
    assert keys("judged.yaml")[1] == key[1]


def keys(file: str) -> list[str]:
    """What the answers of the first two rows are kept under."""
    plan = read_experiment(Path(file).read_text(), file)
    return [key_of(request_of(plan, c, threads=1)) for c in plan.cells[:2]]
