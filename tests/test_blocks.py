"""Blocks that repeat: found, searched once, and the e-graph is the one of the whole program."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from fuzz.classes import evaluate_classes
from seeds import one_in, seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.model.egraph import EGraph, ENode
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.target import Memory, Target, Tile
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import Limits, saturate
from eqsat.saturate.blocks import FEWEST, find_blocks, shorten

TILES = {"one": [(4, 8, 1)], "two": [(8, 8, 4), (4, 4, 8)]}


def machine(*tiles: tuple[int, int, int]) -> Target:
    """A machine where a byte costs 1 ns, with these (m, n, k) tiles."""
    rows = tuple(Tile((("m", m), ("n", n), ("k", k)), 1.0) for m, n, k in tiles)
    memory = (Memory("ram", 1 << 40, 1e9),)
    return Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (("matmul", rows),))


def require_sound(graph: EGraph, program: Program) -> None:
    """Every node of every class has the value of its class."""
    rng = np.random.default_rng(0)
    leaves = {
        n.attr: rng.standard_normal(n.type.shape)
        for n in program.nodes
        if n.op in ("input", "weight")
    }
    found = evaluate_classes(graph, leaves)
    assert found.disagreement is None
    assert all(v is not None for v in found.classes)
    assert found.compared > len(program.nodes) // 2


def chain(head: str, layer: str, tail: str, count: int) -> Program:
    """A program of `count` layers; `{i}` and `{j}` are the numbers of a layer and of the next."""
    layers = "\n".join(layer.format(i=i, j=i + 1) for i in range(count))
    text = f"program chain\n{head}\n{layers}\n{tail.format(n=count)}\n"
    return merge_elementwise(parse_program(text, "chain.eqs"))


# name -> (head, layer, tail)
CHAINS = {
    "mlp": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nh{j} = relu(matmul(h{i}, w{i}))",
        "return h{n}",
    ),
    "padded": (
        "input x: f32[7, 10]\nweight v: f32[10, 9]\nh0 = exp(matmul(x, v))",
        "weight w{i}: f32[9, 9]\nweight b{i}: f32[9]\n"
        "h{j} = relu(add(matmul(h{i}, w{i}), generic(b{i}, loops=[7, 9], maps=[[d1]], body=x0)))",
        "s = generic(h{n}, loops=[7, 9], maps=[[d0, d1]], body=x0, combine=max) : f32[7]\n"
        "return s, h{n}",
    ),
    "residual": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nh{j} = add(h{i}, tanh(matmul(h{i}, w{i})))",
        "return h{n}",
    ),
    "two carried": (
        "input h0: f32[8, 16]\ninput g0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nm{i} = matmul(h{i}, w{i})\n"
        "h{j} = add(h{i}, mul(g{i}, m{i}))\ng{j} = tanh(sub(g{i}, m{i}))",
        "return h{n}, g{n}",
    ),
    "one weight for all": (
        "input h0: f32[8, 16]\nweight w: f32[16, 16]",
        "h{j} = relu(matmul(h{i}, w))",
        "return h{n}",
    ),
    "a mask for all": (
        "input h0: f32[8, 16]\ninput k: f32[8, 16]\nm = exp(k)",
        "weight w{i}: f32[16, 16]\nh{j} = mul(relu(matmul(h{i}, w{i})), m)",
        "return h{n}, m",
    ),
    "transposed": (
        "input h0: f32[16, 16]",
        "weight w{i}: f32[16, 16]\nh{j} = relu(matmul(transpose(h{i}, perm=[1, 0]), w{i}))",
        "return h{n}",
    ),
    "every result": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nh{j} = relu(matmul(h{i}, w{i}))",
        "return h1, h2, h3, h4, h5, h6",
    ),
    "own inputs": (
        "input h0: f32[8, 16]\n" + "\n".join(f"input c{i}: f32[8, 16]" for i in range(8)),
        "weight w{i}: f32[16, 16]\nh{j} = add(relu(matmul(h{i}, w{i})), c{i})",
        "return h{n}",
    ),
    "the input again": (
        "input x: f32[8, 16]\nh0 = exp(x)",
        "weight w{i}: f32[16, 16]\nh{j} = add(relu(matmul(h{i}, w{i})), x)",
        "return h{n}",
    ),
    "two results": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nm{i} = matmul(h{i}, w{i})\n"
        "r{i} = generic(h{i}, m{i}, loops=[8, 16], maps=[[d0, d1], [d0, d1]],"
        " body=[add(x0, x1), mul(x0, x1)])\na{i} = result(r{i}, index=0)\n"
        "b{i} = result(r{i}, index=1)\nh{j} = sub(tanh(a{i}), exp(b{i}))",
        "return h{n}",
    ),
    "the last row": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nweight v{i}: f32[16, 16]\n"
        "m{i} = add(h{i}, matmul(exp(h{i}), w{i}))\nh{j} = add(m{i}, matmul(tanh(m{i}), v{i}))",
        "y = slice(h{n}, start=[7, 0], limit=[8, 16])\nreturn y",
    ),
    "filled front": (
        "input x: f32[8, 16]\nh0 = fill(value=2.0) : f32[8, 16]",
        "weight w{i}: f32[16, 16]\nh{j} = add(h{i}, tanh(matmul(h{i}, w{i})))",
        "y = add(h{n}, x)\nreturn y",
    ),
    "same fill in all": (
        "input h0: f32[8, 16]",
        "weight w{i}: f32[16, 16]\nc{i} = fill(value=2.0) : f32[8, 16]\n"
        "h{j} = matmul(mul(h{i}, c{i}), w{i})",
        "return h{n}",
    ),
}


def built(name: str, count: int = 8) -> Program:
    return chain(*CHAINS[name], count)


def require_equal(graph: EGraph, direct: EGraph) -> None:
    """The same nodes in the same classes, up to the numbers of the classes."""
    known = {(n.op, n.attr, n.children): n for n in direct.nodes}
    same: dict[int, int] = {}
    for one, two in zip(graph.values, direct.values, strict=True):
        assert same.setdefault(one, two) == two
    waiting = list(graph.nodes)
    while waiting:
        held: list[ENode] = []
        for n in waiting:
            if any(c not in same for c in n.children):
                held.append(n)
                continue
            other = known[n.op, n.attr, tuple(same[c] for c in n.children)]
            assert same.setdefault(n.eclass, other.eclass) == other.eclass
            assert (n.subsumed, n.rule < 0) == (other.subsumed, other.rule < 0)
        assert len(held) < len(waiting)
        waiting = held
    assert len(graph.nodes) == len(direct.nodes)
    assert sorted(same) == list(range(len(graph.types)))
    assert len(set(same.values())) == len(direct.types)
    assert [graph.types[c] for c in same] == [direct.types[c] for c in same.values()]
    assert tuple(same[r] for r in graph.roots) == direct.roots


def require_provenance(graph: EGraph, direct: EGraph, rules: RuleSet) -> None:
    """Every node leads back to the input, by rules the direct search names for such nodes, too.

    Where several rules make a node in one step it is open which of them is named. An e-graph
    numbers the rules that the target lets match, which may be fewer than the set has.
    """
    matched = {r.name: r.left.op for r in rules.rules}
    named = defaultdict(set)
    for n in direct.nodes:
        named[n.op, n.attr].add(n.rule)
    assert [r.name for r in graph.rules] == [r.name for r in direct.rules]
    for start in graph.nodes:
        assert start.rule in named[start.op, start.attr]
        n, seen = start, set()
        while n.rule >= 0 and n.source >= 0:
            assert n.source not in seen
            seen.add(n.source)
            source = graph.nodes[n.source]
            assert source.eclass == start.eclass
            assert source.op == matched[graph.rules[n.rule].name]
            n = source


def both(
    program: Program, rules: RuleSet, tiles: list[tuple[int, int, int]]
) -> tuple[EGraph, EGraph]:
    target = machine(*tiles)
    graph = saturate(program, rules, target)
    direct = saturate(program, rules, target, reuse_blocks=False)
    assert direct.blocks is None
    assert direct.stop == graph.stop == "saturated"
    require_equal(graph, direct)
    require_provenance(graph, direct, rules)
    return graph, direct


@pytest.mark.parametrize("tiles", seeds(1, [*TILES]))
@pytest.mark.parametrize("name", one_in(5, CHAINS))
def test_a_chain_of_layers_is_searched_once(name: str, tiles: str):
    program = built(name)
    graph, _ = both(program, eqsat.rules("default"), TILES[tiles])
    assert graph.blocks
    assert graph.blocks.searched < graph.blocks.count, graph.blocks.why
    graph.verify()
    require_sound(graph, program)


@pytest.mark.parametrize("count", [7, 8, 11])
@pytest.mark.parametrize("name", seeds(1, ["two carried", "padded", "transposed"]))
def test_any_number_of_layers(name: str, count: int):
    graph, _ = both(built(name, count), eqsat.rules("default"), TILES["one"])
    assert graph.blocks
    assert graph.blocks.searched < graph.blocks.count, graph.blocks.why


@pytest.mark.parametrize(
    "rules", ["layout/transpose", "layout/pack", "policy/always-fold", "policy/fold-single-use"]
)
@pytest.mark.parametrize("name", seeds(1, ["padded", "transposed", "a mask for all"]))
def test_other_rule_sets(name: str, rules: str):
    both(built(name), eqsat.rules(rules), TILES["two"])


def test_results_that_are_values_of_the_block_in_front():
    """In each block u is h of the block in front: unpacking undoes packing."""
    layer = (
        "u{i} = unpack(pack(h{i}, pos=[0], tiles=[8], pad=0.0), pos=[0], tiles=[8], pad=any,"
        " shape=[12])\nh{j} = mul(add(h{i}, tanh(u{i})), 0.5)"
    )
    results = ", ".join(f"u{i}" for i in range(8))
    program = chain("input h0: f32[12]", layer, f"return {results}, h{{n}}", 8)
    graph, _ = both(program, eqsat.rules("layout/pack"), TILES["one"])
    assert graph.blocks
    assert graph.blocks.searched < graph.blocks.count
    assert len(set(graph.roots)) == 9


@pytest.fixture(scope="module")
def encoder() -> Program:
    return _encoder(5)


def _encoder(layers: int) -> Program:
    """Post-norm encoder layers, small."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    tokens, width, heads, hidden = 8, 16, 2, 24
    rng = np.random.default_rng(0)

    def norm(x, p):
        mean = x.mean(-1, keepdims=True)
        variance = jnp.square(x - mean).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[0] + p[1]

    def split(x):
        return x.reshape(tokens, heads, width // heads).transpose(1, 0, 2)

    def layer(x, p):
        q, k, v = (split(x @ p[n]) for n in "qkv")
        scores = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / 2.0, axis=-1)
        mixed = jnp.einsum("hqk,hkd->hqd", scores, v).transpose(1, 0, 2)
        x = norm(x + mixed.reshape(tokens, width) @ p["o"], p["n"])
        return norm(x + jax.nn.gelu(x @ p["up"] + p["b"]) @ p["down"], p["m"])

    shapes = {name: (width, width) for name in "qkvo"} | {"n": (2, width), "m": (2, width)}
    shapes |= {"up": (width, hidden), "down": (hidden, width), "b": (hidden,)}
    ps = [{k: rng.standard_normal(s, "f4") for k, s in shapes.items()} for _ in range(layers)]

    def encoder(x):
        for p in ps:
            x = layer(x, p)
        return x

    shape = jax.ShapeDtypeStruct((tokens, width), "float32")
    return eqsat.optimize(encoder, shape, stop_after="program", target="reference").canonical


