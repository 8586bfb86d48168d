"""How each structured op of `.eqs` text reads its attribute."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eqsat.lang import expressions
from eqsat.lang.expressions import Poisoned, refused
from eqsat.lang.syntax import Tree
from eqsat.model.attr import Attr, Shape
from eqsat.model.control import Control
from eqsat.model.diag import did_you_mean
from eqsat.model.expr import Expr, const
from eqsat.model.foreign import Opaque
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill
from eqsat.model.precision import DEFAULT
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops.registry import op_record

if TYPE_CHECKING:
    from eqsat.lang.programterms import Call

Types = tuple[TensorType, ...]


def typed(number: Expr, dtype: str) -> Expr:
    """A whole number beside floats is a float: equal bodies must be equal records."""
    plain = is_float(dtype) and type(number.value) is int
    return const(float(number.value)) if plain else number


def _generic(c: Call, types: Types) -> Generic:
    sizes = c.get("loops", expressions.integers)
    maps = c.get("maps", expressions.maps)
    exprs = c.get("body", expressions.bodies)
    combine = c.get("combine", expressions.combines, ("",))
    combine = combine * len(exprs) if len(combine) == 1 else combine
    if len(combine) != len(exprs):
        raise c.misfit("`combine` and `body` differ in length")
    dtypes = _yield_dtypes(c, exprs, types)
    found = Generic(
        sizes,
        _rank(c, sizes, maps, bool(combine[0])),
        maps,
        tuple(t.shape for t in types),
        tuple(Yield(*y) for y in zip(exprs, dtypes, combine, strict=True)),
        c.get("tile", expressions.integers, ()),
        tuple(t.dtype for t in types),
        c.get("precision", expressions.precision, DEFAULT),
        c.get("order", expressions.integers, ()),
    )
    if "precision" in c.keywords and not found.has_precision:
        hint = "leave it out: this is no sum of floating products of two operands"
        raise refused(c.tree, c.node, "only a contraction has a `precision`", "E312", hint)
    return found


def _rank(c: Call, sizes: Shape, maps: tuple[Any, ...], reduces: bool) -> int:
    """The number of result dims: written, or the only one that makes sense (E310)."""
    if "rank" in c.keywords:
        return min(max(c.get("rank", expressions.integer), 0), len(sizes))
    if not reduces:
        return len(sizes)
    if c.want:
        return min(len(c.want[0].shape), len(sizes))
    # a reduction is read by every operand, so only a trailing run of such loops can be reduced
    found = len(sizes)
    while found and all(any(d == found - 1 for e in m for d, _ in e.terms) for m in maps):
        found -= 1
    if len(sizes) - found != 1:
        hint = "write `rank=N`, the number of result dims, or the type behind the term"
        message = "which loops of `generic` are reduced is not clear"
        raise refused(c.tree, c.node, message, "E310", hint)
    return found


def _yield_dtypes(c: Call, exprs: tuple[Expr, ...], types: Types) -> list[str]:
    from eqsat.ops.meaning.scalar import result_dtype

    found = []
    for i, e in enumerate(exprs):
        if any(o >= len(types) for o in e.operands()):
            raise c.misfit("the body names an operand that is not there")
        dtype = result_dtype(e, [t.dtype for t in types])
        if dtype is None and c.want is not None and i < len(c.want):
            dtype = c.want[i].dtype
        if dtype is None:
            hint = "write it behind the term: `: f32[4]`"
            raise refused(c.tree, c.node, "the element type of a constant body", "E310", hint)
        found.append(dtype)
    return found


def _layout(c: Call, source: Shape) -> Layout:
    pos, tiles = c.get("pos", expressions.integers), c.get("tiles", expressions.integers)
    outer = c.get("outer", expressions.integers, tuple(range(len(source))))
    pads = c.get("pad", expressions.pads, "-")
    pads = (pads,) * len(tiles) if isinstance(pads, str) else pads
    if len(pads) != len(tiles) or len(pos) != len(tiles):
        raise c.misfit("`pos`, `tiles` and a list of `pad` have one entry per tile")
    if any(not 0 <= p < len(source) for p in pos) or any(t < 1 for t in tiles):
        raise c.misfit(f"`pos` names dims of {list(source)}, and a tile is at least 1")
    marks = ["-" if source[d] % t == 0 else p for d, t, p in zip(pos, tiles, pads, strict=True)]
    return Layout(source, pos, tiles, outer, tuple(marks))


def _pack(c: Call, types: Types) -> Layout:
    return _layout(c, types[0].shape)


def _packed(c: Call, types: Types) -> Layout:
    """The layout of a packed operand; without `shape`, every tile divides its dim."""
    if "shape" in c.keywords:
        return _layout(c, c.get("shape", expressions.integers))
    pos, tiles = c.get("pos", expressions.integers), c.get("tiles", expressions.integers)
    rank = types[0].rank - len(tiles)
    outer = c.get("outer", expressions.integers, tuple(range(max(rank, 0))))
    if rank < 0 or sorted(outer) != list(range(rank)) or len(pos) != len(tiles):
        raise c.misfit(f"{types[0]} cannot be packed like this")
    blocks = {d: types[0].shape[j] for j, d in enumerate(outer)}
    tile = dict(zip(pos, tiles, strict=True))
    return _layout(c, tuple(blocks[d] * tile.get(d, 1) for d in range(rank)))


def _literal_text(tree: Tree, node: ast.expr) -> str:
    expressions.number(tree, node)
    return tree.text(node).replace(" ", "")


def _encoding(c: Call, types: Types) -> Encoding:
    role = c.get("role", expressions.string)
    if role not in ("lhs", "rhs", "result"):
        raise c.misfit(f'`role` is "lhs", "rhs" or "result", not "{role}"')
    contraction = c.get("contraction", expressions.string, "matmul")
    return Encoding(
        types[0].shape,
        role,
        contraction,
        c.get("dtypes", expressions.strings, ()),
        c.get("loops", expressions.integers, ()),
        c.get("maps", expressions.maps, ()),
        c.get("dims", expressions.integers, ()),
    )


def _fill(c: Call, types: Types) -> Fill:
    if "type" in c.keywords:  # inside of a term, where nothing stands behind it
        found = TensorType.parse(c.get("type", expressions.string), c.tree.symbols)
    else:
        found = c.only(c.want, "write it behind the term: `fill(value=0.0) : f32[4]`")
    value = c.get("value", expressions.number)
    return Fill(typed(const(value), found.dtype).value, found)


def _opaque(c: Call, types: Types) -> Opaque:
    if c.want is None:
        raise refused(c.tree, c.node, "`opaque` needs its types", "E310", "write them behind it")
    primitive, key = c.get("primitive", expressions.string), c.get("key", expressions.string)
    return Opaque(primitive, key, types, c.want)


def _control(c: Call, types: Types) -> Control:
    """A loop or branch; its bodies were defined before by name."""
    programs = []
    for name in c.get("bodies", expressions.strings):
        if name not in c.bodies:
            hint = did_you_mean(name, c.bodies) if c.bodies else "define it before with `body`"
            raise refused(c.tree, c.node, f"no body named `{name}`", "E330", hint)
        found = c.bodies[name]
        if found is None:
            raise Poisoned
        programs.append(found)
    flag = c.get("reverse", expressions.number, 0)
    consts, carries, length = (
        c.get(key, expressions.integer, 0) for key in ("consts", "carries", "length")
    )
    return Control(c.op, tuple(programs), consts, carries, length, bool(flag))


def by_record(c: Call, types: Types) -> Attr:
    """The attribute of an op that is its keywords, as its record says."""
    r = op_record(c.op)
    given = {
        key: c.get(key, _LITERALS.get((c.op, key), _VALUES[kind]))
        for key, kind in r.attributes.items()
        if key in c.keywords or key not in (*r.optional, *_DEFAULTED)
    }
    return r.attribute([t.shape for t in types], given)


_VALUES: dict[str, Callable[[Tree, ast.expr], Any]] = {
    "int": expressions.integer,
    "ints": expressions.integers,
    "str": expressions.string,
    "float": expressions.number,
}
_LITERALS = {("pad", "value"): _literal_text}  # a number that is kept as it is written
# also left out in programs: whoever places a program knows the device it comes from
_DEFAULTED = ("stride", "origin")
_LAYOUT_KEYS = ("pos", "tiles", "outer", "pad", "shape")
_GENERIC_KEYS = ("loops", "maps", "body", "combine", "tile", "rank", "precision", "order")
_ENCODING_KEYS = ("role", "contraction", "dtypes", "loops", "maps", "dims")
# op → its keys and how its attribute is read, where the record does not say it all
READERS: dict[str, tuple[tuple[str, ...], Callable[[Call, Types], Attr]]] = {
    "generic": (_GENERIC_KEYS, _generic),
    "pack": (_LAYOUT_KEYS[:-1], _pack),
    "unpack": (_LAYOUT_KEYS, _packed),
    "retype": (_LAYOUT_KEYS, _packed),
    "relax": (_LAYOUT_KEYS, _packed),
    "set_encoding": (_ENCODING_KEYS, _encoding),
    "unset_encoding": (_ENCODING_KEYS, _encoding),
    "fill": (("value", "type"), _fill),
    "opaque": (("primitive", "key"), _opaque),
    "scan": (("bodies", "consts", "carries", "length", "reverse"), _control),
    "while_loop": (("bodies", "consts", "carries"), _control),
    "cond": (("bodies", "consts"), _control),
}
