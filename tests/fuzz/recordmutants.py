"""Nests and plans that differ from right ones by one step: are they refused, or seen to be wrong?

A record of a case of `edges` in, its mutants out: an extent, an offset, a stride, a bound, a count
of rows, panels, vectors or items, an order of loops, changed by one. What is mutated is held
against the case's ops by the product's checks, as everything is before it is priced; what passes
them runs between guard pages and is held to the meaning of the program.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from eqsat.execute.kernels.kernel import generate
from eqsat.model.dispatch import Plan
from eqsat.model.generic import Generic
from eqsat.model.nest import Nest, NoNest
from eqsat.model.program import Program
from eqsat.ops.nests.reached import nest_faults
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.planner import plan
from fuzz import edges, guarded
from fuzz.planmutants import Known, Own, executed, limited

Row = dict[str, Any]
# names, values, and what only hints or prices; a number of a stage or buffer is no count
APART = frozenset({
    "work", "dtype", "body", "buffer", "node", "in_place", "prefetch", "prefetch_turns", "asking",
    "fill", "combine", "stage", "scratch_bytes",
})  # fmt: skip


def variants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(what is changed, the record with it), for all of a record that can be changed by one."""
    if isinstance(value, bool):
        yield f"{path} turned", not value
    elif isinstance(value, int):
        yield f"{path} + 1", value + 1
        yield f"{path} - 1", value - 1
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            if f.name not in APART:
                for text, new in variants(getattr(value, f.name), f"{path}.{f.name}"):
                    yield text, replace(value, **{f.name: new})
    elif isinstance(value, tuple):
        yield from _of_tuple(value, path)


def _of_tuple(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    names = getattr(value, "_fields", None)
    for i, x in enumerate(value):
        if names is not None and names[i] in APART:
            continue
        at = f"{path}.{names[i]}" if names is not None else f"{path}[{i}]"
        for text, new in variants(x, at):
            items = [*value[:i], new, *value[i + 1 :]]
            yield text, type(value)(*items) if names is not None else tuple(items)
    if names is None and len(value) > 1 and value[0] != value[1]:
        yield f"{path} in another order", (value[1], value[0], *value[2:])
    if names is None and value:
        yield f"{path} without its last", value[:-1]


def verdicts(found: Known, each: int, seed: int) -> Iterator[Row]:
    """One row per mutant: `each` nests and as many plans of every case."""
    for number, own in enumerate(found.cases):
        assert own.nest is not None and own.plan is not None
        rng = random.Random(f"{seed} {number}")
        todo: list[tuple[str, str, Any]] = []
        for what, record in (("nest", own.nest), ("plan", own.plan)):
            every = list(variants(record))
            todo += [(what, *v) for v in rng.sample(every, min(each, len(every)))]
        yield from _in_processes(own, todo)


def _in_processes(own: Own, todo: Sequence[tuple[str, str, Any]]) -> Iterator[Row]:
    """All in one process, or from the one behind on in another where one ended it."""
    at = 0
    while at < len(todo):
        pipe, end = get_context("fork").Pipe(duplex=False)
        process = get_context("fork").Process(target=_child, args=(own, todo[at:], end))
        process.start()
        end.close()
        stray = ""
        try:
            while at < len(todo):
                what, text, _ = todo[at]
                row = pipe.recv()
                if "stray" in row:
                    stray = row["stray"]
                    continue
                yield {"case": str(own.edge), "what": what, "change": text, **row}
                at += 1
        except EOFError:
            process.join()
            what, text, _ = todo[at]
            said = stray or f"ended by {process.exitcode}"
            row = {"verdict": "caught", "words": said}
            yield {"case": str(own.edge), "what": what, "change": text, **row}
            at += 1
        process.join()


def _child(own: Own, todo: Sequence[tuple[str, str, Any]], pipe: Connection) -> None:
    limited()
    guarded.tell_strays(lambda text: pipe.send({"stray": text}))
    for what, _, record in todo:
        verdict, words = _judged(own, what, record)
        pipe.send({"verdict": verdict, "words": words[:300]})
    pipe.close()


def _judged(own: Own, what: str, record: Any) -> tuple[str, str]:
    machine = edges.MACHINES[own.edge.machine]
    assert own.nest is not None and own.plan is not None
    try:
        with edges.small_items(), np.errstate(all="ignore"):
            if what == "nest" and (fault := next(faults(own.program, record), "")):
                return "refused", fault
            nest: Nest = record if what == "nest" else own.nest
            chosen: Plan = record if what == "plan" else plan(nest, machine)
            if fault := next(plan_faults(nest, chosen), ""):
                return "refused", fault
            ir = generate(nest, chosen, machine, "edge").ir
    except NoNest as why:
        return "raises", str(why)
    except Exception as error:  # of a record that is none
        return "crashes", f"{type(error).__name__}: {error}"
    if ir == own.ir:
        return "same", ""
    wrong = executed(replace(own, nest=nest, plan=chosen, ir=ir))
    return ("caught", wrong) if wrong else ("right", "")


def faults(program: Program, nest: Nest) -> Iterator[str]:
    """What the check of nests says of one, as the product asks it."""
    nodes = program.nodes
    elements = {b: nodes[b].type.size for b in (*nest.reads, *nest.writes)}
    generics = ((i, n.attr) for i, n in enumerate(nodes) if isinstance(n.attr, Generic))
    summed = {i: math.prod(g.sizes[d] for d in g.reductions) for i, g in generics if g.reductions}
    yield from nest_faults(nest, elements, summed)[0]
