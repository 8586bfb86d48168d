"""Results of an answer and of the original function: the same but for rounding, or what is not.

Both have the errors that `rounding.error_limit` allows for their programs, so they are as far apart
as the two together at most, where no digits cancel. Beyond that it is asked what the original does
when its arguments move by a unit in the last place, then what is right in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.execute.compare import LEEWAY, MOST_NOISE, distance, dominated, size
from eqsat.execute.executors import nudged
from eqsat.execute.reference import OverWork, WorkBudget, least_operations, reference
from eqsat.execute.rounding import error_limit, moves
from eqsat.execute.verify import free_lanes, platform
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.elements import DTYPE_NAMES

if TYPE_CHECKING:
    from eqsat.execute.calls import Signature

Array = np.ndarray[Any, Any]
PART = 1 << 20  # elements that are looked at together, so that little memory is needed
NUDGES = 6  # runs of the original on arguments moved by a unit in the last place
PAIRS = 4  # of noisy evaluations in float64
WORK = 2e11  # operations in float64, some ten seconds


@dataclass(frozen=True)
class Subject:
    """Subject of a comparison: the program as read, the one chosen, and how they are called.

    signature: None where the arguments of a call are not the program's inputs as they are.
    """

    program: Program
    chosen: Program
    weights: Mapping[str, Any]
    opaque: Mapping[str, Callable[..., Sequence[Any]]]
    signature: Signature | None

    @property
    def limit(self) -> float:
        """max|a − b| / max|b| between answer and original that roundings explain."""
        where = platform()
        return min(MOST_NOISE, sum(error_limit(p, where) for p in (self.program, self.chosen)))


@dataclass(frozen=True)
class Difference:
    """The element of a result that is furthest beyond what is allowed.

    error, allowed: as shares of the largest element of the result; share: of its elements that are
    beyond. at: the element's indices. said: the two numbers, which are the user's.
    """

    result: int
    at: tuple[int, ...]
    error: float
    allowed: float
    share: float
    said: str

    @property
    def where(self) -> str:
        return f"result {self.result} [{', '.join(map(str, self.at))}]"


def arrays_of(results: Any, about: Subject) -> list[Array]:
    """The leaves of results as arrays of numbers; zeros in lanes that may hold anything."""
    import jax

    arrays = [_numbers(x) for x in jax.tree_util.tree_leaves(results)]
    program = about.program
    lanes = [free_lanes(program.nodes[r]) for r in program.results]
    if len(lanes) != len(arrays):
        return arrays
    pairs = zip(arrays, lanes, strict=True)
    return [
        x if o is None or o.shape != x.shape else np.where(o, np.zeros((), x.dtype), x)
        for x, o in pairs
    ]


def _numbers(x: Any) -> Array:
    import jax

    if jax.numpy.issubdtype(jax.typeof(x).dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    array = np.asarray(x)
    return np.stack([np.real(array), np.imag(array)], -1) if array.dtype.kind == "c" else array


def worst_difference(
    got: Sequence[Array],
    wanted: Sequence[Array],
    limit: float,
    explained: Sequence[Array] | None = None,
) -> Difference | None:
    """The worst element beyond `limit`; None if there is none. explained: what else is allowed."""
    more = explained or [None] * len(wanted)
    triples = enumerate(zip(got, wanted, more, strict=True))
    differences = [_difference(r, a, b, limit, e) for r, (a, b, e) in triples]
    return max((d for d in differences if d is not None), key=lambda d: d.error, default=None)


def _difference(
    number: int, got: Array, wanted: Array, limit: float, explained: Array | None
) -> Difference | None:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        reason = (
            f"{got.dtype}{list(got.shape)}, the original's is {wanted.dtype}{list(wanted.shape)}"
        )
        return Difference(number, (), float("inf"), 0.0, 1.0, reason)
    scale = max((size(b) for _, (b,) in _parts(wanted)), default=1.0)
    allowed = limit * scale if _is_float(wanted) else 0.0
    count, worst, most, bound = 0, -1, 0.0, allowed
    for start, parts in _parts(got, wanted, *(() if explained is None else (explained,))):
        away = distance(parts[0], parts[1])
        free = np.maximum(allowed, parts[2]) if len(parts) > 2 else np.full(away.shape, allowed)
        beyond = away > free
        count += int(beyond.sum())
        if beyond.any():
            at = int(np.argmax(np.where(beyond, away, -1.0)))
            if away[at] > most:
                most, worst, bound = float(away[at]), start + at, float(free[at])
    if worst < 0:
        return None
    at = tuple(map(int, np.unravel_index(worst, wanted.shape)))
    reason = f"got {got[at]}, the original gives {wanted[at]}"
    return Difference(number, at, most / scale, bound / scale, count / wanted.size, reason)


def _parts(*arrays: Array) -> Iterator[tuple[int, list[Array]]]:
    """(where it starts, the same part of each), flat."""
    flat = [x.reshape(-1) for x in arrays]
    for start in range(0, flat[0].size, PART):
        yield start, [x[start : start + PART] for x in flat]


def _is_float(x: Array) -> bool:
    """numpy calls narrow floats `V`."""
    return x.dtype.kind not in "biu" and not x.dtype.name.startswith(("int", "uint"))


def says_little(leaves: Sequence[Any], results: Sequence[Array]) -> bool:
    """Whether a wrong answer could pass: all of an argument or of a result is one number."""
    arguments = [_numbers(x) for x in leaves if getattr(x, "ndim", 0) > 1]
    return any(map(_is_one_number, [*arguments, *results]))


def _is_one_number(x: Array) -> bool:
    if x.size < 2 or not _is_float(x):
        return False
    some = x.flat[:100]
    if not np.isfinite(some[0].astype(np.float64)):
        return True
    return bool((some == some[0]).all() and (x == some[0]).all())


# ---- beyond the bound ----------------------------------------------------------------------------
def is_explained(
    about: Subject,
    original: Callable[[Sequence[Any]], Any],
    leaves: Sequence[Any],
    call: tuple[tuple[Any, ...], dict[str, Any]],
    got: Sequence[Array],
    wanted: Sequence[Array],
    limit: float,
) -> bool:
    """Whether results beyond the bound are right: conditioning, ties, overflow.

    original: results for the leaves of a call.
    """
    if any(a.shape != b.shape for a, b in zip(got, wanted, strict=True)):
        return False
    rng = np.random.default_rng(0)
    explained = [limit * size(w) * np.full(w.shape, _is_float(w)) for w in wanted]
    for _ in range(NUDGES):
        moved = arrays_of(original([_nudged_leaf(x, rng) for x in leaves]), about)
        shifts = [distance(a, b) for a, b in zip(moved, wanted, strict=True)]
        if _as_few(got, wanted, shifts, explained):
            return True
        explained = [np.maximum(e, LEEWAY * d) for e, d in zip(explained, shifts, strict=True)]
        if worst_difference(got, wanted, limit, explained) is None:
            return True
    return _is_right(about, call, got, wanted, limit)


def _as_few(
    got: Sequence[Array], wanted: Sequence[Array], errors: Sequence[Array], free: Sequence[Array]
) -> bool:
    """Whether the unexplained are as few and as small as those of the original, moved."""
    rows = zip(got, wanted, errors, free, strict=True)
    return all(dominated(distance(g, w), o, f) for g, w, o, f in rows)


def _nudged_leaf(x: Any, rng: np.random.Generator) -> Any:
    import jax.numpy as jnp

    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    array = np.asarray(x)
    return jnp.asarray(nudged(array, TensorType(DTYPE_NAMES[array.dtype.name], array.shape), rng))


def _is_right(
    about: Subject,
    call: tuple[tuple[Any, ...], dict[str, Any]],
    got: Sequence[Array],
    wanted: Sequence[Array],
    limit: float,
) -> bool:
    """Whether the results are as near to float64 as roundings, or the original, are."""
    signature, program = about.signature, about.program
    if signature is None:
        return False
    inputs = [np.asarray(x) for x in signature.flat_inputs(*call)]
    held = {**about.weights, **signature.flat_weights(*call)}
    weights = {k: np.asarray(w) for k, w in held.items()}
    work = WorkBudget(WORK)
    if not work.allows(least_operations(program)):
        return False

    def evaluate(*noise: Any) -> list[Array]:
        return arrays_of(reference(program, inputs, weights, about.opaque, work, *noise), about)

    try:
        return _is_near(program, evaluate, got, wanted, limit)
    except OverWork:
        return False


def _is_near(
    program: Program,
    evaluate: Callable[..., list[Array]],
    got: Sequence[Array],
    wanted: Sequence[Array],
    limit: float,
) -> bool:
    """got: of the answer, wanted: of the original, both judged by what is right."""
    right = evaluate()
    if any(a.shape != b.shape for a, b in zip(got, right, strict=True)):
        return False
    explained = [limit * size(x) * np.full(x.shape, _is_float(x)) for x in right]
    errors = [distance(a, b) for a, b in zip(wanted, right, strict=True)]
    for pair in range(PAIRS):
        if _as_few(got, right, errors, explained):
            return True
        noise = moves(program, evaluate, right, [0, pair], platform())
        explained = [np.maximum(e, m) for e, m in zip(explained, noise, strict=True)]
    return _as_few(got, right, errors, explained)
