"""One more result never makes a program quicker on a mesh.

A program that gives less may do all that the one with one more result does, and leave it. So where
its plan is slower, something of it was not looked at: a cut inside a merged body, the input beside
the answer. Programs are small networks; some arguments and results are spread as it happens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import eqsat
from eqsat.execute.draw import drawn_weights
from eqsat.extract.mesh.spreads import UNIT_PS
from eqsat.frontends.source import Source
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.ops import LEAVES
from eqsat.model.program import Program, prune

TARGET, MESH = "tpu-v5e-4x2", "data=2,model=2"
SIZES = (64, 256, 1024)
OPS = {"binary": 5, "unary": 2, "product": 3, "rows": 2, "turned": 1, "narrow": 1}


@dataclass(frozen=True)
class Verdict:
    """Times of the plans of a program and of the same one with one more result."""

    seed: int
    first: Program
    second: Program
    times_ps: tuple[int, int]
    units: int  # that rounding may add: one per value

    @property
    def is_worse(self) -> bool:
        """Whether the program that gives less is slower."""
        a, b = self.times_ps
        return a > b + self.units * UNIT_PS

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"seed": self.seed, "times_ps": self.times_ps, "worse": self.is_worse}
        return row | ({"programs": [str(self.first), str(self.second)]} if self.is_worse else {})


class _Writer:
    """Text of a random network, a line per value."""

    def __init__(self, rng: random.Random):
        self.rng, self.lines = rng, list[str]()
        self.shapes = dict[str, tuple[int, int]]()
        for name in rng.choice(["xy", "xyz", "xyzu"]):
            self.leaf("input", name, (rng.choice(SIZES), rng.choice(SIZES)))

    def leaf(self, kind: str, name: str, shape: tuple[int, int]) -> str:
        self.lines.append(f"{kind} {name}: f32[{shape[0]}, {shape[1]}]")
        self.shapes[name] = shape
        return name

    def value(self, text: str, shape: tuple[int, int]) -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.shapes[name] = shape

    def like(self, shape: tuple[int, int]) -> str:
        """A value of this shape, the latest ones more often, or a new weight."""
        some = [n for n, s in self.shapes.items() if s == shape]
        if self.rng.random() < 0.25:
            return self.leaf("weight", f"w{len(self.lines)}", shape)
        return self.rng.choice(some[-3:])

    def step(self) -> None:
        rng, x = self.rng, self.rng.choice(list(self.shapes)[-4:])
        rows, columns = shape = self.shapes[x]
        match rng.choices(list(OPS), list(OPS.values()))[0]:
            case "binary":
                self.value(f"{rng.choice(['add', 'mul', 'sub'])}({x}, {self.like(shape)})", shape)
            case "unary":
                self.value(f"{rng.choice(['relu', 'exp', 'tanh'])}({x})", shape)
            case "product":
                size = rng.choice(SIZES)
                w = self.leaf("weight", f"w{len(self.lines)}", (columns, size))
                self.value(f"matmul({x}, {w})", (rows, size))
            case "rows":
                nest = f"loops=[{rows}, {columns}], maps=[[d0, d1]], body=x0, combine=add, rank=1"
                self.value(f"generic({x}, {nest})", (rows, 0))
                total = self.shapes.popitem()[0]
                nest = f"loops=[{rows}, {columns}], maps=[[d0, d1], [d0]], body=mul(x0, x1)"
                self.value(f"generic({x}, {total}, {nest})", shape)
            case "turned":
                self.value(f"transpose({x}, perm=[1, 0])", (columns, rows))
            case "narrow":
                self.value(f"cast(cast({x}, bf16), f32)", shape)


def program(seed: int) -> tuple[Program, dict[str, str]]:
    """A program of at most nine steps, and spreads of some arguments and of its first result."""
    rng = random.Random(f"mesh results {seed}")
    w = _Writer(rng)
    for _ in range(rng.randint(3, 9)):
        w.step()
    values = [n for n in w.shapes if n.startswith("v")]
    text = "\n".join([f"program p{seed}", *w.lines, f"return {values[-1]}", ""])
    found = prune(parse_program(text))
    names = [found.leaf(i).name for i in found.inputs] + ["result0"]
    spreads = ["[data, -]", "[-, data]", "[data, model]", "[model, data]", "[-, -]"]
    return found, {n: rng.choice(spreads) for n in names if rng.random() < 0.6}


def verdict(seed: int) -> Verdict | None:
    """None where no value is inside of the program."""
    rng = random.Random(f"one more {seed}")
    first, shards = program(seed)
    inner = [i for i, n in enumerate(first.nodes) if n.op not in LEAVES and i not in first.results]
    if not inner:
        return None
    second = replace(first, results=(*first.results, rng.choice(inner)))
    try:
        times = (planned(first, shards), planned(second, shards | {"result1": "free"}))
    except EqsatError as e:
        if e.diagnostics[0].code == "E231":  # views of an argument: there is nothing to cut
            return None
        raise
    return Verdict(seed, first, second, times, len(second.nodes))


def planned(program: Program, shards: dict[str, str]) -> int:
    """Picoseconds of a program's best plan."""
    source = Source(program, drawn_weights(program))
    run = eqsat.optimize(source, target=TARGET, mesh=MESH, shards=shards, cache=False)
    assert run.mesh_plan is not None
    return run.mesh_plan.time_ps
