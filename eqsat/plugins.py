"""Entry points and search paths: where plug-ins, rule sets, targets and experiments are found."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from eqsat.model.diag import did_you_mean, fail

FOLDERS = ("rules", "targets", "devices", "experiments", "docs")
# what an entry point of each group brings, in a word
GROUPS = {
    "ops": "op",
    "goals": "goal",
    "strategies": "tile strategy",
    "frontends": "front-end",
    "executors": "executor",
}


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
    """Folders to search, first wins: those given, `EQSAT_PATH`, the user's own targets, eqsat's.

    Last come those of plug-ins.

    An entry of `EQSAT_PATH` holds a folder named `kind`, or is such a folder itself.
    """
    paths = [Path(f) for f in folders]
    for entry in filter(None, os.environ.get("EQSAT_PATH", "").split(os.pathsep)):
        inner = Path(entry) / kind
        paths.append(inner if inner.is_dir() else Path(entry))
    if kind == "targets":
        paths.append(user_folder(kind))
    paths.append(data_folder(kind))
    if kind == "rules":
        paths += _rule_folders()
    return tuple(f for f in paths if f.is_dir())


def user_folder(kind: str) -> Path:
    """The user's own folder for `kind`: below `EQSAT_CONFIG`, otherwise the platform's folder."""
    given = os.environ.get("EQSAT_CONFIG")
    if given:
        return Path(given) / kind
    from platformdirs import user_config_path

    return user_config_path("eqsat", appauthor=False) / kind


def _rule_folders() -> list[Path]:
    """Folders of rule sets that ops of plug-ins bring with them."""
    records = [load_plugin("ops", name) for name in plugged_in("ops")]
    folders = [getattr(r, "rules", None) for r in records]
    return [Path(f) for f in dict.fromkeys(folders) if f is not None]


def find_names(kind: str, suffix: str, folders: Iterable[str | Path] = ()) -> dict[str, Path]:
    """Every file of the search path by its name (`layout/pack`), sorted; the first folder wins."""
    names: dict[str, Path] = {}
    for folder in search_path(kind, folders):
        for path in sorted(folder.rglob(f"*{suffix}")):
            names.setdefault(path.relative_to(folder).as_posix().removesuffix(suffix), path)
    return dict(sorted(names.items()))


def plugged_in(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of `eqsat.<group>` by name, sorted; EqsatError (E600) if two have one name."""
    return _entries(group, tuple(sys.path))


@lru_cache(maxsize=8)  # looking takes tens of milliseconds, whatever the group
def _every(path: tuple[str, ...]) -> Any:
    return entry_points()  # its type is another one in Python 3.11


@lru_cache(maxsize=64)  # rule sets are found by name often
def _entries(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    by_name: dict[str, EntryPoint] = {}
    entries = _every(path).select(group=f"eqsat.{group}")
    for entry in sorted(entries, key=lambda e: (e.name, e.value)):
        first = by_name.setdefault(entry.name, entry)
        if (first.value, _package(first)) != (entry.value, _package(entry)):
            raise fail(
                "E600",
                f"`{_package(first)}` and `{_package(entry)}` both bring the {GROUPS[group]}"
                f" `{entry.name}`",
                help="uninstall one of them",
            )
    return by_name


def load_plugin(group: str, name: str) -> Any:
    """The object of a plug-in; EqsatError E601 if there is none, E600 if it cannot be imported."""
    plugins = plugged_in(group)
    if name not in plugins:
        hint = did_you_mean(name, plugins) if plugins else "no installed package brings any"
        raise fail("E601", f"no {GROUPS[group]} named `{name}`", help=hint)
    try:
        return plugins[name].load()
    except Exception as error:
        raise fail(
            "E600",
            f"{brought_by(group, name)} cannot be loaded: {type(error).__name__}: {error}",
            help="mend the plug-in, or uninstall its package",
        ) from error


def brought_by(group: str, name: str) -> str:
    """A plug-in as messages name it: `the op `roll` of eqsat-roll`."""
    entry = plugged_in(group).get(name)
    return f"the {GROUPS[group]} `{name}`" + (f" of {_package(entry)}" if entry else "")


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value
