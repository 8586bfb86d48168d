"""Equations that touch values programs cannot hold (PRNG keys, complex numbers) → kept regions.

What comes in is a jaxpr, what goes out is a list of units in an order that can be executed: single
equations, and regions of several that are kept as one opaque op so that the foreign value never
leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from eqsat.frontends.values import dtype_name


@dataclass(frozen=True)
class EquationGroup:
    """Equations, in order; more than one, or `foreign`, means they are kept whole."""

    eqns: tuple[Any, ...]
    foreign: bool = False


def is_foreign(v: Any) -> bool:
    """Whether a variable or literal has a type that programs have no name for."""
    dtype = getattr(v.aval, "dtype", None)
    return dtype is None or dtype_name(dtype) is None


def units(jaxpr: Any) -> Iterator[tuple[EquationGroup, list[Any]]]:
    """The equations of a jaxpr, foreign ones grouped into convex regions, in executable order.

    Beside each unit the variables it defines for what comes after.
    """
    eqns = list(jaxpr.eqns)
    touched = [any([is_foreign(v) for v in (*e.invars, *e.outvars)]) for e in eqns]
    if not any(touched):
        return ((EquationGroup((e,)), e.outvars) for e in eqns)
    parts = _regions(eqns, touched)
    return ((u, _exports(parts, at, jaxpr)) for at, u in enumerate(parts))


def _exports(parts: list[EquationGroup], at: int, jaxpr: Any) -> list[Any]:
    """What a unit defines; of a region, what something after it reads."""
    if not parts[at].foreign:
        return parts[at].eqns[0].outvars
    read = {id(v) for u in parts[at + 1 :] for e in u.eqns for v in e.invars}
    read |= {id(v) for v in jaxpr.outvars}
    return [v for e in parts[at].eqns for v in e.outvars if id(v) in read]


def _regions(eqns: list[Any], touched: list[bool]) -> list[EquationGroup]:
    producers = _producers(eqns)
    needs = [sorted({producers[v] for v in _variables(e) if v in producers}) for e in eqns]
    label = _close(needs, _components(eqns, touched, producers))
    members: dict[int, list[int]] = {}
    for i in range(len(eqns)):
        members.setdefault(label[i], []).append(i)
    foreign = {label[i] for i, t in enumerate(touched) if t}
    return [
        EquationGroup(tuple(eqns[i] for i in members[group]), group in foreign)
        for group in _order(members, label, needs)
    ]


def _variables(eqn: Any) -> Iterator[Any]:
    from jax.extend.core import Literal

    return (v for v in eqn.invars if not isinstance(v, Literal))


def _producers(eqns: list[Any]) -> dict[Any, int]:
    return {v: i for i, e in enumerate(eqns) for v in e.outvars}


def _components(eqns: list[Any], touched: list[bool], producers: dict[Any, int]) -> list[int]:
    """A group number per equation: equations that pass a foreign value share one."""
    label = list(range(len(eqns)))
    for i, e in enumerate(eqns):
        if not touched[i]:
            continue
        for v in _variables(e):
            if v in producers and is_foreign(v):
                _merge(label, label[producers[v]], label[i])
    return label


def _merge(label: list[int], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    for i, group in enumerate(label):
        if group == high:
            label[i] = low


def _close(needs: list[list[int]], label: list[int]) -> list[int]:
    """Take in whatever lies on a path that leaves a group and comes back, until none does."""
    while True:
        outside = _path_back(needs, label)
        if outside is None:
            return label
        _merge(label, *outside)


def _path_back(needs: list[list[int]], label: list[int]) -> tuple[int, int] | None:
    """Two groups on a common cycle of the group graph, or None if it has no cycle."""
    groups = sorted({g for g in label if label.count(g) > 1})
    for group in groups:
        below: set[int] = {group}  # groups that depend on this one, itself included
        changed = True
        while changed:
            changed = False
            for i, sources in enumerate(needs):
                if label[i] not in below and any(label[s] in below for s in sources):
                    below.add(label[i])
                    changed = True
        for i, sources in enumerate(needs):
            for s in sources:
                if label[i] == group and label[s] != group and label[s] in below:
                    return group, label[s]
    return None


def _order(members: dict[int, list[int]], label: list[int], needs: list[list[int]]) -> list[int]:
    """Groups such that each follows what it reads, in the program's order where it can."""
    waits = {g: {label[s] for i in inside for s in needs[i]} - {g} for g, inside in members.items()}
    readers: dict[int, list[int]] = {g: [] for g in waits}
    for g, sources in waits.items():
        for s in sources:
            readers[s].append(g)
    left = {g: len(sources) for g, sources in waits.items()}
    ready, done = [g for g, n in left.items() if not n], []
    heapify(ready)
    while ready:
        done.append(heappop(ready))
        for g in readers[done[-1]]:
            left[g] -= 1
            if not left[g]:
                heappush(ready, g)
    return done
