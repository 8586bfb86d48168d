"""Values of a run → ones that somebody damaged or made up, by what was done to them; seeded."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eqsat.model.dispatch import Plan
from eqsat.model.egraph import EGraph
from eqsat.model.generic import Generic
from eqsat.model.schedule import Buffer, Dispatch, Schedule
from eqsat.model.selection import Cut, GoalResult, Group, Removed, Selection
from eqsat.run.artefact import encoded, sealed

FAR = (-1, -7, 99_999, 1 << 40)  # numbers of nothing


def one(values: Sequence[Any], at: int, new: Any) -> tuple[Any, ...]:
    """With another value at this place."""
    return (*values[:at], new, *values[at + 1 :])


def without(values: Sequence[Any], at: int) -> tuple[Any, ...]:
    return (*values[:at], *values[at + 1 :])


# ---- selections ----------------------------------------------------------------------------------
def selections(s: Selection, egraph: EGraph, seed: int = 0) -> Iterator[tuple[str, Selection]]:
    """Selections that say something else than this one, with the kind of each."""
    rng = random.Random(seed)
    for at, g in enumerate(s.groups):
        for kind, made in _groups(g, egraph, rng):
            yield kind, replace(s, groups=one(s.groups, at, made))
        yield "drop group", replace(s, groups=without(s.groups, at))
        yield "double group", replace(s, groups=(*s.groups, g))
    for number in (*FAR, 0):
        yield "ahead", replace(s, ahead=(*s.ahead, number))
    for at in range(len(s.ahead)):
        yield "drop ahead", replace(s, ahead=without(s.ahead, at))
    yield "no groups", replace(s, groups=())
    yield (
        "reversed",
        replace(s, groups=s.groups[::-1]) if len(s.groups) > 1 else replace(s, stop=""),
    )
    yield "stop", replace(s, stop="bored")
    yield "cut", replace(s, stop="optimal", cuts=(Cut("groups", 3, "candidates"),))
    yield "removed", replace(s, removed=(Removed("x", 1, 2, "vector", ""),))
    yield "candidates", replace(s, candidates=-3)
    for i, (name, r) in enumerate(s.goals):
        for value in (GoalResult(r.value + 1, r.bound), GoalResult(r.value, r.value + 1),
                      GoalResult(r.value, -1)):  # fmt: skip
            yield "goal", replace(s, goals=one(s.goals, i, (name, value)))
    yield "goal", replace(s, goals=(("time", s.goals[0][1]), ("nobody", s.goals[0][1])))


def _groups(g: Group, egraph: EGraph, rng: random.Random) -> Iterator[tuple[str, Group]]:
    nodes, classes = len(egraph.nodes), len(egraph.types)
    for i in range(len(g.members)):
        yield "drop member", replace(g, members=without(g.members, i))
        yield "double member", replace(g, members=(*g.members, g.members[i]))
        other = (g.members[i] + 1 + rng.randrange(max(nodes - 1, 1))) % nodes
        yield "other member", replace(g, members=one(g.members, i, other))
    for number in FAR:
        yield "no such member", replace(g, members=(*g.members, number))
        yield "no such read", replace(g, reads=(*g.reads, number))
        yield "no such write", replace(g, writes=(*g.writes, number))
    for name in ("reads", "writes"):
        held = getattr(g, name)
        yield f"no {name}", replace(g, **{name: ()}) if held else replace(g, time_ps=g.time_ps + 1)
        for i in range(len(held)):
            other = (held[i] + 1 + rng.randrange(max(classes - 1, 1))) % classes
            yield f"other {name}", replace(g, **{name: one(held, i, other)})
            yield f"double {name}", replace(g, **{name: (*held, held[i])})
    if len(g.members) > 1:
        yield "member order", replace(g, members=g.members[::-1])
    yield "time", replace(g, time_ps=g.time_ps + 1)
    yield "time", replace(g, time_ps=g.time_ps // 2 - 5)
    yield "step", replace(g, step=g.step + 7)
    yield "pipeline", replace(g, pipeline="nobody's")


# ---- schedules -----------------------------------------------------------------------------------
def schedules(s: Schedule, seed: int = 0) -> Iterator[tuple[str, Schedule]]:
    """Schedules that say something else than this one, with the kind of each."""
    rng = random.Random(seed)
    for at, d in enumerate(s.dispatches):
        for kind, made in _dispatches(d, s):
            yield kind, replace(s, dispatches=one(s.dispatches, at, made))
        yield "drop dispatch", replace(s, dispatches=without(s.dispatches, at))
        yield "double dispatch", replace(s, dispatches=(*s.dispatches, d))
    for at, b in enumerate(s.buffers):
        for kind, made in _buffers(b):
            yield kind, replace(s, buffers=one(s.buffers, at, made))
        yield "drop buffer", replace(s, buffers=without(s.buffers, at))
        yield "double buffer", replace(s, buffers=(*s.buffers, b))
    yield from _programs(s, rng)
    yield "target", replace(s, target="nobody's")
    yield "originals", replace(s, originals="lost")
    yield "ahead", replace(s, ahead=(*s.ahead, s.program.inputs[0]))
    yield "in place", replace(s, in_place=((s.program.results[0], s.program.inputs[0]),))


def _dispatches(d: Dispatch, s: Schedule) -> Iterator[tuple[str, Dispatch]]:
    others = [o.plan for o in s.dispatches if o.plan is not None and o.plan != d.plan]
    if d.plan is not None:
        yield "no plan", replace(d, plan=None, parts=None)
        yield "no parts", replace(d, parts=None)
        yield from (("other plan", replace(d, plan=p)) for p in others[:1])
        yield from (("edited plan", replace(d, plan=p)) for p in plans(d.plan))
    yield "time", replace(d, time_ps=d.time_ps // 2 - 5)
    yield "time", replace(d, time_ps=d.time_ps + 1)
    yield "step", replace(d, step=d.step + 1)
    yield "pipeline", replace(d, pipeline="nobody's")
    yield "device", replace(d, device="nobody's")
    for name in ("members", "reads", "writes"):
        held = getattr(d, name)
        for i in range(len(held)):
            yield f"drop of {name}", replace(d, **{name: without(held, i)})
            other = (held[i] + 1) % len(s.program.nodes)
            yield f"other of {name}", replace(d, **{name: one(held, i, other)})
        for number in FAR:
            yield f"no such {name}", replace(d, **{name: (*held, number)})


def plans(plan: Plan) -> Iterator[Plan]:
    """Plans with one number changed."""
    for name, value in vars(plan).items():
        if isinstance(value, int) and not isinstance(value, bool):
            for new in (value + 1, value * 50 + 3, 0, -1, 1 << 45):
                if new != value:
                    yield replace(plan, **{name: new})
        elif isinstance(value, tuple) and value:
            yield replace(plan, **{name: value[1:]})


def _buffers(b: Buffer) -> Iterator[tuple[str, Buffer]]:
    for number in (b.nbytes - 1, b.nbytes + 1, 0, -4):
        yield "bytes", replace(b, nbytes=number)
    yield "role", replace(b, role="weight" if b.role != "weight" else "temporary")
    yield "role", replace(b, role="nobody's")
    yield "late life", replace(b, first=b.first + 1)
    yield "short life", replace(b, last=b.last - 1)
    yield "node", replace(b, node=FAR[0])
    if b.offset is not None:
        yield "offset", replace(b, offset=-64)
        yield "offset", replace(b, offset=None)


def _programs(s: Schedule, rng: random.Random) -> Iterator[tuple[str, Schedule]]:
    p = s.program
    if len(set(p.results)) > 1:
        yield "swapped results", replace(s, program=replace(p, results=p.results[::-1]))
    for at, n in enumerate(p.nodes):
        if len(n.operands) > 1:
            made = replace(n, operands=n.operands[::-1])
            if made != n:
                yield (
                    "swapped operands",
                    replace(s, program=replace(p, nodes=one(p.nodes, at, made))),
                )
        if n.operands:
            made = replace(n, operands=one(n.operands, 0, rng.randrange(at)))
            if made != n:
                yield "other operand", replace(s, program=replace(p, nodes=one(p.nodes, at, made)))
        for attr in _attrs(n.attr):
            made = replace(n, attr=attr)
            yield "combine", replace(s, program=replace(p, nodes=one(p.nodes, at, made)))


def _attrs(attr: Any) -> Iterator[Any]:
    """Reductions that combine otherwise."""
    if not isinstance(attr, Generic):
        return
    for i, y in enumerate(attr.yields):
        if y.combine:
            combine = "max" if y.combine != "max" else "add"
            yield replace(attr, yields=one(attr.yields, i, replace(y, combine=combine)))


# ---- folders of runs -----------------------------------------------------------------------------
ODD = (None, True, -1, 0, 1 << 70, 0.5, "1 GB/s", "", [], {}, [1, "x"], {"kind": "nobody's"})


def artefact(folder: Path, seed: int) -> str:
    """Edit one value of a run's folder and seal it again; which file, and what was done."""
    rng = random.Random(seed)
    files = [p for p in sorted(folder.glob("*.json")) if p.name not in ("summary.json",)]
    path = rng.choice(files)
    data = json.loads(path.read_text(encoding="utf-8"))
    place = _edit(data, rng)
    path.write_text(json.dumps(data), encoding="utf-8")
    reseal(folder)
    return f"{path.name}: {place}"


