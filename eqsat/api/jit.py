"""`@eqsat.jit`: calls like `jax.jit`, runs the best program the rules can reach.

The result is a function of `jax.jit` whose trace runs the search. So a search is made once for
each set of argument shapes, and every later call is JAX's own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from eqsat.api.background import SearchThreads, said_if_long
from eqsat.api.borders import ALL, PLAIN, is_about_orders
from eqsat.api.optimization import DEFAULT_GOALS, DEFAULT_TARGET, optimize
from eqsat.api.reading import shape_of
from eqsat.model.deadline import Stop
from eqsat.model.diag import check_known, fail
from eqsat.model.target import Target
from eqsat.run import Run
from eqsat.run.marks import agreed_before, note_agreement

if TYPE_CHECKING:
    from eqsat.execute.beside import FirstCall, Pair
    from eqsat.execute.calls import Callee
    from eqsat.execute.firstcalls import ByShape

DERIVATIVES = OWN, SEARCHED = ("own", "searched")
# settings of JAX that change what a trace gives
SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_default_prng_impl",
)


class Optimized(Protocol):
    """The result of `eqsat.jit`: a function of `jax.jit` (with its `lower`, `trace`, …).

    given: the function as it was. checks: what calls that were checked have shown, in their order.
    """

    given: Callable[..., Any]
    runs: Mapping[Any, Run]
    checks: Sequence[FirstCall]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the best program found for arguments of these shapes."""
        ...

    def optimize(self, *args: Any, **kwargs: Any) -> Run:
        """The run behind a call with these arguments (arrays or `jax.ShapeDtypeStruct`)."""
        ...

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """The arguments as arrays that a call takes as they lie (with `layouts`)."""
        ...

    def formats(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """JAX's formats of the arguments and of the results (with `layouts`)."""
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
    donate: Sequence[str] = (),
    check: str = "first",
    race: bool = True,
    background: bool = False,
    verbose: bool = True,
    **options: Any,
) -> Optimized | Callable[[Callable[..., Any]], Optimized]:
    """Optimize a JAX function on its first call for each set of argument shapes.

    target, rules, goals and further options are those of `eqsat.optimize`. weights: names of
    arguments that are packed ahead of time, once per array. Where the answer is the input, the
    function itself runs. The result can be called under `jax.grad`, `jax.vmap` and `jax.jit`.
    derivatives: `own` are those of the original function, in both modes. With `searched` the two
    passes of `jax.grad` are searched like the function, and JAX refuses forward mode. donate: names
    of arguments that a call uses up, as `donate_argnames` of `jax.jit`; a result that is one of
    them with some elements changed, such as a cache, is written in its place. layouts: `"auto"`,
    or per argument and result (`result0`) `"auto"`, `"compiler"`, or an order of its dims,
    `[1, 0]`: in which order they lie in memory, their shapes as they are. Arrays that lie otherwise
    are laid out anew in each call; `f.put(*args)` does that once, `f.formats(*args)` tells JAX's
    formats, and results come in the order that was chosen. check: `first` makes the first call of
    each shape with the function as it is, too, and compares. Where the answer is wrong, or slower
    in a short race by more than the noise (`race`), the function itself serves; a warning (E520) or
    the log (`eqsat.first-call`) says so. `always` compares every call, `never` none. An answer that
    is kept on this machine (`cache`) and agreed in a first call of another process is not compared
    again. background: a thread searches, and until its answer is there, the function itself serves;
    the first call after that is checked. verbose: the log (`eqsat.jit`) has a line if a search
    takes more than two seconds, and one at its end. EqsatError: E394 for other layouts, E400 for an
    option `eqsat.optimize` does not have, for another word, what does not go together, or cannot be
    donated, E324 for a name in `donate` that is no argument; a call that has to be traced raises
    those of `eqsat.optimize`.
    """
    from eqsat.execute.beside import NEVER, check_options

    parameters = set(inspect.signature(optimize).parameters)
    for name in options:
        check_known(name, parameters, "E400", f"`eqsat.jit` has no option `{name}`")
    check_known(derivatives, DERIVATIVES, "E400", f"no derivatives `{derivatives}`")
    _check_layouts(options.get("layouts"))
    check_options(check, race)
    donated = tuple(donate)
    _check_donated(donated, weights, derivatives)
    if background and (check == NEVER or derivatives == SEARCHED):
        message = '`background=True` goes with neither `check="never"` nor searched derivatives'
        raise fail("E400", message, help="leave out one of them")
    settings = {"target": target, "rules": rules, "weights": tuple(weights), "goals": goals}
    settings |= options
    how = _Serving(derivatives, donated, check, race, background, verbose)
    if function is None:
        return lambda f: _jitted(f, settings, how)
    return _jitted(function, settings, how)


