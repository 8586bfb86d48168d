"""A folder that shows a wrong answer → what is wrong there; its own script calls this."""

from __future__ import annotations

import json
from pathlib import Path

from eqsat.model.diag import fail
from eqsat.run.reproducing import ARGUMENTS, difference_of
from eqsat.run.saved import load_folder


def reproduce(folder: Path) -> str:
    """The line that `reproduce.py` of a folder prints. EqsatError E405 if it is no such folder."""
    run = load_folder(folder)
    try:
        data = json.loads((folder / ARGUMENTS).read_text(encoding="utf-8"))
        ranges, seed = [(float(a), float(b)) for a, b in data["ranges"]], int(data["seed"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise fail("E405", f"`{folder}` has no arguments that reproduce anything: {e}") from e
    difference = difference_of(run, ranges, seed)
    if difference is None:
        return f"`{run.program.name}`: no difference"
    return (
        f"`{run.program.name}`: {difference.where}: {difference.said};"
        f" {difference.error:.1e} of the largest element, {difference.allowed:.1e} allowed;"
        f" {difference.share:.1%} of the elements"
    )
