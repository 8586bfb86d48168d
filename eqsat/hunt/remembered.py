"""Hunts done on this machine, by what the rule says and by the code that says what it means.

One small file per rule in the user's cache folder, or below `EQSAT_CACHE`. A refutation lies in a
file of its own and counts more than any number of instances, so two writers cannot hide it. What
cannot be read is as if it were not there, and what cannot be written is done again next time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eqsat.hunt.findings import Counterexample, Findings
from eqsat.lang.content import rule_key
from eqsat.model.diag import EqsatError
from eqsat.model.files import cache_folder, code_digest, write_text
from eqsat.model.rules import Apply, AttrExpr, Function, Rule, Splat, Term
from eqsat.ops.op import Op
from eqsat.ops.registry import plugged_ops
from eqsat.plugins import plugged_in

FORMAT = 1
LARGEST_BYTES = 1_000_000
_MEANING = ("hunt", "model", "ops", "saturate")  # folders whose code says what rules mean
_done: dict[str, Findings] = {}  # in this process: also where nothing can be written


def recall(rule: Rule) -> Findings | None:
    """What a hunt found earlier on this machine, with this version of everything; else None."""
    key = _key(rule)
    found = _done.get(key) or _read(_path(key, "refuted"), rule) or _read(_path(key, "held"), rule)
    if found is not None:
        _done[key] = found
    return found


def remember(found: Findings) -> None:
    """Keep what a hunt found; a refutation is never replaced."""
    key = _key(found.rule)
    known = _done.get(key)
    if known is not None and known.counterexample is not None:
        return
    _done[key] = found
    kind = "held" if found.counterexample is None else "refuted"
    try:
        write_text(_path(key, kind), json.dumps(_to_json(found), indent=1) + "\n")
    except EqsatError:  # a folder that is read-only or full: hunted again by the next process
        return


def hunts_folder() -> Path:
    """Where hunts are kept: below `EQSAT_CACHE`, else the platform's cache folder for eqsat."""
    return cache_folder("hunts")


def _path(key: str, kind: str) -> Path:
    return hunts_folder() / f"{key}.{kind}.json"


def _key(rule: Rule) -> str:
    parts = (FORMAT, version("eqsat"), code_digest(*_MEANING), rule_key(rule), *_plugged(rule))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


# ---- what plug-ins say ---------------------------------------------------------------------------
def _plugged(rule: Rule) -> list[tuple[str, str, str]]:
    """Name, version and a hash of the code of each plug-in whose ops or functions a rule names."""
    words = {w for part in _parts(rule) for w in _words(part)}
    ops = [r for r in plugged_ops().values() if words & {r.name, *r.functions}]
    return [(r.name, _version(r), _code(r)) for r in sorted(ops, key=lambda r: r.name)]


def _parts(rule: Rule) -> list[Any]:
    bound = [e for _, e in (*rule.lets, *rule.foreach)]
    return [rule.left, *rule.also, rule.right, *rule.where, *bound]


def _words(part: Term | AttrExpr | tuple[Any, ...]) -> Iterator[str]:
    """Names of ops and functions."""
    if isinstance(part, Apply):
        yield part.op
        inner: tuple[Any, ...] = (*part.operands, *(v for _, v in part.attrs))
    elif isinstance(part, Function):
        yield part.name
        inner = part.args
    elif isinstance(part, Splat):
        inner = (part.inner,)
    else:
        inner = tuple(
            getattr(part, k) for k in ("left", "right", "inner", "base") if hasattr(part, k)
        )
    for each in inner:
        yield from _words(each)


def _version(r: Op) -> str:
    dist = plugged_in("ops")[r.name].dist
    return "" if dist is None else f"{dist.name} {dist.version}"


def _code(r: Op) -> str:
    """A hash of the files that the record's functions stand in."""
    functions = (r.shape, r.numpy, r.sample, *(f.meaning for f in r.functions.values()))
    codes = [getattr(f, "__code__", None) for f in functions]
    found = hashlib.sha256()
    for name in sorted({c.co_filename for c in codes if c is not None}):
        path = Path(name)
        found.update(path.read_bytes() if path.is_file() else name.encode())
    return found.hexdigest()


# ---- as JSON -------------------------------------------------------------------------------------
def _to_json(f: Findings) -> dict[str, Any]:
    c = f.counterexample
    return {
        "format": FORMAT,
        "rule": f.rule.name,
        "wanted": f.wanted,
        "instances": f.instances,
        "padded": f.padded,
        "refused": f.refused,
        "counterexample": c and {"variables": c.variables, "why": c.why, "size": c.size},
    }


def _read(path: Path, rule: Rule) -> Findings | None:
    """None for what is not there, cannot be read, or is not as `_to_json` writes it."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        numbers = [data[k] for k in ("wanted", "instances", "padded", "refused")]
        if data["format"] != FORMAT or not all(type(n) is int and n >= 0 for n in numbers):
            return None
        return Findings(rule, *numbers, counterexample=_counterexample(data["counterexample"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _counterexample(data: Any) -> Counterexample | None:
    if data is None:
        return None
    variables = tuple((str(name), str(value)) for name, value in data["variables"])
    return Counterexample(variables, str(data["why"]), int(data["size"]))
