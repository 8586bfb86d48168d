"""Options as a table: all of a program's, without an object each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.timetable import BEGIN
from eqsat.extract.candidates.variants import Variant
from eqsat.extract.ragged import Ints, Mask, Ragged


@dataclass(frozen=True)
class OptionTable:
    """Row by row an option (`Variant`) without its moment; sets of buffers are ascending.

    `candidate` numbers the candidates they are made from; `extras` are the buffers written beside
    the candidate's own results, `computes` the values it computes anew,
    `serves` those that are made of what it computes (`cover.served_values`).
    """

    candidates: CandidateTable
    candidate: Ints  # [options]
    adds: Ints  # [options, goals]
    is_asked: Mask  # whether the time is that of the plan, or else a floor of it
    reads: Ragged
    resident: Ragged
    writes: Ragged
    extras: Ragged
    exclusive: Ragged
    computes: Ragged
    serves: Ragged
    is_conversion: Mask
    last: Ints  # the last block that it touches

    def __len__(self) -> int:
        return len(self.candidate)

    def take(self, rows: Ints) -> OptionTable:
        """These options, in this order."""

        def part(value: Any) -> Any:
            return value.take(rows) if isinstance(value, Ragged) else value[rows]

        parts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "candidates"}
        return replace(self, **{name: part(value) for name, value in parts.items()})

    def single_ops(self, space: Space) -> Mask:
        """Per option: whether its candidate is one op alone."""
        members = self.candidates.columns["members"]
        is_op = np.array(space.is_op, dtype=np.int64)
        ops = members.sums(is_op[members.index])
        return ops[self.candidate] <= 1

    def variants(self, space: Space, rows: Iterable[int]) -> tuple[Variant, ...]:
        """These options as objects."""
        return tuple(self._variant(space, int(i)) for i in rows)

    def _variant(self, space: Space, i: int) -> Variant:
        c = self.candidates[int(self.candidate[i])]
        sinks = dict.fromkeys(space.buffer[w] for w in c.writes)
        return Variant(
            c,
            BEGIN,
            tuple(self.adds[i].tolist()),
            frozenset(self.reads[i].tolist()),
            frozenset(self.resident[i].tolist()),
            (*sinks, *self.extras[i].tolist()),
            frozenset(self.exclusive[i].tolist()),
            bool(self.is_conversion[i]),
        )

    @staticmethod
    def stacked(parts: Sequence[OptionTable]) -> OptionTable:
        """Options of the same candidates, one table below the other."""

        def column(name: str) -> Any:
            found = [getattr(p, name) for p in parts]
            is_ragged = isinstance(found[0], Ragged)
            return Ragged.stacked(found) if is_ragged else np.concatenate(found)

        names = [f.name for f in fields(OptionTable) if f.name != "candidates"]
        return replace(parts[0], **{name: column(name) for name in names})
