"""Python expression syntax as a notation: trees with places, and what `.eqs` terms are made of.

Below the level of tensors those are literals, indexing maps and scalar bodies.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from eqsat.lang.source import Placed
from eqsat.model.affine import Affine, Map, affine
from eqsat.model.diag import Diagnostic, Span, did_you_mean
from eqsat.model.expr import Expr, arg, const, read_literal
from eqsat.model.extents import is_whole, read_tree
from eqsat.model.tensor import DTYPES, PRECISIONS


@dataclass(frozen=True)
class Tree:
    """A parsed text; `body` is the expression, `span` gives the place of any node in it."""

    placed: Placed
    body: ast.expr
    symbols: Mapping[str, int] = field(default_factory=dict)  # extents that may stand for numbers

    def range(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """Characters of the text a node covers (`ast` counts UTF-8 bytes)."""
        start, end = node.col_offset, node.end_col_offset or node.col_offset + 1
        if self.placed.text.isascii():
            return start, end
        return bisect_left(self._bytes, start), bisect_left(self._bytes, end)

    @cached_property
    def _bytes(self) -> list[int]:
        """The UTF-8 byte at which each character begins."""
        return [0, *accumulate(len(c.encode()) for c in self.placed.text)]

    def span(self, node: ast.expr | ast.keyword) -> Span:
        return self.placed.span(*self.range(node))

    def text(self, node: ast.expr | ast.keyword) -> str:
        """The piece of the text a node was read from."""
        start, end = self.range(node)
        return self.placed.text[start:end]

    def key(self, node: ast.keyword) -> Span:
        """The place of the key of `key=value`."""
        start, _ = self.range(node)
        return self.placed.span(start, start + len(node.arg or "**"))


def parse(
    placed: Placed,
    code: str,
    masked: str | None = None,
    symbols: Mapping[str, int] | None = None,
) -> Tree | Diagnostic:
    """The tree of a text, or what is wrong with it under `code`.

    masked: the same text, of the same length, with words replaced that Python reserves. symbols:
    names that may stand where a whole number is wanted.
    """
    text = placed.text if masked is None else masked
    # same length, so that offsets stay: line breaks of a folded term mean nothing
    flat = text.replace("\n", " ").replace("\t", " ")
    lead = len(flat) - len(flat.lstrip())
    if not flat.strip():
        return Diagnostic(code, "cannot read this term: it is empty", placed.whole())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # e.g. `1 is x`, refused later
            body = ast.parse(flat.strip(), mode="eval").body
    except SyntaxError as error:
        at = lead + max((error.offset or 1) - 1, 0)
        return Diagnostic(code, f"cannot read this term: {error.msg}", placed.span(at, at + 1))
    except (RecursionError, ValueError, MemoryError):
        return Diagnostic(code, "cannot read this term: it is nested too deeply", placed.whole())
    rest = Placed(placed.text[lead:], placed.lines, placed.offsets[lead:])
    return Tree(rest, body, symbols or {})


_MASK = re.compile(
    r"'[^']*'|\"[^\"]*\"|%\w[\w.@~-]*|\b(?:" + "|".join(keyword.kwlist) + r")\b"
)  # fmt: skip
_OF_WIDTH = "?_é一𐐀"
_LOOP = re.compile(r"d(\d+)")
_OPERAND = re.compile(r"x(\d+)")


class Refused(Exception):
    """A piece cannot be read; holds the diagnostic."""

    def __init__(self, diagnostic: Diagnostic):
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


class Poisoned(Exception):
    """A value whose definition was refused before: nothing more to say."""


def masked(text: str) -> str:
    """The text with `%5`, `%h.sum` and Python's own words (`and` …) made plain identifiers.

    Lengths stay, so that the tree's columns point into the original, which names are read from.
    """
    return _MASK.sub(lambda m: m[0] if m[0][0] in "'\"" else _letters(m[0]), text)


def _letters(word: str) -> str:
    """Letters that take as many bytes as those of the word, as columns of the tree are bytes."""
    return "_" * len(word) if word.isascii() else "".join(_OF_WIDTH[len(c.encode())] for c in word)


def refused(
    tree: Tree, node: ast.expr, message: str, code: str = "E300", help: str = ""
) -> Refused:
    return Refused(Diagnostic(code, message, tree.span(node), help=help))


def number(tree: Tree, node: ast.expr) -> bool | int | float:
    """`3`, `-0.5`, `inf`, `true`; Refused if it is no literal."""
    value = scalar_literal(tree, node)
    if value is None:
        raise refused(tree, node, "a number is wanted here")
    return value


def scalar_literal(tree: Tree, node: ast.expr) -> bool | int | float | None:
    """A scalar literal, or None."""
    if not isinstance(node, ast.Constant | ast.UnaryOp | ast.Name):
        return None
    try:
        return read_literal(tree.text(node).replace(" ", ""))
    except ValueError:
        return None


def integer(tree: Tree, node: ast.expr) -> int:
    value = scalar_literal(tree, node)
    if type(value) is not int and tree.symbols:
        value = read_tree(node, tree.symbols)
    if not is_whole(value):
        raise refused(tree, node, "a whole number is wanted here")
    return value


def integers(tree: Tree, node: ast.expr) -> tuple[int, ...]:
    """`[1, 0]`."""
    return tuple(integer(tree, e) for e in items(tree, node, "a list of whole numbers"))


def items(tree: Tree, node: ast.expr, what: str) -> list[ast.expr]:
    if not isinstance(node, ast.List):
        raise refused(tree, node, f"{what} is wanted here", help="write `[…]`")
    return node.elts


def string(tree: Tree, node: ast.expr) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise refused(tree, node, "a text in quotes is wanted here")
    return node.value


def strings(tree: Tree, node: ast.expr) -> tuple[str, ...]:
    return tuple(string(tree, e) for e in items(tree, node, "a list of texts"))


def dtype(tree: Tree, node: ast.expr) -> str:
    """The name of an element type; E302."""
    return _word_of(tree, node, DTYPES, "no element type named `{}`", "E302")


def _word_of(tree: Tree, node: ast.expr, words: Collection[str], message: str, code: str) -> str:
    """A word of a closed set; what is none is refused by this message, with the nearest word."""
    word = tree.text(node)
    if word not in words:
        raise refused(tree, node, message.format(word), code, did_you_mean(word, words))
    return word


def pads(tree: Tree, node: ast.expr) -> str | tuple[str, ...]:
    """`any`, `none`, `0` or a list of them, in the signs of `Layout.pads`."""
    if isinstance(node, ast.List):
        return tuple(_pad(tree, e) for e in node.elts)
    return _pad(tree, node)


def _pad(tree: Tree, node: ast.expr) -> str:
    word = tree.text(node).replace(" ", "")
    if word in ("any", "none"):
        return "?" if word == "any" else "-"
    number(tree, node)
    return word


# ---- indexing maps -------------------------------------------------------------------------------
def maps(tree: Tree, node: ast.expr) -> tuple[Map, ...]:
    """`[[d0, 2*d1 + d3], [d1]]`: one list per operand, one sum per dim."""
    return tuple(
        tuple(_affine(tree, e) for e in items(tree, m, "a list of sums of loops"))
        for m in items(tree, node, "a list of indexing maps")
    )


def _affine(tree: Tree, node: ast.expr) -> Affine:
    terms, constant = _linear(tree, node)
    return affine(terms, constant)


def _linear(tree: Tree, node: ast.expr) -> tuple[list[tuple[int, int]], int]:
    """Strides per loop and the constant of a sum."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return [], value
        case ast.Name():
            return [(_loop(tree, node), 1)], 0
        case ast.UnaryOp(op=ast.USub()):
            return _scaled(_linear(tree, node.operand), -1)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            left, right = _linear(tree, node.left), _linear(tree, node.right)
            right = _scaled(right, -1) if isinstance(node.op, ast.Sub) else right
            return left[0] + right[0], left[1] + right[1]
        case ast.BinOp(op=ast.Mult()):
            left, right = _linear(tree, node.left), _linear(tree, node.right)
            if not left[0] or not right[0]:
                return _scaled(right, left[1]) if not left[0] else _scaled(left, right[1])
    raise refused(
        tree, node, "an indexing map holds sums of loops", help="write for example `2*d1 + d3 + 1`"
    )


