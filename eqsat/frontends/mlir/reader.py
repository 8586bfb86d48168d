"""A module and the name of a function → a Program with its weights; every error has its place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eqsat.frontends.mlir.expressions import ARITHMETIC, held
from eqsat.frontends.mlir.extensions import EXTENSIONS, KEPT
from eqsat.frontends.mlir.items import Environment, Handler, Item, Nothing, Undefined, ranked_type
from eqsat.frontends.mlir.movement import TENSORS
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.scf import SCF, read_scf
from eqsat.frontends.mlir.source import ModuleText, load_text, modernised
from eqsat.frontends.mlir.tensortypes import (
    ENCODINGS,
    argument_sizes,
    border_encoding,
    encodings_of,
)
from eqsat.frontends.values import Context, Tensor
from eqsat.model.attr import ShapeError
from eqsat.model.diag import Diagnostic, EqsatError, Span, did_you_mean, fail
from eqsat.model.layout import Border, Held, Layout
from eqsat.model.leaves import Leaf, Opaque
from eqsat.model.program import Builder, Program, prune
from eqsat.model.symbols import NO_ORIGIN, Origin, file_line, spoken
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import weight_key
from eqsat.ops.programs.border_layouts import held_in, put_in

MOST_OPS = 50_000  # read of one program, those of called functions included
DEEPEST_CALL = 64
_RESULT = re.compile(r"\s*%([\w$.-]+)[^=]*=")  # of a line that defines one
FUNCTIONS = ("func.func", "util.func", "ml_program.func")
RETURNS = ("func.return", "util.return", "ml_program.return", "ml_program.output", "flow.return")
_CALLS = ("func.call", "util.call")
GLOBALS = ("util.global", "ml_program.global", "memref.global", "flow.variable")
LOADS = (
    "util.global.load", "ml_program.global_load", "ml_program.global_load_const",
)  # fmt: skip
_TABLE: dict[str, Handler] = ARITHMETIC | TENSORS | ENCODINGS | EXTENSIONS | KEPT  # type: ignore[assignment]


@dataclass(frozen=True)
class MlirProgram:
    """Contents of a file: the program, the arrays written into it, and kept calls, by key."""

    program: Program
    weights: dict[str, Any] = field(repr=False)
    opaque: dict[str, Any] = field(repr=False, default_factory=dict)
    places: dict[Border, Span] = field(repr=False, default_factory=dict)  # of encoded types


def read_mlir(
    path: Path, function: str = "", sizes: Mapping[str, int] | None = None
) -> MlirProgram:
    """Read one function of an MLIR file: the only one, or the only public one, or the one named.

    sizes: what dims that nothing decides are priced at, by name. Weights that the file only names
    have no array. Raises EqsatError E370 … E379, E385 and E386.
    """
    source = modernised(load_text(path))
    module = parse_module(source)
    return read_module(module, source, function, sizes)


def read_module(
    module: Any, source: ModuleText, function: str, sizes: Mapping[str, int] | None
) -> MlirProgram:
    """The program of one function of a parsed module."""
    title = function or source.file.rpartition("/")[2].rpartition(".")[0].partition(".")[0]
    full, scope = _read_once(module, Environment(source, _context(title)), function, sizes)
    if any(0 in e.sizes for e in encodings_of(full)):
        again = Environment(source, _context(title), contractions=scope.contractions)
        full, scope = _read_once(module, again, function, sizes)
    program = prune(full)
    keys = {program.leaf(i).key for i in program.weights}
    called = {n.attr.key for n in program.nodes if isinstance(n.attr, Opaque)}
    return MlirProgram(
        program,
        {k: v for k, v in scope.ctx.weights.items() if k in keys},
        {k: v for k, v in scope.ctx.opaque.items() if k in called},
        scope.borders,
    )


def _context(title: str) -> Context:
    return Context(Builder(_identifier(title)))


def _read_once(
    module: Any, scope: Environment, function: str, sizes: Mapping[str, int] | None
) -> tuple[Program, Environment]:
    reader = FunctionReader(scope, symbols_of(module, FUNCTIONS), symbols_of(module, GLOBALS))
    results = reader.entry(reader.pick(function), sizes)
    return scope.ctx.builder.build(results, symbols=reader.symbols), scope


def _identifier(title: str) -> str:
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in title)
    return plain if plain and not plain[0].isdigit() else f"_{plain}"


def symbols_of(module: Any, kinds: Sequence[str]) -> dict[str, Any]:
    """Functions or globals of a module by name, nested modules included."""
    symbols: dict[str, Any] = {}
    waiting = [module.operation]
    while waiting:
        op = waiting.pop(0)
        for o in [o.operation for r in op.regions for b in r.blocks for o in b.operations]:
            if o.name in ("builtin.module", "ml_program.subgraph"):
                waiting.append(o)
            elif o.name in kinds:
                symbols.setdefault(o.attributes["sym_name"].value, o)
    return symbols


def _is_public(op: Any) -> bool:
    if "sym_visibility" not in op.attributes:
        return True
    return op.attributes["sym_visibility"].value == "public"


@dataclass
class FunctionReader:
    """Walks the operations of a function; `scope` holds the program and the values."""

    scope: Environment
    functions: dict[str, Any]
    globals: dict[str, Any]
    symbols: tuple[Any, ...] = ()
    inputs: int = 0
    read: int = 0
    calls: list[str] = field(default_factory=list)

    # ---- the function ----------------------------------------------------------------------------
    def pick(self, name: str) -> Any:
        """The function asked for; E373 if there is none or it is not clear which."""
        whole = {n: f for n, f in self.functions.items() if any(len(r.blocks) for r in f.regions)}
        if name:
            chosen = whole.get(f"{name}$async") or whole.get(name)
            if chosen is None:
                why = f"`{self.scope.source.file}` has no function `{name}`"
                raise fail("E373", why, help=did_you_mean(name, self._names(whole)))
            return chosen
        public = {n: f for n, f in whole.items() if _is_public(f)}
        names = self._names(public or whole)
        if len(names) == 1:
            return whole.get(f"{names[0]}$async") or whole[names[0]]
        if not names:
            raise fail("E373", f"`{self.scope.source.file}` holds no function with a body")
        why = f"`{self.scope.source.file}` holds {len(names)} functions: {', '.join(names[:8])}"
        raise fail("E373", why, help=f"name one: `{self.scope.source.file}:{names[0]}`")

    @staticmethod
    def _names(functions: Mapping[str, Any]) -> list[str]:
        """Function names of the user: a pipeline splits one function in two, of which one waits."""
        return list(dict.fromkeys(n.removesuffix("$async") for n in functions))

    def entry(self, function: Any, sizes: Mapping[str, int] | None) -> list[int]:
        """The nodes of the results."""
        block = self.block(function)
        self._bind_fences(block)
        typed = [a for a in block.arguments if not str(a.type).startswith("!")]
        names = [self._name(a, a.arg_number) for a in typed]
        for a in typed:  # before sizes are looked for, so that a foreign type has its place
            ranked_type(a.type, self._place(a))
        shapes, self.symbols = argument_sizes(self.scope, _Only(block, typed), names, sizes)
        for a, shape, name in zip(typed, shapes, names, strict=True):
            dtype = ranked_type(a.type, None)[1]
            encoding = border_encoding(self.scope, a, a.type, shape)
            place = self._place(a)
            if encoding is not None and place is not None:
                self.scope.borders[Border("input", self.inputs)] = place
            self.scope.values[a] = self.input(TensorType(dtype, shape), name, encoding)
        results = self.run(block)
        returned = block.operations[len(block.operations) - 1].operation
        return [self.result(i, item, returned) for i, item in enumerate(results)]

    def _bind_fences(self, block: Any) -> None:
        for number, a in enumerate(block.arguments):
            if str(a.type).startswith("!"):
                self.scope.values[a] = Nothing(number)

    def _place(self, argument: Any) -> Any:
        from eqsat.frontends.mlir.parser import place_of

        return place_of(self.scope.source, argument.location)

    def _name(self, argument: Any, number: int) -> str:
        """The text's name of an argument; `location` of an argument or its import is its place."""
        at = self._place(argument)
        word = at.text[at.column - 1 : at.end - 1] if at else ""
        plain = word[1:] if word.startswith("%") else ""
        return _identifier(plain) if plain and not plain.isdigit() else f"arg{number}"

    def input(self, t: TensorType, name: str, held: Held | None = None) -> Tensor:
        """The plain tensor of an argument; one in longer rows is unpacked from them."""
        leaf = Leaf(self.scope.ctx.name(name), t, index=self.inputs)
        self.inputs += 1
        given = self.scope.ctx.add("input", (), leaf if held is None else held_in(leaf, held))
        if not isinstance(held, Layout):
            return given
        return self.scope.ctx.add("unpack", (self.scope.ctx.materialise(given),), held)

    def result(self, number: int, item: Item, op: Any) -> int:
        """The node of a result, in the encoding, or the longer rows, that its type has."""
        if isinstance(item, Undefined):
            raise self.scope.fail("E375", "the result is a tensor that was never written", op)
        if not isinstance(item, Tensor):
            raise self.scope.fail("E375", "a result is no tensor", op)
        node = self.scope.ctx.materialise(item)
        type_ = op.operands[number].type
        encoding = border_encoding(self.scope, op, type_, item.shape)
        if encoding is None:
            return node
        place = self.scope.where(op)
        if place is not None:
            self.scope.borders[Border("result", number)] = place
        return put_in(self.scope.ctx.builder, node, encoding)

    def block(self, function: Any) -> Any:
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            why = f"`{function.attributes['sym_name'].value}` branches between blocks"
            raise self.scope.fail("E374", why, function)
        return blocks[0]

    # ---- operations ------------------------------------------------------------------------------
    def run(self, block: Any) -> list[Item]:
        """The values that the block returns."""
        for o in block.operations:
            op = o.operation
            self.read += 1
            if self.read > MOST_OPS:
                raise self.scope.fail("E371", f"the program has more than {MOST_OPS} ops", op)
            if op.name in RETURNS:
                return [self.scope.item(v, op) for v in op.operands]
            for value, item in zip(op.results, self._called(op), strict=True):
                self.scope.values[value] = item
        return []

    def _called(self, op: Any) -> list[Item]:
        """The results of an op; its first node is called as the text calls its result."""
        b = self.scope.ctx.builder
        before, b.origin = len(b.nodes), self._origin(op)
        origin, results = b.origin, self._one(op)
        nodes = [i.node for i in results if isinstance(i, Tensor) and i.node >= before]
        b.origin = origin
        b.settle(before, nodes[0] if nodes else None)
        b.origin = NO_ORIGIN
        return results

    def _origin(self, op: Any) -> Origin:
        at = self.scope.where(op)
        if at is None:
            return Origin(op.name.rpartition(".")[2])
        match = _RESULT.match(at.text)
        name = match[1] if match else op.name.rpartition(".")[2]
        return Origin(name if name.isdigit() else spoken(name), file_line(at.file, at.line))

    def _one(self, op: Any) -> list[Item]:
        try:
            return self._meaning(op)
        except ShapeError as error:
            raise self.scope.fail("E376", f"`{op.name}`: {error}", op) from None
        except EqsatError as error:
            raise self._placed(error, op) from None
        except RecursionError:
            raise self.scope.fail("E371", f"`{op.name}` is nested too deeply", op) from None

    def _placed(self, error: EqsatError, op: Any) -> EqsatError:
        """The error with a place, if only that of the op around it."""
        diagnostics = [
            Diagnostic(d.code, d.message, d.span or self.scope.where(op), help=d.help)
            for d in error.diagnostics
        ]
        return EqsatError(*diagnostics, exit_code=error.exit_code)

    def _meaning(self, op: Any) -> list[Item]:
        if op.name in _CALLS:
            return self._call(op)
        if op.name in LOADS:
            return [self._load(op)]
        if op.name == "hal.tensor.import":
            return [self._import(op)]
        if op.name in SCF:
            return read_scf(self, op)
        if op.name in _TABLE:
            return _TABLE[op.name](self.scope, op)
        if not op.results and op.name.split(".")[-1] in ("assert", "barrier", "await", "signal"):
            return []
        if op.name.startswith("hal.") and all(str(r.type).startswith("!") for r in op.results):
            return [Nothing() for _ in op.results]
        raise self.scope.fail(
            "E374", f"`{op.name}` has no meaning here yet", op,
            help="rewrite it with linalg, tensor and arith ops, or cut it out of the function",
        )  # fmt: skip

    def inner(self, ctx: Context, values: dict[Any, Item]) -> FunctionReader:
        """A reader of a region inside, as a program of its own."""
        scope = replace(self.scope, ctx=ctx, values=values)
        return replace(self, scope=scope, calls=list(self.calls))

    def _call(self, op: Any) -> list[Item]:
        name = op.attributes["callee"].value
        callee = self.functions.get(name)
        if callee is None or not any(len(r.blocks) for r in callee.regions):
            raise self.scope.fail("E373", f"`@{name}` is called and has no body in the file", op)
        if name in self.calls or len(self.calls) >= DEEPEST_CALL:
            raise self.scope.fail("E375", f"`@{name}` calls itself", op)
        block = self.block(callee)
        outer = self.scope.values
        given = [self.scope.item(v, op) for v in op.operands]
        self.scope.values = dict(zip(block.arguments, given, strict=True))
        self.calls.append(name)
        results = self.run(block)
        self.calls.pop()
        self.scope.values = outer
        return results

    def _load(self, op: Any) -> Item:
        """A global: its initial value, or a weight known by its name."""
        name = op.attributes["global"].value
        global_op = self.globals.get(name)
        if global_op is None:
            raise self.scope.fail("E373", f"`@{name}` is no global of the file", op)
        dims, dtype = ranked_type(op.results[0].type, self.scope.where(op))
        shape = tuple(d for d in dims if d is not None)
        if len(shape) != len(dims):
            raise self.scope.fail("E376", f"global `@{name}` is of unknown size", op)
        keys = ("initial_value", "value")
        value = next((global_op.attributes[k] for k in keys if k in global_op.attributes), None)
        if value is not None and str(value).startswith(("dense", "#util.byte_pattern<0")):
            if str(value).startswith("#"):
                return Tensor(shape, dtype, constant=False if dtype == "bool" else 0)
            return held(self.scope, op, value, op.results[0].type, name)
        return self._named(name, TensorType(dtype, shape))

    def _named(self, name: str, t: TensorType) -> Tensor:
        import numpy as np

        key = weight_key(np.frombuffer(f"{name} {t}".encode(), np.uint8))
        nodes = self.scope.ctx.builder.nodes
        for i, n in enumerate(nodes):
            if isinstance(n.attr, Leaf) and n.attr.key == key:
                return self.scope.ctx.full(i)
        return self.scope.ctx.weight_leaf(t, key, name)

    def _import(self, op: Any) -> Item:
        """An argument of a lowered module becomes a tensor here."""
        item = self.scope.item(op.operands[0], op)
        dims, dtype = ranked_type(op.results[0].type, self.scope.where(op))
        if isinstance(item, Tensor):
            return item
        if None in dims:
            why = "an argument of a lowered module has a size that is not known"
            raise self.scope.fail("E376", why, op, help="write its shape into the file")
        shape = tuple(d for d in dims if d is not None)
        number = item.number if isinstance(item, Nothing) else 0
        tensor = self.input(TensorType(dtype, shape), self._name(op, number))
        self.scope.values[op.operands[0]] = tensor
        return tensor


@dataclass(frozen=True)
class _Only:
    """A block with some of its arguments."""

    block: Any
    arguments: list[Any]

    @property
    def operations(self) -> Any:
        return self.block.operations
