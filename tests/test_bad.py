"""Every broken file must give exactly the diagnostics its lines announce.

An expectation stands at the end of the line that is wrong: `# error: COLUMN [CODE] "part of the
message"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from eqsat.lang.devices import load_devices
from eqsat.lang.experiments import load_experiment
from eqsat.lang.explain import error_pages
from eqsat.lang.programs import load_program
from eqsat.lang.rulesets import load_ruleset
from eqsat.lang.targets import load_target
from eqsat.model.diag import Diagnostic, EqsatError

BAD = Path(__file__).parent / "bad"
EXPECTED = re.compile(r'error: (\d+) \[(E\d{3})\] "([^"]*)"')
FILES = sorted(p for p in BAD.iterdir() if p.suffix in (".yaml", ".eqs") and p.name[0] == "E")


@pytest.fixture(autouse=True)
def _repository_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the files name are found from the working directory."""
    monkeypatch.chdir(BAD.parent.parent)


def loader(path: Path) -> Callable[[], object]:
    if path.suffix == ".eqs":
        return lambda: load_program(path)
    first = path.read_text(encoding="utf-8")
    if re.search(r"^target:", first, re.MULTILINE):
        return lambda: load_target(path, [BAD])
    if re.search(r"^devices:", first, re.MULTILINE):
        return lambda: load_devices(path)
    if re.search(r"^experiment:", first, re.MULTILINE):
        return lambda: load_experiment(path)
    return lambda: load_ruleset(path, [BAD])


def diagnostics(path: Path) -> list[Diagnostic]:
    with pytest.raises(EqsatError) as caught:
        loader(path)()
    return list(caught.value.diagnostics)


def expected(path: Path) -> set[tuple[int, int, str, str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {
        (number, int(column), code, text)
        for number, line in enumerate(lines, 1)
        for column, code, text in EXPECTED.findall(line)
    }


def answers(d: Diagnostic, want: tuple[int, int, str, str]) -> bool:
    at = d.span is not None and (d.span.line, d.span.column) == want[:2]
    return at and d.code == want[2] and want[3] in d.message


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_bad_file_reports_what_it_announces_with_its_line(path: Path) -> None:
    found, wanted = diagnostics(path), expected(path)
    extra = [d.full() for d in found if not any(answers(d, w) for w in wanted)]
    missing = [w for w in wanted if not any(answers(d, w) for d in found)]
    assert (extra, missing) == ([], [])
    assert wanted, "the file announces nothing"
    assert path.name.split("-")[0] in {w[2] for w in wanted}, "it is named after a code it gives"
    places = [(d.span.line, d.span.column) for d in found if d.span]
    assert places == sorted(places), "they are in reading order"
    for d in found:
        assert d.span is not None
        lines = path.read_text(encoding="utf-8").splitlines()
        assert d.span.text == lines[d.span.line - 1]
        assert f"error[{d.code}]" in d.full()


def test_every_code_of_lang_is_documented() -> None:
    import eqsat.lang

    folder = Path(eqsat.lang.__path__[0])
    used = {
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'"(E\d{3})"', path.read_text(encoding="utf-8"))
    }
    assert len(used) > 50
    assert used <= set(error_pages())


# codes that no file can give: they come from the command line or from names
WITHOUT_FILE = {
    "E208", "E211", "E217", "E232", "E266", "E267", "E268", "E271", "E272",
    "E345", "E346",  # of HLO text: tests/test_judge.py
}  # fmt: skip


def test_every_code_of_lang_has_a_bad_file() -> None:
    import eqsat.lang

    folder = Path(eqsat.lang.__path__[0])
    used = {
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'"(E\d{3})"', path.read_text(encoding="utf-8"))
    }
    shown = {w[2] for path in FILES for w in expected(path)}
    assert used - shown == WITHOUT_FILE
