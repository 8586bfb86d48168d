"""Tests have folders of their own, know no targets of the user's, race and measure nothing.

What a race keeps depends on the machine; tests of races switch them on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eqsat.execute import race


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folders = ("EQSAT_CACHE", "EQSAT_CONFIG")
    before = {name: os.environ.get(name) for name in (*folders, "EQSAT_MEASURE")}
    race.SECONDS = 0.0
    for name in folders:
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))
    os.environ["EQSAT_MEASURE"] = "never"  # `auto` is a shipped target, whatever runs the tests
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
