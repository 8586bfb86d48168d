"""Writes what the commands of README.md and the tutorial print into their console blocks.

`make docs` runs it; tests/test_docs.py holds the pages against the commands.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/tutorial.md", "docs/programs.md")
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
            chunks = re.split(r"^\$ ", body, flags=re.M)[1:]
            commands = [c.splitlines()[0] for c in chunks]
            return "```console\n" + "".join(_run(c, folder) for c in commands) + "```"

        text = BLOCK.sub(block, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def _run(command: str, folder: str) -> str:
    eqsat = Path(sys.executable).with_name("eqsat")
    done = subprocess.run(
        [eqsat, *shlex.split(command)[1:]], capture_output=True, text=True, cwd=folder, check=False
    )
    out = (done.stdout + done.stderr).replace(f"{ROOT}/", "").replace(f"{folder}/", "")
    return f"$ {command}\n" + "".join(f"{line.rstrip()}\n" for line in out.splitlines())


if __name__ == "__main__":
    for name in PAGES:
        fill(ROOT / name)
