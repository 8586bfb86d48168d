"""A shipped target → the same scaled by figures that are measured here in a second or two.

    python eqsat/execute/kernels/scale.py TARGET

Measured are the rate of multiply-adds, the bandwidth of each cache but the nearest and of memory,
and the start of a dispatch, each as the least of several short tries, so that what else runs here
adds little. A small program is timed as one kernel that Python calls directly, without XLA around
it. All other constants follow one of these. Prints the target's file.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat import host
from eqsat.execute.kernels import compiler, jit, runtime
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.execute.kernels.kernel import generate
from eqsat.execute.timing import step_of
from eqsat.lang.owntarget import TIMES, scaled_text
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError, fail
from eqsat.model.dispatch import Constants, Kernels, Machine, Plan
from eqsat.model.nest import Nest, NoNest, as_data
from eqsat.model.program import Program
from eqsat.model.target import Memory, Target
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.nests.nest import Member, nest_of
from eqsat.plan.planner import plan
from eqsat.plan.price import Rates, first_fetches, priced_parts, rates

ALIGNMENT = 64  # bytes, as XLA's buffers
Runs = Callable[[int], None]  # calls a kernel so often
Fill = Callable[[np.ndarray[Any, Any]], None]


@dataclass(frozen=True)
class Alone:
    """A program as one nest, with its plan."""

    name: str
    program: Program
    nest: Nest
    plan: Plan


def ones(array: np.ndarray[Any, Any]) -> None:
    """Ones in all of an array."""
    array[...] = 1


def alone(name: str, program: Program, machine: Machine) -> Alone:
    """NoNest if the program is no single kernel on this machine."""
    members = [Member(i, n.op, n.attr, n.operands, n.types) for i, n in enumerate(program.nodes)]
    nest = nest_of(members, program.inputs, program.results)
    return Alone(name, program, nest, plan(nest, machine))


def addresses(kernels: Sequence[Alone], machine: Machine) -> dict[str, int]:
    """Name → address of the function, compiled or from the cache. CannotCompile if one has none."""
    modules = {f"eqsat_alone_{k.name}": _module(k, machine) for k in kernels}
    loaded = jit.load_modules(modules, machine)
    by_name: dict[str, int] = {}
    for k, address in zip(kernels, loaded.values(), strict=True):
        if isinstance(address, CannotCompile):
            raise address
        by_name[k.name] = address
    return by_name


def _module(k: Alone, machine: Machine) -> jit.Module:
    name = f"eqsat_alone_{k.name}"

    def write() -> str:
        return generate(k.nest, k.plan, machine, name).ir

    return jit.Module(f"{name} {as_data(k.nest)} {k.plan.to_json()} {compiler.own_code()}", write)


def runs(k: Alone, address: int, fill: Fill = ones) -> tuple[Runs, Runs]:
    """Calls that do all items of the kernel, and calls that do none.

    fill: writes what the buffers hold.
    """
    sides = (*k.nest.reads, *k.nest.writes)
    types = {b: k.program.nodes[b].types[0] for b in sides}
    buffers = {b: _filled(t.shape, element_dtype(t.dtype), fill) for b, t in types.items()}
    in_place = {s.access.buffer: s.in_place for s in k.nest.stores if s.in_place >= 0}
    scratch = _filled((k.plan.scratch_bytes,), np.dtype(np.uint8), ones)
    given = [*(buffers[in_place.get(b, b)] for b in sides), scratch]
    pointers = [ctypes.c_void_p(b.ctypes.data) for b in given]
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * len(pointers))(
        address
    )
    lo, whole = ctypes.c_int64(0), ctypes.c_int64(k.plan.items)

    def calls(hi: ctypes.c_int64) -> Runs:
        def run(count: int, held: object = given) -> None:
            for _ in range(count):
                kernel(lo, hi, *pointers)

        return run

    return calls(whole), calls(lo)


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Fill) -> np.ndarray[Any, Any]:
    """An array at an aligned address, its pages touched."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    array = raw[start : start + size].view(dtype).reshape(shape)
    fill(array)
    return array


TRIES, LEAST_SECONDS = 11, 1e-3  # of a measurement, and of a try
COARSEST = 1e-4  # seconds of a step of the process clock, beyond which that of the wall is used
CHAINS = (20, 220)  # dispatches in a row; what the second takes longer is their start
TINY = 64  # elements of a dispatch that takes no longer than its start
FARTHEST, HALVINGS, SWEEPS = 50.0, 40, 3  # of a figure from the target's; of the search for it
ROWS, DEPTH, PANELS = 96, 256, 6  # of the product
Clock = Callable[[], float]


