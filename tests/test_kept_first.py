"""What the search found is saved before anything that can fail, weights known by shape included."""

from __future__ import annotations

import pytest

import eqsat
from eqsat.cli import run
from eqsat.model.diag import EqsatError, fail

PROGRAM = """
import jax, jax.numpy as jnp

def layer_example():
    return tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((8, 16), (16, 24)))

layer_weights = ("w",)

def layer(x, w):
    return jnp.maximum(x @ w, 0)
"""


@pytest.fixture
def asked(tmp_path):
    """`optimize` of a program whose weight has a shape alone, and the folder it is kept in."""
    file, folder = tmp_path / "layer.py", tmp_path / "kept"
    file.write_text(PROGRAM, encoding="utf-8")
    args = ["optimize", f"{file}:layer", "--target", "avx512", "-o", str(folder)]
    return args, folder


def test_a_verified_run_with_weights_known_by_shape_is_saved(asked, capsys):
    args, folder = asked
    assert run([*args, "--verify"]) == 0
    assert "4 samples, also on one arena, 1 weight drawn at random, too)" in capsys.readouterr().out
    loaded = eqsat.load(folder)
    assert loaded.verification is not None and loaded.verification.ok
    assert loaded.verification.drawn == 1
    assert run(["run", str(folder), "--samples", "1"]) == 0
    assert "(1 sample, also on one arena, 1 weight drawn" in capsys.readouterr().out


def test_a_compiled_run_with_weights_known_by_shape_is_saved(asked, tmp_path):
    args, _ = asked
    found = eqsat.optimize(args[1], target="avx512")
    found.compile()
    with pytest.raises(EqsatError, match="has no array"):
        _ = found.executable.packed
    assert eqsat.load(found.save(tmp_path / "again")).schedule == found.schedule


@pytest.mark.parametrize(
    ("options", "broken"),
    [
        (["--verify"], "eqsat.run.calling.verified"),
        (["--measure", "2"], "eqsat.api.optimization.measured"),
    ],
)
def test_the_answer_is_kept_if_what_follows_it_fails(asked, options, broken, monkeypatch, capsys):
    args, folder = asked

    def breaks(*_):
        raise fail("E508", "not enough memory")

    monkeypatch.setattr(broken, breaks)
    assert run([*args, *options]) == 2
    told = capsys.readouterr().err
    assert f"the answer of the search is kept in {folder}" in told and "E508" in told
    assert eqsat.load(folder).schedule is not None


def test_nothing_is_said_to_be_kept_if_the_search_fails(asked, capsys):
    args, folder = asked
    assert run([*args, "--verify", "--goal", "nonsense"]) == 2
    assert "kept in" not in capsys.readouterr().err and not folder.exists()
