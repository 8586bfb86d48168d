"""Labels of dispatches and values on the page, and the blocks in which values lie.

Packs of a scheduled program, and what reads them, tell the blocks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eqsat.model.dispatch import Dispatch
from eqsat.model.generic import Generic
from eqsat.model.layout import ROW_MAJOR, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.report.origins import op_word

# ---- labels --------------------------------------------------------------------------------------
_AROUND = re.compile(r"^(params|weights|p|self)_|_(weight|kernel|scale)$")
_NUMBER = re.compile(r"(?<!\d)\d+(?=\.|$)")
LEAST_GLUED = 4  # names that a layer `h3` has at least; `conv1` and `conv2` are no layers
Scope = tuple[str, int]  # a numbered part of a model: `encoder.layer.`, 3
SHOWN_OPS = 3  # in the name of a dispatch without weights


def shown_name(program: Program, node: int) -> str:
    """The name of a value, as `eqsat show DIR` prints it."""
    return program.value_name(node)


def op_words(program: Program, members: Iterable[int]) -> tuple[str, ...]:
    """The ops of a dispatch in words, without views and constants."""
    nodes = (program.nodes[m] for m in members)
    return tuple(op_word(n) for n in nodes if n.op not in VIEWS | LEAVES)


def main_weight(program: Program, dispatch: Dispatch, weights: list[int]) -> str:
    """The largest weight it multiplies with or looks up in; "" if it does not.

    weights: nodes of those it reads, the largest first.
    """
    matrices = [w for w in weights if program.nodes[w].type.rank > 1]
    words = op_words(program, dispatch.members)
    if matrices and any(w.startswith("contraction") or w == "gather" for w in words):
        return short_name(shown_name(program, matrices[0]))
    return ""


def dispatch_name(program: Program, dispatch: Dispatch, weight: str) -> str:
    """Its own name, if that has words; else its main weight, else what it computes."""
    if is_speaking(dispatch):
        return dispatch.name
    if weight:
        return weight
    nodes = [program.nodes[m] for m in dispatch.members]
    words = [op_word(n) for n in nodes if n.op not in VIEWS | LEAVES | CONVERSIONS]
    roots = [w for w in words if w.startswith(("contraction", "reduction"))]
    words = roots if len(words) > SHOWN_OPS and roots else words
    words = words or [op_word(n) for n in nodes if n.op in CONVERSIONS] or [n.op for n in nodes]
    name = " → ".join(words[:SHOWN_OPS])
    return name + (" …" if len(words) > SHOWN_OPS else "")


def is_speaking(dispatch: Dispatch) -> bool:
    """Whether its name has words; a number has none, and older runs have its ops there."""
    return dispatch.name not in ("", dispatch.ops) and not dispatch.name[0].isdigit()


def short_name(weight: str) -> str:
    """`params_encoder_layer_0_attention_self_key_weight` → `encoder.layer.0.attention.self.key`."""
    before = ""
    while before != weight:
        before, weight = weight, _AROUND.sub("", weight)
    return weight.replace("_", ".")


def layers_by_name(names: Iterable[str]) -> dict[str, tuple[Scope, ...]]:
    """Name → the numbered parts of the model that it belongs to, the outermost first.

    `encoder.layer.3.attention.key` belongs to `encoder.layer.` 3, `h3.ffn.up` to `h` 3. A part is
    numbered if there are several of it and most of them hold several names (of `h3`, four).
    """
    texts = {name: short_name(name) for name in names}
    cuts = {
        name: [(text[: m.start()], int(m[0])) for m in _NUMBER.finditer(text)]
        for name, text in texts.items()
    }
    counted: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for places in cuts.values():
        for part, number in places:
            counted[part][number] += 1
    numbered = {part for part, counts in counted.items() if _is_numbered(part, counts)}
    scopes_of = {
        name: tuple(s for s in places if s[0] in numbered) for name, places in cuts.items()
    }
    return {name: scopes for name, scopes in scopes_of.items() if scopes}


def _is_numbered(part: str, counts: Mapping[int, int]) -> bool:
    least = 2 if part == "" or part.endswith(".") else LEAST_GLUED
    full = sum(count >= least for count in counts.values())
    return len(counts) > 1 and 2 * full > len(counts)


def is_relayout(node: Node) -> bool:
    """A pack, unpack, transpose or retype."""
    return node.op in CONVERSIONS


# ---- blocks --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dim:
    """A dim as it lies in memory: which dim of the plain value, and whether inside of a block."""

    plain: int
    is_inner: bool = False


Dims = tuple[Dim, ...]


def layout_names(program: Program) -> tuple[str, ...]:
    """Per node `row-major`, or the extents of its blocks in the order of memory: `16x16`."""
    dims: list[Dims] = []
    for node in program.nodes:
        dims.append(_dims(node, [dims[o] for o in node.operands]))
    return tuple(_name(n.types[0].shape, d) for n, d in zip(program.nodes, dims, strict=True))


def _dims(node: Node, operands: list[Dims]) -> Dims:
    attr, shape = node.attr, node.types[0].shape
    plain = tuple(Dim(i) for i in range(len(shape)))
    dims = plain
    if isinstance(attr, Leaf):
        dims = _packed(attr.layout) if isinstance(attr.layout, Layout) else plain
    elif isinstance(attr, Layout):
        dims = plain if node.op == "unpack" else _packed(attr)
    elif isinstance(attr, Transpose):
        dims = _renumbered([operands[0][p] for p in attr.perm])
    elif isinstance(attr, Reshape):
        dims = _reshaped(attr, operands[0])
    elif isinstance(attr, Generic):
        dims = _computed(attr, operands)
    elif operands and len(operands[0]) == len(shape):  # moves, transfers, encodings
        dims = operands[0]
    return dims if len(dims) == len(shape) else plain


def _packed(layout: Layout) -> Dims:
    return (*(Dim(d) for d in layout.outer), *(Dim(d, True) for d in layout.pos))


def _renumbered(dims: list[Dim]) -> Dims:
    """Dims with the plain ones numbered as they come, so an order of plain dims is row-major."""
    number: dict[int, int] = {}
    return tuple(Dim(number.setdefault(d.plain, len(number)), d.is_inner) for d in dims)


def _reshaped(attr: Reshape, operand: Dims) -> Dims:
    """Dims that a reshape leaves alone stay what they are.

    Of dims that are split or joined the last one is what varies quickest: it stays the dim over the
    blocks, the others are dims of their own.
    """
    old, new = attr.source, attr.shape
    dims: list[Dim] = []
    i = j = 0
    fresh = 1 + max((d.plain for d in operand), default=0)
    while j < len(new):
        if i < len(old) and old[i] == new[j]:
            dims.append(operand[i])
            i, j = i + 1, j + 1
            continue
        begin = i
        i, end = _cut(old, new, i, j)
        dims += [Dim(fresh + n) for n in range(j, end)]
        joined = operand[begin:i]
        if joined and (not joined[-1].is_inner or Dim(joined[-1].plain) in joined):
            dims[-1] = Dim(joined[-1].plain)
        j = end
    return _renumbered(dims)


def _cut(old: tuple[int, ...], new: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    """The next dims, behind i and j, at which both shapes have run over as many elements."""
    a = b = 1
    while (a, b) == (1, 1) or a != b:
        if (a <= b and i < len(old)) or j >= len(new):
            if i >= len(old):
                break
            a, i = a * old[i], i + 1
        else:
            b, j = b * new[j], j + 1
    return i, max(j, 1)


def _computed(attr: Generic, operands: list[Dims]) -> Dims:
    """A loop that runs inside of an operand's blocks does so in the result, beside its blocks."""
    pairs: dict[int, int] = {}  # loop inside of blocks -> the loop over these blocks
    for dims, m in zip(operands, attr.maps, strict=True):
        loops = [e.dim for e in m]
        outer = {d.plain: n for d, n in zip(dims, loops, strict=True) if not d.is_inner}
        for d, loop in zip(dims, loops, strict=True):
            block = outer.get(d.plain)
            if d.is_inner and loop is not None and block is not None and block != loop:
                pairs.setdefault(loop, block)
    rank = attr.rank
    return _renumbered(
        [Dim(pairs[n], True) if n in pairs and pairs[n] < rank else Dim(n) for n in range(rank)]
    )


def _name(shape: tuple[int, ...], dims: Dims) -> str:
    """Blocks that follow their own dim at once move no data, so they are no layout."""
    sizes = [
        str(shape[i])
        for i, d in enumerate(dims)
        if d.is_inner and (i == 0 or dims[i - 1] != Dim(d.plain))
    ]
    return "x".join(sizes) or ROW_MAJOR
