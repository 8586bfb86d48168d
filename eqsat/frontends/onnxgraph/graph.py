"""An ONNX model as checked, plain data: what every other file here works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.frontends.valuenames import NODE
from eqsat.model.diag import EqsatError, fail
from eqsat.model.origin import spoken
from eqsat.model.precision import DEFAULT

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Argument:
    """A graph input: its element type, and per axis a size or the name of an unknown one.

    shape is None where the file gives no rank.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | str, ...] | None


@dataclass(frozen=True)
class Reference:
    """An attribute in a function's body that the call gives."""

    name: str


@dataclass(frozen=True)
class OnnxNode:
    """One node; "" among inputs is an operand left out, among outputs a result that is not used."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    kinds: Mapping[str, int] = field(default_factory=dict)  # attribute → AttributeProto type
    overload: str = ""
    precision: str = DEFAULT  # of its products, where the file says one for us

    @property
    def label(self) -> str:
        """How messages call it: by its name, or by its first output."""
        plain = f"node `{short(self.name)}`" if self.name else self._by_output()
        return f"{plain} ({self.title})"

    @property
    def title(self) -> str:
        return f"{self.domain}.{short(self.op)}" if self.domain else short(self.op)

    def _by_output(self) -> str:
        named = [o for o in self.outputs if o]
        return f"the node that gives `{short(named[0])}`" if named else "a node"

    @property
    def scope(self) -> str:
        """The scope in which its equations are traced: it names the value that the node gives.

        `/encoder/layer.3/key/MatMul` is `encoder.layer.3.key.matmul`; without a name it is called
        after its first output, and after its op where that is a number.
        """
        named = [n for n in (self.name, *self.outputs) if n and not n.isdigit()]
        *path, last = spoken(named[0].replace("/", ".") if named else self.op).split(".")
        word = last.lower() if last.lower().startswith(self.op.lower()) else last
        return NODE + (".".join([*path, word]) or self.op.lower())

    def error(self, code: str, what: str, help: str = "") -> EqsatError:
        """An error about this node: its label, then `what`."""
        return fail(code, f"{self.label} {what}", help=help)


@dataclass(frozen=True)
class OnnxGraph:
    """Nodes in an order in which operands come first."""

    name: str
    inputs: tuple[Argument, ...]
    initializers: Mapping[str, Array]
    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]

    @cached_property
    def free(self) -> frozenset[str]:
        """Names read here that an outer graph defines."""
        defined = {a.name for a in self.inputs} | set(self.initializers)
        defined |= {o for n in self.nodes for o in n.outputs}
        wanted = {o for o in self.outputs if o}
        for node in self.nodes:
            wanted |= reads(node)
        return frozenset(wanted - defined)


@dataclass(frozen=True)
class OnnxFunction:
    """A function of the model or of the standard: a graph whose attributes the call may give."""

    body: OnnxGraph
    attributes: frozenset[str]
    defaults: Mapping[str, Any]
    opsets: Mapping[str, int]


@dataclass(frozen=True)
class OnnxModel:
    """A whole file: main graph, functions by (domain, name, overload), opset version by domain."""

    graph: OnnxGraph
    functions: Mapping[tuple[str, str, str], OnnxFunction]
    opsets: Mapping[str, int]


def subgraphs(node: OnnxNode) -> list[OnnxGraph]:
    """The graphs among a node's attributes."""
    graphs = []
    for value in node.attributes.values():
        several = value if isinstance(value, tuple) else (value,)
        graphs += [g for g in several if isinstance(g, OnnxGraph)]
    return graphs


def reads(node: OnnxNode) -> set[str]:
    """Names a node reads, those of its subgraphs included."""
    names = {i for i in node.inputs if i}
    for graph in subgraphs(node):
        names |= graph.free
    return names


def short(text: str, longest: int = 80) -> str:
    """A name from a file, fit for one line of a terminal."""
    plain = "".join(c if c.isprintable() else "?" for c in text[: longest + 1])
    return plain if len(plain) <= longest else f"{plain[:longest]}…"
