"""One left side in the making: attributes and types that fit together, op by op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from eqsat.hunt.generate import propose, random_generic, random_named
from eqsat.hunt.nests import OMITTED, Misfit, Scale, Surroundings, Wish, can_hold
from eqsat.hunt.signatures import fits, related_generic
from eqsat.model.attr import Attr
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Custom
from eqsat.model.rules import Apply, AttrExpr, Name, Splat, Term, Value, Var
from eqsat.model.tensor import DTYPES, KIND_NAMES, TensorType
from eqsat.ops.attrs import RULE_OPS
from eqsat.saturate.rows import plain, splat_name

Types = tuple[TensorType, ...]
Part = tuple[int, int]  # an op of a left side (the identity of its term), operand of a splat


@dataclass
class _Place:
    """An operand position of an op: its term, or one operand of a splat."""

    term: Term
    name: str = ""  # splat variable
    index: int = 0
    types: Types | None = None  # once it is elaborated
    attrs: list[Attr] = field(default_factory=list)


class Draft:
    """A left side in the making."""

    def __init__(
        self,
        rng: Random,
        scale: Scale,
        arity: dict[str, int],
        like: Mapping[Part, Attr],
        named: Mapping[str, str],
    ):
        """named: signatures that are of one op, and its name as `is_op` has it."""
        self.rng, self.theme, self.arity, self.like = rng, scale, arity, like
        self.named = named
        self.scale = scale  # at the op at hand
        self.parts: dict[Part, Attr] = {}
        self.tensors: dict[str, Types] = {}
        self.splats: dict[str, dict[int, TensorType]] = {}
        self.inner: set[str] = set()  # names of ops, which are no variables
        self.values: dict[str, Any] = {}
        self.near: list[Attr] = []

    def side(self, term: Apply) -> list[Attr]:
        """The attributes of a whole pattern in pre-order; what it binds is kept."""
        may_have_two = term.op == "generic" and not term.name  # a name is that of one tensor
        results = 2 if may_have_two and self.rng.random() < 0.08 else 1
        _, attrs = self._apply(term, None, results=results)
        for name, types in self.splats.items():
            self.tensors[name] = tuple(types[i] for i in range(len(types)))
        for name, n in self.arity.items():
            if not n:
                self.tensors[name] = ()
        return attrs

    # ---- terms ------------------------------------------------------------------------------
    def _term(self, term: Term, want: TensorType | None) -> tuple[Types, list[Attr]]:
        if isinstance(term, Var):
            return (self._variable(term.name, want),), []
        assert isinstance(term, Apply)
        return self._apply(term, want)

    def _variable(self, name: str, want: TensorType | None) -> TensorType:
        if name in self.tensors:
            (bound,) = self.tensors[name]
            if want is not None and want != bound:
                raise Misfit
            return bound
        type_ = want or TensorType(self.scale.element(self.rng), self.scale.shape(self.rng))
        self.tensors[name] = (type_,)
        return type_

    def _place(self, p: _Place, want: TensorType | None) -> None:
        """Elaborate one operand position."""
        if isinstance(p.term, Splat) and isinstance(p.term.inner, Var):
            types = self.splats.setdefault(p.name, {})
            if want is None or types.get(p.index, want) != want:
                raise Misfit
            types[p.index] = want
            p.types = (want,)
        elif isinstance(p.term, Splat):
            assert isinstance(p.term.inner, Apply)
            p.types, p.attrs = self._one_of_splat(p.term.inner, p, want)
        else:
            p.types, p.attrs = self._term(p.term, want)

    def _one_of_splat(
        self, op: Apply, p: _Place, want: TensorType | None
    ) -> tuple[Types, list[Attr]]:
        """One operand of `*transpose(xs, perm=p)`: a field key is shared, a whole key collected."""
        whole = RULE_OPS[op.op].whole
        shared = tuple((k, v) for k, v in op.attrs if k != whole)
        types = self.splats.setdefault(p.name, {})
        part = (id(op), p.index)
        (attr, inner) = self._attribute(op.op, shared, (types.get(p.index),), want, part)
        type_ = types.setdefault(p.index, inner[0])
        if type_ != inner[0]:
            raise Misfit
        for key, pattern in op.attrs:
            if key == whole and isinstance(pattern, Name):
                self.values[pattern.name] = (*self.values.get(pattern.name, ()), attr)
        self._check_padding(attr, inner[0].dtype)
        return attr.infer(op.op, inner), [attr]

    # ---- ops --------------------------------------------------------------------------------
    def _apply(
        self, node: Apply, want: TensorType | None, index: int = 0, results: int = 1
    ) -> tuple[Types, list[Attr]]:
        if node.op == "result":
            types, attrs = self._result(node, want)
        else:
            types, attrs = self._node(node, want, index, results)
        if node.name:
            self._name(node.name, types)
        return types, attrs

    def _name(self, name: str, types: Types) -> None:
        if self.tensors.setdefault(name, types) != types:
            raise Misfit
        self.inner.add(name)

    def _result(self, node: Apply, want: TensorType | None) -> tuple[Types, list[Attr]]:
        (inner,) = node.operands
        if not isinstance(inner, Apply) or inner.op != "generic":
            raise Misfit  # only generics have several results
        results = self.rng.choice((2, 2, 3))
        pattern = dict(node.attrs).get("index")
        index = self._value_of(pattern)
        at = index if index is not None else self.rng.randrange(results)
        types, attrs = self._apply(inner, want, at, max(results, at + 1))
        self._unify(pattern, at)
        return (types[at],), [Result(at), *attrs]

    def _node(
        self, node: Apply, want: TensorType | None, index: int, results: int
    ) -> tuple[Types, list[Attr]]:
        places = self._places(node)
        for p in places:
            if self._is_bound(p):
                self._place(p, self._bound_type(p))
        operands = tuple(None if p.types is None else p.types[0] for p in places)
        part = (id(node), 0)
        self.scale = self._scale_at(node)
        attr, inner = self._attribute(node.op, node.attrs, operands, want, part, index, results)
        for p, t in zip(places, inner, strict=True):
            if p.types is None:
                self._place(p, t)
            if p.types != (t,):
                raise Misfit
        types = attr.infer(node.op, inner)
        if want is not None and types[index] != want:
            raise Misfit
        self._check_padding(attr, types[0].dtype)
        return types, [attr, *(a for p in places for a in p.attrs)]

    def _scale_at(self, node: Apply) -> Scale:
        """Contractions below and elementwise ops above, or the other way round."""
        if self.theme.kind not in ("epilogue", "prologue"):
            return self.theme
        is_deepest = not any(_has_generic(o) for o in node.operands)
        is_contraction = is_deepest == (self.theme.kind == "epilogue")
        return replace(self.theme, kind="contraction" if is_contraction else "elementwise")

    def _places(self, node: Apply) -> list[_Place]:
        places: list[_Place] = []
        for o in node.operands:
            if isinstance(o, Splat):
                name = splat_name(o)
                places += [_Place(o, name, i) for i in range(self.arity[name])]
            else:
                places.append(_Place(o))
        return places

    def _is_bound(self, p: _Place) -> bool:
        """Whether a variable below is bound: then this operand is built before its reader."""
        if isinstance(p.term, Splat):
            return p.index in self.splats.get(p.name, {})
        return any(n in self.tensors for n in tensor_names(p.term))

    def _bound_type(self, p: _Place) -> TensorType | None:
        if isinstance(p.term, Splat) and isinstance(p.term.inner, Var):
            return self.splats[p.name][p.index]
        return None

    # ---- attributes -------------------------------------------------------------------------
    def _attribute(
        self,
        op: str,
        patterns: tuple[tuple[str, AttrExpr], ...],
        operands: tuple[TensorType | None, ...],
        want: TensorType | None,
        part: Part,
        index: int = 0,
        results: int = 1,
    ) -> tuple[Attr, Types]:
        """An attribute that fits, and the types of all operands with it."""
        given = dict(patterns)
        whole = RULE_OPS[op].whole
        fixed = {k: v for k, p in patterns if (v := self._value_of(p)) is not None}
        attr = fixed.get(whole) if whole in fixed else None
        element = self.scale.element(self.rng)
        sig = given.get("sig")
        if attr is None and isinstance(sig, Name) and sig.name in self.named:
            attr = random_named(self.named[sig.name], self.rng, self.scale, operands, want)
        if attr is None:
            attr = self._reused(op, part, operands, want, (index, results))
        if attr is None:
            fixed = {**_defaults(op, given), **fixed}
            around = Surroundings(self.rng, self.scale, operands, want, element, fixed, self.near)
            is_several = op == "generic" and results > 1
            attr = random_generic(around, index, results) if is_several else propose(op, around)
        self.near.append(attr)
        self.parts[part] = attr
        for key, pattern in patterns:
            self._unify(pattern, attr if key == whole else attr.field(key))
        self._check_defaults(attr, given)
        return attr, self._operand_types(op, attr, operands, want, element)

    def _reused(
        self,
        op: str,
        part: Part,
        operands: tuple[TensorType | None, ...],
        want: TensorType | None,
        result: tuple[int, int],
    ) -> Attr | None:
        """The attribute at this place in the instance this one is like, or a relative of it."""
        earlier = self.like.get(part)
        if earlier is None or self.rng.random() < 0.2:
            return None
        if isinstance(earlier, Generic):
            return self._reused_generic(earlier, operands, want, result)
        shapes = earlier.operand_shapes(op)
        if shapes is None or len(shapes) != len(operands) or self.rng.random() < 0.4:
            return None
        agree = want is None or earlier.value_shape(op) == want.shape
        for t, shape in zip(operands, shapes, strict=True):
            agree &= t is None or t.shape == shape
        return earlier if agree else None

    def _reused_generic(
        self,
        earlier: Generic,
        operands: tuple[TensorType | None, ...],
        want: TensorType | None,
        result: tuple[int, int],
    ) -> Generic | None:
        if len(earlier.maps) != len(operands) or len(earlier.yields) != result[1]:
            return None
        wish = Wish(self.rng, self.scale, operands, want, *result)
        if self.rng.random() < 0.5:
            return earlier if fits(wish, earlier) else None
        try:
            return related_generic(wish, earlier)
        except Misfit:
            return None

    def _check_defaults(self, attr: Attr, given: dict[str, AttrExpr]) -> None:
        if "pos" not in given:  # a layout matched whole
            return
        outer, pads = attr.field("outer"), attr.field("pad")
        if "outer" not in given and outer != tuple(range(len(outer))):
            raise Misfit
        if "pad" not in given and any(p != "-" for p in pads):
            raise Misfit

    def _check_padding(self, attr: Attr, dtype: str) -> None:
        """Padding values are values of the elements."""
        if not all(can_hold(dtype, p) for p in attr.padding()):
            raise Misfit

    def _operand_types(
        self,
        op: str,
        attr: Attr,
        operands: tuple[TensorType | None, ...],
        want: TensorType | None,
        element: str,
    ) -> Types:
        first = operands[0] if operands else None
        wanted = None if isinstance(attr, Custom) and attr.dtype else want
        typed = first or wanted
        dtype = element if typed is None else typed.dtype
        return (
            _accepted(attr, dtype) if isinstance(attr, Custom) else attr.typed_operands(op, dtype)
        )

    def _value_of(self, pattern: AttrExpr | None) -> Any:
        if isinstance(pattern, Value):
            return plain(pattern.value)
        return self.values.get(pattern.name) if isinstance(pattern, Name) else None

    def _unify(self, pattern: AttrExpr | None, value: Any) -> None:
        if isinstance(pattern, Name):
            if self.values.setdefault(pattern.name, value) != value:
                raise Misfit
        elif isinstance(pattern, Value) and plain(pattern.value) != value:
            raise Misfit


def _accepted(attr: Custom, dtype: str) -> Types:
    """Operand types of an op of a plug-in: this element type wherever it may have it."""
    kinds = attr.accepts or ("".join(KIND_NAMES),) * len(attr.sources)
    if not attr.dtype and DTYPES[dtype][1] not in kinds[0]:
        raise Misfit  # the result has the type of the first operand
    usual = {"f": "f32", "i": "i32", "u": "u8", "b": "bool"}
    dtypes = [dtype if DTYPES[dtype][1] in k else usual[k[0]] for k in kinds]
    return tuple(map(TensorType, dtypes, attr.sources))


def _defaults(op: str, given: Mapping[str, AttrExpr]) -> dict[str, Any]:
    """A field of a layout that is not written stands for its default."""
    if "pos" not in given or "tiles" not in RULE_OPS[op].attributes:
        return {}
    return {key: OMITTED for key in ("outer", "pad") if key not in given}


def _has_generic(term: Term) -> bool:
    if isinstance(term, Splat):
        return _has_generic(term.inner)
    if not isinstance(term, Apply):
        return False
    return term.op == "generic" or any(_has_generic(o) for o in term.operands)


def tensor_names(term: Term) -> Iterable[str]:
    """Tensor variables and named ops of a term, in reading order; those of splats are none."""
    if isinstance(term, Var):
        yield term.name
    elif isinstance(term, Apply):
        if term.name:
            yield term.name
        for o in term.operands:
            yield from tensor_names(o)
