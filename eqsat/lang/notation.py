"""A rule as one line of algebra, from what its file says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eqsat.model.rules import AttrExpr, Function, Rule, Splat, SpreadRule, Term, Value, Var


def notation(rule: Rule | SpreadRule) -> str:
    """`h(g(x, y)) = c.rest(c.sum(x), y) with c = f(g, h) if …`: a generic is named by its loops.

    A law is printed as it is written. `→` instead of `=`: the left side is removed; `&` stands
    between patterns that must all match.
    """
    if isinstance(rule, SpreadRule):
        return f"{rule.verb} {rule.what}{_listed(' if ', map(expression_text, rule.where))}"
    conditions = [expression_text(c) for c in rule.where]
    law = next((text for _, e in rule.lets for text in _law(e)), "")
    if law:
        sides, _, guards = law.partition(" if ")
        line = sides.replace("=>", "=").strip()
        return line + _listed(" if ", [*([guards] if guards else []), *conditions])
    left = " & ".join(map(algebra_of, (rule.left, *rule.also)))
    line = f"{left} {'→' if rule.apply == 'replace' else '='} {algebra_of(rule.right)}"
    lets = (f"{name} = {expression_text(e)}" for name, e in rule.lets)
    each = (f"{name} in {expression_text(e)}" for name, e in rule.foreach)
    return line + _listed(" with ", lets) + _listed(" for ", each) + _listed(" if ", conditions)


def _law(e: AttrExpr) -> Iterator[str]:
    if isinstance(e, Function) and e.name == "law" and isinstance(e.args[0], Value):
        yield e.args[0].value


def _listed(word: str, parts: Iterable[str]) -> str:
    found = (" and " if word == " if " else ", ").join(parts)
    return word + found if found else ""


def algebra_of(term: Term) -> str:
    """`g(*p, x)` for a generic with loops g, `pack[l](x)` for any other op."""
    if isinstance(term, Var):
        return term.name
    if isinstance(term, Splat):
        return f"*{algebra_of(term.inner)}"
    attrs = [expression_text(e) for _, e in term.attrs]
    if len(attrs) > 1:
        attrs = [f"{key}={a}" for (key, _), a in zip(term.attrs, attrs, strict=True)]
    is_loops = [key for key, _ in term.attrs] == ["sig"]
    head = attrs[0] if is_loops else term.op + (f"[{', '.join(attrs)}]" if attrs else "")
    operands = f"({', '.join(map(algebra_of, term.operands))})" if term.operands else ""
    return (f"{term.name} := " if term.name else "") + head + operands


def expression_text(e: AttrExpr) -> str:
    """An expression as it stands in its file."""
    return e.span.text[e.span.column - 1 : e.span.end - 1] or str(e)
