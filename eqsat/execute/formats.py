"""Jitted functions whose arguments and results lie in chosen orders of dims (JAX's `Format`s).

Shapes are as they were: only where elements lie in memory is another. An array that lies otherwise
is laid out anew by the call that gets it, each time; `put` does that once.

The schedule has such an argument as the transposed one, whose bytes are the same. Where that is
said with a transpose, XLA sees that it moves nothing: on accelerators it is free. XLA:CPU would
move the transpose into a product and copy there, so it is kept where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding
from jax.tree_util import tree_flatten, tree_leaves, tree_map, tree_unflatten

from eqsat.model.executor import Executable
from eqsat.model.layout import SEARCH, Border, MemoryOrders
from eqsat.ops.movement.lists import inverse

ByBorder = Mapping[Border, tuple[int, ...]]


def as_scheduled(x: Any, order: tuple[int, ...]) -> Any:
    """An array that lies in this order as the schedule has it: row by row, its dims reordered."""
    return _in_place(lax.transpose(x, order))


def as_called(x: Any, order: tuple[int, ...]) -> Any:
    """Undo `as_scheduled`."""
    return lax.transpose(_in_place(x), inverse(order))


def _in_place(x: Any) -> Any:
    return lax.platform_dependent(x, cpu=lax.optimization_barrier, default=lambda x: x)


def lying_inputs(orders: ByBorder) -> dict[int, tuple[int, ...]]:
    """Number of an argument → its order."""
    return {b.number: order for b, order in orders.items() if b.kind == "input"}


def lying_results(orders: ByBorder) -> dict[int, tuple[int, ...]]:
    """Number of a result → its order."""
    return {b.number: order for b, order in orders.items() if b.kind == "result"}


def run_in_orders(
    run: Callable[..., Sequence[Any]], orders: ByBorder, packed: Any, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """`run` of a schedule, with arguments and results of the shapes that the caller knows."""
    came, goes = lying_inputs(orders), lying_results(orders)
    turned = [as_scheduled(x, came[i]) if i in came else x for i, x in enumerate(inputs)]
    results = run(packed, *turned)
    return tuple(as_called(x, goes[r]) if r in goes else x for r, x in enumerate(results))


def called_in(executable: Executable, orders: ByBorder) -> Callable[..., tuple[Any, ...]]:
    """`executable.run` with arguments and results of the shapes that the caller knows."""
    if not orders:
        return executable.run
    run_ordered = getattr(executable, "run_in_orders", None)  # of executors that need no transpose

    def run(packed: Any, *inputs: Any) -> tuple[Any, ...]:
        if run_ordered is not None:
            return run_ordered(orders, packed, *inputs)
        return run_in_orders(executable.run, orders, packed, inputs)

    return run


_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
OTHER_LAYOUT = "Layout passed to jit does not match"  # how JAX refuses a committed array


class Placeable(Protocol):
    """Callee of a formatted call (a `calls.Callee`): its orders, and how it takes arguments."""

    orders: MemoryOrders

    @property
    def borders(self) -> Sequence[Border | None]:
        """Per leaf of a call its argument; None of a weight, and of what is no plain array."""
        ...

    @property
    def result_count(self) -> int: ...
    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the function returns them."""
        ...

    def __call__(self, args: Any, kwargs: Any, packed: Any = None) -> Any:
        """To be traced."""
        ...


def is_told(orders: MemoryOrders) -> bool:
    """Whether JAX has to be told of an order, or may choose one."""
    return bool(orders.chosen) or may_choose(orders)


def may_choose(orders: MemoryOrders) -> bool:
    """Whether the compiler chooses orders; XLA:CPU has but one for what it computes."""
    return bool(orders.left or orders.compiler) and jax.default_backend() != "cpu"


