"""Lines of MLIR as they are written, with names that occur once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.export.mlir import syntax
from eqsat.model.precision import DEFAULT, NONE
from eqsat.model.tensor import TensorType


@dataclass(frozen=True)
class Value:
    """A tensor by its name in the text."""

    name: str
    type: TensorType


class Writer:
    """Appends ops to the body of one function; methods return the name of the value they made."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def fresh(self) -> str:
        """An unused name."""
        self._count += 1
        return f"%t{self._count}"

    def line(self, text: str, depth: int = 2) -> None:
        """One more line."""
        self.lines.append(f"{'  ' * depth}{text}")

    def op(self, text: str, name: str = "") -> str:
        """An op with one result, named `name` or afresh."""
        found = name or self.fresh()
        self.line(f"{found} = {text}")
        return found

    def constant(self, value: bool | int | float, dtype: str) -> str:
        """A scalar constant."""
        literal = syntax.scalar(value, dtype)
        typed = literal if dtype == "bool" else f"{literal} : {syntax.element(dtype)}"
        return self.op(f"arith.constant {typed}")

    def empty(self, t: TensorType) -> str:
        """A tensor of which no element is read."""
        return self.op(f"tensor.empty() : {syntax.tensor(t)}")

    def filled(self, value: bool | int | float, t: TensorType) -> str:
        """A tensor that holds one value, to be written over."""
        into, text = self.empty(t), syntax.tensor(t)
        start = self.constant(value, t.dtype)
        return self.op(
            f"linalg.fill ins({start} : {syntax.element(t.dtype)}) outs({into} : {text}) -> {text}"
        )

    def structured(
        self,
        name: str,
        maps: Sequence[str],
        iterators: Sequence[str],
        ins: Sequence[tuple[str, TensorType]],
        outs: Sequence[tuple[str, TensorType]],
        precision: str = NONE,
    ) -> None:
        """The head of a `linalg.generic`, up to its block; `line` writes what follows.

        linalg has no precisions: one that is not the default is an attribute of ours.
        """
        kinds = ", ".join(f'"{k}"' for k in iterators)
        several = f":{len(outs)}" if len(outs) > 1 else ""
        self.line(f"{name}{several} = linalg.generic {{indexing_maps = [{', '.join(maps)}],")
        own = "" if precision in (NONE, DEFAULT) else f', eqsat.precision = "{precision}"'
        self.line(f"  iterator_types = [{kinds}]{own}}}{_operands('ins', ins)}")
        self.line(f" {_operands('outs', outs)} {{")


def _operands(word: str, values: Sequence[tuple[str, TensorType]]) -> str:
    if not values:
        return ""
    names = ", ".join(v for v, _ in values)
    return f" {word}({names} : {', '.join(syntax.tensor(t) for _, t in values)})"
