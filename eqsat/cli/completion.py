"""What a shell completes: names of targets, rule sets, programs and experiments, files, runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

PROGRAM_FILES = (".eqs", ".onnx", ".mlir", ".py")


def targets(incomplete: str) -> list[str]:
    """Names of targets, and their files."""
    return _named("targets", incomplete, ["auto"])


def rule_sets(incomplete: str) -> list[str]:
    """Names of rule sets, and their files."""
    return _named("rules", incomplete)


def devices(incomplete: str) -> list[str]:
    """Names of maps of devices, and their files."""
    return _named("devices", incomplete)


def experiments(incomplete: str) -> list[str]:
    """Names of experiments, and their files."""
    return _named("experiments", incomplete)


def programs(incomplete: str) -> list[str]:
    """Names of programs that ship with eqsat, and files of one's own."""
    from eqsat.cli.files import shipped_programs

    names = (name for name, _ in shipped_programs())
    return _beginning(names, incomplete) + _paths(incomplete, lambda p: p.suffix in PROGRAM_FILES)


def runs(incomplete: str) -> list[str]:
    """Folders of runs, and folders on the way to them."""
    from eqsat.run.artefact import FILES

    return _paths(incomplete, lambda p: (p / FILES["manifest"]).is_file())


def _named(kind: str, incomplete: str, more: Iterable[str] = ()) -> list[str]:
    from eqsat.plugins import find_names

    names = _beginning([*more, *find_names(kind, ".yaml")], incomplete)
    return names + _paths(incomplete, lambda p: p.suffix == ".yaml")


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [n for n in names if n.startswith(incomplete)]


def _paths(incomplete: str, is_wanted: Callable[[Path], bool]) -> list[str]:
    """Wanted files or folders that begin so, and the folders that may hold one."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    try:
        visible = [p for p in sorted(Path(folder or ".").iterdir()) if p.name[0] != "."]
    except OSError:
        return []
    wanted = [f"{folder}{p.name}" for p in visible if is_wanted(p)]
    inner = [f"{folder}{p.name}/" for p in visible if p.is_dir() and not is_wanted(p)]
    return _beginning([*wanted, *inner], incomplete)
