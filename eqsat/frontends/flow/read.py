"""IREE's dispatches → the program they compute, cut as IREE cut it."""

from __future__ import annotations

import re

from eqsat.frontends.flow.regions import SOURCE, has_regions, read_regions
from eqsat.frontends.flow.text import FlowDispatch, Given, View, parse_flow
from eqsat.frontends.mlir.parser import parse_module
from eqsat.frontends.mlir.reader import read_module
from eqsat.model.cut import CutProgram
from eqsat.model.diag import Span, fail
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape
from eqsat.model.tensor import TensorType
from eqsat.ops.programs.cutting import UNKNOWN, Cutter

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]\w*)(?:,.*)?>")
_DTYPES = {"i1": "bool", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "i4": "i4"}


def read_flow(text: str, file: str) -> CutProgram:
    """EqsatError E345 and E346 as of HLO; E370 … E379 for what a dispatch computes."""
    if has_regions(text):
        return read_regions(text, file)
    found = parse_flow(text, file)
    module = parse_module(found.functions)
    cutter = Cutter(found.name)
    known: dict[str, int] = {}
    arguments = 0
    for step in found.steps:
        if isinstance(step, Given):
            known[step.to] = _given(cutter, step, arguments)
            arguments += not step.is_weight
        elif isinstance(step, View):
            known[step.to] = _view(cutter, step, _at(known, step.of, step.span))
        else:
            known |= _dispatch(cutter, step, known, module, found.functions)
    last = found.steps[-1].span if found.steps else Span(file, 1, 1, 2)
    return cutter.cut([_at(known, r, last) for r in found.results], SOURCE)


def _given(cutter: Cutter, step: Given, number: int) -> int:
    t = _type(step.type, step.span)
    name = f"arg{number}"
    if step.is_weight:
        plain = re.sub(r"\W", "_", step.to[1:])
        leaf = Leaf(f"global_{plain}", t, key=f"{UNKNOWN}{step.to}")
        return cutter.builder.append("weight", (), leaf)
    return cutter.builder.append("input", (), Leaf(name, t, number))


def _view(cutter: Cutter, step: View, node: int) -> int:
    held, t = cutter.builder.type(node), _type(step.type, step.span)
    if held.size != t.size or held.dtype != t.dtype:
        raise fail("E345", f"{held} and {t} are other bytes", step.span)
    if held.shape == t.shape:
        return node
    return cutter.builder.add("reshape", (node,), Reshape(held.shape, t.shape))


def _dispatch(
    cutter: Cutter, step: FlowDispatch, known: dict[str, int], module: object, source: object
) -> dict[str, int]:
    own = read_module(module, source, step.function, None)  # pyright: ignore[reportArgumentType]
    cutter.weights.update(own.weights)
    operands = [_at(known, o, step.span) for o in step.operands]
    for i, o in zip(own.program.inputs, operands, strict=True):
        if own.program.nodes[i].type != cutter.builder.type(o):
            both = f"{own.program.nodes[i].type} and {cutter.builder.type(o)}"
            raise fail("E345", f"it reads {both}", step.span)
    at = f"{step.span.file}:{step.span.line}"
    nodes = cutter.add(step.function, at, own.program, operands)
    if len(nodes) == 1:
        return {step.to: nodes[0], f"{step.to}#0": nodes[0]}
    return {f"{step.to}#{i}": n for i, n in enumerate(nodes)}


def _at(known: dict[str, int], name: str, span: Span) -> int:
    if name not in known:
        raise fail("E346", f"`{name}` is no tensor that is read", span)
    return known[name]


def _type(text: str, span: Span) -> TensorType:
    found = _TENSOR.fullmatch(text)
    if found is None:
        raise fail("E346", f"the type `{text}` is not read", span)
    shape = tuple(int(d) for d in found[1].split("x") if d)
    dtype = _DTYPES.get(found[2], found[2])
    try:
        made = TensorType(dtype, shape)
        made.nbytes  # noqa: B018 - of a type without a size it cannot be told
    except (KeyError, ValueError):
        raise fail("E346", f"programs have no element type `{found[2]}`", span) from None
    return made
