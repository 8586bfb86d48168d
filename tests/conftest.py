"""Tests have folders of their own, know no targets of the user's, race nothing, measure briefly.

What a race keeps depends on the machine; tests of races switch them on. What is measured is held
against no number, so few and short rounds are enough. Rules that tests bring are hunted briefly.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from eqsat.execute import beside, timing
from eqsat.hunt import firstuse


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Slow cases are no items of a run that leaves them out: half of all would be, in each worker.

    One stays where all are slow, as a function without cases is called without arguments.
    """
    if metafunc.config.option.markexpr == "not slow":
        calls = metafunc._calls
        quick = [c for c in calls if not any(m.name == "slow" for m in c.marks)]
        metafunc._calls = quick or calls[:1]


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
    before = {name: os.environ.get(name) for name in (*folders, "EQSAT_MEASURE")}
    beside.SECONDS = 0.0
    timing.SECONDS, timing.BATCH_SECONDS = 0.0, 0.0005
    firstuse.INSTANCES = 40  # of rules that tests bring
    for name in folders:
        os.environ[name] = str(tmp_path_factory.mktemp(name.lower()))
    os.environ["EQSAT_MEASURE"] = "never"  # `auto` is a shipped target, whatever runs the tests
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
