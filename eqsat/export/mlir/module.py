"""A plan as an MLIR module: one function, and a private one per body of a loop or branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.export.mlir import rows, syntax
from eqsat.export.mlir.expressions import Body
from eqsat.export.mlir.ops import WRITERS, write_unpack
from eqsat.export.mlir.syntax import Value, Writer
from eqsat.export.plan import Exported, Group, Plan, SizedPlans, body_plan, identifier
from eqsat.export.walk import PlanWriter, foreign_name
from eqsat.model.affine import dim
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.program import Node
from eqsat.model.tensor import DTYPES, TensorType
from eqsat.ops.builtin.layouts import unpack

# ---- loops and branches as scf ops ---------------------------------------------------------------
Types = Sequence[TensorType]


def write_control(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> list[str]:
    """The names of its results; functions: the symbol of each body's function."""
    scratch = [""] * len(attr.scratch_types)  # nobody reads it
    if not attr.result_types:
        return scratch
    write = {SCAN: _scan, COND: _cond}.get(attr.op, _while)
    write(w, attr, xs, name, functions)
    count = len(attr.result_types)
    return ([f"{name}#{i}" for i in range(count)] if count > 1 else [name]) + scratch


def _call(w: Writer, function: str, args: Sequence[Value], results: Types) -> list[Value]:
    taken = ", ".join(syntax.tensor(a.type) for a in args)
    given = ", ".join(map(syntax.tensor, results))
    name, several = w.fresh(), len(results) > 1
    head = f"{name}{f':{len(results)}' if several else ''} = func.call @{function}"
    w.line(f"{head}({', '.join(a.name for a in args)}) : ({taken}) -> ({given})", 4)
    names = [f"{name}#{i}" for i in range(len(results))] if several else [name]
    return [Value(n, t) for n, t in zip(names, results, strict=True)]


def _listed(types: Types) -> str:
    return ", ".join(map(syntax.tensor, types))


def _results(attr: Control, name: str) -> str:
    count = len(attr.result_types)
    return f"{name}:{count}" if count > 1 else name


def _yield(w: Writer, values: Sequence[Value]) -> None:
    names = ", ".join(v.name for v in values)
    w.line(f"scf.yield {names} : {_listed([v.type for v in values])}", 4)


