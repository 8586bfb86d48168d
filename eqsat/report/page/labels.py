"""What dispatches and values are called on the page; the only place that decides it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from eqsat.model.dispatch import Dispatch
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.report.origins import op_word

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
    found = " → ".join(words[:SHOWN_OPS])
    return found + (" …" if len(words) > SHOWN_OPS else "")


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
    held: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for places in cuts.values():
        for part, number in places:
            held[part][number] += 1
    numbered = {part for part, counts in held.items() if _is_numbered(part, counts)}
    found = {name: tuple(s for s in places if s[0] in numbered) for name, places in cuts.items()}
    return {name: scopes for name, scopes in found.items() if scopes}


def _is_numbered(part: str, counts: Mapping[int, int]) -> bool:
    least = 2 if part == "" or part.endswith(".") else LEAST_GLUED
    full = sum(count >= least for count in counts.values())
    return len(counts) > 1 and 2 * full > len(counts)


def is_relayout(node: Node) -> bool:
    """A pack, unpack, transpose or retype."""
    return node.op in CONVERSIONS
