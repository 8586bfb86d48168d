"""E-graphs by hand, targets and answers that the tests of the extraction share."""

from __future__ import annotations

from dataclasses import replace

from eqsat.extract import extract
from eqsat.extract.candidates.assemble import Assembly, choices
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import GOALS
from eqsat.extract.dispatch.legality import Legality
from eqsat.model.affine import dim
from eqsat.model.attr import Attr
from eqsat.model.egraph import EGraph, ENode, RuleStat
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Transpose
from eqsat.model.program import infer
from eqsat.model.selection import GoalRequest, Selection
from eqsat.model.target import Fusion, Memory, Target
from eqsat.model.tensor import TensorType

TIME, MEMORY, DISPATCHES = (GoalRequest(g) for g in GOALS)


ALL = (TIME, MEMORY, DISPATCHES)


MiB = 1 << 20


class Graph:
    """An e-graph by hand: `add` is the input program, `also` a node some rule would have made."""

    def __init__(self) -> None:
        self.nodes: list[ENode] = []
        self.types: list[tuple[TensorType, ...]] = []
        self.values: list[int] = []

    def add(self, op: str, attr: Attr, *children: int) -> int:
        self.types.append(infer(op, attr, [self.types[c] for c in children]))
        self.nodes.append(ENode(op, attr, children, len(self.types) - 1))
        self.values.append(len(self.types) - 1)
        return len(self.types) - 1

    def also(self, eclass: int | None, op: str, attr: Attr, *children: int) -> int:
        if eclass is None:
            self.types.append(infer(op, attr, [self.types[c] for c in children]))
            eclass = len(self.types) - 1
        self.nodes.append(ENode(op, attr, children, eclass, rule=0))
        return eclass

    def leaf(self, op: str, name: str, *shape: int) -> int:
        index = sum(n.op == "input" for n in self.nodes) if op == "input" else -1
        key = name if op == "weight" else ""
        return self.add(op, Leaf(name, TensorType("f32", shape), index, key))

    def build(self, *roots: int) -> EGraph:
        rule = RuleStat("by-hand", "graphs.py:1:1", "", 0, 0, 0.0)
        graph = EGraph(
            tuple(self.nodes), tuple(self.types), roots, tuple(self.values), (rule,), 1,
            "saturated", 0.0,
        )  # fmt: skip
        graph.verify()
        return graph


def elementwise(shape: tuple[int, ...], operands: int, fn: str = "add") -> Generic:
    every = tuple(dim(d) for d in range(len(shape)))
    body = call(fn, *map(arg, range(operands)))
    dtypes = ("f32",) * operands
    yields = (Yield(body, "f32"),)
    return Generic(shape, len(shape), (every,) * operands, (shape,) * operands, yields, (), dtypes)


def matmul(m: int, n: int, k: int) -> Generic:
    maps = ((dim(0), dim(2)), (dim(2), dim(1)))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    return Generic((m, n, k), 2, maps, ((m, k), (k, n)), yields, (), ("f32", "f32"))


def packed_matmul(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Generic:
    """lhs packed to [m/tm, k, tm], rhs to [n/tn, k, tn], the result to [m/tm, n/tn, tm, tn]."""
    tm, tn, _ = tile
    sizes = (m // tm, n // tn, tm, tn, k)
    maps = ((dim(0), dim(4), dim(2)), (dim(1), dim(4), dim(3)))
    shapes = ((m // tm, k, tm), (n // tn, k, tn))
    yields = (Yield(call("mul", arg(0), arg(1)), "f32", "add"),)
    return Generic(sizes, 4, maps, shapes, yields, tile, ("f32", "f32"))


def layout(source: tuple[int, ...], pos: tuple[int, ...], *tiles: int, outer=(0, 1)) -> Layout:
    return Layout(source, pos, tiles, outer, ("-",) * len(tiles))


def reference(fusion: Fusion | None = None, **changes: object) -> Target:
    """One byte is 1 ns; no launch cost, computing is free."""
    memory = (Memory("ram", 1 << 40, 1e9),)
    target = Target("toy", "", "xla", True, memory, 0, (), 1.0, 1.0, (), file="toy.yaml")
    return replace(target, fusion=fusion or Fusion(), **changes)


def transposed_pack() -> EGraph:
    """a; results t = transpose(a), add(t, t), pack(t); a rule folds the transpose: pack(a)."""
    g = Graph()
    a = g.leaf("input", "a", 512, 256)
    t = g.add("transpose", Transpose((512, 256), (1, 0)), a)
    p = g.add("pack", layout((256, 512), (0, 1), 16, 16), t)
    s = g.add("generic", elementwise((256, 512), 2), t, t)
    g.also(p, "pack", layout((512, 256), (1, 0), 16, 16, outer=(1, 0)), a)
    return g.build(t, s, p)


def weighted_matmul(rules: bool = True) -> EGraph:
    """relu(x @ w), with the packed form a rule would make: both operands and the result packed."""
    g = Graph()
    x, w = g.leaf("input", "x", 32, 64), g.leaf("weight", "w", 64, 48)
    y = g.add("generic", matmul(32, 48, 64), x, w)
    r = g.add("generic", elementwise((32, 48), 1, "tanh"), y)
    if rules:
        tile = (16, 16, 1)
        px = g.also(None, "pack", layout((32, 64), (0,), 16), x)
        pw = g.also(None, "pack", layout((64, 48), (1,), 16, outer=(1, 0)), w)
        py = g.also(None, "generic", packed_matmul(32, 48, 64, tile), px, pw)
        g.also(y, "unpack", layout((32, 48), (0, 1), 16, 16), py)
    return g.build(r)


def diamond() -> EGraph:
    """Two consumers of one value that meet again, the value itself a result."""
    g = Graph()
    x = g.leaf("input", "x", 64)
    v = g.add("generic", elementwise((64,), 1, "exp"), x)
    a = g.add("generic", elementwise((64,), 1, "tanh"), v)
    b = g.add("generic", elementwise((64,), 2, "mul"), v, x)
    c = g.add("generic", elementwise((64,), 2, "add"), a, b)
    return g.build(c, v)


def chain(length: int, size: int = 64) -> EGraph:
    g = Graph()
    x = g.leaf("input", "x", size)
    for _ in range(length):
        x = g.add("generic", elementwise((size,), 1, "exp"), x)
    return g.build(x)


GRAPHS = {
    "transposed_pack": transposed_pack,
    "weighted_matmul": weighted_matmul,
    "diamond": diamond,
    "chain": lambda: chain(4),
}


FUSIONS = {
    "plain": Fusion(members=3),
    "none": Fusion(members=1),
    "multi": Fusion(members=3, multi_result=True),
    "clone": Fusion(members=3, clone=("all",)),
    "siblings": Fusion(members=4, multi_result=True, siblings=True),
}


def assembled(
    graph: EGraph, target: Target, *, input_only: bool = False, keeps_all: bool = False
) -> Assembly:
    """The choice of all candidates, whatever is known."""
    pool = Pool(Legality(Space(graph), target), input_only, keeps_all=keeps_all)
    return choices(pool).assembled()


def run(graph: EGraph, target: Target, *goals: GoalRequest) -> Selection:
    found, _ = extract(graph, target, goals or ALL)
    assert found.stop == "optimal"
    return found


def values(selection: Selection) -> tuple[int, ...]:
    return tuple(selection.goal(g).value for g in GOALS)
