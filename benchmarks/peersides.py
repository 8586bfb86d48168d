"""One peer in a process of its own: it reads a model's folder, then runs calls when it is told.

    python benchmarks/peersides.py SIDE MODEL FOLDER ANSWER CORES

`base_mib` is what is in memory before the model is: the library, and all that it loads and starts
to run its first program, a sum of four elements (IREE: the library alone).

Orders are JSON lines on the standard input, answers JSON lines on the standard output: first
`{"version", "error", "prepare_s", …}` or `{"failed": why}`, then per order `{"calls": n}` the
`{"wall", "cpu"}` seconds of a batch. Runs in the environment of eqsat or in that of the peers, so
this file imports neither at its top.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 2**20
STACK = "--iree-llvmcpu-stack-allocation-limit=262144"  # bytes; the default refuses fused norms
NATURAL = "natural.onnx"  # the model as a person would export it, where that is another one
Results = Callable[[], Any]


@dataclass(frozen=True)
class Loaded:
    """A model that is ready: a call, and how to make arrays of what the call gives."""

    call: Callable[[], Any]
    arrays: Callable[[Any], Sequence[Any]]
    wait: Callable[[Any], Any] = lambda found: found  # until it is computed
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What a side is to load."""

    model: str
    folder: Path
    answer: Path  # the saved run of eqsat
    threads: int

    @property
    def first(self) -> Path:
        """The folder of the first program."""
        return self.folder.parent / "first"

    @property
    def inputs(self) -> list[Any]:
        import numpy as np

        with np.load(self.folder / "inputs.npz") as held:
            return [held[k] for k in held.files]

    @property
    def wanted(self) -> list[Any]:
        import numpy as np

        with np.load(self.folder / "wanted.npz") as held:
            return [held[k] for k in held.files]


def eqsat_side(job: Job) -> Loaded:
    """The saved answer, on its executor."""
    import jax

    import eqsat

    given = list(jax.device_put(job.inputs))
    first = eqsat.load(job.first / job.answer.name).executable
    jax.block_until_ready(jax.jit(first.run)(first.packed, jax.numpy.ones(4)))
    del first
    facts = {"version": eqsat.__version__, "base_mib": round(resident_mib(), 1)}
    run = eqsat.load(job.answer)
    state = json.loads(job.answer.with_suffix(".json").read_text(encoding="utf-8"))["state"]
    executable = run.executable
    call = jax.jit(executable.run, donate_argnums=[1 + i for i, _ in state])
    step = _fed_back(lambda *xs: call(executable.packed, *xs), given, state)
    held = sum(x.nbytes for x in executable.packed.values())
    facts["weights_mib"] = round(held / MIB, 1)
    return Loaded(step, list, jax.block_until_ready, facts)


def _fed_back(
    call: Callable[..., Any], given: list[Any], state: Sequence[tuple[int, int]]
) -> Results:
    """Calls whose result `r` is argument `a` of the next, for each pair of `state`."""

    def step() -> Any:
        found = call(*given)
        for a, r in state:
            given[a] = found[r]
        return found

    return step


def jax_side(job: Job) -> Loaded:
    """`jax.jit` of the function as it is written, weights as arguments where it takes them."""
    from peermodels import ALL

    model = ALL[job.model]
    return _jitted(model.call, model.take_values, model.state_of(closed=False))


def jax_closed_side(job: Job) -> Loaded:
    """`jax.jit` of the function of its inputs alone: weights are constants of what XLA compiles."""
    from peermodels import ALL

    model = ALL[job.model]
    return _jitted(model.closed, lambda: tuple(model.inputs), model.state_of(closed=True))


def jax_nhwc_side(job: Job) -> Loaded:
    """ResNet-50 written over NHWC images by hand."""
    import numpy as np
    from peermodels import ALL
    from peernets import by_hand, channels_last

    model = ALL[job.model]

    def values() -> tuple[Any, ...]:
        image, params = model.take_values()
        image = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
        return image, channels_last(params)

    return _jitted(by_hand(model.program), values)


