"""Figures of experiments: drawn from the rows, the same each time, missing without harm."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from seeds import one_in

import eqsat
from eqsat.cli import run
from eqsat.lab.drawing import series_of
from eqsat.lang.experiments import read_experiment
from eqsat.model.diag import EqsatError

TEXT = """experiment: drawn
doc: One program on two targets by three rule sets.
programs: [permuted_consumer]
targets: [reference, avx512-xla]
rules: [default, policy/keep, policy/never-pack]
set: [fusion.members=2]
figure: {figure}
"""
BARS = "{kind: bars, x: target, series: rules, versus: default}"


@pytest.fixture(scope="module")
def outcomes():
    experiment = eqsat.Experiment(read_experiment(TEXT.format(figure=BARS)))
    return experiment.run().outcomes


def figure(text: str):
    found = read_experiment(TEXT.format(figure=text)).figure
    assert found is not None
    return found


def test_series_are_shares_of_the_one_named(outcomes):
    series = {p.name: p for p in series_of(figure(BARS), outcomes)}
    assert series["default"].y == [1.0, 1.0]
    times = {(o.cell.target, o.cell.rules[0]): o.to_json()["time_us"] for o in outcomes}
    for i, target in enumerate(("reference", "avx512-xla")):
        share = times[target, "policy/keep"] / times[target, "default"]
        assert series["policy/keep"].y[i] == pytest.approx(share)


def test_a_value_of_x_is_the_base_of_each_series(outcomes):
    asked = figure("{kind: line, x: rules, series: target, versus: policy/keep}")
    for points in series_of(asked, outcomes):
        assert dict(zip(points.x, points.y, strict=True))["policy/keep"] == 1.0


def test_rows_are_chosen_and_keys_joined(outcomes):
    asked = figure("{kind: bars, x: target+rules, where: {target: reference}}")
    (points,) = series_of(asked, outcomes)
    assert points.x == ["reference default", "reference policy/keep", "reference policy/never-pack"]


@pytest.mark.parametrize(
    "text",
    one_in(
        2,
        [
            BARS,
            "{kind: line, x: rules, series: target, log: y}",
            "{kind: scatter, x: egraph.nodes, y: time_us, series: rules, log: both,"
            " diagonal: true}",
            "{kind: bars, x: row, y: [peak_bytes, bytes_moved], title: a < b & 'c'}",
        ],
    ),
)
def test_a_figure_is_the_same_each_time_and_well_formed(outcomes, text):
    from eqsat.lab.drawing import svg_of

    first, second = (svg_of(figure(text), outcomes) for _ in range(2))
    assert first == second
    root = ElementTree.fromstring(first)
    texts = "".join(root.itertext())
    assert "default" in texts or "nodes" in texts or "peak" in texts
    assert "<script" not in first and "<metadata" not in first


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{kind: bars, x: rule}", "E270"),
        ("{kind: bars, x: target, series: ruls}", "E270"),
        ("{kind: line, x: target, where: {tile: a}}", "E270"),
        ("{kind: bars, x: target, series: rules, y: [time_us, measured]}", "E270"),
    ],
)
def test_keys_that_no_row_has_are_told_before_the_first_row(text, code):
    with pytest.raises(EqsatError) as caught:
        read_experiment(TEXT.format(figure=text), "e.yaml")
    (problem,) = caught.value.diagnostics
    assert problem.code == code
    assert problem.span is not None and problem.span.line == 7


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{kind: bars, x: target, series: rules, y: measured}", "E452"),
        ("{kind: bars, x: target, series: rules, y: time_u}", "E438"),
        ("{kind: bars, x: target, series: rules, versus: full}", "E452"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(outcomes, text, code):
    from eqsat.lab.drawing import svg_of

    with pytest.raises(EqsatError, match=code):
        svg_of(figure(text), outcomes)


def test_files_and_page_hold_the_figure_and_nothing_is_lost_without(
    tmp_path: Path, capsys, monkeypatch
):
    file = tmp_path / "drawn.yaml"
    file.write_text(TEXT.format(figure=BARS))
    rows = ["--row", "permuted_consumer@reference rules=default"]
    command = ["experiment", str(file), "-o", str(tmp_path / "out"), "-q", *rows]
    assert run(command) == 0
    svg = (tmp_path / "out" / "drawn.svg").read_text()
    assert svg.startswith("<svg")
    assert '"figure":{"kind":"bars"' in (tmp_path / "out" / "drawn.html").read_text()
    capsys.readouterr()

    (tmp_path / "out" / "drawn.svg").unlink()
    (tmp_path / "out" / "drawn.json").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run([c for c in command if c != "-q"]) == 0
    out, err = capsys.readouterr()
    assert "E451" in err and "pip install 'eqsat[lab]'" in err
    assert "permuted_consumer" in out
    assert (tmp_path / "out" / "drawn.json").exists()
    assert not (tmp_path / "out" / "drawn.svg").exists()
