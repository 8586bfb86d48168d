"""Runs and experiments of strangers: does each end in an answer or a sentence?

    python benchmarks/run.py strangers [--artefacts 0:200]

So many folders of runs are edited, each of which is sealed again, loaded, told and executed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gates import seeds as seeds_of

ROOT = Path(__file__).parents[3]
CHUNK = 10  # folders of one process: one that dies takes no others with it
OUT_OF_TIME = 600.0  # seconds of a process


def programs() -> Iterator[tuple[str, Callable[..., Any], tuple[int, ...], str]]:
    """Programs of every kind of dispatch, and the targets they are searched for."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    w = np.random.default_rng(0).standard_normal((48, 64)).astype("f")

    def layers(x: Any) -> Any:
        h = jnp.sort(x, axis=0) @ w
        return jax.nn.softmax(h, axis=-1), h.sum(0)

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, a: (jnp.tanh(c + a), c.sum()), x, jnp.ones((3, 24, 48)))

    yield "layers", layers, (24, 48), "avx512"
    yield "loop", loop, (24, 48), "avx512"
    yield "ops", layers, (24, 48), "avx512-xla"
    yield "gpu", layers, (24, 48), "sm_90"
    yield "mesh", layers, (24, 48), "tpu-v5e-4x2"


def runs() -> dict[str, Any]:
    import jax

    import eqsat

    return {
        name: eqsat.optimize(f, jax.ShapeDtypeStruct(shape, "float32"), target=t, time_limit=20)
        for name, f, shape, t in programs()
    }


# ---- values --------------------------------------------------------------------------------------
def values() -> dict[str, Any]:
    """Corrupted selections and schedules: refused, silent or raised, by kind."""
    import hostile

    from eqsat.extract.check import check
    from eqsat.schedule import faults
    from eqsat.schedule.rebuilt import rebuilt_differences

    told: dict[str, dict[str, Counter[str]]] = {}

    def count(table: str, kind: str, look: Callable[[], list[str]]) -> None:
        row = told.setdefault(table, {}).setdefault(kind, Counter())
        try:
            row["refused" if look() else "silent"] += 1
        except Exception as error:  # what it is, is counted
            row[f"raised {type(error).__name__}"] += 1

    for run in runs().values():
        graph, target = run.egraph, run.target
        for kind, s in hostile.selections(run.selection, graph):
            if s != run.selection:
                count("selections", kind, partial(check, graph, target, s))
        for kind, s in hostile.schedules(run.schedule):
            if s != run.schedule:
                rebuilt = partial(rebuilt_differences, s, graph, run.selection, target)
                count("schedules, rebuilt", kind, rebuilt)
                count("schedules, alone", kind, partial(faults, s, target, run.canonical))
    sums = {k: dict(sum(v.values(), Counter())) for k, v in told.items()}
    return {"sums": sums, "kinds": told}


# ---- folders -------------------------------------------------------------------------------------
def outcome(work: Callable[[], object]) -> str:
    """ok, refused, or what the work raised that is no sentence."""
    from eqsat.model.diag import EqsatError

    try:
        work()
    except EqsatError as error:
        codes = [d.code for d in error.diagnostics]
        return f"bug {codes[0]}" if codes[0].startswith("E9") else "refused"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"bug {type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
    return "ok"


def use(folder: Path) -> None:
    """Load a run, tell all of it, execute it."""
    import eqsat

    run = eqsat.load(folder)
    run.summary()
    run.report(folder / "page.html")
    run.explain()
    run.verify(samples=1)


def folders(source: Path, seeds: range) -> Iterator[tuple[int, str, str]]:
    """(seed, what was edited, outcome) of edited folders."""
    import hostile

    found = sorted(p for p in source.iterdir() if p.is_dir())
    for seed in seeds:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(shutil.copytree(found[seed % len(found)], Path(place, "run")))
            what = hostile.artefact(folder, seed)

            yield seed, f"{folder.name} {what}", outcome(partial(use, folder))


def edited_folders(seeds: range) -> dict[str, Any]:
    """Outcomes of edited folders, in processes of their own."""
    told: Counter[str] = Counter()
    bugs: list[Any] = []
    with tempfile.TemporaryDirectory() as place:
        for name, run in runs().items():
            if name not in ("gpu", "mesh"):
                run.verify(samples=1)
                run.save(Path(place, name))
        for start in range(seeds.start, seeds.stop, CHUNK):
            part = f"{start}:{min(start + CHUNK, seeds.stop)}"
            args = [sys.executable, "-m", "fuzz.runs.strangers", place, part]
            path = os.pathsep.join(sys.path)
            done = subprocess.run(
                args, capture_output=True, check=False, timeout=OUT_OF_TIME, cwd=ROOT,
                env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
            lines = [json.loads(x) for x in done.stdout.decode().splitlines()]
            told.update(o.split()[0] for _, _, o in lines)
            bugs += [line for line in lines if line[2].startswith("bug")]
            if done.returncode:
                bugs.append([part, f"exit {done.returncode}", done.stderr.decode()[-300:]])
    return {"outcomes": dict(told), "bugs": bugs}


# ---- experiments ---------------------------------------------------------------------------------
KEYS = (
    "programs", "targets", "goals", "set", "rules", "weights", "without", "budget", "vary",
    "limits", "measure", "rows", "ablate", "devices", "sizes", "covers", "figure", "seed",
    "program", "target", "name", "expect", "judge", "extractor",
)  # fmt: skip


def experiments() -> dict[str, Any]:
    """Outcomes of experiments with something that is no text where text belongs."""
    import hostile

    from eqsat.lang.experiments import read_experiment

    told: Counter[str] = Counter()
    grid = {"experiment": "e", "programs": ["mlp.py:mlp_784"], "targets": ["reference"]}
    row = {"name": "r", "program": "mlp.py:mlp_784", "target": "reference"}
    for key in KEYS:
        for odd in (*hostile.ODD, "nobody", ["nobody"]):
            for value in (odd, [odd], ["reference", odd], {"x": odd}):
                rows = {"experiment": "e", "rows": [row | {key: value}]}
                for data in (grid | {key: value}, rows):
                    told[outcome(partial(read_experiment, json.dumps(data)))] += 1
    return dict(told)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--artefacts", type=seeds_of, default=range(200), help="edited folders")


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    found = {"values": values(), "experiments": experiments()}
    found |= {"artefacts": edited_folders(asked.artefacts)}
    bugs = [k for k in found["experiments"] if k.startswith("bug")] + found["artefacts"]["bugs"]
    rebuilt = found["values"]["sums"]["schedules, rebuilt"]
    return {"ok": not bugs and not any(k.startswith("raised") for k in rebuilt)} | found


if __name__ == "__main__":  # one process of `edited_folders`
    warnings.simplefilter("ignore")
    for told in folders(Path(sys.argv[1]), seeds_of(sys.argv[2])):
        print(json.dumps(told), flush=True)
