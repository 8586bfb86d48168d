"""The text of an MLIR file, what the parser reads instead of it, and places in the user's file.

Older spellings become today's by edits of the text, so that places in the user's file are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eqsat.model.diag import Span, fail
from eqsat.model.files import read_text

# ---- text and places -----------------------------------------------------------------------------
LARGEST_FILE_BYTES = 256 * 2**20
DEEPEST = 256  # brackets inside one another; the parser recurses on its stack
LONGEST_EXPRESSION = 1000  # operators of one affine map; parsed recursively too
_SKIPPED = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*')
_BRACKETS = re.compile(r"->|>=|[\[\](){}<>]")
_AFFINE = re.compile(r"affine_(?:map|set)<([^<{}]*)")
_OPERATOR = re.compile(r"[-+*]|mod|div")
_OPEN, _CLOSE = "[({<", "])}>"


@dataclass(frozen=True, order=True)
class Edit:
    """`text` in place of the characters from `start` to `end` of the original."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class ModuleText:
    """A file as it was written, and the edits that make it today's spelling."""

    file: str
    original: str
    edits: tuple[Edit, ...] = ()

    @cached_property
    def text(self) -> str:
        """The text that the parser reads."""
        pieces, at = [], 0
        for e in self.edits:
            pieces += [self.original[at : e.start], e.text]
            at = e.end
        return "".join([*pieces, self.original[at:]])

    @cached_property
    def _lines(self) -> list[int]:
        """Where every line of `text` starts."""
        return [0, *(m.end() for m in re.finditer("\n", self.text))]

    @cached_property
    def _original_lines(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.original))]

    def span(self, line: int, column: int) -> Span:
        """The place in the original of a place in `text`; columns of MLIR count bytes, from 1."""
        line = min(max(line, 1), len(self._lines))
        start = self._lines[line - 1]
        row = self.text[start:].split("\n", 1)[0] if line == len(self._lines) else None
        row = self.text[start : self._lines[line] - 1] if row is None else row
        before = row.encode()[: max(column - 1, 0)].decode(errors="ignore")
        return self.at(self._back(start + len(before)))

    def _back(self, offset: int) -> int:
        """The offset in the original; inside an edit, where the edit starts."""
        shift = 0
        for e in self.edits:
            start = e.start + shift
            if offset < start:
                break
            if offset < start + len(e.text):
                return e.start
            shift += len(e.text) - (e.end - e.start)
        return offset - shift

    def at(self, offset: int) -> Span:
        """The place of a character of the original."""
        line = bisect_right(self._original_lines, offset)
        start = self._original_lines[line - 1]
        end = self.original.find("\n", start)
        row = self.original[start : len(self.original) if end < 0 else end].rstrip("\r")
        word = re.match(r"[%@#!]?[\w.$-]+|.", row[offset - start :])
        width = len(word[0]) if word else 1
        return Span(self.file, line, offset - start + 1, offset - start + 1 + width, row)

    def word(self, line: int, column: int) -> str:
        """The identifier at a place of `text`, "" if there is none."""
        at = self.span(line, column)
        match = re.match(r"%([\w$.-]+)", at.text[at.column - 1 :])
        return match[1] if match else ""


def without_comments(text: str) -> str:
    """The text with strings and comments blanked, every other character in its place."""
    return _SKIPPED.sub(lambda m: " " * len(m[0]), text)


def load_text(path: Path) -> ModuleText:
    """The file, bounded in size and nesting; EqsatError E370 or E371."""
    source = ModuleText(str(path), read_text(path, "E370", LARGEST_FILE_BYTES))
    if "\0" in source.original:
        raise fail("E370", f"`{path}` is no MLIR text: it holds null characters")
    check_nesting(source)
    return source


def check_nesting(source: ModuleText) -> None:
    """EqsatError E371 before a parser that recurses once per bracket or operator meets too many."""
    text = without_comments(source.original)
    depth = 0
    for m in _BRACKETS.finditer(text):
        if m[0] in _OPEN:
            depth += 1
        elif m[0] in _CLOSE:
            depth = max(depth - 1, 0)
        if depth > DEEPEST:
            at = source.at(m.start())
            raise fail("E371", f"brackets are nested more than {DEEPEST} deep", at)
    for m in _AFFINE.finditer(text):
        if len(_OPERATOR.findall(m[1])) > LONGEST_EXPRESSION:
            why = f"an affine map has more than {LONGEST_EXPRESSION} operators"
            raise fail("E371", why, source.at(m.start()))


def edited(source: ModuleText, edits: Iterable[Edit]) -> ModuleText:
    """The source with these edits of its original; where two overlap, the earlier one holds."""
    disjoint: list[Edit] = []
    for e in sorted(edits):
        if not disjoint or e.start >= disjoint[-1].end:
            disjoint.append(e)
    return ModuleText(source.file, source.original, tuple(disjoint))


