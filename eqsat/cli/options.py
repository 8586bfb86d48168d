"""Options shared by commands: one spelling and one help text each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, get_type_hints

from typer import Argument, Option

import eqsat
from eqsat.cli import completion
from eqsat.cli.talk import Onlooker, progress, say
from eqsat.cli.terminal import on_screen
from eqsat.model.diag import fail
from eqsat.model.limits import Limits

if TYPE_CHECKING:
    from eqsat import Switch
    from eqsat.api import Run
    from eqsat.frontends.source import Source


class Format(StrEnum):
    """How data is printed."""

    text = "text"
    json = "json"


class Device(StrEnum):
    """A JAX platform."""

    cpu = "cpu"
    gpu = "gpu"
    tpu = "tpu"


class Phase(StrEnum):
    """A stage of a run."""

    program = "program"
    egraph = "egraph"
    selection = "selection"
    schedule = "schedule"


OutputFormat = Annotated[
    Format, Option(help="Print text or JSON; `--json` is short for `--output-format json`.")
]
NoCache = Annotated[
    bool,
    Option("--no-cache", help="Search even if an answer is kept on this machine, and keep none."),
]
Quiet = Annotated[
    bool, Option("-q", "--quiet", help="Print errors only; with `--json` the data, too.")
]
Verbose = Annotated[
    bool,
    Option(
        "-v",
        "--verbose",
        help="Log the phases of searches to stderr; show the tracebacks of internal errors.",
    ),
]
TargetName = Annotated[
    str,
    Option(
        autocompletion=completion.targets,
        help="A target by name or file (`eqsat list targets`); `auto` is this machine's.",
    ),
]
DeviceMapName = Annotated[
    str | None,
    Option(
        autocompletion=completion.devices,
        help="A map of several devices by name or file, instead of a target.",
    ),
]
MeshSizes = Annotated[
    str | None,
    Option(
        metavar="AXIS=N,…",
        help="Devices along the axes of a mesh: `data=4,model=2`; the target knows their links.",
    ),
]
Shards = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=SPREAD",
        help="How an argument, weight or result is spread over the mesh, repeatable: an axis or `-`"
        " per dim, `x=[data, -]`, or `result0=free`.",
    ),
]
Rules = Annotated[
    list[str] | None,
    Option(
        autocompletion=completion.rule_sets,
        help="A rule set by name or file, repeatable; `default` if none.",
    ),
]
Without = Annotated[list[str] | None, Option(help="Leave out a rule or a tag, repeatable.")]
Unchecked = Annotated[
    bool,
    Option(
        "--unchecked",
        help="Use unknown rules without hunting for counterexamples first, and refuted rules too;"
        " the run names them.",
    ),
]
Goals = Annotated[
    list[str] | None,
    Option(
        help="What to minimise, repeatable, in order of priority or all with weights (`time:0.5`):"
        " time, memory, dispatches, relayout, resident (bytes of weights kept), load_peak (bytes"
        " while they are packed), or a plug-in's; default: time, memory, dispatches."
    ),
]
ProgramName = Annotated[
    str,
    Argument(
        autocompletion=completion.programs,
        help="`x.eqs`, `x.onnx`, `x.py:function`, or a name from `eqsat list programs`.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    Option(
        help="The size at which an unknown dim is priced, repeatable: `m=128`, or `m=128:16` if all"
        " its sizes are multiples of 16."
    ),
]
Weights = Annotated[
    list[str] | None,
    Option(
        metavar="NAMES",
        help="Arguments that are weights, packed once ahead of time: `w1,w2`; repeatable. MLIR's"
        " may be numbered: `arg1`.",
    ),
]
Layouts = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=LAYOUT",
        help="The layout of an argument or result, repeatable: `a=pack(pos=[0], tiles=[16])`,"
        " `result0=transpose(perm=[1, 0])`, `a=plain`; with `eqsat state` also `a=free`. Or the"
        " order of its dims in memory: `a=[1, 0]`, `a=auto`, `a=compiler` (its shape stays).",
    ),
]
AllLayouts = Annotated[
    str | None,
    Option(
        metavar="auto|compiler",
        help="Dimension order of arguments and results: chosen by the search (`auto`) or by the"
        " `compiler`. `--layout` overrides this per argument.",
    ),
]
Donated = Annotated[
    list[str] | None,
    Option(
        metavar="NAMES", help="Arguments that a call uses up, such as a cache: `cache`; repeatable."
    ),
]
Budget = Annotated[
    list[str] | None,
    Option(help="A hard upper bound on a goal, repeatable: `memory=64MiB`, `dispatches=3`."),
]
Settings = Annotated[
    list[str] | None, Option("--set", help="Change a key of the target: `fusion.siblings=true`.")
]
Originals = Annotated[
    str | None,
    Option(
        metavar="stored|dropped|held",
        help="Original weights: stored packed in the file; dropped when packed (the default); or"
        " held by the caller, in addition to packed copies.",
    ),
]
SearchLimits = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=N",
        help="When saturation stops, repeatable: `nodes=20000`, `rounds=10`, `matches=50000`,"
        " `seconds=5`.",
    ),
]
TimeLimit = Annotated[
    str, Option(help="CPU time of the search, from reading's end to the schedule's: `60s`.")
]
CompileLimit = Annotated[str, Option(help="Wall time of one program in another compiler: `300s`.")]
Seed = Annotated[
    int,
    Option(  # CP-SAT's is an int32, NumPy's is not negative
        min=0, max=2**31 - 1, help="Seed of the solver and of random inputs."
    ),
]
PrintAfter = Annotated[
    list[str] | None,
    Option(
        metavar="PASS",
        help="Print the program whenever this pass changes it (`eqsat list passes`); repeatable.",
    ),
]
Extractor = Annotated[
    str,
    Option(
        metavar="NAME",
        help="`cpsat`, or `greedy`: the cheapest known way to write each buffer, without a proof.",
    ),
]
Threads = Annotated[
    int, Option(min=1, help="Threads of the solver; they do not change the answer.")
]
Samples = Annotated[int, Option(min=1, help="Random inputs to verify with.")]
WorkLimit = Annotated[
    float,
    Option(
        min=1,
        help="Operations that the float64 reference may take; 1e11 is about ten seconds. Beyond"
        " it, elements are computed on demand.",
    ),
]
DeviceName = Annotated[Device | None, Option(help="Execute on this JAX platform.")]
RunFolder = Annotated[
    Path, Argument(autocompletion=completion.runs, help="The folder of a run, from `optimize -o`.")
]


FEW = 12  # options that one panel of help can hold
PANELS = {
    "Input": "program size weights donate layout layouts pairs",
    "Search": "rules without unchecked limit time_limit seed extractor threads points no_cache",
    "Goals": "goal budget originals",
    "Target": "target setting devices",
    "Mesh": "mesh shard mesh_front",
    "Execute": "verify work_limit measure check_compile compile_limit device",
    "Output": "out stop_after print_after output_format quiet verbose",
}


def sort_into_panels(parameters: Sequence[Any]) -> None:
    """Give the many options of a command a panel each in its help; few stay together."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names.split()}
    options = [p for p in parameters if p.param_type_name == "option"]
    for option in options if len(options) > FEW else ():
        option.rich_help_panel = panel_of.get(option.name)


