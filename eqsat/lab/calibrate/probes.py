"""Probes, functions that are timed on one core in interleaved rounds of process time.

A slow minute of the machine then touches all figures alike.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from eqsat.execute.loops import generic
from eqsat.execute.timing import step_of
from eqsat.host import MemoryLevel
from eqsat.lab.calibrate import shapes
from eqsat.model.diag import EqsatError, fail
from eqsat.model.generic import Generic
from eqsat.ops.meaning.programs import element_dtype

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def use_one_core() -> None:
    """XLA on one thread, the process on one core; only before JAX is initialised for good."""
    if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


Call = Callable[..., Any]


@dataclass(frozen=True)
class Probe:
    """A timed function; `build` compiles it and returns a call that waits for its result."""

    name: str
    work: float  # operations or bytes of one call; calls of one kind of op: their number
    build: Callable[[], Call]


def probes(levels: Sequence[MemoryLevel]) -> list[Probe]:
    """Everything that is measured, in the order of the target's keys."""
    return [
        Probe("call", 1, partial(_elementwise, 1, 1)),
        Probe("launch", LAUNCHES, _launches),
        *(_copy(level) for level in levels),
        *_relayouts(),
        Probe("elementwise", BODY_OPERATIONS * BODY_SIZE * BODY_RUNS, _body),
        *_contractions(),
        *_handed(),
    ]


# ---- contractions ----------------------------------------------------------------------------
def _contractions() -> Iterator[Probe]:
    for dtype, g in shapes.TYPES.items():
        yield _contraction(f"matmul {dtype}", g)
    for i, regime in enumerate(shapes.MATMULS):
        for j, g in enumerate(regime.shapes):
            yield _contraction(f"matmul {i}.{j}", g)
    for image, filters in shapes.ORDERS:
        for i, regime in enumerate(shapes.CONVOLUTIONS):
            for j, g in enumerate(regime.shapes):
                yield _contraction(f"{image} {i}.{j}", shapes.in_dim_order(g, image, filters))
    for kind, (tile, packed) in shapes.TILES.items():
        for j, g in enumerate(packed):
            yield _contraction(f"packed {kind} {j}", shapes.packed(g, tile), 2 * math.prod(g.sizes))


def _contraction(name: str, g: Generic, operations: float = 0) -> Probe:
    return Probe(name, operations or 2 * math.prod(g.sizes), partial(_generic, g))


