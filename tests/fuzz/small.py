"""Random small programs for searches that are to be proven: a few ops, extents of real layers."""

from __future__ import annotations

import random
from typing import ClassVar

from eqsat.model.attr import Shape
from eqsat.model.program import Program
from fuzz.networks import NetworkMaker
from fuzz.programs import Maker

# extents that occur together: powers of two, multiples of common tiles, some that no tile divides
EXTENTS = ((32, 64, 128), (64, 96, 128, 256), (128, 256, 384), (24, 40, 57, 64))
LARGEST = 160_000  # elements of a value: every pair is evaluated in float64
MOST_STEPS = 6  # a softmax is one step and four ops
TRIES = 100


class SmallMaker(NetworkMaker):
    """What people write in a few lines: products, softmax, biases, and movement between them."""

    shares: ClassVar[dict[str, int]] = {
        "matmul": 5, "dense": 2, "unary": 4, "binary": 3, "residual": 1, "softmax": 2,
        "layer_norm": 1, "reduce": 3, "transpose": 3, "reshape": 2, "pad": 2, "slice": 2,
        "concat": 2, "gather": 1, "broadcast": 1, "shared_transpose": 1,
    }  # fmt: skip

    def __init__(self, seed: int):
        self.sizes = random.Random(f"extents {seed}").choice(EXTENTS)
        self.largest = LARGEST
        Maker.__init__(self, seed, exact=False)
        self.b.name = f"small{seed}"

    def _shape(self) -> Shape:
        """Mostly matrices; a third dim is one of few."""
        matrix = (self.rng.choice(self.sizes), self.rng.choice(self.sizes))
        return (self.rng.choice((2, 4)), *matrix) if self.rng.random() < 0.2 else matrix


def small_program(seed: int) -> Program:
    """Program number `seed`, of one op to about nine; the same for every call."""
    steps = random.Random(f"steps {seed}").randint(1, MOST_STEPS)
    for n in range(TRIES):
        found = SmallMaker(seed + n * 1_000_003).program(steps)
        if found.op_count:
            return found
    raise AssertionError(f"no program with an op in {TRIES} tries")