class Printable(Protocol):
    """The result of a command, for a person and for programs."""

    def to_text(self) -> str: ...
    def to_json(self) -> Any: ...


@dataclass(frozen=True)
class Output:
    """How a command prints on stdout."""

    output_format: OutputFormat = Format.text

    @property
    def as_json(self) -> bool:
        return self.output_format is Format.json

    def show(self, data: Callable[[], Any], text: Callable[[], str]) -> None:
        """Print a text, or the data that programs read."""
        if self.as_json:
            print(json.dumps(data()))
            return
        with on_screen():
            print(text(), end="")

    def found(self, result: Printable) -> None:
        self.show(result.to_json, result.to_text)


@dataclass(frozen=True)
class Talk(Output):
    """What a command prints, on stderr too."""

    quiet: Quiet = False

    def say(self, text: str) -> None:
        """A message that is no error."""
        if not self.quiet:
            say(text)

    def progress(self, watch: Onlooker) -> AbstractContextManager[None]:
        return progress(watch, self.quiet or self.as_json)


@dataclass(frozen=True)
class Asked:
    """What every search is asked: a machine, rules, hard limits, and when to end."""

    target: TargetName = "auto"
    rules: Rules = None
    without: Without = None
    unchecked: Unchecked = False
    budget: Budget = None
    setting: Settings = None
    limit: SearchLimits = None
    weights: Weights = None
    seed: Seed = 0

    def request(self, time_limit: str, originals: str | None = None) -> dict[str, Any]:
        """The arguments of a search; EqsatError as each option. originals: one more setting."""
        from eqsat.lang.units import read_budget

        settings = (*(self.setting or ()), *([f"originals={originals}"] if originals else []))
        return {
            "target": self.target,
            "rules": tuple(self.rules or ("default",)),
            "without": tuple(self.without or ()),
            "unchecked": self.unchecked,
            "budget": dict(read_budget(t) for t in self.budget or ()),
            "settings": settings,
            "limits": search_limits(self.limit),
            "time_limit": seconds(time_limit),
            "seed": self.seed,
        }

    def read(self, program: str, sizes: list[str] | None = None) -> Source:
        """The program with its weights, at these sizes."""
        return eqsat.read(program, symbol_sizes(sizes), names(self.weights))


