"""`python -m eqsat` is `eqsat`; Ctrl-C while it is loaded is a sentence, too."""

import os
import signal
import sys
from pathlib import Path


def begin() -> None:
    """The entry point of `eqsat` in a shell."""
    signal.signal(signal.SIGINT, _interrupted)
    from eqsat.cli import main

    main()


def begin_as_module() -> None:
    """The entry point of `python -m eqsat`: as `eqsat`, which finds no packages in this folder.

    What somebody left in a folder would be a plug-in, and code that is run.
    """
    package_parent = str(Path(__file__).parents[1])
    if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(package_parent).resolve():
        del sys.path[0]
    begin()


def _interrupted(*_: object) -> None:
    os.write(2, b"interrupted, nothing was written\n")
    os._exit(130)


if __name__ == "__main__":
    begin_as_module()
