"""What the XLA executor makes: transformations, weights, and calls that do not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executed import PARAMS, RNG, X, built, packed_matmul, real, whole
from jax import lax

from eqsat.execute import arrayfiles
from eqsat.execute import weights as packing
from eqsat.execute.executable import differentiate_as, xla_executable
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatError

# -- transformations ------------------------------------------------------------------------------


def test_first_call_under_jit_leaves_no_tracer_behind():
    executable = built(lambda x: x @ (PARAMS["q"].T + 1.0), X)
    jax.jit(executable)(X)
    assert all(isinstance(a, jax.Array) for a in executable.packed.values())
    np.testing.assert_allclose(executable(X)[0], X @ (PARAMS["q"].T + 1.0), rtol=1e-4, atol=1e-5)


def test_custom_derivatives_can_be_those_of_the_function():
    def f(x):
        return lax.stop_gradient(jnp.tanh(x)) * x

    executable = built(f, X)
    call = differentiate_as(lambda x: executable(x)[0], f)
    got = jax.grad(lambda x: call(x).sum())(X)
    np.testing.assert_allclose(got, np.tanh(X), rtol=1e-5, atol=1e-6)
    batch = real(3, 2, 6, 8)
    np.testing.assert_allclose(jax.jit(jax.vmap(call))(batch), f(batch), rtol=1e-5, atol=1e-6)


# -- weights --------------------------------------------------------------------------------------


def test_weights_are_packed_once_and_are_arguments():
    program = packed_matmul(8, 9, 10, (4, 4, 2))
    w = real(10, 9)
    executable = xla_executable(whole(program), {}, {"w": w})
    ((node, array),) = executable.packed.items()
    assert program.nodes[node].op == "pack"
    assert array.shape == program.nodes[node].type.shape
    assert executable.packed[node] is array
    text = executable.jitted.lower(executable.packed, real(8, 10)).as_text()
    assert "dense<" not in text or w.tobytes().hex().upper()[:32] not in text


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_packed_weights_are_saved_and_loaded(tmp_path, dtype):
    from eqsat.ops.meaning.programs import element_dtype

    schedule = whole(packed_matmul(8, 9, 10, (4, 4, 2), dtype))
    w = RNG.integers(-5, 5, (10, 9)).astype(element_dtype(dtype))
    packed = packing.pack_weights(schedule, {"w": w})
    arrayfiles.write_arrays(tmp_path / "w.safetensors", packing.packed_arrays(schedule, packed))
    loaded = packing.read_packed(tmp_path / "w.safetensors", schedule)
    assert loaded is not None
    assert loaded.keys() == packed.keys()
    for i, a in packed.items():
        assert loaded[i].dtype == a.dtype
        assert np.array_equal(loaded[i], a)
        assert packing.content_key(schedule.program, i).startswith("pack(w, pos=[1, 0]")
    other = whole(packed_matmul(8, 9, 10, (4, 3, 2), dtype))
    assert packing.read_packed(tmp_path / "w.safetensors", other) is None
    (tmp_path / "bad").write_bytes(b"no")
    with pytest.raises(EqsatError, match="E504"):
        packing.read_packed(tmp_path / "bad", schedule)


def test_packed_weights_lie_in_one_block_as_jax_takes_them():
    given = [real(3, 5), real(7).astype(np.float16), real(0, 4), real(2, 2, 2)]
    copies = list(packing._copies(given))
    taken = jax.device_put(copies)
    starts = [x.unsafe_buffer_pointer() for x in taken if x.size]
    assert starts == [x.ctypes.data for x in copies if x.size]  # not copied again
    assert np.diff(starts).tolist() == [64, 64]
    for x, y in zip(taken, given, strict=True):
        assert x.dtype == y.dtype and np.array_equal(x, y)


def test_saved_arrays_are_mapped_and_outlive_their_file(tmp_path):
    written = {"a": real(3, 5), "none": real(0, 4), "one": np.float32(7).reshape(())}
    file = tmp_path / "w.safetensors"
    arrayfiles.write_arrays(file, written)
    found = arrayfiles.read_arrays(file)
    file.rename(tmp_path / "other")
    (tmp_path / "other").unlink()
    for k, array in written.items():
        assert found[k].dtype == array.dtype and np.array_equal(found[k], array)
        assert not found[k].flags.writeable and not found[k].flags.owndata


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [(), (real(3, 3),), (X.astype(np.float16),), (X, X)])
def test_calls_that_do_not_fit(inputs):
    executable = xla_executable(whole(trace(lambda x: x + 1, (X,)).program), {})
    with pytest.raises(EqsatError) as e:
        executable(*inputs)
    assert e.value.diagnostics[0].code == "E503"


def test_missing_weights_opaque_calls_and_wide_types():
    program = packed_matmul(4, 4, 4, (4, 4, 1))
    with pytest.raises(EqsatError, match="E503"):
        xla_executable(whole(program), {})(real(4, 4))
    traced = trace(lambda x: jnp.sort(x, 1), (X,))
    with pytest.raises(EqsatError, match="E501"):
        xla_executable(whole(traced.program), {})(X)
    with pytest.raises(EqsatError, match="E505"):
        xla_executable(whole(packed_matmul(4, 4, 4, (4, 4, 1), "f64")), {})
