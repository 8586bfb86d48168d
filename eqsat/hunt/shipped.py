"""The rules that eqsat ships, by content: its own tests hunt them, so that a run need not.

They are listed in a file and not read from the shipped rule sets, because those can be edited in
place. `python -m eqsat.hunt.shipped` writes the list, which is `make known`; a test compares them.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from eqsat.lang.content import rule_key
from eqsat.plugins import data_folder

FILE = "known.txt"
HEAD = "# The shipped rules by content; eqsat's tests hunt them. `make known` writes this file.\n"


@lru_cache(maxsize=1)
def known_keys() -> frozenset[str]:
    """Keys (`lang.content.rule_key`) of the rules this version was shipped with."""
    lines = (data_folder("rules") / FILE).read_text(encoding="utf-8").splitlines()
    return frozenset(line.split()[0] for line in lines if line and line[0] != "#")


def listing() -> str:
    """What the file has to hold: a line with key and name for every rule under `rules/`."""
    from eqsat.lang.rulesets import load_ruleset

    folder = data_folder("rules")
    files = sorted(p for p in folder.rglob("*.yaml"))
    rules = {(r.name, rule_key(r)) for p in files for r in load_ruleset(p).rules}
    return HEAD + "".join(f"{key}  {name}\n" for name, key in sorted(rules))


def write_listing() -> None:
    path: Path = data_folder("rules") / FILE
    path.write_text(listing(), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    write_listing()
