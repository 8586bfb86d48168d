"""A rounding op allows one quantum where its pre-image lies at a tie, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from eqsat.execute.verify import verify
from eqsat.lang.programs import parse_program
from eqsat.ops.meaning.programs import evaluate_program

QUANTISED = """program quantised
input x: f32[64]
q = generic(x, loops=[64], maps=[[d0]], body=cast(round_even(mul(x0, 4.0)), i8), rank=1)
y = generic(q, loops=[64], maps=[[d0]], body=mul(cast(x0, f32), 0.25), rank=1)
return y, q
"""
PLAIN = """program plain
input x: f32[64]
y = generic(x, loops=[64], maps=[[d0]], body=mul(x0, 4.0), rank=1)
return y
"""


def off_by(program, element, quanta, at):
    """The reference, with one element of the input at `at` and both results off by quanta."""

    def call(x):
        y, q = (a.copy() for a in evaluate_program(program, [x], {}))
        y[element] += 0.25 * quanta
        q[element] += quanta
        return y.astype(np.float32), q.astype(np.int8)

    def given(_, rng, attempt):
        x = rng.standard_normal(64).astype(np.float32)
        x[element] = at
        return [x]

    return call, given


@pytest.mark.parametrize(
    ("at", "quanta", "ok"),
    [
        (0.625, 0, True),
        (0.625, 1, True),  # 2.5 rounds to 2; a kernel may see 2.5000001
        (0.625, 2, False),
        (0.625, -1, True),
        (0.6, 1, False),  # 2.4 is no tie
        (0.6, 0, True),
        (0.6250001, -1, True),
    ],
)
def test_one_quantum_at_a_tie(at, quanta, ok, monkeypatch):
    program = parse_program(QUANTISED)
    call, given = off_by(program, 7, quanta, at)
    monkeypatch.setattr("eqsat.execute.verify.random_inputs", given)
    found = verify(program, call, {}, {}, samples=2)
    assert found.ok == ok
    assert (found.max_error > found.limit) == (not ok)


def test_a_program_that_rounds_nothing_has_no_slack():
    program = parse_program(PLAIN)

    def call(x):
        return ((evaluate_program(program, [x], {})[0] + 0.25).astype(np.float32),)

    assert not verify(program, call, {}, {}, samples=1).ok


def test_a_sum_of_quantised_values_may_be_off_by_their_ties():
    text = """program summed
    input x: f32[8, 16]
    q = generic(x, loops=[8, 16], maps=[[d0, d1]], body=round_even(x0), rank=2)
    y = generic(q, loops=[8, 16], maps=[[d0, d1]], body=x0, combine=add, rank=1)
    return y
    """
    program = parse_program("\n".join(line.strip() for line in text.splitlines()))
    x = np.full((8, 16), 0.3, np.float32)
    x[3, 5] = 1.5  # rounds to 2; 1 is as right
    (wanted,) = evaluate_program(program, [x], {})

    def checked(row):
        def call(_):
            got = wanted.copy()
            got[row] -= 1
            return (got.astype(np.float32),)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eqsat.execute.verify.random_inputs", lambda *_: [x])
        assert verify(program, checked(3), {}, {}, samples=1).ok
        assert not verify(program, checked(2), {}, {}, samples=1).ok
