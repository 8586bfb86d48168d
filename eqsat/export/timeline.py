"""A schedule for viewers of other tools: Perfetto, Chrome, Graphviz, Model Explorer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from eqsat.export.plan import Exported
from eqsat.model.schedule import Dispatch, Schedule

VIEWERS = ("trace", "dot", EXPLORER := "explorer")
PS_PER_US = 1e6
PREDICTED, MEASURED = 1, 2  # processes of a trace


Rejected = Mapping[int, Sequence[str]]  # number of a dispatch → what its values could have been


def view(schedule: Schedule, to: str, name: str, rejected: Rejected) -> Exported:
    """The schedule of a program of this name as one of `VIEWERS`, as files in memory."""
    schedule = replace(schedule, program=replace(schedule.program, name=name))
    if to == EXPLORER:
        beside = f"{name}.times.json"
        texts = {"": explorer_text(schedule, rejected), beside: explorer_times(schedule)}
    else:
        texts = {"": trace_text(schedule) if to == "trace" else dot_text(schedule)}
    files = tuple((name, text.encode("utf-8")) for name, text in texts.items())
    return Exported(files, len(schedule.dispatches))


def trace_text(schedule: Schedule, measured: Mapping[int, float] | None = None) -> str:
    """Trace Event JSON: a track of predicted dispatches per device, and the bytes that are live.

    measured: microseconds by number of a dispatch, drawn as a second process, one after the other.
    """
    predicted = {i: d.time_ps / PS_PER_US for i, d in enumerate(schedule.dispatches)}
    events = _track(schedule, predicted, PREDICTED, "predicted")
    events += _live(schedule, events)
    if measured:
        events += _track(schedule, dict(measured), MEASURED, "measured, each alone")
    data = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"by": "eqsat"}}
    return json.dumps(data, indent=1) + "\n"


def _track(
    schedule: Schedule, us: Mapping[int, float], process: int, name: str
) -> list[dict[str, Any]]:
    """The dispatches with a time, one step after the other; devices work side by side in a step."""
    devices = list(dict.fromkeys(d.device for d in schedule.dispatches))
    events: list[dict[str, Any]] = [_named("process_name", process, 0, f"{name} time")]
    for thread, device in enumerate(devices):
        events.append(_named("thread_name", process, thread, device or "dispatches"))
    begin = 0.0
    numbered = [(i, d) for i, d in enumerate(schedule.dispatches) if i in us]
    for _, step in groupby(numbered, key=lambda pair: pair[1].step):
        ends = dict.fromkeys(devices, begin)
        for i, d in step:
            events.append(
                {
                    "name": d.name or d.ops, "cat": "dispatch", "ph": "X", "ts": ends[d.device],
                    "dur": us[i], "pid": process, "tid": devices.index(d.device),
                    "args": _args(schedule, i, d),
                }
            )  # fmt: skip
            ends[d.device] += us[i]
        begin = max(ends.values())
    return events


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _args(schedule: Schedule, i: int, d: Dispatch) -> dict[str, Any]:
    """What a viewer shows of a dispatch that is clicked."""
    name = schedule.program.value_name
    told = {
        "dispatch": i, "ops": d.ops, "bound": d.bound_text,
        "reads": ", ".join(map(name, d.reads)), "writes": ", ".join(map(name, d.writes)),
        "predicted_us": d.time_ps / PS_PER_US,
    }  # fmt: skip
    return {k: v for k, v in told.items() if v != ""}


def _live(schedule: Schedule, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes of temporaries that are live when each step begins, as a counter."""
    begins: dict[int, float] = {}
    for e in events:
        if e["ph"] == "X":
            begins.setdefault(schedule.dispatches[e["args"]["dispatch"]].step, e["ts"])
    return [
        {
            "name": "live temporaries", "ph": "C", "ts": ts, "pid": PREDICTED,
            "args": {
                "bytes": sum(b.nbytes for b in schedule.temporaries if b.first <= step <= b.last)
            },
        }
        for step, ts in begins.items()
    ]  # fmt: skip


