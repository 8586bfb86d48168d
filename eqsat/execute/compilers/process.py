"""A compiler in a process of its own: what it wrote, or a sentence about its end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
