"""Diagnostics for what pydantic finds wrong with a file: in our words, at the right place.

Words of other tools for ops that are all `generic` here are known: what a rule writes instead.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from eqsat.lang.source import YamlSource
from eqsat.lang.units import DIMENSIONS, QuantityError, quantity
from eqsat.model.diag import Diagnostic, did_you_mean

PRODUCTS = frozenset({
    "batch_matmul", "bmm", "contract", "contraction", "conv", "conv2d", "dense", "dot",
    "dot_general", "einsum", "gemm", "linear", "matmul", "mm", "mv", "tensordot",
})  # fmt: skip
REDUCTIONS = frozenset({
    "logsumexp", "mean", "prod", "reduce", "reduce_max", "reduce_min", "reduce_sum", "sum",
})  # fmt: skip
ELEMENTWISE = frozenset({
    "abs", "add", "and", "cast", "ceil", "clamp", "convert", "cos", "div", "divide", "eq", "erf",
    "exp", "floor", "gelu", "log", "logistic", "max", "maximum", "min", "minimum", "mul",
    "multiply", "neg", "negate", "not", "or", "pow", "relu", "round", "rsqrt", "select",
    "sigmoid", "sign", "silu", "sin", "softplus", "sqrt", "square", "sub", "subtract", "tan",
    "tanh", "where", "xor",
})  # fmt: skip


UNARY = frozenset({
    "abs", "cast", "ceil", "convert", "cos", "erf", "exp", "floor", "gelu", "log", "logistic",
    "neg", "negate", "not", "relu", "round", "rsqrt", "sigmoid", "sign", "silu", "sin",
    "softplus", "sqrt", "square", "tan", "tanh",
})  # fmt: skip
KINDS = {"contraction": PRODUCTS, "reduction": REDUCTIONS, "elementwise": ELEMENTWISE}


def written_as_generic(op: str) -> str:
    """How a rule says this op, "" if the word is none of these."""
    if op in PRODUCTS:
        return (
            "products are `generic`: match `generic(x, y, sig=g)` with"
            " `where: [is_contraction(g)]`, or write a law about loops (docs/algebra.md)"
        )
    if op in REDUCTIONS:
        return (
            "reductions are `generic`: `generic(x, sig=g)` matches one,"
            ' `law("mn->m add x0 => …", g)` says which (docs/algebra.md)'
        )
    if op in ELEMENTWISE:
        names, law = ("x", f"n->n {op}(x0)") if op in UNARY else ("x, y", f"n,n->n {op}(x0, x1)")
        return (
            f"elementwise ops are `generic`: `generic({names}, sig=g)` matches any,"
            f' `law("{law} => …", g)` says which (docs/algebra.md)'
        )
    return ""


def kind_of_word(op: str) -> str:
    """The kind of op that a word of other tools names; "" if it is none of these."""
    return next((kind for kind, words in KINDS.items() if op in words), "")


MOST = 1_000  # problems of a file that are told


class Record(BaseModel):
    """Base of the file formats: no unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


R = TypeVar("R", bound=Record)


def coded(code: str, message: str, help: str = "") -> PydanticCustomError:
    """An error for validators that keeps its code: `raise coded("E203", "…", "write …")`."""
    return PydanticCustomError(code, "{text}", {"text": message, "help": help})  # type: ignore[arg-type]


def _reader(dimension: str) -> Callable[[Any], int | float]:
    def read(value: Any) -> int | float:
        try:
            return quantity(value, dimension)
        except QuantityError as error:
            raise coded(error.code, error.message, error.help) from None

    return read


def _quantity_schema(dimension: str) -> WithJsonSchema:
    d = DIMENSIONS[dimension]
    return WithJsonSchema({"type": "string", "description": f"{d.name}, e.g. `1 {d.usual}`"})


Size = Annotated[int, BeforeValidator(_reader("size")), _quantity_schema("size")]
Bandwidth = Annotated[float, BeforeValidator(_reader("bandwidth")), _quantity_schema("bandwidth")]
Time = Annotated[int, BeforeValidator(_reader("time")), _quantity_schema("time")]
Interval = Annotated[float, BeforeValidator(_reader("interval")), _quantity_schema("interval")]
Duration = Annotated[float, BeforeValidator(_reader("duration")), _quantity_schema("duration")]
Rate = Annotated[float, BeforeValidator(_reader("rate")), _quantity_schema("rate")]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_ONE_OR_MORE = {"type": "array", "items": {"type": "string"}}
# one line, or a list of lines
OneOrMore = Annotated[
    list[str],
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, _ONE_OR_MORE]}),
]


def read_record(model: type[R], source: YamlSource) -> tuple[R | None, list[Diagnostic]]:
    """The checked record of a file, or None and what is wrong with it."""
    try:
        return model.model_validate(source.data), list(source.problems)
    except ValidationError as error:
        return None, [*source.problems, *schema_problems(error, source, model)]


