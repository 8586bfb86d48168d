"""An HLO module → the program it computes, cut into dispatches as XLA cut it.

Each instruction of the entry computation is a dispatch: a fusion with all it computes, or one op.
What lies in memory between them is named as it lies there: of a value whose layout is not row by
row that is its transpose, and a `bitcast` is another shape of the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from eqsat.frontends.hlo.lower import lowered
from eqsat.frontends.hlo.text import Computation, HloModule, HloType, Instruction, parse_hlo
from eqsat.frontends.values import Context, Tensor
from eqsat.frontends.views import reshaped, transposed
from eqsat.model.cut import CutProgram
from eqsat.model.diag import fail
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.cutting import Cutter

SOURCE = "XLA"
MOST_CALLS = 64  # computations that call each other
Part = TypeVar("Part")


def read_hlo(text: str, file: str) -> CutProgram:
    """EqsatError E345 if this is not the text of an HLO module, E346 for what is not read."""
    module = parse_hlo(text, file)
    return _Reader(module, Cutter(module.name)).read()


@dataclass(frozen=True)
class _Held:
    """A value in memory: the node of its bytes, row by row in the order they lie."""

    node: int
    type: HloType


_Values = tuple[_Held | Tensor, ...]  # the parts of a tuple; a scalar that is known has no bytes


@dataclass
class _Reader:
    module: HloModule
    cutter: Cutter
    depth: int = MOST_CALLS

    def read(self) -> CutProgram:
        entry = self.module.computations[self.module.entry]
        parameters = [i for i in entry.instructions if i.opcode == "parameter"]
        names = Context(self.cutter.builder)
        env: dict[str, _Values] = {
            i.name: (self._argument(i, names),) for i in sorted(parameters, key=_number)
        }
        if sorted(map(_number, parameters)) != list(range(len(parameters))):
            raise fail("E345", "parameters are not numbered from 0 on", entry.instructions[0].span)
        for i in entry.instructions:
            if i.opcode != "parameter":
                env[i.name] = self._entry(i, self._operands(i, env))
        results = [self._result(v, entry.root) for v in env[entry.root.name]]
        return self.cutter.cut(results, SOURCE)

    def _argument(self, i: Instruction, names: Context) -> _Held:
        (t,) = i.types
        if not t.is_plain:
            raise fail("E346", "an argument that does not lie row by row is not read", i.span)
        label = i.attributes.get("metadata", "").partition('op_name="')[2].partition('"')[0]
        name = names.name(label or i.name.rpartition(".")[0] or i.name)
        leaf = Leaf(name, t.tensor, _number(i))
        return _Held(self.cutter.builder.append("input", (), leaf), t)

    def _operands(self, i: Instruction, env: dict[str, _Values]) -> list[_Values]:
        missing = [o for o in i.operands if o not in env]
        if missing:
            raise fail("E345", f"`{missing[0]}` is read before it is computed", i.span)
        return [env[o] for o in i.operands]

    def _entry(self, i: Instruction, xs: Sequence[_Values]) -> _Values:
        """An instruction of the entry computation: a dispatch, or none."""
        flat = [v for x in xs for v in x]
        if i.opcode == "tuple":
            return tuple(flat)
        if i.opcode == "get-tuple-element":
            return (_part(i, xs[0] if xs else ()),)
        if i.opcode == "call":
            return self._called(i, xs)
        if i.opcode == "bitcast" and flat and isinstance(flat[0], _Held):
            return (self._bitcast(i, flat[0]),)
        return self._dispatch(i, flat)

    def _dispatch(self, i: Instruction, xs: Sequence[_Held | Tensor]) -> _Values:
        """What an instruction makes, as a program of its own."""
        ctx = Context(Builder(i.name))
        held = [x for x in xs if isinstance(x, _Held)]
        leaves = {
            h.node: ctx.builder.append(
                "input", (), Leaf(f"r{n}", self.cutter.builder.type(h.node), n)
            )
            for n, h in enumerate({h.node: h for h in held}.values())
        }
        values = [
            x if isinstance(x, Tensor)
            else transposed(ctx, ctx.full(leaves[x.node]), _inverse(x.type.order))
            for x in xs
        ]  # fmt: skip
        outputs = self._computed(ctx, i, values, MOST_CALLS)
        if all(v.is_constant for v in outputs):
            return outputs
        if len(outputs) != len(i.types):
            raise fail("E345", "it gives another number of values than its type says", i.span)
        pairs = zip(outputs, i.types, strict=True)
        results = [ctx.materialise(transposed(ctx, v, t.order)) for v, t in pairs]
        program = ctx.builder.build(results)
        self.cutter.weights.update(ctx.weights)
        nodes = self.cutter.add(i.name, i.at, program, tuple(leaves))
        return tuple(_Held(n, t) for n, t in zip(nodes, i.types, strict=True))

    def _called(self, i: Instruction, xs: Sequence[_Values]) -> _Values:
        """A call of the entry computation: its instructions are dispatches."""
        if self.depth == 0:
            raise fail("E345", "computations call each other too deeply", i.span)
        self.depth -= 1
        body = self._computation(i, "to_apply")
        env: dict[str, _Values] = {}
        for inner in body.instructions:
            if inner.opcode == "parameter":
                env[inner.name] = _at(inner, xs)
            else:
                env[inner.name] = self._entry(inner, self._operands(inner, env))
        self.depth += 1
        return env[body.root.name]

    def _computed(
        self, ctx: Context, i: Instruction, xs: Sequence[Tensor], depth: int
    ) -> tuple[Tensor, ...]:
        """What an instruction gives, a fusion's all; layouts inside of it move nothing."""
        if i.opcode not in ("fusion", "call"):
            return (lowered(ctx, i, xs, self.module.computations),)
        if depth == 0:
            raise fail("E345", "computations call each other too deeply", i.span)
        body = self._computation(i, "calls" if i.opcode == "fusion" else "to_apply")
        env: dict[str, tuple[Tensor, ...]] = {}
        for inner in body.instructions:
            if inner.opcode == "parameter":
                env[inner.name] = (_at(inner, xs),)
                continue
            missing = [o for o in inner.operands if o not in env]
            if missing:
                raise fail("E345", f"`{missing[0]}` is read before it is computed", inner.span)
            operands = [v for o in inner.operands for v in env[o]]
            if inner.opcode == "tuple":
                env[inner.name] = tuple(operands)
            elif inner.opcode == "get-tuple-element":
                env[inner.name] = (_part(inner, operands),)
            elif inner.opcode == "bitcast":
                env[inner.name] = (_reinterpreted(ctx, inner, body, operands),)
            else:
                env[inner.name] = self._computed(ctx, inner, operands, depth - 1)
        return env[body.root.name]

    def _computation(self, i: Instruction, key: str) -> Computation:
        computation = self.module.computations.get(i.called(key))
        if computation is None or not computation.instructions:
            raise fail("E345", f"there is no computation `{i.called(key)}`", i.span)
        return computation

    # ---- bytes and what they mean ------------------------------------------------------------
    def _bitcast(self, i: Instruction, v: _Held) -> _Held:
        """The same bytes as another shape, in another order of dims."""
        (t,) = i.types
        shape = tuple(t.tensor.shape[d] for d in t.order)
        held = self.cutter.builder.type(v.node)
        _check_bytes(i, held, t.tensor)
        if held.shape == shape:
            return _Held(v.node, t)
        view = self.cutter.builder.add("reshape", (v.node,), Reshape(held.shape, shape))
        return _Held(view, t)

    def _result(self, v: _Held | Tensor, root: Instruction) -> int:
        if isinstance(v, Tensor):
            return Context(self.cutter.builder).materialise(v)
        if not v.type.is_plain:
            raise fail("E346", "a result that does not lie row by row is not read", root.span)
        return v.node