def _generic(g: Generic) -> Call:
    """The executor's own lowering of a generic, on random operands."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-9, 9, s).astype(element_dtype(t))
        for s, t in zip(g.shapes, g.dtypes, strict=True)
    ]
    return _compiled(lambda *xs: generic(g, xs), *arrays)


HANDED = (2048, 1024, 8)  # a product that takes little longer than reading its first factor


def _handed() -> Iterator[Probe]:
    """A pass over memory, a product, and the product of what the pass makes."""
    from jax import numpy as jnp

    rows, k, columns = HANDED
    x, w = np.ones((rows, k), "f4"), np.ones((k, columns), "f4")

    def passed(x: Any) -> Any:
        return jnp.maximum(x, 0.5)

    operations = 2 * rows * k * columns
    yield Probe("pass", 8 * rows * k, partial(_compiled, passed, x))
    yield Probe("product", operations, partial(_compiled, jnp.matmul, x, w))
    handed = partial(_compiled, lambda x, w: passed(x) @ w, x, w)
    yield Probe("product of pass", operations, handed)


# ---- everything else -------------------------------------------------------------------------
LAUNCHES = 64
BODY_OPERATIONS = 20  # as the model counts them: 8 for the exponential, 4 for the quotient
BODY_SIZE, BODY_RUNS = 16384, 50
COPIED = 64 << 20  # bytes that one call of a copy moves at least
TRANSPOSED = (((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 28, 28, 256), (0, 3, 1, 2)))


def _copy(level: MemoryLevel) -> Probe:
    """An elementwise pass over a buffer that this level holds, again and again."""
    elements = level.probed_bytes // 4
    runs = max(4, COPIED // level.probed_bytes)
    return Probe(f"copy {level.name}", 8 * elements * runs, partial(_elementwise, elements, runs))


def _elementwise(elements: int, runs: int) -> Call:
    from jax import lax

    x = np.ones(elements, "f4")
    return _compiled(lambda x: lax.fori_loop(0, runs, lambda _, x: x * 0.999 + 0.5, x), x)


def _body() -> Call:
    from jax import lax

    x = np.linspace(-1, 1, BODY_SIZE, dtype="f4")
    return _compiled(lambda x: lax.fori_loop(0, BODY_RUNS, lambda _, x: activation(x), x), x)


def activation(x: Any) -> Any:
    """A body like those of activations, with an exponential and a quotient in it."""
    from jax import numpy as jnp

    return 1 / (1 + jnp.exp(-x)) * x * 0.9 + 0.05 * x * x - 0.1


def _launches() -> Call:
    """A chain of small products that cannot be fused."""

    def chain(x: Any, y: Any) -> Any:
        for _ in range(LAUNCHES):
            x = x @ y
        return x

    return _compiled(chain, np.zeros((8, 8), "f4"), np.zeros((8, 8), "f4"))


def _relayouts() -> Iterator[Probe]:
    for i, (shape, perm) in enumerate(TRANSPOSED):
        yield Probe(f"relayout {i}", 8 * math.prod(shape), partial(_transpose, shape, perm))


def _transpose(shape: tuple[int, ...], perm: tuple[int, ...]) -> Call:
    from jax import lax

    return _compiled(lambda x: lax.transpose(x, perm), np.ones(shape, "f4"))


def _compiled(function: Callable[..., Any], *arrays: Any) -> Call:
    """A call of the compiled function on the CPU, with its arguments there already."""
    import jax

    with jax.default_device(jax.devices("cpu")[0]):
        on_device = [jax.device_put(x) for x in arrays]
        compiled = jax.jit(function).lower(*on_device).compile()
    return lambda: jax.block_until_ready(compiled(*on_device))


LEAST, STEPS = 2e-3, 50  # seconds, or steps of the clock, of one measurement of repeated calls
MOST, DOUBLINGS = 20_000, 3  # calls in one measurement, and tries of one that shows no time
Timer = Callable[[Probe], float]  # seconds of one call
Progress = Callable[[str, float], None]  # what is done now, and the share that is done


def part(progress: Progress, begin: float, end: float) -> Progress:
    """The progress of a part of the work, which is that from `begin` to `end` of the whole."""
    return lambda text, share: progress(text, begin + (end - begin) * share)


@dataclass(frozen=True)
class Sample:
    """Seconds of one call of a probe over the rounds."""

    median: float
    low: float
    high: float


@dataclass
class CoreTimer:
    """Times probes by the process's own time, so that other processes do not count."""

    clock: Callable[[], float] = time.process_time
    calls: dict[str, tuple[Call, int]] = field(default_factory=dict)
    fewest: int = 1  # calls in one measurement

    def __call__(self, probe: Probe) -> float:
        """Seconds of one call; 0 where the clock shows none, however often it is called."""
        if probe.name not in self.calls:
            call = probe.build()
            self.calls[probe.name] = call, self._count(call)
        call, count = self.calls[probe.name]
        for _ in range(DOUBLINGS):
            if (seconds := self.took(call, count)) > 0:
                return seconds / count
            count *= 2  # the clock was disturbed, or is coarser than it looked
            self.calls[probe.name] = call, count
        return 0.0

    def took(self, call: Call, count: int) -> float:
        """Seconds of so many calls."""
        call()  # what the probe before left to free, and what is not in the caches
        begin = self.clock()
        for _ in range(count):
            call()
        return self.clock() - begin

    def enough(self, call: Call) -> float:
        """Seconds that calls have to take to be measured."""
        return self._least

    @cached_property
    def _least(self) -> float:
        return max(LEAST, STEPS * step_of(self.clock))

    def _count(self, call: Call) -> int:
        """How many calls take long enough; disturbed tries do not count."""
        self.took(call, 1)
        count, enough = self.fewest, self.enough(call)
        while count < MOST:
            took = min(self.took(call, count) for _ in range(3))
            if took >= enough:
                break
            more = 1.2 * enough / max(took, 1e-7)  # a disturbed try tells nothing of a hundred
            count = min(MOST, round(count * min(max(more, 2), 8)))
        return count


def check_clock(clock: Callable[[], float] = time.process_time) -> None:
    """EqsatError (E420) if the clock stands still: nothing could be measured for hours."""
    if not step_of(clock, 1.0):
        raise _dead("the process clock of this machine stands still")


def _dead(what: str) -> EqsatError:
    return fail("E420", what, help="calibrate on a machine that counts a process's time")


def timed_rounds(
    probes: Sequence[Probe], rounds: int, timer: Timer, progress: Progress = lambda *_: None
) -> dict[str, Sample]:
    """Medians and extremes per probe; EqsatError (E420) if the clock does not move."""
    seconds: dict[str, list[float]] = {p.name: [] for p in probes}
    for i in range(rounds):
        for j, p in enumerate(probes):
            done = (i * len(probes) + j) / (rounds * len(probes))
            progress(f"round {i + 1} of {rounds}: {p.name}", done)
            seconds[p.name].append(timer(p))
    stuck = [name for name, samples in seconds.items() if statistics.median(samples) <= 0]
    if stuck:
        raise _dead(f"the process clock stood still while `{stuck[0]}` ran again and again")
    return {k: Sample(statistics.median(v), min(v), max(v)) for k, v in seconds.items()}
