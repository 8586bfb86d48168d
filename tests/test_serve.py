"""A saved run in use: by threads, with other weights, and by what earlier calls have shown."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.execute import weights as packing
from eqsat.model.diag import EqsatError
from eqsat.run import calling

ROOT = Path(__file__).parent.parent
RNG = np.random.default_rng(0)
X = RNG.normal(size=(256, 256)).astype("f4")
PARAMS = {
    f"{k}{i}": RNG.normal(size=s).astype("f4") / 16
    for i in range(3)
    for k, s in (("w", (256, 256)), ("b", (256,)))
}


def net(params: Any, x: Any) -> Any:
    for i in range(3):
        x = jnp.tanh(x @ params[f"w{i}"] + params[f"b{i}"])
    return {"y": x}


def wanted(x: Any, params: Any = PARAMS) -> np.ndarray:
    for i in range(3):
        x = np.tanh(x @ params[f"w{i}"] + params[f"b{i}"])
    return x


def same(got: Any, x: Any = X, params: Any = PARAMS) -> None:
    np.testing.assert_allclose(got["y"], wanted(x, params), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = eqsat.jit(net, weights=["params"], rules=()).optimize(PARAMS, X)
    return run.save(tmp_path_factory.mktemp("runs") / "net.eqsat")


def test_a_server_answers_four_threads_as_one(folder: Path):
    spec = importlib.util.spec_from_file_location("serve", ROOT / "experiments" / "serve.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.server(eqsat.load(folder), 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"

        def ask(seed: int) -> Any:
            x = np.random.default_rng(seed).normal(size=X.shape).astype("f4")
            body = json.dumps({"x": x.tolist()}).encode()
            with urllib.request.urlopen(url, body, timeout=60) as reply:
                return x, json.load(reply)

        with ThreadPoolExecutor(4) as pool:
            for x, reply in pool.map(ask, range(5)):
                same(reply, x)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(url, b'{"z": 1}', timeout=60)
        assert "`z` is unknown" in json.load(refused.value)["error"]
        server.shutdown()


def test_weights_are_swapped_by_tree_or_by_name(folder: Path):
    other = {k: w + 1 for k, w in PARAMS.items()}
    names = [eqsat.load(folder).program.leaf(i).name for i in eqsat.load(folder).program.weights]
    flat = {name: other[name.removeprefix("params_")] for name in names}
    for weights in (other, {"params": other}, flat):
        same(eqsat.load(folder, weights=weights)(x=X), X, other)
    with pytest.raises(EqsatError, match=r"E324.*`params\['b0'\]` is missing"):
        eqsat.load(folder, weights={k: w for k, w in other.items() if k != "b0"})
    with pytest.raises(EqsatError, match=r"E324.*no weight `params\['c'\]`"):
        eqsat.load(folder, weights=other | {"c": X})
    with pytest.raises(EqsatError, match=r"E503.*is f32\[256\], got f32\[256, 256\]"):
        eqsat.load(folder, weights=other | {"b0": X})


def test_what_a_call_has_shown_is_kept(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    same(eqsat.load(folder)(x=X))
    monkeypatch.setattr(calling, "flat_function", None)  # the executable is not asked again
    monkeypatch.setattr(packing, "pack_weights", None)
    run = eqsat.load(folder)
    same(run(x=X))
    with pytest.raises(EqsatError, match=r"E503.*`x` is f32\[256, 256\], got shape \[128, 256\]"):
        run(x=X[:128])
    for file in (tmp_path / "cache" / "kernels").glob("*.o"):
        file.write_bytes(b"damaged")
    with pytest.raises(TypeError):  # nothing is kept, so the executable is asked
        eqsat.load(folder)(x=X)


def test_a_recorded_call_under_transformations_is_that_of_the_ops(folder: Path):
    same(eqsat.load(folder)(x=X))
    run = eqsat.load(folder)
    same(run(x=X))
    same(jax.jit(lambda x: run(x=x))(X))
    batch = jax.vmap(lambda x: run(x=x)["y"])(np.stack([X, X + 1]))
    np.testing.assert_allclose(batch[1], wanted(X + 1), rtol=1e-4, atol=1e-5)
    slope = jax.grad(lambda x: run(x=x)["y"].sum())(jnp.asarray(X))
    reference = jax.grad(lambda x: net(PARAMS, x)["y"].sum())(jnp.asarray(X))
    np.testing.assert_allclose(slope, reference, rtol=1e-3, atol=1e-4)


def test_arguments_that_are_donated_are_used_up(tmp_path: Path):
    def step(cache: Any, x: Any) -> Any:
        return cache.at[0].set(x), cache.sum()

    function = eqsat.jit(step, donate=["cache"], rules=())
    cache, x = jnp.zeros((64, 128)), jnp.ones(128)
    run = eqsat.load(function.optimize(cache, x).save(tmp_path / "step.eqsat"))
    cache, total = run(cache, x)
    given = cache
    cache, total = run(cache, x)
    assert given.is_deleted() and float(total) == 128


def test_functions_print_no_weights(folder: Path):
    function = eqsat.jit(net, weights=["params"], rules=())
    function(PARAMS, X)
    run = eqsat.load(folder)
    for printed in (run, run.compile(), function, run.executable.flat):
        assert len(repr(printed)) < 200 and "\n" not in repr(printed), repr(printed)
    assert repr(run.compile()).startswith("<net(params, x): <Run net on ")


@pytest.mark.skipif(sys.platform != "linux", reason="resident bytes are read from /proc")
def test_weights_are_in_memory_once(tmp_path: Path):
    w = np.ones((2048, 4096), "f4")  # 32 MiB

    def resident() -> int:
        text = Path("/proc/self/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) * 1024

    run = eqsat.optimize(lambda w, x: x @ w, w, np.ones((1, 2048), "f4"), weights=["w"], rules=())
    folder = run.save(tmp_path / "large.eqsat")
    del run
    before = resident()
    loaded = eqsat.load(folder)
    assert resident() - before < w.nbytes / 2
    loaded.compile(check="never")(x=np.ones((1, 2048), "f4"))
    assert resident() - before < 1.5 * w.nbytes
