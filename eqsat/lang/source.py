"""YAML 1.2 text → plain data, and the place of every key, value and character of a scalar.

Ordinary YAML goes through libyaml, in a tenth of the time; what is out of the ordinary is refused
there. libyaml reads YAML 1.1. What it is given means the same in YAML 1.2: no tags, no directives,
one document, no characters that only one version takes as space or as an end of line, and scalars
that are strings, decimal numbers, `true`, `false` or `null`.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

from eqsat.model.diag import Diagnostic, EqsatError, Note, Span, fail, sort_diagnostics

KeyPath = tuple[str | int, ...]

# aliases can make a small file explode ("billion laughs"); no honest file comes near this
MAX_NODES = 200_000
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)


@dataclass(frozen=True)
class Lines:
    """The lines of one file; turns character offsets into spans."""

    file: str
    text: str
    lines: tuple[str, ...] = field(init=False, repr=False)
    starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", tuple(self.text.split("\n")))
        lengths = [len(line) + 1 for line in self.lines]
        object.__setattr__(self, "starts", tuple(accumulate(lengths, initial=0))[:-1])

    def span(self, start: int, end: int) -> Span:
        """The span of characters `start` to `end`, cut at the end of the first line."""
        start = min(start, len(self.text))
        number = bisect_right(self.starts, start) - 1
        text = self.lines[number]
        column = start - self.starts[number]
        stop = min(end - self.starts[number], len(text.rstrip()))
        return Span(self.file, number + 1, column + 1, max(stop, column + 1) + 1, text)


@dataclass(frozen=True)
class Placed:
    """A piece of text whose every character has a place in a file."""

    text: str
    lines: Lines
    offsets: Sequence[int]  # file offset of every character

    def span(self, start: int, end: int) -> Span:
        """The place of characters `start` to `end` (exclusive) of the text."""
        if not self.offsets:
            return self.lines.span(0, 1)
        if start >= len(self.offsets):  # behind the text, e.g. "expected more here"
            return self.lines.span(self.offsets[-1] + 1, self.offsets[-1] + 2)
        last = self.offsets[max(start, min(end, len(self.offsets)) - 1)]
        return self.lines.span(self.offsets[start], last + 1)

    def whole(self) -> Span:
        return self.span(0, len(self.text))

    def part(self, start: int, end: int) -> Placed:
        """Characters `start` to `end` (exclusive), each in its place."""
        return Placed(self.text[start:end], self.lines, self.offsets[start:end])


@dataclass(frozen=True)
class YamlSource:
    """A YAML file as plain data, with the place of every key and value by key path."""

    lines: Lines
    data: Any
    values: dict[KeyPath, Span]
    keys: dict[KeyPath, Span]
    scalars: dict[KeyPath, Sequence[int]]  # file offset of every character
    flow: frozenset[KeyPath]  # lists and mappings written with brackets
    problems: tuple[Diagnostic, ...]  # duplicate keys; the first one is in `data`

    @property
    def file(self) -> str:
        return self.lines.file

    def span(self, path: KeyPath, *, key: bool = False) -> Span:
        """The place of a value (or its key); of the nearest thing around it if there is none."""
        table = self.keys if key else self.values
        while path and path not in table:
            path = path[:-1]
        return table.get(path) or self.values.get(path) or self.lines.span(0, 1)

    def placed(self, path: KeyPath) -> Placed:
        """The text of a string value with the place of every character."""
        value: Any = self.data
        for part in path:
            value = value[part]
        return Placed(value, self.lines, self.scalars[path])

    def entries(self, path: KeyPath) -> list[KeyPath]:
        """The places of the entries of a list; of a value that is no list, its own."""
        if path not in self.values:
            return []
        inside = ((*path, i) for i in count())
        return list(takewhile(self.values.__contains__, inside)) or [path]

    def strings(self, path: KeyPath) -> list[Placed]:
        """A value that is one string or a list of strings, as a list; empty if it is missing.

        What else stands there is left out: it is for the reader of the record to refuse.
        """
        return [self.placed(p) for p in self.entries(path) if p in self.scalars]


def placed_at(text: str, span: Span) -> Placed:
    """Text that stands on one line from `span.column` on, e.g. a term kept in a model record."""
    padding = "\n" * (span.line - 1)
    lines = Lines(span.file, padding + (span.text or " " * (span.column - 1) + text))
    start = len(padding) + span.column - 1
    return Placed(text, lines, range(start, start + len(text)))


def read_file(path: str | Path) -> str:
    """The text of a file; E001 if it cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise fail("E001", f"cannot read `{path}`: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise fail("E001", f"`{path}` is not UTF-8 text") from None


def read_yaml(text: str, file: str) -> YamlSource:
    """YAML text → YamlSource. E001 if it is not YAML, holds tags, or is empty."""
    lines = Lines(file, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    return _read_plainly(lines) or _read(lines)


def _read_plainly(lines: Lines) -> YamlSource | None:
    """YAML by libyaml, ten times as fast, of a file without problems; None where in doubt.

    It reads YAML 1.1 and says less of what is wrong, so whatever the two versions could see in two
    ways, and every problem, is left to `_read`.
    """

    walk = _Walk(lines, scalar_value)
    try:
        data = walk.node(compose_yaml(lines.text), (), ())
    except (NotPlain, EqsatError, RecursionError):
        return None
    return None if walk.problems else walk.source(data)


def _read(lines: Lines) -> YamlSource:
    """A file as YAML 1.2 has it, and the words for what is wrong with it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    walk = _Walk(lines, partial(_constructed, lines, yaml.constructor))
    try:
        root = yaml.compose(io.StringIO(lines.text))
        if root is None:
            raise fail("E001", "the file is empty", lines.span(0, 1))
        return walk.source(walk.node(root, (), ()))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = lines.span(mark.index, mark.index + 1) if mark else lines.span(0, 1)
        what = error.problem or error.context
        hint = "indent with spaces" if "'\\t'" in str(what) else ""
        raise fail("E001", f"not valid YAML: {what}", at, help=hint) from None
    except YAMLError as error:
        at = getattr(error, "position", 0)
        what = getattr(error, "reason", "it cannot be read")
        raise fail("E001", f"not valid YAML: {what}", lines.span(at, at + 1)) from None
    except RecursionError:
        deep = _deepest(lines.text)
        at = lines.span(deep, deep + 1)
        raise fail("E001", "not readable: nested too deeply", at) from None


def _constructed(lines: Lines, constructor: Any, node: Any) -> Any:
    """The value of a scalar, by its tag."""
    from ruamel.yaml.error import YAMLError

    try:
        return constructor.construct_object(node)
    except YAMLError:
        raise
    except (ValueError, LookupError, TypeError, OverflowError):  # e.g. `!!int` and no digits
        shown = str(node.value)[:40]
        message = f"not readable: `{shown}` is no {node.tag.rpartition(':')[2]}"
        at = lines.span(node.start_mark.index, node.end_mark.index)
        raise fail("E001", message, at) from None


def load_yaml(path: str | Path) -> YamlSource:
    """A YAML file → YamlSource."""
    return read_yaml(read_file(path), str(path))


def refuse(problems: list[Diagnostic]) -> None:
    """EqsatError with these problems in reading order, if there are any."""
    if problems:
        raise EqsatError(*sort_diagnostics(dict.fromkeys(problems)))


class _Walk:
    """Collects data and places from YAML nodes."""

    def __init__(self, lines: Lines, construct: Callable[[Any], Any]):
        self.lines = lines
        self.construct = construct  # a scalar node → its value
        self.values: dict[KeyPath, Span] = {}
        self.keys: dict[KeyPath, Span] = {}
        self.scalars: dict[KeyPath, Sequence[int]] = {}
        self.flow: set[KeyPath] = set()
        self.problems: list[Diagnostic] = []

    def source(self, data: Any) -> YamlSource:
        return YamlSource(
            self.lines, data, self.values, self.keys, self.scalars, frozenset(self.flow),
            tuple(self.problems),
        )  # fmt: skip

    def node(self, node: Any, path: KeyPath, above: tuple[int, ...]) -> Any:
        span = self._span(node)
        if id(node) in above:
            raise fail("E001", "not valid YAML: an alias that holds itself", span)
        if len(self.values) >= MAX_NODES:
            raise fail("E001", f"not readable: more than {MAX_NODES} values", span)
        self.values[path] = span
        if getattr(node, "flow_style", False):
            self.flow.add(path)
        above = (*above, id(node))
        if node.id == "mapping":
            return self._mapping(node, path, above)
        if node.id == "sequence":
            return [self.node(v, (*path, i), above) for i, v in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: KeyPath, above: tuple[int, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for k, v in node.value:
            if k.id != "scalar":
                raise fail("E001", "not readable: a key is one word", self._span(k))
            key, span = str(k.value), self._span(k)
            self._refuse_surrogates(key, span)
            at = (*path, key)
            if key in out:
                note = Note(self.keys[at], "first here")
                message = f"key `{key}` appears twice"
                self.problems.append(Diagnostic("E002", message, span, "again here", notes=(note,)))
                continue
            self.keys[at] = span
            out[key] = self.node(v, at, above)
        return out

    def _scalar(self, node: Any, path: KeyPath) -> Any:
        value = self.construct(node)
        if isinstance(value, str):
            self._refuse_surrogates(value, self._span(node))
            raw = self.lines.text[node.start_mark.index : node.end_mark.index]
            self.scalars[path] = _offsets(value, raw, node.style, node.start_mark.index)
        return value

    def _refuse_surrogates(self, value: str, span: Span) -> None:
        """A quoted escape can name half a character, which no file or terminal can show."""
        if _SURROGATE.search(value):
            raise fail("E001", "not readable: an escape that is half a character", span)

    def _span(self, node: Any) -> Span:
        return self.lines.span(node.start_mark.index, node.end_mark.index)


def _deepest(text: str) -> int:
    """Offset of the bracket or list dash under which most others on its line are still open."""
    depth = most = at = 0
    for i, c in enumerate(text):
        depth = 0 if c == "\n" else depth + (c in "[{-") - (c in "]}")
        if depth > most:
            most, at = depth, i
    return at


def _offsets(value: str, raw: str, style: str | None, base: int) -> Sequence[int]:
    """File offset of every character of a scalar, whatever its style and line folding."""
    quotes = int(style in ("'", '"'))
    if raw[quotes : len(raw) - quotes] == value:  # as most are
        return range(base + quotes, base + quotes + len(value))
    at = raw.find("\n") + 1 if style in ("|", ">") else 1 if style in ("'", '"') else 0
    offsets: list[int] = []
    for c in value:
        if not c.isspace():
            at = _skip_space(raw, at, style)
        offsets.append(base + min(at, max(len(raw) - 1, 0)))
        at += _width(c, raw, at, style)
    return tuple(offsets)


def _skip_space(raw: str, at: int, style: str | None) -> int:
    while at < len(raw) and (raw[at].isspace() or (style == '"' and raw[at : at + 2] == "\\\n")):
        at += 2 if raw[at] == "\\" else 1
    return at


def _width(c: str, raw: str, at: int, style: str | None) -> int:
    """How many characters of the file stand for this one."""
    if style == '"' and raw[at : at + 1] == "\\":
        match = _ESCAPE.match(raw, at)
        return match.end() - at if match else 1
    if style == "'" and raw[at : at + 2] == "''":
        return 2
    if c.isspace() and not raw[at : at + 1].isspace():
        return 0  # a line break folded away, e.g. the last one of a block scalar
    return 1


_DOUBTFUL = re.compile(
    r"[^\n\x20-\x7e\xa0-\u2027\u2030-\ud7ff]"  # tabs, controls, other ends of lines
    r"|^(?:%|---|\.\.\.)"  # directives, several documents
    r"|(?:^|[\s\[\]{},:?-])(?!(?<=\w )!= )[&!]"  # anchors, tags, but no `x != y`
    r"|[\"'\]}]:\S",  # a key without a space behind it
    re.MULTILINE,
)
_WORDS = {"true": True, "false": False, "null": None}
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
# without quotes what could be something else than a string: other numbers, dates, words in any
# case; and nothing at all, whose place the two libraries see in two places
_OTHER = re.compile(
    r"[-+.]*[0-9](?:[0-9_.:e+-]*|[xob][0-9a-f_]*|[0-9]{3}-.*)|[-+]?\.(?:inf|nan)"
    r"|true|false|null|~|=|<<|",
    re.IGNORECASE,
)


class NotPlain(Exception):
    """The text is no YAML, or the two versions could read it differently."""


def compose_yaml(text: str) -> Any:
    """The root node of a document: PyYAML's nodes, with the indices of characters as marks.

    Raises NotPlain.
    """
    import yaml

    if not yaml.__with_libyaml__ or _DOUBTFUL.search(text):
        raise NotPlain

    compiled: Any = yaml.cyaml  # of which its types do not tell

    class Composer(compiled.CParser, yaml.resolver.BaseResolver):
        def __init__(self) -> None:
            compiled.CParser.__init__(self, text)
            yaml.resolver.BaseResolver.__init__(self)

    try:
        root = Composer().get_single_node()
    except yaml.YAMLError:
        raise NotPlain from None
    if root is None:
        raise NotPlain
    return root


def scalar_value(node: Any) -> Any:
    """The value of a scalar node; NotPlain if that takes more than a look."""
    value = node.value
    if node.style or not _OTHER.fullmatch(value):
        return value
    if value in _WORDS:
        return _WORDS[value]
    if _INT.fullmatch(value):
        return int(value)
    if _FLOAT.fullmatch(value):
        return float(value)
    raise NotPlain
