"""Plug-ins that are wrong, or break their word, are found out and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheels import changed, python, run

# a package with this text replaced -> what is said about it
REFUSED = {
    "collides": (
        [
            ("eqsat_roll:ROLL", "eqsat_roll:ROLL"),
            ('roll = "', 'pad = "'),
            ('name="roll"', 'name="pad"'),
        ],
        "the op `pad` of eqsat-roll cannot be used: eqsat has a `pad` of its own",
    ),
    "scalar": (
        [('roll = "', 'tanh = "'), ('name="roll"', 'name="tanh"')],
        "eqsat has a `tanh` of its own",
    ),
    "named": ([('name="roll"', 'name="shift"')], "its record is named `shift`"),
    "no name": (
        [('roll = "', '"roll-2" = "'), ('name="roll"', 'name="roll-2"')],
        "`roll-2` is no name of an op",
    ),
    "no record": ([("eqsat_roll:ROLL", "eqsat_roll:square")], "it is a function, not an"),
    "missing": (
        [("eqsat_roll:ROLL", "eqsat_roll:LOST")],
        "cannot be loaded: AttributeError: module 'eqsat_roll' has no attribute 'LOST'",
    ),
    "broken": ([("import numpy as np", "import nonsuch")], "No module named 'nonsuch'"),
    "operands": ([("operands=1", "operands=0")], "`operands` is a number from 1 to 6, not 0"),
    "kind": ([('kind="move"', 'kind="conversion"')], "`kind` is one of elementwise, reduction"),
    "attribute": ([('"axis": "int"}', '"axis": "dim"}')], "`axis` is of kind `dim`, not one of"),
    "key": ([('"axis": "int"}', '"the axis": "int"}')], "`the axis` is no name of an attribute"),
    "function": ([("numpy=_numpy", "numpy=3")], "`numpy` is no function"),
    "operations": ([('kind="move"', "operations=0.5")], "`operations` is a whole number, not 0.5"),
    "accepts": ([('kind="move"', 'accepts=("x",)')], "has some of the letters fiub for each"),
    "dtype": ([('kind="move"', 'dtype="float"')], "there is no element type `float`"),
    "rules": ([('parent / "rules"', 'parent / "nowhere"')], "does not exist"),
    "taken": ([('"roll.sum":', '"compose":')], "cannot be used: there is a `compose` already"),
}


def test_plugins_that_are_wrong_are_refused_with_a_sentence(tmp_path: Path) -> None:
    sites = {k: str(changed(tmp_path / k, *v[0])) for k, v in REFUSED.items()}
    code = f"""
import importlib, sys
from eqsat.model.diag import EqsatError
from eqsat.ops import registry

said = {{}}
for name, site in {sites!r}.items():
    sys.path.insert(0, site)
    registry.plugged_ops.cache_clear()
    importlib.invalidate_caches()
    for module in ("eqsat_roll", "eqsat.ops.attrs"):
        sys.modules.pop(module, None)
    try:
        importlib.import_module("eqsat.ops.attrs")
    except EqsatError as error:
        (found,) = error.diagnostics
        assert (found.code, error.exit_code) == ("E600", 2), found
        said[name] = found.message
    sys.path.remove(site)
for name, message in { ({k: v[1] for k, v in REFUSED.items()})!r}.items():
    assert message in said.get(name, ""), (name, said.get(name))
    assert "eqsat-roll" in said[name]
"""
    python(code, tmp_path)


def test_two_packages_with_one_op_are_refused(plugin_site: Path, tmp_path: Path) -> None:
    other = changed(
        tmp_path / "other",
        ('name = "eqsat-roll"', 'name = "roll-too"'),
        ("near = ", "too = "),
    )
    done = run(
        "-c", f"import sys; sys.path.append({str(other)!r}); from eqsat.cli import main; main()",
        "list", "ops", site=plugin_site,
    )  # fmt: skip
    assert done.returncode == 2
    assert "error[E600]: `eqsat-roll` and `roll-too` both bring the op `roll`" in done.stderr


# a package with this text replaced -> the goal asked for, what is said about it, the exit code
BREAKS = {
    "shape": (
        [(" np.roll(x, values", " (np.roll)(x[:1], values")],
        "its NumPy meaning gives [1, 48], its shape rule [64, 48]", 2,
    ),
    "jax": ([("jnp.roll(x, values", "jnp.nonsuch(x, values")], "its JAX meaning fails: Attr", 2),
    "type": ([("jnp.roll(x, values", "jnp.roll(x > 0, values")], "JAX meaning gives bool[64,", 2),
    "rate": ([("rate=1.0", "rate=2.0")], "the rate of a tile is a share of the peak", 2),
    "extent": ([('("k", 1)', '("k", 0)')], "the extents of a tile are whole numbers from 1", 2),
    "role": ([('("k", 1)', '("q", 1)')], "a tile has extents for m, n, k, not for m, n, q", 2),
    "no tile": ([("return [Tile(", "return [tuple(")], "fails: TypeError: tuple() takes no key", 2),
    "word": ([("[Tile((", "[str((("), (", rate=1.0)]", ", 1))]")], "which is no eqsat.model.", 2),
    "fails": ([("m, n = (", "m, n, k = (")], "it fails: ValueError: not enough values", 2),
    "value": (
        [("for g in selection.groups)\n", "for g in selection.groups) + 1\n")],
        "`build` adds up to", 4,
    ),
    "negative": ([("len(group.reads) +", "-9 +")], "not a whole number from 0 to 2^50", 4),
    "goal": ([("def value(", "def worth(")], "it has no method `value`", 2),
    "own": ([("bindings = ", "memory = ")], "eqsat has a goal `memory` of its own", 2),
}  # fmt: skip


@pytest.mark.parametrize(  # a search of each, in one process: all of them take 14 s
    "names",
    [
        ("shape", "type", "role", "fails", "negative", "own"),
        pytest.param((*BREAKS,), marks=pytest.mark.slow),
    ],
    ids=["some", "all"],
)
def test_plugins_that_break_their_word_are_found_out(
    tmp_path: Path, work: Path, names: tuple[str, ...]
) -> None:
    broken = {name: BREAKS[name] for name in names}
    cases = {k: (str(changed(tmp_path / k, *v[0])), *v[1:]) for k, v in broken.items()}
    code = f"""
import contextlib, importlib, io, sys
from eqsat.cli import run
from eqsat.ops import registry
from eqsat.ops.targets import tiles

for name, (site, message, exit_code) in {cases!r}.items():
    sys.path.insert(0, site)
    registry.plugged_ops.cache_clear()
    tiles._computed.cache_clear()
    importlib.invalidate_caches()
    sys.modules.pop("eqsat_roll", None)
    words = ["optimize", "rolled.eqs", "--target", "squared.yaml", "--verify"]
    words += ["--goal", "time" if name == "own" else "bindings", "--rules", "layout/contract"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as e:
        found = run(words)
    assert (found, message in e.getvalue()) == (exit_code, True), (name, found, e.getvalue())
    assert "eqsat-roll" in e.getvalue() and "Traceback" not in e.getvalue(), e.getvalue()
    sys.path.remove(site)
"""
    python(code, tmp_path, work)
