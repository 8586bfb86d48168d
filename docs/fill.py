"""Writes what the commands of README.md and the tutorial print into their console blocks.

`make docs` runs it; tests/test_docs.py holds the pages against the commands.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    *(
        f"docs/{p}.md"
        for p in (
            "tutorial",
            "tradeoffs",
            "experiments",
            "parts",
            "programs",
            "borders",
            "questions",
        )
    ),
)
ELISION = "…"  # stands for lines that a page leaves out
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)


def fill(page: Path) -> None:
    """Run the commands of a page one after another in one empty folder."""
    with tempfile.TemporaryDirectory() as folder:

        def block(match: re.Match[str]) -> str:
            kind, title, body = match[1], match[2], match[3]
            if title:  # a file the page shows and later commands read
                Path(folder, title).write_text(body, encoding="utf-8")
            if kind != "console":
                return match[0]
            chunks = [c.splitlines() for c in re.split(r"^\$ ", body, flags=re.M)[1:]]
            return "```console\n" + "".join(_run(*c, folder=folder) for c in chunks) + "```"

        text = BLOCK.sub(block, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def _run(command: str, *before: str, folder: str) -> str:
    """The command and what it prints now; `before` is what the page said it prints."""
    eqsat = Path(sys.executable).with_name("eqsat")
    done = subprocess.run(
        [eqsat, *shlex.split(command)[1:]], capture_output=True, text=True, cwd=folder, check=False
    )
    is_sweep = command.startswith("eqsat experiment") and done.returncode == 0
    talk = "" if is_sweep else done.stderr  # of a sweep the table is shown, not each row's line
    out = (done.stdout + talk).replace(f"{ROOT}/", "").replace(f"{folder}/", "")
    lines = [line.rstrip() for line in out.splitlines()]
    if ELISION in before:
        lines = _excerpt(lines, before)
    return "".join(f"{line}\n" for line in (f"$ {command}", *lines))


def _excerpt(lines: list[str], before: Sequence[str]) -> list[str]:
    """Of the lines those that begin with the same word as the ones shown before, in this order."""
    found, start = [], 0
    for shown in before:
        if shown == ELISION or not shown.strip():
            found.append(shown)
            continue
        word = shown.split()[0]
        at = next((i for i in range(start, len(lines)) if lines[i].split()[:1] == [word]), None)
        if at is None:
            raise SystemExit(f"no line begins with `{word}` in\n" + "\n".join(lines))
        found.append(lines[at])
        start = at + 1
    return found


if __name__ == "__main__":
    for name in PAGES:
        fill(ROOT / name)
