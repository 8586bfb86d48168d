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


def written_as_generic(op: str) -> str:
    """How a rule says this op, "" if the word is none of these."""
    if op in PRODUCTS:
        return (
            "products are `generic`: match `generic(x, y, sig=g)` with"
            " `where: [is_contraction(g)]`, or write a law about loops (docs/rules.md, section 11)"
        )
    if op in REDUCTIONS:
        return (
            "reductions are `generic`: `generic(x, sig=g)` matches one,"
            ' `law("mn->m add x0 => …", g)` says which (docs/rules.md, section 11)'
        )
    if op in ELEMENTWISE:
        return (
            "elementwise ops are `generic`: `generic(x, y, sig=g)` matches any,"
            f' `law("n,n->n {op}(x0, x1) => …", g)` says which (docs/rules.md, section 11)'
        )
    return ""