def _check_donated(donate: Sequence[str], weights: Sequence[str], derivatives: str) -> None:
    """EqsatError E400 for what cannot be donated."""
    both = [name for name in donate if name in weights]
    if both:
        message = f"`{both[0]}` is among `weights`, which are kept, and in `donate`"
        raise fail("E400", message, help="leave it out of one of them")
    if donate and derivatives == SEARCHED:
        message = '`derivatives="searched"` keeps arguments for the backward pass'
        raise fail("E400", message, help="leave out `donate`")


def _check_layouts(layouts: Any) -> None:
    """EqsatError E394 for a layout of another shape: arguments of a call have their own."""
    for name, request in layouts.items() if isinstance(layouts, Mapping) else ():
        if name != ALL and not is_about_orders(request) and request != PLAIN:
            message = f"`eqsat.jit` takes `{name}` in its own shape, and {request} has another"
            help = (
                "give an order of its dims (`[1, 0]`), `auto` or `compiler`; `eqsat.optimize` and "
                "its `run.compile()` take packed arrays"
            )
            raise fail("E394", message, help=help)


def _check_named(function: Callable[..., Any], donate: Sequence[str]) -> None:
    """EqsatError E324 for a name that is no parameter of a function that lists its own."""
    parameters = inspect.signature(function).parameters if donate else {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in donate:
        message = f"`donate` names `{name}`, which is no argument of the function"
        check_known(name, parameters, "E324", message)


@dataclass(frozen=True)
class _Serving:
    """How the calls of a function are served; the words are those of `jit`."""

    derivatives: str = OWN
    donate: tuple[str, ...] = ()
    check: str = "never"
    race: bool = False
    background: bool = False
    verbose: bool = False


def _jitted(function: Callable[..., Any], options: dict[str, Any], how: _Serving) -> Any:
    from eqsat.execute.beside import NEVER

    _check_named(function, how.donate)
    if how.background:
        options = {"stop": Stop()} | options
    searches = Searches(function, options, how.donate, how.verbose)
    answer = functools.partial(_answer, function, options, how.derivatives, how.donate)
    if how.check == NEVER:
        jitted = answer(searches.callee)
        jitted.checks = []
    else:
        jitted = _checked(searches, answer, how)
    jitted.optimize, jitted.runs, jitted.given = searches.optimize, searches.runs, function
    return jitted


def _checked(searches: Searches, answer: Callable[..., Any], how: _Serving) -> Any:
    """The function whose first call of each shape is checked, unless another process has."""
    import jax

    from eqsat.execute.firstcalls import Before, ByShape, Wanted

    function, find, threads = searches.function, searches.callee, None
    if how.background:
        threads = SearchThreads(
            _name(function), searches.callee, searches.runs.__contains__, _signature,
            functools.partial(jax.tree_util.tree_map, shape_of), searches.options["stop"],
        )  # fmt: skip
        find = threads.callee

    def jit_of(f: Callable[..., Any]) -> Any:
        return jax.jit(f, donate_argnames=how.donate)

    checked = ByShape(
        function, find, _signature, answer, jit_of, searches.pair, Wanted(how.check, how.race),
        Before(
            lambda args, kwargs: agreed_before(searches.run(args, kwargs), how.race),
            lambda args, kwargs: note_agreement(searches.run(args, kwargs), how.race),
        ),
    )  # fmt: skip
    if threads is not None:
        threads.renew = checked.renew
    return checked.switch.function


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "function"))


def _answer(
    function: Callable[..., Any],
    options: dict[str, Any],
    derivatives: str,
    donate: tuple[str, ...],
    find: Callable[[tuple[Any, ...], dict[str, Any]], Callee],
) -> Any:
    """The jitted function of the callees that are found."""
    import jax

    from eqsat.execute.calls import Packing, with_placing

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        callee = find(args, kwargs)
        if packing is not None:
            packing.prepare_for(callee)
        return function(*args, **kwargs) if callee.is_input else callee(args, kwargs)

    compiled: Callable[..., Any] = traced
    if derivatives == SEARCHED:

        def jit_of(f: Callable[..., Any], weights: tuple[str, ...] = ()) -> Any:
            return _jitted(f, options | {"weights": weights}, _Serving())

        compiled = in_reverse(function, traced, jit_of, options["weights"])
    jitted = jax.jit(compiled, donate_argnames=donate)
    uses_own = derivatives == OWN
    looks_up = options["weights"] or options.get("layouts")
    packing = Packing(jitted, find, uses_own, donate) if looks_up else None
    return jitted if packing is None else with_placing(packing)


