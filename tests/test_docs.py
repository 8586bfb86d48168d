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
RUN = """performance tutorial tradeoffs experiments parts programs borders questions rules algebra
targets dispatches accelerators meshes plugins judge"""
TEXTS = ("docs", "benchmarks", "experiments", "eqsat")  # folders with pages
PAGES = ["README.md", *(f"docs/{page}.md" for page in RUN.split())]
# half of what all pages take: what these print are answers that tests of their own ask for
LONG = [f"docs/{p}.md" for p in ("questions", "tradeoffs", "judge", "experiments", "programs")]
QUICKSTART = "eqsat experiment quickstart"  # tests/test_quickstart.py runs it once for all
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
    clock = r"(ERROR) +[\d.]+ (us|ms|s) ± \d+%( +[\d.]+ (us|ms|s))?$"  # measured, and CPU
    line = re.sub(clock, r"\1 TIME", re.sub(r"measured +CPU$", "measured", line))
    line = re.sub(r"^measured .* interleaved rounds$", "measured", line)
    line = re.sub(r"^(chosen|near \d|input|input by XLA) .*\dx( \[.*\])?$", r"\1 TIMES", line)
    line = re.sub(r"(\d+ +)[\d.]+ m?s( +\d+ +\S+:\d+:\d+)$", r"\1 TIME\2", line)  # a rule's time
    return re.sub(r"\s+", " ", line).strip()


def test_nothing_is_left_unchecked():
    kinds = {b.kind for p in PAGES for b in blocks(p)}
    assert kinds <= {"console", "python", "yaml", "text", "toml", "sh"}
    assert len(blocks("docs/tutorial.md")) > 10


@pytest.mark.parametrize("page", some(lambda page: page not in LONG, PAGES))
def test_page(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
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
        if command == QUICKSTART:
            continue
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


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(p for d in TEXTS for p in (ROOT / d).rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            path, _, heading = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), (page, target)
            assert not heading or heading in headings(file), (page, target)


def headings(file: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in found}


def decisions() -> dict[str, list[int]]:
    """The numbers on each page of decisions, by the page's name."""
    found = {}
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        entries = re.findall(r"^\*\*([\d, ]+)\. ", page.read_text(encoding="utf-8"), re.M)
        found[page.stem] = sorted(int(n) for entry in entries for n in entry.split(", "))
    return found


def test_every_decision_is_dated_indexed_and_says_what_would_change_it():
    index = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(.*)\]\(decisions/(\w+)\.md\) \| ([\d, ]+) \|$", index, re.M)
    for title, page, _ in rows:
        text = (ROOT / "docs" / "decisions" / f"{page}.md").read_text(encoding="utf-8")
        head, *entries = re.split(r"^(?=\*\*)", text, flags=re.M)
        assert head.splitlines()[0].lower() == f"# decisions: {title}".lower()
        for entry in entries:
            assert re.match(r"\*\*\d+(, \d+)*\. (?s:.+?)\*\*\s\(\d{4}-\d\d-\d\d\)\s", entry), entry
            assert len(re.findall(r"\*Changes\s+if:\*\s\S", entry)) == 1, entry
    found = decisions()
    assert {page: [int(n) for n in numbers.split(", ")] for _, page, numbers in rows} == found
    numbers = [n for some in found.values() for n in some]
    assert len(numbers) == len(set(numbers))


def test_every_cited_decision_is_on_a_page():
    numbers = {n for some in decisions().values() for n in some}
    cited = re.compile(
        r"\bdecisions?\s+(\d{1,3}(?:(?:,|\s+and|\s+to)\s+\d{1,3}\b)*)", re.IGNORECASE
    )
    for file in files("eqsat", "tests", "benchmarks", "docs", "rules", "targets", "experiments"):
        for numerals in cited.findall(file.read_text(encoding="utf-8")):
            assert {int(n) for n in re.findall(r"\d+", numerals)} <= numbers, (file, numerals)
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        beside = re.findall(r"\((\d{1,3})\)", page.read_text(encoding="utf-8"))
        assert {int(n) for n in beside} <= numbers, page


def files(*folders: str) -> list[Path]:
    """Our texts in these folders, and the pages at the top."""
    found = [
        f for d in folders for f in (ROOT / d).rglob("*") if f.suffix in {".py", ".md", ".yaml"}
    ]
    return [*ROOT.glob("*.md"), *found]


def test_pages_stay_short():
    """Each is 15 minutes of reading; all of them, and decisions among them, have a limit."""
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert {page: n for page, n in words.items() if n > 3500} == {}
    sizes = {page: page.stat().st_size for page in pages[1:]}
    assert sum(n for page, n in sizes.items() if "decisions" in str(page)) <= 50_000
    assert sum(sizes.values()) <= 350_000


def test_sources_of_rules_are_open_to_strangers():
    """A paper, a file of a project or an issue, never a section of notes that are not here."""
    for file in (ROOT / "rules").rglob("*.yaml"):
        for source in re.findall(r"^ +source: (.*)$", file.read_text(encoding="utf-8"), re.M):
            assert not re.search(r"\b(packing|movement|egraph) [§FR]|\bB\.\d|^\"?§", source), source


def test_every_term_of_the_glossary_is_in_use():
    pages = [
        ROOT / "README.md",
        *(p for p in (ROOT / "docs").rglob("*.md") if p.stem != "glossary"),
    ]
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