def _scaled(
    linear: tuple[list[tuple[int, int]], int], by: int
) -> tuple[list[tuple[int, int]], int]:
    return [(d, s * by) for d, s in linear[0]], linear[1] * by


def _loop(tree: Tree, node: ast.Name) -> int:
    match = _LOOP.fullmatch(tree.text(node))
    if match is None:
        raise refused(
            tree, node, f"`{tree.text(node)}` is not a loop", help="loops are `d0`, `d1` …"
        )
    return int(match[1])


# ---- bodies --------------------------------------------------------------------------------------
def body(tree: Tree, node: ast.expr) -> Expr:
    """`add(mul(x0, x1), 0.5)`: operands by number, literals, scalar functions, `cast(x0, f32)`.

    `(t0 := exp(x0), div(t0, add(t0, 1.0)))` names what is used again; the last is the value.
    """
    names: dict[str, Expr] = {}
    *named, last = node.elts if isinstance(node, ast.Tuple) and node.elts else [node]
    for one in named:
        if not isinstance(one, ast.NamedExpr):
            hint = "write `(t := exp(x0), mul(t, t))`: the last is the value, the others have names"
            raise refused(tree, one, "this part of a body has no name", help=hint)
        name = tree.text(one.target)
        if name in names or _OPERAND.fullmatch(name) or name in ("inf", "nan", "true", "false"):
            taken = "has a part already" if name in names else "stands for something else"
            raise refused(tree, one.target, f"`{name}` {taken}", "E304", "choose another name")
        names[name] = _expr(tree, one.value, names)
    return _expr(tree, last, names)


