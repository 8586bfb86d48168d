"""Pages to look at: of runs, of a loop, of a program of 2,057 dispatches, and of hostile names."""

from __future__ import annotations

from dataclasses import replace

import eqsat
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Schedule
from eqsat.report.page.data import PageData
from eqsat.report.page.graph import schedule_graph
from eqsat.report.page.onefile import scripted_document
from eqsat.report.page.runpage import SCRIPTS, TOOLS, layouts_by_bytes, page

COPIES = 121  # of an encoder layer's 17 dispatches
HOSTILE = '</script><img src=x onerror=alert(1)>"onload=alert(2) <!--\u2028&lt;'


def run_page(program: str, target: str, seconds: float) -> str:
    """The page of a search."""
    return page(eqsat.optimize(eqsat.read(program), target=target, time_limit=seconds))


def loop_page() -> str:
    """A scan over a layer: its body is a graph of its own."""
    import jax
    import jax.numpy as jnp

    def layers(x, weights):
        def layer(h, w):
            y = jnp.tanh(h @ w)
            return h + y, y.sum()

        return jax.lax.scan(layer, x, weights)

    x = jax.ShapeDtypeStruct((64, 128), "float32")
    weights = jax.ShapeDtypeStruct((12, 128, 128), "float32")
    return page(eqsat.optimize(layers, x, weights, target="avx512-xla"))


def deep_page() -> str:
    """Layers of an encoder, one behind the other, without names; nothing of it is searched."""
    run = eqsat.optimize(eqsat.read("encoder"), target="avx512-xla")
    assert run.schedule is not None
    drawn = schedule_graph(repeated(run.schedule, COPIES), "after", "after")
    graphs = drawn.graphs | {"before": drawn.graph}
    data = PageData("deep", graphs, layouts_by_bytes(graphs.values()), goal="time")
    return scripted_document("deep", f"<h1>deep</h1>{TOOLS}", data.to_json(), SCRIPTS)


def hostile_page() -> str:
    """A program whose every name would like to be a script."""
    return page(hostile_run())


def hostile_run() -> eqsat.Run:
    """A small run, with names as they should not be."""
    run = eqsat.optimize(eqsat.read("mlp.py:mlp_784"), target="reference")
    assert run.schedule is not None
    program = replace(run.program, name=HOSTILE)
    schedule = replace(run.schedule, program=_renamed(run.schedule.program))
    source = replace(run.source, program=program)
    return replace(run, source=source, canonical=_renamed(run.canonical), schedule=schedule)


def _renamed(program: Program) -> Program:
    nodes = tuple(
        replace(n, attr=replace(n.attr, name=f"{HOSTILE}{i}")) if isinstance(n.attr, Leaf) else n
        for i, n in enumerate(program.nodes)
    )
    return replace(program, nodes=nodes)


def repeated(schedule: Schedule, copies: int) -> Schedule:
    """A schedule of one argument and one result of its type, so many times behind itself."""
    program, builder = schedule.program, Builder("repeated")
    (argument,), (result,) = program.inputs, program.results
    steps = 1 + schedule.dispatches[-1].step
    arena = schedule.arena_bytes or 0
    dispatches, buffers, ahead = [], [], []
    given = builder.append("input", (), program.nodes[argument].attr)
    for k in range(copies):
        at = {argument: given}
        for i, n in enumerate(program.nodes):
            if i != argument:
                at[i] = builder.append(n.op, tuple(at[o] for o in n.operands), n.attr)
        for d in schedule.dispatches:
            sides = (tuple(at[i] for i in side) for side in (d.members, d.reads, d.writes))
            members, reads, writes = sides
            step = d.step + k * steps
            dispatches.append(replace(d, members=members, reads=reads, writes=writes, step=step))
        ahead += [at[i] for i in schedule.ahead]
        for b in schedule.buffers:
            if b.node == argument:
                continue
            moved = replace(b, node=at[b.node], first=b.first + k * steps, last=b.last + k * steps)
            if b.role == "result" and k + 1 < copies:  # read by the next one
                moved = replace(moved, role="temporary", offset=arena, last=moved.last + steps)
            buffers.append(moved)
        given = at[result]
    return Schedule(
        builder.build([given]), tuple(dispatches), tuple(buffers), tuple(ahead), schedule.target
    )
