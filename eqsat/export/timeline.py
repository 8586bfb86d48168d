"""A schedule for viewers of other tools: a trace of events (Perfetto, Chrome), a DOT graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from eqsat.export.plan import Exported
from eqsat.model.schedule import Dispatch, Schedule

VIEWERS = ("trace", "dot")
PS_PER_US = 1e6
PREDICTED, MEASURED = 1, 2  # processes of a trace


def view(schedule: Schedule, to: str) -> Exported:
    """The schedule as one of `VIEWERS`, as a file in memory."""
    text = trace_text(schedule) if to == "trace" else dot_text(schedule)
    return Exported((("", text.encode("utf-8")),), len(schedule.dispatches))


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


# ---- DOT -----------------------------------------------------------------------------------------
def dot_text(schedule: Schedule) -> str:
    """A Graphviz digraph: dispatches with their times, values between them with their bytes."""
    program = schedule.program
    writers = {w: i for i, d in enumerate(schedule.dispatches) for w in d.writes}
    lines = [
        f"digraph {_quoted(program.name)} {{",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]
    for i, d in enumerate(schedule.dispatches):
        label = f"{d.name or d.ops}\n{d.time_ps / PS_PER_US:.4g} us"
        lines.append(f"  d{i} [label={_quoted(label)}, tooltip={_quoted(d.ops)}];")
    for n in dict.fromkeys(r for d in schedule.dispatches for r in d.reads):
        if n not in writers and program.nodes[n].op == "input":
            lines.append(f"  v{n} [label={_quoted(program.value_name(n))}, shape=ellipse];")
    for i, d in enumerate(schedule.dispatches):
        for r in d.reads:
            if r in writers or program.nodes[r].op == "input":
                begin = f"d{writers[r]}" if r in writers else f"v{r}"
                label = f"{program.value_name(r)}\n{program.nodes[r].type}"
                lines.append(f"  {begin} -> d{i} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A string of DOT; line breaks are kept."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'
