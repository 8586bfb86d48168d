"""Where the packages of compilers for other devices are: in the environment, or beside it.

JAX looks at every libtpu and CUDA plug-in that it can import, and on a machine without such a
device they write to stderr. So they may lie in `accelerators/` of the environment instead, where
only processes that compile look for them (docs/compile.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

BESIDE = Path(sys.prefix) / "accelerators"


def is_installed(package: str) -> bool:
    """Whether a process with `import_path` can import it; it is not imported here."""
    return is_in_environment(package) or is_beside(package)


def is_in_environment(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def is_beside(package: str) -> bool:
    return BESIDE.joinpath(*package.split(".")).is_dir()


def import_path(packages: Sequence[str]) -> dict[str, str]:
    """The environment of a process that imports these; what both have is the environment's."""
    if all(map(is_in_environment, packages)):
        return {}
    there = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*([there] if there else []), str(BESIDE)])}


def folders(package: str) -> Iterator[Path]:
    """Of a package that several distributions fill, as NVIDIA's do."""
    spec = find_spec(package)
    yield from map(Path, spec.submodule_search_locations or () if spec else ())
    yield BESIDE / package
