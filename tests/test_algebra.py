"""Algebra through contractions and into weights: every value stays what it was."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from fuzz.classes import evaluate_classes

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.rules import RuleSet
from eqsat.model.target import Memory, Target
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.saturate import saturate

SIZES = (1, 2, 3, 5)
NO_TILES = Target("toy", "", "xla", True, (Memory("ram", 1 << 40, 1e9),), 0, (), 1.0, 1.0, ())


# ---- random programs around contractions ---------------------------------------------------------
class Nets:
    """Makes contractions in any transposition, batched or with windows, and what is around them."""

    def __init__(self, seed: int):
        self.rng = Random(seed)
        self.b = Builder("net")
        self.leaves = 0

    def leaf(self, op: str, shape: tuple[int, ...], dtype: str = "f32") -> int:
        self.leaves += 1
        name = f"{op[0]}{self.leaves}"
        key = name if op == "weight" else ""
        index = -1 if key else sum(n.op == "input" for n in self.b.nodes)
        return self.b.add(op, (), Leaf(name, TensorType(dtype, shape), index, key))

    def some(self, low: int, high: int) -> list[int]:
        return [self.rng.choice(SIZES) for _ in range(self.rng.randint(low, high))]

    def shuffled(self, items: list[int]) -> list[int]:
        return self.rng.sample(items, len(items))

    def generic(self, sizes, result, reads: list[tuple[int, Map]], body: Expr, dtype="f32") -> int:
        types = [self.b.type(x) for x, _ in reads]
        reduces = "add" if len(result) < len(sizes) else ""
        g = canonical_generic(
            sizes,
            result,
            [m for _, m in reads],
            [t.shape for t in types],
            [Yield(body, dtype, reduces)],
            (),
            [t.dtype for t in types],
            precision="default",
        )
        return self.b.add("generic", tuple(x for x, _ in reads), g)

    def elementwise(self, x: int, loops: list[int], steps: int, bend: bool) -> int:
        """x with sums, products and quotients of vectors and constants, maybe bent at the end."""
        shape = self.b.type(x).shape
        sizes = [0] * len(shape)
        for q, d in enumerate(loops):
            sizes[d] = shape[q]
        reads: list[tuple[int, Map]] = [(x, tuple(dim(d) for d in loops))]
        e = arg(0)
        for _ in range(steps):
            e = self.step(e, self.factor(reads, sizes))
        if bend:
            silu = call("mul", e, call("logistic", e))
            e = self.rng.choice([call("tanh", e), call("max", e, const(0.0)), silu])
        if self.b.type(x).dtype != "f32":
            e = e.substitute({0: cast(arg(0), "f32")})
        # the operand in question stands anywhere
        order = self.shuffled(list(range(len(reads))))
        e = e.substitute({i: arg(order.index(i)) for i in order})
        return self.generic(sizes, range(len(sizes)), [reads[i] for i in order], e)

    def factor(self, reads: list[tuple[int, Map]], sizes: list[int]) -> Expr:
        if self.rng.random() < 0.3 or len(reads) > 4:
            return const(self.rng.choice([0.5, -2.0, 3]))
        some = [d for d in range(len(sizes)) if self.rng.random() < 0.5]
        if sizes and self.rng.random() < 0.6:
            some = [self.rng.randrange(len(sizes))]
        reads.append((self.leaf("input", tuple(sizes[d] for d in some)), tuple(map(dim, some))))
        return arg(len(reads) - 1)

    def step(self, e: Expr, f: Expr) -> Expr:
        fn = self.rng.choice(["mul", "mul", "add", "sub", "div", "neg", "from", "twice"])
        if fn == "neg":
            return call("neg", e)
        if fn == "from":
            return call("sub", f, e)
        return call("add", e, call("mul", e, f)) if fn == "twice" else call(fn, e, f)

    def contraction(self, window: float = 0.2) -> Generic:
        """Loops by role, the dims of x and w in any order; operand 0 is x."""
        batch, m, n, k = self.some(0, 1), self.some(0, 2), self.some(1, 2), self.some(1, 2)
        sizes = [*batch, *m, *n, *k]
        at = [len(batch), len(batch) + len(m), len(batch) + len(m) + len(n)]
        bs, ms = list(range(at[0])), list(range(at[0], at[1]))
        ns, ks = list(range(at[1], at[2])), list(range(at[2], len(sizes)))
        x: list[Affine] = [dim(d) for d in self.shuffled([*bs, *ms, *ks])]
        if m and self.rng.random() < window:
            stride = self.rng.choice([1, 2])
            x = [e for e in x if e.dim not in (ms[0], ks[0])]
            x.insert(self.rng.randint(0, len(x)), affine([(ms[0], stride), (ks[0], 1)]))
        w = [dim(d) for d in self.shuffled([*bs, *ns, *ks])]
        shapes = [tuple(extent(e, sizes) for e in m) for m in (x, w)]
        dtypes = (self.rng.choice(["f32", "bf16"]), self.rng.choice(["f32", "bf16", "f16"]))
        body = call("mul", *(wide(i, t) for i, t in enumerate(dtypes)))
        result = self.shuffled([*bs, *ms, *ns])
        g = canonical_generic(
            sizes,
            result,
            [tuple(x), tuple(w)],
            shapes,
            [Yield(body, "f32", "add")],
            (),
            dtypes,
            precision="default",
        )
        return g

    def contract(self, x: int, w: int, g: Generic) -> int:
        """The contraction node, with its operands in either order."""
        if self.rng.random() < 0.5:
            return self.b.add("generic", (x, w), g)
        swapped = canonical_generic(
            g.sizes, range(g.rank), g.maps[::-1], g.shapes[::-1],
            [Yield(g.body.substitute({0: arg(1), 1: arg(0)}), "f32", "add")], (), g.dtypes[::-1],
            precision="default",
        )  # fmt: skip
        return self.b.add("generic", (w, x), swapped)


def extent(e: Affine, sizes: list[int]) -> int:
    return 1 + e.constant + sum(s * (sizes[d] - 1) for d, s in e.terms)


def wide(i: int, dtype: str) -> Expr:
    return arg(i) if dtype == "f32" else cast(arg(i), "f32")


def scaled(seed: int) -> Program:
    """f(contraction(e(x), w)) with e and f of vectors and constants."""
    net = Nets(seed)
    g = net.contraction()
    if net.rng.random() < 0.7:
        loops = net.shuffled(list(range(len(g.shapes[0]))))
        leaf = net.leaf("input", tuple(g.shapes[0][d] for d in loops), g.dtypes[0])
        x = net.elementwise(leaf, loops, net.rng.choice([1, 2, 2]), False)
        y = Yield(call("mul", arg(0), wide(1, g.dtypes[1])), "f32", "add")
        g = replace(g, yields=(y,), dtypes=("f32", g.dtypes[1]))
    else:
        x = net.leaf("input", g.shapes[0], g.dtypes[0])
    y = net.contract(x, net.leaf("weight", g.shapes[1], g.dtypes[1]), g)
    if net.rng.random() < 0.3:
        straight = tuple(map(dim, range(g.rank)))
        shape = g.result_shape
        y = net.generic(shape, range(g.rank), [(y, straight)], cast(arg(0), "bf16"), "bf16")
    if net.rng.random() < 0.7:
        loops = net.shuffled(list(range(g.rank)))
        y = net.elementwise(y, loops, net.rng.randint(1, 3), net.rng.random() < 0.5)
    return net.b.build([y])


def normed(seed: int) -> Program:
    """A contraction of x · r · s + b, r of rows, s and b of dims that are summed, all optional."""
    net = Nets(seed)
    g = net.contraction()
    g = replace(g, yields=(replace(g.yields[0], body=call("mul", arg(0), wide(1, g.dtypes[1]))),))
    g = replace(g, dtypes=("f32", g.dtypes[1]))
    dims = [e.dim for e in g.maps[0]]
    summed = [q for q, d in enumerate(dims) if d is not None and d >= g.rank]
    rows = [q for q, d in enumerate(dims) if d is not None and d < g.rank]
    x = net.leaf("input", g.shapes[0])
    reads: list[tuple[int, Map]] = [(x, tuple(map(dim, range(len(dims)))))]
    e = arg(0)
    for fn, among in (("mul", rows), ("mul", summed), ("add", summed)):
        if among and net.rng.random() < 0.6:
            some = net.rng.sample(among, net.rng.randint(1, len(among)))
            v = net.leaf("input", tuple(g.shapes[0][q] for q in some))
            reads.append((v, tuple(map(dim, some))))
            other = {"mul": "div", "add": "sub"}[fn]
            e = call(net.rng.choice([fn, other]), e, arg(len(reads) - 1))
    y = net.generic(g.shapes[0], range(len(dims)), reads, e)
    w = net.leaf("weight", g.shapes[1], g.dtypes[1])
    return net.b.build([net.contract(y, w, g)])


def shared(seed: int) -> Program:
    """Two to four contractions of one x with weights of other widths and other orders of dims."""
    net = Nets(seed)
    g = net.contraction()
    x = net.leaf("input", g.shapes[0], g.dtypes[0])
    results = []
    widths = [d for d in range(g.rank) if not any(d in dict(e.terms) for e in g.maps[0])]
    axis = net.rng.choice(widths)
    for _ in range(net.rng.randint(2, 4)):
        sizes = [net.rng.choice(SIZES) if d == axis else s for d, s in enumerate(g.sizes)]
        w = tuple(g.maps[1][q] for q in net.shuffled(list(range(len(g.maps[1])))))
        shape = tuple(extent(e, sizes) for e in w)
        h = canonical_generic(
            sizes, net.shuffled(list(range(g.rank))), [g.maps[0], w], [g.shapes[0], shape],
            g.yields, (), g.dtypes, precision="default",
        )  # fmt: skip
        results.append(net.contract(x, net.leaf("weight", shape, g.dtypes[1]), h))
    return net.b.build(results)


def biased(seed: int) -> Program:
    """Three projections of one x, each with something of its columns added or multiplied."""
    rng = Random(seed)
    m, k, *widths = (rng.choice((1, 2, 3, 5)) for _ in range(5))
    fn = rng.choice(("add", "mul", "sub"))
    lines = ["program biased", f"input x: f32[{m}, {k}]"]
    for i, n in enumerate(widths):
        lines += [f"weight w{i}: f32[{k}, {n}]", f"weight b{i}: f32[{n}]"]
    for i, n in enumerate(widths):
        lines += [
            f"p{i} = matmul(x, w{i})",
            f"y{i} = generic(p{i}, b{i}, loops=[{m}, {n}], maps=[[d0, d1], [d1]],"
            f" body={fn}(x0, x1), rank=2)",
        ]
    return parse_program("\n".join([*lines, "return y0, y1, y2"]), "biased.eqs")


def lopsided(seed: int) -> Program:
    """A large value with a scale of its rows times few columns, or few rows times such a value."""
    rng = Random(seed)
    m, k, n = 24 + rng.randint(0, 3), 17 + rng.randint(0, 3), rng.randint(1, 2)
    is_left, fn = seed % 2 == 0, rng.choice(("mul", "div"))
    y, at = ((k, n), "d0") if is_left else ((n, m), "d1")
    product = "matmul(t, y)" if is_left else "matmul(y, t)"
    lines = [
        "program lopsided",
        f"input x: f32[{m}, {k}]",
        f"input s: f32[{m if is_left else k}]",
        f"input y: f32[{y[0]}, {y[1]}]",
        f"t = generic(x, s, loops=[{m}, {k}], maps=[[d0, d1], [{at}]], body={fn}(x0, x1), rank=2)",
        f"r = {product}",
    ]
    return parse_program("\n".join([*lines, "return r"]), "lopsided.eqs")


def leaf_arrays(program: Program, seed: int) -> dict[Attr, np.ndarray]:
    """Values well away from zero, so that they can be divided by."""
    rng = np.random.default_rng(seed)
    return {
        n.attr: rng.uniform(0.5, 2, n.type.shape) * rng.choice([-1, 1], n.type.shape)
        for n in program.nodes
        if n.op in ("input", "weight")
    }


def check(program: Program, rules: RuleSet, seed: int) -> EGraph:
    graph = saturate(program, rules, NO_TILES)
    graph.verify()
    assert graph.stop == "saturated"
    found = evaluate_classes(graph, leaf_arrays(program, seed))
    assert found.disagreement is None, (seed, str(found.disagreement))
    return graph


@pytest.mark.parametrize(
    ("makers", "names", "count"),
    [
        pytest.param(
            (scaled, normed, lopsided),
            ("algebra/scale", "algebra/defer", "algebra/hoist"),
            20,
            marks=pytest.mark.slow,
        ),
        ((shared, biased), ("algebra/merge",), 8),
    ],
)
def test_random_contractions_keep_their_values(makers, names: tuple[str, ...], count: int):
    used: Counter[str] = Counter()
    rules = eqsat.rules(*names)
    for make in makers:
        for seed in range(count):
            graph = check(make(seed), rules, seed)
            used.update(s.name for s in graph.rules if s.matches)
    assert not {r.name for r in rules.rules if r.ruleset in names and not used[r.name]}, used


# ---- growth --------------------------------------------------------------------------------------
RULES = ["layout/transpose", *(f"algebra/{s}" for s in ("merge", "scale", "defer", "hoist"))]


def tower(layers: int) -> Program:
    """Layers of three projections, a norm with scale and shift, and a residual."""
    lines = ["program tower", "input x0: f32[6, 4]"]
    for i in range(layers):
        lines += [f"weight {n}{i}: f32[4, 4]" for n in "qkv"]
        lines += [f"weight {n}{i}: f32[4]" for n in "sb"]
        lines += [
            f"y{i} = generic(x{i}, s{i}, b{i}, loops=[6, 4], maps=[[d0, d1], [d1], [d1]],"
            " body=add(mul(x0, x1), x2))",
            f"u{i} = add(matmul(y{i}, q{i}), mul(matmul(y{i}, k{i}), matmul(y{i}, v{i})))",
            f"x{i + 1} = add(tanh(mul(u{i}, 0.5)), x{i})",
        ]
    return parse_program("\n".join([*lines, f"return x{layers}"]), "tower.eqs")


def test_growth_is_linear_in_layers():
    rules = eqsat.rules(*RULES, "layout/contract")
    sizes = [len(saturate(tower(n), rules, NO_TILES).nodes) for n in (2, 4, 6)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


@pytest.mark.parametrize(("readers", "used"), [(2, "two"), (4, "three"), (12, "")])
def test_merges_are_bounded_where_many_weights_read_one_value(readers: int, used: str):
    text = "\n".join(
        ["program fan", "input x: f32[6, 4]"]
        + [f"weight w{i}: f32[4, 3]\ny{i} = matmul(x, w{i})" for i in range(readers)]
        + ["return " + ", ".join(f"y{i}" for i in range(readers))]
    )
    graph = saturate(parse_program(text, "fan.eqs"), eqsat.rules("algebra/merge"), NO_TILES)
    merged = {s.name for s in graph.rules if s.matches}
    names = {"two": {"merge-matmuls"}, "three": {"merge-three-matmuls"}, "": set()}
    assert merged == names[used]
