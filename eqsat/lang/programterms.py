"""Terms of `.eqs` text → nodes of a program: every op as it is printed, and sugar for common ones."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from eqsat.lang import bodies
from eqsat.lang.bodies import Refused, refused
from eqsat.lang.syntax import Tree
from eqsat.model.attrs import (
    Attr,
    Encoding,
    Fill,
    Generic,
    Layout,
    Move,
    Opaque,
    Reshape,
    Result,
    Shape,
    Transpose,
    Yield,
    dim,
)
from eqsat.model.diag import Diagnostic, did_you_mean
from eqsat.model.expr import Expr, arg, cast, const
from eqsat.model.program import Builder
from eqsat.model.tensor import DTYPES, TensorType, cdiv, is_float

Types = tuple[TensorType, ...]


class Poisoned(Exception):
    """A value whose definition was refused before: nothing more to say."""


class TermBuilder:
    """Adds the ops of one term to a builder. `names` maps a name to its node, None if refused."""

    def __init__(self, tree: Tree, builder: Builder, names: dict[str, int | None]):
        self.tree = tree
        self.builder = builder
        self.names = names

    def root(self, node: ast.expr, want: Types | None, keep: bool) -> int:
        """The node of the whole term; `want` are its types if they are written.

        keep: give it a node of its own even if an equal one exists, as a printed program says.
        Refused (E30x) or Poisoned if there is none.
        """
        if self._known(node) is not None or not isinstance(node, ast.Call):
            return self.operand(node)
        return _Call(self, node, want, keep).build()

    def operand(self, node: ast.expr) -> int:
        """A name or a nested term."""
        known = self._known(node)
        if known is not None:
            return known
        if isinstance(node, ast.Call):
            return _Call(self, node, None, False).build()
        text = self.tree.text(node)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            hint = did_you_mean(text, self.names) if self.names else ""
            raise refused(self.tree, node, f"no value named `{text}`", "E303", hint)
        raise refused(
            self.tree, node, "a tensor is wanted here", help="write a name or a term `op(x, …)`"
        )

    def _known(self, node: ast.expr) -> int | None:
        text = self.tree.text(node)
        if text not in self.names:
            return None
        found = self.names[text]
        if found is None:
            raise Poisoned
        return found


class _Call:
    """One `op(operands…, key=value…)`."""

    def __init__(self, terms: TermBuilder, node: ast.Call, want: Types | None, keep: bool):
        self.terms = terms
        self.tree = terms.tree
        self.builder = terms.builder
        self.node = node
        self.op = terms.tree.text(node.func)
        self.want = want
        self.keep = keep
        self.keywords = {k.arg or "**": k for k in node.keywords}

    def build(self) -> int:
        from eqsat.ops.scalar import FUNCTIONS

        if self.op in _READERS:
            return self._structured(*_READERS[self.op])
        if self.op == "matmul":
            return self._shaped(self._matmul)
        if self.op in FUNCTIONS or self.op in ("relu", "cast"):
            return self._shaped(self._elementwise)
        known = [*_READERS, *FUNCTIONS, "matmul", "relu", "cast"]
        message = f"no op named `{self.op}`"
        raise refused(self.tree, self.node.func, message, "E307", did_you_mean(self.op, known))

    def _structured(
        self, count: int | None, keys: tuple[str, ...], read: Callable[[_Call, Types], Attr]
    ) -> int:
        self._refuse_keywords(keys)
        if count is not None and len(self.node.args) != count:
            message = f"`{self.op}` takes {count} operand(s), got {len(self.node.args)}"
            raise self.misfit(message)
        nodes = tuple(self.terms.operand(a) for a in self.node.args)
        types = tuple(self.builder.nodes[n].types[0] for n in nodes)

        def add() -> int:
            attr = read(self, types)
            append = self.builder.append if self.keep else self.builder.add
            return append(self.op, nodes, attr)

        return self._shaped(add)

    def _shaped(self, build: Callable[[], int]) -> int:
        try:
            return build()
        except ValueError as error:  # ShapeError too: its text is a sentence for the user
            raise self.misfit(str(error)) from None

    def misfit(self, message: str, help: str = "") -> Refused:
        return refused(self.tree, self.node, message, "E301", help)

    def _refuse_keywords(self, keys: tuple[str, ...]) -> None:
        for name, k in self.keywords.items():
            if name not in keys:
                message = f"`{self.op}` has no attribute `{name}`"
                hint = did_you_mean(name, keys) if keys else f"`{self.op}` has none"
                raise Refused(Diagnostic("E308", message, self.tree.key(k), help=hint))

    # ---- attributes -------------------------------------------------------------------------
    def get(self, key: str, read: Callable[[Tree, ast.expr], Any], default: Any = None) -> Any:
        """The value of a keyword, or the default; E308 if there is neither."""
        if key in self.keywords:
            return read(self.tree, self.keywords[key].value)
        if default is None:
            raise refused(self.tree, self.node, f"`{self.op}` needs attribute `{key}`", "E308")
        return default

    def only(self, types: Types | None, why: str) -> TensorType:
        """The type written behind the term; E306 if there is none."""
        if types is None or len(types) != 1:
            raise refused(self.tree, self.node, f"`{self.op}` needs its type", "E306", why)
        return types[0]

    # ---- sugar ------------------------------------------------------------------------------
    def _matmul(self) -> int:
        """`matmul(a, b)`: leading dims are batch dims; small types accumulate in f32 or i32."""
        from eqsat.ops.canonical import generic_node

        self._refuse_keywords(())
        if len(self.node.args) != 2:
            raise self.misfit(f"`matmul` takes 2 operands, got {len(self.node.args)}")
        a, b = (self.terms.operand(x) for x in self.node.args)
        ta, tb = self.builder.type(a), self.builder.type(b)
        self._check_matmul(ta, tb)
        batch = range(ta.rank - 2)
        m, n, k = (ta.rank - 2 + i for i in range(3))
        sizes = (*ta.shape[:-1], tb.shape[-1], ta.shape[-1])
        left = (a, tuple(dim(d) for d in (*batch, m, k)))
        right = (b, tuple(dim(d) for d in (*batch, k, n)))
        acc = _accumulator(ta.dtype)
        factors = [x if acc == ta.dtype else cast(x, acc) for x in (arg(0), arg(1))]
        product = Yield(Expr("mul", tuple(factors)), acc, "add")
        found = generic_node(self.builder, sizes, (*batch, m, n), (left, right), (product,))
        return self._cast(found, self._result_dtype(ta.dtype, acc))

    def _check_matmul(self, a: TensorType, b: TensorType) -> None:
        why = ""
        if a.rank < 2 or a.rank != b.rank:
            why = "both need the same number of dims, at least 2"
        elif a.shape[-1] != b.shape[-2]:
            why = f"inner sizes {a.shape[-1]} and {b.shape[-2]} differ"
        elif a.shape[:-2] != b.shape[:-2]:
            why = f"batch sizes {list(a.shape[:-2])} and {list(b.shape[:-2])} differ"
        elif a.dtype != b.dtype:
            why = "element types differ"
        if why:
            raise self.misfit(f"`matmul` cannot multiply {a} by {b}: {why}")

    def _result_dtype(self, dtype: str, acc: str) -> str:
        if self.want is not None and len(self.want) == 1:
            return self.want[0].dtype
        return dtype if is_float(dtype) else acc

    def _cast(self, node: int, dtype: str) -> int:
        from eqsat.ops.canonical import generic_node, identity

        t = self.builder.type(node)
        if t.dtype == dtype:
            return node
        loops = range(t.rank)
        made = Yield(cast(arg(0), dtype), dtype)
        return generic_node(self.builder, t.shape, loops, [(node, identity(t.rank))], [made])

    def _elementwise(self) -> int:
        """A scalar function on tensors of one shape and numbers."""
        from eqsat.ops.canonical import generic_node, identity
        from eqsat.ops.scalar import result_dtype

        self._refuse_keywords(())
        args = self._scalar_args()
        nodes = [a for a in args if isinstance(a, int)]
        types = [self.builder.type(n) for n in nodes]
        if not types:
            raise self.misfit(f"`{self.op}` needs at least one tensor")
        if len({t.shape for t in types}) > 1:
            shown = " and ".join(map(str, types))
            hint = "broadcast with `generic`, its maps say how"
            raise self.misfit(f"`{self.op}` wants operands of one shape, got {shown}", hint)
        body = self._body(args, types)
        dtype = result_dtype(body, [t.dtype for t in types])
        if dtype is None:
            raise self.misfit(f"`{self.op}` of numbers alone")
        shape = types[0].shape
        operands = [(n, identity(len(shape))) for n in nodes]
        return generic_node(self.builder, shape, range(len(shape)), operands, [Yield(body, dtype)])

    def _scalar_args(self) -> list[int | Expr | str]:
        """Nodes, numbers, and for `cast` the element type."""
        from eqsat.ops.scalar import FUNCTIONS

        want = {"relu": 1, "cast": 2}.get(self.op) or FUNCTIONS[self.op].arity
        given = self.node.args
        if len(given) != want:
            raise self.misfit(f"`{self.op}` takes {want} operand(s), got {len(given)}")
        if self.op == "cast":
            return [self.terms.operand(given[0]), bodies.dtype(self.tree, given[1])]
        return [self._scalar_arg(a) for a in given]

    def _scalar_arg(self, node: ast.expr) -> int | Expr:
        known = self.tree.text(node) in self.terms.names
        value = None if known else bodies.literal(self.tree, node)
        return self.terms.operand(node) if value is None else const(value)

    def _body(self, args: list[int | Expr | str], types: list[TensorType]) -> Expr:
        dtype = next((t.dtype for t in types if t.dtype != "bool"), types[0].dtype)
        if self.op == "cast":
            return cast(arg(0), str(args[1]))
        found, number = [], 0
        for a in args:
            found.append(_typed(a, dtype) if isinstance(a, Expr) else arg(number))
            number += not isinstance(a, Expr)
        if self.op == "relu":
            return Expr("max", (found[0], _typed(const(0), dtype)))
        return Expr(self.op, tuple(found))


def _typed(number: Expr, dtype: str) -> Expr:
    """A whole number beside floats is a float: equal bodies must be equal records."""
    plain = is_float(dtype) and type(number.value) is int
    return const(float(number.value)) if plain else number


def _accumulator(dtype: str) -> str:
    bits, _ = DTYPES[dtype]
    if is_float(dtype):
        return "f32" if bits < 32 else dtype
    return "i32" if bits < 32 else dtype


# ---- structured ops: how each reads its attribute ------------------------------------------------
def _generic(c: _Call, types: Types) -> Generic:
    sizes = c.get("loops", bodies.integers)
    maps = c.get("maps", bodies.maps)
    exprs = c.get("body", bodies.bodies)
    combine = c.get("combine", bodies.combines, ("",))
    combine = combine * len(exprs) if len(combine) == 1 else combine
    if len(combine) != len(exprs):
        raise c.misfit("`combine` and `body` differ in length")
    dtypes = _yield_dtypes(c, exprs, types)
    return Generic(
        sizes,
        _rank(c, sizes, maps, bool(combine[0])),
        maps,
        tuple(t.shape for t in types),
        tuple(Yield(*y) for y in zip(exprs, dtypes, combine, strict=True)),
        c.get("tile", bodies.integers, ()),
        tuple(t.dtype for t in types),
    )


def _rank(c: _Call, sizes: Shape, maps: tuple[Any, ...], reduces: bool) -> int:
    """The number of result dims: written, or the only one that makes sense (E306)."""
    if "rank" in c.keywords:
        return min(max(c.get("rank", bodies.integer), 0), len(sizes))
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
        raise refused(c.tree, c.node, message, "E306", hint)
    return found


def _yield_dtypes(c: _Call, exprs: tuple[Expr, ...], types: Types) -> list[str]:
    from eqsat.ops.scalar import result_dtype

    found = []
    for i, e in enumerate(exprs):
        if any(o >= len(types) for o in e.operands()):
            raise c.misfit("the body names an operand that is not there")
        dtype = result_dtype(e, [t.dtype for t in types])
        if dtype is None and c.want is not None and i < len(c.want):
            dtype = c.want[i].dtype
        if dtype is None:
            hint = "write it behind the term: `: f32[4]`"
            raise refused(c.tree, c.node, "the element type of a constant body", "E306", hint)
        found.append(dtype)
    return found


def _layout(c: _Call, source: Shape) -> Layout:
    pos, tiles = c.get("pos", bodies.integers), c.get("tiles", bodies.integers)
    outer = c.get("outer", bodies.integers, tuple(range(len(source))))
    pads = c.get("pad", bodies.pads, "-")
    pads = (pads,) * len(tiles) if isinstance(pads, str) else pads
    if len(pads) != len(tiles) or len(pos) != len(tiles):
        raise c.misfit("`pos`, `tiles` and a list of `pad` have one entry per tile")
    if any(not 0 <= p < len(source) for p in pos) or any(t < 1 for t in tiles):
        raise c.misfit(f"`pos` names dims of {list(source)}, and a tile is at least 1")
    marks = [
        "-" if source[d] % t == 0 else p for d, t, p in zip(pos, tiles, pads, strict=True)
    ]
    return Layout(source, pos, tiles, outer, tuple(marks))


def _pack(c: _Call, types: Types) -> Layout:
    return _layout(c, types[0].shape)


def _packed(c: _Call, types: Types) -> Layout:
    """The layout of a packed operand; without `shape`, every tile divides its dim."""
    if "shape" in c.keywords:
        return _layout(c, c.get("shape", bodies.integers))
    pos, tiles = c.get("pos", bodies.integers), c.get("tiles", bodies.integers)
    rank = types[0].rank - len(tiles)
    outer = c.get("outer", bodies.integers, tuple(range(max(rank, 0))))
    if rank < 0 or sorted(outer) != list(range(rank)) or len(pos) != len(tiles):
        raise c.misfit(f"{types[0]} cannot be packed like this")
    blocks = {d: types[0].shape[j] for j, d in enumerate(outer)}
    tile = dict(zip(pos, tiles, strict=True))
    return _layout(c, tuple(blocks[d] * tile.get(d, 1) for d in range(rank)))


def _pad(c: _Call, types: Types) -> Move:
    shape = types[0].shape
    low, high = (_per_dim(c, k, shape) for k in ("low", "high"))
    value = c.get("value", _literal_text)
    result = tuple(s + a + b for s, a, b in zip(shape, low, high, strict=True))
    return Move("pad", (shape,), (low, high, value), result)


def _literal_text(tree: Tree, node: ast.expr) -> str:
    bodies.number(tree, node)
    return tree.text(node).replace(" ", "")


def _per_dim(c: _Call, key: str, shape: Shape, default: Shape | None = None) -> Shape:
    found = c.get(key, bodies.integers, default)
    if len(found) != len(shape):
        raise c.misfit(f"`{key}` has one entry per dim of {list(shape)}")
    return found


def _slice(c: _Call, types: Types) -> Move:
    shape = types[0].shape
    start, limit = (_per_dim(c, k, shape) for k in ("start", "limit"))
    stride = _per_dim(c, "stride", shape, (1,) * len(shape))
    if any(s < 1 for s in stride):
        raise c.misfit("a stride is at least 1")
    result = tuple(cdiv(b - a, s) for a, b, s in zip(start, limit, stride, strict=True))
    return Move("slice", (shape,), (start, limit, stride), result)


def _axis(c: _Call, rank: int) -> int:
    axis = c.get("axis", bodies.integer)
    if not 0 <= axis < rank:
        raise c.misfit(f"`axis` is one of 0 … {rank - 1}")
    return axis


def _concat(c: _Call, types: Types) -> Move:
    shapes = tuple(t.shape for t in types)
    if not shapes or len({len(s) for s in shapes}) > 1 or len({t.dtype for t in types}) > 1:
        raise c.misfit("`concat` wants tensors of one rank and element type")
    axis = _axis(c, len(shapes[0]))
    whole = sum(s[axis] for s in shapes)
    return Move("concat", shapes, (axis,), (*shapes[0][:axis], whole, *shapes[0][axis + 1 :]))


def _gather(c: _Call, types: Types) -> Move:
    source, indices = (t.shape for t in types)
    axis = _axis(c, len(source))
    return Move("gather", (source, indices), (axis,), (*source[:axis], *indices, *source[axis + 1 :]))


def _encoding(c: _Call, types: Types) -> Encoding:
    role = c.get("role", bodies.string)
    if role not in ("lhs", "rhs", "result"):
        raise c.misfit(f'`role` is "lhs", "rhs" or "result", not "{role}"')
    contraction = c.get("contraction", bodies.string, "matmul")
    return Encoding(types[0].shape, role, contraction, c.get("dtypes", bodies.strings, ()))


def _fill(c: _Call, types: Types) -> Fill:
    found = c.only(c.want, "write it behind the term: `fill(value=0.0) : f32[4]`")
    value = c.get("value", bodies.number)
    return Fill(_typed(const(value), found.dtype).value, found)


def _opaque(c: _Call, types: Types) -> Opaque:
    if c.want is None:
        raise refused(c.tree, c.node, "`opaque` needs its types", "E306", "write them behind it")
    primitive, key = c.get("primitive", bodies.string), c.get("key", bodies.string)
    return Opaque(primitive, key, types, c.want)


_LAYOUT_KEYS = ("pos", "tiles", "outer", "pad", "shape")
_GENERIC_KEYS = ("loops", "maps", "body", "combine", "tile", "rank")
_ENCODING_KEYS = ("role", "contraction", "dtypes")
# op → number of operands (None: any), its keys, and how its attribute is read
_READERS: dict[str, tuple[int | None, tuple[str, ...], Callable[[_Call, Types], Attr]]] = {
    "generic": (None, _GENERIC_KEYS, _generic),
    "transpose": (
        1, ("perm",), lambda c, t: Transpose(t[0].shape, c.get("perm", bodies.integers)),
    ),
    "reshape": (1, ("shape",), lambda c, t: Reshape(t[0].shape, c.get("shape", bodies.integers))),
    "pack": (1, _LAYOUT_KEYS[:-1], _pack),
    "unpack": (1, _LAYOUT_KEYS, _packed),
    "retype": (1, _LAYOUT_KEYS, _packed),
    "relax": (1, _LAYOUT_KEYS, _packed),
    "pad": (1, ("low", "high", "value"), _pad),
    "slice": (1, ("start", "limit", "stride"), _slice),
    "concat": (None, ("axis",), _concat),
    "gather": (2, ("axis",), _gather),
    "set_encoding": (1, _ENCODING_KEYS, _encoding),
    "unset_encoding": (1, _ENCODING_KEYS, _encoding),
    "fill": (0, ("value",), _fill),
    "opaque": (None, ("primitive", "key"), _opaque),
    "result": (1, ("index",), lambda c, t: Result(c.get("index", bodies.integer))),
}  # fmt: skip