def _jitted(
    function: Callable[..., Any],
    values: Callable[[], tuple[Any, ...]],
    state: Sequence[tuple[int, int]] = (),
) -> Loaded:
    import jax

    jax.block_until_ready(jax.jit(lambda x: x + x)(jax.numpy.ones(4)))
    facts = {"version": jax.__version__, "base_mib": round(resident_mib(), 1)}
    held = list(jax.device_put(values()))
    call = jax.jit(function, donate_argnums=[a for a, _ in state])
    step = _fed_back(call, held, state)
    return Loaded(step, jax.tree_util.tree_leaves, jax.block_until_ready, facts)


def onnxruntime_side(job: Job, file: str = "model.onnx") -> Loaded:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def session_of(path: Path) -> Any:
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(str(path), options, providers=providers)

    session_of(job.first / "model.onnx").run(None, {"x": np.ones(4, np.float32)})
    facts = {"version": onnxruntime.__version__, "base_mib": round(resident_mib(), 1)}
    session = session_of(job.folder / file)
    given = dict(zip([i.name for i in session.get_inputs()], job.inputs, strict=True))
    return Loaded(lambda: session.run(None, given), list, facts=facts)


def openvino_side(job: Job, file: str = "model.onnx") -> Loaded:
    """f32 throughout: on CPUs with bf16 units its default is bf16."""
    import numpy as np
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": job.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False,
    }  # fmt: skip
    core = openvino.Core()
    first = core.compile_model(str(job.first / "model.onnx"), "CPU", options)
    first.create_infer_request().infer([np.ones(4, np.float32)])
    del first
    facts = {"version": openvino.__version__.split("-")[0], "base_mib": round(resident_mib(), 1)}
    compiled = core.compile_model(str(job.folder / file), "CPU", options)
    request = compiled.create_infer_request()
    for port, x in zip(compiled.inputs, job.inputs, strict=True):
        request.set_tensor(port, openvino.Tensor(x, shared_memory=False))
    return Loaded(
        request.infer, lambda _: [o.data.copy() for o in request.output_tensors], facts=facts
    )


def torch_side(job: Job) -> Loaded:
    """The ONNX graph as torch ops under `torch.compile`, weights frozen into it."""
    import torch
    import torch._inductor.config as inductor
    from peertorch import module_of

    torch.set_num_threads(job.threads)
    inductor.freezing = True
    with torch.no_grad():
        torch.compile(torch.nn.ReLU().eval())(torch.ones(4))
    facts = {"version": torch.__version__, "base_mib": round(resident_mib(), 1)}
    given = [torch.from_numpy(x) for x in job.inputs]
    module = module_of(job.folder / "model.onnx").eval()
    with torch.no_grad():
        flat = torch.export.export(module, tuple(given), strict=False).module()
        compiled = torch.compile(flat)
        compiled(*given)

    def call() -> Any:
        with torch.no_grad():
            return compiled(*given)

    return Loaded(call, lambda found: [x.float().numpy() for x in found], facts=facts)


def iree_side(level: str, tiled: bool) -> Callable[[Job], Loaded]:
    """IREE on StableHLO; level: `O1` … `O3`; tiled: with data tiling."""

    def side(job: Job) -> Loaded:
        import iree.compiler.version as about
        from iree import runtime

        facts = {"version": about.VERSION, "base_mib": round(resident_mib(), 1)}
        threads = f"--task_topology_group_count={job.threads}"
        runtime.flags.parse_flags(threads)
        config = runtime.Config("local-sync" if job.threads == 1 else "local-task")
        name = f"iree-{level}{'-tiled' if tiled else ''}.vmfb"
        path = job.folder / name
        if not path.exists():
            path.write_bytes(_iree_compiled(job.folder / "model.mlirbc", level, tiled))
        module = runtime.VmModule.mmap(config.vm_instance, str(path))
        bound = runtime.load_vm_module(module, config)
        given = [runtime.asdevicearray(config.device, x) for x in job.inputs]
        facts["weights_mib"] = round(path.stat().st_size / MIB, 1)
        return Loaded(lambda: bound.main(*given), _iree_arrays, facts=facts)

    return side