def schema_problems(
    error: ValidationError, source: YamlSource, model: type[Record]
) -> list[Diagnostic]:
    """One diagnostic per schema error: E003 unknown key, E004 missing key, else E005 or its own."""
    errors = error.errors()
    diagnosed = [(e, _problem(e, source, model)) for e in errors[:MOST]]
    meant = {(e["loc"][:-1], d.help) for e, d in diagnosed if e["type"] == "extra_forbidden"}
    told = [d for e, d in diagnosed if not _is_misspelled(e, meant)]
    if len(errors) > MOST:
        message = f"{len(errors) - MOST:,} more problems of this file are not listed"
        told.append(Diagnostic(diagnosed[-1][1].code, message, diagnosed[-1][1].span))
    return told


def _is_misspelled(e: ErrorDetails, meant: set[tuple[Any, str]]) -> bool:
    """Whether a key is missing only because it is there in another spelling."""
    return e["type"] == "missing" and (e["loc"][:-1], f"did you mean `{e['loc'][-1]}`?") in meant


def _problem(e: ErrorDetails, source: YamlSource, model: type[Record]) -> Diagnostic:
    path = tuple(p for p in e["loc"] if str(p)[:1] != "[")  # `[key]`, and the forms of a union
    context = e.get("ctx", {})
    if e["type"] == "extra_forbidden":
        message = f"unknown key `{path[-1]}`"
        keys = _keys_at(model, path[:-1])
        return Diagnostic(
            "E003", message, source.span(path, key=True), help=did_you_mean(str(path[-1]), keys)
        )
    if e["type"] == "missing":
        return Diagnostic("E004", f"missing key `{path[-1]}`", _missing_at(source, path[:-1]))
    span = source.span(path, key="[key]" in e["loc"])
    if e["type"].startswith("E"):
        message = str(context["text"])
        if e["type"] == "E203" and path and isinstance(path[-1], str):
            message = message.replace("`", f"`{path[-1]}: ", 1)
        return Diagnostic(e["type"], message, span, help=str(context["help"]))
    words, hint = _words(e["type"], context, e["input"])
    return Diagnostic("E005", words, span, help=hint)


def _missing_at(source: YamlSource, path: tuple[str | int, ...]) -> Any:
    """A missing key is reported at the key it should stand under, or at its list item."""
    by_key = bool(path) and isinstance(path[-1], str)
    return source.span(path, key=by_key)


_WANTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "keys with values",
    "model_type": "keys with values",
    "model_attributes_type": "keys with values",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_too_short": "text",
}


def _words(kind: str, context: dict[str, Any], value: Any) -> tuple[str, str]:
    """The sentence and the fix for one kind of pydantic error."""
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this value"
    if kind == "literal_error":
        words = [w.strip("'") for w in context["expected"].replace(" or ", ", ").split(", ")]
        meant = kind_of_word(str(value))
        hint = f"write `{meant}`" if meant in words else did_you_mean(str(value), words)
        return f"{shown} is not one of {', '.join(words)}", hint
    if kind == "string_pattern_mismatch":
        return f"{shown} is not a name here", f"a name looks like {context['pattern']}"
    if kind in _WANTED:
        hint = "begin each entry with `- `" if _WANTED[kind] == "a list" else ""
        return f"{_WANTED[kind]} is wanted here", hint
    if kind in _BOUNDS:
        return f"{_BOUNDS[kind].format(**context)} is wanted here", ""
    return f"{shown} does not fit here", ""


def _keys_at(model: type[Record], path: tuple[str | int, ...]) -> list[str]:
    """The keys a file may have at this place."""
    at: Any = model
    for part in path:
        at = _inside(at, part)
    record = _record(at)
    if record is None:
        return []
    return [f.alias or name for name, f in record.model_fields.items()]


def _inside(annotation: Any, part: str | int) -> Any:
    """The annotation of one entry: a field of a record, or an item of a list or mapping."""
    record = _record(annotation)
    if record is not None and isinstance(part, str):
        fields = {f.alias or name: f for name, f in record.model_fields.items()}
        return fields[part].annotation if part in fields else None
    args = typing.get_args(_plain(annotation))
    return args[-1] if args else None


def _plain(annotation: Any) -> Any:
    """The annotation without `Annotated` and `| None`."""
    if typing.get_origin(annotation) is Annotated:
        return _plain(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return _plain(next(a for a in typing.get_args(annotation) if a is not type(None)))
    return annotation


def _record(annotation: Any) -> type[Record] | None:
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, Record):
            return option
    return None


def _options(annotation: Any) -> list[Any]:
    """Members of a union, without `Annotated`; of anything else, itself."""
    if typing.get_origin(annotation) is Annotated:
        return _options(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [o for a in typing.get_args(annotation) for o in _options(a)]
    return [annotation]
