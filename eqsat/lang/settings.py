"""`--set key=value`: one key of a target at a time, checked as its file would be."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from eqsat.model.diag import Diagnostic, EqsatError, did_you_mean, fail
from eqsat.model.pipelines import Pipeline
from eqsat.model.target import Target

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
