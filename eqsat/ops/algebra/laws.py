"""Attribute functions for loops that are written out, without their sizes, and laws of them.

A loop is written as in an einsum, with its body behind: `mk,kn->mn add mul(x0, x1)` is a product of
matrices, `mn,n->mn add(x0, x1)` adds a row to every row, `mn->n max x0` takes the largest of each
column. A letter is a loop and stands for its size wherever the law has it. The word in front of the
body says how reductions combine; there is one where a letter is summed over or the like.

A law is the loops of one side, ` => `, those of the other, with `; ` between loops:

    law("mn->m add x0; mk,kn->mn add mul(x0, x1) => kn->k add x0; mk,k->m add mul(x0, x1)", h, g)

A law without letters is of sums of products of any rank in other brackets (`brackets`):

    law("(a b) c => a (b c) if work <= 0.9", g, h)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eqsat.model.affine import dim
from eqsat.model.attr import Shape
from eqsat.model.diag import fail
from eqsat.model.expr import Expr, arg, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.algebra.reassociate import Bracket, Guard, guard, matched, read_brackets, rebracketed
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning.scalar import FUNCTIONS as SCALARS

COMBINES = ("add", "mul", "max", "min")
MOST = 4  # loops a side, which a rule may name
_LOOP = re.compile(r"([a-z,]*)->([a-z]*) (?:(add|mul|max|min) )?(\S.*)")
_OPERAND = re.compile(r"x(\d)")
Sizes = dict[str, int]


@dataclass(frozen=True)
class LoopText:
    """One loop of a law: letters per operand and of the result, what reductions do, the body."""

    operands: tuple[str, ...]
    result: str
    combine: str
    body: Expr

    @property
    def letters(self) -> str:
        """The loops: those of the result, then the reductions as operands first use them."""
        return "".join(dict.fromkeys(self.result + "".join(self.operands)))

    def as_generic(self, sizes: Mapping[str, int], dtype: str, precision: str) -> Generic:
        """The generic at these sizes, with all values of one element type."""
        letters = self.letters
        number = {c: dim(i) for i, c in enumerate(letters)}
        reduces = len(letters) > len(self.result)
        return canonical_generic(
            [sizes[c] for c in letters],
            range(len(self.result)),
            [tuple(number[c] for c in o) for o in self.operands],
            [tuple(sizes[c] for c in o) for o in self.operands],
            [Yield(self.body, dtype, self.combine if reduces else "")],
            dtypes=[dtype] * len(self.operands),
            precision=precision,
        )

    def binds(self, g: Generic, sizes: Sizes) -> bool:
        """Whether the shapes of `g` fit the letters; new ones are put into `sizes`."""
        if len(g.shapes) != len(self.operands) or g.rank != len(self.result):
            return False
        pairs = zip((*self.operands, self.result), (*g.shapes, g.result_shape), strict=True)
        return all(_bind(letters, shape, sizes) for letters, shape in pairs)


@dataclass(frozen=True)
class Law:
    """The loops of both sides."""

    left: tuple[LoopText, ...]
    right: tuple[LoopText, ...]


@dataclass(frozen=True)
class LawLoops:
    """The loops of the right side of a law; none where it has fewer."""

    first: Generic | None
    second: Generic | None
    third: Generic | None
    fourth: Generic | None


def law(
    text: str,
    g: Generic,
    h: Generic | None = None,
    f: Generic | None = None,
    e: Generic | None = None,
) -> LawLoops | None:
    """The loops of the right side of a law such as `mn->n max x0; … => …`, with g, h … on the left.

    All values have one floating type, and all contractions one precision. A law of brackets has
    its ops as their brackets close, and the whole last. A text that is no law is refused where a
    rule is read (EqsatError E026).
    """
    given = [s for s in (g, h, f, e) if s is not None]
    if "->" in text:
        parsed = read_law(text)
        sizes = _matched(parsed.left, given)
        generics = None if sizes is None else [t.as_generic(*sizes) for t in parsed.right]
    else:
        left, right, guards = read_bracket_law(text)
        rebracketing = rebracketed(left, right, matched(left, given))
        is_law = rebracketing is not None and all(holds(rebracketing) for holds in guards)
        generics = rebracketing.generics() if rebracketing is not None and is_law else None
    return None if generics is None else LawLoops(*generics, *[None] * (MOST - len(generics)))


def is_spelled(
    text: str,
    g: Generic,
    h: Generic | None = None,
    f: Generic | None = None,
    e: Generic | None = None,
) -> bool:
    """Whether g, h … are these loops, spelled as in `law`: `mn->m add x0; m->m neg(x0)`."""
    return _matched(read_loops(text), [s for s in (g, h, f, e) if s is not None]) is not None


def _matched(texts: Sequence[LoopText], given: Sequence[Generic]) -> tuple[Sizes, str, str] | None:
    """The sizes of the letters, the element type and the precision, if these are those loops."""
    if len(given) != len(texts) or any(len(s.yields) != 1 for s in given):
        return None
    dtype = given[0].yields[0].dtype
    precisions = {s.precision for s in given if s.has_precision}
    if not is_float(dtype) or len(precisions) > 1:
        return None
    sizes: Sizes = {}
    pairs = list(zip(texts, given, strict=True))
    if not all(t.binds(s, sizes) for t, s in pairs):
        return None
    if any(replace(s, precision=NONE) != t.as_generic(sizes, dtype, NONE) for t, s in pairs):
        return None
    return sizes, dtype, precisions.pop() if precisions else NONE


def _bind(letters: str, shape: Shape, sizes: Sizes) -> bool:
    if len(letters) != len(shape):
        return False
    return all(sizes.setdefault(c, s) == s for c, s in zip(letters, shape, strict=True))


# ---- reading -------------------------------------------------------------------------------------
@lru_cache(maxsize=1_000)
def read_law(text: str) -> Law:
    """The law a text states; EqsatError (E026) says what is wrong with it."""
    problem = law_problem(text)
    if problem:
        raise fail("E026", problem, help=HELP)
    left, _, right = text.partition("=>")
    return Law(_side(left), _side(right))


@lru_cache(maxsize=1_000)
def read_loops(text: str) -> tuple[LoopText, ...]:
    """The loops a text spells; EqsatError (E026) says what is wrong with it."""
    problem = loops_problem(text)
    if problem:
        raise fail("E026", problem, help=HELP)
    return _side(text)


HELP = 'write `law("mn->m add x0; … => …", g, …)`, loops as in an einsum with their bodies behind'


def law_problem(text: str) -> str:
    """The fault of the text of a law, "" if there is none."""
    left, arrow, right = text.partition("=>")
    if not arrow:
        return f"`{text}` is no law: it has no `=>` between two sides"
    if "->" not in text:
        return _bracket_problem(text)
    if problem := loops_problem(left) or loops_problem(right):
        return problem
    letters = set("".join(t.letters for t in _side(left)))
    new = {c for t in _side(right) for c in t.letters} - letters
    if new:
        return f"the right side has `{min(new)}`, whose size the left side does not say"
    return ""


def _bracket_problem(text: str) -> str:
    try:
        left, right, _ = read_bracket_law(text)
    except ValueError as error:
        return f"`{text}` is no law: {error}"
    if sorted(left.names) != sorted(right.names):
        return f"`{text}` is no law: its sides are not products of the same operands"
    return ""


@lru_cache(maxsize=1_000)
def read_bracket_law(text: str) -> tuple[Bracket, Bracket, list[Guard]]:
    """Both sides of a law of brackets, and what else has to hold; ValueError if it is none."""
    left, _, right = text.partition("=>")
    right, _, words = right.partition(" if ")
    if max(left.count("("), right.count("(")) >= MOST:
        raise ValueError(f"a side may have {MOST - 1} brackets")
    sides = read_brackets(left), read_brackets(right)
    return *sides, [guard(w.strip(), *sides) for w in words.split(" and ") if words]


def loops_problem(text: str) -> str:
    """The fault of the text of some loops, "" if there is none."""
    loops = [t.strip() for t in text.split(";")]
    if len(loops) > MOST:
        return f"`{text.strip()}` has {len(loops)} loops, there may be {MOST}"
    problems = ((loop, _loop_problem(loop)) for loop in loops)
    return next((f"`{loop}` is no loop: {why}" for loop, why in problems if why), "")


def _loop_problem(text: str) -> str:
    match = _LOOP.fullmatch(text)
    if match is None:
        return "it is not `letters,letters->letters [combine] body`"
    operands, result, combine, body = match.groups()
    if len(set(result)) < len(result):
        return f"the result `{result}` names a loop twice"
    if bool(combine) != bool(set(operands) - set(result) - {","}):
        return "a word such as `add` goes with letters that the result does not have"
    try:
        read = read_body(body)
    except (SyntaxError, ValueError) as error:
        return str(error) if isinstance(error, ValueError) else f"cannot read `{body}`"
    if set(read.operands()) != set(range(len(operands.split(",")))):
        return f"the body reads {sorted(read.operands())} of {operands.count(',') + 1} operand(s)"
    return ""


def _side(text: str) -> tuple[LoopText, ...]:
    return tuple(_loop(t.strip()) for t in text.split(";"))


def _loop(text: str) -> LoopText:
    match = _LOOP.fullmatch(text)
    assert match is not None
    operands, result, combine, body = match.groups()
    return LoopText(tuple(operands.split(",")), result, combine or "", read_body(body))


def read_body(text: str) -> Expr:
    """The body that a text spells, its numbers floats; SyntaxError or ValueError if it is none."""
    return _body(ast.parse(text, mode="eval").body)


def _body(node: ast.expr) -> Expr:
    """A body; ValueError says what cannot be read."""
    match node:
        case ast.Name(id=name) if _OPERAND.fullmatch(name):
            return arg(int(name[1:]))
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool):
            return const(float(value))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float() | int() as value)):
            return const(-float(value))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in SCALARS:
            return _call(name, args)
    raise ValueError(f"`{ast.unparse(node)}` is no operand `x0`, number or scalar function")


def _call(name: str, args: Sequence[ast.expr]) -> Expr:
    if len(args) != SCALARS[name].arity:
        raise ValueError(f"`{name}` takes {SCALARS[name].arity} operand(s), got {len(args)}")
    return Expr(name, tuple(map(_body, args)))


FUNCTIONS = attr_functions(law, is_spelled)
FUNCTIONS["law"] = replace(FUNCTIONS["law"], refuses=law_problem)
FUNCTIONS["is_spelled"] = replace(FUNCTIONS["is_spelled"], refuses=loops_problem)
