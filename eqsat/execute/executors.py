"""The executors by name: eqsat's own, and those of plug-ins (group `eqsat.executors`)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from eqsat.execute.lowering import OpaqueFunction
from eqsat.model.diag import EqsatError, fail
from eqsat.model.executor import BUILT_IN, Executable, Execution, Executor
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.plugins import brought_by, load_plugin

# where eqsat's own are; imported when one is asked for, as each may need heavy libraries
_HOMES = {
    "xla": ("eqsat.execute.executable", "XLA"),
    "arena": ("eqsat.execute.arena", "ARENA"),
    "kernels": ("eqsat.execute.kernels.executor", "KERNELS"),
    "pallas": ("eqsat.execute.pallas.executor", "PALLAS"),
}


def find_executor(name: str) -> Executor:
    """The executor of this name.

    EqsatError: E601 if there is none, E600 if that of a plug-in is no executor.
    """
    if name in BUILT_IN:
        module, attribute = _HOMES[name]
        return getattr(import_module(module), attribute)
    executor = load_plugin("executors", name)
    if not isinstance(executor, Executor) or executor.name != name:
        what = f"named `{executor.name}`" if isinstance(executor, Executor) else f"{executor!r}"
        raise fail(
            "E600",
            f"{brought_by('executors', name)} is {what}",
            help=f"an eqsat.model.executor.Executor named `{name}` is needed",
        )
    return executor


def execution(schedule: Schedule | None, target: Target) -> Execution:
    """How the executor of a target runs a schedule; its name alone if it cannot be loaded."""
    try:
        executor = find_executor(target.executor)
    except EqsatError:
        return Execution(target.executor)
    if schedule is None:
        return Execution(executor.name, executor.plan)
    declined = tuple(sorted(executor.declined(schedule, target).items()))
    return Execution(executor.name, executor.plan, declined, len(schedule.dispatches))


def build_executable(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any],
    target: Target,
) -> Executable:
    """The executable of a schedule, by the executor of its target.

    opaque: key → function of JAX arrays that returns a list; weights: content key → array.
    EqsatError: E505 if the program needs 64-bit types and JAX has them switched off, E509 for types
    that the executor has no code for, E600 and E601 as `find_executor`.
    """
    return find_executor(target.executor).build(schedule, opaque, weights, target)
