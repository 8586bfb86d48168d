"""An ONNX model as checked, plain data: what every other file here works on.

Operators are functions of a call, which knows the node's operands and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.frontends.valuenames import NODE
from eqsat.model.diag import EqsatError, fail
from eqsat.model.symbols import spoken
from eqsat.model.tensor import DEFAULT

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


# ---- calls ---------------------------------------------------------------------------------------
FOLDED_ELEMENTS = 2**16  # arrays up to this size are computed while reading
STATIC_ELEMENTS = 2**24  # of an array that must be known while reading


@dataclass(frozen=True)
class Held:
    """A value: a NumPy array where it is known while reading, else a JAX tracer.

    leaf: the tracer that stands for a known array that is a weight of the program.
    computed: gives the array of a tracer that depends on known arrays alone, which are read by a
    chain of so many nodes (`depth`).
    """

    array: Any
    leaf: Any = None
    name: str = ""
    computed: Callable[[], Array] | None = None
    depth: int = 0

    @property
    def is_constant(self) -> bool:
        return isinstance(self.array, np.ndarray)

    @property
    def foldable(self) -> bool:
        """Known and small, and no weight that the program should keep under its name."""
        if not self.is_constant or self.array.size > FOLDED_ELEMENTS:
            return False
        return self.leaf is None or self.array.dtype.kind in "iub" or self.array.size <= 16

    @property
    def known(self) -> Array | None:
        """The array, computed now if need be; None for one that depends on the inputs."""
        if self.is_constant:
            return self.array
        return self.computed() if self.computed else None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(d) for d in self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def traced(self) -> Any:
        """The value in JAX: a uniform array as a broadcast scalar, other known ones as they are."""
        import jax.numpy as jnp

        if not self.is_constant:
            return self.array
        array = self.array
        _check_narrowing(array, self.name)
        if self.leaf is not None and array.size != 1:
            return self.leaf
        first = array.flat[0] if array.size else None
        if first is not None and (array == first).all():
            return jnp.full(self.shape, first, array.dtype)
        return jnp.asarray(array)


def _check_narrowing(array: Array, name: str) -> None:
    """EqsatError E369 if JAX would cut 64-bit integers to 32 bits and change one."""
    import jax

    wide = array.dtype.name in ("int64", "uint64")
    if not wide or not array.size or jax.config.read("jax_enable_x64"):
        return
    narrow = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
    if array.min() < narrow.min or array.max() > narrow.max:
        what = f"`{short(name)}`" if name else "a constant"
        raise fail(
            "E369",
            f"{what} holds 64-bit integers beyond 32 bits, and JAX has 64-bit types switched off",
            help='jax.config.update("jax_enable_x64", True)',
        )


@dataclass(frozen=True)
class OnnxCall:
    """One node about to be computed.

    xp: numpy where every operand is known and small, else jax.numpy. opset: the version of the
    node's domain. `call[i]` is operand i as an array of `xp`.
    """

    node: OnnxNode
    operands: tuple[Held | None, ...]
    opset: int
    xp: Any
    run: Any = field(repr=False, default=None)  # the interpreter, for nodes that hold graphs

    def __len__(self) -> int:
        return len(self.operands)

    def has(self, i: int) -> bool:
        """Whether operand i is given."""
        return i < len(self.operands) and self.operands[i] is not None

    def held(self, i: int) -> Held:
        """Operand i; EqsatError E362 if it is left out."""
        operand = self.operands[i] if i < len(self.operands) else None
        if operand is None:
            raise self.error("E362", f"lacks its operand {i}")
        return operand

    def __getitem__(self, i: int) -> Any:
        held = self.held(i)
        return held.array if self.xp is np else held.traced

    def get(self, i: int) -> Any | None:
        """Operand i, None if it is left out."""
        return self[i] if self.has(i) else None

    @property
    def all(self) -> list[Any]:
        """Every operand of a variadic operator."""
        return [self[i] for i in range(len(self.operands))]

    def shape(self, i: int) -> tuple[int, ...]:
        return self.held(i).shape

    def rank(self, i: int) -> int:
        return len(self.shape(i))

    def dtype(self, i: int) -> np.dtype[Any]:
        """The element type as the file has it."""
        return self.held(i).dtype

    def static(self, i: int, what: str) -> Array:
        """Operand i as an array known now; E366 if it depends on the inputs."""
        held = self.held(i)
        if held.is_constant and held.array.size <= STATIC_ELEMENTS:
            return held.array
        why = "is too large to be read" if held.is_constant else "depends on the inputs"
        raise self.error(
            "E366",
            f"needs its {what} known when the model is read, and it {why}",
            help="shapes are static here: export with fixed sizes, or make it a constant",
        )

    def whole(self, i: int, what: str) -> tuple[int, ...]:
        """A static operand of whole numbers, flat."""
        return tuple(int(v) for v in self.static(i, what).reshape(-1))

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def needed(self, name: str) -> Any:
        """An attribute that the operator cannot do without; E362 if it is missing."""
        if name not in self.node.attributes:
            raise self.error("E362", f"lacks its attribute `{name}`")
        return self.node.attributes[name]

    def graph(self, name: str) -> OnnxGraph:
        """A graph that is about to run; EqsatError if it could not be read."""
        found = self.needed(name)
        if isinstance(found, EqsatError):
            raise found
        return found

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis as a number from 0; E368 if there is none such."""
        if not -rank <= axis < max(rank, 1):
            raise self.error("E368", f"names axis {axis} of a tensor of rank {rank}")
        return axis % max(rank, 1)

    def along(self, name: str, default: int) -> int:
        """The axis of operand 0 that an attribute names, from 0."""
        return self.axis(int(self.attribute(name, default)), self.rank(0))

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Like `axis` for several; E368 if one is named twice."""
        normalized = tuple(self.axis(int(a), rank) for a in axes)
        if len(set(normalized)) < len(normalized):
            raise self.error("E368", f"names an axis twice: {list(axes)[:16]}")
        return normalized

    def wants(self, i: int) -> bool:
        """Whether result i may be read."""
        return i < len(self.node.outputs) and bool(self.node.outputs[i])

    def error(self, code: str, what: str, help: str = "") -> EqsatError:
        return self.node.error(code, what, help)

    def unsupported(self, what: str, help: str = "") -> EqsatError:
        """E365: a form of the operator that is not read."""
        return self.error("E365", f"has {what}, which is not read", help)

    @property
    def lax(self) -> Any:
        import jax

        return jax.lax

    @property
    def nn(self) -> Any:
        import jax

        return jax.nn


# ---- the table -----------------------------------------------------------------------------------
Meaning = Callable[[OnnxCall], Any]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Operator:
    """compute: an array, or a tuple of results. fold: computed in NumPy where all is known.

    newest: the last version of the operator (`since_version`) that `compute` knows.
    """

    compute: Meaning
    newest: int
    fold: bool


OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(
    *names: str, newest: int, fold: bool = False, domain: str = ""
) -> Callable[[Meaning], Meaning]:
    """Enter a function into the table under these names."""

    def enter(compute: Meaning) -> Meaning:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(compute, newest, fold)
        return compute

    return enter


def contributed(*names: str) -> Callable[[Meaning], Meaning]:
    """An operator of the `com.microsoft` domain, which exports of PyTorch models hold."""
    return operator(*names, newest=1, domain=MICROSOFT)
