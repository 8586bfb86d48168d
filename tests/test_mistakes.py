"""Mistakes that users make: each is told in a sentence that says what to write instead."""

from __future__ import annotations

import re
import shlex

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.cli import run
from eqsat.model.diag import EqsatError

RAM = "memory: [{name: ram, size: 1 GiB, bandwidth: 4 GB/s}]\n"
FILES = {
    "prog.py": (
        "import jax\n"
        "def f(x, w): return x @ w\n"
        "X = jax.ShapeDtypeStruct((4, 8), 'float32')\n"
        "def f_example(): return X, X\n"
        "def g(x): return x\n"
        "def h(x): return x\n"
        "def h_example(): return jax.ShapeDtypeStruct((4,), 'float32')\n"
        "h_weights = ('w',)\n"
    ),
    "lacks.py": "import nosuchmodule\ndef f(x): return x\n",
    "model.tflite": "",
    "taken": "",
    "unit.yaml": "target: a\nmemory: [{name: ram, size: 1 GiB, bandwidth: 400}]\n",
    "size.yaml": "target: a\nmemory: [{name: ram, size: 1048576, bandwidth: 4 GB/s}]\n",
    "word.yaml": "target: a\nmemory: [{name: ram, size: 1 gigabyte, bandwidth: 4 GB/s}]\n",
    "tile.yaml": f"target: a\n{RAM}tiles: {{matmul: [{{mnk: [16, 16], rate: 1.0}}]}}\n",
    "join.yaml": f"target: a\n{RAM}fusion: {{join: {{matmul: [elementwise]}}}}\n",
    "list.yaml": "target: a\nmemory: {name: ram, size: 1 GiB, bandwidth: 4 GB/s}\n",
    "base.yaml": f"target: a\n{RAM}extends: avx51\n",
    "keys.yaml": "experiment: a\nprogram: [two_packs]\ntargets: [reference]\n",
    "grid.yaml": "experiment: a\nprograms: [two_packs]\ntargets: [reference]\nvary: {rules: []}\n",
    "none.yaml": "experiment: a\n",
    "gone.yaml": "experiment: a\nrows:\n  - {name: r, program: gone.onnx, target: reference}\n",
    "rows.yaml": "experiment: a\nrows:\n  - {name: r, program: two_packs, target: reference}\n",
    "tab.yaml": "ruleset: a\nrules:\n\t- name: b\n",
    "shape.eqs": "program p\ninput x: f32[4, 8]\n%1 = matmul(x, x)\nreturn %1\n",
    "dtype.eqs": "program p\ninput x: float32[4, 8]\nreturn x\n",
    "value.eqs": "program p\ninput x: f32[4]\n%1 = reshape(xx, shape=[4])\nreturn %1\n",
    "graph.json": '{"nodes": {',
    "empty/readme.txt": "",
}


def rule(left: str, right: str, more: str = "") -> str:
    return f"ruleset: a\nrules:\n  - name: b\n    rewrite: {left}\n    to: {right}\n{more}"


EXAMPLE = '    examples: [{given: {x: "f32[64 48]"}, start: x, reaches: x}]\n'
FILES |= {
    "dot.yaml": rule("dot(x, y)", "x"),
    "gelu.yaml": rule("gelu(x)", "x"),
    "matmul.yaml": rule("matmul(x)", "x"),
    "relu.yaml": rule("generic(x, sig=g)", "relu(x)"),
    "op.yaml": rule("transpos(x, perm=p)", "x"),
    "unbound.yaml": rule("transpose(x, perm=p)", "transpose(x, perm=q)"),
    "wrong.yaml": rule("transpose(x, perm=p)", "x"),
    "attr.yaml": rule("transpose(x, perms=p)", "x"),
    "noattr.yaml": rule("transpose(x)", "x"),
    "function.yaml": rule("transpose(x, perm=p)", "transpose(x, perm=invers(p))"),
    "variable.yaml": rule("x", "x"),
    "rulekey.yaml": rule("transpose(x, perm=p)", "x").replace("rewrite", "rewrit"),
    "rulename.yaml": rule("transpose(x, perm=p)", "x").replace("name: b", "name: Fold_B"),
    "type.yaml": rule("transpose(x, perm=p)", "x", EXAMPLE),
    "twice.yaml": rule("transpose(x, perm=p)", "x") + "  - {name: b, rewrite: 'pad(x)', to: x}\n",
}
SEARCH = "optimize two_packs --target reference"

