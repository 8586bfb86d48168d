"""Where a value stands in JSON text: for messages about files that are otherwise read fast."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from functools import cached_property

from eqsat.model.diag import Span

Key = str | int
LONGEST_SHOWN = 160  # characters of a line that a message still prints whole
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonPlaces:
    """Spans of the keys and values of one valid JSON text; each container is walked once."""

    def __init__(self, file: str, text: str):
        self.file, self.text = file, text
        self._members: dict[int, dict[Key, tuple[int, int]]] = {}
        self._decoder = json.JSONDecoder()

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    def at(self, start: int, end: int | None = None) -> Span:
        """The span of the characters from `start` to `end`, cut at the end of the line."""
        line = bisect_right(self._lines, start)
        first = self._lines[line - 1]
        stop = self.text.find("\n", first)
        stop = len(self.text) if stop < 0 else stop
        end = min(start + 1 if end is None else end, max(stop, start + 1))
        shown = self.text[first:stop].rstrip("\r") if stop - first <= LONGEST_SHOWN else ""
        return Span(self.file, line, start - first + 1, end - first + 1, shown.replace("\t", " "))

    def of(self, *path: Key, key: bool = False) -> Span:
        """The span of the value at this path (the nearest container, if it ends early).

        `key`: that of the key itself.
        """
        start = self._skip(0)
        for depth, part in enumerate(path):
            member = self._in(start).get(part)
            if member is None:
                break
            if key and depth == len(path) - 1:
                return self.at(member[0], self._end(member[0]))
            start = member[1]
        return self.at(start, self._end(start))

    def repeated(self, *path: Key) -> list[tuple[str, Span]]:
        """Keys of the object at this path that were there before, in order."""
        start = self._skip(0)
        for part in path:
            start = self._in(start)[part][1]
        seen: set[str] = set()
        repeats = []
        for key, place, _ in self._pairs(start):
            if key in seen:
                repeats.append((key, self.at(place, self._end(place))))
            seen.add(key)
        return repeats

    def _in(self, start: int) -> dict[Key, tuple[int, int]]:
        """Members of the container that starts here: (position of the key, of the value)."""
        if start in self._members:
            return self._members[start]
        members: dict[Key, tuple[int, int]] = {}
        if self.text[start] == "{":
            members = {key: (place, value) for key, place, value in self._pairs(start)}
        elif self.text[start] == "[":
            members = {i: (value, value) for i, value in enumerate(self._items(start))}
        self._members[start] = members
        return members

    def _pairs(self, start: int) -> list[tuple[str, int, int]]:
        pairs: list[tuple[str, int, int]] = []
        at = self._skip(start + 1)
        while self.text[at] == '"':
            key, after = self._decoder.raw_decode(self.text, at)
            value = self._skip(self._skip(after) + 1)
            pairs.append((key, at, value))
            at = self._next(value)
        return pairs

    def _items(self, start: int) -> list[int]:
        items: list[int] = []
        at = self._skip(start + 1)
        while self.text[at] != "]":
            items.append(at)
            at = self._next(at)
        return items

    def _next(self, value: int) -> int:
        """Where the member after this one starts; the closing bracket after the last."""
        at = self._skip(self._end(value))
        return self._skip(at + 1) if self.text[at] == "," else at

    def _end(self, value: int) -> int:
        return self._decoder.raw_decode(self.text, value)[1]

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at