@dataclass(frozen=True)
class TimedProbe:
    """A kernel, and what it took."""

    kernel: Alone
    time_ps: float

    def predicted(self, rates: Rates) -> float:
        """Picoseconds by these rates."""
        first = first_fetches(self.kernel.nest)
        return priced_parts(self.kernel.plan.work, rates, first).time_ps


@dataclass(frozen=True)
class RateFigures:
    """Measured rates. streams: by the level of memory that holds their buffers."""

    product: TimedProbe
    streams: Mapping[str, TimedProbe]
    launch_ps: int

    @property
    def count(self) -> int:
        """Of the figures."""
        return 2 + len(self.streams)


def scaled_target(target: Target, figures: RateFigures) -> Target:
    """The target with these figures, and with all others as they follow from them."""
    start = replace(rates(target), launch_ps=0)
    scaled = start
    for _ in range(SWEEPS):  # each is solved with the others as they are
        scaled = _solved(scaled, figures.product, _with_speed)
        for name, timed in figures.streams.items():
            scaled = _solved(scaled, timed, lambda r, x, name=name: _with_bandwidth(r, x, name))
    slower = scaled.constants.fma_ps / start.constants.fma_ps
    copies = scaled.memory[1].bandwidth / start.memory[1].bandwidth
    constants = replace(scaled.constants, copy_rate=start.constants.copy_rate * copies)
    assert target.kernels is not None, "the rates are those of kernels"
    return replace(
        target,
        memory=scaled.memory,
        launch_ps=figures.launch_ps,
        rates=tuple((k, v / slower) for k, v in target.rates),
        relayout=target.relayout and target.relayout * copies,
        kernels=started(replace(target.kernels, constants=constants), target, figures.launch_ps),
    )


def started(kernels: Kernels, target: Target, launch_ps: int) -> Kernels:
    """With the start of an op of XLA as many times its own as that of a dispatch is."""
    slower = launch_ps / max(target.launch_ps, 1)
    return replace(kernels, xla_op_ps=round(kernels.xla_op_ps * slower))


def _solved(start: Rates, timed: TimedProbe, scale: Callable[[Rates, float], Rates]) -> Rates:
    """The rates made slower by the factor with which they predict what was measured."""
    low, high = 1 / FARTHEST, FARTHEST
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        if timed.predicted(scale(start, middle)) < timed.time_ps:
            low = middle
        else:
            high = middle
    return scale(start, (low * high) ** 0.5)


def _with_speed(r: Rates, slower: float) -> Rates:
    """All that a core does in registers and the nearest cache."""
    c = r.constants
    constants: Constants = replace(c, **{n: getattr(c, n) * slower for n in TIMES})
    return _with_bandwidth(replace(r, constants=constants), slower, r.memory[0].name)


def _with_bandwidth(r: Rates, slower: float, name: str) -> Rates:
    memory = [replace(m, bandwidth=m.bandwidth / slower) if m.name == name else m for m in r.memory]
    return replace(r, memory=tuple(memory))


# ---- what is measured ------------------------------------------------------------------------
def measure(target: Target, clock: Clock | None = None) -> RateFigures:
    """Time a few kernels of this target. NoNest or CannotCompile if they cannot run here.

    EqsatError (E420) if no clock moves.
    """
    now = clock or finest_clock()
    machine = target.machine
    product = alone("product", parse_program(_product(machine)), machine)
    streams = {m.name: _stream(_probed_bytes(target, m), machine) for m in target.memory[1:]}
    probes = {k.name: k for k in (product, *streams.values())}
    at = addresses(list(probes.values()), machine)
    seconds = _seconds({name: runs(k, at[name]) for name, k in probes.items()}, now)
    return RateFigures(
        TimedProbe(product, seconds[product.name] * 1e12),
        {name: TimedProbe(k, seconds[k.name] * 1e12) for name, k in streams.items()},
        max(1, round(_start(machine, now) * 1e12)),
    )


def here(target: Target) -> Target:
    """The target with the memory of this machine; bandwidths are those of the levels named so."""
    bandwidths = {m.name: m.bandwidth for m in target.memory}
    slowest = target.memory[-1].bandwidth
    levels = host.memory_levels(first=1)
    memory = tuple(Memory(v.name, v.size_bytes, bandwidths.get(v.name, slowest)) for v in levels)
    return replace(target, memory=memory)


def finest_clock() -> Clock:
    """Clock of this process, else of the wall; EqsatError (E420) if neither moves."""
    for clock in (time.process_time, time.perf_counter):
        if 0 < step_of(clock) < COARSEST:
            return clock
    raise fail(
        "E420",
        "the clocks of this machine show no time",
        help="name a target, as `--target avx512`: nothing is measured for it",
    )


