"""Every command, file and Python block of the documentation works and prints what it says."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from seeds import some

from eqsat.cli import run
from eqsat.lang.devices import load_devices
from eqsat.lang.experiments import read_experiment
from eqsat.lang.rulesets import read_ruleset
from eqsat.lang.targets import read_target

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    *(
        f"docs/{page}.md"
        for page in ("tutorial", "programs", "questions", "rules", "targets", "plugins", "judge")
    ),
]
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PHASES = re.compile(r"^(read|hunt|saturate|extract|schedule|compile|verify) +\S+ (ms|s) ")
_READERS = {"ruleset": read_ruleset, "target": read_target, "experiment": read_experiment}


@dataclass(frozen=True)
class Block:
    kind: str
    title: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(m[1], m[2] or "", m[3], text[: m.start()].count("\n") + 1)
        for m in _BLOCK.finditer(text)
    ]


def steady(line: str) -> str:
    """A line without what differs from machine to machine: seconds, paths, rounding errors."""
    line = line.replace(f"{ROOT}/", "").replace(f"{Path.cwd()}/", "")
    line = _PHASES.sub(r"\1 ", line)
    line = re.sub(r"^seconds +[\d.]+$", "seconds", line)
    line = re.sub(r"\d(\.\d)?e-\d\d", "ERROR", line)
    line = re.sub(r"(ERROR) +[\d.]+ (us|ms|s) ± \d+%$", r"\1 TIME", line)  # a measured column
    line = re.sub(r"^measured .* interleaved rounds$", "measured", line)
    line = re.sub(r"^(chosen|near \d|input|input by XLA) .*\dx( \[.*\])?$", r"\1 TIMES", line)
    line = re.sub(r"(\d+ +)[\d.]+ m?s( +\d+ +\S+:\d+:\d+)$", r"\1 TIME\2", line)  # a rule's time
    return re.sub(r"\s+", " ", line).strip()


def test_nothing_is_left_unchecked():
    kinds = {b.kind for p in PAGES for b in blocks(p)}
    assert kinds <= {"console", "python", "yaml", "text", "toml", "sh"}
    assert len(blocks("docs/tutorial.md")) > 10


@pytest.mark.parametrize("page", some(lambda p: p != "docs/questions.md", PAGES))  # the longest
def test_page(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        where = f"{page}:{block.line}"
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        if block.kind == "yaml":
            read_yaml_block(block)
        elif block.kind == "python" and not block.title:
            exec(compile(block.text, where, "exec"), names)
            capsys.readouterr()
        elif block.kind == "console":
            console(block, where, capsys)


def read_yaml_block(block: Block) -> None:
    kind = block.text.split(":")[0]
    if kind == "devices":
        load_devices(block.title)
    else:
        _READERS[kind](block.text, "block.yaml")


def console(block: Block, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command prints the lines below it, in this order; `…` stands for any lines."""
    for chunk in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *wanted = chunk.splitlines()
        words = shlex.split(command)
        assert words[0] == "eqsat"
        code = run(words[1:])
        out, err = capsys.readouterr()
        lines = (out + err).splitlines()
        complains = any(line.startswith("error[") for line in lines)
        assert (code != 0) == complains, f"{where}: exit code {code}"
        got = [steady(line) for line in lines]
        assert_printed(got, [steady(w) for w in wanted], f"{where}: {command}")


def assert_printed(got: list[str], wanted: list[str], where: str) -> None:
    start = 0
    for line in filter(None, wanted):
        if line == "…":
            continue
        assert line in got[start:], f"{where} does not print\n{line}\nbut\n" + "\n".join(got)
        start = got.index(line, start) + 1


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        assert not heading or heading in headings(file), target


def headings(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in found}


def test_every_decision_is_dated_indexed_and_says_what_would_change_it():
    index, *topics = re.split(r"^## ", (ROOT / "docs" / "decisions.md").read_text(), flags=re.M)
    rows = re.findall(r"^\| \[(.*)\]\(.*\) \| ([\d, ]+) \|$", index, re.M)
    found = []
    for topic in topics:
        title, body = topic.split("\n", 1)
        entries = re.split(r"^(?=\*\*\d+\. )", body, flags=re.M)
        assert not entries[0].strip(), f"{title}: text before the first decision"
        for entry in entries[1:]:
            assert re.match(r"\*\*\d+\. (?s:.+?)\*\*\s\(\d{4}-\d\d-\d\d\)\s", entry), entry
            assert len(re.findall(r"\*Changes\s+if:\*\s\S", entry)) == 1, entry
        found.append((title, sorted(int(e[2 : e.index(".")]) for e in entries[1:])))
    assert [(title, [int(n) for n in numbers.split(", ")]) for title, numbers in rows] == found
    numbers = [n for _, some in found for n in some]
    assert len(numbers) == len(set(numbers))


def test_every_term_of_the_glossary_is_in_use():
    pages = [ROOT / "README.md", *(p for p in (ROOT / "docs").glob("*.md") if p.stem != "glossary")]
    files = [*pages, *(ROOT / "eqsat").rglob("*.py")]
    text = " ".join(" ".join(f.read_text(encoding="utf-8").lower().split()) for f in files)
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", glossary, re.MULTILINE)
    terms = [t for row, _ in rows for t in row.split(", ") if row != "term"]
    assert len(terms) == len(set(terms)) > 60
    assert [t for t in terms if not re.search(rf"\b{re.escape(t.lower())}", text)] == []


def test_the_two_commands_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
