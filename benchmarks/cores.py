"""Random small programs, searched by two checkouts of eqsat: are their optima the same?

    python benchmarks/cores.py --beside CHECKOUT [--seeds 0:200] [--targets T …] [--goals G …]
                               [--old LOG] [--log LOG] [--out FILE]

The new side is the eqsat that PYTHONPATH names, the old one that of CHECKOUT; each is a process of
its own per batch of seeds. `--old` and `--log` keep what each side found, a line per seed, so that
only what is missing is searched. Answers are checked and judged as in `optima.py`. A program whose
answers differ is searched again alone, and made smaller as long as they do. Prints one JSON object:
counts per target, CPU seconds of both sides, and each difference with its smallest program. Exit
code 1 if a proven value moved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optima
from gates import Log, asked_and_told, say, seeds

GOALS = ("time", "memory", optima.JOINT)
SHAPES = ((48, 48), (48, 48), (48, 64), (3, 48, 64))
UNARY = ("relu", "exp", "T", "roll", "centred", "shares")
BINARY = ("add", "mul", "dot", "dotT", "concat")
BATCH = 25  # seeds of one process
LIMITS = argparse.Namespace(cpu=30.0, limit=120.0, kill=300.0)
Row = dict[str, Any]
Spec = dict[str, Any]  # shape, steps (op and two earlier values each), results


def drawn(seed: int) -> Spec:
    """Three to eight steps over two arguments, one or two results."""
    rng = random.Random(seed)
    count = rng.randint(3, 8)
    ops = (*UNARY, *BINARY)
    steps = [[rng.choice(ops), rng.randrange(i + 2), rng.randrange(i + 2)] for i in range(count)]
    results = sorted(rng.sample(range(2, count + 2), rng.randint(1, 2)))
    return {"shape": SHAPES[seed % len(SHAPES)], "steps": steps, "results": results}


def smaller(spec: Spec) -> Iterator[Spec]:
    """The same with a result or a step less, whose readers read its first operand instead."""
    for r in spec["results"] if len(spec["results"]) > 1 else ():
        yield spec | {"results": [q for q in spec["results"] if q != r]}
    for i, (_, first, _) in reversed(list(enumerate(spec["steps"], 2))):

        def moved(v: int, i: int = i, first: int = first) -> int:
            return first if v == i else v - (v > i)

        steps = [
            [op, moved(a), moved(b)] for k, (op, a, b) in enumerate(spec["steps"], 2) if k != i
        ]
        results = sorted({moved(r) for r in spec["results"]})
        if results[0] > 1:  # an argument is no result
            yield spec | {"steps": steps, "results": results}


def text(spec: Spec) -> str:
    """For people: `a, b: 48x48; v2 = dot(a, b); return v2`."""
    names = ("a", "b", *(f"v{i}" for i in range(2, len(spec["steps"]) + 2)))
    lines = [f"a, b: {'x'.join(map(str, spec['shape']))}"]
    for i, (op, x, y) in enumerate(spec["steps"], 2):
        reads = (names[x],) if op in UNARY else (names[x], names[y])
        lines.append(f"{names[i]} = {op}({', '.join(reads)})")
    return "; ".join((*lines, f"return {', '.join(names[r] for r in spec['results'])}"))


# ---- in a process of its own ---------------------------------------------------------------------
def source_of(spec: Spec) -> Any:
    import jax

    from eqsat.api import reading

    example = jax.ShapeDtypeStruct(tuple(spec["shape"]), "float32")

    def function(a: Any, b: Any) -> tuple[Any, ...]:
        values = [a, b]
        for op, i, j in spec["steps"]:
            values.append(_value(op, values[i], values[j]))
        return tuple(values[r] for r in spec["results"])

    return reading.source_of(function, (example, example), {}, ())


def _value(op: str, x: Any, y: Any) -> Any:
    """Operands that do not fit are turned, or replaced by the first one."""
    import jax.numpy as jnp

    def turned(v: Any) -> Any:
        return jnp.swapaxes(v, -1, -2)

    def like(v: Any, axis: int, size: int) -> Any:
        return next(w for w in (v, turned(v), x, turned(x)) if w.shape[axis] == size)

    fits = next(w for w in (y, turned(y), x) if w.shape == x.shape)
    half = x.shape[-1] // 2
    return {
        "relu": lambda: jnp.maximum(x, 0.0), "exp": lambda: jnp.exp(x), "T": lambda: turned(x),
        "roll": lambda: jnp.concatenate([x[..., 16:, :], x[..., :16, :]], -2),
        "centred": lambda: x - x.sum(-2, keepdims=True),
        "shares": lambda: x / x.sum(-1, keepdims=True),
        "add": lambda: x + fits, "mul": lambda: x * fits,
        "dot": lambda: x @ like(y, -2, x.shape[-1]),
        "dotT": lambda: turned(x) @ like(y, -2, x.shape[-2]),
        "concat": lambda: jnp.concatenate([x[..., :half], fits[..., half:]], -1),
    }[op]()  # fmt: skip


def serve() -> None:
    """A question per line of stdin, an answer per line of stdout."""
    out, sys.stdout = sys.stdout, sys.stderr
    for question in map(json.loads, sys.stdin):
        source = source_of(question["spec"])
        cells = [("", t, g) for t in question["targets"] for g in question["goals"]]
        rows = [optima.searched(c, source, {}, LIMITS) for c in cells]
        print(json.dumps(rows), file=out, flush=True)


# ---- the process that asks -----------------------------------------------------------------------
@dataclass
class Side:
    """One checkout: the process that searches with it, and what it has found by seed."""

    checkout: str  # "" for the eqsat of PYTHONPATH
    log: Path | None
    options: argparse.Namespace
    process: subprocess.Popen[str] | None = None
    found: Log = field(init=False)

    def __post_init__(self) -> None:
        self.found = Log(self.log, "seed")

    def ask(self, spec: Spec, targets: list[str], goals: list[str]) -> list[Row]:
        if self.process is None:
            path = os.pathsep.join((self.checkout, os.environ.get("PYTHONPATH", "")))
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "--serve"], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=os.environ | ({"PYTHONPATH": path} if self.checkout else {}),
            )  # fmt: skip
        question = {"spec": spec, "targets": targets, "goals": goals}
        assert self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        if self.process is not None:
            self.process.communicate()
            self.process = None

    def search(self, seeds: range) -> None:
        """What the log lacks of these seeds."""
        for seed in seeds:
            if seed not in self.found:
                rows = self.ask(drawn(seed), self.options.targets, self.options.goals)
                self.found.add({"seed": seed, "rows": rows})
        self.end()


def reproducer(old: Side, new: Side, seed: int, target: str, goals: str) -> Row | None:
    """The smallest program that still differs; None if alone it does not."""
    spec, best = drawn(seed), None
    trials = iter([spec])
    while (trial := next(trials, None)) is not None:
        was, now = (side.ask(trial, [target], [goals])[0] for side in (old, new))
        verdict = optima.outcome(was, now)
        if verdict not in ("same", "looser"):
            best = {"program": text(trial), "outcome": verdict, "old": was, "new": now}
            trials = smaller(trial)
    old.end()
    new.end()
    return best


def compared(old: Side, new: Side, seeds: range) -> Row:
    counts: dict[str, Counter[str]] = {}
    cpu, differences = [0.0, 0.0], []
    for seed in seeds:
        was = {optima.cell_of(r): r for r in old.found[seed]["rows"]}
        for now in new.found[seed]["rows"]:
            if (before := was.get(optima.cell_of(now))) is None:
                continue
            verdict = optima.outcome(before, now)
            counts.setdefault(now["target"], Counter())[verdict] += 1
            cpu = [c + r.get("cpu", 0.0) for c, r in zip(cpu, (before, now), strict=True)]
            if verdict not in ("same", "looser"):
                row = {"seed": seed, "target": now["target"], "asked": now["asked"]}
                row |= {"outcome": verdict, "broken": not optima.holds(before, now, verdict)}
                row |= {"old": before, "new": now, "program": text(drawn(seed))}
                row["smallest"] = reproducer(old, new, seed, now["target"], now["asked"])
                say(json.dumps(row))
                differences.append(row)
    seconds = {"old": round(cpu[0], 1), "new": round(cpu[1], 1)}
    return {"seeds": [seeds.start, seeds.stop], "cpu": seconds,
            "outcomes": counts, "differences": differences}  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=seeds, default=range(200), help="FROM:TO, or one seed")
    parser.add_argument("--log", type=Path, help="of the new side; what is there is not repeated")
    parser.add_argument("--beside", default="", metavar="CHECKOUT", help="the old eqsat")
    parser.add_argument("--old", type=Path, help="the log of the old side")
    parser.add_argument("--targets", nargs="+", default=list(optima.MAIN), metavar="TARGET")
    parser.add_argument("--goals", nargs="+", default=list(GOALS), metavar="G")


def measured(o: argparse.Namespace) -> Row:
    old, new = (Side(where, log, o) for where, log in ((o.beside, o.old), ("", o.log)))
    for begin in range(0, len(o.seeds), BATCH):
        for side in (old, new):
            side.search(o.seeds[begin : begin + BATCH])
        say(f"{begin} seeds")
    found = compared(old, new, o.seeds)
    return {"ok": not any(d["broken"] for d in found["differences"])} | found


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(asked_and_told(__doc__, options, measured))
