"""Terms of `.eqs` text → nodes of a program: every op and its attribute as printed, and sugar."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from eqsat.lang import expressions
from eqsat.lang.expressions import Poisoned, Refused, Tree, refused
from eqsat.model.affine import dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.control import Control
from eqsat.model.diag import Diagnostic, did_you_mean
from eqsat.model.expr import Expr, arg, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import ROLES, ROWS, Encoding, Layout
from eqsat.model.leaves import Fill, Leaf, Opaque
from eqsat.model.program import Builder, Program
from eqsat.model.tensor import DEFAULT, DTYPES, NONE, TensorType, is_float
from eqsat.ops.generics.canonical import generic_node, identity
from eqsat.ops.meaning.scalar import FUNCTIONS, result_dtype
from eqsat.ops.op import Op
from eqsat.ops.registry import all_ops, op_record

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
    generic = Generic(
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
    if "precision" in c.keywords and not generic.has_precision:
        hint = "leave it out: this is no sum of floating products of two operands"
        raise refused(c.tree, c.node, "only a contraction has a `precision`", "E312", hint)
    return generic


def _rank(c: Call, sizes: Shape, maps: tuple[Any, ...], reduces: bool) -> int:
    """The number of result dims: written, or the only one that makes sense (E310)."""
    if "rank" in c.keywords:
        return min(max(c.get("rank", expressions.integer), 0), len(sizes))
    if not reduces:
        return len(sizes)
    if c.want:
        return min(len(c.want[0].shape), len(sizes))
    # a reduction is read by every operand, so only a trailing run of such loops can be reduced
    rank = len(sizes)
    while rank and all(any(d == rank - 1 for e in m for d, _ in e.terms) for m in maps):
        rank -= 1
    if len(sizes) - rank != 1:
        hint = "write `rank=N`, the number of result dims, or the type behind the term"
        message = "which loops of `generic` are reduced is not clear"
        raise refused(c.tree, c.node, message, "E310", hint)
    return rank


def _yield_dtypes(c: Call, exprs: tuple[Expr, ...], types: Types) -> list[str]:
    dtypes = []
    for i, e in enumerate(exprs):
        if any(o >= len(types) for o in e.operands()):
            raise c.misfit("the body names an operand that is not there")
        dtype = result_dtype(e, [t.dtype for t in types])
        if dtype is None and c.want is not None and i < len(c.want):
            dtype = c.want[i].dtype
        if dtype is None:
            hint = "write it behind the term: `: f32[4]`"
            raise refused(c.tree, c.node, "the element type of a constant body", "E310", hint)
        dtypes.append(dtype)
    return dtypes


def _layout(c: Call, source: Shape) -> Layout:
    pos, tiles = c.get("pos", expressions.integers), c.get("tiles", expressions.integers)
    outer = c.get("outer", expressions.integers, tuple(range(len(source))))
    pads = c.get("pad", expressions.pads, "-")
    pads = (pads,) * len(tiles) if isinstance(pads, str) else pads
    if len(pads) != len(tiles) or len(pos) != len(tiles):
        raise c.misfit("`pos`, `tiles` and a list of `pad` have one entry per tile")
    if any(t < 1 for t in tiles):
        raise c.misfit("a tile is at least 1")
    if wrong := [p for p in pos if not 0 <= p < len(source)]:
        has = f"dims 0 to {len(source) - 1}" if source else "no dims"
        raise c.misfit(f"`pos` names dim {wrong[0]}, and {list(source)} has {has}")
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
    if rank < len(tiles):
        tile_count = f"{len(tiles)} tile{'s' * (len(tiles) != 1)}"
        least = f"`{c.op}` with {tile_count} needs an operand of rank {2 * len(tiles)} or more"
        raise c.misfit(f"{least}: a dim of blocks and one of lanes for each tile, not {types[0]}")
    outer = c.get("outer", expressions.integers, tuple(range(rank)))
    if sorted(outer) != list(range(rank)) or len(pos) != len(tiles):
        raise c.misfit(f"{types[0]} cannot be packed like this")
    blocks = {d: types[0].shape[j] for j, d in enumerate(outer)}
    tile = dict(zip(pos, tiles, strict=True))
    return _layout(c, tuple(blocks[d] * tile.get(d, 1) for d in range(rank)))


def _literal_text(tree: Tree, node: ast.expr) -> str:
    expressions.number(tree, node)
    return tree.text(node).replace(" ", "")


def _encoding(c: Call, types: Types) -> Encoding:
    role = c.get("role", expressions.string)
    if role == ROWS:
        return Encoding(types[0].shape, role, "", (types[0].dtype,))
    if role not in ROLES:
        raise c.misfit(f'`role` is "lhs", "rhs", "result" or "rows", not "{role}"')
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
        type_ = TensorType.parse(c.get("type", expressions.string), c.tree.symbols)
    else:
        type_ = c.only(c.want, "write it behind the term: `fill(value=0.0) : f32[4]`")
    value = c.get("value", expressions.number)
    return Fill(typed(const(value), type_.dtype).value, type_)


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
        body = c.bodies[name]
        if body is None:
            raise Poisoned
        programs.append(body)
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


class TermBuilder:
    """Adds the ops of one term to a builder. `names` maps a name to its node, None if refused."""

    def __init__(
        self,
        tree: Tree,
        builder: Builder,
        names: dict[str, int | None],
        bodies: Mapping[str, Program | None] | None = None,
    ):
        self.tree = tree
        self.builder = builder
        self.names = names
        self.bodies = bodies or {}

    def root(self, node: ast.expr, want: Types | None, keep: bool) -> int:
        """The node of the whole term; `want` are its types if they are written.

        keep: give it a node of its own even if an equal one exists, as a printed program says.
        Refused (E30x) or Poisoned if there is none.
        """
        if self._node_named(node) is not None or not isinstance(node, ast.Call):
            return self.operand(node)
        return Call(self, node, want, keep).build()

    def operand(self, node: ast.expr) -> int:
        """A name or a nested term."""
        node_number = self._node_named(node)
        if node_number is not None:
            return node_number
        if isinstance(node, ast.Call):
            return Call(self, node, None, False).build()
        text = self.tree.text(node)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            hint = did_you_mean(text, self.names) if self.names else ""
            raise refused(self.tree, node, f"no value named `{text}`", "E303", hint)
        raise refused(
            self.tree, node, "a tensor is wanted here", help="write a name or a term `op(x, …)`"
        )

    def _node_named(self, node: ast.expr) -> int | None:
        text = self.tree.text(node)
        if text not in self.names:
            return None
        number = self.names[text]
        if number is None:
            raise Poisoned
        return number


class Call:
    """One `op(operands…, key=value…)`."""

    def __init__(self, terms: TermBuilder, node: ast.Call, want: Types | None, keep: bool):
        self.terms = terms
        self.tree = terms.tree
        self.builder = terms.builder
        self.node = node
        self.op = terms.tree.text(node.func)
        self.want = want
        self.keep = keep
        self.bodies = terms.bodies
        self.keywords = {k.arg or "**": k for k in node.keywords}

    def build(self) -> int:
        ops = {name: r for name, r in all_ops().items() if r.attr is not Leaf}
        if self.op in ops:
            return self._structured(ops[self.op])
        if self.op == "matmul":
            return self._shaped(self._matmul)
        if self.op in FUNCTIONS or self.op in ("relu", "cast"):
            return self._shaped(self._elementwise)
        op_names = [*ops, *FUNCTIONS, "matmul", "relu", "cast"]
        message, hint = (
            f"no op named `{self.op}`",
            did_you_mean(self.op, op_names, "eqsat list ops"),
        )
        raise refused(self.tree, self.node.func, message, "E311", hint)

    def _structured(self, r: Op) -> int:
        keys, read = READERS.get(r.name, (tuple(r.attributes), by_record))
        self._refuse_keywords(keys)
        if r.operands not in (None, len(self.node.args)):
            message = f"`{self.op}` takes {r.operands} operand(s), got {len(self.node.args)}"
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
                raise Refused(Diagnostic("E312", message, self.tree.key(k), help=hint))

    # ---- attributes -------------------------------------------------------------------------
    def get(self, key: str, read: Callable[[Tree, ast.expr], Any], default: Any = None) -> Any:
        """The value of a keyword, or the default; E312 if there is neither."""
        if key in self.keywords:
            return read(self.tree, self.keywords[key].value)
        if default is None:
            raise refused(self.tree, self.node, f"`{self.op}` needs attribute `{key}`", "E312")
        return default

    def only(self, types: Types | None, why: str) -> TensorType:
        """The type written behind the term; E310 if there is none."""
        if types is None or len(types) != 1:
            raise refused(self.tree, self.node, f"`{self.op}` needs its type", "E310", why)
        return types[0]

    # ---- sugar ------------------------------------------------------------------------------
    def _matmul(self) -> int:
        """`matmul(a, b)`: leading dims are batch dims; small types accumulate in f32 or i32."""
        self._refuse_keywords(("precision",))
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
        precision = self._precision(acc)
        factors = [x if acc == ta.dtype else cast(x, acc) for x in (arg(0), arg(1))]
        product = Yield(Expr("mul", tuple(factors)), acc, "add")
        contraction = generic_node(
            self.builder, sizes, (*batch, m, n), (left, right), (product,), precision=precision
        )
        return self._cast(contraction, self._result_dtype(ta.dtype, acc))

    def _precision(self, accumulator: str) -> str:
        if "precision" in self.keywords and not is_float(accumulator):
            hint = "leave it out: whole numbers are multiplied exactly"
            message = "only floating products have a `precision`"
            raise refused(self.tree, self.node, message, "E312", hint)
        return self.get("precision", expressions.precision, DEFAULT)

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
        t = self.builder.type(node)
        if t.dtype == dtype:
            return node
        loops = range(t.rank)
        converted = Yield(cast(arg(0), dtype), dtype)
        reads = [(node, identity(t.rank))]
        return generic_node(self.builder, t.shape, loops, reads, [converted], precision=NONE)

    def _elementwise(self) -> int:
        """A scalar function on tensors of one shape and numbers."""
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
        yields = [Yield(body, dtype)]
        return generic_node(
            self.builder, shape, range(len(shape)), operands, yields, precision=NONE
        )

    def _scalar_args(self) -> list[int | Expr | str]:
        """Nodes, numbers, and for `cast` the element type."""
        want = {"relu": 1, "cast": 2}.get(self.op) or FUNCTIONS[self.op].arity
        given = self.node.args
        if len(given) != want:
            raise self.misfit(f"`{self.op}` takes {want} operand(s), got {len(given)}")
        if self.op == "cast":
            return [self.terms.operand(given[0]), expressions.dtype(self.tree, given[1])]
        return [self._scalar_arg(a) for a in given]

    def _scalar_arg(self, node: ast.expr) -> int | Expr:
        is_name = self.tree.text(node) in self.terms.names
        value = None if is_name else expressions.scalar_literal(self.tree, node)
        return self.terms.operand(node) if value is None else const(value)

    def _body(self, args: list[int | Expr | str], types: list[TensorType]) -> Expr:
        dtype = next((t.dtype for t in types if t.dtype != "bool"), types[0].dtype)
        if self.op == "cast":
            return cast(arg(0), str(args[1]))
        scalars, number = [], 0
        for a in args:
            scalars.append(typed(a, dtype) if isinstance(a, Expr) else arg(number))
            number += not isinstance(a, Expr)
        if self.op == "relu":
            return Expr("max", (scalars[0], typed(const(0), dtype)))
        return Expr(self.op, tuple(scalars))


def _accumulator(dtype: str) -> str:
    bits, _ = DTYPES[dtype]
    if is_float(dtype):
        return "f32" if bits < 32 else dtype
    return "i32" if bits < 32 else dtype
