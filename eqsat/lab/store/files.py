"""Files of a store: equal ones kept once, and locks between processes of one machine.

Rules, weights and programs are shared by rows; the system takes locks back however a process ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from eqsat.model.files import cache_folder

# ---- files ---------------------------------------------------------------------------------------
POOL = ".files"  # below the folder of the runs
LEAST_BYTES = 1 << 16  # smaller ones cost a block of the disk at most


def share_files(folder: Path) -> None:
    """Make the large files of a run hard links to equal files of the store's other runs.

    folder: the run's, `STORE/runs/NAME`. Where the file system has no hard links, files stay
    copies.
    """
    pool = folder.parent / POOL
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.stat().st_size >= LEAST_BYTES:
            with contextlib.suppress(OSError):
                _share(path, pool)


def _share(path: Path, pool: Path) -> None:
    pool.mkdir(exist_ok=True)
    with path.open("rb") as file:
        shared = pool / hashlib.file_digest(file, "sha256").hexdigest()
    try:
        os.link(path, shared)  # the first of its kind; of two writers one is
    except FileExistsError:
        if not path.samefile(shared):
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            os.link(shared, aside)
            aside.replace(path)


# ---- locks ---------------------------------------------------------------------------------------
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NAME = re.compile(r"[0-9a-f]{32}")
OWNERS = "runs/.owners"  # folder of the lock files of those who use a store, below the store's


class Owner:
    """One user of a store; `name` tells others whom to ask `lives`."""

    def __init__(self, folder: Path):
        self.name = uuid.uuid4().hex
        self._path = folder / OWNERS / self.name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w")
        self._path.chmod(0o644)  # other users of the store ask whether it is held
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def lives(folder: Path, owner: object) -> bool:
    """Whether a user of the store is still there; what one that is gone left behind is removed.

    A lock that may not even be read is taken for one that is held. Names are read from the store,
    which anybody may have written: one that is no `Owner`'s is nobody's.
    """
    if fcntl is None or not isinstance(owner, str) or not _NAME.fullmatch(owner):
        return False
    path = folder / OWNERS / owner
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except PermissionError:
        return True
    except OSError:  # none, or a link
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    with contextlib.suppress(OSError):  # another user's, or somebody else was here first
        path.unlink()
    return False


def lock_of(folder: Path, owner: str) -> Path:
    """The file that a user of the store holds as long as it is there."""
    return folder / OWNERS / owner


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """While something of this machine's searches: measurements wait, other searches do not."""
    with _machine_lock(shared=True):
        yield


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """While something is timed on this machine: waits until no experiment of this user searches."""
    with _machine_lock(shared=False):
        yield


@contextlib.contextmanager
def _machine_lock(shared: bool) -> Iterator[None]:
    file = None if fcntl is None else _machine_file()
    if fcntl is None or file is None:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def _machine_file() -> IO[str] | None:
    """The file of this machine and user; None where the cache folder cannot be written."""
    path = cache_folder("locks") / "searches"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError:
        return None
