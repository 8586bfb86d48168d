"""Files by key in a folder of the user's cache: whole or as if not there, bounded in bytes.

The folder and its files are this user's alone, or are not used. A file is a line that names the
format, the SHA-256 of what follows, and the content. What cannot be read or does not match its sum
is as if it were not there. Writers write aside and rename, so processes may write one key at once,
and one that is killed leaves nothing but a file that is taken away later.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eqsat.model.files import ASIDE, cache_folder, is_own, is_private, make_private, write_aside

LARGEST_BYTES = 256 * 2**20  # of all files; the ones used longest ago are deleted beyond it
KEPT_SHARE = 0.75  # of them that stay then
LOOKED_SHARE = 1 / 64  # of them that a process writes before it looks at their sizes again
ASIDE_SECONDS = 3600.0  # of a writer that was killed
_SUM = hashlib.sha256().digest_size


@dataclass
class FileCache:
    """kind: the folder below the cache, and the format. otherwise: what a warning (E516) says that
    is done where others may write there.
    """

    kind: str
    suffix: str
    otherwise: str
    largest_bytes: float = LARGEST_BYTES
    written: dict[Path, int] = field(default_factory=dict)  # since this process looked at a folder

    @property
    def folder(self) -> Path:
        return cache_folder(self.kind)

    @property
    def magic(self) -> bytes:
        return f"eqsat {self.kind} 1\n".encode()

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{self.suffix}"

    def read(self, name: str, *, is_use: bool = True) -> bytes | None:
        """The content of this name, None if there is none, it is damaged or others may write it.

        is_use: it is needed, so it is not to be the next to go.
        """
        path = self.path(name)
        try:
            if not is_private(self.folder, self.otherwise):
                return None
            data = _read_own(path)
        except OSError:
            return None
        if is_use:
            with contextlib.suppress(OSError):  # read-only
                os.utime(path)
        content = data[len(self.magic) + _SUM :]
        return content if self._sealed(content) == data else None

    def write(self, files: Mapping[str, bytes]) -> bool:
        """Keep these files; False if one could not be, as the folder is read-only or full."""
        try:
            make_private(self.folder)
            if not is_private(self.folder, self.otherwise):
                return False
            for name, content in files.items():
                write_aside(self.path(name), self._sealed(content), 0o600)
            self._look_now_and_then(sum(map(len, files.values())))
        except OSError:
            return False
        return True

    def entries(self) -> list[tuple[str, os.stat_result]]:
        """Names with what the system says of their files, the one used last first."""
        entries = [(p, s) for p, s in self._files() if p.suffix == self.suffix]
        return [(p.stem, s) for p, s in sorted(entries, key=lambda e: (-e[1].st_mtime, e[0]))]

    def clear(self) -> int:
        """Delete all files; how many. OSError if that is not permitted."""
        files = [path for path, _ in self._files()]
        for path in files:
            path.unlink(missing_ok=True)
        return len(files)

    def _sealed(self, content: bytes) -> bytes:
        return self.magic + hashlib.sha256(content).digest() + content

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(self.folder)):
                with contextlib.suppress(FileNotFoundError):  # another process deleted it
                    yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _look_now_and_then(self, more: int) -> None:
        """A look at every file with each new one would take a time that grows with their number."""
        place = self.folder
        written = self.written.get(place)
        self.written[place] = 0 if written is None else written + more
        if written is None or written + more >= LOOKED_SHARE * self.largest_bytes:
            self.written[place] = 0
            self.shrink()

    def shrink(self) -> None:
        """Delete what was left aside, and the files used longest ago if all are too large."""
        files = []
        for path, status in self._files():
            if path.suffix == ASIDE and time.time() - status.st_mtime > ASIDE_SECONDS:
                path.unlink(missing_ok=True)
            else:
                files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= self.largest_bytes:
            return
        for _, size, path in sorted(files):
            path.unlink(missing_ok=True)
            total -= size
            if total <= KEPT_SHARE * self.largest_bytes:
                return


def _read_own(path: Path) -> bytes:
    """A file of this user's that nobody else may write to, and no link; OSError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not is_own(status) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to `{path}`")
        return file.read()
