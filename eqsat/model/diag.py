"""Diagnostics: what was wrong, where (file:line:column), and how to fix it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, order=True)
class Span:
    """A piece of one source line; `line`, `column` and `end` are 1-based, `end` is exclusive."""

    file: str
    line: int
    column: int
    end: int
    text: str = ""  # the whole source line, so that a message never needs the file again

    def at(self, start: int, end: int) -> Span:
        """The part of this span from character `start` to `end` (0-based, relative)."""
        return replace(self, column=self.column + start, end=self.column + end)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Note:
    """A second place that explains the first."""

    span: Span
    label: str


@dataclass(frozen=True)
class Diagnostic:
    """One problem: a code, a sentence, the place, and a fix that can be pasted."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    help: str = ""
    notes: tuple[Note, ...] = ()
    severity: str = "error"  # error | warning

    def to_json(self) -> dict[str, Any]:
        """A plain dict with the keys editors and CI expect."""
        where = self.span
        place = (
            {}
            if where is None
            else {"file": where.file, "line": where.line, "column": where.column, "end": where.end}
        )
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "help": self.help,
        } | place

    def full(self) -> str:
        """The message, the source line with carets, notes and the fix."""
        lines = [f"{self.severity}[{self.code}]: {self.message}"]
        if self.span:
            lines += _frame(self.span, self.label, first=True)
        for note in self.notes:
            lines += _frame(note.span, note.label, first=self.span is None, mark="-")
        if self.help:
            lines.append(f"  = help: {self.help}")
        return "\n".join(lines)


def _frame(span: Span, label: str, first: bool, mark: str = "^") -> list[str]:
    gutter = " " * len(str(span.line))
    head = [f"{gutter}--> {span}"] if first else []
    if not span.text:
        return head or [f"{gutter} {label} at {span}"]
    under = " " * (span.column - 1) + mark * max(1, span.end - span.column)
    return [
        *head,
        f"{gutter} |",
        f"{span.line} | {span.text}",
        f"{gutter} | {under} {label}".rstrip(),
        f"{gutter} |",
    ]


class EqsatError(Exception):
    """Every failure a user can cause: one or more diagnostics. Anything else is our bug."""

    def __init__(self, *diagnostics: Diagnostic, exit_code: int = 2):
        self.diagnostics = diagnostics
        self.exit_code = exit_code
        super().__init__("\n".join(d.full() for d in diagnostics))


class EqsatWarning(UserWarning):
    """Something odd that does not stop the work; the command line prints its diagnostic."""

    def __init__(self, diagnostic: Diagnostic):
        self.diagnostic = diagnostic
        super().__init__(diagnostic.full())


def fail(code: str, message: str, span: Span | None = None, **extra: Any) -> EqsatError:
    """The exception for a single problem: `raise fail("E301", "…", span)`."""
    exit_code = extra.pop("exit_code", 2)
    return EqsatError(Diagnostic(code, message, span, **extra), exit_code=exit_code)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """In reading order: by file, line and column; those without a place come first."""
    return tuple(
        sorted(
            diagnostics,
            key=lambda d: (
                (d.span.file, d.span.line, d.span.column) if d.span else ("", 0, 0),
                d.code,
            ),
        )
    )


FEW_WORDS, SHOWN_WORDS = 12, 60  # of a help text, beside a command that lists them and without


def check_known(
    word: str, words: Collection[str], code: str, message: str, span: Span | None = None
) -> None:
    """EqsatError with this code and message, and a word like it, unless a word is one of these."""
    if word not in words:
        raise fail(code, message, span, help=did_you_mean(word, words))


def did_you_mean(word: str, words: Iterable[str], listing: str = "") -> str:
    """A help text: the nearest known word, else all of them if they are few.

    Of more the command `listing` that prints them, or the first ones where there is none.
    """
    import difflib

    vocabulary = sorted(set(words))
    near = difflib.get_close_matches(word, vocabulary, 1, 0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    if listing and len(vocabulary) > FEW_WORDS:
        return f"`{listing}` has names"
    more = len(vocabulary) - SHOWN_WORDS
    return f"known: {', '.join(vocabulary[:SHOWN_WORDS])}" + (f", and {more} more" * (more > 0))