@pytest.mark.parametrize("rules", seeds(1, ["default", "layout/transpose"]))
@pytest.mark.parametrize("tiles", seeds(1, [*TILES]))
def test_an_encoder_is_searched_once(encoder: Program, tiles: str, rules: str):
    graph, _ = both(encoder, eqsat.rules(rules), TILES[tiles])
    assert graph.blocks
    assert (graph.blocks.count, graph.blocks.searched) == (5, 4), graph.blocks.why
    if (tiles, rules) == ("one", "default"):
        require_sound(graph, encoder)


# ---- finding ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CHAINS)
def test_the_short_program_is_one(name: str):
    program = built(name)
    blocks = find_blocks(program)
    assert blocks
    short = shorten(program, blocks)
    assert short
    short.program.verify()
    assert len(short.program.nodes) < len(program.nodes)
    for column in blocks.columns:
        kinds = {(program.nodes[i].op, program.nodes[i].types) for i in column}
        assert len(kinds) == 1


def test_few_repeats_and_single_ops_are_left_alone():
    assert find_blocks(built("mlp", FEWEST - 1)) is None
    lone = "input x: f32[8, 8]\ny = exp(matmul(x, transpose(x, perm=[1, 0])))"
    assert find_blocks(chain(lone, "", "return y", 0)) is None
    assert saturate(built("mlp", FEWEST - 1), eqsat.rules("default"), machine()).blocks is None