# ---- older spellings -----------------------------------------------------------------------------
_MATMULS = re.compile(r"\blinalg\.(batch_)?matmul_transpose_([ab])\b")
_ELEMENTWISE = re.compile(
    r"\blinalg\.(abs|add|ceil|div|div_unsigned|erf|exp|floor|log|max|max_signed|max_unsigned|"
    r"min|min_signed|min_unsigned|mul|negf|powf|reciprocal|round|rsqrt|select|sqrt|square|sub|tanh)"
    r"(?=\s+(?:\{|ins\b))"
)
_KIND = re.compile(r"(?<=\blinalg\.elementwise)\s+kind\s*=\s*#linalg\.elementwise_kind(?=<)")
_EXPAND = re.compile(
    r"\btensor\.expand_shape\s+(?:%[\w$.#-]+)\s*(\[(?:[^\[\]:]|\[[^\[\]:]*\])*\])(\s*)"
    r"(?P<rest>(?:\{[^}]*\}\s*)?:\s*tensor<[^:\n]*?>\s*into\s+tensor<(?P<shape>(?:\d+x)*)[^x\d<]*)"
)
_ENCODING = re.compile(r"#iree_(?:encoding|linalg_ext)\.encoding<")
_NEGATIVE = re.compile(r"#iree_encoding\.padding<\s*\[[^\]]*?(-\s*\d+)")
_UNSET = re.compile(
    r"%[\w$.-]+\s*=\s*iree_(?:encoding|linalg_ext)\.unset_encoding\s+(%[\w$.#-]+)\s*:\s*"
    r"(?P<from>tensor<[^:{}\n]*?>)\s*->\s*tensor<(?P<dims>(?:[?\d]+x)*)[^<>\n]*>(?!\s*\{)"
)
_LOCATION = re.compile(r"(?<![\w.#@%$-])loc\(")
_LOCATION_ALIAS = re.compile(r"^[ \t]*#loc\w*[ \t]*=[ \t]*loc\(", re.M)
_ROLES = {"LHS": 0, "RHS": 1, "RESULT": 2}
_MATMUL = ("(d0, d2)", "(d2, d1)", "(d0, d1)")
_BATCHED = ("(d0, d1, d3)", "(d0, d3, d2)", "(d0, d1, d2)")


def modernised(source: ModuleText) -> ModuleText:
    """The source as today's parser reads it; E379 for padding that is less than none."""
    text = without_comments(source.original)
    for m in _NEGATIVE.finditer(text) if "padding<" in text else ():
        help = "write how many elements lie behind the end of each dim, 0 for none"
        why = f"no dim can be padded by {m[1]} elements"
        raise fail("E379", why, source.at(m.start(1)), help=help)
    edits: list[Edit] = []
    for needle, find in _REWRITES:
        if needle in text:  # most files are large and hold none
            edits += find(text, source.original)
    return edited(source, edits) if edits else source


def _in_dialect(pattern: str, dialect: str) -> Callable[[str, str], Iterator[Edit]]:
    """Ops that now belong to another dialect; the pattern is that of the old one's name."""

    def moved(text: str, _: str) -> Iterator[Edit]:
        for m in re.finditer(pattern, text):
            yield Edit(m.start(), m.end(), dialect)

    return moved


def _maps(results: tuple[str, ...], loops: int) -> str:
    domain = ", ".join(f"d{i}" for i in range(loops))
    return ", ".join(f"affine_map<({domain}) -> {r}>" for r in results)


def _matmuls(text: str, _: str) -> Iterator[Edit]:
    for m in _MATMULS.finditer(text):
        lhs, rhs, result = _BATCHED if m[1] else _MATMUL
        if m[2] == "a":
            lhs = "(d0, d3, d1)" if m[1] else "(d2, d0)"
        else:
            rhs = "(d0, d2, d3)" if m[1] else "(d1, d2)"
        maps = _maps((lhs, rhs, result), 4 if m[1] else 3)
        yield Edit(m.start(), m.end(), f"linalg.{m[1] or ''}matmul indexing_maps = [{maps}]")


def _elementwise(text: str, _: str) -> Iterator[Edit]:
    """`linalg.exp` and its kin are kinds of one op today."""
    for m in _ELEMENTWISE.finditer(text):
        kind = "max_signed" if m[1] == "max" else "min_signed" if m[1] == "min" else m[1]
        yield Edit(m.start(), m.end(), f"linalg.elementwise <{kind}>")
    for m in _KIND.finditer(text):
        yield Edit(m.start(), m.end(), " ")


def _expands(text: str, _: str) -> Iterator[Edit]:
    for m in _EXPAND.finditer(text):
        sizes = ", ".join(m["shape"].split("x")[:-1])
        if sizes or not m[1].strip("[] "):  # dynamic sizes were never inferable from the op
            yield Edit(m.end(1), m.end(1), f" output_shape [{sizes}]")


