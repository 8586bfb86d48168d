"""The JSON schemas that editors read are those of the code."""

from __future__ import annotations

import json

import pytest

from eqsat.lang.schema import schema
from eqsat.plugins import data_folder


@pytest.mark.parametrize("what", ["ruleset", "target", "experiment", "devices"])
def test_the_stored_schema_is_current(what: str):
    folder = {"ruleset": "rules", "devices": "devices"}.get(what, f"{what}s")
    stored = (data_folder(folder) / f"{what}.schema.json").read_text(encoding="utf-8")
    assert json.loads(stored) == schema(what), f"write it: eqsat schema {what}"
