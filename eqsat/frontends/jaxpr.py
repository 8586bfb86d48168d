"""A JAX function and example arguments → a Program, its weights and its opaque calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.frontends.control import CONTROL, read_control
from eqsat.frontends.opaque import EquationGroup, is_foreign, kept_call, units
from eqsat.frontends.primitives import CALLS, PRIMITIVES
from eqsat.frontends.source import Traced, is_key, key_kind
from eqsat.frontends.valuenames import ValueNames, raised_at
from eqsat.frontends.values import Context, Tensor, round_to, tensor_type
from eqsat.model.control import every_program
from eqsat.model.deadline import gc_paused
from eqsat.model.diag import EqsatError, check_known, fail
from eqsat.model.leaves import Leaf, Opaque
from eqsat.model.program import Builder, prune
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import weight_key

_CUSTOM = ("custom_jvp_call", "custom_vjp_call")


def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: tuple[str, ...] = (),
    name: str = "",
) -> Traced:
    """Trace `function` on arrays, ShapeDtypeStructs or tracers, and translate its jaxpr.

    A PRNG key among the arguments becomes an input or weight that holds its data (u32).
    weights: names of parameters whose arrays are weights (content keys).
    EqsatError: E301 tracing failed, E302 an element type without a name, E323 a side effect,
    E324 an unknown name in `weights`.
    """
    import jax

    named = dict(kwargs or {})
    title = name or getattr(function, "__name__", "function")
    leaves, in_tree = jax.tree_util.tree_flatten_with_path((tuple(args), named))
    labels = [_label(function, path) for path, _ in leaves]
    avals = tuple(_aval(x, text) for (_, x), (_, text) in zip(leaves, labels, strict=True))
    _check_weights(weights, {root for root, _ in labels})
    closed, shapes = _jaxpr(function, in_tree, avals, [key_kind(x) for _, x in leaves], title)
    reader = _JaxprReader(Context(Builder(title)))
    values, bindings = [], []
    for (_, x), (root, text), aval in zip(leaves, labels, avals, strict=True):
        value, binding = reader.leaf(x, aval, text, is_weight=root in weights)
        reader.names.leaf(value.node, text, is_weight=root in weights)
        values.append(value)
        bindings.append(binding)
    ctx = reader.ctx
    with gc_paused():
        consts = [reader.constant(c) for c in closed.consts]
        results = reader.run(closed.jaxpr, consts, values)
        reader.names.finish()
        program = prune(ctx.builder.build([ctx.materialise(v) for v in results]))
    keys = {program.leaf(i).key for i in program.weights}
    everything = (n for p in every_program(program) for n in p.nodes)
    called = {n.attr.key for n in everything if isinstance(n.attr, Opaque)}
    return Traced(
        program,
        {k: v for k, v in ctx.weights.items() if k in keys},
        {k: v for k, v in ctx.opaque.items() if k in called},
        in_tree,
        jax.tree_util.tree_structure(shapes),
        tuple(text for _, text in labels),
        tuple(bindings),
        tuple(reader.captured),
        ctx.custom_derivatives,
        function,
        closed if reader.captured else None,
    )


def _label(function: Callable[..., Any], path: tuple[Any, ...]) -> tuple[str, str]:
    """(parameter name, whole path) of an argument leaf, e.g. ("params", "params['w1']")."""
    import jax

    side, at, *rest = path
    root = str(at.key) if side.idx == 1 else _parameter(function, at.idx)
    tail = jax.tree_util.keystr(tuple(rest))
    starred = side.idx == 0 and root.startswith("*")
    text = f"{root[1:]}[{at.idx}]{tail}" if starred else f"{root}{tail}"
    return root.lstrip("*"), text


def _parameter(function: Callable[..., Any], index: int) -> str:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins and some callables have none
        return f"arg{index}"
    for at, p in enumerate(parameters):
        if p.kind is p.VAR_POSITIONAL:
            return f"*{p.name}"
        if at == index:
            return p.name
    return f"arg{index}"


def _check_weights(weights: tuple[str, ...], paths: set[str]) -> None:
    for w in weights:
        check_known(w, paths, "E324", f"`weights` names `{w}`, which is no argument with arrays")


def _aval(x: Any, path: str) -> Any:
    import jax

    try:
        aval = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    except TypeError as error:
        raise fail("E301", f"argument `{path}` is a {type(x).__name__}, not an array") from error
    if is_key(aval):
        return jax.eval_shape(jax.random.key_data, aval)
    tensor_type(aval, path)
    return jax.ShapeDtypeStruct(
        aval.shape, aval.dtype, weak_type=bool(getattr(aval, "weak_type", False))
    )


def _jaxpr(
    function: Callable[..., Any],
    in_tree: Any,
    avals: tuple[Any, ...],
    keys: Sequence[Any],
    title: str,
) -> tuple[Any, Any]:
    """keys: per argument leaf the kind of its PRNG keys, whose data it is; None for others."""
    import jax

    def flat(*leaves: Any) -> Any:
        values = [
            x if kind is None else jax.random.wrap_key_data(x, impl=kind)
            for x, kind in zip(leaves, keys, strict=True)
        ]
        args, kwargs = jax.tree_util.tree_unflatten(in_tree, values)
        return function(*args, **kwargs)

    try:
        return jax.make_jaxpr(flat, return_shape=True)(*avals)
    except EqsatError:
        raise
    except Exception as error:
        what = str(error).strip().splitlines()
        raise fail(
            "E301",
            f"JAX cannot trace `{title}`: {type(error).__name__}: {what[0] if what else ''}",
            raised_at(error),
            help="the function must be one that `jax.jit` accepts; the cause is above",
        ) from error


@dataclass
class _JaxprReader:
    """Walks a jaxpr; `ctx` collects the program, `captured` the tracers closed over."""

    ctx: Context
    inputs: int = 0
    captured: list[Any] = field(default_factory=list)
    depth: int = 0  # bodies of loops and branches around it

    @cached_property
    def names(self) -> ValueNames:
        """Names of its values."""
        return ValueNames(self.ctx.builder, self.ctx.builder.name)

    def child(self, title: str) -> _JaxprReader:
        """A reader for the body of a loop or branch."""
        return _JaxprReader(Context(Builder(title)), depth=self.depth + 1)

    def leaf(
        self, x: Any, aval: Any, path: str, is_weight: bool
    ) -> tuple[Tensor, tuple[str, int | str]]:
        """An argument as an input or a weight, and how a call binds it."""
        import jax
        from jax.core import Tracer

        t = tensor_type(aval, path)
        if not is_weight:
            number = self.inputs
            return self.input(t, path), ("input", number)
        if isinstance(x, jax.ShapeDtypeStruct | Tracer):
            key = weight_key(np.frombuffer(f"{path} {t}".encode(), np.uint8))
            return self.ctx.weight_leaf(t, key, path), ("weight", key)
        value = np.asarray(jax.random.key_data(x) if is_key(x) else x, aval.dtype)
        return self.ctx.weight(value, path), ("weight", weight_key(value))

    def input(self, t: TensorType, path: str) -> Tensor:
        leaf = Leaf(self.ctx.name(path), t, index=self.inputs)
        self.inputs += 1
        return self.ctx.add("input", (), leaf)

    def constant(self, c: Any, aval: Any = None) -> Tensor:
        """A closed-over array: a scalar in bodies, a weight, or an input if it is a tracer."""
        from jax.core import Tracer

        if isinstance(c, Tracer):
            self.captured.append(c)
            return self.input(tensor_type(c.aval, "a captured value"), f"captured{self.inputs}")
        t = tensor_type(c if aval is None else aval, "a closed-over array")
        array = np.asarray(c)
        if not array.shape:
            return Tensor((), t.dtype, constant=round_to(array, t.dtype))
        return self.ctx.weight(array, f"const{len(self.ctx.weights)}")

    def run(self, jaxpr: Any, consts: Sequence[Tensor], args: Sequence[Tensor]) -> list[Tensor]:
        """The values of a jaxpr's results."""
        from jax.extend.core import Literal

        env: dict[Any, Tensor] = dict(zip(jaxpr.constvars, consts, strict=True))
        env |= dict(zip(jaxpr.invars, args, strict=True))
        for unit, outs in units(jaxpr):
            eqn = unit.eqns[0]
            reads = [env[v].node for v in eqn.invars if not isinstance(v, Literal)]
            self.names.begin(eqn, reads, _called(unit))
            results = self._unit(unit, outs, env)
            self.names.end(results)
            env |= zip(outs, results, strict=True)
        return [self._read(v, env) for v in jaxpr.outvars]

    def _read(self, v: Any, env: dict[Any, Tensor]) -> Tensor:
        from jax.extend.core import Literal

        if is_foreign(v):
            tensor_type(v.aval, "a result")
        return self.constant(v.val, v.aval) if isinstance(v, Literal) else env[v]

    def _operands(self, eqn: Any, env: dict[Any, Tensor]) -> list[Tensor]:
        """Operands of an equation that is not foreign."""
        from jax.extend.core import Literal

        return [
            self.constant(v.val, v.aval) if isinstance(v, Literal) else env[v] for v in eqn.invars
        ]

    def _unit(self, unit: EquationGroup, outs: list[Any], env: dict[Any, Tensor]) -> list[Tensor]:
        eqn = unit.eqns[0]
        if unit.foreign:
            return self._keep(unit.eqns, outs, env)
        name = eqn.primitive.name
        if name in CALLS:
            return self._inline(eqn, self._operands(eqn, env))
        if name in CONTROL:
            results = read_control(self, eqn, self._operands(eqn, env))
            return self._keep(unit.eqns, outs, env) if results is None else results
        lower = PRIMITIVES.get(name)
        results = None if lower is None else lower(self.ctx, eqn, self._operands(eqn, env))
        return self._keep(unit.eqns, outs, env) if results is None else results

    def _inline(self, eqn: Any, args: list[Tensor]) -> list[Tensor]:
        name = eqn.primitive.name
        self.ctx.custom_derivatives |= name in _CUSTOM
        inner = eqn.params[CALLS[name]]
        if hasattr(inner, "consts"):
            consts = [self.constant(c) for c in inner.consts]
            return self.run(inner.jaxpr, consts, args)
        return self.run(inner, [], args)

    def _keep(self, eqns: tuple[Any, ...], outs: list[Any], env: dict[Any, Tensor]) -> list[Tensor]:
        """One opaque node for these equations; operands are the variables from outside."""
        from jax.extend.core import ClosedJaxpr, DebugInfo, DropVar, Jaxpr

        title = "+".join(dict.fromkeys(e.primitive.name for e in eqns))
        read_outs = [v for v in outs if not isinstance(v, DropVar)]
        effects = frozenset().union(*(e.effects for e in eqns))
        if effects and not read_outs:
            raise fail(
                "E323",
                f"`{title}` has a side effect and no result, which a program cannot keep",
                help="move it out of the function",
            )
        if not read_outs:
            return [Tensor((), "f32")] * len(outs)  # nobody reads a DropVar
        reads = _free(eqns)
        info = DebugInfo("opaque", title, ("",) * len(reads), ("",) * len(read_outs))
        closed = ClosedJaxpr(Jaxpr([], reads, read_outs, list(eqns), effects, info), [])
        operands = [self.ctx.materialise(self._read(v, env)) for v in reads]
        nodes = kept_call(self.ctx, title, closed, operands)
        values = dict(zip(map(id, read_outs), nodes, strict=True))
        return [values.get(id(v), Tensor((), "f32")) for v in outs]


def _called(unit: EquationGroup) -> str:
    """The name of the function that is called; "" if none is, or it has no name."""
    eqn = unit.eqns[0]
    is_call = not unit.foreign and eqn.primitive.name in CALLS
    return str(eqn.params.get("name") or "") if is_call else ""


def _free(eqns: tuple[Any, ...]) -> list[Any]:
    """Variables read but not defined here, in the order of first use."""
    from jax.extend.core import Literal

    defined = {v for e in eqns for v in e.outvars}
    read = [v for e in eqns for v in e.invars if not isinstance(v, Literal)]
    return [v for v in dict.fromkeys(read) if v not in defined]
