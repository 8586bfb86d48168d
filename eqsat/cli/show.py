"""`eqsat show`: a value of a finished run, one dispatch, or a rule, as text or JSON."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from eqsat.cli import options as o
from eqsat.model.diag import fail


class BorderValue(StrEnum):
    """A border value a run keeps, or one dispatch of its schedule."""

    program = "program"
    canonical = "canonical"
    target = "target"
    egraph = "egraph"
    selection = "selection"
    baseline = "baseline"
    schedule = "schedule"
    dispatch = "dispatch"


def show(
    folder: o.RunFolder,
    printed: o.Output,
    stage: Annotated[BorderValue, Argument(help="What to show.")] = BorderValue.schedule,
    number: Annotated[
        int | None, Argument(metavar="[N]", help="With `dispatch`: its number.")
    ] = None,
    asm: Annotated[
        bool,
        Option(
            "--asm",
            help="With `dispatch N`: the machine code of its kernel, and what its inner loops do"
            " beside what the price assumed.",
        ),
    ] = False,
) -> int:
    """Print a value of a run as text or JSON: its program, e-graph, selection, schedule …

    An e-graph with `--json` is egraph-serialize JSON, as `eqsat extract` and visualizers read it.
    `eqsat show rule NAME` prints a rule.
    `eqsat show DIR dispatch N` prints one dispatch, with `--asm` the machine code of its kernel.
    """
    is_dispatch = stage is BorderValue.dispatch
    if is_dispatch and number is not None:
        _show_dispatch(folder, number, asm, printed)
        return 0
    if number is not None or asm or is_dispatch:
        what = "a number and `--asm` are of a dispatch"
        raise fail("E400", what, help="`eqsat show DIR dispatch N --asm`")
    value = getattr(o.load_run(folder), stage)
    if value is None:
        raise fail("E405", f"the run in `{folder}` has no {stage}")
    if stage == BorderValue.egraph:
        from eqsat.export.write import serialized_egraph

        printed.show(lambda: serialized_egraph(value), value.to_text)
    elif hasattr(value, "to_text"):
        printed.found(value)
    else:
        printed.show(value.to_json, lambda: json.dumps(value.to_json(), indent=1) + "\n")
    return 0


def _show_dispatch(folder: Path, number: int, asm: bool, printed: o.Output) -> None:
    from eqsat.report.kernelcode import code_text
    from eqsat.run.kernelcode import dispatch_of, machine_code_of

    run = o.load_run(folder)
    d = dispatch_of(run, number, str(folder))
    code = machine_code_of(run, number, str(folder)) if asm else None
    data, lines = d.to_json(), run.need_schedule().dispatch_lines(number)
    if code is None:
        printed.show(lambda: data, lambda: "\n".join([*lines, ""]))
    else:
        text = "\n".join([*lines, code_text(code)])
        printed.show(lambda: data | {"code": code.to_json()}, lambda: text)


def show_rule(
    rule: Annotated[str, Argument(help="A rule, `mine.yaml`, or `mine.yaml:RULE`.")],
    printed: o.Output,
) -> int:
    """Print a rule: its place, its YAML, and a picture of both sides."""
    from eqsat.api.ruleplaces import rules_named
    from eqsat.lang.content import notation
    from eqsat.report.ruleshape import rule_text, yaml_text

    rules = rules_named(rule)
    keys = ("name", "ruleset", "doc", "source", "at")
    data = [
        {k: getattr(r, k) for k in keys} | {"notation": notation(r), "yaml": yaml_text(r)}
        for r in rules
    ]
    printed.show(lambda: data, lambda: "\n".join(map(rule_text, rules)))
    return 0
