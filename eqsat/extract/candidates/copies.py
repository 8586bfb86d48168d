"""Candidates that are those of another block: which one, and how many blocks later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.legality import Legality
from eqsat.extract.candidates.shifted import BlockPlace, Shifted
from eqsat.model.selection import Removed


@dataclass(frozen=True)
class Copies:
    """Copy i is direct candidate `origin[i]`, `blocks[i]` blocks later (earlier if negative)."""

    origin: np.ndarray
    blocks: np.ndarray
    shifted: Shifted | None  # None: there are no copies
    sinks: tuple[int, int]  # nodes behind which there are direct candidates, and copies

    def __len__(self) -> int:
        return len(self.origin)

    def of(self, direct: Sequence[Candidate]) -> Iterator[Candidate]:
        """The copies themselves."""
        if self.shifted is None:
            return
        images = {int(k): self.shifted.images(int(k)) for k in np.unique(self.blocks)}
        for i, k in zip(self.origin.tolist(), self.blocks.tolist(), strict=True):
            yield images[k].candidate(direct[i])


@dataclass
class SinkRun:
    """Direct candidates [begin, end) of one enumeration and where else they are."""

    begin: int
    end: int
    block: int  # where they are, from the first that looks alike
    blocks: list[int] = field(default_factory=list)  # of the copies, from there


@dataclass
class Book:
    """What was enumerated directly, in runs that are copied as a whole."""

    shifted: Shifted | None
    direct: list[Candidate] = field(default_factory=list)
    runs: list[SinkRun] = field(default_factory=list)
    copied: dict[int, frozenset[int]] = field(default_factory=dict)  # of single candidates

    def place(self, sink: int) -> BlockPlace:
        """Where a node is among those with the same groups."""
        known = None if self.shifted is None else self.shifted.sinks.get(sink)
        return BlockPlace(sink, 0) if known is None else known

    def buffers(self, buffers: Iterable[int], blocks: int) -> list[int]:
        """These so many blocks later."""
        if not blocks or self.shifted is None:
            return list(buffers)
        image = self.shifted.images(blocks).buffer
        return [image[b] for b in buffers]

    def moved(self, candidates: Iterable[Candidate], blocks: int) -> Iterator[Candidate]:
        """These so many blocks later."""
        if not blocks or self.shifted is None:
            return iter(candidates)
        return map(self.shifted.images(blocks).candidate, candidates)

    def add(self, candidates: Sequence[Candidate], block: int = 0) -> SinkRun:
        """Write down what was enumerated there."""
        run = SinkRun(len(self.direct), len(self.direct) + len(candidates), block)
        self.direct += candidates
        self.runs.append(run)
        return run

    def copies(self, sinks: tuple[int, int]) -> Copies:
        """All copies; `sinks` as there."""
        origin = [np.empty(0, np.int64)]
        blocks = [np.empty(0, np.int64)]
        for run in self.runs:
            for k in run.blocks:
                origin.append(np.arange(run.begin, run.end))
                blocks.append(np.full(run.end - run.begin, k))
        if self.copied:
            ordered = {b: np.array(sorted(b), np.int64) for b in set(self.copied.values())}
            found = [ordered[b] for b in self.copied.values()]
            origin.append(np.repeat(list(self.copied), list(map(len, found))))
            blocks.append(np.concatenate(found))
        found = np.concatenate(origin), np.concatenate(blocks)
        return Copies(*found, self.shifted if len(found[0]) else None, sinks)

    def crowded(self, legality: Legality) -> tuple[Removed, ...]:
        """Dispatches that a limit of the target refused, and their copies."""
        found = {r.what: r for r in legality.all_crowded}
        if self.shifted is not None and found:
            for k in sorted({k for run in self.runs for k in run.blocks}):
                for r in legality.crowded_at(self.shifted.images(k).node):
                    found.setdefault(r.what, r)
        return tuple(found.values())
