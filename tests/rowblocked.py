"""Attention and its like as nests, run as kernels between guard pages."""

from __future__ import annotations

from typing import Any

import numpy as np
from contracted import AVX512
from fuzz import guarded

from eqsat.execute.kernels.kernel import generate
from eqsat.model.dispatch import Machine
from eqsat.model.nest import Nest
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.nests.nest import Member, nest_of
from eqsat.plan.planner import plan
from eqsat.plan.rowblocks import RowBlocks

Array = np.ndarray[Any, Any]


def nest_of_program(program: Program) -> Nest:
    """A whole program as one nest."""
    members = [Member(i, n.op, n.attr, n.operands, n.types) for i, n in enumerate(program.nodes)]
    return nest_of(members, [*program.inputs, *program.weights], program.results)


def computed(
    program: Program, inputs: dict[str, Array], machine: Machine = AVX512
) -> tuple[list[Array], list[Array], RowBlocks]:
    """Results of the kernel, those in float64, and the plan."""
    nest = nest_of_program(program)
    chosen = plan(nest, machine)
    assert isinstance(chosen, RowBlocks)
    kernel = generate(nest, chosen, machine, "rows")
    nodes = program.nodes
    given = [inputs[nodes[i].attr.name] for i in kernel.reads]
    shapes = [(nodes[i].type.shape, np.float32) for i in kernel.writes]
    found = guarded.run(kernel, machine, given, shapes)
    names = [nodes[i].attr.name for i in program.inputs]
    expected = evaluate_program(program, [inputs[n] for n in names], {})
    order = [program.results.index(i) for i in kernel.writes]
    return found, [expected[i] for i in order], chosen


def drawn(program: Program, seed: int = 0) -> dict[str, Array]:
    """Normal inputs, masks of which seven of ten hold."""
    rng, found = np.random.default_rng(seed), dict[str, Array]()
    for i in program.inputs:
        leaf = program.nodes[i].attr
        shape = program.nodes[i].type.shape
        if program.nodes[i].type.dtype == "bool":
            found[leaf.name] = rng.random(shape) < 0.7
        else:
            found[leaf.name] = rng.standard_normal(shape, dtype=np.float32)
    return found


def attention(
    queries: int,
    keys: int,
    heads: int,
    depth: int,
    width: int,
    shared: int = 1,
    cached: bool = False,
    masked: str = "-3e+38",
) -> str:
    """Masked attention of q[tokens, heads, depth]; `shared` heads of q have one of k and v.

    cached: keys and values lie by heads, [heads, tokens, …], else by tokens.
    """
    each = shared * queries
    order, at = ("[{h}, {k}, {d}]", "d0, d2") if cached else ("[{k}, {h}, {d}]", "d2, d0")
    lies = {n: order.format(h=heads, k=keys, d=d) for n, d in (("k", depth), ("v", width))}
    dims = f"{heads}, {each}"
    scores = f"loops=[{heads}, {each}, {keys}], maps="
    column = at.replace("d2", "d3")
    product = "body=mul(x0, x1), combine=add, rank=3"
    return f"""
program attention
input q: f32[{queries}, {shared * heads}, {depth}]
input k: f32{lies["k"]}
input v: f32{lies["v"]}
input mask: bool[{each}, {keys}]
qt = transpose(q, perm=[1, 0, 2])
qh = reshape(qt, shape=[{heads}, {each}, {depth}])
s = generic(qh, k, loops=[{dims}, {keys}, {depth}], maps=[[d0, d1, d3], [{at}, d3]], {product})
c = generic(s, {scores}[[d0, d1, d2]], body=div(x0, 3.0), rank=3)
t = generic(mask, c, {scores}[[d1, d2], [d0, d1, d2]], body=select(x0, x1, {masked}), rank=3)
m = generic(t, {scores}[[d0, d1, d2]], body=x0, combine=max, rank=2)
e = generic(t, m, {scores}[[d0, d1, d2], [d0, d1]], body=exp(sub(x0, x1)), rank=3)
z = generic(e, {scores}[[d0, d1, d2]], body=x0, combine=add, rank=2)
p = generic(e, z, {scores}[[d0, d1, d2], [d0, d1]], body=div(x0, x1), rank=3)
o = generic(p, v, loops=[{dims}, {width}, {keys}], maps=[[d0, d1, d3], [{column}, d2]], {product})
oh = reshape(o, shape=[{shared * heads}, {queries}, {width}])
y = transpose(oh, perm=[1, 0, 2])
return y
"""
