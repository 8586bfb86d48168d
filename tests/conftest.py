"""Tests remember hunts in a folder of theirs, know no targets of the user's, and race nothing.

What a race keeps depends on the machine; tests of races switch them on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eqsat.execute import race


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("EQSAT_CACHE", "EQSAT_CONFIG")}
    race.SECONDS = 0.0
    for name in before:
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
