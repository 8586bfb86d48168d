"""The machine that a run or a measurement was made on, as a row of the table `machines`."""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass
from functools import lru_cache

from eqsat import host


@dataclass(frozen=True)
class StoreMachine:
    """host: its name in the network. cores: all of the system's."""

    host: str
    processor: str
    cores: int
    system: str
    python: str


@lru_cache(maxsize=1)
def this_machine() -> StoreMachine:
    """The machine of this process."""
    system = f"{platform.system()} {platform.machine()}"
    processor = host.processor() or platform.machine()
    return StoreMachine(
        socket.gethostname(), processor, host.cores(), system, platform.python_version()
    )
