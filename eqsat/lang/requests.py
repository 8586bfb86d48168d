"""Requests as command lines and experiments write them: settings, goals, limits, meshes.

A setting (`--set key=value`) is one key of a target, checked as its file would be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from eqsat.lang.problems import schema_problems
from eqsat.lang.source import Lines, YamlSource, read_yaml, refuse
from eqsat.lang.targetformat import TargetRecord
from eqsat.lang.targets import OWN_KEYS, join_problems, mesh_problems
from eqsat.lang.targetvalues import (
    dispatch_limits_of,
    fusion_of,
    kernels_text,
    links_of,
    mesh_of,
    pipeline_of,
    pipelines_of,
    target_of,
)
from eqsat.lang.units import read_quantity
from eqsat.model.attr import Shape
from eqsat.model.diag import Diagnostic, EqsatError, check_known, did_you_mean, fail
from eqsat.model.limits import KEYS, Limits, check_key
from eqsat.model.mesh import REPLICATED, Mesh, Spread
from eqsat.model.pipelines import Pipeline
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.plugins import plugged_in

_KEY = re.compile(r"[a-z_0-9]+(\.[a-z_0-9/-]+)*")


def override(target: Target, settings: Sequence[str]) -> Target:
    """The target with `--set key=value` applied in order; a value is YAML.

    >>> override(target, ["fusion.multi_result=true", "limits.vector=8 KiB"])

    E208 if a setting is not `key=value` of a target; other codes as in files, naming the setting.
    """
    problems: list[Diagnostic] = []
    for setting in settings:
        try:
            target = _override(target, setting)
        except EqsatError as error:
            problems += [
                replace(d, message=f"`--set {setting}`: {d.message}", span=None, notes=())
                for d in error.diagnostics
            ]
    refuse(problems)
    return target


def _override(target: Target, setting: str) -> Target:
    key, equals, value = setting.partition("=")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key):
        raise fail("E208", "a setting is `key=value`", help="`--set fusion.multi_result=true`")
    path = key.split(".")
    if path[0] in ("target", "extends") or path[0] not in TargetRecord.model_fields:
        keys = [k for k in TargetRecord.model_fields if k not in OWN_KEYS]
        raise fail("E208", f"a target has no key `{path[0]}`", help=did_you_mean(path[0], keys))
    data: dict[str, Any] = {path[-1]: read_yaml(value or '""', "--set").data}
    for part in reversed(path[:-1]):
        data = {part: data}
    return _apply(target, path, data)


def _apply(target: Target, path: list[str], data: dict[str, Any]) -> Target:
    """The target with one key changed; the rest of a record is filled up to check it."""
    base: dict[str, Any] = {"target": "x", "doc": "x", "executor": "xla", "data_tiling": True}
    base["memory"] = [{"name": "x", "size": "1 B", "bandwidth": "1 B/s"}]
    if path[0] == "kernels" and len(path) > 1 and target.kernels is not None:
        data = {"kernels": kernels_text(target.kernels) | data["kernels"]}
    rows = target.row_padding
    if path[0] == "row_padding" and len(path) > 1 and rows is not None:
        kept = {"line": f"{rows.line_bytes} B", "sets": rows.sets, "operands": [*rows.operands]}
        data = {"row_padding": kept | data["row_padding"]}
    whole = base | data
    lines = Lines("--set", "")
    try:
        record = TargetRecord.model_validate(whole)
    except ValidationError as error:
        source = YamlSource(lines, whole, {}, {}, {}, frozenset(), ())
        raise EqsatError(*schema_problems(error, source, TargetRecord)) from None
    new = target_of(record)
    changed = replace(target, **_changes(target, new, record, path))
    if path[0] == "fusion":
        refuse([*join_problems(changed.fusion, None)])
    places = dict(target.places) | {".".join(path): f"--set {'.'.join(path)}"}
    return replace(changed, places=tuple(sorted(places.items())))


def _piped(target: Target, record: TargetRecord, path: list[str]) -> tuple[Pipeline, ...]:
    """All of them anew, one of them (`null`: without it), or one key of one."""
    replaced = {p.name: p for p in pipelines_of(record)}
    if len(path) == 1:
        return tuple(replaced.values())
    name, present = path[1], {p.name: p for p in target.pipelines}
    written = record.pipelines[name]
    if written is None:
        if (
            present and name not in present
        ):  # where there are none, the answer is what was asked for
            raise fail("E208", f"no pipeline named `{name}`", help=did_you_mean(name, present))
        return tuple(p for p in target.pipelines if p.name != name)
    base = present.get(name, Pipeline(name)) if len(path) > 2 else Pipeline(name)
    return tuple((present | {name: pipeline_of(base, written)}).values())


def _meshed(target: Target, record: TargetRecord, head: str, one: bool) -> dict[str, Any]:
    """The mesh and the links of its axes, one of them anew or all."""
    links, old = {k.name: k for k in target.mesh_links}, target.mesh
    sizes = dict(zip(old.names, old.sizes, strict=True)) if old else {}
    if head == "mesh":
        sizes = sizes | record.mesh if one else dict(record.mesh)
    else:
        given = {k.name: k for k in links_of(record)}
        links = links | given if one else given
    refuse([*mesh_problems(sizes, links, target.executor, None)])
    limit = old.memory_bytes if old else target.memory[-1].size_bytes
    mesh = mesh_of(tuple(links.values()), sizes, limit or target.memory[-1].size_bytes)
    return {"mesh": mesh, "mesh_links": tuple(links.values())}


def _changes(target: Target, new: Target, record: TargetRecord, path: list[str]) -> dict[str, Any]:
    """The fields of a Target that a setting changes."""
    head = path[0]
    if head == "fusion":
        return {"fusion": fusion_of(target.fusion, record.fusion)}
    if head == "limits":
        return {"limits": dispatch_limits_of(target.limits, record.limits)}
    if head in ("rates", "budget") and len(path) > 1:
        return {head: tuple((dict(getattr(target, head)) | dict(getattr(new, head))).items())}
    if head == "tiles":
        written = record.tiles.model_fields_set
        if len(path) == 1:
            return {"tiles": new.tiles, "strategies": new.strategies}
        merged = dict(target.tiles) | {kind: dict(new.tiles).get(kind, ()) for kind in written}
        computed = {k: v for k, v in target.strategies if k not in written} | dict(new.strategies)
        return {
            "tiles": tuple((k, v) for k, v in merged.items() if v),
            "strategies": tuple(computed.items()),
        }
    if head in ("mesh", "mesh_links"):
        return _meshed(target, record, head, len(path) > 1)
    if head == "pipelines":
        return {"pipelines": _piped(target, record, path)}
    if head == "untiled" and len(path) > 1:
        written = record.untiled.model_fields_set
        merged = dict(target.untiled) | {kind: new.untiled_kernels(kind) for kind in written}
        return {"untiled": tuple((k, v) for k, v in merged.items() if v)}
    field = {"launch": "launch_ps"}.get(head, head)
    return {field: getattr(new, field)}


# ---- goals ---------------------------------------------------------------------------------------
GOALS = ("time", "memory", "dispatches", "relayout", "permutes", "resident", "load_peak")
_NUMBER = r"\d+(?:\.\d+)?"
_GOAL = re.compile(rf"(\w+)(?::(?:(?P<weight>{_NUMBER})|within=(?P<within>{_NUMBER})\s*%))?")


def parse_goals(texts: Sequence[str]) -> tuple[GoalRequest, ...]:
    """`time`, `memory:within=1%`, or all of them with weights: `time:2`, `memory:1`.

    E264 if a goal cannot be read, E404 if some have weights and some have not.
    """
    goals = tuple(_goal(t) for t in texts)
    weighted = [g.weight is not None for g in goals]
    if any(weighted) and not all(weighted):
        message = "goals have weights either all or none"
        raise fail("E404", message, help="without weights the first goal is minimised first")
    names = [g.name for g in goals]
    if len(set(names)) < len(names):
        raise fail("E264", "a goal is named twice")
    return goals


def _goal(text: str) -> GoalRequest:
    match = _GOAL.fullmatch(text.strip())
    goals = (*GOALS, *plugged_in("goals"))
    word = text.partition(":")[0].strip()
    check_known(word, goals, "E264", f"no goal named `{word}`")
    if match is None:
        hint = f"write `{word}:0.5` or `{word}:within=1%`"
        raise fail("E264", f"cannot read the goal `{text}`", help=hint)
    weight = None if match["weight"] is None else float(match["weight"])
    return GoalRequest(word, weight, float(match["within"] or 0) / 100)


# ---- limits --------------------------------------------------------------------------------------
def read_limits(texts: Iterable[str]) -> Limits:
    """`nodes=20000`, `rounds=10`, `matches=5000`, `seconds=2`; later ones count.

    EqsatError: E408 for what is no limit, E2xx for a time that cannot be read.
    """
    limits: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            help = f"write `nodes=20000`; there are {', '.join(KEYS)}"
            raise fail("E408", f"`--limit {text}` is no limit", help=help)
        limits[key.strip()] = value.strip()
    return limits_of(limits, "--limit")


def limits_of(given: Mapping[str, Any], where: str = "limits") -> Limits:
    """Limits by key; values as YAML or a command line has them. EqsatError (E408, E2xx)."""
    for key in given:
        check_key(key, where)
    return Limits(**{key: _value(key, value, where) for key, value in given.items()})


def _value(key: str, value: Any, where: str) -> Any:
    text = str(value).strip()
    if key != "seconds":
        digits = text.replace("_", "").replace(",", "").removeprefix("-")
        if isinstance(value, bool) or not digits.isdecimal():
            raise fail("E408", f"{where}: `{key}` is {text}", help="a whole number, without a unit")
        return int(text.replace("_", "").replace(",", ""))
    try:
        return float(text)
    except ValueError:
        return float(read_quantity(text, "duration", f"{where} seconds"))


# ---- meshes and spreads --------------------------------------------------------------------------
FREE = "free"  # of an argument or result: the search decides
_AXIS = re.compile(r"\s*([a-z][a-z0-9_]*)\s*=\s*([0-9]+)\s*")


def with_mesh(target: Target, text: str) -> Target:
    """The target with devices along these axes (`data=4,model=2`), whose links it knows.

    EqsatError: E232 if the text says no mesh, E230 if an axis has no link or another executor runs
    the target.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        match = _AXIS.fullmatch(part)
        if match is None or not int(match[2]) or match[1] in sizes:
            help = "write each axis once, with its devices: `--mesh data=4,model=2`"
            raise fail("E232", f"`--mesh {text}`: `{part.strip()}` is no axis", help=help)
        sizes[match[1]] = int(match[2])
    links = {k.name for k in target.mesh_links}
    for name in sizes.keys() - links:
        help = did_you_mean(name, links) if links else "use a target that has `mesh_links`"
        help += f"; or add `--set 'mesh_links.{name}={{bandwidth: 45 GB/s, latency: 1 us}}'`"
        raise fail("E230", f"`{target.name}` knows no link of axis `{name}`", help=help)
    refuse([*mesh_problems(sizes, links, target.executor, None)])
    limit = target.memory[-1].size_bytes
    if target.mesh is not None and target.mesh.memory_bytes is not None:
        limit = target.mesh.memory_bytes
    return replace(target, mesh=mesh_of(target.mesh_links, sizes, limit))


