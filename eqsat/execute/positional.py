"""How a program is called that was read from a file: flat arguments, and a tuple back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.execute.ordered import called_in
from eqsat.model.executor import Executable
from eqsat.model.orders import MemoryOrders


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
