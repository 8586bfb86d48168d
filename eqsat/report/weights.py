"""How the weights of a schedule live: what stays of each, what loading takes, what a run packs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.report.formatting import PS_PER_US, bytes_text, count_text, time_text

AS_IT_IS, PER_RUN, INSIDE = "as it is", "packed per run", "packed where it is read"
UNPACKED = "unpacked where it is read"
UNREAD = "not read"
COLUMNS = (
    "weight", "type", "original", "copies", "resident", "at load", "per run", "time", "lives",
)  # fmt: skip
FIGURES = range(2, 8)


@dataclass(frozen=True)
class WeightLife:
    """One weight. `copies_bytes`: layouts of it that stay; `load_bytes`: the most of it at once.

    A copy made from several weights counts at the last one. `run_bytes`: what the conversions of a
    run read and write of it; `run_time_ps`: time of those that are dispatches of their own.
    """

    name: str
    type: str
    lives: tuple[str, ...]
    original_bytes: int
    copies_bytes: int
    resident_bytes: int
    load_bytes: int
    run_bytes: int
    run_time_ps: int

    def cells(self) -> tuple[str, ...]:
        """COLUMNS, printed."""
        sizes = (
            self.original_bytes, self.copies_bytes, self.resident_bytes, self.load_bytes,
            self.run_bytes,
        )  # fmt: skip
        time = time_text(self.run_time_ps) if self.run_time_ps else "–"
        texts = (bytes_text(n) if n else "–" for n in sizes)
        return (self.name, self.type, *texts, time, "; ".join(self.lives))


@dataclass(frozen=True)
class WeightLives:
    """How the weights of one schedule live."""

    schedule: Schedule

    @cached_property
    def each(self) -> list[WeightLife]:
        """In the order of the program."""
        return [self._life(w) for w in self.schedule.program.weights]

    @cached_property
    def original_bytes(self) -> int:
        return sum(w.original_bytes for w in self.each)

    @property
    def ahead_word(self) -> str:
        return "stored packed" if self.schedule.originals == "stored" else "packed at load"

    @cached_property
    def made(self) -> dict[int, frozenset[int]]:
        """Per node a dispatch computes from weights alone: the weights."""
        nodes, weights_of = self.schedule.program.nodes, dict[int, frozenset[int]]()
        for i, below in self.schedule.sources.items():
            weights_of[i] = frozenset(below)
        converted: dict[int, frozenset[int]] = {}
        members = {m for d in self.schedule.dispatches for m in d.members}
        for i in sorted(members - weights_of.keys()):
            operands = [o for o in nodes[i].operands if nodes[o].op != "fill"]
            if operands and all(o in weights_of for o in operands):
                weights_of[i] = frozenset[int]().union(*(weights_of[o] for o in operands))
                if nodes[i].op not in VIEWS:
                    converted[i] = weights_of[i]
        return converted

    def _works(self, d: Dispatch) -> set[int]:
        nodes = self.schedule.program.nodes
        return {m for m in d.members if nodes[m].op not in (*VIEWS, *LEAVES)}

    @cached_property
    def alone(self) -> list[Dispatch]:
        """Dispatches that compute nothing but what weights give."""
        return [d for d in self.schedule.dispatches if self._works(d) <= self.made.keys()]

    @cached_property
    def read(self) -> frozenset[int]:
        """Weights that something else than a conversion of weights reads as they are."""
        nodes, read = self.schedule.program.nodes, set[int]()
        for d in self.schedule.dispatches:
            for m in self._works(d) - self.made.keys():
                read.update(self.schedule.viewed(o) for o in nodes[m].operands)
        results = (self.schedule.viewed(r) for r in self.schedule.program.results)
        return frozenset(read.union(results))

    def _life(self, w: int) -> WeightLife:
        s = self.schedule
        nodes, resident = s.program.nodes, s.kept
        copies = [i for i in resident if s.sources[i] != (w,) or i != w]
        copies = [i for i in copies if s.sources[i] and s.sources[i][-1] == w]
        stays = w in resident or s.originals == "held"
        used = stays or any(w in s.sources[i] for i in resident)
        size = nodes[w].type.nbytes
        extra = sum(nodes[i].type.nbytes for i in copies)
        original = size if stays else 0
        per_run = [d for d in self.alone if any(w in self.made[m] for m in self._works(d))]
        here = [m for m, below in self.made.items() if w in below]
        inside = sorted(set(here) - {m for d in per_run for m in self._works(d)})
        lives = [
            *([AS_IT_IS] if w in self.read else []),
            *([self.ahead_word] if any(w in s.sources[i] and i != w for i in resident) else []),
            *([PER_RUN] if per_run else []),
            *dict.fromkeys(UNPACKED if nodes[m].op == "unpack" else INSIDE for m in inside),
        ]
        at_load = original + extra if s.originals == "stored" else (size if used else 0) + extra
        moved = sum(
            min(nodes[j].type.nbytes for j in (m, *nodes[m].operands))
            for m in here
            if nodes[m].op in CONVERSIONS
        )
        rest = original + extra, at_load, moved, sum(d.time_ps for d in per_run)
        leaf = s.program.leaf(w)
        return WeightLife(leaf.name, str(leaf.type), tuple(lives) or (UNREAD,), size, extra, *rest)


def weights_json(lives: WeightLives | None) -> list[dict[str, Any]]:
    """The list `weights` of the summary."""
    if lives is None:
        return []
    return [
        {k: v for k, v in d.items() if k != "run_time_ps"}
        | {"lives": list(d["lives"]), "run_time_us": d["run_time_ps"] / PS_PER_US}
        for d in map(asdict, lives.each)
    ]


def life_rows(lives: WeightLives) -> list[tuple[str, ...]]:
    """COLUMNS, printed: a row per weight, the largest first, and one for all."""
    rows = [w.cells() for w in sorted(lives.each, key=lambda w: -w.original_bytes)]
    return [*rows, _total(lives)] if len(rows) > 1 else rows


def _total(lives: WeightLives) -> tuple[str, ...]:
    copies, moved = (sum(getattr(w, k) for w in lives.each) for k in ("copies_bytes", "run_bytes"))
    schedule, time_ps = lives.schedule, sum(d.time_ps for d in lives.alone)
    sizes = lives.original_bytes, copies, schedule.resident_bytes, schedule.load_peak_bytes, moved
    texts = (bytes_text(n) if n else "–" for n in sizes)
    return ("all", "", *texts, time_text(time_ps) if time_ps else "–", "")


def life_line(weights: WeightLives) -> list[str]:
    """`weights 256 KiB (X): …` if some weight is packed, ahead or in a run; else nothing."""
    lives, x = weights.each, weights.original_bytes
    if not x or all(w.lives in ((AS_IT_IS,), (UNREAD,)) for w in lives):
        return []
    resident, peak = weights.schedule.resident_bytes, weights.schedule.load_peak_bytes
    sizes = f"resident {bytes_text(resident)} ({resident / x:.2f}X)"
    sizes += f", at load {bytes_text(peak)} ({peak / x:.2f}X)"
    return [f"weights {bytes_text(x)} (X): {sizes}; {kinds_text(weights)}"]


def kinds_text(weights: WeightLives) -> str:
    """`98 weights as it is, 49 weights packed at load`: how many live in each way."""
    words = Counter(" and ".join(w.lives) for w in weights.each)
    return ", ".join(f"{count_text(n, 'weight')} {text}" for text, n in words.items())
