"""A program as it was read: traced function, weights, opaque calls, layouts of its border.

PRNG keys among arguments: programs hold their data, the traced function gets keys again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.model.diag import Span, fail

if TYPE_CHECKING:
    from eqsat.frontends.opaque import OpaqueCall
    from eqsat.model.layout import Border, Layout
    from eqsat.model.program import Program


def is_key(x: Any) -> bool:
    """Whether this array, tracer or ShapeDtypeStruct holds typed PRNG keys."""
    import jax
    import jax.numpy as jnp

    dtype = getattr(x, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def key_kind(x: Any) -> Any:
    """The `impl` of `jax.random.wrap_key_data` for keys of this kind; None if x has none."""
    import jax

    if not is_key(x):
        return None
    kinds: list[Any] = []

    def look(keys: Any) -> Any:
        kinds.append(jax.random.key_impl(keys))
        return jax.random.key_data(keys)

    jax.eval_shape(look, jax.ShapeDtypeStruct(x.shape, x.dtype))
    return kinds[0]


@dataclass(frozen=True)
class Traced:
    """A traced function, and what is needed to call it with the same pytrees.

    bindings: per flat argument ("input", its number) or ("weight", its key).
    weights: content key → array; a weight given only as a shape or a tracer has no array here,
    its key stands for the argument (`flat_weights` reads it from the arguments of a call).
    captured: tracers of an outer transformation the function closes over, passed after the
    inputs; a Traced with any is good for that transformation only.
    custom_derivatives: the function holds custom derivatives or stop_gradient, which the program
    does not keep; differentiate the function itself, not the program.
    function: what was traced. lifted: its jaxpr where it captures tracers, else None.
    """

    program: Program
    weights: dict[str, np.ndarray[Any, Any]] = field(repr=False)
    opaque: dict[str, OpaqueCall]
    in_tree: Any
    out_tree: Any
    input_paths: tuple[str, ...]
    bindings: tuple[tuple[str, int | str], ...]
    captured: tuple[Any, ...] = ()
    custom_derivatives: bool = False
    function: Callable[..., Any] | None = field(default=None, repr=False, compare=False)
    lifted: Any = field(default=None, repr=False, compare=False)

    def flat_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> list[Any]:
        """The program's inputs for a call, captured tracers last; E306 if the trees differ."""
        flat = self._flatten(args, kwargs)
        given = [x for x, (kind, _) in zip(flat, self.bindings, strict=True) if kind == "input"]
        return [*given, *self.captured]

    def flat_weights(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """key → array for every weight: those of the call where the key stands for an argument."""
        arrays: dict[str, Any] = dict(self.weights)
        for x, (kind, key) in zip(self._flatten(args, kwargs), self.bindings, strict=True):
            if kind == "weight" and key not in self.weights:
                arrays[str(key)] = x
        return arrays

    @property
    def input_labels(self) -> tuple[str, ...]:
        """Per input of the program its path in the arguments, e.g. `cache[0][1]`."""
        pairs = zip(self.input_paths, self.bindings, strict=True)
        return tuple(path for path, (kind, _) in pairs if kind == "input")

    def with_weights(self, program: Program, keys: Mapping[int, str]) -> Traced:
        """This call, of a program in which the inputs of these numbers are weights."""
        bindings: list[tuple[str, int | str]] = []
        left = 0
        for kind, at in self.bindings:
            if kind == "input" and at not in keys:
                bindings.append(("input", left))
                left += 1
            else:
                bindings.append(("weight", keys[int(at)]) if kind == "input" else (kind, at))
        return replace(self, program=program, bindings=tuple(bindings))

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the tree the function returns."""
        import jax

        return jax.tree_util.tree_unflatten(self.out_tree, list(results))

    def original(self, *leaves: Any) -> Any:
        """The function itself on the leaves of its arguments, captured tracers last."""
        import jax

        if self.lifted is not None:
            return self._lifted(leaves)
        assert self.function is not None
        args, kwargs = jax.tree_util.tree_unflatten(self.in_tree, leaves)
        return self.function(*args, **kwargs)

    def _lifted(self, leaves: Sequence[Any]) -> Any:
        """The captured tracers are arguments here, so that derivatives reach them."""
        from jax.core import Tracer
        from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

        count = len(leaves) - len(self.captured)
        given = iter(leaves[count:])
        consts = [next(given) if isinstance(c, Tracer) else c for c in self.lifted.consts]
        values = [key_data(x) for x in leaves[:count]]
        return self.unflatten(jaxpr_as_fun(ClosedJaxpr(self.lifted.jaxpr, consts))(*values))

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Any]:
        import jax

        flat, tree = jax.tree_util.tree_flatten((args, kwargs or {}))
        if tree != self.in_tree:
            raise fail("E306", f"`{self.program.name}` was traced with {self.in_tree}, not {tree}")
        return [key_data(x) for x in flat]


def key_data(x: Any) -> Any:
    """The data of a PRNG key, which programs hold; anything else as it is."""
    import jax

    if not is_key(x):
        return x
    data_of = jax.random.key_data
    return jax.eval_shape(data_of, x) if isinstance(x, jax.ShapeDtypeStruct) else data_of(x)


@dataclass(frozen=True)
class Source:
    """A program with its weights by content hash and its opaque calls by key."""

    program: Program
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    opaque: Mapping[str, Any] = field(default_factory=dict)
    traced: Traced | None = None
    places: Mapping[Border, Span] = field(default_factory=dict)  # where layouts are stated
    layouts: Mapping[Border, Layout] = field(default_factory=dict)  # of what crosses packed
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that its file leaves open
