"""Conversions between spreads: which collectives take a value from one to another, at what price.

Every axis is converted by itself, in the order that sends the least. Prices are those of a ring:
n devices pass blocks to their neighbours, n - 1 times for an all-gather or a reduce-scatter, twice
as often for an all-reduce (Patarasuk and Yuan, 2009); in an all-to-all a block travels half of the
ring on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.mesh import PARTIAL, REPLICATED, SLICE, Axis, Mesh, MeshStep, Spread
from eqsat.model.tensor import TensorType

Allowed = frozenset[tuple[str, str]]  # (axis, collective or `slice`)


@dataclass(frozen=True)
class MeshMachine:
    """Machine that prices conversions: links, and memory that is read and written beside them."""

    mesh: Mesh
    launch_ps: int
    bandwidth: float  # bytes per second of a device's memory


@lru_cache(maxsize=200_000)
def conversion(
    origin: Spread,
    result: Spread,
    t: TensorType,
    machine: MeshMachine,
    allowed: Allowed | None = None,
) -> tuple[MeshStep, ...] | None:
    """The cheapest steps from one spread to the other, () if they are the same.

    allowed: the collectives that may be used, each with its axis; None is all. None if there are
    no steps: nothing becomes parts of a sum again.
    """
    if origin == result:
        return ()
    axes = [i for i, (a, b) in enumerate(zip(origin, result, strict=True)) if a != b]
    best: tuple[MeshStep, ...] | None = None
    for order in permutations(axes):
        steps = _in_order(order, origin, result, t, machine)
        if steps is not None and allowed is not None:
            steps = steps if all((s.axis, s.kind) in allowed for s in steps) else None
        if steps is not None and (best is None or _total(steps) < _total(best)):
            best = steps
    return best


def _total(steps: tuple[MeshStep, ...]) -> int:
    return sum(s.time_ps for s in steps)


def _in_order(
    order: tuple[int, ...], origin: Spread, result: Spread, t: TensorType, machine: MeshMachine
) -> tuple[MeshStep, ...] | None:
    now, steps = origin, []
    for i in order:
        for kind in _kinds(now[i], result[i]):
            after = (*now[:i], kind, *now[i + 1 :])
            step = _step(i, now, after, t, machine)
            if step is None:
                return None
            steps.append(step)
            now = after
    return tuple(steps)


def _kinds(a: int | str, b: int | str) -> Iterator[int | str]:
    """Kinds of an axis on its way: parts of a maximum are put together before they are cut."""
    if a in PARTIAL and a != "add" and isinstance(b, int):
        yield REPLICATED
    yield b


def _step(
    i: int, before: Spread, after: Spread, t: TensorType, machine: MeshMachine
) -> MeshStep | None:
    """One axis converted; None if that is no conversion, or other axes lie inside its blocks."""
    a, b, mesh = before[i], after[i], machine.mesh
    axis, rank = mesh.axes[i], len(t.shape)
    inner = {k for k in before[i + 1 :] if isinstance(k, int)}
    if {a, b} & inner or b in PARTIAL or not mesh.fits(after, t.shape):
        return None
    nbytes, out = (_bytes(mesh, s, t, rank) for s in (before, after))
    kind, price = _PRICES[_class(a), _class(b)]
    dim, to = (a, b) if kind == "all-to-all" else (b if isinstance(b, int) else a, -1)
    dims = [d if isinstance(d, int) else -1 for d in (dim, to)]
    time_ps = out * PS_PER_SECOND / machine.bandwidth
    if kind != SLICE:
        time_ps += machine.launch_ps + nbytes * PS_PER_SECOND / machine.bandwidth
    time_ps += price(axis, nbytes, out)
    combine = str(a) if a in PARTIAL else ""
    return MeshStep(kind, axis.name, dims[0], dims[1], combine, nbytes, math.ceil(time_ps))


def _class(kind: int | str) -> str:
    return "cut" if isinstance(kind, int) else "parts" if kind in PARTIAL else "all"


def _bytes(mesh: Mesh, spread: Spread, t: TensorType, rank: int) -> int:
    return t.with_shape(mesh.local(spread, t.shape)).nbytes


def panel_steps(
    t: TensorType, read: Spread, whole: Spread, dim: int, panels: int, machine: MeshMachine
) -> tuple[MeshStep, ...]:
    """Steps that gather one panel of an operand along a dim, the innermost axis first."""
    mesh, steps = machine.mesh, list[MeshStep]()
    nbytes = math.ceil(_bytes(mesh, read, t, len(t.shape)) / panels)
    for i in reversed(range(len(mesh.axes))):
        if read[i] == whole[i]:
            continue
        axis, out = mesh.axes[i], nbytes * mesh.axes[i].devices
        time_ps = machine.launch_ps + (nbytes + out) * PS_PER_SECOND / machine.bandwidth
        time_ps += _gather(axis, nbytes, out)
        steps.append(MeshStep("all-gather", axis.name, dim, -1, "", nbytes, math.ceil(time_ps)))
        nbytes = out
    return tuple(steps)


# ---- rings: picoseconds for (axis, bytes of a device before, bytes after) ------------------------
def _gather(axis: Axis, nbytes: int, out: int) -> float:
    return (axis.devices - 1) * axis.hop_ps(nbytes)


def _scatter(axis: Axis, nbytes: int, out: int) -> float:
    return (axis.devices - 1) * axis.hop_ps(out)


def _reduce(axis: Axis, nbytes: int, out: int) -> float:
    return 2 * (axis.devices - 1) * axis.hop_ps(nbytes / axis.devices)


def _exchange(axis: Axis, nbytes: int, out: int) -> float:
    return (axis.devices - 1) * axis.hop_ps(nbytes / 2)


def _nothing(axis: Axis, nbytes: int, out: int) -> float:
    return 0.0


_PRICES: dict[tuple[str, str], tuple[str, Callable[[Axis, int, int], float]]] = {
    ("cut", "all"): ("all-gather", _gather),
    ("parts", "cut"): ("reduce-scatter", _scatter),
    ("parts", "all"): ("all-reduce", _reduce),
    ("cut", "cut"): ("all-to-all", _exchange),
    ("all", "cut"): (SLICE, _nothing),
}
