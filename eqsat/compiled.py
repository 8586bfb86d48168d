"""An executable behind the calling convention of the function it was traced from."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import fail

if TYPE_CHECKING:
    from eqsat.execute.xla import Executable
    from eqsat.frontends.jaxpr import Traced

KEPT = 4  # sets of packed weights kept, for callers that switch between models


class Compiled:
    """A plain JAX callable: arguments and results as the traced function has them.

    Without a trace (programs read from text) it takes flat inputs and returns a tuple. Weights
    that are arguments are packed once per set of arrays; arrays are told apart by identity, NumPy
    arrays by content, as they can be written to.
    """

    def __init__(self, executable: Executable, traced: Traced | None):
        self.executable = executable
        self.traced = traced
        self._kept: OrderedDict[Any, tuple[Any, dict[int, Any]]] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.traced is None:
            if kwargs:
                raise fail("E503", "this program takes its inputs by position")
            return self.executable(*args)
        inputs = self.traced.flat_inputs(args, kwargs)
        weights = self.traced.flat_weights(args, kwargs)
        results = self.executable(*inputs, packed=self._packed(weights))
        return self.traced.unflatten(results)

    def flat(self, *inputs: Any) -> tuple[Any, ...]:
        """Flat inputs with the weights of the trace; flat results."""
        return self.executable(*inputs)

    def _packed(self, weights: dict[str, Any]) -> dict[int, Any] | None:
        import jax

        assert self.traced is not None
        if weights.keys() == self.traced.weights.keys():
            return None  # nothing but what the function closes over: the executable's own
        if any(isinstance(w, jax.core.Tracer) for w in weights.values()):
            return self.executable.pack(weights)
        key = tuple((k, _identity(w)) for k, w in sorted(weights.items()))
        if key not in self._kept:
            self._kept[key] = (weights, self.executable.pack(weights))  # keeps identities alive
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][1]


def _identity(array: Any) -> Any:
    import numpy as np

    if isinstance(array, np.ndarray):
        from eqsat.frontends.values import weight_key

        return weight_key(array)
    return id(array)
