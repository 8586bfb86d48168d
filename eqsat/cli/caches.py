"""The command about what is kept on this machine: answers of searches, and kernels."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from eqsat.cli import options as o


class CacheAction(StrEnum):
    """What is to be done."""

    list = "list"
    clear = "clear"
    path = "path"


def cache(
    what: Annotated[
        CacheAction, Argument(help="List answers, clear them and the kernels, or say where.")
    ] = CacheAction.list,
    output_format: o.OutputFormat = o.Format.text,
    verbose: o.Verbose = False,
) -> int:
    """Show or clear the answers and kernels that are kept on this machine.

    A search that was made before is not made again, and a kernel is compiled once; what was cleared
    is made anew when it is needed. `EQSAT_ANSWERS=never` keeps no answers, `EQSAT_CACHE` names
    another folder.
    """
    from eqsat.model.files import cache_folder

    place = cache_folder("")
    if what is CacheAction.path:
        print(json.dumps({"format": 1, "folder": str(place)}) if _is_json(output_format) else place)
    elif what is CacheAction.clear:
        _clear(place, output_format)
    else:
        _list(place, output_format)
    return 0


def _is_json(output_format: o.Format) -> bool:
    return output_format is o.Format.json


def _list(place: Path, output_format: o.Format) -> None:
    from eqsat.execute.kernels.compiler import OBJECTS
    from eqsat.report.formatting import bytes_text, seconds_text, table_text
    from eqsat.run.answers import list_answers

    rows: list[dict[str, Any]] = list_answers()
    sizes = [status.st_size for _, status in OBJECTS.entries()]
    if _is_json(output_format):
        kernels = {"files": len(sizes), "bytes": sum(sizes)}
        print(json.dumps({"format": 1, "folder": str(place), "answers": rows, "kernels": kernels}))
        return
    cells = [
        (r["program"], r["target"], r["searched_at"], seconds_text(r["search_s"]),
         bytes_text(r["bytes"]))
        for r in rows
    ]  # fmt: skip
    if cells:
        print(table_text(("program", "target", "searched at", "in", "bytes"), cells), end="")
    total = bytes_text(sum(r["bytes"] for r in rows))
    print(f"{len(rows)} answer(s), {total}; {len(sizes)} kernel(s), {bytes_text(sum(sizes))}")


def _clear(place: Path, output_format: o.Format) -> None:
    """EqsatError (E407) if that is not permitted."""
    from eqsat.execute.kernels.compiler import OBJECTS
    from eqsat.model.diag import fail
    from eqsat.run.answers import ANSWERS

    try:
        counts = {"answers": ANSWERS.clear(), "kernels": OBJECTS.clear()}
    except OSError as e:
        raise fail("E407", f"cannot clear `{place}`: {e.strerror or e}") from e
    if _is_json(output_format):
        print(json.dumps({"format": 1, "folder": str(place)} | counts))
    else:
        print(f"cleared {counts['answers']} answer(s) and {counts['kernels']} kernel(s)")