def with_shards(target: Target, shards: Mapping[str, str]) -> Target:
    """The target's mesh with these spreads asked for; EqsatError E232 where there is no mesh."""
    if not shards:
        return target
    if target.mesh is None:
        help = "use a target with a `mesh`, or `--mesh data=4`"
        raise fail("E232", f"`{target.name}` is one device, so nothing is sharded", help=help)
    return replace(target, mesh=replace(target.mesh, shards=tuple(shards.items())))


def read_shards(texts: Sequence[str]) -> dict[str, str]:
    """Spreads of `--shard` by name; E232 if it is not NAME=SPREAD."""
    spreads: dict[str, str] = {}
    for text in texts:
        name, equals, spread = text.partition("=")
        if not name.strip() or not equals:
            help = "e.g. `--shard 'x=[data, -]'`"
            raise fail("E232", f"`--shard {text}` is not NAME=SPREAD", help=help)
        spreads[name.strip()] = spread.strip()
    return spreads


def read_spread(text: str, name: str, shape: Shape, mesh: Mesh) -> Spread | None:
    """`[data, -, model]` for a tensor of this shape; None for `free`.

    EqsatError (E232) if it has another number of dims, names an axis that is not there or twice,
    or cuts a dim that does not divide.
    """
    if text.strip() == FREE:
        return None
    dims = [d.strip() for d in text.strip().removeprefix("[").removesuffix("]").split(",")]
    dims = [] if dims == [""] and not shape else dims
    if len(dims) != len(shape):
        help = f"write one axis or `-` per dim: `[{', '.join('-' * len(shape))}]`"
        raise fail("E232", f"`{name}={text}` has {len(dims)} dims, not {len(shape)}", help=help)
    spread: list[int | str] = [REPLICATED] * len(mesh.axes)
    for dim, axes in enumerate(dims):
        for axis in (a.strip() for a in axes.split("+")):
            if axis in ("-", ""):
                continue
            check_known(axis, mesh.names, "E232", f"`{name}={text}`: the mesh has no axis `{axis}`")
            at = mesh.names.index(axis)
            if spread[at] != REPLICATED:
                raise fail("E232", f"`{name}={text}` cuts two dims over `{axis}`")
            spread[at] = dim
    if not mesh.fits(tuple(spread), shape):
        help = f"the mesh is {mesh.to_text()}: use an axis that divides the dim, or another mesh"
        message = f"`{name}={text}`: the blocks of {list(shape)} are not of one size"
        raise fail("E232", message, help=help)
    return tuple(spread)
