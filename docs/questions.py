"""Runs the fourteen questions: their tables into experiments/README.md, their figures beside it.

    python docs/questions.py [--fresh] [NAME…]

    python docs/questions.py --stale REASON NAME…
    python docs/questions.py --check

Results are kept in `results/`, so what is there is not run again; `--fresh` runs everything. What
was run is stamped (`docs/stamps.py`). `--stale` declares that a question was not run again although
what decides it has changed; the page then says so. `--check` names what is stale of which question.
Prints one JSON object: the seconds that each question took, or what is stale.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import stamps
from fill import BLOCK, ROOT
from stamps import FIGURES, PAGE


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
    parser.add_argument("--stale", metavar="REASON", default="")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    kept = stamps.load()
    if asked.check:
        print(json.dumps({n: s for n in kept if (s := stamps.staleness(n, kept[n]))}, indent=1))
        return
    if asked.stale:
        stamps.keep(kept, asked.names, "", asked.stale)
        return
    seconds = answer(asked.names, asked.fresh)
    FIGURES.mkdir(exist_ok=True)
    for name in seconds:
        shutil.copyfile(ROOT / "results" / f"{name}.svg", FIGURES / f"{name}.svg")
    stamps.keep(kept, seconds, str(datetime.datetime.now(datetime.UTC).date()))
    print(json.dumps(seconds, indent=1))


if __name__ == "__main__":
    main()
