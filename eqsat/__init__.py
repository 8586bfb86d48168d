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
    from eqsat.api.again import bind, compare
    from eqsat.api.footprint import footprint
    from eqsat.api.jit import jit
    from eqsat.api.keep_state import keep_state
    from eqsat.api.pareto import pareto
    from eqsat.api.permutes import assert_permutes
    from eqsat.api.switch import Switch, switch
    from eqsat.api.together import Called, Together, optimize_together
    from eqsat.frontends.source import Source
    from eqsat.lab.experiment import Experiment
    from eqsat.lab.loading import load
    from eqsat.model.diag import EqsatError
    from eqsat.model.program import Program

__version__ = "0.1.0"
# public name -> module; loaded on first use, so that `import eqsat` stays light
_HOME = {
    "Called": "eqsat.api.together",
    "EqsatError": "eqsat.model.diag",
    "Experiment": "eqsat.lab.experiment",
    "Program": "eqsat.model.program",
    "Run": "eqsat.api",
    "Source": "eqsat.frontends.source",
    "Switch": "eqsat.api.switch",
    "Together": "eqsat.api.together",
    "assert_permutes": "eqsat.api.permutes",
    "bind": "eqsat.api.again",
    "compare": "eqsat.api.again",
    "footprint": "eqsat.api.footprint",
    "jit": "eqsat.api.jit",
    "keep_state": "eqsat.api.keep_state",
    "load": "eqsat.lab.loading",
    "optimize": "eqsat.api",
    "optimize_together": "eqsat.api.together",
    "pareto": "eqsat.api.pareto",
    "read": "eqsat.api",
    "rules": "eqsat.api",
    "switch": "eqsat.api.switch",
    "target": "eqsat.api",
}
__all__ = [
    "Called", "EqsatError", "Experiment", "Program", "Run", "Source", "Switch", "Together",
    "assert_permutes", "bind", "compare", "footprint", "jit", "keep_state", "load", "optimize",
    "optimize_together", "pareto", "read", "rules", "switch", "target",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `eqsat` has no attribute `{name}`")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
