"""Executables as functions like those that `jax.jit` returns: all of a call is JAX's own C++.

Weights that come with every call, and large ones of executors that want them as arguments, are the
exception: which packed arrays belong to a call is looked up in Python. Arguments and results have
the layouts of the border; a program that was read from a file takes flat arguments
and gives a tuple.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import tree_flatten, tree_flatten_with_path, tree_unflatten

from eqsat.execute.executable import differentiate_as
from eqsat.execute.formats import Formatted, Placing, called_in, flattened, is_told, lying_inputs
from eqsat.execute.lowering import lax_pack, lax_unpack
from eqsat.execute.weights import ahead_nodes
from eqsat.model.executor import Executable
from eqsat.model.layout import Border, Layout, MemoryOrders


def in_layouts(signature: Signature, layouts: Mapping[Border, Layout]) -> Callable[..., Any]:
    """`signature.original` of leaves that come, and results that go, in these layouts."""
    if not layouts:
        return signature.original
    bindings = enumerate(signature.bindings)
    numbers = {at: Border("input", int(key)) for at, (kind, key) in bindings if kind == "input"}
    inputs = {at: layouts[border] for at, border in numbers.items() if border in layouts}

    def original(*leaves: Any) -> Any:
        plain = [lax_unpack(inputs[at], x) if at in inputs else x for at, x in enumerate(leaves)]
        flat, tree = jax.tree_util.tree_flatten(signature.original(*plain))
        borders = (Border("result", number) for number in range(len(flat)))
        pairs = zip(flat, map(layouts.get, borders), strict=True)
        return tree.unflatten([x if held is None else lax_pack(held, x) for x, held in pairs])

    return original


PLAINLY = MemoryOrders()
JITTED = ("lower", "trace", "eval_shape", "clear_cache")  # what a jitted function has besides
PACKED = "_packed"  # the keyword that hands packed weights to a jitted function


class Signature(Protocol):
    """The calling convention of a traced function (a `frontends.jaxpr.Traced` has it)."""

    @property
    def weights(self) -> Mapping[str, Any]:
        """Weights the function closes over, by key."""
        ...

    @property
    def bindings(self) -> Sequence[tuple[str, int | str]]:
        """Per flat argument ("input", its number) or ("weight", its key)."""
        ...

    @property
    def captured(self) -> Sequence[Any]:
        """Tracers of an outer transformation; they are inputs after those of a call."""
        ...

    def flat_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> list[Any]:
        """The program's inputs among the arguments of a call, captured tracers last."""
        ...

    def flat_weights(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Every weight by key, those the call brings included."""
        ...

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the function returns them."""
        ...

    def original(self, *leaves: Any) -> Any:
        """The function itself on flat arguments, captured tracers last."""
        ...


class Callee:
    """One answer with the calling convention of the function it was made from.

    is_input: the answer is the input program, so the function itself runs. layouts: of arguments
    and results that a call brings and gets packed. orders: of those that lie otherwise than their
    shapes say, which stay as they are.
    """

    def __init__(
        self,
        executable: Executable,
        signature: Signature,
        is_input: bool,
        layouts: Mapping[Border, Layout] = MappingProxyType({}),
        orders: MemoryOrders = PLAINLY,
    ):
        self.executable = executable
        self.signature = signature
        self.is_input = is_input
        self.orders = orders
        crossing = {b: held for b, held in layouts.items() if b not in orders.by_border}
        self.original = in_layouts(signature, crossing)

    def __call__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        packed: Mapping[int, Any] | None = None,
    ) -> Any:
        """To be traced. packed: the packed weights if they are there already.

        Derivatives are those of the function itself. EqsatError: E306 if the trees differ from
        those that were traced, E503 if an input does not fit.
        """
        signature, executable = self.signature, self.executable
        orders = self.orders.by_border
        inputs = executable.typed(signature.flat_inputs(args, kwargs), lying_inputs(orders))
        leaves = [*jax.tree_util.tree_leaves((args, kwargs)), *signature.captured]
        if self.is_input:
            return self.original(*leaves)
        ready = self.pack(args, kwargs) if packed is None else packed

        def chosen(packed: Any, inputs: Any, *_: Any) -> Any:
            return signature.unflatten(called_in(executable, orders)(packed, *inputs))

        def original(_: Any, __: Any, *leaves: Any) -> Any:
            return self.original(*leaves)

        return differentiate_as(chosen, original)(ready, inputs, *leaves)

    @property
    def borders(self) -> Sequence[Border | None]:
        """Per leaf of a call the argument that it is; None of a weight."""
        pairs = self.signature.bindings
        return [Border("input", int(key)) if kind == "input" else None for kind, key in pairs]

    @property
    def result_count(self) -> int:
        return len(self.executable.schedule.program.results)

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the function returns them."""
        return self.signature.unflatten(results)

    @functools.cached_property
    def as_original(self) -> Callee:
        """The original function in place of the answer."""
        callee = Callee(self.executable, self.signature, True)
        callee.original = self.original
        return callee

    @functools.cached_property
    def packs_arguments(self) -> bool:
        """Whether packed weights are arguments of what is compiled, and are handed to it.

        They are where something is packed ahead of time from weights that come with a call, and
        where the executor wants them so.
        """
        if self.is_input:
            return False
        if self.executable.weights_are_arguments:
            return True
        program = self.executable.schedule.program
        given = {str(k) for kind, k in self.signature.bindings if kind == "weight"}
        given -= self.signature.weights.keys()
        traced = {i for i in program.weights if program.leaf(i).key in given}
        packed = set(traced)
        for i in ahead_nodes(self.executable.schedule):
            if not packed.isdisjoint(program.nodes[i].operands):
                packed.add(i)
        return packed != traced

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Any]:
        """Packed weights, of the call where it brings some."""
        bound = self.signature.weights
        given = {
            k: x for k, x in self.signature.flat_weights(args, kwargs).items() if k not in bound
        }
        return self.executable.pack(given) if given else self.executable.packed

    @functools.cached_property
    def jitted(self) -> Any:
        """The jitted function; one that is the input compiles to what `jax.jit` makes of it."""
        return jax.jit(self)


class Packing:
    """A jitted function that packs weights among its arguments once per array.

    JAX arrays are distinguished by identity, those of NumPy, which may be written to, by content;
    what was packed is dropped with the array. Weights that are traced are packed in the trace.
    `function` is what is called: a plain `functools.partial`, whose calls are C. What stands behind
    it is this object, or the jitted function alone once it turns out that nothing is packed.
    """

    def __init__(
        self,
        plain: Any,
        find: Callable[..., Callee],
        looks_under_traces: bool = True,
        donate: tuple[str, ...] = (),
    ):
        """plain: the jitted function; find: the callee for (args, kwargs), arrays or tracers.

        donate: names of arguments that every call uses up.

        looks_under_traces: whether a call with some tracers takes packed weights, too; if not, it
        is the jitted function's, which may have derivatives of its own.
        """
        self.plain, self.find, self.looks_under_traces = plain, find, looks_under_traces
        self.donate = donate
        # tree of a call → which of its leaves are weights
        self.weights: dict[Any, tuple[bool, ...]] = {}
        # a call's weights and the forms of its inputs → function, weak references
        self.ready: dict[Any, tuple[Callable[..., Any], list[Any]]] = {}
        self.mains: dict[Callee, Any] = {}  # callee → its jitted function of packed weights
        self.placed: dict[Callee, Formatted] = {}  # those that JAX is told orders of
        with jax.ensure_compile_time_eval():
            self.array = type(jax.device_put(0))  # it has no public name; `isinstance` is slow
        self.function: Any = functools.update_wrapper(functools.partial(self._call), plain)
        for name in JITTED:
            setattr(self.function, name, getattr(plain, name))
        self.function.clear_cache = self.clear  # pyrefly: ignore[missing-attribute] it is made here

    def clear(self) -> None:
        """Forget what was compiled, and the packed weights that it takes."""
        for held in (self.ready, self.mains, self.placed):
            held.clear()
        self.plain.clear_cache()
        self._stand_behind(self._call)

    @property
    def is_packing(self) -> bool:
        """Whether the next call looks weights up."""
        return self.function.func is not self.plain

    def _stand_behind(self, function: Callable[..., Any]) -> None:
        """A `partial` takes another function the way it is unpickled, and in no other."""
        self.function.__setstate__((function, (), {}, vars(self.function)))

    def prepare_for(self, callee: Callee) -> None:
        """Let the next call look weights up if this callee packs some, or has orders."""
        if self._looks_up(callee) and not self.is_packing:
            self._stand_behind(self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        if not self.looks_under_traces and any(isinstance(x, Tracer) for x in leaves):
            return self.plain(*args, **kwargs)
        entry = self.ready.get(self._key(leaves, tree))
        return entry[0](*args, **kwargs) if entry else self._first(args, kwargs, leaves, tree)

    def _key(self, leaves: Sequence[Any], tree: Any) -> Any:
        """Which packed weights a call needs; None if that is not known or they are traced.

        Other calls that have the same key are right, too: a trace finds its own callee.
        """
        which = self.weights.get(tree)
        if which is None:
            return None
        key, array = [tree], self.array
        for x, is_weight in zip(leaves, which, strict=True):
            if type(x) is not array:
                part = _other(x, is_weight)
                if part is None:
                    return None
                key.append(part)
            elif is_weight:
                key.append(id(x))
            else:
                key += (x.shape, x.dtype)
        return tuple(key)

    def _first(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any], tree: Any
    ) -> Any:
        """A call with arrays that were not seen together before."""
        callee = self.find(args, kwargs)
        if not (self._looks_up(callee) or self.mains or self.placed):
            self._stand_behind(self.plain)
            return self.plain(*args, **kwargs)
        if not callee.signature.bindings:  # it is still searched for
            return self.plain(*args, **kwargs)
        which = self.weights[tree] = tuple(k == "weight" for k, _ in callee.signature.bindings)
        key, call = self._key(leaves, tree), self.plain
        if key is None:
            return call(*args, **kwargs)
        if is_told(callee.orders):
            packed = callee.pack(args, kwargs) if callee.packs_arguments else None
            call = functools.partial(self._placed_call, self._formatted(callee, tree), packed)
        elif callee.packs_arguments:
            call = functools.partial(self._main(callee), **{PACKED: callee.pack(args, kwargs)})
        held = [x for x, w in zip(leaves, which, strict=True) if w and _is_array(x)]
        self.ready[key] = call, [weakref.ref(x, self._dropping(key)) for x in held]
        return call(*args, **kwargs)

    def _dropping(self, key: Any) -> Callable[[Any], Any]:
        ready = self.ready
        return lambda _: ready.pop(key, None)

    def _looks_up(self, callee: Callee) -> bool:
        return callee.packs_arguments or is_told(callee.orders)

    def _formatted(self, callee: Callee, tree: Any) -> Formatted:
        """The callee compiled for its orders; made once, as it has one tree."""
        if callee not in self.placed:
            donated = numbers_of(tree, self.plain, self.donate)
            self.placed[callee] = Formatted(callee, tree, donated)
        return self.placed[callee]

    def _placed_call(self, formatted: Formatted, packed: Any, *args: Any, **kwargs: Any) -> Any:
        """A call in orders; under a trace there are none, as values there lie nowhere yet."""
        leaves = flattened(args, kwargs)[0]
        if any(isinstance(x, Tracer) for x in leaves):
            return self.plain(*args, **kwargs)
        return formatted(packed, leaves)

    def found_for(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Formatted | None, Any, list[Any], Any]:
        """Callee of these arguments as formatted, packed weights, leaves and their tree."""
        leaves, tree = flattened(args, kwargs)
        callee = self.find(args, kwargs)
        if not is_told(callee.orders):
            return None, None, leaves, tree
        packed = callee.pack(args, kwargs) if callee.packs_arguments else None
        return self._formatted(callee, tree), packed, leaves, tree

    def _main(self, callee: Callee) -> Any:
        """The jitted function of packed weights and the arguments of a call."""

        def main(*args: Any, **kwargs: Any) -> Any:
            packed = kwargs.pop(PACKED)
            now = self.find(args, kwargs)  # `_key` does not know weak types and JAX's settings
            return now(args, kwargs, packed if now is callee else None)

        if callee not in self.mains:
            wrapped = functools.wraps(self.plain)(main)
            self.mains[callee] = jax.jit(wrapped, donate_argnames=self.donate)
        return self.mains[callee]


def numbers_of(tree: Any, function: Any, names: Sequence[str]) -> list[int]:
    """The leaves of a call that these arguments are made of, by position or by name."""
    if not names:
        return []
    parameters = list(inspect.signature(function).parameters)
    paths, _ = tree_flatten_with_path(tree_unflatten(tree, range(tree.num_leaves)))
    numbers = []
    for number, (path, _) in enumerate(paths):
        (part, *_), (at, *_) = path[:1], path[1:2]
        name = at.key if part.idx else parameters[at.idx] if at.idx < len(parameters) else ""
        numbers += [number] if name in names else []
    return numbers


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray)


def _other(x: Any, is_weight: bool) -> Any:
    """Key of an argument that is no JAX array; None for a traced weight."""
    if not is_weight:
        return (x.shape, x.dtype) if hasattr(x, "shape") else type(x)
    if isinstance(x, Tracer):
        return None
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype.str, hashlib.sha256(x.tobytes()).digest()
    return id(x) if _is_array(x) else (type(x), x)


def compiled(callee: Callee) -> Any:
    """The callee as a function like those of `jax.jit`, with `put` and `formats` (`Placing`)."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return callee(args, kwargs)

    function.__name__ = callee.executable.schedule.program.name
    jitted = jax.jit(function)
    if not (callee.packs_arguments or is_told(callee.orders)):
        return jitted
    return with_placing(Packing(jitted, lambda *_: callee))


def with_placing(packing: Packing) -> Any:
    """The function of a packing, with `put` and `formats`."""
    placing, function = Placing(packing.found_for), packing.function
    function.put, function.formats = placing.put, placing.formats
    return function


@dataclass(frozen=True)
class Positional:
    """The calling convention of a program that no function was traced for: flat, a tuple back."""

    executable: Executable
    orders: MemoryOrders
    weights: Mapping[str, Any] = field(default_factory=dict)
    captured: tuple[Any, ...] = ()

    @property
    def bindings(self) -> Sequence[tuple[str, int | str]]:
        return [("input", n) for n in range(len(self.executable.schedule.program.inputs))]

    def flat_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> list[Any]:
        """The arguments as they are."""
        return list(args)

    def flat_weights(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """No call brings weights."""
        return {}

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as a tuple."""
        return tuple(results)

    def original(self, *leaves: Any) -> Any:
        """The answer itself."""
        run = called_in(self.executable, self.orders.by_border)
        return tuple(run(self.executable.packed, *leaves))
