"""Hunts that tests do are remembered in a folder of theirs, not in the user's cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("EQSAT_CACHE")
    os.environ["EQSAT_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["EQSAT_CACHE"]
    else:
        os.environ["EQSAT_CACHE"] = before
