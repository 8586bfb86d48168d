"""egraph-serialize JSON → SerializedEGraph, or every problem of the file with its place.

Places in JSON are found after the fact: files are read fast where nothing is wrong.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from eqsat.model.diag import Diagnostic, EqsatError, Span, did_you_mean, fail, sort_diagnostics
from eqsat.model.files import read_text
from eqsat.model.serialized import INFINITE_COST, SerializedEGraph, SerializedNode

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


LARGEST_FILE_BYTES = 256 * 2**20
SMALLEST_COST = Decimal(10) ** -300  # below: zero, as a float64 all but says itself
MOST_SHOWN = 20  # problems of one file
NO_COST = Decimal(1)  # what egraph-serialize assumes where a node has none

Problem = tuple[str, str, tuple[Key, ...], bool, str]  # code, message, path, of the key, help


def read_serialized(path: Path) -> SerializedEGraph:
    """Read an e-graph; EqsatError (E340-E344) holds all that is wrong with it.

    Costs are taken as exactly as they are written; a node without one costs 1. Nodes that are
    `subsumed`, or whose cost is `Infinity` or 2^53 and more, cannot be chosen (`cost` is None).
    """
    text = read_text(path, "E340", LARGEST_FILE_BYTES)
    places = JsonPlaces(str(path), text)
    data = _parse(text, places)
    problems = list(_shape_problems(data))
    if not problems:
        problems = [*_node_problems(data["nodes"]), *_root_problems(data)]
    diagnostics = [_diagnostic(p, places) for p in problems[: MOST_SHOWN + 1]]
    if len(problems) > MOST_SHOWN:
        more = f"and {len(problems) - MOST_SHOWN} more problems"
        diagnostics = [*diagnostics[:-1], Diagnostic(problems[-1][0], more)]
    if diagnostics:
        raise EqsatError(*sort_diagnostics(diagnostics))
    return _build(data)


class _RepeatedKeyError(Exception):
    pass


def parsed(text: str, places: JsonPlaces, code: str, what: str = "", **numbers: Any) -> Any:
    """The data of JSON text; EqsatError with this code. numbers: arguments of `json.loads`."""
    try:
        return json.loads(text, **numbers)
    except json.JSONDecodeError as e:
        at = places.at(min(e.pos, max(len(text) - 1, 0)))
        raise fail(code, f"not JSON: {e.msg[0].lower()}{e.msg[1:]}", at) from None
    except RecursionError:
        raise fail(code, f"`{places.file}` is nested too deeply{what}") from None
    except (ArithmeticError, ValueError):  # of Decimal, or Python's limit of digits
        raise fail(code, f"`{places.file}` holds a number that is too long") from None


def _parse(text: str, places: JsonPlaces) -> Any:
    """The data of the text, numbers as Decimal; EqsatError (E340, E342)."""
    try:
        return parsed(
            text, places, "E340", " to be an e-graph", object_pairs_hook=_object,
            parse_int=Decimal, parse_float=Decimal, parse_constant=Decimal,
        )  # fmt: skip
    except _RepeatedKeyError:
        raise EqsatError(*_repetitions(text, places)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RepeatedKeyError
    return members


def _repetitions(text: str, places: JsonPlaces) -> list[Diagnostic]:
    """Every key that some object has twice: where it is there again."""
    paths: list[tuple[Key, ...]] = [()]
    data = json.loads(text)
    nodes = data.get("nodes") if isinstance(data, dict) else None
    if isinstance(nodes, dict):
        paths += [("nodes",), *(("nodes", n) for n, v in nodes.items() if isinstance(v, dict))]
    objects = [p for p in paths if isinstance(data, dict)]
    twice = [repeat for p in objects for repeat in places.repeated(*p)]
    if not twice:  # in a part that eqsat does not read
        return [Diagnostic("E342", f"a key appears twice in an object of `{places.file}`")]
    return [Diagnostic("E342", f"key `{k}` appears twice", at) for k, at in twice[:MOST_SHOWN]]


def _diagnostic(problem: Problem, places: JsonPlaces) -> Diagnostic:
    code, message, path, of_key, help_text = problem
    return Diagnostic(code, message, places.of(*path, key=of_key), help=help_text)


# ---- checks --------------------------------------------------------------------------------------
def _shape_problems(data: Any) -> Iterator[Problem]:
    if not isinstance(data, dict):
        yield ("E340", f"an e-graph is an object, not {_kind(data)}", (), False, "")
        return
    for key, kind, empty in (
        ("nodes", dict, "the e-graph has no nodes"),
        ("root_eclasses", list, "the e-graph has no roots, so there is nothing to extract"),
    ):
        if key not in data:
            yield ("E340", f"`{key}` is missing", (), False, did_you_mean(key, data))
        elif not isinstance(data[key], kind):
            wanted = "an object" if kind is dict else "a list"
            message = f"`{key}` has to be {wanted}, not {_kind(data[key])}"
            yield ("E340", message, (key,), False, "")
        elif not data[key]:
            yield ("E341", empty, (key,), False, "")


def _node_problems(nodes: dict[str, Any]) -> Iterator[Problem]:
    for name, node in nodes.items():
        at = ("nodes", name)
        if not isinstance(node, dict):
            yield ("E340", f"a node is an object, not {_kind(node)}", at, False, "")
            continue
        yield from _field_problems(node, at)
        children = node.get("children", [])
        if not isinstance(children, list):
            message = f"`children` has to be a list, not {_kind(children)}"
            yield ("E340", message, (*at, "children"), False, "")
            continue
        for i, child in enumerate(children):
            if not isinstance(child, str):
                message = f"a child is the name of a node, not {_kind(child)}"
                yield ("E340", message, (*at, "children", i), False, "")
            elif child not in nodes:
                message = f"child `{child}` does not exist"
                yield ("E341", message, (*at, "children", i), False, _near(child, nodes))


def _near(word: str, names: dict[str, Any]) -> str:
    """A help text, unless looking for it would take long."""
    return did_you_mean(word, names) if len(names) <= 1000 else ""


def _field_problems(node: dict[str, Any], at: tuple[Key, ...]) -> Iterator[Problem]:
    eclass, op = node.get("eclass"), node.get("op", "")
    if "eclass" not in node:
        yield ("E340", "`eclass` is missing", at, True, "")
    elif not isinstance(eclass, str):
        message = f"`eclass` has to be text, not {_kind(eclass)}"
        yield ("E340", message, (*at, "eclass"), False, "")
    if not isinstance(op, str):
        yield ("E340", f"`op` has to be text, not {_kind(op)}", (*at, "op"), False, "")
    if not isinstance(node.get("subsumed", False), bool):
        message = "`subsumed` has to be true or false"
        yield ("E340", message, (*at, "subsumed"), False, "")
    trouble = _cost_trouble(node.get("cost", NO_COST))
    if trouble:
        yield ("E343", f"the cost {trouble}", (*at, "cost"), False, "")


def _cost_trouble(cost: Any) -> str:
    if isinstance(cost, str) and cost.strip().lower() in _INFINITE_WORDS:
        return ""
    if not isinstance(cost, Decimal):
        return f"has to be a number, not {_kind(cost)}"
    if cost.is_nan():
        return "is not a number"
    return f"may not be below -{INFINITE_COST}" if cost <= -INFINITE_COST else ""


_INFINITE_WORDS = ("inf", "infinity", "+inf", "+infinity")


def _root_problems(data: dict[str, Any]) -> Iterator[Problem]:
    nodes = [n for n in data["nodes"].values() if isinstance(n, dict)]
    classes = {c: None for n in nodes if isinstance(c := n.get("eclass"), str)}
    for i, root in enumerate(data["root_eclasses"]):
        at = ("root_eclasses", i)
        if not isinstance(root, str):
            yield ("E340", f"a root is the name of a class, not {_kind(root)}", at, False, "")
        elif root not in classes:
            message = f"root class `{root}` does not exist"
            yield ("E341", message, at, False, _near(root, classes))


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {str: "text", dict: "an object", list: "a list", Decimal: "a number"}
    return kinds.get(type(value), type(value).__name__)


# ---- the record ----------------------------------------------------------------------------------
def _build(data: dict[str, Any]) -> SerializedEGraph:
    number = {name: i for i, name in enumerate(data["nodes"])}
    fractions: dict[Any, Fraction | None] = {}  # few distinct costs, many nodes
    nodes = []
    for name, node in data["nodes"].items():
        cost = node.get("cost", NO_COST)
        if cost not in fractions:
            fractions[cost] = _cost(cost)
        children = tuple(number[c] for c in node.get("children", []))
        exact = None if node.get("subsumed") else fractions[cost]
        nodes.append(SerializedNode(name, node.get("op", ""), children, node["eclass"], exact))
    return SerializedEGraph(tuple(nodes), tuple(dict.fromkeys(data["root_eclasses"])))


def _cost(cost: Decimal | str) -> Fraction | None:
    if isinstance(cost, str) or cost >= INFINITE_COST:
        return None
    return Fraction(cost) if abs(cost) >= SMALLEST_COST else Fraction(0)