class Formatted:
    """One callee compiled for arguments and results in its orders.

    tree: of a call, (args, kwargs); donated: numbers of leaves that it uses up. sharding: of the
    device it is for, the default one if None. choosing: whether what is left free may be the
    compiler's (`Layout.AUTO`); None: on accelerators. Of what is free for the search as well, the
    compiler chooses only if it states fewer cycles for that.
    """

    def __init__(
        self,
        callee: Placeable,
        tree: Any,
        donated: Sequence[int] = (),
        sharding: Any = None,
        choosing: bool | None = None,
    ):
        self.callee, self.tree, self.donated = callee, tree, tuple(sorted(donated))
        self.elsewhere = sharding  # of what JAX is told no order of
        self.sharding = sharding or SingleDeviceSharding(_default_device())
        self.choosing = may_choose(callee.orders) if choosing is None else choosing
        self.left: frozenset[Border] = frozenset(callee.orders.compiler)
        self.plain: frozenset[Border] = frozenset()  # ordered by the search, and not in its order
        self._ask()
        self._compiled: dict[Any, Any] = {}
        self._formats: dict[Any, tuple[list[Any], list[Any]]] = {}

    def _ask(self) -> None:
        """The formats to ask JAX for, and the function that is jitted with them."""
        results = range(self.callee.result_count)
        borders = self.callee.borders
        self.asked_in = [self.elsewhere if b is None else self._asked(b) for b in borders]
        self.asked_out = [self._asked(Border("result", r)) for r in results]
        self.jitted = self._jitted()

    def _asked(self, border: Border) -> Any:
        order = self.callee.orders.by_border.get(border)
        if self.choosing and border in self.left:
            return Format(Layout.AUTO, self.sharding)
        if order is not None and border not in self.plain:
            return Format(Layout(major_to_minor=order), self.sharding)
        return self.elsewhere

    def _jitted(self) -> Any:
        """The jitted function of (packed weights, *leaves of a call)."""

        def function(packed: Any, *leaves: Any) -> Any:
            args, kwargs = tree_unflatten(self.tree, leaves)
            return self.callee(args, kwargs, packed)

        told = any(f is not None for f in self.asked_out)
        return jax.jit(
            function,
            in_shardings=(None, *self.asked_in),
            out_shardings=self.callee.unflatten(self.asked_out) if told else None,
            donate_argnums=tuple(n + 1 for n in self.donated),
        )

    def compile(self, packed: Any, leaves: Sequence[Any]) -> Any:
        """The executable for these arrays or shapes (`jax.stages.Compiled`).

        A state that the compiler would give back in another format than it came is asked for in
        that one, so that it is written in place.
        """
        shapes = [_shape(x) for x in leaves]
        key = tuple((s.shape, s.dtype, s.weak_type) for s in shapes)
        if key not in self._compiled:
            given = tree_map(_shape, packed)
            self._compiled[key] = self._best(given, shapes)
        return self._compiled[key]

    def _best(self, packed: Any, shapes: Sequence[Any]) -> Any:
        """Compiled program of fewest stated cycles, by the free orders left to the compiler: all,
        all but state, or none.

        The same with what the search ordered, as the compiler may know a better order of that, and
        that plain.
        Where it states none, as compilers for GPUs do, nothing speaks for another order.
        """
        orders = self.callee.orders
        state = {Border("input", a) for a, _ in orders.ties}
        state |= {Border("result", r) for _, r in orders.ties}
        by_compiler, free = frozenset(orders.compiler), frozenset(orders.left)
        ordered = frozenset(o.border for o in orders.chosen if o.by == SEARCH)
        every, none = free | ordered, frozenset[Border]()
        lefts = [
            by_compiler,
            by_compiler | (free - state),
            by_compiler | free,
            by_compiler | (every - state),
            by_compiler | every,
        ]
        ways = [(left, none) for left in lefts] + [(by_compiler, ordered - state)]
        ways = ways if self.choosing else ways[:1]
        best: tuple[float, Any, tuple[frozenset[Border], frozenset[Border]]] | None = None
        for way in dict.fromkeys(ways):
            self.left, self.plain = way
            self._ask()
            compiled = self._compile(packed, shapes)
            if self._tied(compiled):
                self.jitted = self._jitted()
                compiled = self._compile(packed, shapes)
            cycles = stated_cycles(compiled)
            if best is None or cycles < best[0]:
                best = cycles, compiled, way
            if not cycles:
                break
        assert best is not None
        self.left, self.plain = best[2]
        return best[1]

    def _compile(self, packed: Any, shapes: Sequence[Any]) -> Any:
        """For the platform of the device, which may be another than that of this process."""
        (device, *_) = self.sharding.device_set
        lowered = self.jitted.trace(packed, *shapes).lower(lowering_platforms=(device.platform,))
        return lowered.compile()

    def _tied(self, compiled: Any) -> bool:
        """Whether a state has to be asked for in one format; then it is."""
        came, goes = formats_of(compiled)
        numbers = {b: n for n, b in enumerate(self.callee.borders) if b is not None}
        changed = False
        for argument, result in self.callee.orders.ties:
            at = numbers.get(Border("input", argument))
            if at in self.donated and came[at].layout != goes[result].layout:
                self.asked_in[at] = self.asked_out[result] = came[at]
                changed = True
        return changed

    def put(self, packed: Any, leaves: Sequence[Any]) -> list[Any]:
        """The leaves of a call as arrays in the formats in which it takes them."""
        if self.choosing:
            pairs = zip(self.formats(packed, leaves)[0], leaves, strict=True)
            return [x if _lies(x, f) else jax.device_put(x, f) for f, x in pairs]
        return self._put(self.asked_in, leaves)

    def formats(self, packed: Any, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The formats of the leaves of a call, and of its flat results."""
        compiled = self.compile(packed, leaves)
        if compiled not in self._formats:
            self._formats[compiled] = formats_of(compiled)
        return self._formats[compiled]

    def _put(self, formats: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        pairs = zip(formats, self.asked_in, leaves, strict=True)
        return [jax.device_put(x, f) if isinstance(asked, Format) else x for f, asked, x in pairs]

    def __call__(self, packed: Any, leaves: Sequence[Any]) -> Any:
        """A call; arrays that lie otherwise are laid out anew."""
        if not self.choosing:
            try:
                return self.jitted(packed, *leaves)
            except ValueError as error:
                if OTHER_LAYOUT not in str(error):
                    raise
            return self.jitted(packed, *self._put(self.asked_in, leaves))
        compiled = self.compile(packed, leaves)
        pairs = zip(self.formats(packed, leaves)[0], leaves, strict=True)
        return compiled(packed, *(x if _lies(x, f) else jax.device_put(x, f) for f, x in pairs))


def formats_of(compiled: Any) -> tuple[list[Any], list[Any]]:
    """The formats of the leaves of a call, without packed weights, and of the flat results."""
    (_, *came), _ = compiled.input_formats
    return came, tree_leaves(compiled.output_formats)


def _lies(x: Any, wanted: Any) -> bool:
    return isinstance(x, jax.Array) and getattr(x, "format", None) == wanted


def stated_cycles(compiled: Any) -> int:
    """Cycles that a compiler states for the ops of the entry, as that of TPUs does; 0: none."""
    text = compiled.as_text()
    return sum(map(int, _CYCLES.findall(text[text.find("\nENTRY ") :])))


def _default_device() -> Any:
    default: Any = getattr(jax.config, "jax_default_device")  # noqa: B009 - it has no type
    if isinstance(default, str):
        return jax.devices(default)[0]
    return default or jax.devices()[0]


def _shape(x: Any) -> Any:
    if isinstance(x, jax.ShapeDtypeStruct):
        return x
    of = jax.typeof(x)
    return jax.ShapeDtypeStruct(of.shape, of.dtype, weak_type=bool(getattr(of, "weak_type", False)))


class Placing:
    """`put` and `formats` of what `eqsat.jit` returns: arrays in the formats that a call takes.

    find: what a call with these arguments runs, with its packed weights and leaves.
    """

    def __init__(self, find: Any):
        self.find = find

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """These arguments as arrays that a call takes as they lie, so that none is laid out anew.

        A tuple of the positional ones; (args, kwargs) where there are others.
        """
        formatted, packed, leaves, tree = self.find(args, kwargs)
        placed = leaves if formatted is None else formatted.put(packed, leaves)
        given, named = tree_unflatten(tree, placed)
        return (given, named) if kwargs else given

    def formats(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The formats of the arguments, as a tree of (args, kwargs), and of the results.

        None of an argument that JAX is not told of.
        """
        formatted, packed, leaves, tree = self.find(args, kwargs)
        if formatted is None:
            return tree_unflatten(tree, [None] * len(leaves)), None
        came, goes = formatted.formats(packed, leaves)
        return tree_unflatten(tree, came), formatted.callee.unflatten(goes)


def flattened(args: Any, kwargs: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """The leaves of a call and its tree."""
    return tree_flatten((args, dict(kwargs)))


def scheduled_call(executable: Executable, orders: MemoryOrders) -> Callable[..., tuple[Any, ...]]:
    """Flat inputs and results as the schedule has them, by a call of the arrays a caller has.

    So what hands orders over is checked with what computes.
    """
    came, goes = lying_inputs(orders.by_border), lying_results(orders.by_border)
    run = called_in(executable, orders.by_border)
    sharding = SingleDeviceSharding(_default_device())

    def told(order: tuple[int, ...] | None) -> Any:
        return None if order is None else Format(Layout(major_to_minor=order), sharding)

    program = executable.schedule.program
    formats = [told(came.get(i)) for i in range(len(program.inputs))]
    results = tuple(told(goes.get(r)) for r in range(len(program.results)))
    outs = results if any(r is not None for r in results) else None
    jitted = jax.jit(run, in_shardings=(None, *formats), out_shardings=outs)
    packed = executable.packed

    def call(*inputs: Any) -> tuple[Any, ...]:
        turned = [
            jax.device_put(np.transpose(np.asarray(x), inverse(came[i])), formats[i])
            if i in came else x
            for i, x in enumerate(inputs)
        ]  # fmt: skip
        results = jitted(packed, *executable.typed(turned, came))
        return tuple(
            np.transpose(np.asarray(x), goes[r]) if r in goes else x for r, x in enumerate(results)
        )

    return call
