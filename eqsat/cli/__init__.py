"""The `eqsat` command: data on stdout, talk on stderr, no traceback for bad input."""

from eqsat.cli.app import app, main, run

__all__ = ["app", "main", "run"]
