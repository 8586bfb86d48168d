"""HLO text → the computations of a module, instruction by instruction, each with its line.

Read by the front end of `eqsat judge`, and by oracles that count what XLA compiled a program to.
An instruction is split into its parts; what its type and attributes say is read when it is asked.
Convolutions and pools have windows: `window={…}` and `dim_labels=…`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from eqsat.model.diag import Span, fail
from eqsat.model.tensor import TensorType

# ---- instructions --------------------------------------------------------------------------------
DTYPES = {
    "pred": "bool", "s4": "i4", "s8": "i8", "s16": "i16", "s32": "i32", "s64": "i64", "u8": "u8",
    "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
}  # fmt: skip
MOST_BYTES = 64 << 20  # of a file that is read
MOST_ELEMENTS = 2**40  # of a value
_HEADER = re.compile(r"(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .* \{")
_LINE = re.compile(r"\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)")
_ARRAY = re.compile(r"[a-z]\w*\[[^\]]*\](?:\{[^}]*\})?")
_SHAPE = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<dims>[\d,]*)\](?:\{(?P<layout>[^}]*)\})?")
_OPCODE = re.compile(r"\s*(?P<op>[\w\-]+)\(")
_COMMENT = re.compile(r"/\*.*?\*/")
_MARK = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|[()\[\]{},]')  # quoted text is looked over


@dataclass(frozen=True)
class HloType:
    """An array: its type, and its dims from the slowest to the fastest in memory."""

    tensor: TensorType
    order: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it lies row by row."""
        return self.order == tuple(range(len(self.order)))


@dataclass(frozen=True)
class Instruction:
    """One instruction, `%name = shape opcode(argument), rest`."""

    name: str
    shape: str  # as it is written, layouts included
    opcode: str
    argument: str  # what stands in the brackets: of a constant its value
    rest: str
    span: Span
    is_root: bool = False

    @property
    def at(self) -> str:
        return f"{self.span.file}:{self.span.line}"

    @cached_property
    def types(self) -> tuple[HloType, ...]:
        """The array type, or those of a tuple's parts; EqsatError E345, E346."""
        if self.shape.startswith("("):
            inner = _COMMENT.sub("", self.shape[1:-1])
            return tuple(_type(m, self.span) for m in _SHAPE.finditer(inner))
        match = _SHAPE.fullmatch(self.shape)
        if match is None:
            raise _bad(self.span, NO_ARRAY)
        return (_type(match, self.span),)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of operands, with or without types in front in the text."""
        if self.opcode in ("constant", "parameter", "iota"):
            return ()
        parts = _split(_COMMENT.sub("", self.argument))
        return tuple(part.split()[-1].lstrip("%") for part in parts if part.strip())

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """Texts by key."""
        pairs = (part.partition("=") for part in _split(self.rest))
        return {key.strip(): value.strip() for key, equals, value in pairs if equals}

    def ints(self, key: str) -> tuple[int, ...]:
        """`{1,0}` as numbers; none if the key is not there."""
        return tuple(int(n) for n in re.findall(r"-?\d+", self.attributes.get(key, "")))

    def called(self, key: str) -> str:
        """The computation that an attribute names."""
        return self.attributes.get(key, "").lstrip("%")


@dataclass
class Computation:
    """Instructions in their order; operands come first."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def root(self) -> Instruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])


@dataclass(frozen=True)
class HloModule:
    """Computations by name, and the name of the entry."""

    name: str
    computations: Mapping[str, Computation]
    entry: str


def is_hlo(text: str) -> bool:
    """Whether a text begins as an HLO module does."""
    return text.lstrip().startswith("HloModule")