def _expr(tree: Tree, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
    """One call, number, operand or name; nested no deeper than Python's parser allows."""
    from eqsat.ops.meaning.scalar import FUNCTIONS

    if not isinstance(node, ast.Call):
        return _atom(tree, node, names)
    name = tree.text(node.func)
    if name == "cast" and len(node.args) == 2:
        return Expr("cast", (_expr(tree, node.args[0], names),), dtype(tree, node.args[1]))
    if name not in FUNCTIONS:
        message = f"no scalar function named `{name}`"
        functions = [*FUNCTIONS, "cast"]
        raise refused(tree, node.func, message, "E311", did_you_mean(name, functions))
    if len(node.args) != FUNCTIONS[name].arity or node.keywords:
        raise refused(tree, node, f"`{name}` takes {FUNCTIONS[name].arity} value(s)", "E312")
    return Expr(name, tuple(_expr(tree, a, names) for a in node.args))


def _atom(tree: Tree, node: ast.expr, names: Mapping[str, Expr]) -> Expr:
    text = tree.text(node)
    if text in names:
        return names[text]
    match = _OPERAND.fullmatch(text)
    if match is not None:
        return arg(int(match[1]))
    value = scalar_literal(tree, node)
    if value is not None:
        return const(value)
    raise refused(
        tree, node, "a body holds operands, numbers and scalar functions",
        help="write for example `add(mul(x0, x1), 0.5)`",
    )  # fmt: skip


def bodies(tree: Tree, node: ast.expr) -> tuple[Expr, ...]:
    """One body, or a list of them for several results."""
    nodes = node.elts if isinstance(node, ast.List) else [node]
    return tuple(body(tree, n) for n in nodes)


def combines(tree: Tree, node: ast.expr) -> tuple[str, ...]:
    """How reductions combine: one word, or a list of them for several results."""
    nodes = node.elts if isinstance(node, ast.List) else [node]
    message = "a reduction cannot combine by `{}`"
    return tuple(_word_of(tree, n, COMBINES, message, "E312") for n in nodes)


def precision(tree: Tree, node: ast.expr) -> str:
    """The name of a precision, E312."""
    return _word_of(tree, node, PRECISIONS, "no precision named `{}`", "E312")


COMBINES = ("add", "max", "min", "mul", "and", "or")