def _number(parameter: Instruction) -> int:
    if not parameter.argument.isdecimal():
        raise fail("E345", "a parameter has a number", parameter.span)
    return int(parameter.argument)


def _part(i: Instruction, parts: Sequence[Part]) -> Part:
    """The part of a tuple that an instruction names."""
    index = i.ints("index")
    if len(index) != 1 or not 0 <= index[0] < len(parts):
        raise fail("E345", "there is no such part of a tuple", i.span)
    return parts[index[0]]


def _at(parameter: Instruction, xs: Sequence[Part]) -> Part:
    if _number(parameter) >= len(xs):
        raise fail("E345", "there is no such operand", parameter.span)
    return xs[_number(parameter)]


def _reinterpreted(
    ctx: Context, i: Instruction, body: Computation, operands: Sequence[Tensor]
) -> Tensor:
    """A bitcast inside of a fusion: by the layouts of both its sides."""
    if len(operands) != 1:
        raise fail("E345", "`bitcast` has one operand", i.span)
    source = next(o.types[0] for o in body.instructions if o.name == i.operands[0])
    (t,) = i.types
    _check_bytes(i, source.tensor, t.tensor)
    lying = transposed(ctx, operands[0], source.order)
    shape = tuple(t.tensor.shape[d] for d in t.order)
    return transposed(ctx, reshaped(ctx, lying, shape), _inverse(t.order))


def _check_bytes(i: Instruction, source: TensorType, to: TensorType) -> None:
    if source.size != to.size or source.dtype != to.dtype:
        raise fail("E345", f"`bitcast` of {source} to {to}: other bytes", i.span)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))
