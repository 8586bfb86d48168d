"""Pages behind the rows of an experiment, and the links that lead there."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

import eqsat
from eqsat.cli import run
from eqsat.lab.resultpage import ROW_SCRIPTS
from eqsat.report.page.onefile import CHARTS

PLAN = """experiment: fold & <keep>
programs: [transposed_pack]
targets: [reference]
set: ["tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]", tiles_forced=true]
rows:
  - {name: fold, rules: policy/always-fold}
  - {name: "<script>alert(1)</script>", rules: policy/keep}
  - {name: best, rules: default}
"""


class Links(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.found += [v for k, v in attrs if k == "href"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("row pages")
    (folder / "plan.yaml").write_text(PLAN, encoding="utf-8")
    out = folder / "results #1"
    assert run(["experiment", str(folder / "plan.yaml"), "-q", "-o", str(out)]) == 0
    return out


def pages(results):
    (page,) = results.glob("*.html")
    return page


def test_rows_lead_to_their_pages_and_to_comparisons(results):
    page = pages(results)
    links = Links(page.read_text(encoding="utf-8")).found
    for link in links:
        assert (results / unquote(link)).is_file(), link
    runs = {link for link in links if link.startswith("runs/")}
    beside = {link for link in links if link.startswith("compare/")}
    assert len(runs) == 3
    assert beside
    for link in beside:
        path = results / unquote(link)
        inner = Links(path.read_text(encoding="utf-8"))
        assert all((path.parent / unquote(to)).is_file() for to in inner.found)
        assert len(inner.found) == 2
        assert "script" not in inner.tags  # the page of a comparison needs none


def test_nothing_of_a_name_is_executed(results):
    text = pages(results).read_text(encoding="utf-8")
    assert Links(text).tags.count("script") == 1 + len(CHARTS) + len(ROW_SCRIPTS)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_pages_that_are_there_are_not_written_again(results, monkeypatch):
    def refuse(*_):
        raise AssertionError("written again")

    monkeypatch.setattr(eqsat.Run, "report", refuse)
    plan = results.parent / "plan.yaml"
    assert run(["experiment", str(plan), "-q", "-o", str(results)]) == 0


def test_nobody_has_to_have_them(results, tmp_path):
    plan = results.parent / "plan.yaml"
    row = ["--row", "best", "--no-pages"]
    assert run(["experiment", str(plan), "-q", "-o", str(tmp_path), *row]) == 0
    assert not list(tmp_path.rglob("report.html"))
    (page,) = tmp_path.glob("*.html")
    assert re.findall("<a ", page.read_text(encoding="utf-8")) == []
