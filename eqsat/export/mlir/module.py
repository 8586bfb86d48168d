"""A plan as an MLIR module with one function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.export.mlir import syntax
from eqsat.export.mlir.control import write_control
from eqsat.export.mlir.expressions import Body
from eqsat.export.mlir.ops import WRITERS
from eqsat.export.mlir.writer import Value, Writer
from eqsat.export.plan import (
    Exported,
    Inexpressible,
    Missing,
    Plan,
    identifier,
    plan_program,
    plan_schedule,
    writer_of,
)
from eqsat.model.affine import dim
from eqsat.model.control import Control
from eqsat.model.foreign import Opaque
from eqsat.model.generic import Result
from eqsat.model.program import Node
from eqsat.model.tensor import DTYPES, TensorType

SMALL = 1024  # bytes of a weight that is written in place; larger ones go into the resources

Array = np.ndarray[Any, Any]


def write_module(plan: Plan, *, weights: str = "auto") -> Exported:
    """The module. Ops it cannot say are calls of private functions, and listed as missing."""
    made = _Function(plan, weights, symbol(plan.program.name))
    made.write()
    lines = ["module {", *made.declared, *made.lines(), "}"]
    parts = [("\n".join(lines) + "\n").encode()]
    parts += _resources(made.resources)
    return Exported((("", b"".join(parts)),), made.ops, tuple(made.missing))


def _resources(resources: Sequence[tuple[str, Array]]) -> list[bytes]:
    """The section of the file that holds large constants, in parts: joined once, as it is large."""
    if not resources:
        return []
    parts = [b"\n{-#\n  dialect_resources: {\n    builtin: {"]
    for number, (key, array) in enumerate(resources):
        head = f'{"," if number else ""}\n      {key}: "0x'
        parts += [head.encode(), syntax.resource(array), b'"']
    return [*parts, b"\n    }\n  }\n#-}\n"]


@dataclass
class _Function:
    """A plan as a function; `declared` are the lines of functions that it calls."""

    plan: Plan
    weights: str
    name: str
    visibility: str = ""
    ops: int = 0
    w: Writer = field(default_factory=Writer)
    values: dict[int, list[str]] = field(default_factory=dict)  # node → a name per result
    resources: list[tuple[str, Array]] = field(default_factory=list)
    declared: list[str] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def write(self) -> None:
        """Fill the function."""
        self.ops = len(self.plan.order)
        for number, i in enumerate(self.plan.arguments):
            self.values[i] = [f"%arg{number}_{symbol(self.plan.names[i])}"]
        for number, (i, array) in enumerate(self.plan.arrays.items()):
            self.values[i] = [self._constant(number, i, array)]
        for group in self.plan.groups:
            if group.title:
                self.w.line(f"// {group.title}")
            for i in group.nodes:
                self.values[i] = self._node(i)
        program = self.plan.program
        names = ", ".join(self.values[r][0] for r in program.results)
        types = ", ".join(syntax.tensor(program.nodes[r].type) for r in program.results)
        self.w.line(f"return {names} : {types}" if names else "return")

    def lines(self) -> list[str]:
        """The whole function."""
        program = self.plan.program
        arguments = ", ".join(
            f"{self.values[i][0]}: {syntax.tensor(program.nodes[i].type)}"
            f" {{eqsat.name = {syntax.quoted(self.plan.names[i])}}}"
            for i in self.plan.arguments
        )
        results = ", ".join(syntax.tensor(program.nodes[r].type) for r in program.results)
        head = f"  func.func {self.visibility}@{self.name}({arguments}) -> ({results}) {{"
        return [head, *self.w.lines, "  }"]

    # ---- weights -------------------------------------------------------------------------------
    def _constant(self, number: int, node: int, array: Array) -> str:
        t = self.plan.program.nodes[node].types[0]
        name = f"%w{number}_{symbol(self.plan.names[node])}"
        if t.dtype not in ("bool", "i4", "u4"):
            return self._stored(number, node, array, t, name)
        # MLIR packs types below a byte, so they are stored as bytes and narrowed
        wide = TensorType("i8", t.shape)
        held = self._stored(number, node, array.astype(np.int8), wide, self.w.fresh())
        return _narrowed(self.w, Value(held, wide), t, name)

    def _stored(self, number: int, node: int, array: Array, t: TensorType, name: str) -> str:
        limit = {"resources": 0, "auto": SMALL}.get(self.weights)
        splat = _is_splat(array)
        in_bytes = DTYPES[t.dtype][0] % 8 == 0  # those of a resource
        if splat or limit is None or t.nbytes <= limit or not in_bytes:
            return self.w.op(f"arith.constant {syntax.dense(array, t)}", name)
        key = f"w{number}_{symbol(self.plan.names[node])}"
        self.resources.append((key, array))
        return self.w.op(f"arith.constant dense_resource<{key}> : {syntax.tensor(t)}", name)

    # ---- nodes ---------------------------------------------------------------------------------
    def _node(self, i: int) -> list[str]:
        node = self.plan.program.nodes[i]
        if isinstance(node.attr, Result):
            return [self.values[node.operands[0]][node.attr.index]]
        xs = [self._value(o) for o in node.operands]
        before = len(self.w.lines)
        if isinstance(node.attr, Control):
            functions = [self._body(i, k) for k in range(len(node.attr.bodies))]
            return write_control(self.w, node.attr, xs, f"%v{i}", functions)
        try:
            return _write(self.w, node, xs, f"%v{i}")
        except Inexpressible as reason:
            del self.w.lines[before:]
            self.missing.append(Missing(i, node.op, str(reason)))
            return self._call(i, node, xs)

    def _body(self, i: int, number: int) -> str:
        """A body of a loop or branch as a private function; its symbol."""
        attr = self.plan.program.nodes[i].attr
        assert isinstance(attr, Control)
        if attr.schedules:
            plan = plan_schedule(attr.schedules[number], {}, {}, arguments=False)
        else:
            plan = plan_program(attr.programs[number], {}, arguments=False)
        name = f"{self.name}.{attr.labels[number]}.{i}"
        made = _Function(plan, "constants", name, "private ")
        made.write()
        self.declared += [*made.declared, *made.lines()]
        self.missing += made.missing
        self.ops += made.ops
        return name

    def _value(self, i: int) -> Value:
        return Value(self.values[i][0], self.plan.program.nodes[i].types[0])

    def _call(self, i: int, node: Node, xs: Sequence[Value]) -> list[str]:
        """A call of a function that is declared but not defined."""
        function = f"@eqsat.{symbol(_kind(node))}.{self.name}.{i}"
        taken = ", ".join(syntax.tensor(x.type) for x in xs)
        signature = f"({taken}) -> ({', '.join(map(syntax.tensor, node.types))})"
        self.declared.append(f"  func.func private {function}{signature}")
        names = ", ".join(x.name for x in xs)
        several = f":{len(node.types)}" if len(node.types) > 1 else ""
        self.w.line(f"%v{i}{several} = func.call {function}({names}) : {signature}")
        return [f"%v{i}#{r}" for r in range(len(node.types))] if several else [f"%v{i}"]


def _kind(node: Node) -> str:
    return node.attr.primitive if isinstance(node.attr, Opaque) else node.op


def _write(w: Writer, node: Node, xs: Sequence[Value], name: str) -> list[str]:
    """The names of a node's results; Inexpressible if MLIR's dialects have no such op."""
    write = writer_of(WRITERS, node, "no op of linalg, tensor, arith and math does this")
    found = write(w, node.attr, xs, node.types[0], name)
    return found if isinstance(found, list) else [found]


def _narrowed(w: Writer, x: Value, t: TensorType, name: str) -> str:
    """Bytes as bools, i4 or u4."""
    identity = syntax.affine_map(tuple(dim(d) for d in range(t.rank)), t.rank)
    into = w.empty(t)
    w.structured(name, [identity, identity], ["parallel"] * t.rank, [(x.name, x.type)], [(into, t)])
    a, b, element = w.fresh(), w.fresh(), syntax.element(t.dtype)
    w.line(f"^bb0({a}: i8, {b}: {element}):", 3)
    found = Body(w, [a]).cast(a, "i8", t.dtype)
    w.line(f"linalg.yield {found} : {element}", 4)
    w.line(f"}} -> {syntax.tensor(t)}")
    return name


def _is_splat(array: Array) -> bool:
    data = array.reshape(-1)
    return data.size > 0 and data[:1].tobytes() * data.size == data.tobytes()


def symbol(name: str) -> str:
    """A name as MLIR's symbols may be without quotes."""
    return identifier(name).replace("-", "_")
