"""Dims of extent 1 are dropped before the search: the same values, and only where nothing needs
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.execute.draw import random_inputs
from eqsat.lang.programs import parse_program
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.spelling.squeeze import drop_unit_dims


def batch(x: Any, y: Any, b: Any) -> Any:
    """One of everything that may lose a dim."""
    import jax
    import jax.numpy as jnp

    z = x @ y + b
    t = z.transpose(0, 2, 1)
    p = jnp.pad(t, ((0, 0), (1, 0), (0, 2)), constant_values=1.0)
    c = jnp.concatenate([p, t.at[:, 0, 0].get()[:, None, None] * p], axis=0)
    return jax.nn.relu(t), t[:, :, :1], c, jax.nn.softmax(t.reshape(4, 1, 2, 4)), z


def read(text: str) -> Program:
    return parse_program(text, "t.eqs")


def same(program: Program) -> Program:
    """What is left without unit dims, after a look at its values."""
    found = drop_unit_dims(program)
    found.verify()
    rng = np.random.default_rng(0)
    inputs = random_inputs(program, rng)
    keys = [program.leaf(i) for i in program.weights]
    weights = {k.key: rng.standard_normal(k.type.shape).astype("f4") for k in keys}
    pairs = zip(
        evaluate_program(program, inputs, weights),
        evaluate_program(found, inputs, weights),
        strict=True,
    )
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)
    return found


def unit_values(program: Program) -> list[str]:
    """Ops other than leaves and reshapes whose value has a dim of extent 1."""
    skip = ("input", "weight", "reshape")
    return [n.op for n in program.nodes if n.op not in skip and 1 in n.type.shape]


def test_a_batch_of_one_goes() -> None:
    shapes = (1, 8, 6), (1, 6, 4), (1, 1, 4)
    args = [np.ones(s, "f4") for s in shapes]
    program = eqsat.optimize(batch, *args, stop_after="program", target="reference").program
    assert {"generic", "transpose", "pad", "slice"} <= set(unit_values(program))
    found = same(program)
    assert set(unit_values(found)) <= {"slice"}  # where a dim is cut down to 1
    assert [n.type.shape for n in map(found.nodes.__getitem__, found.results)] == [
        n.type.shape for n in map(program.nodes.__getitem__, program.results)
    ]


def test_a_program_without_unit_dims_is_left_as_it_is() -> None:
    program = read("input x: f32[4, 6]\nt = transpose(x, perm=[1, 0]) : f32[6, 4]\nreturn t\n")
    assert drop_unit_dims(program) is program


def test_a_program_with_layouts_keeps_the_shapes_its_author_wrote() -> None:
    text = "input x: f32[1, 8]\ny = add(x, x)\nz = pack(y, pos=[1], tiles=[4])\nreturn z\n"
    program = read(text)
    assert drop_unit_dims(program) is program


def test_a_matmul_of_one_row_keeps_it_and_so_do_its_neighbours() -> None:
    text = "input x: f32[1, 8]\nweight w: f32[8, 4]\na = add(x, x)\n"
    text += "b = matmul(a, w)\ny = add(b, b)\nreturn y\n"
    program = read(text)
    found = same(program)
    assert [n.op for n in found.nodes] == [n.op for n in program.nodes]


def test_a_convolution_keeps_its_batch_and_what_is_around_it() -> None:
    import jax

    def block(x: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(jax.nn.relu(x), w, (1, 1), "SAME")
        return jax.nn.relu(y).reshape(1, 4, 36).transpose(0, 2, 1) * 2.0

    shapes = (1, 3, 6, 6), (4, 3, 3, 3)
    args = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
    program = eqsat.optimize(block, *args, stop_after="program", target="reference").program
    found = same(program)
    around = [n for n in found.nodes if n.op == "generic" and len(n.type.shape) == 4]
    assert len(around) == 3
    assert [n.type.shape for n in found.nodes if n.op == "transpose"] == [(36, 4)]


@pytest.mark.parametrize("reduced", ["[1]", "[1, 2]"])
def test_a_reduction_over_one_element_stays_a_reduction(reduced: str) -> None:
    import jax.numpy as jnp

    axes = tuple(int(a) for a in reduced.strip("[]").split(","))
    x = np.ones((4, 1, 3), "f4")
    run = eqsat.optimize(
        lambda x: jnp.sum(x + 1.0, axes), x, stop_after="program", target="reference"
    )
    same(run.program)
