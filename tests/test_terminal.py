"""What a terminal shows: tables that fit, colours, phases as they end, a cursor after Ctrl-C."""

from __future__ import annotations

import io
import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eqsat.cli import talk, terminal
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.progress import Progress
from eqsat.report.formatting import Screen, elided, shown_on, table_text

ROOT = Path(__file__).parent.parent
HEAD = ("name", "time", "size", "doc")
ROWS = [
    ("encoder.layer.0.attention.self.query.weight", "1.0 us", "3 MiB", "a sentence of some words"),
    ("encoder.layer.1.attention.self.value.weight", "12.5 us", "3 MiB", "short"),
]


def test_a_table_fits_the_screen_and_names_keep_their_ends():
    plain = table_text(HEAD, ROWS)
    with shown_on(Screen(60)):
        lines = table_text(HEAD, ROWS).splitlines()
    assert max(map(len, plain.splitlines())) > 60 >= max(map(len, lines))
    assert lines[1].startswith("encoder.") and "…" in lines[1] and "ery.weight" in lines[1]
    assert [w for line in lines for w in line.split()].count("12.5") == 1
    assert elided("abcdefghij", 5) == "ab…ij"


def test_columns_that_do_not_fit_follow_below():
    columns = ("row", *(f"figure {i}" for i in range(12)))
    with shown_on(Screen(50)):
        text = table_text(columns, [("first", *map(str, range(12)))])
    assert max(map(len, text.splitlines())) <= 50
    assert all(text.count(c) == 1 for c in columns[3:10])
    assert text.count("first") == text.count("row") > 1


class Colourful(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_errors_have_colours_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch):
    text = fail("E020", "`q` is not bound", help="known: p").diagnostics[0].full()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    painted = terminal.painted(text, Colourful())
    assert "\x1b[1;31merror[E020]\x1b[0m" in painted and "\x1b[1;36mhelp:\x1b[0m" in painted
    assert terminal.painted(text, io.StringIO()) == text
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.painted(text, Colourful()) == text


def test_phases_are_printed_as_they_end(monkeypatch: pytest.MonkeyPatch):
    screen = Colourful()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    watch = talk.Onlooker()
    with talk.progress(watch, quiet=False):
        now = Progress("time", listen=watch)
        now.ended["saturate"] = "saturate  12 [ms]  of `x`"
        now.listen(now)
        now.listen(now)
        assert screen.getvalue().count("saturate  12 [ms]  of `x`") == 1
    assert list(watch.phases) == ["saturate"]
    assert screen.getvalue().rstrip("\r\n\x1b[1A2K").endswith("\x1b[?25h")


def test_suggestions_are_near_or_none():
    many = [f"rule-{i}" for i in range(100)]
    assert did_you_mean("rule-1x", many, "eqsat list rules") == "did you mean `rule-1`?"
    assert did_you_mean("zzz", many, "eqsat list rules") == "`eqsat list rules` has names"
    assert did_you_mean("zzz", many).endswith(", and 40 more")
    assert did_you_mean("zzz", ["b", "a"], "eqsat list rules") == "known: a, b"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["optimize", "two_p"], {"two_packs"}),
        (["optimize", "x", "--target", "avx512-x"], {"avx512-xla"}),
        (["optimize", "x", "--rules", "layout/pac"], {"layout/pack"}),
        (["experiment", "quick"], {"quickstart"}),
        (["show", "x", "sched"], {"schedule"}),
    ],
)
def test_values_are_completed(words: list[str], wanted: set[str]):
    line = ["eqsat", *words]
    asked = {"_EQSAT_COMPLETE": "complete_bash", "COMP_CWORD": str(len(line) - 1)}
    code = "import sys; sys.argv = ['eqsat']; from eqsat.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), "COMP_WORDS": " ".join(line), **asked},
    )  # fmt: skip
    assert set(done.stdout.split()) == wanted, done.stderr


# ---- Ctrl-C on a terminal ------------------------------------------------------------------------
def typed(command: list[str], after: float) -> tuple[int, bytes]:
    """The exit code and all bytes of a command on a terminal, with Ctrl-C after so many seconds."""
    import pty

    child, screen = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    shown, begin = b"", time.monotonic()
    is_typed = False
    while True:
        if not is_typed and time.monotonic() - begin >= after:
            os.write(screen, b"\x03")
            is_typed = True
        if select.select([screen], [], [], 0.02)[0]:
            try:
                shown += os.read(screen, 1 << 16)
            except OSError:  # Linux: the other end is closed
                break
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a terminal")
@pytest.mark.parametrize(
    ("program", "target", "moments"),
    [("two_packs", "avx512-xla", 18), ("encoder.py", "avx512", 16), ("gpt2.py:gpt2", "avx512", 16)],
)
def test_ctrl_c_at_any_moment_is_an_answer_or_a_sentence_and_the_cursor_is_back(
    program: str, target: str, moments: int
):
    rng = random.Random(program)
    asked = ["optimize", program, "--target", target, "--time-limit", "6s", "--no-cache"]
    command = [sys.executable, "-m", "eqsat", *asked]
    begin = time.monotonic()
    code, whole = typed(command, 1e9)
    seconds = time.monotonic() - begin
    assert code == 0 and b"baseline" in whole
    for _ in range(moments):
        at = rng.uniform(0.2, seconds)  # before that Python itself has not begun
        code, shown = typed(command, at)
        cursor = shown.rfind(b"\x1b[?25")
        assert cursor < 0 or shown[cursor:].startswith(b"\x1b[?25h"), (at, shown)
        answers = b"baseline" in shown
        print(f"{program} {at:.1f} of {seconds:.1f} s: {code}", "answer" if answers else "sentence")
        assert answers or b"interrupted, " in shown, (at, shown)
        assert b"Traceback" not in shown, (at, shown)
        assert code in (0, 130, -2 if answers else 130), (at, code, shown)
