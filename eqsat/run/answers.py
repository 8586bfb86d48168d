"""Answers of searches that are kept on this machine: what was searched once is not searched again.

A file holds the stages of a run as its folder does, without what the request brings: the program as
it was read, its weights, rules and target. Its name is a hash of all that decides the answer, and
of the names and places that are printed with it. It was written by this user's eqsat of the same
code, after the checks of its search, and was read back and compared: so it is not checked again.

Not kept: programs with opaque calls, whose code a key does not hold; searches on several devices;
what a person stopped; anything while plug-ins are installed, whose code may change.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import astuple, replace
from datetime import UTC, datetime
from typing import Any

from eqsat.model.deadline import INTERRUPTED, OUT_OF_MEMORY
from eqsat.model.diag import fail
from eqsat.model.filecache import FileCache
from eqsat.model.files import code_digest
from eqsat.model.progress import LIMITED, Curve
from eqsat.plugins import GROUPS, plugged_in
from eqsat.run.content import rules_content, target_content, used_versions
from eqsat.run.run import Run
from eqsat.run.saved import (
    READERS,
    STRANGE,
    SavedRun,
    bodies_from_json,
    bodies_to_json,
    stage_from_json,
    stages_to_json,
)

VARIABLE, NEVER, KEEP = "EQSAT_ANSWERS", "never", "keep"
ANSWERS = FileCache("answers", ".answer", "nothing is searched less, and no answer is kept")
LOG = logging.getLogger("eqsat.answers")
_ASKED = ("program", "target", "rules", "convention")  # stages that a request brings
_BROUGHT = ("target", "rules", "goals", "rule_check")  # parts of a run, likewise
_COMPARED = ("schedule", "selection")  # what is executed, and what is claimed of it


def is_on() -> bool:
    """Whether answers are kept and used. EqsatError (E271) for an odd `EQSAT_ANSWERS`."""
    asked = os.environ.get(VARIABLE, KEEP)
    if asked not in (NEVER, KEEP):
        help = f"`{NEVER}` or `{KEEP}`; left out, it is `{KEEP}`"
        raise fail("E271", f"`{VARIABLE}={asked}` is not understood", help=help)
    return asked == KEEP


def answer_key(request: Run) -> str:
    """The name of the answer to a request; "" if it is none that may be kept.

    request: a run before its search; what follows from its program by this code alone, such as
    `canonical`, is not looked at.
    """
    several = request.target.mesh is not None or request.target.devices
    if several or request.source.opaque or any(plugged_in(group) for group in GROUPS):
        return ""
    content = {
        "program": request.source.program.to_json(),
        "target": target_content(request.target),
        "rules": rules_content(request.rules),
        "places": [r.at for r in request.rules.rules],
        "goals": [astuple(g) for g in request.goals],
        "limits": request.limits.to_json(),
        "search": [request.search[k] for k in ("time_limit", "seed", "extractor")],
        "versions": used_versions(),
        "code": code_digest(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:40]


def recalled(key: str, request: Run) -> Run | None:
    """The finished run of a request, from its answer; None if there is none that can be read."""
    content = ANSWERS.read(key)
    if content is None:
        return None
    try:
        header, texts = _opened(content)
        if header["key"] != key:
            raise ValueError("it is the answer to another request")
        return _restored(key, request, header, texts)
    except (*STRANGE, zlib.error) as error:
        LOG.info("%s: its answer is not used: %s", request.program.name, error)
        return None


def _restored(key: str, request: Run, header: Mapping[str, Any], texts: Mapping[str, bytes]) -> Run:
    """Stages that no call needs stay text; the schedule is read at once."""
    later: Any = None  # until `keep_texts`
    seconds = header["seconds"] | {k: v for k, v in request.seconds.items() if v is not None}
    run = SavedRun(
        request.source, later, later, later, later, seconds, request.search, request.limits,
        cache_key=key, searched_at=str(header["searched_at"]),
    )  # fmt: skip
    run.keep_texts(ANSWERS.path(key), texts)
    vars(run).update({name: getattr(request, name) for name in _BROUGHT})
    if run.schedule is None:
        raise ValueError("it has no schedule")
    if "bodies" in texts:
        vars(run)["bodies"] = bodies_from_json(json.loads(zlib.decompress(texts["bodies"])), run)
    LOG.info("%s: searched at %s", request.program.name, run.searched_at)
    return run


def keep_answer(key: str, run: Run, curve: Curve) -> Run:
    """The run, its answer kept under this key if it is finished; what cannot be kept is logged."""
    selection = run.selection
    if selection is None or run.schedule is None:
        return run
    if selection.stop in (INTERRUPTED, OUT_OF_MEMORY):
        return run
    values = stages_to_json(run, [name for name in READERS if name not in _ASKED])
    values["curve"] = curve.to_json()
    if run.bodies:
        values["bodies"] = bodies_to_json(run.bodies)
    texts = {k: json.dumps(v, separators=(",", ":")).encode() for k, v in values.items()}
    if any(stage_from_json(k, json.loads(texts[k])) != getattr(run, k) for k in _COMPARED):
        LOG.info("%s: its answer is not kept, as it does not read back the same", run.program.name)
        return run
    if not ANSWERS.write({key: _closed(key, run, texts)}):
        LOG.info("%s: its answer is not kept, as it cannot be written", run.program.name)
        return run
    return replace(run, cache_key=key)


def _closed(key: str, run: Run, texts: Mapping[str, bytes]) -> bytes:
    """A line that tells what this is, and the deflated stages."""
    blobs = {name: zlib.compress(text, 3) for name, text in texts.items()}
    header = {
        "key": key,
        "program": run.program.name,
        "target": run.target.name,
        "searched_at": _utc(time.time()),
        "seconds": run.seconds,
        "stages": {name: len(blob) for name, blob in blobs.items()},
    }
    return json.dumps(header).encode() + b"\n" + b"".join(blobs.values())


def _opened(content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Undo `_closed`; the stages stay deflated."""
    line, _, rest = content.partition(b"\n")
    header, texts, begin = json.loads(line), {}, 0
    for name, length in header["stages"].items():
        texts[name] = rest[begin : begin + length]
        begin += length
    return header, texts


def list_answers() -> list[dict[str, Any]]:
    """Each answer that is kept, the one used last first: program, target, dates, bytes, seconds."""
    rows = []
    for name, status in ANSWERS.entries():
        content = ANSWERS.read(name, is_use=False)
        if content is None:
            continue
        header, _ = _opened(content)
        rows.append(
            {k: header[k] for k in ("program", "target", "searched_at")}
            | {
                "used_at": _utc(status.st_mtime),
                "search_s": round(sum(header["seconds"].get(k) or 0.0 for k in LIMITED), 3),
                "bytes": status.st_size,
                "key": name,
            }
        )
    return rows


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")
