"""eqsat: equality saturation and exact extraction for tensor data layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.api import (
        Run,
        optimize,
        read,
        rules,
        target,
    )  # fmt: skip
    from eqsat.entry.bind import bind
    from eqsat.entry.compare import compare
    from eqsat.entry.jit import jit
    from eqsat.entry.keep_state import keep_state
    from eqsat.entry.pareto import pareto
    from eqsat.entry.together import Called, Together, optimize_together
    from eqsat.lab.experiment import Experiment
    from eqsat.lab.kept import load
    from eqsat.model.diag import EqsatError
    from eqsat.model.program import Program
    from eqsat.request.source import Source

__version__ = "0.1.0"
# public name -> module; loaded on first use, so that `import eqsat` stays light
_HOME = {
    "Called": "eqsat.entry.together",
    "EqsatError": "eqsat.model.diag",
    "Experiment": "eqsat.lab.experiment",
    "Program": "eqsat.model.program",
    "Run": "eqsat.api",
    "Source": "eqsat.request.source",
    "Together": "eqsat.entry.together",
    "bind": "eqsat.entry.bind",
    "compare": "eqsat.entry.compare",
    "jit": "eqsat.entry.jit",
    "keep_state": "eqsat.entry.keep_state",
    "load": "eqsat.lab.kept",
    "optimize": "eqsat.api",
    "optimize_together": "eqsat.entry.together",
    "pareto": "eqsat.entry.pareto",
    "read": "eqsat.api",
    "rules": "eqsat.api",
    "target": "eqsat.api",
}
__all__ = [
    "Called", "EqsatError", "Experiment", "Program", "Run", "Source", "Together", "bind", "compare",
    "jit", "keep_state", "load", "optimize", "optimize_together", "pareto", "read", "rules",
    "target",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `eqsat` has no attribute `{name}`")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
