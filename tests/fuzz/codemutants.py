"""Mutants of functions: a module in, functions that differ from their own by one step out.

A mutant changes one number, comparison, bound, order or condition of one function. It is applied to
the function object that everybody holds, by exchanging its code, and taken back the same way.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

# what the fields of nests and plans are called that count something or lie somewhere
COUNTS = frozenset({
    "base", "extent", "extents", "strides", "sizes", "stride", "start", "stop", "step", "limit",
    "low", "high", "offset", "lanes", "rows", "row_count", "row_tiles", "vectors", "wide", "panels",
    "panel_row", "width", "last_width", "last_rows", "items", "k_block", "k_blocks", "block_k",
    "blocks", "length", "depth", "count", "counts", "size", "fused", "dot", "dots", "groups",
    "tiles", "scratch_bytes", "step_bytes", "batch",
})  # fmt: skip
_NEXT: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.And: ast.Or, ast.Or: ast.And, ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip
_OTHER = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True)
class CodeMutant:
    """One change: of the `number`-th place of a function where its `kind` can be made."""

    module: str
    function: str  # qualified name of the outermost function
    line: int
    kind: str
    number: int
    text: str  # what was there, and what is now

    def __str__(self) -> str:
        return f"{self.module}.{self.function}:{self.line} {self.kind}: {self.text}"


Change = Callable[[Any], ast.expr | None]


def _plus(step: int) -> Change:
    def change(n: ast.expr) -> ast.expr:
        return ast.BinOp(copy.deepcopy(n), ast.Add() if step > 0 else ast.Sub(), ast.Constant(1))

    return change


def _number(n: Any) -> bool:
    return isinstance(n, ast.Constant) and type(n.value) is int and abs(n.value) < 1 << 20


def _count(n: Any) -> bool:
    """A count or an offset: a field, or an element of one."""
    if not isinstance(getattr(n, "ctx", None), ast.Load):
        return False
    if isinstance(n, ast.Subscript) and not isinstance(n.slice, ast.Slice):
        n = n.value
        return isinstance(n, ast.Attribute) and n.attr in {"strides", "sizes", "extents", "counts"}
    return isinstance(n, ast.Attribute) and n.attr in COUNTS - {"strides", "sizes", "extents"}


def _called(n: Any, *names: str) -> bool:
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in names


def _renamed(n: Any) -> ast.expr:
    return ast.Call(ast.Name(_OTHER[n.func.id], ast.Load()), n.args, n.keywords)


def _ceiling(n: Any) -> bool:
    """-(-a // b)"""
    return (
        isinstance(n, ast.UnaryOp)
        and isinstance(n.op, ast.USub)
        and isinstance(n.operand, ast.BinOp)
        and isinstance(n.operand.op, ast.FloorDiv)
        and isinstance(n.operand.left, ast.UnaryOp)
    )


def _floor(n: Any) -> ast.expr:
    return ast.BinOp(n.operand.left.operand, ast.FloorDiv(), n.operand.right)


def _shorter(n: Any) -> ast.expr:
    """range(a, b) without its last number; range(b) without its first."""
    args = [*n.args]
    if len(args) == 1:
        args = [ast.Constant(1), *args]
    else:
        args[1] = ast.BinOp(args[1], ast.Sub(), ast.Constant(1))
    return ast.Call(n.func, args, [])


def _longer(n: Any) -> ast.expr:
    args = [*n.args]
    at = min(1, len(args) - 1)
    args[at] = ast.BinOp(args[at], ast.Add(), ast.Constant(1))
    return ast.Call(n.func, args, [])


def _reversed(n: Any) -> ast.expr:
    return ast.Tuple([*reversed(n.elts)], ast.Load())


def _pair(n: Any) -> bool:
    return (
        isinstance(n, ast.Tuple)
        and isinstance(n.ctx, ast.Load)
        and 2 <= len(n.elts) <= 3
        and not any(isinstance(e, ast.Constant | ast.Starred) for e in n.elts)
    )


def _compared(n: Any) -> ast.expr:
    return ast.Compare(n.left, [_NEXT[type(n.ops[0])](), *n.ops[1:]], n.comparators)


def _operated(n: Any) -> ast.expr:
    return ast.BinOp(n.left, _NEXT[type(n.op)](), n.right)


def _arithmetic(n: Any) -> bool:
    texts = (ast.JoinedStr, ast.Tuple, ast.List, ast.Set)
    return (
        isinstance(n, ast.BinOp)
        and type(n.op) in _NEXT
        and not isinstance(n.left, texts)
        and not isinstance(n.right, texts)
        and not (isinstance(n.left, ast.Constant) and isinstance(n.left.value, str))
    )


KINDS: dict[str, tuple[Callable[[Any], bool], Change]] = {
    "a number + 1": (_number, lambda n: ast.Constant(n.value + 1)),
    "a number - 1": (lambda n: _number(n) and n.value > 0, lambda n: ast.Constant(n.value - 1)),
    "a count + 1": (_count, _plus(1)),
    "a count - 1": (_count, _plus(-1)),
    "a comparison": (lambda n: isinstance(n, ast.Compare) and type(n.ops[0]) in _NEXT, _compared),
    "a sum or a rest": (_arithmetic, _operated),
    "a ceiling": (_ceiling, _floor),
    "a range without an end": (lambda n: _called(n, "range"), _shorter),
    "a range beyond its end": (lambda n: _called(n, "range"), _longer),
    "the other extreme": (lambda n: _called(n, *_OTHER), _renamed),
    "an order": (_pair, _reversed),
    "a condition": (
        lambda n: isinstance(n, ast.BoolOp),
        lambda n: ast.BoolOp(_NEXT[type(n.op)](), n.values),
    ),
    "a condition turned": (
        lambda n: isinstance(n, ast.IfExp),
        lambda n: ast.IfExp(n.test, n.orelse, n.body),
    ),
}


# ---- where they are ------------------------------------------------------------------------------
def mutants_of(name: str) -> Iterator[CodeMutant]:
    """Every mutant of the functions and methods of a module."""
    for qualified, tree in _functions(_tree(name)):
        for kind in KINDS:
            for number, node in enumerate(_places(tree, kind)):
                now = KINDS[kind][1](copy.deepcopy(node))
                assert now is not None
                text = f"{ast.unparse(node)[:50]} -> {ast.unparse(now)[:50]}"
                yield CodeMutant(name, qualified, node.lineno, kind, number, text)


def _tree(name: str) -> ast.Module:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for n in tree.body:
        if isinstance(n, ast.FunctionDef):
            yield n.name, n
        elif isinstance(n, ast.ClassDef):
            for m in n.body:
                if isinstance(m, ast.FunctionDef) and not _is_text(m.name):
                    yield f"{n.name}.{m.name}", m


def _is_text(name: str) -> bool:
    """Methods that only name or print something."""
    return name in ("to_text", "__str__", "to_json", "from_json", "__repr__")


def _places(function: ast.FunctionDef, kind: str) -> list[ast.expr]:
    """What a kind can change, without annotations, texts of errors and defaults."""
    fits, found = KINDS[kind][0], list[ast.expr]()
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        n = waiting.pop(0)
        if isinstance(n, ast.expr) and fits(n):
            found.append(n)
        if isinstance(n, ast.Raise | ast.JoinedStr | ast.Assert):
            continue
        skipped = {getattr(n, "annotation", None), getattr(n, "returns", None)}
        children = [c for c in ast.iter_child_nodes(n) if c not in skipped]
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
            children[0] = n.func.value  # a method is no count
        waiting += children
    return sorted(found, key=lambda n: (n.lineno, n.col_offset, n.end_col_offset or 0))


class _Exchange(ast.NodeTransformer):
    """One node in place of another."""

    def __init__(self, place: ast.expr, now: ast.expr):
        self.place, self.now = place, now

    def visit(self, node: ast.AST) -> Any:
        return self.now if node is self.place else self.generic_visit(node)


# ---- applied -------------------------------------------------------------------------------------
@contextmanager
def applied(mutant: CodeMutant) -> Iterator[None]:
    """Everything runs with the mutant inside."""
    function = function_of(mutant.module, mutant.function)
    own, function.__code__ = function.__code__, code_of(mutant)
    try:
        yield
    finally:
        function.__code__ = own


def code_of(mutant: CodeMutant) -> CodeType:
    """The mutated function's code."""
    tree = _tree(mutant.module)
    function = dict(_functions(tree))[mutant.function]
    place = _places(function, mutant.kind)[mutant.number]
    now = KINDS[mutant.kind][1](place)
    assert now is not None

    file = str(importlib.import_module(mutant.module).__file__)
    mutated = ast.fix_missing_locations(_Exchange(place, now).visit(tree))
    code = compile(mutated, file, "exec", dont_inherit=True)
    for part in mutant.function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
    return code


def function_of(module: str, qualified: str) -> FunctionType:
    """The function object behind properties, caches and decorators."""
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = inspect.getattr_static(found, part)
    while not isinstance(found, FunctionType):
        if isinstance(found, functools.cached_property):
            found = found.func
        elif isinstance(found, property):
            found = found.fget
        else:
            found = found.__wrapped__ if hasattr(found, "__wrapped__") else found.__func__
    return inspect.unwrap(found) if hasattr(found, "__wrapped__") else found


def forget(modules: list[ModuleType]) -> None:
    """Empties what functions of these modules remember."""
    for module in modules:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
