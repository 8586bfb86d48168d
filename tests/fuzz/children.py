"""Processes that try functions one by one, and whose death or silence is an answer as well."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
CRASH, HANG = "crash", "hang"
PATIENCE = 600.0  # seconds without an answer: many, as others may have the processor
REQUESTS = 150  # then a new process: XLA keeps what it has compiled
TESTS = Path(__file__).resolve().parents[1]


class Child:
    """A process that is started when it is first asked."""

    def __init__(self, module: str, patience: float = PATIENCE):
        self.module, self.patience = module, patience
        self.process: subprocess.Popen[bytes] | None = None
        self.asked = 0
        self.stack = contextlib.ExitStack()  # of the process and what it says

    def ask(self, request: Row) -> Row:
        """What the module answers; `crash` or `hang` if it does not."""
        if self.asked >= REQUESTS:
            self.close()
        process = self.process or self._start()
        assert process.stdin is not None
        self.asked += 1
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        line = self._line(process)
        return json.loads(line) if line.endswith(b"\n") else self._dead(process)

    def _start(self) -> subprocess.Popen[bytes]:
        self.asked = 0
        self.told = self.stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.told, env=os.environ | {"PYTHONPATH": path}, cwd=TESTS.parent,
        )  # fmt: skip
        return self.stack.enter_context(self.process)

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """One line, or what there is of it when the process ends or is silent for too long."""
        assert process.stdout is not None
        found, end = b"", time.monotonic() + self.patience
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                return found
            found += part
        return found

    def _dead(self, process: subprocess.Popen[bytes]) -> Row:
        """The row of a process that gave none."""
        try:
            status = process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.close()
            return {"outcome": HANG, "reason": f"no answer in {self.patience:g} seconds"}
        self.told.seek(0)
        said = self.told.read().decode(errors="replace").splitlines()[-12:]
        self.close()
        name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        return {"outcome": CRASH, "reason": name, "trace": said}

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
        self.process = None
        self.stack.close()


def serve(answer: Callable[[Row], Row]) -> None:
    """Answer every line of stdin by one of stdout; what libraries print there goes to stderr."""
    faulthandler.enable()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=out, flush=True)
