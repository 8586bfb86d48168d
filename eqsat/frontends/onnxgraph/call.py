"""Calls of operators: the table of their functions, and what each is given.

(domain, name) → its function and the newest version it implements; operands, attributes, and a
namespace to compute in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import Array, OnnxGraph, OnnxNode, short
from eqsat.model.diag import EqsatError, fail

# ---- calls ---------------------------------------------------------------------------------------
FOLDED_ELEMENTS = 2**16  # arrays up to this size are computed while reading
STATIC_ELEMENTS = 2**24  # of an array that must be known while reading


@dataclass(frozen=True)
class Held:
    """A value: a NumPy array where it is known while reading, else a JAX tracer.

    leaf: the tracer that stands for a known array that is a weight of the program.
    """

    array: Any
    leaf: Any = None
    name: str = ""

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
        return self.needed(name)

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
