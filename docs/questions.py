"""Runs the eleven questions: their tables into experiments/README.md, their figures beside it.

    python docs/questions.py [--fresh] [NAME…]

Results are kept in `results/`, so what is there is not run again; `--fresh` runs everything. Prints
one JSON object: the seconds that each question took.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from fill import BLOCK, ROOT

PAGE = ROOT / "experiments" / "README.md"
FIGURES = PAGE.parent / "figures"


def answer(names: list[str], fresh: bool) -> dict[str, float]:
    """Run the commands of the page, or those of some questions; seconds by question."""
    seconds: dict[str, float] = {}

    def block(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        command = match[3].splitlines()[0].removeprefix("$ ")
        words = shlex.split(command)
        name = words[2]
        if names and name not in names:
            return match[0]
        start = time.monotonic()
        force = ["--force"] if fresh and name not in seconds else []
        text = printed([*words[1:], *force, "--no-pages"])
        seconds[name] = round(seconds.get(name, 0) + time.monotonic() - start, 1)
        return f"```console\n$ {command}\n{text}```"

    page = BLOCK.sub(block, PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    return seconds


def printed(words: list[str]) -> str:
    """What the command prints, in a run whose results are kept; SystemExit if it fails."""
    eqsat = Path(sys.executable).with_name("eqsat")
    done = subprocess.run([eqsat, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stdout}")
    lines = [line.rstrip() for line in done.stdout.replace(f"{ROOT}/", "").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--fresh", action="store_true")
    asked = parser.parse_args()
    seconds = answer(asked.names, asked.fresh)
    FIGURES.mkdir(exist_ok=True)
    for name in seconds:
        shutil.copyfile(ROOT / "results" / f"{name}.svg", FIGURES / f"{name}.svg")
    print(json.dumps(seconds, indent=1))


if __name__ == "__main__":
    main()
