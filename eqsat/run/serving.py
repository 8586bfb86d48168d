"""A loaded run in use: called as the function that was traced, with its weights or others.

What a call has shown on this machine is kept beside the kernels: that the answer is right and quick
there, and which parts a call needs. A later process neither checks nor plans it again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.model.leaves import Leaf
    from eqsat.run.convention import Convention
    from eqsat.run.run import Run

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

        agreed = self._prove if self.race else None
        return flat_function(self.run, self.check, self.race, agreed)

    def _take(self, weights: Mapping[str, Any]) -> None:
        with self.lock:
            use_keyed(self.run, weights)
            self.held.update(weights)

    def _prepare(self) -> None:
        """Look for what an earlier process recorded."""
        with self.lock:
            if self.is_ready or self.check not in (FIRST, NEVER):
                return
            record = kept_record(self.run)
            if record.get("agreed"):
                self.check, self.is_kept = NEVER, record["call"] is not None
            if self.check == NEVER and record.get("call") and not self.run.use.weights:
                from eqsat.execute.kernels.recorded import called_again

                self.recorded = called_again(record["call"], self.run.packed_file)
            self.is_ready = True

    def _prove(self) -> None:
        self.is_kept = True
        keep_record(self.run, agreed=True)

    def _keep(self) -> None:
        """Record a call that was not checked; what another process has agreed stays."""
        self.is_kept = True
        keep_record(self.run, agreed=bool(kept_record(self.run).get("agreed")))


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


# ---- what a call has shown on this machine -------------------------------------------------------
def _record_key(run: Any) -> str:
    """Name of the record of a run as it was saved; "" where none may be trusted."""
    from eqsat.execute.kernels import linked

    host = linked.host_key()
    seal = getattr(run, "seal", "")
    return linked.key("call", seal, host, version("jaxlib")) if seal and host else ""


def kept_record(run: Run) -> dict[str, Any]:
    """What is kept of a run, {} if nothing is.

    agreed: whether a call was checked. call: as `kernels.recorded` has it, or None.
    """
    from eqsat.execute.kernels.compiler import OBJECTS

    name = _record_key(run)
    data = OBJECTS.read(name) if name else None
    return {} if data is None else json.loads(data)


def keep_record(run: Run, agreed: bool) -> None:
    """Record a run that was called, if it is the one that was saved."""
    from eqsat.execute.kernels.compiler import OBJECTS
    from eqsat.execute.kernels.recorded import recorded

    name = _record_key(run)
    if name and not run.use.weights:
        record = {"agreed": agreed, "call": recorded(run.executable)}
        OBJECTS.write({name: json.dumps(record).encode()})
