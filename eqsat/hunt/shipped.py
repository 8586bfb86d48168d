"""The rules that eqsat ships, by content: its own tests hunt them, so that a run need not.

Of a file that is as it was shipped the examples are not read again either.

They are listed in a file and not read from the shipped rule sets, because those can be edited in
place. `python -m eqsat.hunt.shipped` writes the list, which is `make known`; a test compares them.
"""

from __future__ import annotations

from pathlib import Path

from eqsat.lang.content import SHIPPED, file_key, rule_key
from eqsat.plugins import data_folder

HEAD = "# The shipped rules by content; eqsat's tests hunt them. `make known` writes this file.\n"


def listing() -> str:
    """What it has to hold: a line with key and name for every file under `rules/`, and rule."""
    from eqsat.lang.rulesets import load_ruleset

    folder = data_folder("rules")
    files = sorted(p for p in folder.rglob("*.yaml"))
    rules = {(r.name, rule_key(r)) for p in files for r in load_ruleset(p).rules}
    rules |= {(p.relative_to(folder).as_posix(), file_key(p.read_text("utf-8"))) for p in files}
    return HEAD + "".join(f"{key}  {name}\n" for name, key in sorted(rules))


def write_listing() -> None:
    path: Path = data_folder("rules") / SHIPPED
    path.write_text(listing(), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    write_listing()