def parse_hlo(text: str, file: str) -> HloModule:
    """EqsatError E345 if this is not the text of a module, with the line."""
    lines = text.splitlines()
    if not is_hlo(text):
        help = "print one: `jax.jit(f).lower(*args).compile().as_text()`"
        raise fail("E345", f"`{file}` does not begin with `HloModule`", help=help)
    computations: dict[str, Computation] = {}
    entry, here = "", None
    for number, line in enumerate(lines, 1):
        header = _HEADER.fullmatch(line.rstrip())
        if header is not None:
            here = Computation(header["name"])
            computations[here.name] = here
            entry = here.name if header["entry"] else entry
        elif line.startswith("}"):
            here = None
        elif here is not None and line.strip():
            here.instructions.append(_instruction(line, Span(file, number, 1, 2, line)))
    if not entry or not computations[entry].instructions:
        help = "the whole text of the module is needed, down to the `ENTRY` computation"
        raise fail("E345", f"`{file}` has no ENTRY computation", help=help)
    name = re.match(r"\s*HloModule ([\w.\-]+)", text)
    return HloModule(name[1] if name else "module", computations, entry)


NO_ARRAY = "this type is not one of an array"


def _instruction(line: str, span: Span) -> Instruction:
    match = _LINE.fullmatch(line)
    if match is None:
        raise _bad(span, "this is no instruction `%name = type opcode(operands)`")
    text = match["rest"]
    after = _after_type(text, span)
    opcode = _OPCODE.match(text, after)
    if opcode is None:
        raise _bad(span, "there is no opcode behind the type")
    end = _closing(text, opcode.end() - 1, span)
    return Instruction(
        match["name"], text[:after], opcode["op"], text[opcode.end() : end].strip(),
        text[end + 1 :], span, bool(match["root"]),
    )  # fmt: skip


def _after_type(text: str, span: Span) -> int:
    """Where the type at the start of a text ends: an array's, or a tuple's in brackets."""
    if text.startswith("("):
        return _closing(text, 0, span) + 1
    array = _ARRAY.match(text)
    if array is None:
        raise _bad(span, NO_ARRAY)
    return array.end()


def _type(match: re.Match[str], span: Span) -> HloType:
    dtype = DTYPES.get(match["dtype"])
    if dtype is None:
        raise _bad(span, f"programs have no element type `{match['dtype']}`", "E346")
    shape = tuple(int(d) for d in match["dims"].split(",") if d)
    size = 1
    for d in shape:
        size *= d
    if size > MOST_ELEMENTS:
        raise _bad(span, f"a value of {size:,} elements is more than any machine holds")
    layout = match["layout"] or ""
    minor, _, tiled = layout.partition(":")
    if tiled:
        raise _bad(span, f"the tiled layout `{{{layout}}}` is not read", "E346")
    if not re.fullmatch(r"[\d,]*", minor):
        raise _bad(span, f"`{{{layout}}}` is no layout")
    order = tuple(int(d) for d in reversed(minor.split(",")) if d)
    order = order or tuple(range(len(shape)))
    if sorted(order) != list(range(len(shape))):
        raise _bad(span, f"`{{{layout}}}` is no order of {len(shape)} dims")
    return HloType(TensorType(dtype, shape), order)


def _closing(text: str, start: int, span: Span) -> int:
    """Where the bracket that opens at `start` ends."""
    depth = 0
    for mark in _MARK.finditer(text, start):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth == 0:
            return mark.start()
    raise _bad(span, "a bracket is not closed in this line")


def _split(text: str) -> list[str]:
    """At commas outside of brackets and quotes."""
    parts, depth, begin = list[str](), 0, 0
    for mark in _MARK.finditer(text):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if mark[0] == "," and depth == 0:
            parts.append(text[begin : mark.start()])
            begin = mark.end()
    return [*parts, text[begin:]]


def _bad(span: Span, message: str, code: str = "E345") -> Exception:
    return fail(code, message, span)


# ---- windows -------------------------------------------------------------------------------------
_LABELS = re.compile(r"([bf\d]+)_([io\d]+)->([bf\d]+)")
_KEYS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


