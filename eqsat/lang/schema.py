"""JSON schemas of the YAML formats, for editors (`# yaml-language-server: $schema=…`)."""

from __future__ import annotations

from typing import Any

from eqsat.lang.devices import DevicesRecord
from eqsat.lang.experimentformat import ExperimentRecord
from eqsat.lang.problems import Record
from eqsat.lang.rule import RuleSetRecord
from eqsat.lang.targetformat import TargetRecord
from eqsat.model.diag import check_known

FORMATS: dict[str, type[Record]] = {
    "ruleset": RuleSetRecord,
    "target": TargetRecord,
    "experiment": ExperimentRecord,
    "devices": DevicesRecord,
}


def schema(what: str) -> dict[str, Any]:
    """The JSON schema of `ruleset`, `target`, `experiment` or `devices`; E267 for anything else."""
    check_known(what, FORMATS, "E267", f"no schema for `{what}`")
    json_schema = FORMATS[what].model_json_schema(by_alias=True)
    if what == "target":  # a target that extends another may leave out any key
        every, few = json_schema["required"], ["target", "extends"]
        del json_schema["required"]
        json_schema["anyOf"] = [{"required": every}, {"required": few}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **json_schema}
