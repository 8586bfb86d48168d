"""The one-line term language of rules: text → terms and attribute expressions, typed by kinds.

Bare names are variables, `name(` is an op or an attribute function, keywords are attributes. A left
side binds names; everything after it may only use them. All problems of a text are collected.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from eqsat.lang.attributes import Attributes, Scope
from eqsat.lang.expressions import Tree, parse
from eqsat.lang.opsugar import NAMED_OPS, BodyText, NamedOps, named_term
from eqsat.lang.problems import written_as_generic
from eqsat.lang.source import Placed
from eqsat.model.diag import Diagnostic, did_you_mean
from eqsat.model.rules import Apply, AttrExpr, Splat, Term, Value, Var
from eqsat.ops.attrs import RULE_OPS
from eqsat.ops.generics.namedops import MATMUL
from eqsat.ops.vocabulary import PLURAL

# what iterating over a kind gives
# which operands of a left side are splats: around one other, or around two
AROUND = ([True, False, True], [True, False, True, False, True])
ITEMS = {many: one for one, many in PLURAL.items() if one != "tensor"} | {"ints": "int"}


@dataclass
class TermReader:
    """Reads the texts of one rule; bindings go to `scope`, what is wrong to `problems`."""

    scope: Scope = field(default_factory=Scope)
    problems: list[Diagnostic] = field(default_factory=list)
    named: NamedOps = field(default_factory=NamedOps)

    def left(self, placed: Placed) -> Apply | None:
        """A pattern: it binds variables. None if it cannot be read."""
        pattern = self._left(placed)
        # names that a refused side would have bound must not be reported as unbound
        self.scope.open |= pattern is None
        return pattern

    def _left(self, placed: Placed) -> Apply | None:
        tree = self._parse(placed)
        if tree is None:
            return None
        reader = _Terms(tree, self, binding=True)
        if isinstance(tree.body, ast.NamedExpr):
            return reader.named(tree.body)
        if not isinstance(tree.body, ast.Call):
            reader.report("E010", tree.body, "a left side is an op: write `op(x, …)`")
            return None
        return reader.apply(tree.body)

    def right(self, placed: Placed) -> Term | None:
        """A term over bound variables. None if it cannot be read."""
        tree = self._parse(placed)
        if tree is None:
            return None
        return _Terms(tree, self, binding=False).term(tree.body)

    def condition(self, placed: Placed) -> AttrExpr | None:
        """One condition of `where:`."""
        tree = self._parse(placed)
        return None if tree is None else Attributes(tree, self.scope, self.problems).condition()

    def let(self, placed: Placed) -> tuple[str, AttrExpr] | None:
        """`c = pack_loops(g, tile)`; binds `c`."""
        binding = self._binding(placed, "=", "let", "c = pack_loops(g, tile)")
        if binding is None:
            return None
        name, place, attributes = binding
        expr, kind = attributes.infer(attributes.tree.body)
        return self._bind(name, place, expr, kind)

    def foreach(self, placed: Placed) -> tuple[str, AttrExpr] | None:
        """`tile in target.tiles(g)`; binds `tile`."""
        binding = self._binding(placed, " in ", "foreach", "tile in target.tiles(g)")
        if binding is None:
            return None
        name, place, attributes = binding
        expr, kind = attributes.infer(attributes.tree.body)
        rows = kind.startswith("rows:")
        if kind and kind not in ITEMS and not rows:
            message = f"`foreach` runs over a list, not over {kind}"
            span = attributes.tree.span(attributes.tree.body)
            self.problems.append(Diagnostic("E019", message, span))
            kind = ""
        item = kind.replace("rows:", "row:") if rows else ITEMS.get(kind, "")
        return self._bind(name, place, expr, item)

    def _parse(self, placed: Placed) -> Tree | None:
        tree = parse(placed, "E010")
        if isinstance(tree, Tree):
            return tree
        self.problems.append(tree)
        return None

    def _binding(
        self, placed: Placed, word: str, key: str, sample: str
    ) -> tuple[str, Placed, Attributes] | None:
        parts = read_binding(placed, word)
        if parts is None:
            message = f"`{key}` cannot be read"
            self.problems.append(
                Diagnostic("E019", message, placed.whole(), help=f"write `{sample}`")
            )
            self.scope.open = True
            return None
        name, value = parts
        tree = self._parse(value)
        if tree is None:
            self.scope.poison(name.text)
            return None
        return name.text, name, Attributes(tree, self.scope, self.problems)

    def _bind(
        self, name: str, place: Placed, expr: AttrExpr | None, kind: str
    ) -> tuple[str, AttrExpr] | None:
        if name in self.scope:
            message = f"`{name}` is bound already"
            self.problems.append(Diagnostic("E019", message, place.whole(), help="another name"))
            return None
        self.scope.bind(name, kind, place.whole())
        return None if expr is None else (name, expr)


def read_binding(placed: Placed, word: str) -> tuple[Placed, Placed] | None:
    """`name WORD expression` → the two pieces, or None."""
    at = placed.text.find(word)
    name = placed.text[: max(at, 0)].strip()
    if at < 0 or not name.isidentifier():
        return None
    start, rest = placed.text.index(name), at + len(word)
    if placed.text[rest : rest + 1] == "=":
        return None
    return placed.part(start, start + len(name)), placed.part(rest, len(placed.text))


class _Terms:
    """Terms of one text: ops, operands, splats."""

    def __init__(self, tree: Tree, reader: TermReader, binding: bool):
        self.tree = tree
        self.scope = reader.scope
        self.problems = reader.problems
        self.binding = binding
        self.named_ops = reader.named
        self.attributes = Attributes(tree, reader.scope, reader.problems)

    def report(self, code: str, node: ast.expr | ast.keyword, message: str, help: str = "") -> None:
        self.problems.append(Diagnostic(code, message, self.tree.span(node), help=help))

    def term(self, node: ast.expr) -> Term | None:
        """A tensor: a variable or an op."""
        match node:
            case ast.Name():
                return self._variable(node, "tensor")
            case ast.Call():
                return self.apply(node)
            case ast.NamedExpr():
                return self.named(node)
            case ast.Starred():
                message = "a splat stands among the operands of `generic` and `concat` only"
                self.report("E022", node, message)
                return None
        self.report(
            "E010", node, "a tensor is wanted here", "write a name, or an op: `op(x, attr=value)`"
        )
        return None

    def _variable(self, node: ast.Name, kind: str) -> Var | None:
        span = self.tree.span(node)
        if self.binding and node.id not in self.scope:
            self.scope.bind(node.id, kind, span)
            return Var(node.id, span)
        problem = self.scope.use(node.id, (kind,), span)
        if problem is None:
            return Var(node.id, span)
        self.problems.append(problem)
        return None

    def named(self, node: ast.NamedExpr) -> Apply | None:
        """An op of a left side with a name."""
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        if not self.binding:
            self.report("E010", node, "only an op of a left side can be named")
            return None
        if not isinstance(node.value, ast.Call):
            self.report("E010", node, "only an op can be named: `t := op(x, …)`")
            return None
        term = self.apply(node.value)
        if name in self.scope:
            self.report("E021", node.target, f"`{name}` is bound already")
            return None
        self.scope.bind(name, "tensor", self.tree.span(node.target))
        if term is None:
            return None
        return Apply(term.op, term.operands, term.attrs, term.span, name)

    def apply(self, node: ast.Call, over: str = "") -> Apply | None:
        """An op with its operands and attributes; `over` is the splat a zip runs over."""
        op = self._op(node)
        if op in NAMED_OPS and op not in RULE_OPS:
            return self._named_op(op, node, over)
        if op not in RULE_OPS:
            hint = written_as_generic(op) or did_you_mean(op, RULE_OPS, "eqsat list ops")
            self.report("E011", node.func, f"no op named `{op}`", hint)
            return None
        operands = self._operands(op, node, over)
        attrs = self._attrs(op, node, zipped=bool(over))
        if operands is None or attrs is None:
            return None
        return Apply(op, operands, attrs, self.tree.span(node))

    def _named_op(self, op: str, node: ast.Call, over: str) -> Apply | None:
        """`matmul(a, b)`, `relu(x)` … as the generic that it is."""
        if over or node.keywords:
            what = "stands for no splat" if over else "has no attributes"
            self.report("E013", node, f"`{op}` {what} in a rule", "write `generic(…, sig=g)`")
            return None
        body = BodyText(self.tree.text)
        try:
            name = MATMUL if op == MATMUL else body.of(node)
        except ValueError as error:
            self.report("E012", node, str(error))
            return None
        given = node.args if op == MATMUL else body.operands
        terms = [self.term(a) for a in given]
        operands = [t for t in terms if t is not None]
        if len(operands) < len(terms):
            return None
        if (len(operands) != 2 and op == MATMUL) or not operands:
            self.report("E012", node, f"`{op}` takes {2 if op == MATMUL else 1} operand(s)")
            return None
        span, anchor = self.tree.span(node), self.named_ops.anchor
        if self.binding:
            pattern = self.named_ops.matched(name, operands, span)
            self.scope.bind(self.named_ops.ops[-1][1].name, "sig", span)
            return pattern
        if anchor is None:
            hint = "name an op on the left, too, or write `generic(…, sig=…)`"
            message = f"the element type of `{op}` is not known: the left side names no such op"
            self.report("E014", node, message, hint)
            return None
        term = named_term(name, operands, anchor, span)
        if term is None:
            hint = "it reads variables, transposes and named ops; or write `generic(…, sig=…)`"
            self.report("E014", node, f"the shapes that `{op}` reads are not known", hint)
        return term

    # ---- operands ---------------------------------------------------------------------------
    def _operands(self, op: str, node: ast.Call, over: str) -> tuple[Term, ...] | None:
        want = RULE_OPS[op].operands
        count = len(node.args)
        if want is not None and count != want:
            message = f"`{op}` takes {want} operand{'s' * (want != 1)}, got {count}"
            self.report("E012", node, message)
            return None
        if want is None and not count:
            self.report("E012", node, f"`{op}` takes at least one operand, got none")
            return None
        if over:
            return self._zipped(node.args)
        if want is not None:
            terms: list[Term | None] = [self.term(a) for a in node.args]
        else:
            terms = [self._operand(a) for a in node.args]
            self._check_splats(node)
        return None if None in terms else tuple(t for t in terms if t is not None)

    def _may_zip(self, op: str) -> bool:
        """Whether `*op(xs, …)` may stand here: of more operands than one on a right side only."""
        if op not in RULE_OPS:
            return True
        count = RULE_OPS[op].operands
        return count == 1 or (count is not None and not self.binding)

    def _op(self, node: ast.Call) -> str:
        return node.func.id if isinstance(node.func, ast.Name) else self.tree.text(node.func)

    def _zipped(self, nodes: Sequence[ast.expr]) -> tuple[Term, ...] | None:
        """The splat variable that a zip runs over, and what every op of it reads besides."""
        first, *others = nodes
        if not isinstance(first, ast.Name):
            message = "a splat of an op runs over a splat variable: `*pack(xs, …)`"
            self.report("E022", first, message)
            return None
        for other in others:
            if not isinstance(other, ast.Name):
                self.report(
                    "E022", other, "what all of them read is a variable: `*gather(xs, i, …)`"
                )
                return None
        variables = [self._variable(first, "tensors")]
        variables += [self._variable(o, "tensor") for o in others if isinstance(o, ast.Name)]
        return None if None in variables else tuple(v for v in variables if v is not None)

    def _operand(self, node: ast.expr) -> Term | None:
        if not isinstance(node, ast.Starred):
            return self.term(node)
        span = self.tree.span(node)
        if isinstance(node.value, ast.Name):
            inner: Var | Apply | None = self._variable(node.value, "tensors")
        elif isinstance(node.value, ast.Call) and self._may_zip(self._op(node.value)):
            inner = self.apply(node.value, over="*")
        else:
            message = "a splat is a name or an op with one operand: `*xs`, `*pack(xs, …)`"
            self.report("E022", node, message)
            return None
        return None if inner is None else Splat(inner, span)

    def _check_splats(self, node: ast.Call) -> None:
        """A left side has one splat, or splats around one operand or around two."""
        splats = [isinstance(a, ast.Starred) for a in node.args]
        if not self.binding or sum(splats) < 2 or splats in AROUND:
            self._check_repeated(node)
            return
        wrong = next(a for a in node.args if isinstance(a, ast.Starred))
        self.report(
            "E022", wrong, "a left side reads one splat, or splats around one operand or two",
            "write `generic(*a, x, *b, sig=g)`, or `generic(*a, x, *b, y, *c, sig=g)`",
        )  # fmt: skip

    def _check_repeated(self, node: ast.Call) -> None:
        stars = [a for a in node.args if isinstance(a, ast.Starred)]
        names = [self.tree.text(a) for a in stars]
        if self.binding and len(set(names)) < len(names):
            self.report("E022", stars[-1], f"`{names[-1]}` appears twice on the left side")

    # ---- attributes --------------------------------------------------------------------------
    def _attrs(
        self, op: str, node: ast.Call, zipped: bool
    ) -> tuple[tuple[str, AttrExpr], ...] | None:
        keys = RULE_OPS[op].keys
        before = len(self.problems)
        attrs: list[tuple[str, AttrExpr]] = []
        for k in node.keywords:
            kind = keys.get(k.arg or "")
            if kind is None:
                message = f"`{op}` has no attribute `{k.arg}`"
                span = self.tree.key(k)
                self.problems.append(
                    Diagnostic("E013", message, span, help=did_you_mean(str(k.arg), keys))
                )
                continue
            expr = self._value(k.value, self._zipped_kind(op, str(k.arg), kind) if zipped else kind)
            if expr is not None:
                attrs.append((str(k.arg), expr))
        self._check_keys(op, node)
        if len(self.problems) > before:
            return None
        return tuple(self._pads(attrs) if RULE_OPS[op].whole else attrs)

    def _zipped_kind(self, op: str, key: str, kind: str) -> str:
        """In `*op(xs, key=…)` a whole key is a list; a field is one value for all, or a list."""
        if key == RULE_OPS[op].whole:
            return PLURAL.get(kind, kind)
        return kind if self.binding or kind not in PLURAL else f"{kind}|{PLURAL[kind]}"

    def _check_keys(self, op: str, node: ast.Call) -> None:
        whole, fields = RULE_OPS[op].whole, RULE_OPS[op].attributes
        given = [k.arg for k in node.keywords]
        if whole and whole in given:
            for k in node.keywords:
                if k.arg in fields:
                    message = f"`{op}` is given both as `{whole}` and by its field `{k.arg}`"
                    self.problems.append(Diagnostic("E013", message, self.tree.key(k)))
            return
        missing = [f for f in fields if f not in RULE_OPS[op].optional and f not in given]
        if missing and (not whole or set(given) & set(fields)):
            self._missing(op, node, missing[0])
        elif whole and not set(given) & set(fields):
            self._missing(op, node, whole)

    def _missing(self, op: str, node: ast.Call, key: str) -> None:
        hint = f"write `{op}(…, {key}={key[0]})` to match any value" if self.binding else ""
        self.report("E014", node, f"`{op}` needs attribute `{key}`", hint)

    def _value(self, node: ast.expr, kind: str) -> AttrExpr | None:
        if not self.binding or self.attributes.is_literal(node, kind):
            return self.attributes.of_kind(node, kind)
        if not isinstance(node, ast.Name):
            what = self.tree.text(node)
            if isinstance(node, ast.Call):
                what = self.tree.text(node.func) + "(…)"
            self.report(
                "E015", node, f"`{what}` computes a value; a left side can only match",
                "bind a plain name and test it under `where:`",
            )  # fmt: skip
            return None
        if node.id not in self.scope:
            self.scope.bind(node.id, kind, self.tree.span(node))
        return self.attributes.of_kind(node, kind)

    def _pads(self, attrs: list[tuple[str, AttrExpr]]) -> list[tuple[str, AttrExpr]]:
        """One padding for all tiles (`pad=0`) is spread over tiles that are written out."""
        given = dict(attrs)
        pad, tiles = given.get("pad"), given.get("tiles")
        if not isinstance(pad, Value) or not isinstance(pad.value, str):
            return attrs
        if isinstance(tiles, Value):
            spread = Value([pad.value] * len(tiles.value), pad.span)
            return [(k, spread if k == "pad" else v) for k, v in attrs]
        message = "one padding for all tiles needs `tiles` written out, as in `[8, 8]`"
        hint = "match `layout=l` instead, which holds positions, tiles and paddings"
        self.problems.append(Diagnostic("E017", message, pad.span, help=hint))
        return attrs
