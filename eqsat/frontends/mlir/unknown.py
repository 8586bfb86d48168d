"""Dynamic sizes: which `?` of a function's arguments are equal, which are known, which are symbols.

One walk before the function is read for good. What it does not understand it leaves apart, and
sizes that then differ are refused with their place when the function is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.mlir.expressions import affine_of
from eqsat.frontends.mlir.items import Environment, is_index, ranked_type, segments
from eqsat.model.affine import dim
from eqsat.model.symbols import Symbol, check_names, sized

DEFAULT_SIZE = 128  # what a size nothing decides is priced at unless somebody says otherwise
Size = int  # ≥ 0 known, < 0 the class of an unknown one
_SAME = (
    "iree_encoding.set_encoding", "iree_encoding.unset_encoding", "tensor.cast",
    "flow.tensor.transfer", "hal.tensor.export", "flow.tensor.tie_shape",
)  # fmt: skip


@dataclass
class SizeClasses:
    """Sizes of every value of a function, unknown ones united where an op makes them equal."""

    scope: Environment
    shapes: dict[Any, list[Size]] = field(default_factory=dict)
    indices: dict[Any, Size] = field(default_factory=dict)
    parents: dict[Size, Size] = field(default_factory=dict)

    def fresh(self) -> Size:
        number = -1 - len(self.parents)
        self.parents[number] = number
        return number

    def find(self, s: Size) -> Size:
        while s < 0 and self.parents[s] != s:
            s = self.parents[s]
        return s

    def unite(self, a: Size, b: Size) -> None:
        """Both are one; two known sizes that differ are left for the reader to refuse."""
        a, b = self.find(a), self.find(b)
        if a < 0:
            self.parents[a] = b
        elif b < 0:
            self.parents[b] = a

    def of(self, value: Any) -> list[Size]:
        """The sizes of a value, new where its type does not know them."""
        if value not in self.shapes:
            dims, _ = ranked_type(value.type, None)
            self.shapes[value] = [self.fresh() if d is None else d for d in dims]
        return self.shapes[value]

    def same(self, a: Any, b: Any) -> None:
        for x, y in zip(self.of(a), self.of(b), strict=False):
            self.unite(x, y)

    def read(self, block: Any) -> None:
        """Every operation of a function's block."""
        for o in block.operations:
            self._op(o.operation)

    def _op(self, op: Any) -> None:
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
        elif op.name in _SAME:
            self.same(op.operands[0], op.results[0])
        elif op.name.startswith(("arith.", "math.")) and len(op.results) == 1:
            for value in op.operands:
                if "tensor<" in str(value.type):
                    self.same(value, op.results[0])

    def index(self, value: Any) -> Size:
        if value not in self.indices:
            self.indices[value] = self.fresh()
        return self.indices[value]


def _constant(sizes: SizeClasses, op: Any) -> None:
    if is_index(op.results[0].type):
        sizes.indices[op.results[0]] = max(int(op.attributes["value"].value), 0)


def _dim(sizes: SizeClasses, op: Any) -> None:
    source, at = op.operands
    shape, where = sizes.of(source), sizes.indices.get(at, -1)
    if 0 <= where < len(shape):
        sizes.indices[op.results[0]] = shape[where]


def _empty(sizes: SizeClasses, op: Any) -> None:
    dynamic = iter(op.operands)
    dims, _ = ranked_type(op.results[0].type, None)
    sizes.shapes[op.results[0]] = [sizes.index(next(dynamic)) if d is None else d for d in dims]


def _generic(sizes: SizeClasses, op: Any) -> None:
    inputs, outputs = segments(op)
    loops: dict[int, Size] = {}
    for value, attribute in zip((*inputs, *outputs), op.attributes["indexing_maps"], strict=False):
        amap = attribute.value
        dims = [dim(i) for i in range(amap.n_dims)]
        for e, size in zip(amap.results, sizes.of(value), strict=False):
            index = affine_of(e, dims)
            if index is not None and index.dim is not None:
                sizes.unite(loops.setdefault(index.dim, size), size)
    for value, result in zip(outputs, op.results, strict=False):
        sizes.same(value, result)


_RULES: Mapping[str, Callable[[SizeClasses, Any], None]] = {
    "arith.constant": _constant,
    "tensor.dim": _dim,
    "tensor.empty": _empty,
    "linalg.generic": _generic,
}


def argument_sizes(
    scope: Environment, block: Any, names: Sequence[str], asked: Mapping[str, int] | None
) -> tuple[list[tuple[int, ...]], tuple[Symbol, ...]]:
    """The shape of every argument, and a symbol for every size that nothing decides.

    A symbol is named after the first dim that has it, `NAME_DIM`. EqsatError E385, E386.
    """
    sizes = SizeClasses(scope)
    given = [sizes.of(a) for a in block.arguments]
    if not any(s < 0 for shape in given for s in shape):
        check_names(asked, ())
        return [tuple(shape) for shape in given], ()
    sizes.read(block)
    symbols: dict[Size, Symbol] = {}
    shapes = []
    for name, shape in zip(names, given, strict=True):
        extents = []
        for d, size in enumerate(shape):
            s = sizes.find(size)
            if s < 0 and s not in symbols:
                symbols[s] = sized(f"{name}_{d}", 1, DEFAULT_SIZE, asked)
            extents.append(symbols[s].extent if s < 0 else s)
        shapes.append(tuple(extents))
    check_names(asked, symbols.values())
    return shapes, tuple(symbols.values())
