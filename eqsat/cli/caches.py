"""The command about what is kept on this machine: answers of searches, and kernels."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from eqsat.cli import options as o
from eqsat.model.diag import fail
from eqsat.model.files import cache_folder
from eqsat.report.formatting import bytes_text, seconds_text, table_text


class CacheAction(StrEnum):
    """What is to be done."""

    list = "list"
    clear = "clear"
    path = "path"


def cache(
    printed: o.Output,
    what: Annotated[
        CacheAction, Argument(help="List answers, clear them and the kernels, or say where.")
    ] = CacheAction.list,
) -> int:
    """Show or clear the answers and kernels that are kept on this machine.

    A search that was made before is not made again, and a kernel is compiled once; what was cleared
    is made anew when it is needed. `EQSAT_ANSWERS=never` keeps no answers, `EQSAT_CACHE` names
    another folder.
    """
    place = cache_folder("")
    if what is CacheAction.path:
        printed.show(lambda: {"format": 1, "folder": str(place)}, lambda: f"{place}\n")
    elif what is CacheAction.clear:
        _clear(place, printed)
    else:
        _list(place, printed)
    return 0


def _list(place: Path, printed: o.Output) -> None:
    from eqsat.execute.kernels.compiler import OBJECTS
    from eqsat.run.answers import list_answers

    rows: list[dict[str, Any]] = list_answers()
    sizes = [status.st_size for _, status in OBJECTS.entries()]
    kernels = {"files": len(sizes), "bytes": sum(sizes)}
    cells = [
        (r["program"], r["target"], r["searched_at"], seconds_text(r["search_s"]),
         bytes_text(r["bytes"]))
        for r in rows
    ]  # fmt: skip
    total = bytes_text(sum(r["bytes"] for r in rows))
    text = f"{len(rows)} answer(s), {total}; {len(sizes)} kernel(s), {bytes_text(sum(sizes))}\n"
    columns = ("program", "target", "searched at", "in", "bytes")
    printed.show(
        lambda: {"format": 1, "folder": str(place), "answers": rows, "kernels": kernels},
        lambda: (table_text(columns, cells) if cells else "") + text,
    )


def _clear(place: Path, printed: o.Output) -> None:
    """EqsatError (E407) if that is not permitted."""
    from eqsat.execute.kernels.compiler import OBJECTS
    from eqsat.run.answers import ANSWERS

    try:
        counts = {"answers": ANSWERS.clear(), "kernels": OBJECTS.clear()}
    except OSError as e:
        raise fail("E407", f"cannot clear `{place}`: {e.strerror or e}") from e
    printed.show(
        lambda: {"format": 1, "folder": str(place)} | counts,
        lambda: f"cleared {counts['answers']} answer(s) and {counts['kernels']} kernel(s)\n",
    )
