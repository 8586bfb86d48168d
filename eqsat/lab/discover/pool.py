"""All small terms over some leaves, grouped by their values on samples.

Terms are programs at any sizes, and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from eqsat.lab.discover.forms import FLOAT, FORMS, INDEX, MOST_DIMS, Sizes, Way
from eqsat.model.attr import ShapeError
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import evaluate_node, evaluate_program
from eqsat.ops.op import Array
from eqsat.ops.spelling.passes import canonical

# ---- terms ---------------------------------------------------------------------------------------
INDICES = "i"  # the leaf that holds indices, where there is one


@dataclass(frozen=True)
class Term:
    """A leaf (`form` is "", `name` its own) or a form applied to terms in one of its ways."""

    form: str
    name: str = ""
    way: Way = ()
    operands: tuple[Term, ...] = ()

    @cached_property
    def size(self) -> int:
        """How many ops it has, those that stand in it twice twice."""
        return bool(self.form) + sum(o.size for o in self.operands)

    @cached_property
    def leaves(self) -> frozenset[str]:
        if not self.form:
            return frozenset((self.name,))
        return frozenset().union(*(o.leaves for o in self.operands))

    def walk(self) -> Iterator[Term]:
        """The term and its subterms, from the outside."""
        yield self
        for o in self.operands:
            yield from o.walk()

    def __str__(self) -> str:
        if not self.form:
            return self.name
        inner = ", ".join([*map(str, self.operands), *map(str, self.way)])
        return f"{self.form}({inner})"


@dataclass(frozen=True)
class Leaves:
    """The leaves of terms: letters of their dims, by name."""

    letters: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.letters)

    def type(self, name: str, sizes: Sizes) -> TensorType:
        """The type of a leaf at these sizes."""
        shape = tuple(sizes[c] for c in dict(self.letters)[name])
        return TensorType(INDEX if name == INDICES else FLOAT, shape)

    def given(self, sizes: Mapping[str, int], names: frozenset[str]) -> dict[str, str]:
        """Names and types of some, as an example of a rule says them."""
        return {n: str(self.type(n, sizes)) for n in self.names if n in names}

    def add_to(self, builder: Builder, sizes: Sizes, names: frozenset[str]) -> dict[Term, int]:
        """The nodes of some leaves in a builder."""
        inputs: dict[Term, int] = {}
        for name in (n for n in self.names if n in names):
            leaf = Leaf(name, self.type(name, sizes), len(inputs))
            inputs[Term("", name)] = builder.add("input", (), leaf)
        return inputs


def write(term: Term, builder: Builder, nodes: dict[Term, int], sizes: Sizes) -> int:
    """The node of a term; ShapeError if it does not fit at these sizes."""
    if term not in nodes:
        inner = tuple([write(o, builder, nodes, sizes) for o in term.operands])
        nodes[term] = FORMS[term.form].write(builder, inner, term.way, sizes)
    return nodes[term]


def program_of(terms: tuple[Term, ...], leaves: Leaves, sizes: Sizes) -> Program:
    """A program whose results are these terms, over the leaves that they have."""
    builder = Builder("terms")
    nodes = leaves.add_to(builder, sizes, frozenset().union(*(t.leaves for t in terms)))
    return builder.build([write(t, builder, nodes, sizes) for t in terms])


def spelled_apart(terms: tuple[Term, ...], leaves: Leaves, sizes: Sizes) -> Program:
    """One program of all terms, each spelled as in a program of its own.

    In one program what several terms share is not merged into its readers.
    """
    builder = Builder("terms")
    names = frozenset().union(*(t.leaves for t in terms))
    inputs = leaves.add_to(builder, sizes, names)
    by_name = {t.name: node for t, node in inputs.items()}
    results: list[int] = []
    for term in terms:
        program = canonical(program_of((term,), leaves, sizes))
        new = {i: by_name[program.leaf(i).name] for i in program.inputs}
        for i, n in enumerate(program.nodes):
            if i not in new:
                new[i] = builder.move(n, tuple([new[o] for o in n.operands]))
        results += [new[r] for r in program.results]
    return builder.build(results)


# ---- the pool ------------------------------------------------------------------------------------
# primes of which no sum, double or neighbour is another: equal sizes are equal letters
SIZES: Mapping[str, int] = {"m": 5, "k": 13, "n": 29}
SAMPLES = 2
NO_NUMBER = 0.7310585786300049  # stands for lanes that are no number, which have to agree as well
DIGITS = 7  # of what terms are grouped by; equal values differ in the last of 16
CLOSE = 1e-9
Pair = tuple[Term, Term]  # with equal values: the one that stands for both, and another one
Key = tuple[TensorType, tuple[str, ...]]


def leaf_choices(count: int, has_indices: bool) -> Iterator[Leaves]:
    """Leaves x, y … : a matrix, and any other matrices and rows of its dims or one more."""
    names = "xyzw"[:count]
    for rest in combinations_with_replacement(("kn", "mk", "k", "m"), count - 1):
        leaves = list(zip(names, ("mk", *rest), strict=True))
        yield Leaves(tuple([*leaves, (INDICES, "n")] if has_indices else leaves))


class TermPool:
    """Terms over these leaves, size by size."""

    def __init__(self, leaves: Leaves, forms: Sequence[str], seed: int):
        self.leaves, self.forms = leaves, forms
        self.builder = Builder("pool")
        rng = np.random.default_rng(seed)
        self.probes: dict[tuple[int, ...], Array] = {}
        self.rng = np.random.default_rng(seed + 1)
        self.nodes = leaves.add_to(self.builder, SIZES, frozenset(leaves.names))
        self.values: dict[int, list[Array]] = {
            n: [_drawn(rng, self.builder.type(n)) for _ in range(SAMPLES)]
            for n in self.nodes.values()
        }
        self.first: dict[Key, Term] = {self._key(n): t for t, n in self.nodes.items()}
        self.by_size: list[list[Term]] = [list(self.nodes)]
        self.terms = 0

    def grow(self, is_over: Callable[[], bool]) -> list[Pair]:
        """All terms with one op more; those whose values a term has already, beside that one."""
        size = len(self.by_size)
        fresh: list[Term] = []
        pairs: list[Pair] = []
        for term in self._larger(size):
            if is_over():
                break
            node = self._written(term)
            if node is None:
                continue
            self.terms += 1
            key = self._key(node)
            earliest = self.first.setdefault(key, term)
            if earliest is term:
                fresh.append(term)
            elif self._agree(self.nodes[earliest], node):
                pairs.append((earliest, term))
        self.by_size.append(fresh)
        return pairs

    def others(self, term: Term) -> Iterator[Term]:
        """Terms of its type with other values, the largest first."""
        wanted = self.builder.type(self.nodes[term])
        candidates = (t for terms in reversed(self.by_size) for t in terms if t.form)
        for t in candidates:
            alike = self.builder.type(self.nodes[t]) == wanted and t.leaves <= term.leaves
            if alike and not self._agree(self.nodes[t], self.nodes[term]):
                yield t

    def is_exact(self, pair: Pair) -> bool:
        """Whether the values of both are equal to the bit."""
        a, b = (self.values[self.nodes[t]] for t in pair)
        return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(a, b, strict=True))

    # ---- larger terms ---------------------------------------------------------------------------
    def _larger(self, size: int) -> Iterator[Term]:
        for name in self.forms:
            form = FORMS[name]
            if form.arity == 1:
                for t in self.by_size[size - 1]:
                    yield from self._applied(name, (t,))
                continue
            for left in range(size):
                for a in self.by_size[left]:
                    for b in self.by_size[size - 1 - left]:
                        yield from self._applied(name, (a, b))

    def _applied(self, name: str, operands: tuple[Term, ...]) -> Iterator[Term]:
        types = [self.builder.type(self.nodes[o]) for o in operands]
        indices = [t.dtype == INDEX for t in types]
        if any(indices) and (name != "gather" or indices[0]):
            return
        for way in FORMS[name].ways(types, SIZES):
            yield Term(name, "", way, operands)

    def _written(self, term: Term) -> int | None:
        """The node of a term that is new; None if it is none, or two of its dims are one size."""
        count = len(self.builder.nodes)
        try:
            node = write(term, self.builder, self.nodes, SIZES)
        except ShapeError:
            return None
        shape = self.builder.type(node).shape
        wide = len(shape) > MOST_DIMS or len(set(shape)) < len(shape)
        if wide or (node < count and node in self.values):
            return None
        written = self.builder.nodes[node]
        inner = zip(*(self.values[o] for o in written.operands), strict=True)
        self.values[node] = [evaluate_node(written.op, written.attr, xs)[0] for xs in inner]
        return node

    # ---- values ---------------------------------------------------------------------------------
    def _key(self, node: int) -> Key:
        """The fingerprint of a term's values: their projections on random directions."""
        projections = []
        for x in self.values[node]:
            flat = np.nan_to_num(np.ravel(x).astype(np.float64), nan=NO_NUMBER)
            if flat.shape not in self.probes:
                self.probes[flat.shape] = self.rng.uniform(0.5, 1.5, flat.shape)
            projections.append(f"{float(flat @ self.probes[flat.shape]):.{DIGITS}e}")
        return self.builder.type(node), tuple(projections)

    def _agree(self, a: int, b: int) -> bool:
        pairs = zip(self.values[a], self.values[b], strict=True)
        return all(close(x, y) for x, y in pairs)


def close(a: Array, b: Array) -> bool:
    """Whether two results are equal but for the order in which they were computed."""
    scale = float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
    return np.allclose(a, b, rtol=CLOSE, atol=CLOSE * scale, equal_nan=True)


def _drawn(rng: np.random.Generator, type: TensorType) -> Array:
    if type.dtype == INDEX:
        return rng.integers(0, min(SIZES.values()), type.shape, dtype=np.int32)
    return rng.standard_normal(type.shape)


def holds_at(pair: Pair, leaves: Leaves, sizes: Mapping[str, int], seed: int) -> bool:
    """Whether both terms are equal at other sizes; also where one of them does not fit."""
    try:
        program = program_of(pair, leaves, sizes)
    except ShapeError:
        return True
    rng = np.random.default_rng(seed)
    inputs = [_drawn(rng, program.nodes[i].type) for i in program.inputs]
    a, b = evaluate_program(program, inputs, {})
    return a.shape == b.shape and close(a, b)
