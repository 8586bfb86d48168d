"""`eqsat show`: a value of a finished run, one dispatch, or a rule, as text or JSON."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from eqsat.cli import completion
from eqsat.cli import options as o


class BorderValue(StrEnum):
    """A border value a run keeps."""

    program = "program"
    canonical = "canonical"
    target = "target"
    egraph = "egraph"
    selection = "selection"
    baseline = "baseline"
    schedule = "schedule"


def show(
    folder: Annotated[
        Path,
        typer.Argument(
            autocompletion=completion.runs,
            help="The folder of a run, from `optimize -o`; or the word `rule`.",
        ),
    ],
    stage: Annotated[
        str,
        typer.Argument(
            metavar=f"[{'|'.join(BorderValue)}]",
            autocompletion=lambda incomplete: [v for v in BorderValue if v.startswith(incomplete)],
            help="What to show; the name of a rule; or the word `dispatch`.",
        ),
    ] = BorderValue.schedule.value,
    number: Annotated[
        int | None, typer.Argument(metavar="[N]", help="With `dispatch`: its number.")
    ] = None,
    asm: Annotated[
        bool,
        typer.Option(
            "--asm",
            help="With `dispatch N`: the machine code of its kernel, and what its inner loops do"
            " beside what the price assumed.",
        ),
    ] = False,
    output_format: o.OutputFormat = o.Format.text,
    verbose: o.Verbose = False,
) -> int:
    """Print a value of a run as text or JSON: its program, e-graph, selection, schedule …

    An e-graph with `--json` is egraph-serialize JSON, as `eqsat extract` and visualizers read it.
    `eqsat show rule NAME` prints a rule: its place, its YAML, and a picture of both sides.
    `eqsat show DIR dispatch N` prints one dispatch, with `--asm` the machine code of its kernel.
    """
    from eqsat.model.diag import did_you_mean, fail

    if stage == "dispatch" and number is not None:
        _show_dispatch(folder, number, asm, output_format)
        return 0
    if number is not None or asm or stage == "dispatch":
        what = "a number and `--asm` are of a dispatch"
        raise fail("E400", what, help="`eqsat show DIR dispatch N --asm`")
    if str(folder) == "rule" and not folder.is_dir():
        return _show_rule(stage, output_format)
    if stage not in [*BorderValue]:
        raise fail("E400", f"a run has no `{stage}`", help=did_you_mean(stage, [*BorderValue]))
    value = getattr(o.load_run(folder), stage)
    if value is None:
        raise fail("E405", f"the run in `{folder}` has no {stage}")
    if stage == BorderValue.egraph and output_format is o.Format.json:
        from eqsat.export.write import serialized_egraph

        print(json.dumps(serialized_egraph(value)))
        return 0
    as_json = output_format is o.Format.json or not hasattr(value, "to_text")
    if as_json:
        print(json.dumps(value.to_json(), indent=None if output_format is o.Format.json else 1))
    else:
        print(value.to_text(), end="")
    return 0


def _show_dispatch(folder: Path, number: int, asm: bool, output_format: o.Format) -> None:
    from eqsat.report.kernelcode import code_text
    from eqsat.run.kernelcode import dispatch_of, machine_code_of

    run = o.load_run(folder)
    d = dispatch_of(run, number, str(folder))
    code = machine_code_of(run, number, str(folder)) if asm else None
    if output_format is o.Format.json:
        print(json.dumps(d.to_json() if code is None else d.to_json() | {"code": code.to_json()}))
        return
    print("\n".join(run.need_schedule().dispatch_lines(number)))
    if code is not None:
        print(code_text(code), end="")


def _show_rule(name: str, output_format: o.Format) -> int:
    from eqsat.api.ruleplaces import rules_named
    from eqsat.lang.content import notation
    from eqsat.report.ruleshape import rule_text, yaml_text

    rules = rules_named(name)
    if output_format is o.Format.json:
        keys = ("name", "ruleset", "doc", "source", "at")
        shown = [{k: getattr(r, k) for k in keys} for r in rules]
        texts = [{"notation": notation(r), "yaml": yaml_text(r)} for r in rules]
        print(json.dumps([a | b for a, b in zip(shown, texts, strict=True)]))
    else:
        print("\n".join(map(rule_text, rules)), end="")
    return 0
