"""Stamps of the fourteen questions: what decides their tables, and whether it is still what it was.

A stamp is of the experiment's file, of what its rules and targets say, of its programs' files and
of the version: not of comments, docs, or where figures come from. Nor is it of eqsat's code, of
which `tests/test_stamps.py` asks some rows again. `experiments/stamps.json` keeps the stamps of
what experiments/README.md shows, a hash of each table and figure, and why one is declared stale.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fill import BLOCK, ROOT

import eqsat
from eqsat.lab.store.record import rules_content
from eqsat.lang.devices import find_devices
from eqsat.lang.experiments import find_experiment, find_program, load_experiment
from eqsat.lang.source import load_yaml
from eqsat.lang.targets import find_target

PAGE = ROOT / "experiments" / "README.md"
FIGURES = PAGE.parent / "figures"
STAMPS = PAGE.parent / "stamps.json"
SAYINGS = ("doc", "source", "measured_on")  # of a file: they decide nothing
IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
LINE = re.compile(r"(!\[[^\]]*\]\(figures/([\w-]+)\.svg\)\n)(?:\n\*Stamp [^\n]*\n)?")


def inputs(name: str) -> dict[str, str]:
    """What decides the table of a question, a hash for each part by name."""
    plan = load_experiment(name)
    data = load_yaml(find_experiment(name)).data
    found = {"version": eqsat.__version__, "experiment": _digest(_said(data))}
    for cell in plan.cells:
        program = f"program {cell.program.partition(':')[0]}"
        if program not in found:
            spec = cell.from_folder(cell.program)
            found[program] = _digest(_program(find_program(spec)))
        kind = "devices" if cell.on_devices else "target"
        if f"{kind} {cell.target}" not in found:
            found[f"{kind} {cell.target}"] = _digest(_machine(kind, cell.target))
        rules = " ".join(cell.rules)
        if f"rules {rules}" not in found:
            found[f"rules {rules}"] = rules_content(eqsat.rules(*cell.rules))[:12]
    return dict(sorted(found.items()))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


def _said(data: Any) -> Any:
    """YAML without what only explains it."""
    if isinstance(data, dict):
        return {k: _said(v) for k, v in data.items() if k not in SAYINGS}
    return data


def _machine(kind: str, name: str) -> list[Any]:
    """What the files of a target, or of a map of devices, say, and those that they stand on."""
    if kind == "devices":
        data = load_yaml(find_devices(name)).data
        targets = data["targets"].values()
        return [_said(data), *(_machine("target", t) for t in targets)]
    found = []
    while name:
        data = load_yaml(find_target(name)).data
        found.append(_said({k: _said(v) for k, v in data.items()}))
        name = data.get("extends", "")
    return found


def _program(spec: str) -> list[str]:
    """The lines of a program's file and of those beside it that it imports, without comments."""
    file, waiting, texts = "", [spec.rpartition(":")[0] or spec], {}
    while waiting:
        file = waiting.pop()
        if file in texts or not Path(file).is_file():
            continue
        text = Path(file).read_text(encoding="utf-8")
        texts[file] = text
        if file.endswith(".py"):
            waiting += [str(Path(file).with_name(f"{m}.py")) for m in IMPORT.findall(text)]
    lines = (line.rstrip() for f in sorted(texts) for line in texts[f].splitlines())
    return [line for line in lines if line and not line.lstrip().startswith("#")]


# ---- the page ------------------------------------------------------------------------------------
def tables(page: str) -> dict[str, str]:
    """A hash of all that the page shows of each question's commands."""
    found: dict[str, list[str]] = {}
    for m in BLOCK.finditer(page):
        if m[1] == "console":
            found.setdefault(m[3].split()[3], []).append(m[3])
    return {name: _digest(blocks) for name, blocks in found.items()}


def figure(name: str) -> str:
    """A hash of a question's figure."""
    return _digest((FIGURES / f"{name}.svg").read_text(encoding="utf-8"))


def staleness(name: str, stamp: dict[str, Any], page: str | None = None) -> list[str]:
    """What is not as it was when a question was run, by name; what its page shows included."""
    before, now = stamp["inputs"], inputs(name)
    shown = PAGE.read_text(encoding="utf-8") if page is None else page
    found = [k for k in sorted({*before, *now}) if before.get(k) != now.get(k)]
    seen = {"table": tables(shown).get(name), "figure": figure(name)}
    return found + [k for k, v in seen.items() if stamp[k] != v]


def line_of(stamp: dict[str, Any]) -> str:
    """What the page says of a stamp."""
    known = _digest(stamp["inputs"]) if stamp["inputs"] else "none"
    stale = f"; **stale**: {stamp['stale']}" if stamp["stale"] else ""
    return f"*Stamp {known}, run {stamp['run']}{stale}.*"


def stamped(page: str, stamps: dict[str, Any]) -> str:
    """The page with a line behind the figure of each question."""

    def line(m: re.Match[str]) -> str:
        return f"{m[1]}\n{line_of(stamps[m[2]])}\n" if m[2] in stamps else m[0]

    return LINE.sub(line, page)


def load() -> dict[str, Any]:
    return json.loads(STAMPS.read_text(encoding="utf-8")) if STAMPS.exists() else {}


def keep(stamps: dict[str, Any], names: Iterable[str], run: str, stale: str = "") -> None:
    """Stamp these questions as they are now, on the page and beside it.

    stale: why what the page shows is of other inputs; their stamps stay what they were.
    """
    page = PAGE.read_text(encoding="utf-8")
    shown = tables(page)
    for name in names:
        old = stamps.get(name, {"inputs": {}, "run": run})
        kept = old["inputs"] if stale else inputs(name)
        stamps[name] = {
            "run": old["run"] if stale else run, "inputs": kept, "table": shown[name],
            "figure": figure(name), "stale": stale,
        }  # fmt: skip
    STAMPS.write_text(json.dumps(dict(sorted(stamps.items())), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(stamped(page, stamps), encoding="utf-8")