def _product(machine: Machine) -> str:
    width = 2 * machine.lanes()
    packed, whole = f"{ROWS}, {PANELS}, {width}", f"{ROWS}, {PANELS * width}"
    maps = "maps=[[d0, d3], [d1, d3, d2]], body=mul(x0, x1), combine=add"
    return f"""program product
input x: f32[{ROWS}, {DEPTH}]
input w: f32[{PANELS}, {DEPTH}, {width}]
p = generic(x, w, loops=[{packed}, {DEPTH}], {maps}) : f32[{packed}]
y = unpack(p, pos=[1], tiles=[{width}], outer=[0, 1], shape=[{whole}]) : f32[{whole}]
return y
"""


def _stream(nbytes: int, machine: Machine) -> Alone:
    """A pass that reads and writes this many bytes together."""
    size = nbytes // 8
    one = f"y = generic(x, loops=[{size}], maps=[[d0]], body=add(mul(x0, 0.5), 1.0))"
    text = f"program stream\ninput x: f32[{size}]\n{one}\nreturn y\n"
    return alone(f"stream{size}", parse_program(text), machine)


def _probed_bytes(target: Target, level: Memory) -> int:
    """Bytes that this level holds and the one before does not; cores may share the level."""
    at = target.memory.index(level)
    before = target.memory[at - 1].size_bytes
    if at == len(target.memory) - 1:
        return min(4 * before, max(host.LARGEST_PROBE, 2 * before))
    return round((before * level.size_bytes) ** 0.5)


def _seconds(kernels: Mapping[str, tuple[Runs, Runs]], clock: Clock) -> dict[str, float]:
    """The least time of one call of each, without what calling it takes; all take turns."""
    counts = {name: _count(whole, clock) for name, (whole, _) in kernels.items()}
    tries: dict[str, list[tuple[float, float]]] = {name: [] for name in kernels}
    for _ in range(TRIES):
        for name, (whole, none) in kernels.items():
            whole(1)  # what ran before has its own data in the caches
            both = _took(whole, counts[name], clock), _took(none, counts[name], clock)
            tries[name].append(both)
    return {
        name: max(min(w for w, _ in times) - min(n for _, n in times), 1e-12) / counts[name]
        for name, times in tries.items()
    }


def _count(run: Runs, clock: Clock) -> int:
    """How many calls take long enough to be measured."""
    run(2)
    count = 1
    while (took := _took(run, count, clock)) < LEAST_SECONDS:
        count *= 2 if took > LEAST_SECONDS / 4 else 4
    return count


def _took(call: Callable[[int], Any], count: int, clock: Clock) -> float:
    begin = clock()
    call(count)
    return clock() - begin


def _start(machine: Machine, clock: Clock) -> float:
    """Seconds from the start of a dispatch to that of the next one, as XLA calls them."""
    import jax
    from jax import numpy as jnp

    k = _stream(8 * TINY, machine)
    planned = runtime.PlannedDispatch(k.nest, k.plan, (), 1)
    name = f"eqsat_alone_{k.name}_call"
    if why := runtime.made_callable(name, planned, machine):
        raise CannotCompile(why)
    aval = jax.ShapeDtypeStruct((TINY,), jnp.float32)

    def chain(x: Any, length: int) -> Any:
        for _ in range(length):
            x = jax.ffi.ffi_call(name, aval)(x)
        return x

    x = jnp.ones(TINY, jnp.float32)

    def calls(length: int) -> Runs:
        compiled = jax.jit(lambda x: chain(x, length)).lower(x).compile()

        def run(count: int) -> None:
            for _ in range(count):
                jax.block_until_ready(compiled(x))

        return run

    seconds = _seconds(
        {"short": (calls(CHAINS[0]), _nothing), "long": (calls(CHAINS[1]), _nothing)}, clock
    )
    return max(seconds["long"] - seconds["short"], 0.0) / (CHAINS[1] - CHAINS[0])


def _nothing(count: int) -> None:
    """Baseline that is taken off a call of a chain: nothing, as the other chain's call is."""


def print_figures(name: str) -> int:
    """Print the file of the scaled target; 1 with a sentence on the standard error if there is
    none."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        base = load_target(name)
        target = here(base)
        if why := jit.why_not(target.machine):
            raise CannotCompile(why)
        jit.start_runtime()
        figures = measure(target)
        print(scaled_text(base.name, scaled_target(target, figures), figures.count), end="")
    except (CannotCompile, EqsatError, NoNest) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(print_figures(sys.argv[1]))
