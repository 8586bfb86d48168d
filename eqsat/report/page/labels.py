"""What dispatches and values are called on the page; the only place that decides it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from eqsat.model.dispatch import Dispatch
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.program import Node, Program
from eqsat.report.origins import op_word

_AROUND = re.compile(r"^(params|weights|p|self)_|_(weight|kernel|scale)$")
_NUMBER = re.compile(r"(?<![^_.])\d+(?![^_.])")
SHOWN_OPS = 3  # in the name of a dispatch without weights


def shown_name(program: Program, node: int) -> str:
    """The name of a value, as `eqsat show DIR` prints it."""
    return program.value_name(node)


def op_words(program: Program, members: Iterable[int]) -> tuple[str, ...]:
    """The ops of a dispatch in words, without views and constants."""
    nodes = (program.nodes[m] for m in members)
    return tuple(op_word(n) for n in nodes if n.op not in VIEWS | LEAVES)


def dispatch_name(program: Program, dispatch: Dispatch, weights: list[int]) -> str:
    """Its own name, if that has words; else the largest weight it multiplies with or looks up in.

    Else what it computes. weights: nodes of those it reads, the largest first.
    """
    if dispatch.name and not dispatch.name[0].isdigit():
        return dispatch.name
    members = dispatch.members
    nodes = [program.nodes[m] for m in members]
    words = [op_word(n) for n in nodes if n.op not in VIEWS | LEAVES | CONVERSIONS]
    matrices = [w for w in weights if program.nodes[w].type.rank > 1]
    if matrices and any(w.startswith("contraction") or w == "gather" for w in words):
        return short_name(shown_name(program, matrices[0]))
    roots = [w for w in words if w.startswith(("contraction", "reduction"))]
    words = roots if len(words) > SHOWN_OPS and roots else words
    words = words or [op_word(n) for n in nodes if n.op in CONVERSIONS] or [n.op for n in nodes]
    found = " → ".join(words[:SHOWN_OPS])
    return found + (" …" if len(words) > SHOWN_OPS else "")


def short_name(weight: str) -> str:
    """`params_encoder_layer_0_attention_self_key_weight` → `encoder.layer.0.attention.self.key`."""
    before = ""
    while before != weight:
        before, weight = weight, _AROUND.sub("", weight)
    return weight.replace("_", ".")


def layers_by_name(names: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Weight → the numbered part of the model that it belongs to: `encoder.layer`, 3.

    A name is cut at the first number behind which several weights stand, for several numbers.
    """
    parts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    cuts: dict[str, list[tuple[str, int]]] = {}
    for name in names:
        cuts[name] = [(name[: m.start()], int(m[0])) for m in _NUMBER.finditer(name)]
        for prefix, number in cuts[name]:
            parts[prefix][number].add(name)
    found = {}
    for name, places in cuts.items():
        for prefix, number in places:
            sizes = [len(held) for held in parts[prefix].values()]
            if len(sizes) > 1 and sum(s > 1 for s in sizes) * 2 > len(sizes):
                found[name] = (short_name(prefix).strip("."), number)
                break
    return found


def scope_in(name: str, scopes: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """The one of these numbered parts that a name begins with: `encoder.layer.3.softmax`."""
    heads = {f"{part}.{number}.": (part, number) for part, number in scopes}
    return next((scope for head, scope in heads.items() if name.startswith(head)), None)


def is_relayout(node: Node) -> bool:
    """A pack, unpack, transpose or retype."""
    return node.op in CONVERSIONS
