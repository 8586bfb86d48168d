"""The cache of answers under kills, with two writers, under damage; and MiniLM's second process.

    python benchmarks/run.py answers [--answers N] [--kills N] [--damaged N] [--seed N]

Two processes search so many small programs, each all of them, with one cache; one of them is killed
at random moments and begun again. Then every answer is asked for once more: not ok if one is
searched again, or is another one than a search without the cache has. Some files are changed in a
byte: those are searched again, and right. Last, `eqsat.jit` of MiniLM in two processes, one after
the other: CPU seconds of its first call, of which the second has two at most beyond imports.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import eqsat
from eqsat.execute.beside import AGREED
from eqsat.lang.programs import parse_program
from eqsat.run import answers

LONGEST_S = 2.0  # from a process's start until it is killed
MOST_CPU_S = 2.0  # of a first call whose answer is kept, beyond imports
TEXT = """program p{0}
input x: f32[{1}, 16]
weight w: f32[16, {2}]
y = matmul(x, w)
return relu(y)
"""


def searched(number: int, cache: bool = True) -> eqsat.Run:
    program = parse_program(TEXT.format(number, number % 40 + 1, number // 40 + 1))
    return eqsat.optimize(program, target="reference", rules=(), extractor="greedy", cache=cache)


def two_writers(count: int, kills: int, drawn: random.Random) -> dict[str, Any]:
    """Both end in time, as one that is killed goes on from what is kept."""
    numbers = [str(count)]
    steady, killed = _process("write", *numbers), 0
    while killed < kills and steady.poll() is None:
        other = _process("write", *numbers)
        time.sleep(drawn.uniform(0, LONGEST_S) + 1.0)  # imports take the first second
        other.kill()
        other.wait()
        killed += 1
    codes = [steady.wait(), _process("write", *numbers).wait()]
    runs = [(searched(i), searched(i, cache=False)) for i in range(count)]
    lost = [i for i, (run, _) in enumerate(runs) if not run.searched_at]
    return {"kills": killed, "exit_codes": codes, "lost": lost, "wrong": _wrong(runs)}


def damaged(count: int, of: int, drawn: random.Random) -> dict[str, Any]:
    """Answers of which a byte was changed: which are taken all the same, and which are wrong."""
    runs, taken = [], []
    for number in drawn.sample(range(of), min(count, of)):
        path = answers.ANSWERS.path(searched(number).cache_key)
        data = bytearray(path.read_bytes())
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        path.write_bytes(data)
        runs.append((searched(number), searched(number, cache=False)))
        taken += [number] if runs[-1][0].searched_at else []
    return {"damaged": len(runs), "taken": taken, "wrong": _wrong(runs)}


def _wrong(runs: list[tuple[eqsat.Run, eqsat.Run]]) -> list[str]:
    return [a.program.name for a, b in runs if a.schedule != b.schedule]


def first_calls() -> dict[str, Any]:
    """CPU seconds of MiniLM's first call in two processes; `kept`: whether the answer stays."""
    said = []
    for _ in range(2):
        process = _process("minilm", stdout=subprocess.PIPE)
        said.append(json.loads(process.communicate()[0]))
    return {"first": said[0], "second": said[1]}


def _process(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *words], **options)


def _minilm() -> dict[str, Any]:
    """One process: what the first call imports is imported before, by a call of another shape."""
    import jax.numpy as jnp

    sys.path.insert(0, str(Path(__file__).parents[3] / "experiments" / "programs"))
    minilm = import_module("minilm")
    eqsat.jit(lambda w, x: x @ w, weights=["w"])(jnp.ones((8, 8)), jnp.ones((4, 8)))
    params = {k: jnp.asarray(v) for k, v in minilm.random_weights(minilm.CONFIG).items()}
    ids = jnp.ones((1, minilm.CONFIG.tokens), "int32")
    f = eqsat.jit(minilm.minilm, weights=["params"], race=False)
    begin = time.process_time()
    f(ids, ids, params).block_until_ready()
    cpu = round(time.process_time() - begin, 2)
    return {
        "cpu_s": cpu,
        "checked": sum(c.why != AGREED for c in f.checks),
        "kept": all(c.kept == "answer" for c in f.checks),
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answers", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damaged", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    drawn = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"EQSAT_CACHE": folder, "EQSAT_ANSWERS": answers.KEEP}
        writers = two_writers(options.answers, options.kills, drawn)
        changed = damaged(options.damaged, options.answers, drawn)
        begin = time.process_time()
        for number in range(options.answers):
            searched(number)
        hit = round((time.process_time() - begin) * 1e3 / options.answers, 2)
        calls = first_calls()
        os.environ["EQSAT_ANSWERS"] = answers.NEVER
    bad = writers["lost"] or writers["wrong"] or any(writers["exit_codes"])
    bad = bad or changed["taken"] or changed["wrong"]
    slow = calls["first"]["kept"] and calls["second"]["cpu_s"] > MOST_CPU_S
    found = {"two_writers": writers, "damage": changed, "hit_cpu_ms": hit, "minilm": calls}
    return {"ok": not (bad or slow)} | found


if __name__ == "__main__":
    if sys.argv[1] == "minilm":
        print(json.dumps(_minilm()))
    else:
        for at in range(int(sys.argv[2])):
            searched(at)
