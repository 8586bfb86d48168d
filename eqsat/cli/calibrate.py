"""The command that measures this machine: calibrate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat.cli import options as o
from eqsat.cli.talk import say
from eqsat.model.diag import fail
from eqsat.model.textfile import read_text, write_text
from eqsat.plugins import user_folder

if TYPE_CHECKING:
    from eqsat.lab.calibrate import Calibration
    from eqsat.lab.calibrate.check import Agreement

MARK = "Measured by eqsat calibrate"  # in the `source` of files that may be written over
LARGEST = 1 << 20


def calibrate(
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="The target file that is written; `host`, which `auto` takes, if none.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three rounds in place of nine: coarser figures.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Also compare the model with measured variants of programs."),
    ] = False,
    output_format: o.OutputFormat = o.Format.text,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Measure this machine, one core with XLA's own ops, and write it as a target.

    Medians of interleaved rounds of process time: contractions and convolutions by shape and order
    of dims, elementwise passes, memory levels, transposes, the cost of one op. With --check, forms
    of small programs are timed too: rank correlation and regret say how far the model can be
    trusted. A file that calibrate did not write is not replaced (E421).
    """
    from eqsat.lang.owntarget import HOST

    out = user_folder("targets") / f"{HOST}.yaml" if out is None else out
    _check_file(out)
    from eqsat.lab.calibrate import calibrate as measure

    with _progress(quiet) as show:
        found = measure(quick=quick, progress=show)
        name, text = out.stem, found.to_yaml(out.stem)
        agreements = _agreements(found, show) if check else []
    write_text(out, text)
    if output_format is o.Format.json:
        report = {"target": name, "file": str(out)} | found.to_json()
        print(json.dumps(report | {"check": [a.to_json() for a in agreements]}))
    else:
        print(_table(found, agreements), end="")
    if not quiet:
        say(f"wrote {out}")
    return 0


def _check_file(out: Path) -> None:
    """Before anything is measured: a target's name, and nobody's own file."""
    from eqsat.lang.owntarget import AUTO

    named = re.fullmatch(r"[A-Za-z][\w.-]*\.ya?ml", out.name, re.ASCII)
    if named is None or out.is_dir() or out.stem == AUTO:
        what = f"`{out}` is no name for a target file"
        raise fail("E422", what, help="letters, digits, `_`, `-`: for example `-o host.yaml`")
    if out.exists() and MARK not in read_text(out, "E421", LARGEST):
        what = f"`{out}` was not written by `eqsat calibrate` and is left alone"
        raise fail("E421", what, help="write to another file with `-o`")


def _agreements(found: Calibration, show: Callable[[str], None]) -> list[Agreement]:
    from eqsat.lab.calibrate.check import agreement

    return agreement(found.to_target(), found.rounds, progress=show)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """One live line while a person is watching."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("measuring") as status:
        yield status.update


# ---- text ------------------------------------------------------------------------------------
def _table(found: Calibration, agreements: Sequence[Agreement]) -> str:
    """Figures by what they are of, then what the model says of variants."""
    lines = [f"{found.processor}, one core, medians of {found.rounds} rounds", ""]
    units = {"copy": "GB/s", "relayout": "GB/s"}
    for p in found.probes:
        unit = units.get(p.name.split()[0], "GFLOP/s")
        if p.name not in ("call", "launch"):
            lines.append(f"  {p.name:16} {found.per_second(p.name) / 1e9:10.1f} {unit}")
    lines.append(f"  {'launch':16} {1e6 / found.per_second('launch'):10.2f} us")
    for a in agreements:
        lines += ["", *_agreement(a)]
    return "\n".join(lines) + "\n"


def _agreement(a: Agreement) -> Iterator[str]:
    best = f"rank correlation {a.rank_correlation:.2f}, regret {100 * a.regret:.1f} %"
    yield f"{a.program}: {best}"
    yield f"  {'variant':12} {'predicted us':>14} {'measured us':>14}"
    for v in sorted(a.variants, key=lambda v: v.predicted_us):
        yield f"  {v.name:12} {v.predicted_us:14.1f} {v.measured_us:14.1f}"


COMMANDS: dict[str, Callable[..., Any]] = {"calibrate": calibrate}