def _iree_compiled(path: Path, level: str, tiled: bool) -> bytes:
    from iree.compiler.tools import compile_file

    flags = [
        "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host", f"--iree-opt-level={level}",
        f"--iree-opt-data-tiling={'true' if tiled else 'false'}",
        STACK,
    ]  # fmt: skip
    found = compile_file(str(path), input_type="stablehlo", extra_args=flags)
    assert found is not None
    return found


def _iree_arrays(found: Any) -> list[Any]:
    listed = found if isinstance(found, tuple | list) else [found]
    return [x.to_host() for x in listed]


SIDES: dict[str, Callable[[Job], Loaded]] = {
    "eqsat": eqsat_side,
    "jax": jax_side,
    "jax_closed": jax_closed_side,
    "jax_nhwc": jax_nhwc_side,
    "onnxruntime": onnxruntime_side,
    "openvino": openvino_side,
    "onnxruntime_natural": lambda job: onnxruntime_side(job, NATURAL),
    "openvino_natural": lambda job: openvino_side(job, NATURAL),
    "torch": torch_side,
    "iree_o1": iree_side("O1", False),
    "iree_o3": iree_side("O3", False),
    "iree_o1_tiled": iree_side("O1", True),
    "iree_o3_tiled": iree_side("O3", True),
}


def error_of(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the largest element of its result."""
    import numpy as np

    if len(found) != len(wanted):
        raise ValueError(f"{len(found)} results, not {len(wanted)}")
    worst = 0.0
    for x, y in zip(found, wanted, strict=True):
        a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if a.size != b.size:
            raise ValueError(f"a result has {a.size} elements, not {b.size}")
        scale = float(np.abs(b).max()) or 1.0
        worst = max(worst, float(np.abs(a.reshape(b.shape) - b).max()) / scale)
    return worst


def resident_mib() -> float:
    """Pages of this process that are in memory now, mapped files included."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


def batch(loaded: Loaded, calls: int) -> dict[str, float]:
    """Seconds on the wall and of process time for so many calls, after one that is not counted."""
    loaded.wait(loaded.call())
    wall, cpu = time.perf_counter(), time.process_time()
    found = None
    for _ in range(calls):
        found = loaded.call()
    loaded.wait(found)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def ready(side: str, job: Job) -> tuple[Loaded, dict[str, Any]]:
    """The loaded model, and what is known of it before a round."""
    begin = time.perf_counter()
    loaded = SIDES[side](job)
    found = loaded.call()
    error = error_of(loaded.arrays(loaded.wait(found)), job.wanted)
    seconds = round(time.perf_counter() - begin, 1)
    clock = "cpu" if job.threads == 1 else "wall"
    one = min(batch(loaded, 1)[clock] for _ in range(3))
    return loaded, {"error": error, "prepare_s": seconds, "call_s": one} | loaded.facts


def memory() -> dict[str, float]:
    """MiB in memory now, and the most since the process began."""
    now = resident_mib()
    peak = max(now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {"resident_mib": round(now, 1), "peak_mib": round(peak, 1)}


def main() -> None:
    side, model, folder, answer, cores = sys.argv[1:6]
    os.sched_setaffinity(0, {int(c) for c in cores.split(",")})
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may print

    def tell(what: dict[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")

    job = Job(model, Path(folder), Path(answer), len(cores.split(",")))
    try:
        loaded, about = ready(side, job)
    except Exception as e:  # whatever a peer says is what the table shows
        tell({"failed": f"{type(e).__name__}: {e}"[:600]})
        return
    tell(about | memory())
    for line in sys.stdin:
        order = json.loads(line)
        tell(batch(loaded, order["calls"]) if "calls" in order else memory())


if __name__ == "__main__":
    main()