# ---- scan --------------------------------------------------------------------------------------
def _scan(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    """`scf.for` over the slices; what is stacked is inserted slice by slice."""
    at = attr.consts + attr.carries
    consts, carries, stacked = xs[: attr.consts], xs[attr.consts : at], xs[at:]
    grown = [Value(w.empty(t), t) for t in attr.result_types[attr.carries :]]
    first, last, step = (w.op(f"arith.constant {v} : index") for v in (0, attr.length, 1))
    index, held = w.fresh(), [Value(w.fresh(), v.type) for v in (*carries, *grown)]
    starts = ", ".join(
        f"{h.name} = {v.name}" for h, v in zip(held, (*carries, *grown), strict=True)
    )
    head = f"{_results(attr, name)} = scf.for {index} = {first} to {last} step {step}"
    w.line(f"{head} iter_args({starts}) -> ({_listed(attr.result_types)}) {{")
    place = index
    if attr.reverse:
        place = w.op(f"arith.subi {last}, {w.op(f'arith.addi {index}, {step} : index')} : index")
    slices = [_taken(w, x, place) for x in stacked]
    given = _slice_types(attr.result_types, attr.carries)
    values = _call(w, functions[0], [*consts, *held[: attr.carries], *slices], given)
    pairs = zip(values[attr.carries :], held[attr.carries :], strict=True)
    _yield(w, [*values[: attr.carries], *(_inserted(w, a, into, place) for a, into in pairs)])
    w.line("}")


def _slice_types(types: Types, carries: int) -> list[TensorType]:
    return [*types[:carries], *(t.with_shape(t.shape[1:]) for t in types[carries:])]


def _where(place: str, shape: Sequence[int]) -> str:
    """One slice of a stack, from its place on."""
    starts = ", ".join([place, *("0" for _ in shape)])
    return f"[{starts}] {syntax.ints([1, *shape])} {syntax.ints([1] * (len(shape) + 1))}"


def _taken(w: Writer, x: Value, place: str) -> Value:
    t = x.type.with_shape(x.type.shape[1:])
    types = f"{syntax.tensor(x.type)} to {syntax.tensor(t)}"
    return Value(w.op(f"tensor.extract_slice {x.name}{_where(place, t.shape)} : {types}"), t)


def _inserted(w: Writer, x: Value, into: Value, place: str) -> Value:
    types = f"{syntax.tensor(x.type)} into {syntax.tensor(into.type)}"
    where = _where(place, x.type.shape)
    return Value(w.op(f"tensor.insert_slice {x.name} into {into.name}{where} : {types}"), into.type)


# ---- while_loop --------------------------------------------------------------------------------
def _while(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    consts, carries = xs[: attr.consts], xs[attr.consts :]
    types = _listed(attr.result_types)
    before, after = ([Value(w.fresh(), v.type) for v in carries] for _ in range(2))
    starts = ", ".join(f"{b.name} = {v.name}" for b, v in zip(before, carries, strict=True))
    w.line(f"{_results(attr, name)} = scf.while ({starts}) : ({types}) -> ({types}) {{")
    (flag,) = _call(w, functions[0], [*consts, *before], [TensorType("bool", ())])
    goes_on = w.op(f"tensor.extract {flag.name}[] : tensor<i1>")
    w.line(f"scf.condition({goes_on}) {', '.join(b.name for b in before)} : {types}", 4)
    w.line("} do {")
    w.line(f"^bb0({', '.join(f'{a.name}: {syntax.tensor(a.type)}' for a in after)}):", 3)
    _yield(w, _call(w, functions[1], [*consts, *after], attr.result_types))
    w.line("}")


# ---- cond --------------------------------------------------------------------------------------
def _cond(
    w: Writer, attr: Control, xs: Sequence[Value], name: str, functions: Sequence[str]
) -> None:
    """`scf.if` per branch but the last; so an index that is too small or large is clipped."""
    index = w.op(f"tensor.extract {xs[0].name}[] : tensor<i32>")
    if len(functions) == 1:  # nothing to choose
        w.line(f"{_results(attr, name)} = scf.execute_region -> ({_listed(attr.result_types)}) {{")
        _yield(w, _call(w, functions[0], xs[1:], attr.result_types))
        w.line("}")
        return
    _branches(w, attr, xs[1:], name, functions, index, 0)


def _branches(
    w: Writer,
    attr: Control,
    xs: Sequence[Value],
    name: str,
    functions: Sequence[str],
    index: str,
    number: int,
) -> None:
    """The branch of this number, or the ones after it."""
    at = w.op(f"arith.constant {number} : i32")
    is_it = w.op(f"arith.cmpi sle, {index}, {at} : i32")
    w.line(f"{_results(attr, name)} = scf.if {is_it} -> ({_listed(attr.result_types)}) {{")
    _yield(w, _call(w, functions[number], xs, attr.result_types))
    w.line("} else {")
    if number + 2 == len(functions):
        _yield(w, _call(w, functions[-1], xs, attr.result_types))
    else:
        inner, types = w.fresh(), attr.result_types
        _branches(w, attr, xs, inner, functions, index, number + 1)
        names = [f"{inner}#{i}" for i in range(len(types))] if len(types) > 1 else [inner]
        _yield(w, [Value(n, t) for n, t in zip(names, types, strict=True)])
    w.line("}")


# ---- the module ----------------------------------------------------------------------------------
SMALL = 1024  # bytes of a weight that is written in place; larger ones go into the resources

Array = np.ndarray[Any, Any]


def write_module(plan: Plan | SizedPlans, *, weights: str = "auto") -> Exported:
    """The module. Ops it cannot say are calls of private functions, and listed as missing.

    Of several sizes: a function that calls the private function of the size its arguments have; a
    weight that several of them hold in one layout is one resource.
    """
    resources: dict[str, Array] = {}
    if isinstance(plan, Plan):
        parts = [_Function(plan, weights, symbol(plan.program.name), resources)]
    else:
        name = symbol(plan.name)
        parts = [
            _Function(p, weights, f"{name}.{size}", resources, "private ") for size, p in plan.plans
        ]
    for part in parts:
        part.write()
    lines = ["module {", *([] if isinstance(plan, Plan) else _picking(plan, parts))]
    for part in parts:
        lines += [*part.declared, *part.lines()]
    text = "\n".join([*lines, "}"]) + "\n"
    missing = tuple(m for part in parts for m in part.missing)
    files = (("", b"".join([text.encode(), *_resources(resources)])),)
    return Exported(files, sum(part.ops for part in parts), missing)


def _picking(sized: SizedPlans, parts: Sequence[_Function]) -> list[str]:
    """The public function: compares the size, calls, and casts to what is known of it and back."""
    plan = sized.plans[0][1]
    nodes = plan.program.nodes
    xs = [Value(parts[0].values[i][0], nodes[i].type) for i in plan.arguments]
    shapes = sized.argument_shapes
    taken = [syntax.tensor(x.type, s) for x, s in zip(xs, shapes, strict=True)]
    types = [nodes[r].type for r in plan.program.results]
    given = [syntax.tensor(t, s) for t, s in zip(types, sized.result_shapes, strict=True)]
    number, dim = sized.place
    w = Writer()
    at = w.op(f"arith.constant {dim} : index")
    size = w.op(f"tensor.dim {xs[number].name}, {at} : {taken[number]}")
    names = _calls_by_size(w, sized, parts, (xs, taken, given), size, 0)
    w.line(f"return {', '.join(names)} : {', '.join(given)}")
    arguments = ", ".join(
        f"{x.name}: {t} {{eqsat.name = {syntax.quoted(plan.names[i])}}}"
        for x, t, i in zip(xs, taken, plan.arguments, strict=True)
    )
    head = f"  func.func @{symbol(sized.name)}({arguments}) -> ({', '.join(given)}) {{"
    return [head, *w.lines, "  }"]


def _calls_by_size(
    w: Writer,
    sized: SizedPlans,
    parts: Sequence[_Function],
    of: tuple[Sequence[Value], Sequence[str], Sequence[str]],
    size: str,
    number: int,
) -> list[str]:
    """The results of the function of this number if it is of this size, else of those after it.

    of: the arguments, their open types and those of the results.
    """
    xs, taken, given = of
    known, plan = sized.plans[number]
    is_it = w.op(f"arith.cmpi eq, {size}, {w.op(f'arith.constant {known} : index')} : index")
    is_last = number + 1 == len(parts)
    if is_last:
        every = ", ".join(str(s) for s, _ in sized.plans)
        w.line(f'cf.assert {is_it}, "{symbol(sized.symbol)} is none of {every}"')
        name = ""
    else:
        name, several = w.fresh(), f":{len(given)}" if len(given) > 1 else ""
        w.line(f"{name}{several} = scf.if {is_it} -> ({', '.join(given)}) {{")
    nodes = plan.program.nodes
    args = []
    for x, t, i in zip(xs, taken, plan.arguments, strict=True):
        static = nodes[i].type
        cast = f"tensor.cast {x.name} : {t} to {syntax.tensor(static)}"
        args.append(Value(x.name if t == syntax.tensor(static) else w.op(cast), static))
    values = _call(w, parts[number].name, args, [nodes[r].type for r in plan.program.results])
    results = []
    for v, t in zip(values, given, strict=True):
        cast = f"tensor.cast {v.name} : {syntax.tensor(v.type)} to {t}"
        results.append(v.name if t == syntax.tensor(v.type) else w.op(cast))
    if is_last:
        return results
    w.line(f"scf.yield {', '.join(results)} : {', '.join(given)}", 4)
    w.line("} else {")
    rest = _calls_by_size(w, sized, parts, of, size, number + 1)
    w.line(f"scf.yield {', '.join(rest)} : {', '.join(given)}", 4)
    w.line("}")
    return [f"{name}#{i}" for i in range(len(given))] if len(given) > 1 else [name]


def _resources(resources: Mapping[str, Array]) -> list[bytes]:
    """The section of the file that holds large constants, in parts: joined once, as it is large."""
    if not resources:
        return []
    parts = [b"\n{-#\n  dialect_resources: {\n    builtin: {"]
    for number, (key, array) in enumerate(resources.items()):
        head = f'{"," if number else ""}\n      {key}: "0x'
        parts += [head.encode(), syntax.resource(array), b'"']
    return [*parts, b"\n    }\n  }\n#-}\n"]


class _Function(PlanWriter[str]):
    """A plan as a function, its values as names; `declared` are the functions that it calls."""

    writers = WRITERS
    lacks = "no op of linalg, tensor, arith and math does this"

    def __init__(
        self,
        plan: Plan,
        weights: str,
        name: str,
        resources: dict[str, Array],
        visibility: str = "",
    ):
        super().__init__(plan)
        self.weights, self.name, self.visibility = weights, name, visibility
        self.ops = len(plan.order)
        self.encoded = rows.encoded_nodes(plan.program)
        self.w = Writer()
        self.resources = resources  # of the whole module
        self.declared: list[str] = []

    def write(self) -> None:
        """Fill the function."""
        self.walk()
        results = [
            self._returned(r, x)
            for r, x in zip(self.plan.program.results, self.results, strict=True)
        ]
        self.result_types = ", ".join(rows.type_text(self.w, x) for x in results)
        names = ", ".join(x.name for x in results)
        self.w.line(f"return {names} : {self.result_types}" if names else "return")

    def _returned(self, node: int, name: str) -> Value:
        """A result; one that leaves in longer rows is encoded, however it was computed."""
        n = self.plan.program.nodes[node]
        x = Value(name, n.type)
        layout = self.encoded.get(node)
        if layout is None or name in self.w.rows:
            return x
        plain = write_unpack(self.w, layout, [x], n.type, self.w.fresh())
        of = Value(plain, n.type.with_shape(layout.source))
        return Value(rows.write_encoded(self.w, layout, of, self.w.fresh()), n.type)

    def lines(self) -> list[str]:
        """The whole function."""
        nodes, names = self.plan.program.nodes, self.plan.names
        given = [(i, Value(self.values[i][0], nodes[i].type)) for i in self.plan.arguments]
        arguments = ", ".join(
            f"{x.name}: {rows.type_text(self.w, x)} {{eqsat.name = {syntax.quoted(names[i])}}}"
            for i, x in given
        )
        head = f"  func.func {self.visibility}@{self.name}({arguments}) -> ({self.result_types}) {{"
        return [head, *self.w.lines, "  }"]

    # ---- arguments and weights -------------------------------------------------------------------
    def argument(self, number: int, node: int) -> str:
        name = f"%arg{number}_{symbol(self.plan.names[node])}"
        if node in self.encoded:
            self.w.rows[name] = self.encoded[node]
        return name

    def constant(self, number: int, node: int, array: Array) -> str:
        t, layout = self.plan.program.nodes[node].types[0], self.encoded.get(node)
        name = f"%w{number}_{symbol(self.plan.names[node])}"
        if layout is None:
            return self._held(number, node, array, t, name)
        plain = t.with_shape(layout.source)
        held = self._held(number, node, unpack(layout, array), plain, self.w.fresh())
        return rows.write_encoded(self.w, layout, Value(held, plain), name)

    def _held(self, number: int, node: int, array: Array, t: TensorType, name: str) -> str:
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
        key = self._resource(f"w_{symbol(self.plan.names[node])}", array)
        return self.w.op(f"arith.constant dense_resource<{key}> : {syntax.tensor(t)}", name)

    def _resource(self, name: str, array: Array) -> str:
        """The key of the resource that holds these bytes; a new one if there is none."""
        key, count = name, 1
        while key in self.resources and self.resources[key].tobytes() != array.tobytes():
            count += 1
            key = f"{name}.{count}"
        self.resources[key] = array
        return key

    # ---- nodes ---------------------------------------------------------------------------------
    def begin(self, group: Group) -> None:
        if group.title:
            self.w.line(f"// {group.title}")

    def begin_node(self, i: int, node: Node, group: Group) -> int:
        return len(self.w.lines)

    def forget(self, before: int) -> None:
        del self.w.lines[before:]

    def written(self, i: int, node: Node, xs: Sequence[str]) -> list[str]:
        values = self._typed(node, xs)
        if isinstance(node.attr, Control):
            functions = [self._body(i, k) for k in range(len(node.attr.bodies))]
            return write_control(self.w, node.attr, values, f"%v{i}", functions)
        if node.op == "pack" and i in self.encoded:
            return [rows.write_encoded(self.w, self.encoded[i], values[0], f"%v{i}")]
        names = self.writer_of(node)(self.w, node.attr, values, node.types[0], f"%v{i}")
        return names if isinstance(names, list) else [names]

    def _body(self, i: int, number: int) -> str:
        """A body of a loop or branch as a private function; its symbol."""
        attr = self.plan.program.nodes[i].attr
        assert isinstance(attr, Control)
        name = f"{self.name}.{attr.labels[number]}.{i}"
        body = _Function(body_plan(attr, number), "constants", name, {}, "private ")
        body.write()
        self.declared += [*body.declared, *body.lines()]
        self.missing += body.missing
        self.ops += body.ops
        return name

    def _typed(self, node: Node, xs: Sequence[str]) -> list[Value]:
        """The operands of a node with their types."""
        nodes = self.plan.program.nodes
        return [Value(x, nodes[o].types[0]) for x, o in zip(xs, node.operands, strict=True)]

    def called(self, i: int, node: Node, xs: Sequence[str]) -> list[str]:
        function = f"@eqsat.{symbol(foreign_name(node))}.{self.name}.{i}"
        taken = ", ".join(syntax.tensor(x.type) for x in self._typed(node, xs))
        signature = f"({taken}) -> ({', '.join(map(syntax.tensor, node.types))})"
        self.declared.append(f"  func.func private {function}{signature}")
        names = ", ".join(xs)
        several = f":{len(node.types)}" if len(node.types) > 1 else ""
        self.w.line(f"%v{i}{several} = func.call {function}({names}) : {signature}")
        return [f"%v{i}#{r}" for r in range(len(node.types))] if several else [f"%v{i}"]


def _narrowed(w: Writer, x: Value, t: TensorType, name: str) -> str:
    """Bytes as bools, i4 or u4."""
    identity = syntax.affine_map(tuple(dim(d) for d in range(t.rank)), t.rank)
    into = w.empty(t)
    w.structured(name, [identity, identity], ["parallel"] * t.rank, [(x.name, x.type)], [(into, t)])
    a, b, element = w.fresh(), w.fresh(), syntax.element(t.dtype)
    w.line(f"^bb0({a}: i8, {b}: {element}):", 3)
    narrow = Body(w, [a]).cast(a, "i8", t.dtype)
    w.line(f"linalg.yield {narrow} : {element}", 4)
    w.line(f"}} -> {syntax.tensor(t)}")
    return name


def _is_splat(array: Array) -> bool:
    data = array.reshape(-1)
    return data.size > 0 and data[:1].tobytes() * data.size == data.tobytes()


def symbol(name: str) -> str:
    """A name as MLIR's symbols may be without quotes."""
    return identifier(name).replace("-", "_")
