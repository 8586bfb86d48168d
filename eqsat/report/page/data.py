"""The content of the page as plain data: the scripts read it as JSON and nothing else.

Names of fields are the names the scripts use. Times are in picoseconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PageValue:
    """A value at the border of dispatches. role: argument | result | temporary | weight."""

    name: str
    type: str
    layout: str
    nbytes: int
    role: str
    writer: int  # the dispatch that writes it, -1: it comes from outside or is made ahead of time
    first: int = 0  # steps it is live, both included
    last: int = 0
    offset: int | None = None  # in the arena
    is_tag: bool = False  # read all over the program: a word at its readers, no edges
    is_result: bool = False


@dataclass(frozen=True)
class PageAlternative:
    """An alternative to a choice. rules: numbers, the first applied first."""

    text: str
    rules: tuple[int, ...]
    price: str = ""


@dataclass(frozen=True)
class PageChoice:
    """One op of a dispatch, and the rules that led from the input to it, the first one first."""

    text: str
    type: str
    rules: tuple[int, ...]
    alternatives: tuple[PageAlternative, ...] = ()
    more: int = 0  # alternatives that are not listed


@dataclass(frozen=True)
class PageBody:
    """A body of a loop or branch: the graph it is drawn as, and how often it runs, if known."""

    label: str
    graph: str
    runs: int | None


@dataclass(frozen=True)
class PageSource:
    """An op of the user's program. at: the line that asked for it, "" where that is not known."""

    at: str
    text: str


@dataclass(frozen=True)
class PageDispatch:
    """A dispatch, or an op of the input program, which has no time. reads, writes: value numbers.

    parts: name and picoseconds of what its time is made of, as far as they are known.
    """

    name: str
    ops: tuple[str, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    layout: str
    relayouts: int  # packs, unpacks and transposes inside
    flops: int
    nbytes: int  # read and written at its border
    step: int
    time_ps: int | None = None
    parts: tuple[tuple[str, int], ...] = ()
    bound: str = ""
    plan: str = ""
    device: str = ""
    why: tuple[PageChoice, ...] = ()
    bodies: tuple[PageBody, ...] = ()
    called: str = ""  # what `eqsat explain` calls it
    weight: str = ""  # the largest it multiplies with or looks up in
    source: tuple[PageSource, ...] = ()  # what of the user's program it computes


@dataclass(frozen=True)
class PageEdge:
    """A value on its way from the dispatch that writes it to one that reads it."""

    writer: int
    reader: int
    value: int


@dataclass(frozen=True)
class PageLayer:
    """Dispatches that belong together, by number. prefix: what all their names begin with."""

    name: str
    dispatches: tuple[int, ...]
    prefix: str = ""


@dataclass(frozen=True)
class Fold:
    """Layers, one behind the other, that do the same work; drawn once until one is opened.

    ways: per layer, the number of its way of doing it; identical layers have the same.
    """

    layers: tuple[PageLayer, ...]
    ways: tuple[int, ...]


@dataclass(frozen=True)
class PageGraph:
    """A schedule, or a program without a schedule, as dispatches and edges."""

    title: str
    dispatches: tuple[PageDispatch, ...]
    values: tuple[PageValue, ...]
    edges: tuple[PageEdge, ...]
    folds: tuple[Fold, ...]
    time_ps: int | None = None
    arena_bytes: int | None = None
    live_bytes: tuple[int, ...] = ()  # of temporaries, per step
    parent: str = ""  # for a body: the graph it is part of
    parent_dispatch: int = -1


@dataclass(frozen=True)
class Roofs:
    """The roofs of a roofline: operations per second, and bytes per second of each memory."""

    rate: float
    bandwidths: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class PageRule:
    """A rule that a choice names."""

    name: str
    at: str
    doc: str


@dataclass(frozen=True)
class PageData:
    """Everything that is drawn. graphs: by a key, `after` is what was chosen."""

    title: str
    graphs: dict[str, PageGraph]
    layouts: tuple[str, ...]  # most bytes first; a colour each
    rules: tuple[PageRule, ...] = ()
    machine: Roofs | None = None
    curve: tuple[tuple[float, str, int | None, int | None], ...] = ()  # s, phase, value, bound
    goal: str = ""
    measured: tuple[tuple[str, float | None, float], ...] = ()  # program, predicted and measured us

    def to_json(self) -> dict[str, Any]:
        """The JSON that the scripts read."""
        return asdict(self)
