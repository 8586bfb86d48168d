"""Labels of dispatches and values on the page: names, blocks in memory, and layers.

Packs of a scheduled program, and what reads them, tell the blocks. Layers that do the same work are
found by the names of weights, or by what repeats.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from eqsat.model.dispatch import Dispatch
from eqsat.model.generic import Generic
from eqsat.model.layout import ROW_MAJOR, Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.report.names import op_word
from eqsat.report.page.data import Fold, PageLayer

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


FEW = 30  # dispatches that are drawn as they are, unless layers repeat
LEAST_REPEATED = 6  # dispatches that a repeat covers at least
MOST_FOLDS = 12  # that are looked for where nothing has names


@dataclass(frozen=True)
class DispatchWork:
    """The facts of a dispatch that folding compares.

    what: the work it does, whatever the layouts. exactly: the same with layouts and plan. scopes:
    the numbered parts of the model that it belongs to by name, the outermost first.
    """

    what: Hashable
    exactly: Hashable
    scopes: tuple[Scope, ...] = ()
    reads: tuple[int, ...] = ()  # dispatches it reads from
    is_relayout: bool = False


def folds(works: Sequence[DispatchWork]) -> tuple[Fold, ...]:
    """Layers by name where there are at least two, else whatever repeats.

    Where parts of a model have numbered parts themselves, those of which most are alike.
    """
    depth = max((len(w.scopes) for w in works), default=0)
    named = [_by_name(works, n) for n in range(1, depth + 1)]
    named = [repeats for repeats in named if sum(len(f.layers) for f in repeats) > 1]
    repeats = max(named, key=_spared) if named else _by_repeats(works)
    return tuple(f for f in repeats if _is_worth_it(f, len(works)))


def _spared(repeats: list[Fold]) -> int:
    """Dispatches that need not be drawn."""
    return sum((len(f.layers) - 1) * len(f.layers[0].dispatches) for f in repeats)


def _is_worth_it(fold: Fold, dispatches: int) -> bool:
    first, *others = fold.layers
    return bool(others) or (dispatches > FEW and len(first.dispatches) > 1)


# ---- by name -------------------------------------------------------------------------------------
def _by_name(works: Sequence[DispatchWork], depth: int) -> list[Fold]:
    """Layers by the so many-th numbered part of a name, or by the last there is."""
    members: dict[Scope, list[int]] = {}
    for i, scope in enumerate(_scopes(works, depth)):
        if scope is not None:
            members.setdefault(scope, []).append(i)
    layers = [
        PageLayer(f"{part or 'layer '}{n}", tuple(ds), f"{part}{n}.")
        for (part, n), ds in members.items()
    ]
    alike = [
        (part, frozenset(_done(layer, works).items()))
        for (part, _), layer in zip(members, layers, strict=True)
    ]
    runs = groupby(range(len(layers)), key=lambda n: alike[n])
    return [_fold([layers[n] for n in run], works) for _, run in runs]


def _done(layer: PageLayer, works: Sequence[DispatchWork]) -> Counter[Hashable]:
    """The work of a layer; relayouts do none."""
    return Counter(works[i].what for i in layer.dispatches if not works[i].is_relayout)


def _scopes(works: Sequence[DispatchWork], depth: int) -> list[Scope | None]:
    """Part of each dispatch; one without a name is of what it reads, up to the part's last one."""
    by_name = [w.scopes[min(depth, len(w.scopes)) - 1] if w.scopes else None for w in works]
    last = {scope: i for i, scope in enumerate(by_name) if scope is not None}
    order = {scope: n for n, scope in enumerate(dict.fromkeys(s for s in by_name if s is not None))}
    scopes: list[Scope | None] = []
    for i, w in enumerate(works):
        before = [s for r in w.reads if (s := scopes[r]) is not None and i < last[s]]
        scopes.append(by_name[i] or max(before, key=lambda s: order[s], default=None))
    return _with_lead_in(works, scopes)


def _with_lead_in(works: Sequence[DispatchWork], scopes: list[Scope | None]) -> list[Scope | None]:
    """Parts where a dispatch between two layers that only the second reads belongs to that one."""
    readers: dict[int, set[Scope | None]] = {}
    for i in reversed(range(len(works))):
        follows = any(scopes[r] is not None for r in works[i].reads)
        if scopes[i] is None and follows and len(readers.get(i, ())) == 1:
            scopes[i] = next(iter(readers[i]))
        for r in works[i].reads:
            readers.setdefault(r, set()).add(scopes[i])
    return scopes


def _fold(layers: list[PageLayer], works: Sequence[DispatchWork]) -> Fold:
    numbers: dict[Hashable, int] = {}
    done = [tuple(works[i].exactly for i in layer.dispatches) for layer in layers]
    return Fold(tuple(layers), tuple(numbers.setdefault(d, len(numbers)) for d in done))


# ---- by what repeats -----------------------------------------------------------------------------
def _by_repeats(works: Sequence[DispatchWork]) -> list[Fold]:
    """Equal sequences, one behind the other; relayouts go with the dispatch behind them."""
    working = [i for i, w in enumerate(works) if not w.is_relayout]
    number: dict[Hashable, int] = {}
    sequence = [number.setdefault(works[i].what, len(number)) for i in working]
    repeats = []
    for start, period, count in sorted(_repeats(sequence)):
        cuts = [start + n * period for n in range(count + 1)]
        first = [working[c - 1] + 1 if c else 0 for c in cuts]
        ranges = enumerate(pairwise(first))
        layers = [PageLayer(f"part {n}", tuple(range(a, b))) for n, (a, b) in ranges]
        repeats.append(_fold(layers, works))
    return repeats


def _repeats(sequence: list[int]) -> list[tuple[int, int, int]]:
    """(first, period, count) of the repeats that cover most; then of what is left around them."""
    repeats: list[tuple[int, int, int]] = []
    waiting = [(0, len(sequence))]
    while waiting and len(repeats) < MOST_FOLDS:
        begin, end = waiting.pop(0)
        best = _longest_repeat(sequence[begin:end])
        if best is not None:
            first, period, count = best
            repeats.append((begin + first, period, count))
            waiting += [(begin, begin + first), (begin + first + period * count, end)]
    return repeats


def _longest_repeat(sequence: list[int]) -> tuple[int, int, int] | None:
    """The repeat that covers most, of the shortest period; None if all are short."""
    best, covered = None, LEAST_REPEATED - 1
    for period in range(1, len(sequence) // 2 + 1):
        equal = [a == b for a, b in zip(sequence, sequence[period:], strict=False)]
        at = 0
        for is_equal, run in groupby(equal):
            length = sum(1 for _ in run)
            count = length // period + 1 if is_equal else 1
            if count > 1 and count * period > covered:
                best, covered = (at, period, count), count * period
            at += length
        if covered == len(sequence):
            break
    return best
