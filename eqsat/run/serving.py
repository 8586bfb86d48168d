"""A loaded run in use: called as the function that was traced, with its weights or others.

What a call has shown on this machine is kept: that the answer is right and quick there (`marks`),
and beside the kernels which parts a call needs. A later process neither checks nor plans it again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from eqsat.run.convention import Convention
from eqsat.run.marks import agreed_before, note_agreement
from eqsat.run.run import Run

if TYPE_CHECKING:
    from eqsat.model.leaves import Leaf

NEVER, FIRST = "never", "first"  # words of `execute.beside`, which takes long to import


def served(run: Run, convention: Convention, check: str, race: bool) -> Any:
    """The function of a loaded run; one for the same words."""
    key = convention.name, check, race
    if key not in run.use.functions:
        function = Served(run, convention, check, race)
        run.use.functions[key] = function
        if run.orders is not None:
            _place(function, function.flat)
    return run.use.functions[key]


class Served:
    """A loaded run by its calling convention; threads may share it.

    Weights that a call brings are packed once per array; those that it leaves out are as they were.
    """

    def __init__(self, run: Run, convention: Convention, check: str, race: bool):
        self.run, self.convention, self.check, self.race = run, convention, check, race
        self.__name__ = convention.name
        self.lock = threading.RLock()
        self.held: dict[str, Any] = {}  # weights that calls brought
        self.recorded: Callable[..., Any] | None = None  # of what an earlier process recorded
        self.is_ready = self.is_kept = False

    def __repr__(self) -> str:
        parameters = ", ".join(self.convention.arguments)
        return f"<{self.convention.name}({parameters}): {self.run!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from jax.core import Tracer

        convention, run = self.convention, self.run
        inputs, weights = convention.split(args, kwargs)
        if any(isinstance(w, Tracer) for w in weights.values()):
            packed = run.executable.pack(weights)
            return convention.unflatten(run.executable.run(packed, *inputs))
        if any(w is not self.held.get(key) for key, w in weights.items()):
            self._take(weights)
        if not self.is_ready:
            self._prepare()
        is_plain = not (run.use.weights or any(isinstance(x, Tracer) for x in inputs))
        if self.recorded is not None and is_plain:
            return convention.unflatten(self.recorded(*inputs))
        results = self.flat(*inputs)
        if self.check == NEVER and is_plain and not self.is_kept:
            self._keep()
        return convention.unflatten(results)

    @property
    def flat(self) -> Any:
        """The function of flat inputs by the executable, checked unless that was done before."""
        from eqsat.run.calling import flat_function

        return flat_function(self.run, self.check, self.race, self._prove)

    def _take(self, weights: Mapping[str, Any]) -> None:
        with self.lock:
            use_keyed(self.run, weights)
            self.held.update(weights)

    def _prepare(self) -> None:
        """Look for what an earlier process recorded."""
        from eqsat.execute.kernels.compiler import OBJECTS
        from eqsat.execute.kernels.recorded import called_again

        with self.lock:
            if self.is_ready or self.check not in (FIRST, NEVER):
                return
            name = _call_key(self.run)
            data = OBJECTS.read(name) if name else None
            call = None if data is None else json.loads(data)
            if agreed_before(self.run, self.race):
                self.check, self.is_kept = NEVER, call is not None
            if self.check == NEVER and call and not self.run.use.weights:
                self.recorded = called_again(call, self.run.packed_file)
            self.is_ready = True

    def _prove(self) -> None:
        if not self.run.use.weights:
            note_agreement(self.run, self.race)
        self._keep()

    def _keep(self) -> None:
        from eqsat.execute.kernels.compiler import OBJECTS
        from eqsat.execute.kernels.recorded import recorded

        self.is_kept, name = True, _call_key(self.run)
        if name and not self.run.use.weights:
            OBJECTS.write({name: json.dumps(recorded(self.run.executable)).encode()})


def _place(function: Any, flat: Any) -> None:
    """Give a function by a convention what one of flat inputs has: `put` and `formats`."""
    convention: Convention = function.convention

    def put(*args: Any, **kwargs: Any) -> Any:
        inputs, _ = convention.split(args, kwargs)
        given, named = convention.replaced(args, kwargs, flat.put(*inputs))
        return (given, named) if kwargs else given

    def formats(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs, _ = convention.split(args, kwargs)
        (came, _), goes = flat.formats(*inputs)
        given = convention.replaced(args, kwargs, came, plainly=True)
        return given, None if goes is None else convention.unflatten(goes)

    function.put, function.formats = put, formats


# ---- other weights -------------------------------------------------------------------------------
def swap_weights(run: Run, weights: Any) -> None:
    """Arrays in place of those that were saved; EqsatError E324, E503 as `eqsat.load` has them."""
    convention = run.convention
    if convention is None:
        run.use_weights(weights)
        return
    use_keyed(run, convention.weights_of(weights, {w.name: w.key for w in _leaves(run)}))


def use_keyed(run: Run, weights: Mapping[str, Any]) -> None:
    """Set these arrays as weights, by key; EqsatError E503."""
    run.use_weights({w.name: weights[w.key] for w in _leaves(run) if w.key in weights})


def _leaves(run: Run) -> list[Leaf]:
    return [run.program.leaf(i) for i in run.program.weights]


def _call_key(run: Any) -> str:
    """Name of the parts that a call of a run as it was saved needs; "" where none is trusted."""
    from eqsat.execute.kernels import linked

    host = linked.host_key()
    seal = getattr(run, "seal", "")
    return linked.key("call", seal, host, version("jaxlib")) if seal and host else ""
