"""IREE's dispatches → the program they compute, cut as IREE cut it.

`flow.dispatch.region` reads the values of the function around it; `flow.dispatch.workgroups` is
handed its operands, loads them and stores its results. What stands between dispatches is one of its
own, a view of the same bytes, or a constant, which the dispatches that read it write in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.frontends.mlir.items import Environment, Item, Nothing, ranked_type, segments
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import (
    FUNCTIONS,
    GLOBALS,
    LOADS,
    RETURNS,
    FunctionReader,
    symbols_of,
)
from eqsat.frontends.mlir.source import ModuleText, check_nesting, modernised
from eqsat.frontends.values import Context, Tensor
from eqsat.model.compiled import CutProgram
from eqsat.model.diag import EqsatError, fail
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.cutting import UNKNOWN, Cutter

REGION, WORKGROUPS = "flow.dispatch.region", "flow.dispatch.workgroups"
DISPATCHES = (REGION, WORKGROUPS)
SOURCE = "IREE"
_DUMP = "// -----// IR Dump "  # heads what `--mlir-print-ir-after` prints
HOW = "print it: `iree-compile --compile-to=dispatch-creation`, and for regions "
HOW += "`--mlir-print-ir-after=iree-dispatch-creation-form-dispatch-regions`"


def is_flow(text: str) -> bool:
    """Whether a text is one of dispatches."""
    return any(name in text for name in DISPATCHES)


def read_flow(text: str, file: str) -> CutProgram:
    """EqsatError E345 not as IREE prints it, E346 what is not read; E370 … E379 of MLIR."""
    if "\0" in text:
        raise fail("E345", f"`{file}` is no MLIR text: it holds null characters")
    if sum(is_flow(dump) for dump in text.split(_DUMP)) > 1:
        help = "keep the last one of the function that is judged"
        raise fail("E346", f"`{file}` holds several prints of its dispatches", help=help)
    written = ModuleText(file, text)
    check_nesting(written)
    source = modernised(written)
    module = parse_module(source)
    function = _only_function(module, source)
    name = function.attributes["sym_name"].value.removesuffix("$async")
    return _Cut(source, symbols_of(module, GLOBALS), Cutter(name)).read(function)


def _only_function(module: Any, source: ModuleText) -> Any:
    """The one that holds dispatches; others may call it."""
    functions = symbols_of(module, FUNCTIONS)
    holders = [f for f in functions.values() if _has_dispatch(f)]
    if not holders:
        raise fail("E345", f"no function of `{source.file}` holds a dispatch", help=HOW)
    if len(holders) > 1:
        names = ", ".join(f"`{f.attributes['sym_name'].value}`" for f in holders)
        raise fail("E346", f"`{source.file}` holds {names}: one function is read", help=HOW)
    return holders[0]


def _has_dispatch(function: Any) -> bool:
    blocks = [b for r in function.regions for b in r.blocks]
    return any(o.operation.name in DISPATCHES for b in blocks for o in b.operations)


def _every_op(region: Any) -> Iterator[Any]:
    """Operations of a region and of the regions in them."""
    for block in region.blocks:
        for o in block.operations:
            yield o.operation
            for inner in o.operation.regions:
                yield from _every_op(inner)


@dataclass(frozen=True)
class _Ops:
    """Operations that a reader runs as it runs those of a block."""

    operations: Sequence[Any]


@dataclass
class _Cut:
    """One function, read op by op.

    nodes: of the values that are in memory; items: values that have no elements there (constants,
    sizes, fences), which are written in place.
    """

    source: ModuleText
    globals: dict[str, Any]
    cutter: Cutter
    nodes: dict[Any, int] = field(default_factory=dict)
    items: dict[Any, Item] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    dispatches: int = 0

    def read(self, function: Any) -> CutProgram:
        block = self._reader().block(function)
        self._refuse_encodings(function)
        self._arguments(block)
        results: list[int] = []
        for o in block.operations:
            op = o.operation
            if op.name in RETURNS:
                results = [self._node(v, op) for v in op.operands]
            elif op.name == "hal.tensor.import":
                continue
            elif op.name in LOADS:
                self.nodes[op.results[0]] = self._load(op)
            elif op.name in DISPATCHES:
                self._dispatch(op)
            else:
                self._between(op)
        if not results:
            raise self._refused("E345", "the function returns nothing", function)
        return self.cutter.cut(results, SOURCE)

    # ---- leaves ------------------------------------------------------------------------------
    def _arguments(self, block: Any) -> None:
        """Inputs in the order of the arguments, not of their imports."""
        imports: dict[int, list[Any]] = {}
        for o in block.operations:
            op = o.operation
            if op.name == "hal.tensor.import":
                taken = [a.arg_number for a in block.arguments if a == op.operands[0]]
                if not taken:
                    raise self._refused("E346", "what is imported is no argument", op)
                imports.setdefault(taken[0], []).append(op)
        for a in block.arguments:
            imported = imports.get(a.arg_number, [])
            if not str(a.type).startswith("!"):
                self.nodes[a] = self._input(self._type(a, block.owner))
            elif imported:
                node = self._input(self._type(imported[0].results[0], imported[0]))
                self.nodes |= {a: node} | {op.results[0]: node for op in imported}
            self.items[a] = Nothing(a.arg_number)

    def _input(self, t: TensorType) -> int:
        number = len([n for n in self.cutter.builder.nodes if n.op == "input"])
        return self.cutter.builder.append("input", (), Leaf(f"arg{number}", t, number))

    def _load(self, op: Any) -> int:
        """A global is a weight, whose values the file has or leaves out."""
        name = op.attributes["global"].value
        if name not in self.loaded:
            reader = self._reader()
            reader.run(_Ops([op]))
            program = self._program(reader, [reader.scope.values[op.results[0]]], op)
            is_written = all(
                program.leaf(w).key in reader.scope.ctx.weights for w in program.weights
            )
            if is_written:
                (self.loaded[name],) = self._added(reader, program, [], op, "global")
            else:
                t = self._type(op.results[0], op)
                leaf = Leaf(reader.scope.ctx.name(f"global_{name}"), t, key=f"{UNKNOWN}{name}")
                self.loaded[name] = self.cutter.builder.append("weight", (), leaf)
        return self.loaded[name]

    # ---- dispatches --------------------------------------------------------------------------
    def _dispatch(self, op: Any) -> None:
        blocks = list(op.regions[0].blocks)
        if len(blocks) != 1:
            raise self._refused("E346", "a dispatch that branches between blocks is not read", op)
        for r in op.results:
            self._type(r, op)
        inside = self._of_region if op.name == REGION else self._of_workgroups
        reader, operands, results = inside(op, blocks[0])
        program = prune(reader.scope.ctx.builder.build(results))
        name = f"dispatch_{self.dispatches}"
        self.dispatches += 1
        self.nodes |= zip(op.results, self._added(reader, program, operands, op, name), strict=True)

    def _of_region(self, op: Any, block: Any) -> tuple[FunctionReader, list[int], list[int]]:
        """Operands of a region: the values of the function that its ops name and do not make."""
        reader, operands = self._bound(self._captured(op.regions[0]))
        last = block.operations[len(block.operations) - 1].operation
        items = reader.run(block)
        return reader, operands, [reader.result(i, item, last) for i, item in enumerate(items)]

    def _of_workgroups(self, op: Any, block: Any) -> tuple[FunctionReader, list[int], list[int]]:
        """Operands and results of workgroups: the arguments in order, each one whole tensor."""
        workload, values, *_ = segments(op)
        if workload:
            raise self._refused("E346", "sizes that are not known are not read", op)
        arguments = list(block.arguments)
        slots = arguments[len(values) :]
        plain = all("<writeonly:" in str(s.type) for s in slots)
        if len(slots) != len(op.results) or not plain:
            raise self._refused("E346", "a result that is written in place is not read", op)
        outside = [v for v in values if not self._is_outer(v)]
        if outside or any("<readonly:" not in str(a.type) for a in arguments[: len(values)]):
            raise self._refused("E346", "a dispatch takes whole tensors", op)
        reader, operands = self._bound(dict.fromkeys(values))
        values_of = reader.scope.values
        values_of |= {a: values_of[v] for a, v in zip(arguments, values, strict=False)}
        stored: dict[Any, Any] = {}
        for o in block.operations:
            inner = o.operation
            if inner.name.endswith("dispatch.tensor.store"):
                self._store(inner, stored)
            elif inner.name not in RETURNS:
                reader.run(_Ops([inner]))
        missing = [i for i, s in enumerate(slots) if s not in stored]
        if missing:
            raise self._refused("E346", f"result {missing[0]} is never stored", op)
        items = [reader.scope.item(stored[s], op) for s in slots]
        return reader, operands, [reader.result(i, item, op) for i, item in enumerate(items)]

    def _store(self, op: Any, stored: dict[Any, Any]) -> None:
        """A result is stored once and whole: its type is that of the slot."""
        value, to = op.operands[0], op.operands[1]
        if to in stored or f"<writeonly:{value.type}>" not in str(to.type):
            raise self._refused("E346", "a result that is stored in parts is not read", op)
        stored[to] = value

    def _between(self, op: Any) -> None:
        """An op outside of regions: its results are constants, views, or those of a dispatch."""
        captured = [*op.operands, *(v for r in op.regions for v in self._captured(r))]
        reader, operands = self._bound(dict.fromkeys(captured))
        reader.run(_Ops([op]))
        items = {r: reader.scope.values[r] for r in op.results}
        held = {r: i for r, i in items.items() if isinstance(i, Tensor) and not i.is_constant}
        self.items |= {r: i for r, i in items.items() if r not in held}
        if held:
            program = self._program(reader, held.values(), op)
            for r in held:
                if not str(r.type).startswith("!"):
                    self._type(r, op)
            name = op.name.rpartition(".")[2]
            added = self._added(reader, program, operands, op, name, is_told=False)
            self.nodes |= zip(held, added, strict=True)

    def _node(self, value: Any, op: Any) -> int:
        """The node of a returned value, which is in memory: a dispatch writes a constant there."""
        if value in self.nodes:
            return self.nodes[value]
        reader, _ = self._bound({value: None})
        program = self._program(reader, [reader.scope.item(value, op)], op)
        (node,) = self._added(reader, program, [], op, "fill")
        return node

    def _captured(self, region: Any) -> dict[Any, None]:
        """Values of the function that a region reads, in the order it does."""
        read = (v for op in _every_op(region) for v in op.operands)
        return {v: None for v in read if self._is_outer(v)}

    def _is_outer(self, value: Any) -> bool:
        return value in self.nodes or value in self.items

    # ---- what is shared ----------------------------------------------------------------------
    def _reader(self) -> FunctionReader:
        scope = Environment(self.source, Context(Builder(self.cutter.builder.name)))
        return FunctionReader(scope, {}, self.globals)

    def _bound(self, values: Iterable[Any]) -> tuple[FunctionReader, list[int]]:
        """A reader that knows these values, and the nodes that are its inputs."""
        reader = self._reader()
        operands: list[int] = []
        for v in values:
            if v in self.nodes:
                t = self.cutter.builder.type(self.nodes[v])
                reader.scope.values[v] = reader.input(t, f"arg{len(operands)}")
                operands.append(self.nodes[v])
            elif v in self.items:
                reader.scope.values[v] = self.items[v]
        return reader, operands

    def _program(self, reader: FunctionReader, items: Iterable[Item], op: Any) -> Program:
        ctx = reader.scope.ctx
        results: list[int] = []
        for i in items:
            if not isinstance(i, Tensor):
                raise self._refused("E346", f"`{op.name}` takes what has no elements", op)
            results.append(ctx.materialise(i))
        return prune(ctx.builder.build(results))

    def _added(
        self,
        reader: FunctionReader,
        program: Program,
        operands: Sequence[int],
        op: Any,
        name: str,
        *,
        is_told: bool = True,
    ) -> list[int]:
        keys = {program.leaf(w).key for w in program.weights}
        self.cutter.weights |= {k: v for k, v in reader.scope.ctx.weights.items() if k in keys}
        place = reader.scope.where(op)
        at = f"{self.source.file}:{place.line}" if place else self.source.file
        return self.cutter.add(name, at, program, operands, is_told=is_told)

    def _type(self, value: Any, op: Any) -> TensorType:
        """The type of a tensor in memory; EqsatError E346 where it has no size."""
        place = self._reader().scope.where(op)
        dims, dtype = ranked_type(value.type, place)
        if None in dims:
            raise self._refused("E346", f"`{value.type}`: sizes that are not known", op)
        return TensorType(dtype, tuple(d for d in dims if d is not None))

    def _refuse_encodings(self, function: Any) -> None:
        """An encoding names no layout yet, so nothing of it has a price."""
        for op in _every_op(function.regions[0]):
            if any(getattr(r.type, "encoding", None) is not None for r in op.results):
                message = f"`{op.name}` makes a tensor in an encoding, which has no layout yet"
                raise self._refused("E346", message, op)

    def _refused(self, code: str, message: str, op: Any) -> EqsatError:
        return self._reader().scope.fail(code, message, op)
