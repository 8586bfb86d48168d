"""The origin of a value of a program: its name, its line, and its other names.

Origins are for messages only: they do not decide whether two nodes or programs are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.restore import as_plain

LONGEST = 64  # characters of a name that a front end makes up
_UNSPEAKABLE = re.compile(r"[^\w.]+")
_DOTS = re.compile(r"\.{2,}")


@dataclass(frozen=True, slots=True)
class Origin:
    """name: unique in its program, without the `%` of its text; "" if nothing names it.

    at: `file.py:12`, the line that asked for it. also: other values that turned out to be this one.
    """

    name: str = ""
    at: str = ""
    also: tuple[str, ...] = ()

    def called(self, name: str) -> Origin:
        """The origin under another name."""
        return replace(self, name=name)

    def joined(self, other: Origin) -> Origin:
        """With the names of another value that is the same one."""
        names = (self.name, *self.also)
        new = [n for n in (other.name, *other.also) if n and n not in names]
        return replace(self, also=(*self.also, *new), at=self.at or other.at) if new else self

    def to_json(self) -> list[Any]:
        return [self.name, self.at, list(self.also)]

    @classmethod
    def from_json(cls, data: list[Any]) -> Origin:
        name, at, also = data
        return cls(
            as_plain(str, name), as_plain(str, at), tuple([as_plain(str, other) for other in also])
        )


NO_ORIGIN = Origin()
KEY = "called"  # of a node, in JSON


def without_origins(data: Any) -> Any:
    """JSON of programs without what they call their values, for hashes of what they compute."""
    if isinstance(data, dict):
        return {k: without_origins(v) for k, v in data.items() if k != KEY}
    return [without_origins(x) for x in data] if isinstance(data, list | tuple) else data


def file_line(file: str, line: int) -> str:
    """`folder/file.py:12`; "" for a text that is no file."""
    parts = file.replace("\\", "/").split("/")
    return "" if file.startswith("<") or not file else f"{'/'.join(parts[-2:])}:{line}"


def spoken(text: str) -> str:
    """A text as a name: words joined by dots, not a number alone; "" if nothing is left.

    Of a long one its last parts, at most `LONGEST` characters.
    """
    plain = _DOTS.sub(".", _UNSPEAKABLE.sub("_", text)).strip(".")
    if len(plain) > LONGEST:
        plain = plain[-LONGEST:].partition(".")[2] or plain[-LONGEST:].lstrip(".")
    return f"v{plain}" if plain.isdigit() else plain


def unique(name: str, taken: dict[str, int], mark: str = "_") -> str:
    """This name, or the first of `name_2`, `name_3`, … that is not taken.

    taken: names, and the number that was given to each last.
    """
    fresh = name
    while fresh in taken:
        taken[name] += 1
        fresh = f"{name}{mark}{taken[name]}"
    return fresh
