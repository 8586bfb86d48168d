"""A run: a program, the request of its search, and everything the search made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import fail
from eqsat.model.limits import Limits
from eqsat.report.formatting import goal_text
from eqsat.run.convention import Convention
from eqsat.run.kernelcode import machine_codes

if TYPE_CHECKING:  # a run that was loaded to be called needs few of these
    from eqsat.execute.calls import Callee
    from eqsat.execute.compare import Verification
    from eqsat.export.plan import Exported
    from eqsat.frontends.source import Source
    from eqsat.model.compiled import Checked, Compiled, Measured, Told
    from eqsat.model.egraph import EGraph
    from eqsat.model.equalities import Family
    from eqsat.model.executor import Executable, Execution
    from eqsat.model.layout import MemoryOrders
    from eqsat.model.mesh import MeshPlan
    from eqsat.model.program import Program
    from eqsat.model.progress import Curve
    from eqsat.model.rules import RuleCheck, RuleSet
    from eqsat.model.schedule import Schedule
    from eqsat.model.selection import GoalRequest, Price, Question, Selection
    from eqsat.model.target import Target
    from eqsat.report.explain import Explanation


@dataclass
class RunUse:
    """State that is added when the answer is used, after the search; no part of the answer.

    weights: arrays by content hash that were not known when the program was read.
    """

    weights: dict[str, Any] = field(default_factory=dict)
    verification: Verification | None = None
    compiled: Compiled | None = None  # what compilers of devices that are not here told
    functions: dict[Any, Any] = field(default_factory=dict)  # made by `compile`, by its options


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One optimization and everything it made; each stage is plain data.

    `seconds` has the duration of each phase so far, verifying and compiling included.
    """

    source: Source
    canonical: Program  # what was searched: elementwise chains merged
    target: Target
    rules: RuleSet
    goals: tuple[GoalRequest, ...]
    seconds: dict[str, float | None]
    search: dict[str, Any]  # time_limit, seed, threads: what to repeat the search with
    limits: Limits = field(default_factory=Limits)  # of saturation
    rule_check: RuleCheck | None = None  # None in a body, and in runs saved before there was one
    egraph: EGraph | None = None
    selection: Selection | None = None
    schedule: Schedule | None = None
    baseline: Selection | None = None
    baseline_schedule: Schedule | None = None
    orders: MemoryOrders | None = None  # of arguments and results, where any was asked for
    mesh_plan: MeshPlan | None = None  # how values are spread over the mesh of the target
    measured: Measured | None = None  # programs that were timed, of which this one was kept
    checked: Checked | None = None  # programs that a compiler was asked about, likewise
    curve: Curve | None = None  # how the search came to its answer; None in a body
    packed_file: Path | None = None  # packed weights of a saved run
    bodies: Mapping[str, Run] = field(
        default_factory=dict
    )  # `%loop/body` → the search of that body
    family: Family | None = None  # where sizes are not all known: what holds for all of them
    judged: bool = False  # the answer is another compiler's, which the target need not permit
    cache_key: str = ""  # of its answer among those that are kept on this machine, if it is
    searched_at: str = ""  # when it was searched, if it is from there: UTC, in ISO 8601
    use: RunUse = field(default_factory=RunUse)

    def __repr__(self) -> str:
        """One line, as an interactive session shows it."""
        from eqsat.report.finished import claim_text

        what = f"{self.program.name} on {self.target.name}"
        if self.selection is None or self.schedule is None:
            return f"<Run {what}: no schedule>"
        goals = ", ".join(
            f"{g.name} {goal_text(g.name, self.selection.goal(g.name).value)}" for g in self.goals
        )
        claim = claim_text(self.selection, self.target, self.goals)
        return f"<Run {what}: {goals} ({claim})>"

    def _repr_html_(self) -> str | None:
        """The page of the run, as a notebook shows it; its one line, if there is no schedule."""
        if self.selection is None or self.schedule is None:
            return None
        from eqsat.report.page.runpage import framed, page

        return framed(page(self))

    @property
    def program(self) -> Program:
        return self.source.program

    @property
    def weights(self) -> dict[str, Any]:
        """All arrays of the program's weights that are known, by content hash."""
        return {**self.source.weights, **self.use.weights}

    @property
    def verification(self) -> Verification | None:
        """The outcome of verification, if it was requested."""
        return self.use.verification

    @property
    def compiled(self) -> Compiled | None:
        """Answers of compilers of devices that are not here, if any was asked."""
        return self.use.compiled

    def summary(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        from eqsat.report.summary import summary

        return summary(self)

    def explain(
        self, value: str | None = None, *, price: bool | None = None, time_limit: float = 30.0
    ) -> Explanation:
        """Which rules made a choice, its alternatives with their prices, and what limits excluded.

        value: anything that is printed: a value (`%h.matmul`), a layout of it (`%h.matmul@16x16`),
        `dispatch 3`, a rule's name, a line of source (`mlp.py:12`); `%loop/body` is the body of a
        loop, and `%loop/body/%h` a value inside. price: search again for every alternative, within
        `time_limit` seconds for all; None: only if a value is given. Raises EqsatError (E303) if
        nothing has this name.
        """
        from eqsat.run.explaining import explanation

        return explanation(self, value, price, time_limit)

    def mesh_front(self, points: int = 8, time_limit: float = 60.0) -> list[MeshPlan]:
        """Plans on the mesh of which none is both quicker and smaller, the quickest first.

        Of the schedule that its plan cuts; EqsatError E232 if there is none. A plan of which `stop`
        is not `proven` may be improved.
        """
        from eqsat.run.explaining import mesh_planner_of

        return mesh_planner_of(self).front(points, time_limit, self.search["seed"])

    def prices(self, seconds: float, questions: Sequence[Question]) -> list[Price]:
        """Prices of other choices, within so many seconds for all of them."""
        from eqsat.run.explaining import counterfactual_prices

        return counterfactual_prices(self, seconds, questions)

    @cached_property
    def is_input(self) -> bool:
        """Whether the chosen program is the input: the same ops, and nothing computed ahead.

        Only their fusion may differ. False before a schedule is made, and where the searched
        program leaves out work that the function itself does.
        """
        from eqsat.model.program import is_same
        from eqsat.ops.spelling.passes import leaves_work_out

        chosen = self.schedule
        if self.checked is not None and self.checked.keeps_input_by_xla:
            return True
        if chosen is None or any(chosen.program.nodes[i].operands for i in chosen.ahead):
            return False
        return is_same(chosen.program, self.canonical) and not leaves_work_out(self.program)

    def compile(self, *, check: str = "first", race: bool = True) -> Any:
        """A jitted JAX function with the calling convention of the traced one.

        check: `first` makes the first call with the original function, too, compares, and keeps
        that one where the answer is wrong or (race) slower; `always` compares every call; `never`
        none. The function's `checks` say what was seen. Other calls are those of `jax.jit`, without
        any Python of ours; only weights that are passed in every call and packed ahead of time are
        looked up in Python. Where the answer is the input
        and XLA runs it, this is the traced function itself. Arguments and results with a layout are
        passed and returned in it (`source.layouts`); `ops.meaning.programs.pack` converts an array.
        Those of which only the order in memory was chosen (`orders`) have the shapes they had; the
        function then has `put`, for arrays that lie so, and `formats`.
        Programs read from text take flat inputs and return a tuple. EqsatError E400 for other
        words; when a call is traced E306 if its tree differs from the traced one, E503 if an input
        does not fit.
        """
        if self.source.traced is None and self.convention is not None:
            from eqsat.run.serving import served

            return served(self, self.convention, check, race)
        from eqsat.run.calling import flat_function

        return flat_function(self, check, race)

    @cached_property
    def callee(self) -> Callee | None:
        """The answer under the calling convention of the traced function, if one was traced."""
        from eqsat.run.calling import callee_of

        return callee_of(self)

    @cached_property
    def convention(self) -> Convention | None:
        """How the traced function is called, as data; None of a program that was read."""
        traced = self.source.traced
        return None if traced is None or traced.captured else Convention.of(traced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A call as of the traced function, or of flat inputs; `compile()` has the options.

        Weights that were saved, or set by `use_weights`, may be left out.
        """
        return self.compile()(*args, **kwargs)

    @property
    def execution(self) -> Execution:
        """The executor of the schedule, and the dispatches that it does not run as planned."""
        from eqsat.execute.executors import execution

        return execution(self.schedule, self.runs_on)

    @property
    def runs_on(self) -> Target:
        """The target whose executor runs the schedule: XLA's where that was found best."""
        deciders = (self.measured, self.checked)
        if any(a is not None and a.keeps_input_by_xla for a in deciders):
            return replace(self.target, executor="xla")
        spelling = "" if self.checked is None else self.checked.spelling
        return replace(self.target, spelling=spelling) if spelling else self.target

    @cached_property
    def executable(self) -> Executable:
        """The schedule as functions of flat inputs; `packed` holds its weights."""
        from eqsat.run.calling import executable_of

        return executable_of(self)

    @property
    def cut_schedule(self) -> Schedule:
        """The schedule that the plan for a mesh cuts; the chosen one where there is no mesh."""
        from eqsat.model.mesh import INPUT
        from eqsat.ops.mesh.apart import with_parts_apart

        plan, base = self.mesh_plan, self.baseline_schedule
        if plan is None:
            return self.need_schedule()
        is_input = plan.of == INPUT and base is not None
        return with_parts_apart(base if is_input else self.need_schedule())

    def take_weights(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep the arrays among these arguments that are weights of the traced function."""
        from eqsat.run.calling import take_weights

        take_weights(self, args, kwargs)

    def use_weights(self, values: Mapping[str, Any]) -> None:
        """Set these arrays as the program's weights, by name; they are packed once, on first use.

        Raises EqsatError: E324 if the program has no such weight, E503 if an array does not fit.
        """
        from eqsat.execute.weights import arrays_by_key

        arrays = arrays_by_key(self.program, values)
        self.use.weights.update(arrays)
        if "executable" in vars(self):
            self.executable.take_weights(arrays)

    def verify(
        self, samples: int = 4, seed: int = 0, work_limit: float | None = None
    ) -> Verification:
        """Random inputs through the schedule and through the float64 reference.

        work_limit: operations the reference may take (`model.limits.WORK_LIMIT` if none is given).
        Weights of which only the shape is known are drawn at random, too. EqsatError (E508) if the
        values do not fit into memory.
        """
        from eqsat.run.calling import verified

        self.use.verification = verified(self, samples, seed, work_limit)
        return self.use.verification

    def need_schedule(self) -> Schedule:
        """The schedule; EqsatError E405 if the run stopped before one was made."""
        if self.schedule is None:
            raise fail("E405", "this run stopped before a schedule was made")
        return self.schedule

    def save(self, folder: str | Path, *, packed: bool = True, weights: bool = True) -> Path:
        """Write the artefact folder under another name, then rename it, so it is never partial.

        packed: also keep the weights as the schedule reads them, if it was executed. weights: the
        arrays; without them the program has their shapes.
        """
        from eqsat.run.saved import saved

        return saved(self, Path(folder), packed and weights, weights)

    def export(
        self,
        to: str,
        path: str | Path | None = None,
        *,
        of: str = "schedule",
        weights: str = "auto",
        partial: bool = False,
        sizes: Mapping[str, int] | None = None,
    ) -> Exported:
        """The chosen program as an MLIR module (`"mlir"`) or an ONNX model (`"onnx"`).

        Or its schedule for viewers: `"trace"` (Perfetto, Chrome), `"dot"` (Graphviz), `"explorer"`
        (Model Explorer, with what else each value could have been).
        Written to `path` if given. of: `"schedule"` is the chosen program with its packed weights;
        `"program"` the input. weights: `auto`, `constants`, `resources` or `arguments`. partial:
        undefined functions stand for ops that cannot be written. sizes: those of the program that
        are not known, as the run has them; what is written is for these alone. Raises EqsatError:
        E380 if there are ops that cannot be written and not `partial`, E381 if a weight has no
        values, E382 if `onnx` is not installed, E383 for unknown words, E384 if the file cannot be
        written, E395 if not all sizes are known and not all of them are given.
        """
        from eqsat.export.timeline import EXPLORER, VIEWERS, view
        from eqsat.export.write import check_sizes, check_word, export, write_files

        if to in VIEWERS:
            schedule = self.need_schedule()
            rejected = self.explain().rejected(schedule) if to == EXPLORER else {}
            shown = view(schedule, to, self.program.name, rejected)
            return shown if path is None else write_files(shown, Path(path))
        check_sizes(self.program.name, self.open_sizes, sizes or {})
        check_word("part of a run to export", of, ("schedule", "program"))
        what = self.program if of == "program" else self.need_schedule()
        beside = f"{Path(path).name}.data" if path is not None else ""
        exported = export(
            what, to, self.weights, self.source.opaque,
            weights=weights, partial=partial, external=beside, name=self.program.name,
        )  # fmt: skip
        return exported if path is None else write_files(exported, Path(path))

    @property
    def open_sizes(self) -> dict[str, int]:
        """Sizes that the program leaves open, by name, each with the one that this run is of."""
        symbols = () if self.family is None else self.family.symbols
        return dict(self.source.fixed) | {s.name: s.size for s in symbols}

    def compile_for(self, device: str, *, weights: str = "auto", limit: float = 300.0) -> Told:
        """Answers of a compiler, of a device that is not here, about the answer and the input.

        device: `v5e`, `h100`, `gfx942` … (`model.oracle.DEVICES`). weights: `arguments` or
        `constants` of what is compiled; `auto`: see `run.compiling.CompilerQuestions`. limit:
        seconds of one compilation. The answer is kept in `run.compiled`, and saved with the run.
        EqsatError: E460 for a device of which no compiler is known, E461 if its package is missing,
        E462 and E463 (exit_code 3) if it crashes or is not done in time, E464 if the program cannot
        be lowered for the device, E383 for unknown words.
        """
        from eqsat.model.compiled import Compiled
        from eqsat.run.compiling import told_of

        itself = self.callee is not None and self.callee.is_input
        answer = told_of(
            device, self.source, self.weights, self.need_schedule(), self.target, self.runs_on,
            itself=itself, weights=weights, limit=limit,
        )  # fmt: skip
        self.use.compiled = (self.compiled or Compiled()).with_told(answer)
        return answer

    def report(self, path: str | Path, *, asm: bool = False) -> Path:
        """One self-contained HTML page. asm: with the machine code of its kernels' inner loops."""
        from eqsat.report.page.runpage import write_page

        return write_page(self, Path(path), machine_codes(self) if asm else ())