MISTAKES = [
    # ---- the command line
    ("optimise two_packs", "E400", "did you mean `optimize`?"),
    ("optimize two_packs --traget reference", "E400", "did you mean `--target`?"),
    ("show made scedule", "E400", "did you mean `schedule`?"),
    ("list target", "E400", "did you mean `targets`?"),
    ("list rules 'fold-x*'", "E400", "`eqsat list rules` has names"),
    ("show rule fold-transpos-into-pack", "E007", "did you mean `fold-transpose-into-pack`?"),
    ("rules made pack-contraction", "E400", "`eqsat rules --help` lists what there is"),
    ("judge gone.hlo", "E400", "`eqsat judge` judges by `--run` or `--program`"),
    ("explain E020x", "E309", "make one: `eqsat optimize PROGRAM -o E020x`"),
    ("explain E999", "E268", "no error has the code `E999`"),
    ("compare made", "E400", "Missing argument 'b'"),
    ("run empty", "E309", "make one: `eqsat optimize PROGRAM -o empty`"),
    ("query empty 'SELECT 1'", "E430", "`eqsat experiment FILE` makes one"),
    ("check empty", "E001", "no `.yaml` or `.eqs` file in `empty`"),
    ("extract graph.json", "E340", "not JSON"),
    # ---- programs
    ("optimize two_pack --target reference", "E261", "did you mean `two_packs`?"),
    ("optimize gone.onnx --target reference", "E261", "no program file `gone.onnx`"),
    ("optimize model.tflite --target reference", "E307", "programs are files (`.eqs`, `.onnx`"),
    ("optimize prog.py:ff --target reference", "E308", "did you mean `f`?"),
    ("optimize prog.py:g --target reference", "E308", "write `def g_example(): return (…)`"),
    ("optimize prog.py:f --target reference", "E301", "contracting dimensions"),
    ("optimize prog.py:h --target reference", "E324", "known: x"),
    ("optimize lacks.py:f --target reference", "E308", "install `nosuchmodule`"),
    ("check shape.eqs", "E301", "inner sizes 8 and 4 differ"),
    ("check dtype.eqs", "E302", "did you mean `f32`?"),
    ("check value.eqs", "E303", "no value named `xx`"),
    # ---- what a search is asked
    ("optimize two_packs --target avx51", "E200", "did you mean `avx512`?"),
    ("optimize two_packs --target mine.yaml", "E200", "`eqsat list targets` has names"),
    (f"{SEARCH} --goal tme", "E264", "did you mean `time`?"),
    (f"{SEARCH} --goal time:0.5 --goal memory", "E404", "goals have weights either all or none"),
    (f"{SEARCH} --budget memory=64", "E203", "`64` has no unit"),
    (f"{SEARCH} --budget mem=1KiB", "E205", "did you mean `memory`?"),
    (f"{SEARCH} --time-limit 60", "E203", "write `60 s`"),
    (f"{SEARCH} --set fusion.sibling=true", "E003", "did you mean `siblings`?"),
    (f"{SEARCH} --set fusion.siblings", "E208", "a setting is `key=value`"),
    (f"{SEARCH} --rules zzz", "E007", "`eqsat list sets` has names"),
    (f"{SEARCH} --without zzz", "E007", "`eqsat list rules` has names"),
    (f"{SEARCH} --rules layout/pak", "E007", "did you mean `layout/pack`?"),
    (f"{SEARCH} --without drop-identity-reshap", "E007", "did you mean `drop-identity-reshape`?"),
    (f"{SEARCH} --limit node=5", "E408", "did you mean `nodes`?"),
    (f"{SEARCH} --weights w9", "E324", "its arguments: `a`, `b`, `c`"),
    (f"{SEARCH} --layout a", "E394", "e.g. `--layout 'a=pack(pos=[0], tiles=[16])'`"),
    (f"{SEARCH} --size m=4", "E385", "the program has no symbol `m`"),
    (f"{SEARCH} -o taken", "E309", "name another folder"),
    # ---- targets
    ("check unit.yaml", "E203", "write `400 GB/s`"),
    ("check size.yaml", "E203", "write `1 MiB`"),
    ("check word.yaml", "E204", "known: B, GB, GiB"),
    ("check tile.yaml", "E206", "write `mnk: [16, 16, 1]`"),
    ("check join.yaml", "E005", "write `contraction`"),
    ("check list.yaml", "E005", "begin each entry with `- `"),
    ("check base.yaml", "E200", "did you mean `avx512`?"),
    # ---- rules
    ("check dot.yaml", "E011", "match `generic(x, y, sig=g)` with `where: [is_contraction(g)]`"),
    ("check gelu.yaml", "E011", "elementwise ops are `generic`"),
    ("check matmul.yaml", "E012", "`matmul` takes 2 operand(s)"),
    ("check relu.yaml", "E014", "name an op on the left, too"),
    ("check op.yaml", "E011", "did you mean `transpose`?"),
    ("check unbound.yaml", "E020", "`q` is not bound by the left-hand side"),
    ("check wrong.yaml --test", "E100", "= help: counterexample after"),
    ("check attr.yaml", "E013", "did you mean `perm`?"),
    ("check noattr.yaml", "E014", "write `transpose(…, perm=p)`"),
    ("check function.yaml", "E016", "did you mean `inverse`?"),
    ("check variable.yaml", "E010", "a left side is an op: write `op(x, …)`"),
    ("check rulekey.yaml", "E003", "did you mean `rewrite`?"),
    ("check rulename.yaml", "E005", "small letters, as in `fold-transpose`"),
    ("check type.yaml", "E300", "a comma is missing in `64 48`"),
    ("check twice.yaml", "E006", "two rules are named `b`"),
    ("check tab.yaml", "E001", "indent with spaces"),
    # ---- experiments
    ("experiment keys.yaml", "E003", "did you mean `programs`?"),
    ("experiment grid.yaml", "E260", "`rules` has no values"),
    ("experiment none.yaml", "E260", "or write `rows:`"),
    ("experiment gone.yaml", "E261", "no program file `gone.onnx`"),
    ("experiment rows.yaml --row q", "E269", "known: r"),
    ("experiment quickstar", "E266", "did you mean `quickstart`?"),
]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    eqsat.optimize("two_packs", target="reference", stop_after="program").save(folder / "made")
    return folder