def test_weights_of_every_other_layer_make_blocks_of_two():
    layer = "h{j} = relu(matmul(h{i}, w{k}))"
    layers = "\n".join(layer.format(i=i, j=i + 1, k=i % 2) for i in range(12))
    head = "input h0: f32[8, 8]\nweight w0: f32[8, 8]\nweight w1: f32[8, 8]"
    program = chain(head, "", f"{layers}\nreturn h12", 0)
    blocks = find_blocks(program)
    assert blocks
    assert {program.nodes[c[0]].operands[1:] for c in blocks.columns if c[0] > 2} > {()}
    assert blocks.count == 6
    both(program, eqsat.rules("default"), TILES["one"])


def test_a_weight_read_twice_far_apart_is_no_block():
    """Layer 1's weight in the last layer: the middle could not be left out."""
    layer = "weight w{i}: f32[8, 8]\nh{j} = relu(matmul(h{i}, w{i}))"
    program = chain("input h0: f32[8, 8]", layer, "y = matmul(h{n}, w2)\nreturn y", 7)
    blocks = find_blocks(program)
    assert blocks is None or all(program.nodes[c[0]].op != "weight" for c in blocks.columns)
    both(program, eqsat.rules("default"), TILES["one"])


def test_uses_are_those_of_the_whole_program():
    """The mask has eleven uses; four layers alone would have four."""
    head = "input h0: f32[8, 8]\ninput k: f32[8, 8]\nm = transpose(k, perm=[1, 0])"
    layer = "weight w{i}: f32[8, 8]\nh{j} = matmul(matmul(h{i}, w{i}), m)"
    program = chain(head, layer, "return h{n}", 11)
    text = """
ruleset: counting
doc: Folds a transpose that is read so often.
rules:
  - name: fold
    doc: A transposed operand is read through the map.
    rewrite: generic(*a, t := transpose(y, perm=p), *b, sig=g)
    where:
      - uses(t) == COUNT
    to: generic(*a, y, *b, sig=read_before(g, len(a), p))
"""
    for count, folds in (("11", True), ("4", False)):
        rules = read_ruleset(text.replace("COUNT", count), "counting.yaml")
        graph, _ = both(program, rules, [])
        assert graph.blocks
        assert graph.blocks.searched < graph.blocks.count
        assert any(n.rule >= 0 for n in graph.nodes) == folds


