"""Terms over leaves: as programs at any sizes, as text, and their values on samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat.lab.discover.forms import FLOAT, FORMS, INDEX, Sizes, Way
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.tensor import TensorType
from eqsat.ops.spelling.passes import canonical

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
        """It and all in it, from the outside."""
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
        found: dict[Term, int] = {}
        for name in (n for n in self.names if n in names):
            leaf = Leaf(name, self.type(name, sizes), len(found))
            found[Term("", name)] = builder.add("input", (), leaf)
        return found


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
    """The same with every term in the spelling it has as a program of its own.

    In one program what several terms share is not merged into its readers.
    """
    builder = Builder("terms")
    names = frozenset().union(*(t.leaves for t in terms))
    inputs = leaves.add_to(builder, sizes, names)
    by_name = {t.name: node for t, node in inputs.items()}
    results: list[int] = []
    for term in terms:
        own = canonical(program_of((term,), leaves, sizes))
        new = {i: by_name[own.leaf(i).name] for i in own.inputs}
        for i, n in enumerate(own.nodes):
            if i not in new:
                new[i] = builder.move(n, tuple([new[o] for o in n.operands]))
        results += [new[r] for r in own.results]
    return builder.build(results)
