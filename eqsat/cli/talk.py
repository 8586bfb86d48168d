"""Talk goes to stderr: diagnostics, progress, what was written."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from eqsat.model.diag import Diagnostic, EqsatWarning

Progress = Callable[[str, float], None]
_NEXT = {"read": "saturating", "saturate": "extracting", "extract": "scheduling"}


def say(text: str) -> None:
    """One message to a person."""
    print(text, file=sys.stderr)


def say_diagnostics(diagnostics: Iterable[Diagnostic], as_json: bool) -> None:
    """Full messages, or one JSON object per line for programs."""
    found = list(diagnostics)
    if as_json:
        for d in found:
            say(json.dumps(d.to_json()))
        return
    say("\n\n".join(d.full() for d in found))


@contextmanager
def told_warnings(as_json: bool) -> Iterator[None]:
    """Print warnings of ours as diagnostics; Python's own keep their form."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", EqsatWarning)
        plain = warnings.showwarning

        def show(message: Any, *rest: Any, **more: Any) -> None:
            if isinstance(message, EqsatWarning):
                say_diagnostics([message.diagnostic], as_json)
            else:
                plain(message, *rest, **more)

        warnings.showwarning = show
        yield


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A callback for the phases of a search: one live line while a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield lambda phase, seconds: None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:

        def show(phase: str, seconds: float) -> None:
            status.update(f"{_NEXT.get(phase, phase)} ({phase} took {seconds:.1f} s)")

        yield show