@dataclass(eq=False)
class Searches:
    """A function and the runs made for it, one per set of argument shapes."""

    function: Callable[..., Any]
    options: dict[str, Any]
    donate: tuple[str, ...] = ()
    verbose: bool = False
    runs: dict[Any, Run] = field(init=False, default_factory=dict)

    def optimize(self, *args: Any, **kwargs: Any) -> Run:
        """The run behind a call with these arguments (arrays or `jax.ShapeDtypeStruct`).

        It holds the weights among them. EqsatError as `eqsat.optimize` raises it.
        """
        run = self.run(args, kwargs)
        run.take_weights(args, kwargs)
        return run

    def callee(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callee:
        """The callable that a call with these arguments runs."""
        callee = self.run(args, kwargs).callee
        assert callee is not None
        return callee

    def pair(self, checked: ByShape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pair:
        """Both sides of a call with these arguments."""
        import jax

        from eqsat.execute.calls import numbers_of
        from eqsat.run.calling import pair_of

        def afresh() -> Any:
            return jax.jit(functools.partial(self.function))  # another function to JAX

        tree = jax.tree_util.tree_structure((args, kwargs))
        donated = numbers_of(tree, self.function, self.donate)
        run = self.run(args, kwargs)
        return pair_of(run, checked.answer, checked.original, afresh, donated)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        """The run of a call with these arguments, without the weights among them."""
        import jax

        key = _signature(args, kwargs)
        if key is not None and key in self.runs:
            return self.runs[key]
        args, kwargs = jax.tree_util.tree_map(shape_of, (args, kwargs))  # a run outlives its call
        with jax.ensure_compile_time_eval():  # the search may compute, e.g. to verify its answer
            given = {"keywords": kwargs, "donate": self.donate}
            with said_if_long(_name(self.function), self.verbose) as (hear, done):
                heard: dict[str, Any] = {"progress": hear} | self.options
                run = optimize(self.function, *args, **given, **heard)
                done(run)
        assert run.source.traced is not None
        if key is not None and not run.source.traced.captured:
            self.runs[key] = run
        return run


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key of a trace, all that it depends on; None if an argument is no array."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    try:
        types = [x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x) for x in leaves]
    except TypeError:
        return None
    # a Python scalar is weakly typed
    forms = tuple((t.shape, t.dtype, bool(getattr(t, "weak_type", False))) for t in types)
    return tree, forms, tuple(getattr(jax.config, name) for name in SETTINGS)


# ---- reverse mode by two searched programs -------------------------------------------------------
Jit = Callable[..., Callable[..., Any]]  # a function and the weights among its arguments → jitted


def in_reverse(
    function: Callable[..., Any], primal: Callable[..., Any], jit: Jit, weights: tuple[str, ...]
) -> Callable[..., Any]:
    """`primal`, which computes `function`, under `jax.grad` by two searched programs.

    Custom derivatives and stop_gradient of the function are kept. JAX refuses forward mode
    (`jax.jvp`) for functions with a reverse mode of their own.
    """
    import jax

    passes = _Passes(function, jit, weights)

    wrapped = jax.custom_vjp(lambda args, kwargs: primal(*args, **kwargs))
    wrapped.defvjp(passes.forward, passes.backward)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapped(args, kwargs)

    return call


class _Passes:
    """The two passes; a backward pass belongs to one shape of residuals."""

    def __init__(self, function: Callable[..., Any], jit: Jit, weights: tuple[str, ...]):
        self.function = function
        self.jit = jit
        self.pulls: dict[Any, Any] = {}  # tree and types of the arguments → tree of the residuals
        self.jitted: dict[Any, Callable[..., Any]] = {}  # the same → the backward pass
        first = functools.partial(_Passes._first, self)
        self.first = jit(functools.wraps(function)(first), weights=weights)

    def forward(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The results; the residuals, and what they are of."""
        out, residuals = self.first(*args, **kwargs)
        return out, (residuals, (args, kwargs))

    def backward(self, saved: tuple[Any, Any], cotangents: Any) -> tuple[Any, Any]:
        """The cotangents of both; None for integers."""
        import jax

        residuals, given = saved
        key = _key(given)
        if key not in self.jitted:
            self.jitted[key] = self.jit(functools.partial(self._second, self.pulls[key]))
        leaves, tree = jax.tree_util.tree_flatten(given)
        gradients = iter(self.jitted[key](residuals, cotangents))
        return _unflatten(tree, [next(gradients) if _is_real(x) else None for x in leaves])

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        import jax

        out, pull = jax.vjp(lambda args, kwargs: self.function(*args, **kwargs), args, kwargs)
        residuals, self.pulls[_key((args, kwargs))] = jax.tree_util.tree_flatten(pull)
        return out, residuals

    def _second(self, tree: Any, residuals: list[Any], cotangents: Any) -> list[Any]:
        import jax

        gradients = jax.tree_util.tree_leaves(
            jax.tree_util.tree_unflatten(tree, residuals)(cotangents)
        )
        return [x for x in gradients if x.dtype != jax.dtypes.float0]


def _key(args: Any) -> Any:
    import jax

    leaves, tree = jax.tree_util.tree_flatten(args)
    return tree, tuple((x.shape, x.dtype) for x in map(jax.typeof, leaves))


def _is_real(x: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return bool(jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact))


def _unflatten(tree: Any, leaves: list[Any]) -> Any:
    """Leaves in their tree, where None is a leaf."""
    import jax

    marked = jax.tree_util.tree_unflatten(tree, list(range(len(leaves))))
    return jax.tree_util.tree_map(lambda i: leaves[i], marked)