# ---- graphs --------------------------------------------------------------------------------------
def _arguments(schedule: Schedule) -> list[int]:
    """Arguments of the program that a dispatch reads."""
    nodes = schedule.program.nodes
    reads = dict.fromkeys(r for d in schedule.dispatches for r in d.reads)
    return [n for n in reads if nodes[n].op == "input"]


def _edges(schedule: Schedule) -> Iterator[tuple[str, int, int, int]]:
    """(id of the source, number of its result, dispatch that reads, value); none from weights."""
    sources = {n: (f"v{n}", 0) for n in _arguments(schedule)}
    for i, d in enumerate(schedule.dispatches):
        sources |= {w: (f"d{i}", k) for k, w in enumerate(d.writes)}
    for i, d in enumerate(schedule.dispatches):
        yield from ((*sources[r], i, r) for r in d.reads if r in sources)


def dot_text(schedule: Schedule) -> str:
    """A Graphviz digraph: dispatches with their times, values between them with their bytes."""
    program = schedule.program
    lines = [
        f"digraph {_quoted(program.name)} {{",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]
    for i, d in enumerate(schedule.dispatches):
        label = f"{d.name or d.ops}\n{d.time_ps / PS_PER_US:.4g} us"
        lines.append(f"  d{i} [label={_quoted(label)}, tooltip={_quoted(d.ops)}];")
    for n in _arguments(schedule):
        lines.append(f"  v{n} [label={_quoted(program.value_name(n))}, shape=ellipse];")
    for source, _, i, value in _edges(schedule):
        label = f"{program.value_name(value)}\n{program.nodes[value].type}"
        lines.append(f"  {source} -> d{i} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A string of DOT; line breaks are kept."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'


# ---- Model Explorer ------------------------------------------------------------------------------
def explorer_text(schedule: Schedule, rejected: Rejected) -> str:
    """Model Explorer's graph JSON: a node per argument and dispatch, in groups by their names."""
    name = schedule.program.value_name
    nodes = {f"v{n}": _node(schedule, f"v{n}", name(n), (n,), {}) for n in _arguments(schedule)}
    for i, d in enumerate(schedule.dispatches):
        facts = _args(schedule, i, d) | {"instead": "\n".join(rejected.get(i, ()))}
        nodes[f"d{i}"] = _node(schedule, f"d{i}", d.name or d.ops, d.writes, facts)
    for source, output, i, value in _edges(schedule):
        edges = nodes[f"d{i}"]["incomingEdges"]
        ends = source, str(output), str(schedule.dispatches[i].reads.index(value))
        keys = "sourceNodeId", "sourceNodeOutputId", "targetNodeInputId"
        edges.append(dict(zip(keys, ends, strict=True)))
    return json.dumps([{"id": schedule.program.name, "nodes": [*nodes.values()]}], indent=1) + "\n"


def _node(
    schedule: Schedule, id: str, label: str, values: Sequence[int], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """A node with the values that leave it; `layer.0.mlp` is `mlp` in the group `layer/0`."""
    named, at, layout = label.partition("@")  # a layout has dots, too
    group, _, own = named.rpartition(".")
    types = {v: schedule.program.nodes[v].type for v in values}
    outputs = [
        {"name": schedule.program.value_name(v), "tensor_shape": t, "bytes": t.nbytes}
        for v, t in types.items()
    ]
    return {
        "id": id, "label": own + at + layout, "namespace": group.replace(".", "/"),
        "attrs": _pairs({k: v for k, v in facts.items() if v != ""}), "incomingEdges": [],
        "outputsMetadata": [{"id": str(k), "attrs": _pairs(o)} for k, o in enumerate(outputs)],
    }  # fmt: skip


def _pairs(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"key": k, "value": str(v)} for k, v in facts.items()]


def explorer_times(schedule: Schedule) -> str:
    """Node data of Model Explorer: predicted microseconds, which colour the nodes."""
    results = {f"d{i}": {"value": d.time_ps / PS_PER_US} for i, d in enumerate(schedule.dispatches)}
    colours = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f4a261"}]
    return json.dumps({schedule.program.name: {"results": results, "gradient": colours}}) + "\n"
