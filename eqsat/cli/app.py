"""The command line as a whole: its commands, and what every kind of failure prints and returns."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer import Option

from eqsat import __version__
from eqsat.cli import alone, caches, experiment, files, look, measure, search, several, show
from eqsat.cli.options import command_of, sort_into_panels
from eqsat.cli.talk import (
    INTERRUPTED,
    KEPT,
    logged,
    say,
    say_diagnostics,
    silenced,
    told_warnings,
)
from eqsat.model.diag import Diagnostic, EqsatError, did_you_mean

COMPLETION = "_EQSAT_COMPLETE"  # what a shell sets to ask for completions
COMPLETION_OPTIONS = ("--show-completion", "--install-completion")
OK, USAGE, NOTHING_ADMISSIBLE, BUG = 0, 2, 3, 4
_OPTION = re.compile(r"No such option:? '?(--?[\w-]+)")
_COMMAND = re.compile(r"No such command '([^']*)'")
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")

app = typer.Typer(
    name="eqsat",
    help="Find the best program your rewrite rules can reach, and explain it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"eqsat {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the best program your rewrite rules can reach, and explain it."""


COMMANDS = {
    "optimize": search.optimize,
    "run": search.run_saved,
    "experiment": experiment.experiment,
    "query": experiment.query,
    "pareto": several.pareto,
    "footprint": several.footprint,
    "state": several.state,
    "switch": several.switch,
    "compare": look.compare,
    "explain": look.explain,
    "rules": look.rules,
    "rules match": look.match_rules,
    "show": show.show,
    "show rule": show.show_rule,
    "report": look.report,
    "judge": look.judge,
    "export": look.export,
    "check": files.check_files,
    "list": files.list_,
    "schema": files.schema,
    "discover": experiment.discover,
    "extract": alone.extract_egraph,
    "place": alone.place_buffers,
    "shard": alone.shard_graph,
    "calibrate": measure.calibrate,
    "bench": measure.bench,
    "compile": measure.compile_saved,
    "cache": caches.cache,
}
GROUPS = {
    "Search": "optimize run pareto footprint switch bench export",
    "Look": "show show/rule explain rules rules/match compare report judge list check schema cache",
    "Lab": "experiment query calibrate discover",
    "Parts": "extract place shard state compile",
}
group_of = {
    name.replace("/", " "): group for group, names in GROUPS.items() for name in names.split()
}
for name, command in COMMANDS.items():
    app.command(name, rich_help_panel=group_of.get(name))(command_of(command))


def main() -> None:
    """The entry point of `eqsat` in a shell."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal or file that is not UTF-8
        sys.stdout.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # all is said: it only ends sooner
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == INTERRUPTED:  # an interrupt inside of `exec` would make Python end by the signal
        os._exit(code)
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Run one command line; the exit code.

    0 fine, 1 found something, 2 bad input or usage, 3 nothing admissible, 4 our bug,
    130 interrupted.
    """
    args = [*_spelled_out(args)] or ["--help"]
    as_json = _wants_json(args)
    verbose = "-v" in args or "--verbose" in args
    quiet = "-q" in args or "--quiet" in args
    try:
        with told_warnings(as_json, quiet), logged(verbose), silenced(quiet and not as_json):
            code = _command().main(args, prog_name="eqsat", standalone_mode=False)
    except EqsatError as error:
        say_diagnostics(error.diagnostics, as_json)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as error:  # ours are return codes: a Python program that we imported
        if isinstance(error.__context__, BrokenPipeError):  # or what click makes of `| head`
            return OK
        if COMPLETION in os.environ or any(a in COMPLETION_OPTIONS for a in args):
            return error.code if isinstance(error.code, int) else OK  # typer's own end of it
        say_diagnostics([_ended(error)], as_json)
        return USAGE
    except MemoryError:
        say_diagnostics([_out_of_memory()], as_json)
        return NOTHING_ADMISSIBLE
    except Exception as error:
        return _failed(error, as_json, verbose)
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        return _interrupted()
    if code == KEPT:
        return INTERRUPTED
    return code if isinstance(code, int) else OK


@cache
def _command() -> Any:
    """All commands with their options, read from the signatures of their functions once."""
    group: Any = typer.main.get_command(app)
    for command in group.commands.values():
        sort_into_panels(command.params)
    return group


def _spelled_out(args: Sequence[str]) -> Iterator[str]:
    """A command of two words as one; `--json` as `--output-format json`, up to a `--`."""
    if " ".join(args[:2]) in COMMANDS:
        args = [" ".join(args[:2]), *args[2:]]
    end = args.index("--") if "--" in args else len(args)
    for i, a in enumerate(args):
        yield from ("--output-format", "json") if a == "--json" and i < end else (a,)


def _failed(error: Exception, as_json: bool, verbose: bool) -> int:
    if type(error).__name__ == "Abort":  # older typers make this of Ctrl-C
        return _interrupted()
    if hasattr(error, "format_message"):
        return _usage(error, as_json)
    if verbose:
        import traceback

        say(traceback.format_exc())
    bug = Diagnostic(
        "E900",
        f"internal error: {type(error).__name__}: {error}; this is our bug",
        help="please report it with the output of the same command and `-v`",
    )
    say_diagnostics([bug], as_json)
    return BUG


def _ended(error: SystemExit) -> Diagnostic:
    return Diagnostic(
        "E308",
        f"the Python program ended with `sys.exit({error.code!r})` when it was imported or traced",
        help='what it does as a script belongs below `if __name__ == "__main__":`',
    )


def _out_of_memory() -> Diagnostic:
    return Diagnostic(
        "E413",
        "out of memory",
        help="a smaller program, fewer rules (`--without`) or a machine with more memory",
    )


def _usage(error: Any, as_json: bool) -> int:
    """Typer's own message as one of our diagnostics, with a did-you-mean for choices."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "eqsat"
    message = error.format_message().rstrip(".").replace("Value error, ", "")
    help_text = f"`{command} --help` lists what there is"
    option = _OPTION.match(message)
    if option and context:
        names = [o for p in context.command.params for o in p.opts if o.startswith("--")]
        message, help_text = f"no option `{option[1]}`", did_you_mean(option[1], names)
    command_name = _COMMAND.match(message)
    if command_name:
        names = [c.name or "" for c in app.registered_commands]
        message, help_text = f"no command `{command_name[1]}`", did_you_mean(command_name[1], names)
    choice = _CHOICE.search(message)
    if choice:
        help_text = did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
    say_diagnostics([Diagnostic("E400", message, help=help_text)], as_json)
    return USAGE


def _interrupted() -> int:
    say("interrupted, nothing was written")
    return INTERRUPTED


def _wants_json(args: Sequence[str]) -> bool:
    pairs = zip(args, [*args[1:], ""], strict=True)
    return any(
        (a, b) == ("--output-format", "json") or a == "--output-format=json" for a, b in pairs
    )
