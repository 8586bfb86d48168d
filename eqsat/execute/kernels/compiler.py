"""Compilation of LLVM IR in processes of their own, and the cache of object code on disk.

llvmlite holds one lock around every call, so threads gain nothing; and where LLVM gives up it ends
its process, which must not be the user's.

An object is run as it is, so the folder and its files are this user's alone, or are not used. What
cannot be read is as if it were not there; what cannot be written is compiled again by the next
process.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from eqsat.execute.kernels import worker
from eqsat.model.filecache import FileCache
from eqsat.model.files import code_digest

PER_WORKER = 4  # modules that are worth starting one more process


class CannotCompile(Exception):
    """Why a module has no object code, in a sentence."""


class Worker:
    """One process that compiles; started on first use, and again where it ended."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0  # the process that started it: a fork must not use it

    def compile(self, text: str, cpu: str, features: str, triple: str = "") -> bytes:
        """Object code, or assembly for a triple; CannotCompile with a sentence if there is none."""
        for _ in range(2):  # an idle one may end just now
            fresh = self._start()
            answer = self._ask(text, cpu, features, triple)
            if answer is not None:
                head, payload = answer
                if head["fine"]:
                    return payload
                raise CannotCompile(f"LLVM: {payload.decode().strip()}")
            self.close()
            if fresh:
                break
        raise CannotCompile("LLVM ended its process")

    def _start(self) -> bool:
        """Whether a process had to be started."""
        if self.process is not None and self.owner == os.getpid() and self.process.poll() is None:
            return False
        self.close()
        self.owner = os.getpid()
        # -P: this folder has modules named like those of the standard library
        command = [sys.executable, "-P", str(Path(worker.__file__))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return True

    def _ask(
        self, text: str, cpu: str, features: str, triple: str
    ) -> tuple[dict[str, object], bytes] | None:
        assert self.process is not None and self.process.stdin and self.process.stdout
        try:
            head = {"cpu": cpu, "features": features, "triple": triple}
            worker.send(self.process.stdin, head, text.encode())
            return worker.receive(self.process.stdout)
        except OSError:  # a broken pipe: it has ended
            return None

    def close(self) -> None:
        """End the process; one that was inherited by a fork is the parent's and stays."""
        process, self.process = self.process, None
        if process is None or self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            process.communicate()  # its input ends, so it ends


_workers: list[Worker] = []
_lock = threading.Lock()


@atexit.register
def _close() -> None:
    for w in _workers:
        w.close()


def _unlock() -> None:
    """In a fork: another thread of the parent may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compile_all(
    texts: Iterable[tuple[str, str]], count: int, cpu: str, features: str
) -> dict[str, bytes | CannotCompile]:
    """Key → object code of its text, or why there is none; in as many processes as are worth it.

    texts: `count` of them or fewer. They may be written as they are asked for: meanwhile the
    processes compile those that came before.
    """
    waiting: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
    objects: dict[str, bytes | CannotCompile] = {}

    def run(w: Worker) -> None:
        while (item := waiting.get()) is not None:
            objects[item[0]] = _one(w, item[1], cpu, features)

    with _lock:
        most = max(1, min(usable_cores(), -(-count // PER_WORKER)))
        while len(_workers) < most:
            _workers.append(Worker())
        with ThreadPoolExecutor(most) as pool:
            done = [pool.submit(run, w) for w in _workers[:most]]
            try:
                for item in texts:
                    waiting.put(item)
            finally:
                for _ in done:
                    waiting.put(None)
            for each in done:
                each.result()
    return objects


def _one(w: Worker, text: str, cpu: str, features: str) -> bytes | CannotCompile:
    try:
        return w.compile(text, cpu, features)
    except CannotCompile as error:
        return error
    except OSError as error:  # no process can be started here
        return CannotCompile(f"no process could be started to compile ({error})")


@lru_cache(maxsize=64)
def assembly(text: str, cpu: str, features: str, triple: str) -> str:
    """Assembly of one module; CannotCompile with a sentence if there is none."""
    one = Worker()
    try:
        return one.compile(text, cpu, features, triple).decode()
    finally:
        one.close()


OBJECTS = FileCache("kernels", ".o", "kernels are compiled in each process, and not kept")
_BELOW = ("model", "ops", "plan")  # folders of code that kernels are written with


def key(*parts: str) -> str:
    """The name of what is made from these texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part.encode())
    return digest.hexdigest()[:40]


def own_code() -> str:
    """A hash of the code that nests, plans and kernels come from."""
    return code_digest("execute/kernels", *_BELOW)
