"""What the benchmarks that draw random programs by seeds share: options, the log, the output."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def parser_of(doc: str | None, most: int, a_line_per: str) -> argparse.ArgumentParser:
    """`--seeds`, `--jobs`, `--log` and `--out`; seeds 0 to `most` if nobody says otherwise."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--seeds", type=_seeds, default=range(most), help="FROM:TO, or one seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    log = f"a line per {a_line_per}; what is there is not repeated"
    parser.add_argument("--log", type=Path, help=log)
    parser.add_argument("--out", type=Path, help="write the JSON there instead of printing it")
    return parser


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def logged(log: Path | None) -> dict[int, list[dict[str, Any]]]:
    """The rows of each seed that a log holds."""
    if log is None or not log.exists():
        return {}
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return {line["seed"]: line["rows"] for line in lines}


def add_to(log: Path | None, seed: int, rows: list[dict[str, Any]]) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, "rows": rows}) + "\n")


def tell(found: dict[str, Any], out: Path | None) -> None:
    """One JSON object, printed or written."""
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