def _unset(text: str, _: str) -> Iterator[Edit]:
    """Dynamic sizes, which `unset_encoding` needs today: those of its operand."""
    for number, m in enumerate(_UNSET.finditer(text)):
        dims = [d for d, size in enumerate(m["dims"].split("x")[:-1]) if size == "?"]
        names = [f"%eqsat_dim_{number}_{d}" for d in dims]
        before = [
            f"{n}_at = arith.constant {d} : index {n} = tensor.dim {m[1]}, {n}_at : {m['from']} "
            for n, d in zip(names, dims, strict=True)
        ]
        if dims:
            yield Edit(m.start(), m.start(), "".join(before))
            yield Edit(m.end(), m.end(), "{" + ", ".join(names) + "}")


def _closing(text: str, start: int) -> int:
    """The offset after the bracket that closes the one before `start`; the end if none does."""
    depth = 1
    for m in re.compile(r"->|[\[\](){}<>]").finditer(text, start):
        depth += (m[0] in "[({<") - (m[0] in "])}>")
        if depth == 0:
            return m.end()
    return len(text)


def _locations(text: str, original: str) -> Iterator[Edit]:
    for pattern in (_LOCATION_ALIAS, _LOCATION):
        for m in pattern.finditer(text):
            end = _closing(text, m.end())
            yield Edit(m.start(), end, re.sub(r"[^\n]", " ", original[m.start() : end]))
    for m in re.finditer(r"(?<![\w.#@%$-])loc\(\s*#loc\w*\s*\)", text):
        yield Edit(m.start(), m.end(), " " * len(m[0]))


# ---- encodings -----------------------------------------------------------------------------------
def _encodings(text: str, original: str) -> Iterator[Edit]:
    for m in _ENCODING.finditer(text):
        end = _closing(text, m.end())
        inside = original[m.end() : end - 1]
        words = re.match(r"\s*([A-Z_0-9]+)_(LHS|RHS|RESULT)\s*$", inside)
        fields = dict(_fields(inside))
        if words:  # `MATMUL_F32F32F32_LHS`
            fields = {"user": words[1], "role": words[2]}
        if "role" in fields:
            yield Edit(m.start(), end, f"#iree_encoding.encoding<{_today(fields)}>")


def _fields(inside: str) -> Iterator[tuple[str, str]]:
    """`a = x, b = [y, z]` as pairs."""
    depth, at = 0, 0
    for m in re.compile(r"->|[\[\](){}<>,]").finditer(inside + ","):
        depth += (m[0] in "[({<") - (m[0] in "])}>")
        if m[0] == "," and depth == 0:
            key, _, value = inside[at : m.start()].partition("=")
            yield key.strip(), " ".join(value.split())
            at = m.end()


def _today(fields: dict[str, str]) -> str:
    """operand_index, op_type, element_types, user_indexing_maps of an encoding by role.

    What sizes it was rounded to is what a target decides today, so `round_dims_to` and
    `matmul_narrow_M` are dropped, as is the `original_type`: types keep their logical shape.
    """
    role = fields["role"].strip()
    types = fields.get("element_types") or f"[{', '.join(_types(fields.get('user', '')))}]"
    parts = [
        f"operand_index = {_ROLES.get(role, role)} : index",
        "op_type = matmul",
        f"element_types = {types}",
    ]
    maps = _older_maps(fields, role)
    return ", ".join([*parts, f"user_indexing_maps = [{maps}]"] if maps else parts)


def _types(user: str) -> list[str]:
    """`MATMUL_I8I8I32` → i8, i8, i32."""
    return [t.lower() for t in re.findall(r"BF16|[FI]\d+", user.rpartition("_")[2])] or ["f32"] * 3


def _older_maps(fields: dict[str, str], role: str) -> str:
    given = fields.get("user_indexing_maps")
    if given is None:
        batched = fields.get("user", "").startswith("BATCH")
        return _maps(_BATCHED, 4) if batched else _maps(_MATMUL, 3)
    maps = [v or k for k, v in _fields(given.strip()[1:-1])]
    moved = fields.get("bcast_map")
    at = _ROLES.get(role, 0)
    if moved and at < len(maps):
        maps[at] = f"[{maps[at]}, {moved}]"
    return ", ".join(maps)


_REWRITES: tuple[tuple[str, Callable[[str, str], Iterator[Edit]]], ...] = (
    ("loc(", _locations),
    ("pack", _in_dialect(r"\btensor\.(?=(?:un)?pack\b)", "linalg.")),
    ("matmul_transpose_", _matmuls),
    ("linalg.", _elementwise),
    ("tensor.expand_shape", _expands),
    (
        "iree_linalg_ext.",
        _in_dialect(r"\biree_linalg_ext\.(?=(?:un)?set_encoding\b)", "iree_encoding."),
    ),
    ("flow.dispatch.tensor", _in_dialect(r"\bflow\.(?=dispatch\.tensor\b)", "iree_tensor_ext.")),
    (
        "pad_encoding_layout<",
        _in_dialect(r"(?<=#iree_encoding\.)pad_encoding_layout(?=<)", "padding"),
    ),
    ("encoding<", _encodings),
    ("unset_encoding", _unset),
)
