"""A summary, a page and an explanation say how many dispatches XLA runs, and why."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from runnable import WIDEST

import eqsat
from eqsat.cli import run as command
from eqsat.lang.rulesets import load_ruleset
from eqsat.model.executor import Execution
from eqsat.report.page.runpage import page
from eqsat.report.text import SHOWN, execution_lines, summary_text

PLAN = "each dispatch is one kernel that runs as it is planned"
SORTED = "XLA runs body, dispatch "


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    """A loop over a sort, which XLA runs, and a product behind it, which is a kernel."""

    def of(x: jax.Array, w: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, t: (jnp.sort(h + t), None), jnp.zeros((8, 16)), x)
        return jnp.maximum(h @ w, 0)

    shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((4, 8, 16), (16, 16))]
    return eqsat.optimize(of, *shapes, weights=("w",), target=WIDEST)


def test_a_run_says_how_many_dispatches_xla_runs_and_why(run: eqsat.Run) -> None:
    told = run.summary()["executor"]
    assert (told["dispatches"], told["by_xla"]) == (len(run.need_schedule().dispatches), 1)
    sentence = f"XLA runs 1 of {told['dispatches']} dispatches; of the others, {PLAN}"
    assert told["plan"] == sentence
    number, why = told["declined"][0].values()
    assert why.startswith(SORTED) and why.endswith("is no loop nest")
    for text in (summary_text(run), page(run), run.explain().to_text()):
        assert f"executor kernels: {sentence}" in text
        assert f"dispatch {number} is not run as planned: {why}" in text
    assert f"executor kernels: {PLAN}" not in summary_text(run)


def test_a_run_of_kernels_alone_says_so() -> None:
    found = Execution("kernels", PLAN, (), 3)
    assert execution_lines(found) == [f"executor kernels: {PLAN}"]
    assert found.to_json()["by_xla"] == 0


def test_where_xla_runs_all_no_dispatch_is_called_a_kernel() -> None:
    found = Execution("kernels", PLAN, ((0, "a"), (1, "b")), 2)
    head, *reasons = execution_lines(found)
    assert head == "executor kernels: XLA runs every dispatch, none is run as it is planned"
    assert reasons == [f"dispatch {i} is not run as planned: {why}" for i, why in found.declined]


def test_dispatches_with_one_reason_are_one_line() -> None:
    found = Execution("kernels", PLAN, tuple((i, "why") for i in range(SHOWN + 3)), 100)
    _, line = execution_lines(found)
    numbers = ", ".join(map(str, range(SHOWN)))
    assert line == f"{SHOWN + 3} dispatches ({numbers} and 3 more) are not run as planned: why"


def test_rules_of_a_mesh_are_counted_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(["list", "sets", "--output-format", "json"]) == 0
    rows = {r["set"]: r["rules"] for r in json.loads(capsys.readouterr().out)}
    default = load_ruleset("default")
    assert rows["default"] == f"{len(default.rules)} + {len(default.spreads)}"
    assert default.spreads and rows["layout/pack"].isdigit()
    run = eqsat.optimize("two_packs", target="reference")
    assert f"default    {len(default.rules)} rules: " in summary_text(run).replace("  ", " " * 2)
