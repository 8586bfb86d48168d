"""A rule for a person: its lines in the file, and a picture of both sides as trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from eqsat.lang.content import expression_text
from eqsat.model.rules import Apply, Rule, Splat, SpreadRule, Term, Var

BESIDE = 100  # characters of both sides, side by side


def rule_text(rule: Rule | SpreadRule) -> str:
    """The place of a rule, what its file says, and the picture."""
    picture = "" if isinstance(rule, SpreadRule) else f"\n{picture_text(rule)}"
    return f"{rule.name} of {rule.ruleset}, {rule.at}\n\n{yaml_text(rule)}{picture}"


def yaml_text(rule: Rule | SpreadRule) -> str:
    """The entry of a rule in its file; "" if the file is not there any more."""
    try:
        lines = Path(rule.span.file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    first = rule.span.line - 1
    entry = lines[first : first + 1]
    indent = entry[0].index("-") if entry and "-" in entry[0] else 0
    for line in lines[first + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        entry.append(line)
    return "\n".join(entry).rstrip() + "\n"


def picture_text(rule: Rule) -> str:
    """Both sides as trees beside each other, or the right one below where they are wide."""
    left = [*_tree(rule.left)]
    for term in rule.also:
        left += ["&", *_tree(term)]
    right = [*_tree(rule.right)]
    arrow = "→" if rule.apply == "replace" else "="
    width = max(map(len, left))
    if width + max(map(len, right)) + 5 > BESIDE:
        return "\n".join([*left, arrow, *right]) + "\n"
    lines = zip_longest(left, right, fillvalue="")
    signs = [arrow, *" " * max(len(left), len(right))]
    pairs = zip(lines, signs, strict=False)
    return "\n".join(f"{a:{width}}  {s}  {b}".rstrip() for (a, b), s in pairs) + "\n"


def _tree(term: Term, prefix: str = "", rest: str = "") -> Iterator[str]:
    """A line per op and variable; prefix: of the first line, rest: of those below it."""
    yield prefix + _node(term)
    inner = term.inner if isinstance(term, Splat) else term
    below: Sequence[Term] = inner.operands if isinstance(inner, Apply) else ()
    for i, operand in enumerate(below):
        is_last = i == len(below) - 1
        branch, beside = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield from _tree(operand, rest + branch, rest + beside)


def _text(term: Term) -> str:
    """A term as it stands in its file."""
    at = term.span
    return at.text[at.column - 1 : at.end - 1]


def _node(term: Term) -> str:
    if isinstance(term, Var):
        return term.name
    if isinstance(term, Splat):
        return f"*{_node(term.inner)}"
    name = f"{term.name} := " if term.name else ""
    if any(e.span == term.span for _, e in term.attrs):  # an op by its name
        text = _text(term)
        head = text.partition("(")[0]
        is_one = text == f"{head}({', '.join(map(_text, term.operands))})"
        return name + (head if is_one else text)
    attrs = ", ".join(f"{key}={expression_text(e)}" for key, e in term.attrs)
    return f"{name}{term.op}" + (f"[{attrs}]" if attrs else "")
