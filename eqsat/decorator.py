"""`@eqsat.jit`: calls like `jax.jit`, runs the best program the rules can reach."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

from eqsat.api import DEFAULT_GOALS, Run, optimize
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.target import Target


@overload
def jit(function: Callable[..., Any], **options: Any) -> Jitted: ...
@overload
def jit(function: None = None, **options: Any) -> Callable[[Callable[..., Any]], Jitted]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | Path | Target = "reference",
    rules: Sequence[str] | str = ("default",),
    weights: Sequence[str] = (),
    goals: Sequence[str] = DEFAULT_GOALS,
    **options: Any,
) -> Jitted | Callable[[Callable[..., Any]], Jitted]:
    """Optimize a JAX function on its first call for each set of argument shapes.

    target, rules, goals and further options are those of `eqsat.optimize`. weights: names of
    arguments that are packed ahead of time, once per array. The result can be called under
    `jax.grad`, `jax.vmap` and `jax.jit`; derivatives are those of the function itself.
    EqsatError (E400) for an option `eqsat.optimize` does not have.
    """
    known = set(inspect.signature(optimize).parameters)
    for name in options:
        if name not in known:
            raise fail(
                "E400", f"`eqsat.jit` has no option `{name}`", help=did_you_mean(name, known)
            )
    settings = {"target": target, "rules": rules, "weights": tuple(weights), "goals": goals}
    if function is None:
        return lambda f: Jitted(f, settings | options)
    return Jitted(function, settings | options)


class Jitted:
    """A function and the runs made for it, one per set of argument shapes."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        self.function = function
        self.options = options
        self.runs: dict[Any, tuple[Run, Callable[..., Any]]] = {}
        functools.update_wrapper(self, function)

    def optimize(self, *args: Any, **kwargs: Any) -> Run:
        """The run behind a call with these arguments (arrays or `jax.ShapeDtypeStruct`)."""
        return optimize(self.function, *args, keywords=kwargs, **self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import jax

        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        try:
            types = tuple(map(jax.typeof, leaves))
        except TypeError:
            self.optimize(*args, **kwargs)  # says which argument is no array
            raise
        # a Python scalar is weakly typed, and `jax.enable_x64` changes what a trace gives
        weak = tuple(bool(getattr(t, "weak_type", False)) for t in types)
        wide = jax.config.read("jax_enable_x64")
        key = (tree, tuple((t.shape, t.dtype) for t in types), weak, wide)
        if key not in self.runs:
            run = self.optimize(*args, **kwargs)
            if run.source.traced is not None and run.source.traced.captured:
                return self._inside_transformation(args, kwargs)
            self.runs[key] = (run, self._callable(run, tree))
        results = self.runs[key][1](*leaves)
        run = self.runs[key][0]
        assert run.source.traced is not None
        return run.source.traced.unflatten(results)

    def _callable(self, run: Run, tree: Any) -> Callable[..., Any]:
        """Flat leaves → flat results; derivatives are taken from the function itself."""
        import jax
        from jax.core import Tracer

        from eqsat.execute.xla import differentiate_as

        compiled = run.compile()

        def chosen(*leaves: Any) -> tuple[Any, ...]:
            args, kwargs = jax.tree_util.tree_unflatten(tree, leaves)
            return tuple(jax.tree_util.tree_leaves(compiled(*args, **kwargs)))

        def original(*leaves: Any) -> tuple[Any, ...]:
            args, kwargs = jax.tree_util.tree_unflatten(tree, leaves)
            return tuple(jax.tree_util.tree_leaves(self.function(*args, **kwargs)))

        differentiable = differentiate_as(chosen, original)

        def call(*leaves: Any) -> tuple[Any, ...]:
            inside = any(isinstance(x, Tracer) for x in leaves)
            return differentiable(*leaves) if inside else chosen(*leaves)

        return call

    def _inside_transformation(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function closes over tracers: make them arguments, good for this call only."""
        import jax
        from jax.core import Tracer
        from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))

        def flat(*xs: Any) -> Any:
            a, k = jax.tree_util.tree_unflatten(tree, xs)
            return self.function(*a, **k)

        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        captured = [c for c in closed.consts if isinstance(c, Tracer)]

        def converted(outer: list[Any], *xs: Any) -> Any:
            given = iter(outer)
            consts = [next(given) if isinstance(c, Tracer) else c for c in closed.consts]
            results = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*xs)
            return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), results)

        converted.__name__ = getattr(self.function, "__name__", "function")
        return Jitted(converted, self.options | {"weights": ()})(captured, *leaves)


__all__ = ["Jitted", "jit"]
