"""Words of other tools for ops that are all `generic` here: what a rule writes in their place."""

from __future__ import annotations

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
