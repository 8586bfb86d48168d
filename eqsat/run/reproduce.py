"""A run whose answer is wrong, as a folder that shows it to others with numbers of nobody.

The folder's own script calls `reproduce`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.execute.agree import Difference, Subject, arrays_of, worst_difference
from eqsat.execute.draw import drawn_weights, packed_as
from eqsat.execute.executors import Witness
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import cache_folder
from eqsat.model.leaves import Leaf
from eqsat.model.tensor import DTYPES, is_float
from eqsat.ops.meaning.programs import element_dtype
from eqsat.run.run import Run
from eqsat.run.saved import load_folder

SEEDS = 3  # that are tried
ARGUMENTS, SCRIPT = "arguments.json", "reproduce.py"
TEXT = '''"""Run what eqsat chose and what was written, on random arguments."""

from pathlib import Path

from eqsat.run.reproduce import reproduce

print(reproduce(Path(__file__).parent))
'''
Array = np.ndarray[Any, Any]
Ranges = Sequence[tuple[float, float]]  # of each input the least and the largest number


def reproducer(run: Run, subject: Subject) -> Callable[[tuple[Any, ...], Mapping[str, Any]], str]:
    """From the arguments of a call to a sentence that names the folder that was written."""

    def write(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        try:
            return _written(run, subject, args, kwargs)
        except (EqsatError, OSError) as e:
            return f"please report it; nothing that reproduces it could be written: {e}"

    return write


def _written(run: Run, subject: Subject, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    name = hashlib.sha256(run.need_schedule().to_text().encode()).hexdigest()[:12]
    title = re.sub(r"\W+", "", run.program.name) or "function"
    folder = cache_folder("wrong") / f"{title}-{name}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    run.save(folder, packed=False, weights=False)
    ranges: list[tuple[float, float]] = [(-1.0, 1.0)] * len(run.program.inputs)
    if subject.signature is not None:
        given = subject.signature.flat_inputs(args, dict(kwargs))
        ranges = [_range(np.asarray(x)) for x in given]
    seed, shows = _seed(run, ranges)
    data = {"seed": seed, "ranges": ranges}
    (folder / ARGUMENTS).write_text(json.dumps(data) + "\n", encoding="utf-8")
    (folder / SCRIPT).write_text(TEXT, encoding="utf-8")
    how = "shows it with" if shows else "has the program; it does not show it with"
    return f"please report it: `python {folder / SCRIPT}` {how} random numbers, none of them yours"


def _range(x: Array) -> tuple[float, float]:
    finite = x.astype(np.float64)[np.isfinite(x.astype(np.float64))]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _seed(run: Run, ranges: Ranges) -> tuple[int, bool]:
    """A seed that shows the difference, and whether there is one."""
    for seed in range(SEEDS):
        if difference_of(run, ranges, seed) is not None:
            return seed, True
    return 0, False


def difference_of(run: Run, ranges: Ranges, seed: int) -> Difference | None:
    """Of the answer to the program on random numbers in these ranges; None if there is none."""
    from eqsat.run.calling import built

    program = run.program
    rng = np.random.default_rng(seed)
    leaves = [program.leaf(i) for i in program.inputs]
    inputs = [_drawn(leaf, r, rng) for leaf, r in zip(leaves, ranges, strict=True)]
    weights = drawn_weights(program)
    subject = Subject(program, run.need_schedule().program, weights, run.source.opaque, None)
    got = built(run, weights, run.runs_on).compile()(*inputs)
    wanted = Witness(program, weights, run.source.opaque)(inputs)
    return worst_difference(arrays_of(got, subject), arrays_of(wanted, subject), subject.limit)


def _drawn(leaf: Leaf, between: tuple[float, float], rng: np.random.Generator) -> Array:
    t, (low, high) = leaf.plain, between
    if is_float(t.dtype):
        values = rng.uniform(low, high, t.shape)
    elif DTYPES[t.dtype][1] == "b":
        values = rng.integers(0, 2, t.shape)
    else:
        values = rng.integers(int(low), int(high) + 1, t.shape)
    return packed_as(leaf, np.asarray(values).astype(element_dtype(t.dtype)))


def reproduce(folder: Path) -> str:
    """The line that `reproduce.py` of a folder prints. EqsatError E405 if it is no such folder."""
    run = load_folder(folder)
    try:
        data = json.loads((folder / ARGUMENTS).read_text(encoding="utf-8"))
        ranges, seed = [(float(a), float(b)) for a, b in data["ranges"]], int(data["seed"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise fail("E405", f"`{folder}` has no arguments that reproduce anything: {e}") from e
    difference = difference_of(run, ranges, seed)
    if difference is None:
        return f"`{run.program.name}`: no difference"
    return (
        f"`{run.program.name}`: {difference.where}: {difference.said};"
        f" {difference.error:.1e} of the largest element, {difference.allowed:.1e} allowed;"
        f" {difference.share:.1%} of the elements"
    )
