"""Entry points and search paths: where rule sets, targets and experiments are found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

FOLDERS = ("rules", "targets", "experiments", "docs")


def data_folder(kind: str) -> Path:
    """The folder of `rules`, `targets`, `experiments` or `docs` that ships with eqsat.

    An editable install finds it at the repository root, a wheel in `eqsat/_data`.
    """
    if kind not in FOLDERS:
        raise ValueError(f"no data folder named `{kind}`; known: {', '.join(FOLDERS)}")
    package = Path(__file__).parent
    shipped = package / "_data" / kind
    return shipped if shipped.is_dir() else package.parent / kind


def search_path(kind: str, folders: Iterable[str | Path] = ()) -> tuple[Path, ...]:
    """Folders to search, first wins: those given, then `EQSAT_PATH`, then eqsat's own.

    An entry of `EQSAT_PATH` holds a folder named `kind`, or is such a folder itself.
    """
    found = [Path(f) for f in folders]
    for entry in filter(None, os.environ.get("EQSAT_PATH", "").split(os.pathsep)):
        inner = Path(entry) / kind
        found.append(inner if inner.is_dir() else Path(entry))
    return tuple(f for f in (*found, data_folder(kind)) if f.is_dir())


def find_names(kind: str, suffix: str, folders: Iterable[str | Path] = ()) -> dict[str, Path]:
    """Every file of the search path by its name (`layout/pack`), sorted; the first folder wins."""
    names: dict[str, Path] = {}
    for folder in search_path(kind, folders):
        for path in sorted(folder.rglob(f"*{suffix}")):
            names.setdefault(path.relative_to(folder).as_posix().removesuffix(suffix), path)
    return dict(sorted(names.items()))


def plugged_in(group: str) -> dict[str, EntryPoint]:
    """Entry points of `eqsat.<group>` by name (`goals`, `strategies`, `frontends`, `executors`)."""
    return {e.name: e for e in sorted(entry_points(group=f"eqsat.{group}"), key=lambda e: e.name)}
