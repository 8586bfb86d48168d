"""`@eqsat.jit`: calls like `jax.jit`, runs the best program the rules can reach.

The result is a function of `jax.jit` whose trace runs the search. So a search is made once for
each set of argument shapes, and every later call is JAX's own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from eqsat.api import DEFAULT_GOALS, DEFAULT_TARGET, Run, optimize
from eqsat.entry.derivatives import in_reverse
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.target import Target
from eqsat.reading import shape_of

if TYPE_CHECKING:
    from eqsat.execute.calls import Callee

DERIVATIVES = OWN, SEARCHED = ("own", "searched")
# settings of JAX that change what a trace gives
SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_default_prng_impl",
)


class Optimized(Protocol):
    """What `eqsat.jit` returns: a function of `jax.jit` (with its `lower`, `trace`, …)."""

    runs: Mapping[Any, Run]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the best program found for arguments of these shapes."""
        ...

    def optimize(self, *args: Any, **kwargs: Any) -> Run:
        """The run behind a call with these arguments (arrays or `jax.ShapeDtypeStruct`)."""
        ...


@overload
def jit(function: Callable[..., Any], **options: Any) -> Optimized: ...
@overload
def jit(function: None = None, **options: Any) -> Callable[[Callable[..., Any]], Optimized]: ...
def jit(
    function: Callable[..., Any] | None = None,
    *,
    target: str | Path | Target = DEFAULT_TARGET,
    rules: Sequence[str] | str = ("default",),
    weights: Sequence[str] = (),
    goals: Sequence[str] = DEFAULT_GOALS,
    derivatives: str = OWN,
    **options: Any,
) -> Optimized | Callable[[Callable[..., Any]], Optimized]:
    """Optimize a JAX function on its first call for each set of argument shapes.

    target, rules, goals and further options are those of `eqsat.optimize`. weights: names of
    arguments that are packed ahead of time, once per array. Where the answer is the input, the
    function itself runs. The result can be called under `jax.grad`, `jax.vmap` and `jax.jit`.
    derivatives: `own` are those of the original function, in both modes. With `searched` the two
    passes of `jax.grad` are searched like the function, and JAX refuses forward mode. EqsatError
    (E400) for an option `eqsat.optimize` does not have; a call that has to be traced raises the
    errors of `eqsat.optimize`.
    """
    known = set(inspect.signature(optimize).parameters)
    for name in options:
        if name not in known:
            raise fail(
                "E400", f"`eqsat.jit` has no option `{name}`", help=did_you_mean(name, known)
            )
    if derivatives not in DERIVATIVES:
        message = f"no derivatives `{derivatives}`"
        raise fail("E400", message, help=did_you_mean(derivatives, DERIVATIVES))
    settings = {"target": target, "rules": rules, "weights": tuple(weights), "goals": goals}
    if function is None:
        return lambda f: _jitted(f, settings | options, derivatives)
    return _jitted(function, settings | options, derivatives)


def _jitted(function: Callable[..., Any], options: dict[str, Any], derivatives: str) -> Any:
    import jax

    from eqsat.execute.calls import Packing

    searches = Searches(function, options)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        callee = searches.callee(args, kwargs)
        if packing is not None:
            packing.prepare_for(callee)
        return function(*args, **kwargs) if callee.is_input else callee(args, kwargs)

    compiled: Callable[..., Any] = traced
    if derivatives == SEARCHED:

        def jit_of(f: Callable[..., Any], weights: tuple[str, ...] = ()) -> Any:
            return _jitted(f, options | {"weights": weights}, OWN)

        compiled = in_reverse(function, traced, jit_of, options["weights"])
    jitted = jax.jit(compiled)
    whole = derivatives == OWN
    packing = Packing(jitted, searches.callee, whole) if options["weights"] else None
    found: Any = jitted if packing is None else packing.function
    found.optimize, found.runs = searches.optimize, searches.runs
    return found


class Searches:
    """A function and the runs made for it, one per set of argument shapes."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        self.function = function
        self.options = options
        self.runs: dict[Any, Run] = {}

    def optimize(self, *args: Any, **kwargs: Any) -> Run:
        """The run behind a call with these arguments (arrays or `jax.ShapeDtypeStruct`).

        It holds the weights among them. EqsatError as `eqsat.optimize` raises it.
        """
        run = self._run(args, kwargs)
        run.take_weights(args, kwargs)
        return run

    def callee(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callee:
        """What a call with these arguments runs."""
        found = self._run(args, kwargs).callee
        assert found is not None
        return found

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        import jax

        key = _signature(args, kwargs)
        if key is not None and key in self.runs:
            return self.runs[key]
        args, kwargs = jax.tree_util.tree_map(shape_of, (args, kwargs))  # a run outlives its call
        with jax.ensure_compile_time_eval():  # the search may compute, e.g. to verify its answer
            run = optimize(self.function, *args, keywords=kwargs, **self.options)
        assert run.source.traced is not None
        if key is not None and not run.source.traced.captured:
            self.runs[key] = run
        return run


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a trace depends on; None if an argument is no array."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    try:
        types = [x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x) for x in leaves]
    except TypeError:
        return None
    # a Python scalar is weakly typed
    forms = tuple((t.shape, t.dtype, bool(getattr(t, "weak_type", False))) for t in types)
    return tree, forms, tuple(getattr(jax.config, name) for name in SETTINGS)


__all__ = ["Optimized", "jit"]
