"""A compiler in a process of its own: where its packages are, what it wrote, and how it ended.

JAX looks at every libtpu and CUDA plug-in that it can import, and on a machine without such a
device they write to stderr. So they may lie in `accelerators/` of the environment instead, where
only processes that compile look for them (docs/compile.md).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from eqsat.model.diag import fail

SHOWN_LINES = 4  # of what a compiler wrote before it ended


def run(
    command: Sequence[str | Path], what: str, limit: float, env: Mapping[str, str], folder: Path
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a compiler that ended by itself within `limit` seconds.

    what: it is called so in messages. env: besides the environment of this process. folder: where
    it works. All processes that it started end with it. EqsatError: E462 if a signal ended it,
    E463 if it was not done in time, E461 if it cannot be started.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=os.environ | dict(env), cwd=folder, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise fail("E461", f"{what} cannot be started: {error.strerror or error}") from error
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise fail(
                "E463",
                f"{what} was not done in {limit:g} s",
                help="give it more with `--compile-limit`, or a smaller program",
                exit_code=3,
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        told, said = (f.read().decode(errors="replace") for f in (out, err))
    if code < 0:
        raise crashed(what, f"was ended by {signal.Signals(-code).name}", said)
    return code, told, said


def crashed(what: str, how: str, said: str) -> Exception:
    """EqsatError E462 with the last lines that it wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = " | ".join(lines[-SHOWN_LINES:])
    rest = f"; it wrote: {last}" if last else ""
    return fail(
        "E462",
        f"{what} {how}{rest}",
        help="this is a defect of the compiler, or of its installation",
        exit_code=3,
    )


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