@pytest.mark.parametrize(("line", "code", "fix"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_gets_the_sentence_that_fixes_it(line, code, fix, mistaken, monkeypatch, capsys):
    monkeypatch.chdir(mistaken)
    assert run(shlex.split(line)) in (1, 2)
    said = "".join(capsys.readouterr())
    assert f"error[{code}]" in said
    assert fix in said
    assert "Traceback" not in said
    assert len(re.findall(r"^error\[", said, re.MULTILINE)) <= 2  # nothing that follows from it


X = jax.ShapeDtypeStruct((4,), "float32")


def product(x):
    return x @ jnp.ones((3, 3))


@pytest.mark.parametrize(
    ("given", "options", "code", "fix"),
    [
        ((product, X), {}, "E301", "the function must be one that `jax.jit` accepts"),
        ((product,), {}, "E301", "missing 1 required positional argument: 'x'"),
        (("two_packs", X), {}, "E308", "give the function itself"),
        (("two_packs",), {"budget": {"memory": "2 megabytes"}}, "E204", "known: B, GB, GiB"),
        (("two_packs",), {"goals": ["latency"]}, "E264", "known: "),
        (("two_packs",), {"weights": ["w9"]}, "E324", "its arguments: `a`, `b`, `c`"),
        (("two_packs",), {"stop_after": "extract"}, "E406", "one of program, egraph"),
    ],
)
def test_a_mistake_in_python_does_too(given, options, code, fix):
    with pytest.raises(EqsatError) as told:
        eqsat.optimize(*given, target="reference", **options)
    (problem,) = told.value.diagnostics
    assert problem.code == code
    assert fix in problem.full()