def command_of(function: Callable[..., int]) -> Callable[..., int]:
    """A function as typer takes it: the fields of records are options, and there is `--verbose`."""
    hints = get_type_hints(function, include_extras=True)
    records = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for p in signature(function).parameters.values():
        if p.name not in records:
            parameters.append(p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]))
            continue
        kinds = get_type_hints(records[p.name], include_extras=True)
        for f in fields(records[p.name]):
            option = Parameter(f.name, p.KEYWORD_ONLY, default=f.default, annotation=kinds[f.name])
            parameters.append(option)
    if "verbose" not in hints:  # `app.run` reads it
        parameters.append(
            Parameter("verbose", Parameter.KEYWORD_ONLY, default=False, annotation=Verbose)
        )

    @wraps(function)
    def command(**given: Any) -> int:
        if "verbose" not in hints:
            del given["verbose"]
        for name, kind in records.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind)})
        return function(**given)

    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = Signature(parameters)  # pyrefly: ignore
    return command


def seconds(time_limit: str, option: str = "--time-limit") -> float:
    """The seconds of `--time-limit`, or an option like it; EqsatError if it is no duration."""
    from eqsat.lang.units import read_quantity

    return float(read_quantity(time_limit, "duration", option))


def search_limits(texts: list[str] | None) -> Limits:
    """The limits of `--limit`; EqsatError if one is no limit."""
    from eqsat.lang.requests import read_limits

    return read_limits(texts or ())


def names(texts: list[str] | None) -> tuple[str, ...]:
    """The names of `--weights`, with commas between them."""
    return tuple(n.strip() for t in texts or () for n in t.split(",") if n.strip())


def symbol_sizes(texts: list[str] | None) -> dict[str, int]:
    """The sizes of `--size`, by name; EqsatError if one is no size, E385 if a name is twice."""
    from eqsat.model.diag import fail
    from eqsat.model.symbols import read_size

    read = [read_size(t) for t in texts or ()]
    if len(dict(read)) < len(read):
        why = f"`--size` gives a dim two sizes: {', '.join(texts or ())}"
        raise fail("E385", why, help="`eqsat export` takes several of the folder of a switch")
    return dict(read)


def sizes_of_switch(folder: Path, texts: list[str] | None) -> tuple[Switch, list[int]] | None:
    """A switch and the sizes of `--size`, if there are several; EqsatError as `eqsat.load`."""
    import eqsat
    from eqsat.model.symbols import read_size

    read = [read_size(t) for t in texts or ()]
    found = eqsat.load(folder) if len(read) > 1 else None
    if not isinstance(found, eqsat.Switch) or {name for name, _ in read} != {found.table.symbol}:
        return None
    return found, [int(size) for _, size in read]


def goals(texts: list[str] | None) -> tuple[Any, ...]:
    """The goals of `--goal`; EqsatError as `parse_goals`."""
    from eqsat.api import DEFAULT_GOALS
    from eqsat.lang.requests import parse_goals

    return parse_goals(texts or DEFAULT_GOALS)


def load_run(folder: str | Path, sizes: Mapping[str, int] | None = None) -> Run:
    """The run of a folder, at these sizes; of a switch its program of this size.

    EqsatError as `eqsat.load` and `eqsat.bind`; E385 for a switch without its size.
    """
    found = eqsat.load(folder)
    if isinstance(found, eqsat.Switch):
        if sizes is None or set(sizes) != {found.table.symbol}:
            help = f"`--size {found.table.symbol}=N`, or one of its programs: `{folder}/program-1`"
            raise fail("E385", f"`{folder}` holds programs for several sizes", help=help)
        return found.at(sizes[found.table.symbol])
    has_sizes = found.family is not None or not found.source.fixed
    return eqsat.bind(found, sizes) if sizes and has_sizes else found


def layouts(texts: list[str] | None, of_all: str | None = None) -> dict[str, str]:
    """Layouts of `--layout` and `--layouts` by name; EqsatError E394 if one is not NAME=LAYOUT."""
    from eqsat.api.borders import ALL

    by_name: dict[str, str] = {} if of_all is None else {ALL: of_all}
    for text in texts or ():
        name, equals, layout = text.partition("=")
        if not name or not equals:
            help = "e.g. `--layout 'a=pack(pos=[0], tiles=[16])'`"
            raise fail("E394", f"`--layout {text}` is not NAME=LAYOUT", help=help)
        by_name[name.strip()] = layout.strip()
    return by_name


def shards(texts: list[str] | None) -> dict[str, str]:
    """The spreads of `--shard`, by name; EqsatError E232 if one is not NAME=SPREAD."""
    from eqsat.lang.requests import read_shards

    return read_shards(texts or ())


@contextmanager
def on_device(device: Device | None) -> Iterator[None]:
    """Execute on the first device of this platform; EqsatError (E506) if there is none."""
    if device is None:
        yield
        return
    import jax

    try:
        accelerator = jax.devices(device.value)[0]
    except RuntimeError:
        platforms = ", ".join(sorted({d.platform for d in jax.devices()}))
        raise fail(
            "E506", f"JAX finds no {device.value} here", help=f"this machine has: {platforms}"
        ) from None
    with jax.default_device(accelerator):
        yield
