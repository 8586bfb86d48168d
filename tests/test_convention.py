"""A saved run is called like the function it was made from, by position or by name."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.model import files
from eqsat.model.diag import EqsatError
from eqsat.run import marks, saved
from eqsat.run.convention import Convention

Pair = namedtuple("Pair", "value nothing")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 8)).astype("f4")
PARAMS = {"w": RNG.normal(size=(8, 8)).astype("f4"), "b": [RNG.normal(size=8).astype("f4")]}
FLAG = np.float32(2)


def layer(params: Any, x: Any, *, flag: Any) -> Any:
    y = x @ params["w"] + params["b"][0]
    return {"y": y, "more": [Pair(y * flag, None), (jnp.exp(y),)]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    function = eqsat.jit(layer, weights=["params"], target="reference", rules=())
    run = function.optimize(PARAMS, X, flag=FLAG)
    return run.save(tmp_path_factory.mktemp("runs") / "layer.eqsat")


def same(got: Any, params: Any = PARAMS, x: Any = X) -> None:
    wanted = layer(params, x, flag=FLAG)
    assert got["more"][0]._fields == Pair._fields and got["more"][0].nothing is None
    for a, b in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_arguments_come_by_position_or_name_and_saved_weights_may_be_left_out(folder: Path):
    run = eqsat.load(folder)
    same(run(PARAMS, X, flag=FLAG))
    same(run(x=X, flag=FLAG, params=PARAMS))
    same(run(x=X, flag=FLAG))
    same(jax.jit(lambda x: run(x=x, flag=FLAG))(X))


def test_other_weights_of_a_call_are_packed_once_and_stay(folder: Path, monkeypatch):
    run = eqsat.load(folder)
    other = jax.tree_util.tree_map(lambda w: w + 1, PARAMS)
    taken = []
    take = type(run.executable).take_weights
    monkeypatch.setattr(
        type(run.executable), "take_weights", lambda e, w: (taken.append(len(w)), take(e, w))
    )
    for params in (PARAMS, other, other):
        same(run(params, X, flag=FLAG), params)
    same(run(x=X, flag=FLAG), other)
    assert taken.count(2) == 2
    same(jax.jit(lambda p: run(p, X, flag=FLAG))(PARAMS))  # weights that are traced


def test_a_call_with_other_arguments_says_what_is_wrong(folder: Path):
    run = eqsat.load(folder)
    with pytest.raises(EqsatError, match=r"`flag` is missing[\s\S]*it takes params, x, flag"):
        run(PARAMS, X)
    with pytest.raises(EqsatError, match=r"`params\['c'\]` is unknown"):
        run(PARAMS | {"c": X}, X, flag=FLAG)
    with pytest.raises(EqsatError, match=r"`x` is f32\[4, 8\], got shape \[8, 4\]"):
        run(PARAMS, X.T, flag=FLAG)
    with pytest.raises(EqsatError, match=r"E503.*weight `.*` is f32\[8\], got f32\[4\]"):
        run(PARAMS | {"b": [np.ones(4, "f4")]}, X, flag=FLAG)
    same(run(PARAMS, X, flag=FLAG))


def test_the_convention_comes_back_from_its_text_and_a_broken_one_is_refused():
    function = eqsat.jit(layer, weights=["params"], target="reference", rules=())
    run = function.optimize(PARAMS, X, flag=FLAG)
    convention = run.convention
    assert convention is not None
    data = json.loads(json.dumps(convention.to_json()))
    assert Convention.from_json(data) == convention
    convention.check(2, 3)
    for change in ({"results": [0]}, {"results": {"tuple": [0, 1]}}, {"paths": ["x"]}):
        with pytest.raises((ValueError, AttributeError)):
            Convention.from_json(data | change).check(2, 3)


def test_arguments_that_lie_otherwise_are_put_by_the_convention(tmp_path: Path):
    function = eqsat.jit(
        lambda p, x: {"y": p["w"] @ x}, weights=["p"], layouts={"x": [1, 0]}, rules=()
    )
    params, x = {"w": PARAMS["w"]}, X.T.copy()
    run = eqsat.load(function.optimize(params, x).save(tmp_path / "lying.eqsat"))
    call = run.compile()
    (came, _), goes = call.formats(params, x)
    assert came[0]["w"] is None and came[1].layout.major_to_minor == (1, 0)
    assert set(goes) == {"y"}
    np.testing.assert_allclose(call(*call.put(params, x))["y"], params["w"] @ x, rtol=1e-5)
    args, kwargs = call.put(params, x=x)
    np.testing.assert_allclose(call(*args, **kwargs)["y"], params["w"] @ x, rtol=1e-5)


def test_a_folder_is_checked_once_by_each_code(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    checks = []
    check = saved._check_stages
    monkeypatch.setattr(saved, "_check_stages", lambda *a: (checks.append(1), check(*a)))
    for _ in range(2):
        eqsat.load(folder)
    assert len(checks) == 1
    monkeypatch.setattr(marks, "code_digest", lambda: "another")
    eqsat.load(folder)
    assert len(checks) == 2
    (tmp_path / "cache" / "checked").chmod(0o777)
    files.is_private.cache_clear()
    with pytest.warns(eqsat.EqsatWarning if hasattr(eqsat, "EqsatWarning") else Warning):
        eqsat.load(folder)
    files.is_private.cache_clear()
    assert len(checks) == 3
