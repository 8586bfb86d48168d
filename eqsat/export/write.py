"""A program or schedule → the files of an export, checked and put in their place.

An e-graph → egraph-serialize JSON, which extractors and visualizers of other tools read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.export.plan import (
    WEIGHTS,
    Exported,
    OpaqueFunction,
    Plan,
    SizedPlans,
    plan_program,
    plan_schedule,
)
from eqsat.export.timeline import VIEWERS
from eqsat.model.diag import check_known, did_you_mean, fail
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.files import write_aside
from eqsat.model.leaves import Leaf
from eqsat.model.ops import LEAVES, VIEWS
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.ops.spelling.chains import merge_within


def serialized_egraph(egraph: EGraph) -> dict[str, Any]:
    """The e-graph with a `cost` of 1 for each op, 0 for leaves and views, which compute nothing.

    What a dispatch costs is no sum over e-nodes, so the prices of a target are not in it. A node
    that a rule with `apply: replace` removed is `subsumed`. `class_data` has the types.
    """
    ids = [f"c{n.eclass}.{i}" for i, n in enumerate(egraph.nodes)]
    first = [members[0] for members in egraph.classes]
    nodes = {
        ids[i]: {
            "op": _label(n),
            "children": [ids[first[c]] for c in n.children],
            "eclass": f"c{n.eclass}",
            "cost": 0.0 if n.op in LEAVES or n.op in VIEWS else 1.0,
            "subsumed": n.subsumed,
        }
        for i, n in enumerate(egraph.nodes)
    }
    data = {f"c{c}": {"type": ", ".join(map(str, types))} for c, types in enumerate(egraph.types)}
    roots = list(dict.fromkeys(f"c{r}" for r in egraph.roots))
    return {"nodes": nodes, "root_eclasses": roots, "class_data": data}


def _label(node: ENode) -> str:
    """The op with its attributes, without operands."""
    if isinstance(node.attr, Leaf):
        return f"{node.op} {node.attr.name}"
    text = node.attr.text(node.op)
    return f"{node.op} {text}" if text else node.op


def merged(schedule: Schedule) -> Schedule:
    """Schedule with ops merged inside dispatches; no buffers, as nodes have other numbers."""
    program = schedule.program
    ahead = {*schedule.ahead, *program.weights}
    times = Counter(m for d in schedule.dispatches for m in d.members)
    place = {
        m: number
        for number, d in enumerate(schedule.dispatches)
        for m in d.members
        if times[m] == 1 and m not in ahead
    }
    written = {w for d in schedule.dispatches for w in d.writes}
    program_, new = merge_within(program, place, {*written, *program.results})
    dispatches = tuple(
        replace(
            d,
            members=tuple(new[m] for m in d.members if m in new),
            reads=tuple(new[r] for r in d.reads),
            writes=tuple(new[w] for w in d.writes),
        )
        for d in schedule.dispatches
    )
    read_ahead = tuple(new[a] for a in schedule.ahead if a in new)
    return replace(
        schedule, program=program_, dispatches=dispatches, ahead=read_ahead, buffers=(), in_place=()
    )


FORMATS = ("mlir", "onnx")
ALL_FORMATS = (*FORMATS, *VIEWERS)
SHOWN = 20  # ops that cannot be written, by name
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SizedSchedules:
    """Schedules of one program by the size of a symbol.

    place: the number of the argument and the dim of it that is the symbol.
    """

    symbol: str
    place: tuple[int, int]
    of_size: Mapping[int, Schedule]


def export(
    what: Program | Schedule | SizedSchedules,
    to: str,
    held: Mapping[str, Array],
    opaque: Mapping[str, OpaqueFunction],
    *,
    weights: str = "auto",
    partial: bool = False,
    external: str = "",
    name: str = "",
) -> Exported:
    """A program, or the chosen program of a schedule, as an MLIR module or an ONNX model.

    Of several sizes: a function that picks the schedule of the size it is called with, and fails
    when that is none of them.

    held: weights by key. weights: `constants` writes them in place, `resources` beside the text
    (MLIR) or in a file of their own (ONNX, named `external`), `arguments` makes them arguments,
    `auto` writes small ones in place. partial: write what can be written, with calls of
    undefined functions for the rest. name: of the function or graph, else the program's.
    EqsatError: E380 if an op cannot be written, E381 if a weight
    has no values, E382 if `onnx` is missing, E383 for an unknown format or place for weights.
    """
    check_word("format", to, FORMATS if isinstance(what, SizedSchedules) else ALL_FORMATS)
    check_word("place for weights", weights, WEIGHTS)
    if isinstance(what, SizedSchedules):
        plans = tuple(
            (size, _plan(s, to, held, opaque, weights == "arguments"))
            for size, s in sorted(what.of_size.items())
        )
        plan: Plan | SizedPlans = SizedPlans(name, what.symbol, what.place, plans)
        return _whole(_written(plan, to, weights, external), name, to, partial)
    plan = _plan(what, to, held, opaque, weights == "arguments")
    name = name or plan.program.name
    plan = replace(plan, program=replace(plan.program, name=name))
    return _whole(_written(plan, to, weights, external), name, to, partial)


def check_word(what: str, word: str, words: Sequence[str]) -> None:
    """EqsatError E383 unless the word is one of these."""
    check_known(word, words, "E383", f"no {what} `{word}`")


def check_sizes(name: str, sizes: Mapping[str, int], asked: Mapping[str, int]) -> None:
    """EqsatError E395 unless each size that a program leaves open is asked for as it is known.

    E385 for a size that it does not leave open.
    """
    for k in asked.keys() - sizes.keys():
        has = f"it leaves open {', '.join(sizes)}" if sizes else "all its sizes are known"
        raise fail("E385", f"`{name}` has no open size `{k}`: {has}", help=did_you_mean(k, sizes))
    wrong = {k: n for k, n in sizes.items() if asked.get(k) != n}
    if not wrong:
        return
    listed = ", ".join(f"`{k}`" for k in wrong)
    flags = " ".join(f"--size {k}={n}" for k, n in sizes.items())
    message = f"`{name}` leaves the size of {listed} open, and an export has fixed sizes"
    raise fail("E395", message, help=f"`{flags}` writes it for these sizes alone")


def _plan(
    what: Program | Schedule,
    to: str,
    held: Mapping[str, Array],
    opaque: Mapping[str, OpaqueFunction],
    arguments: bool,
) -> Plan:
    if isinstance(what, Program):
        return plan_program(what, held, arguments=arguments)
    schedule = merged(what) if to == "mlir" else what
    return plan_schedule(schedule, held, opaque, arguments=arguments)


def _written(plan: Plan | SizedPlans, to: str, weights: str, external: str) -> Exported:
    if to == "mlir":
        from eqsat.export.mlir.module import write_module

        return write_module(plan, weights=weights)
    from eqsat.export.onnxmodel.model import write_model

    return write_model(plan, external=external, force_external=weights == "resources")


def _whole(exported: Exported, name: str, to: str, partial: bool) -> Exported:
    """The same; EqsatError E380 if ops are missing and not `partial`."""
    count = len(exported.missing)
    if not count or partial:
        return exported
    listed = [str(m) for m in exported.missing[:SHOWN]]
    if count > SHOWN:
        listed.append(f"and {count - SHOWN} more")
    raise fail(
        "E380",
        f"{count} of {exported.ops} ops of `{name}` cannot be written as {to}: {'; '.join(listed)}",
        help="`--partial` writes the rest, with calls of undefined functions in their place",
    )


def write_files(exported: Exported, path: Path) -> Exported:
    """Write the files beside one another, each whole or not at all; EqsatError (E384)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, data in reversed(exported.files):  # the model last: it names the others
            write_aside(path.parent / (name or path.name), data)
    except OSError as e:
        raise fail("E384", f"cannot write `{path}`: {e.strerror or e}") from e
    return exported.at(str(path))
