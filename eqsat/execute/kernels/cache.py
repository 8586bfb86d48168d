"""Object code on disk: by what it was made from, whole or not there, and never trusted unread.

An object is run as it is, so the folder and its files are this user's alone, or are not used. A
file is a line that names the format, the SHA-256 of what follows, and the object. What cannot be
read or does not match its sum is as if it were not there; what cannot be written is compiled again
by the next process. Two writers of one key write the same bytes, each aside, and rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from eqsat.model.folders import (
    cache_folder,
    code_digest,
    is_own,
    is_private,
    make_private,
)

MAGIC = b"eqsat object 1\n"
LARGEST_BYTES = 256 * 2**20  # of all files; the ones used longest ago are deleted beyond it
KEPT_SHARE = 0.75  # of them that stay then
LOOKED_SHARE = 1 / 64  # of them that a process writes before it looks at their sizes again
_OTHERWISE = "kernels are compiled in each process, and not kept"
_BELOW = ("model", "ops", "plan")  # folders of code that kernels are written with
_written: dict[Path, int] = {}  # bytes in a folder since this process looked at it


def folder() -> Path:
    """Where objects are kept."""
    return cache_folder("kernels")


def key(*parts: str) -> str:
    """The name of what is made from these texts."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:".encode() + part.encode())
    return found.hexdigest()[:40]


def own_code() -> str:
    """A hash of the code that nests, plans and kernels come from."""
    return code_digest("execute/kernels", *_BELOW)


def read_object(name: str) -> bytes | None:
    """The object of this name, None if there is none, or it is damaged or others may write it."""
    path = _path(name)
    try:
        if not is_private(folder(), _OTHERWISE):
            return None
        data = _read_own(path)
    except OSError:
        return None
    with contextlib.suppress(OSError):  # read-only
        os.utime(path)  # it is used now
    start = len(MAGIC) + hashlib.sha256().digest_size
    payload = data[start:]
    if data[: len(MAGIC)] == MAGIC and hashlib.sha256(payload).digest() == data[len(MAGIC) : start]:
        return payload
    return None


def write_objects(objects: dict[str, bytes]) -> bool:
    """Keep these objects; False if one could not be written, as the folder is read-only or full."""
    try:
        make_private(folder())
        if not is_private(folder(), _OTHERWISE):
            return False
        for name, payload in objects.items():
            _write(_path(name), MAGIC + hashlib.sha256(payload).digest() + payload)
        _shrink_now_and_then(sum(map(len, objects.values())))
    except OSError:
        return False
    return True


def _read_own(path: Path) -> bytes:
    """A file of this user's that nobody else may write to, and no link; OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not is_own(found) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to `{path}`")
        return file.read()


def _path(name: str) -> Path:
    return folder() / f"{name}.o"


def _write(path: Path, data: bytes) -> None:
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".aside")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(aside).replace(path)
    finally:
        Path(aside).unlink(missing_ok=True)


def _shrink_now_and_then(more: int) -> None:
    """A look at every file with each new one would take a time that grows with their number."""
    place = folder()
    written = _written.get(place)
    _written[place] = 0 if written is None else written + more
    if written is None or written + more >= LOOKED_SHARE * LARGEST_BYTES:
        _written[place] = 0
        _shrink()


def _shrink() -> None:
    """Delete the files used longest ago if all of them are too large together."""
    found = []
    for entry in os.scandir(folder()):
        try:
            status = entry.stat()
        except OSError:  # another process deleted it
            continue
        found.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    if total <= LARGEST_BYTES:
        return
    for _, size, path in sorted(found):
        Path(path).unlink(missing_ok=True)
        total -= size
        if total <= KEPT_SHARE * LARGEST_BYTES:
            return
