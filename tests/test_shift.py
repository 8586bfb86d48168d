"""The shift of an e-graph: what is what one block later."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise

import pytest

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.egraph import EGraph
from eqsat.model.target import Memory, Target, Tile
from eqsat.saturate import saturate

LAYER = "weight w{i}: f32[8, 8]\nm{i} = matmul(h{i}, w{i})\nh{j} = add(h{i}, tanh(m{i}))"
ROWS = (Tile((("m", 4), ("n", 4), ("k", 1)), 1.0),)
MEMORY = (Memory("ram", 1 << 40, 1e9),)
TOY = Target("toy", "", "xla", True, MEMORY, 0, (), 1.0, 1.0, (("matmul", ROWS),))


@cache
def stack(*layers: str, tail: str = "return h{n}", reuse: bool = True) -> EGraph:
    """The e-graph of these layers; `{i}` and `{j}` are the numbers of a layer and of the next."""
    body = "\n".join(text.format(i=i, j=i + 1) for i, text in enumerate(layers))
    text = f"program stack\ninput h0: f32[8, 8]\n{body}\n{tail.format(n=len(layers))}\n"
    program = parse_program(text, "stack.eqs")
    return saturate(program, eqsat.rules("default"), TOY, reuse_blocks=reuse)


def require_images(graph: EGraph) -> None:
    """The image of a node is the same op over the images of its operands, and no other's."""
    shift = graph.shift
    assert shift is not None
    for images in (shift.node, shift.eclass):
        known = [i for i in images if i >= 0]
        assert len(set(known)) == len(known)
    for n, j in zip(graph.nodes, shift.node, strict=True):
        if j < 0:
            continue
        m = graph.nodes[j]
        assert (m.op, m.subsumed, m.rule < 0) == (n.op, n.subsumed, n.rule < 0)
        assert m.eclass == shift.eclass[n.eclass]
        assert m.children == tuple(shift.eclass[c] for c in n.children)
        assert m.attr == n.attr or n.op in ("input", "weight")
        assert graph.types[m.eclass] == graph.types[n.eclass]


def missing(graph: EGraph) -> int:
    assert graph.shift is not None
    return graph.shift.node.count(-1)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("reuse", [True, False])
def test_layers_have_images_in_the_next(count: int, reuse: bool):
    graph = stack(*[LAYER] * count, reuse=reuse)
    require_images(graph)
    assert graph.shift
    values = [graph.values[1 + k * 4 :][:4] for k in range(count)]
    for one, two in pairwise(values):
        assert [graph.shift.eclass[c] for c in one] == list(two)
    assert set(graph.shift.block.values()) == set(range(graph.shift.count))
    assert graph.shift.count >= count - 1  # layers may be cut where a block begins
    assert missing(graph) == missing(stack(*[LAYER] * 3))  # those of the last block


def test_it_is_the_same_after_a_round_trip():
    graph = stack(*[LAYER] * 3)
    assert EGraph.from_json(json.loads(json.dumps(graph.to_json()))).shift == graph.shift


def test_nothing_repeats():
    assert stack(LAYER).shift is None
    assert stack(LAYER, LAYER).shift is None  # each is at one end
    assert stack("h{j} = relu(h{i})").shift is None


def test_what_all_blocks_read_is_its_own_image():
    masked = "weight w{i}: f32[8, 8]\nm{i} = matmul(h{i}, w{i})\nh{j} = mul(m{i}, k)"
    graph = stack("k = exp(h{i})\nh{j} = sin(h{i})", *[masked] * 3)
    require_images(graph)
    assert graph.shift
    k = next(n.eclass for n in graph.nodes if n.op == "generic" and n.rule < 0)
    assert graph.shift.eclass[k] == k


def test_a_layer_that_differs_breaks_the_chains():
    other = LAYER.replace("tanh", "sin")
    graph = stack(*[LAYER] * 3, other, *[LAYER] * 3)
    require_images(graph)
    assert graph.shift
    differs = next(i for i, n in enumerate(graph.nodes) if "sin" in str(n.attr) and n.rule < 0)
    assert graph.shift.node[differs] == -1
    assert differs not in graph.shift.node
    layers = [graph.values[1 + k * 4 :][1] for k in range(7)]  # their products
    assert [graph.shift.eclass[c] for c in layers] == [*layers[1:], -1]


def test_a_weight_of_two_layers_has_no_image():
    tied = LAYER.replace("weight w{i}: f32[8, 8]\n", "").replace("w{i}", "w1")
    graph = stack(*[LAYER] * 3, tied, *[LAYER] * 2)
    require_images(graph)
    assert graph.shift
    at = {n.attr.name: n.eclass for n in graph.nodes if n.op == "weight"}  # type: ignore[attr-defined]
    assert graph.shift.eclass[at["w1"]] == -1
    assert at["w1"] not in graph.shift.eclass
