"""What benchmarks/scale.py, optima.py and cores.py say of searches."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import optima
import pytest

import eqsat

OPTIONS = Namespace(cpu=30.0, limit=60.0, kill=120.0)


def test_the_table_has_each_cell_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = optima.read(optima.TABLE)
    assert set(table) == set(optima.cells())
    assert set(optima.SMALL) < set(table)
    optima.write(tmp_path / "again.json", table)
    assert (tmp_path / "again.json").read_text() == optima.TABLE.read_text()


@pytest.mark.parametrize("asked", ["time", optima.BUDGET])
def test_a_cell_is_searched_as_the_table_says(asked: str) -> None:
    cell = ("three_readers", "reference", asked)
    was = optima.read(optima.TABLE)[cell]
    now = optima.searched(cell, eqsat.read("three_readers"), was, OPTIONS)
    assert optima.outcome(was, now) == "same"
    assert optima.searched(cell, eqsat.read("three_readers"), {}, OPTIONS) | {"cpu": 0} == now | {
        "cpu": 0
    }
