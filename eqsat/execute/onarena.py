"""The executor `arena`: `execute.arena` under the calls of JAX, slow and to the letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.executable import JaxExecutable
from eqsat.model.control import every_program
from eqsat.model.diag import EqsatError, fail
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.foreign import Opaque
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import DTYPE_NAMES, element_dtype


class ArenaExecutable(JaxExecutable):
    """NumPy behind a callback; compiled calls go without one."""

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        program = self.schedule.program
        self._refuse_opaque()
        results = [program.nodes[r].type for r in program.results]
        numbers = sorted(packed)

        def host(weights: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
            return self._on_host(dict(zip(numbers, weights, strict=True)), inputs)

        return _callback(host, results, [packed[i] for i in numbers], self.typed(inputs))

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        nodes, d = self.schedule.program.nodes, self.schedule.dispatches[number]
        arena = Arena(self.schedule, self.opaque)

        def host(reads: Sequence[Any]) -> list[Any]:
            found = arena.dispatch(d, [_held(x) for x in reads])
            return [_stored(x, nodes[w].type) for x, w in zip(found, d.writes, strict=True)]

        return lambda *reads: _callback(host, [nodes[w].type for w in d.writes], list(reads))

    def compile(self) -> Callable[..., tuple[Any, ...]]:
        packed = {i: np.asarray(x) for i, x in self.packed.items()}
        return lambda *inputs: tuple(self._on_host(packed, self.typed(inputs)))

    def _on_host(self, packed: Mapping[int, Any], inputs: Sequence[Any]) -> list[Any]:
        program = self.schedule.program
        weights = {i: _held(x) for i, x in packed.items()}
        try:
            found = Arena(self.schedule, self.opaque).run([_held(x) for x in inputs], weights)
        except ArenaFault as fault:
            raise _wrong(fault) from None
        types = [program.nodes[r].type for r in program.results]
        return [_stored(x, t) for x, t in zip(found, types, strict=True)]

    def _refuse_opaque(self) -> None:
        """A callback that waits for JAX may wait for ever."""
        nodes = (n for p in every_program(self.schedule.program) for n in p.nodes)
        for n in nodes:
            if isinstance(n.attr, Opaque):
                raise fail(
                    "E512",
                    f"the executor `arena` cannot call `{n.attr.primitive}` in a JAX function",
                    help="`eqsat run` and `run.executable.compile()` can; or take another target",
                )


def _callback(host: Any, results: Sequence[TensorType], *operands: Any) -> tuple[Any, ...]:
    import jax

    shapes = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in results]
    return tuple(jax.pure_callback(host, shapes, *operands, vmap_method="sequential"))


def _held(x: Any) -> np.ndarray[Any, Any]:
    """An array of an element type in held form."""
    array = np.asarray(x)
    return array.astype(scalar.held_dtype(DTYPE_NAMES[array.dtype.name]))


def _stored(x: Any, t: TensorType) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(element_dtype(t.dtype))


def _wrong(fault: ArenaFault) -> EqsatError:
    return fail(
        "E511", f"the schedule cannot run: {fault}", help="search again; if that helps, report it"
    )


ARENA = Executor(
    "arena",
    BUILT_IN["arena"],
    "every dispatch sees the buffers it names, at their offsets in one arena",
    ArenaExecutable,
)
