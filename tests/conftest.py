"""Tests have folders of their own, know no targets of the user's, race nothing, measure briefly,
search what they ask for.

What a race keeps depends on the machine; tests of races switch them on. What is measured is held
against no number, so few and short rounds are enough. Rules that tests bring are hunted briefly.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheels import PACKAGE, Interpreter, build_wheel, unpack, work_folder

from eqsat.execute import beside, timing
from eqsat.hunt import findings


def pytest_collection_finish() -> None:
    """Modules and items of tests stay to the end: no collection of garbage looks at them again.

    A tenth of the suite's time went into collections; cycles of a few MiB may wait for the next.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folders = ("EQSAT_CACHE", "EQSAT_CONFIG")
    variables = (*folders, "EQSAT_MEASURE", "EQSAT_ANSWERS")
    before = {name: os.environ.get(name) for name in variables}
    beside.SECONDS = 0.0
    timing.SECONDS, timing.BATCH_SECONDS = 0.0, 0.0005
    findings.INSTANCES = 40  # of rules that tests bring
    for name in folders:
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))
    os.environ["EQSAT_MEASURE"] = "never"  # `auto` is a shipped target, whatever runs the tests
    os.environ["EQSAT_ANSWERS"] = "never"  # a search is what most tests are about
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


# ---- a package of plug-ins, for tests of several files ----------------------------------------
@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(build_wheel(PACKAGE, tmp_path_factory.mktemp("plugin")))


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program and targets that name what the package brings."""
    return work_folder(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="session")
def plugged(plugin_site: Path, work: Path) -> Iterator[Interpreter]:
    interpreter = Interpreter(plugin_site, work)
    yield interpreter
    interpreter.close()
