"""What a hunt found: how much was looked at, and the smallest counterexample, with its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.attr import Attr
from eqsat.model.diag import Diagnostic
from eqsat.model.layout import Layout
from eqsat.model.rules import Rule


@dataclass(frozen=True)
class ConditionCount:
    """One entry of `where:`, evaluated for itself on every well-typed match."""

    text: str
    met: int
    missed: int


@dataclass(frozen=True)
class Counterexample:
    """The smallest instance found on which the sides differ.

    variables: name → its value as text, tensors first. why: the first lane that differs with what
    both sides hold, or what else is wrong. size: elements of all tensors, the measure of smallness.
    """

    variables: tuple[tuple[str, str], ...]
    why: str
    size: int

    @property
    def given(self) -> str:
        """The variables and their values."""
        return ", ".join(f"{name} = {value}" for name, value in self.variables)

    def __str__(self) -> str:
        return f"{self.given}; {self.why}"


@dataclass(frozen=True)
class Findings:
    """A hunt of one rule.

    instances: well-typed matches with a right side, both sides compared. padded: those of them
    with padding in some layout. refused: matches for which the rule's functions or conditions gave
    no right side. wanted: instances asked for; fewer were found if `instances` is less.
    """

    rule: Rule
    wanted: int
    instances: int
    padded: int
    refused: int
    conditions: tuple[ConditionCount, ...] = ()
    counterexample: Counterexample | None = None
    complete: bool = True  # an exhaustive check that left nothing of its domain out

    @property
    def is_short(self) -> bool:
        """Fewer instances than asked for could be made."""
        return self.counterexample is None and self.instances < self.wanted


def diagnose(findings: Findings) -> Diagnostic | None:
    """E100 at the right side of an unsound rule; None if no counterexample was found."""
    example = findings.counterexample
    if example is None:
        return None
    rule = findings.rule
    return Diagnostic(
        "E100",
        f"rule `{rule.name}` is unsound: {example.why}",
        rule.right.span,
        "not equal to the left side",
        help=f"counterexample after {findings.instances} instance(s): {example.given}",
    )


def shortage(findings: Findings) -> Diagnostic | None:
    """A warning (E102) if the rule was tried on fewer instances than asked for."""
    if not findings.is_short:
        return None
    return Diagnostic(
        "E102",
        f"rule `{findings.rule.name}` was tried on {findings.instances} instance(s) only,"
        f" of {findings.wanted} asked for ({findings.refused} matches gave no right side)",
        findings.rule.left.span,
        help="it is sound as far as it was tried; an example beside it shows where it applies",
        severity="warning",
    )


def bound_value_text(value: object) -> str:
    """An attribute, a list, or a literal as it stands in terms."""
    if isinstance(value, Attr):
        text = value.text("pack")  # without the shape, which comes behind
        of = f" of {list(value.source)}" if isinstance(value, Layout) else ""
        return f"({text})" + of if text else str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(bound_value_text(v) for v in value) + "]"
    return str(value)
