"""Equal contractions and reductions are one value, whatever order of dims they were written in."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from fuzz.equal import are_equal
from seeds import seeds

from eqsat.lang.programs import parse_program
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder, Program
from eqsat.model.tensor import DEFAULT, HIGHEST
from eqsat.ops.generics.canonical import generic_node
from eqsat.ops.spelling.equalsums import without_equal_sums
from eqsat.ops.spelling.passes import canonical

GIVEN = "input a: f32[4, 6]\ninput b: f32[6, 8]\ninput x: f32[2, 9, 9]\nweight w: f32[3, 2, 3, 3]\n"
SUM = "body=mul(x0, x1), combine=add"
ALIKE = {
    "transposed": (
        "y = matmul(a, b)",
        "z = transpose(matmul(transpose(b, perm=[1, 0]), transpose(a, perm=[1, 0])), perm=[1, 0])",
    ),
    "split rows": (
        "y = matmul(a, b)",
        "z = generic(reshape(a, shape=[2, 2, 6]), b, loops=[2, 2, 8, 6], "
        f"maps=[[d0, d1, d3], [d3, d2]], {SUM}, rank=3)",
    ),
    "split sum": (
        "y = matmul(a, b)",
        "z = generic(reshape(b, shape=[2, 3, 8]), reshape(a, shape=[4, 2, 3]), "
        f"loops=[8, 4, 2, 3], maps=[[d2, d3, d0], [d1, d2, d3]], {SUM}, rank=2)",
    ),
    "split columns in another order": (
        "y = generic(a, reshape(b, shape=[6, 2, 4]), loops=[2, 4, 4, 6], "
        f"maps=[[d2, d3], [d3, d0, d1]], {SUM}, rank=3)",
        "z = matmul(a, b)",
    ),
    "slices of one value": (
        "y = matmul(slice(a, start=[1, 0], limit=[3, 6]), b)",
        "z = matmul(transpose(b, perm=[1, 0]), "
        "slice(transpose(a, perm=[1, 0]), start=[0, 1], limit=[6, 3]))",
    ),
    "images in another order": (
        "y = generic(x, w, loops=[3, 7, 7, 2, 3, 3], "
        f"maps=[[d3, d1 + d4, d2 + d5], [d0, d3, d4, d5]], {SUM}, rank=3)",
        "z = generic(transpose(w, perm=[2, 3, 1, 0]), transpose(x, perm=[1, 2, 0]), "
        "loops=[7, 7, 3, 2, 3, 3], maps=[[d4, d5, d3, d2], [d0 + d4, d1 + d5, d3]], "
        f"{SUM}, rank=3)",
    ),
    "sums": (
        "y = generic(a, loops=[4, 6], maps=[[d0, d1]], body=exp(x0), combine=add, rank=1)",
        "z = generic(transpose(a, perm=[1, 0]), loops=[4, 6], maps=[[d1, d0]], body=exp(x0), "
        "combine=add, rank=1)",
    ),
}  # fmt: skip


def program(*lines: str) -> Program:
    return parse_program(f"program p\n{GIVEN}" + "\n".join(lines) + "\nreturn y, z", "p.eqs")


def sums(p: Program) -> int:
    return sum(isinstance(n.attr, Generic) and len(n.attr.reductions) > 0 for n in p.nodes)


@pytest.mark.parametrize("name", ALIKE)
def test_equal_sums_are_one(name: str) -> None:
    p = program(*ALIKE[name])
    found = canonical(p)
    assert sums(p) == 2
    assert sums(found) == 1
    assert are_equal(p, found)
    assert canonical(found) == found


APART = {
    "another slice": (
        "y = matmul(slice(a, start=[1, 0], limit=[3, 6]), b)",
        "z = matmul(slice(a, start=[2, 0], limit=[4, 6]), b)",
    ),
    "another sum": (
        "y = generic(a, loops=[4, 6], maps=[[d0, d1]], body=x0, combine=add, rank=1)",
        "z = generic(a, loops=[4, 6], maps=[[d0, d1]], body=x0, combine=max, rank=1)",
    ),
    "rows and columns of a square": (
        f"y = generic(a, a, loops=[4, 4, 6], maps=[[d0, d2], [d1, d2]], {SUM}, rank=2)",
        "z = generic(reshape(a, shape=[6, 4]), reshape(a, shape=[6, 4]), loops=[4, 4, 6], "
        f"maps=[[d2, d0], [d2, d1]], {SUM}, rank=2)",
    ),
    "what is subtracted": (
        "y = generic(a, a, loops=[4, 4, 6], maps=[[d0, d2], [d1, d2]], body=sub(x0, x1), "
        "combine=max, rank=2)",
        "z = generic(a, a, loops=[4, 4, 6], maps=[[d1, d2], [d0, d2]], body=sub(x0, exp(x1)), "
        "combine=max, rank=2)",
    ),
    "precisions": (
        "y = matmul(a, b)",
        f"z = generic(a, b, loops=[4, 8, 6], maps=[[d0, d2], [d2, d1]], {SUM}, rank=2, "
        f"precision={HIGHEST})",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_other_sums_stay_apart(name: str) -> None:
    p = program(*APART[name])
    assert sums(without_equal_sums(p)) == sums(p) == 2


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_sums_over_random_views(seed: int) -> None:
    """One product in eight spellings is computed once."""
    rng = random.Random(seed)
    b = Builder("p")
    base = parse_program(f"program p\n{GIVEN}y = matmul(a, b)\nreturn y", "p.eqs")
    for n in base.nodes[:2]:
        b.add(n.op, (), n.attr)
    results = [_spelled(b, rng) for _ in range(8)]
    p = b.build(results)
    found = without_equal_sums(p)
    found.verify()
    assert sums(found) == 1
    assert are_equal(p, found)


def _spelled(b: Builder, rng: random.Random) -> int:
    """a @ b over split and permuted dims of both operands and of the result."""
    parts = {c: _split(rng, size) for c, size in zip("mnk", (4, 8, 6), strict=True)}
    loops = [(c, n, s) for c in "mnk" for n, s in enumerate(parts[c])]
    result = [loop for loop in loops if loop[0] != "k"]
    rng.shuffle(result)
    reads = []
    for node, dims in ((0, "mk"), (1, "kn")):
        own = [loop for c in dims for loop in loops if loop[0] == c]
        y = b.add("reshape", (node,), Reshape(b.type(node).shape, tuple(s for *_, s in own)))
        perm = list(range(len(own)))
        rng.shuffle(perm)
        reads.append((b.add("transpose", (y,), Transpose(b.type(y).shape, tuple(perm))),
                      [own[i] for i in perm]))  # fmt: skip
    rng.shuffle(reads)
    return _contraction(b, reads, result)


def _split(rng: random.Random, size: int) -> tuple[int, ...]:
    ways = [(size,)] + [(d, size // d) for d in range(2, size) if size % d == 0]
    return rng.choice(ways)


def _contraction(b: Builder, reads: list, result: list) -> int:
    order = [*result, *(loop for loop in itertools.chain(*(d for _, d in reads)) if loop[0] == "k")]
    order = list(dict.fromkeys(order))
    number = {loop: d for d, loop in enumerate(order)}
    operands = [(node, tuple(dim(number[loop]) for loop in dims)) for node, dims in reads]
    y = Yield(call("mul", arg(0), arg(1)), "f32", "add")
    sizes = [s for *_, s in order]
    assert math.prod(sizes) == 4 * 8 * 6
    return generic_node(b, sizes, range(len(result)), operands, [y], precision=DEFAULT)