@dataclass(frozen=True)
class HloWindow:
    """Window, per dim: extent, step, zeros before and after, dilations, and if it turns."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    lhs_dilate: tuple[int, ...]
    rhs_dilate: tuple[int, ...]
    reversal: tuple[int, ...]

    def positions(self, extents: Sequence[int]) -> tuple[int, ...]:
        """How many places it has along dims of these extents; below 1 where it does not fit."""
        return tuple(
            (low + high + _spread(n, base) - _spread(size, dilation)) // stride + 1
            for n, size, stride, (low, high), base, dilation in zip(
                extents, self.size, self.stride, self.pad, self.lhs_dilate, self.rhs_dilate,
                strict=True,
            )
        )  # fmt: skip


class DimNumbers(NamedTuple):
    """Dims of image, kernel and result: (batch or out, feature or in, windowed ones in order)."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def _spread(extent: int, dilation: int) -> int:
    return max(extent - 1, 0) * dilation + min(extent, 1)


def window_of(i: Instruction, rank: int) -> HloWindow:
    """The window of an instruction over `rank` dims; ValueError if it is not one."""
    text = i.attributes.get("window", "{}")
    fields = dict(re.findall(r"(\w+)=([\dx_\-]+)", text))
    if set(fields) - set(_KEYS):
        raise ValueError(f"`{text}` is no window")
    sizes, strides, lhs, rhs = (
        _numbers(fields.get(k), rank, 1) for k in ("size", "stride", "lhs_dilate", "rhs_dilate")
    )
    if min((*sizes, *strides, *lhs, *rhs), default=1) < 1:
        raise ValueError(f"`{text}` has numbers below 1")
    pads = fields["pad"].split("x") if "pad" in fields else ["0_0"] * rank
    edges = [tuple(map(int, p.split("_"))) for p in pads]
    if len(edges) != rank or any(len(e) != 2 for e in edges):
        raise ValueError(f"`{text}` has no two pads for each of {rank} dims")
    pad = tuple((e[0], e[1]) for e in edges)
    return HloWindow(sizes, strides, pad, lhs, rhs, _numbers(fields.get("rhs_reversal"), rank, 0))


def _numbers(text: str | None, rank: int, otherwise: int) -> tuple[int, ...]:
    numbers = tuple(map(int, text.split("x"))) if text else (otherwise,) * rank
    if len(numbers) != rank:
        raise ValueError(f"`{text}` has not {rank} numbers")
    return numbers


def dimension_numbers(labels: str) -> DimNumbers:
    """`b01f_01io->b01f`; ValueError if it is not of that form."""
    match = _LABELS.fullmatch(labels)
    if match is None:
        raise ValueError(f"`{labels}` labels no dims")
    sides = zip(match.groups(), ("bf", "oi", "bf"), strict=True)
    specs = [_spec(text, first) for text, first in sides]
    if len({len(s) for s in specs}) != 1:
        raise ValueError(f"`{labels}` labels other numbers of dims")
    return DimNumbers(*specs)


def _spec(text: str, first: str) -> tuple[int, ...]:
    wanted = first + "".join(str(d) for d in range(len(text) - 2))
    if sorted(text) != sorted(wanted):
        raise ValueError(f"`{text}` has not each of `{wanted}` once")
    return tuple(text.index(label) for label in wanted)


def check_convolution(
    window: HloWindow,
    numbers: DimNumbers,
    groups: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """ValueError if the shapes of image, kernel and result do not belong together.

    groups: of features and of images, at most one of them above 1.
    """
    if any(len(s) != len(spec) for s, spec in zip(shapes, numbers, strict=True)):
        raise ValueError(f"{len(numbers.lhs_spec)} dims are labelled")
    image, kernel, result = (
        [shape[d] for d in spec] for shape, spec in zip(shapes, numbers, strict=True)
    )
    by_feature, by_batch = groups
    if min(groups) != 1:
        raise ValueError("one of the two group counts has to be 1")
    if kernel[2:] != list(window.size):
        raise ValueError(f"the window is {list(window.size)}, the kernel has {kernel[2:]}")
    wanted = [image[0] // by_batch, kernel[0], *window.positions(image[2:])]
    if result != wanted:
        raise ValueError(f"batch, features and places are {wanted}, its type has {result}")
    is_split = kernel[0] % max(groups) == 0 and image[0] % by_batch == 0
    if image[1] != kernel[1] * by_feature or not is_split:
        raise ValueError(f"{image[1]} features of the image, {kernel[1]} of the kernel")