def _edit(data: Any, rng: random.Random) -> str:
    """Change, drop, double or swap something inside of JSON data; where and how."""
    path = []
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = rng.choice(keys)
        path.append(str(key))
        inner = data[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.15:
            break
        data = inner
    return f"{'.'.join(path)} {_change(data, key, rng)}"


def _change(data: Any, key: Any, rng: random.Random) -> str:
    old = data[key]
    how = rng.choice(("odd", "number", "drop", "double", "other"))
    if how == "number" and isinstance(old, int | float) and not isinstance(old, bool):
        data[key] = rng.choice((old + 1, old * 50 + 3, -old - 1, old // 2))
    elif how == "drop":
        del data[key]
    elif how == "double" and isinstance(data, list):
        data.append(old)
    elif how == "other" and isinstance(data, list):
        data[key] = rng.choice(data)
    else:
        how = "odd"
        data[key] = rng.choice(ODD)
    return how


def reseal(folder: Path) -> None:
    """Seal a run as eqsat does, whatever its files say."""
    own = folder / "manifest.json"
    manifest = json.loads(own.read_text(encoding="utf-8"))
    names = [n for n in manifest.get("sha256", {}) if (folder / n).is_file()]
    digests = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names}
    own.write_bytes(encoded(sealed(manifest, digests)))