# ---- falling back -------------------------------------------------------------------------------
# name -> (rule, layer): what it makes reads a value of the last block but one, or of any before
FAR = {
    "any": (
        "rewrite: transpose(transpose(x, perm=p), perm=q)\n"
        "    to: transpose(x, perm=compose(p, q))",
        "a{i} = transpose(h{i}, perm=[1, 2, 0])\nh{j} = transpose(a{i}, perm=[1, 0, 2])",
    ),
    "last but one": (
        "rewrite: transpose(generic(transpose(x, perm=p), sig=g), perm=p)\n"
        "    to: generic(x, sig=g)",
        "a{i} = transpose(h{i}, perm=[1, 0, 2])\nh{j} = exp(a{i})",
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_what_reaches_too_far_is_searched_whole(name: str):
    rule, layer = FAR[name]
    text = f"ruleset: far\ndoc: Far.\nrules:\n  - name: far\n    doc: Skips ops.\n    {rule}\n"
    program = chain("input h0: f32[3, 3, 3]", layer, "return h{n}", 8)
    graph, _ = both(program, read_ruleset(text, "far.yaml"), [])
    assert any(n.rule >= 0 for n in graph.nodes)
    assert graph.blocks
    assert graph.blocks.searched == graph.blocks.count
    assert "blocks" in graph.blocks.why or "block and not" in graph.blocks.why


@pytest.mark.slow  # 3 s
def test_reaching_a_limit_is_reported():
    program, rules, target = built("padded", 12), eqsat.rules("default"), machine((8, 8, 4))
    free = saturate(program, rules, target)
    assert free.blocks
    assert free.blocks.searched < free.blocks.count
    nodes = len(free.nodes) * 2 // 3  # more than the short program has, less than the full one
    held = saturate(program, rules, target, Limits(nodes=nodes))
    direct = saturate(program, rules, target, Limits(nodes=nodes), reuse_blocks=False)
    assert (held.stop, direct.stop) == ("nodes", "nodes")
    assert held.blocks
    assert str(nodes) in held.blocks.why
    require_equal(held, direct)
    graph = saturate(program, rules, target, Limits(rounds=2))
    assert graph.stop == "rounds"
    assert graph.blocks
    assert graph.blocks.why == "the limit of rounds was reached"


@pytest.mark.parametrize("rounds", one_in(3, range(1, 8)))
def test_a_search_that_is_cut_short_leaves_a_whole_e_graph(rounds: int):
    """No class is left that only "leave this operand alone" would reach."""
    for name in ("padded", "transposed"):
        program = built(name, 2)
        graph = saturate(
            program, eqsat.rules("default"), machine(*TILES["two"]), Limits(rounds=rounds)
        )
        graph.verify()
        assert graph.stop in ("rounds", "saturated")


def test_a_rule_that_depends_on_when_it_looks_is_not_copied():
    text = """
ruleset: early
doc: A greedy policy.
import: [layout/contract]
rules:
  - name: early
    doc: Folds a transpose while nothing is packed.
    rewrite: generic(*a, transpose(y, perm=p), *b, sig=g)
    where:
      - not is_unpacked(a)
    to: generic(*a, y, *b, sig=read_before(g, len(a), p))
"""
    graph = saturate(built("transposed"), read_ruleset(text, "early.yaml"), machine())
    assert graph.blocks
    assert graph.blocks.why == "a rule asks for `is_unpacked`"
    assert graph.blocks.searched == graph.blocks.count


def test_a_rule_that_is_cut_short_is_not_copied():
    rules = eqsat.rules("default")
    cut = replace(rules, rules=tuple(replace(r, max_matches=2) for r in rules.rules))
    graph = saturate(built("mlp"), cut, machine(*TILES["two"]))
    assert graph.blocks
    assert "max_matches" in graph.blocks.why


def test_json_round_trip():
    graph = saturate(built("mlp"), eqsat.rules("default"), machine((4, 8, 1)))
    assert graph.blocks
    assert EGraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    old = graph.to_json()
    del old["blocks"]
    assert EGraph.from_json(old).blocks is None
