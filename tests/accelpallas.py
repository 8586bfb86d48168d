"""Dispatches as Pallas kernels: how many there are, whether they are right, whether they compile.

    python benchmarks/run.py pallas [--only NAME …] [--no-compilers]

Programs of the library on a TPU and on a GPU. Every dispatch runs as a kernel in Pallas's
interpreter, and the whole program is verified against float64; then every kernel is compiled for
the device by its own compiler (Mosaic in libtpu, Triton in XLA), which needs none.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

from gates import say

from eqsat.execute.compilers.ask import TPUS, cuda_tools, description, need_compiler
from eqsat.model.diag import EqsatError
from eqsat.model.oracle import oracle_of

# a step of the last quantiser of `quantised_mlp`: sums in another order round apart
QUANTUM = 0.0151
LEAST = 0.9  # of the dispatches of a program are kernels

PROGRAMS = Path(__file__).resolve().parent.parent / "experiments" / "programs"
LIBRARY = {
    "encoder": "encoder.py",
    "mlp": "mlp.py:mlp_784",
    "attention": "encoder.py:attention",
    "quantised": "quantized_matmul.eqs",
    "quantised_mlp": "quantised.py:quantised_mlp",
    "bottlenecks": "bottlenecks.py:bottlenecks",
}
# target -> the device whose compiler is asked
DEVICES = {"tpu-v5e": "v5e", "sm_90": "h100"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=list(LIBRARY), default=list(LIBRARY))
    parser.add_argument("--targets", nargs="+", default=list(DEVICES), metavar="TARGET")
    parser.add_argument("--no-compilers", action="store_true", help="interpret only")


def measured(o: argparse.Namespace) -> dict[str, Any]:
    """A row per program and target, and whether all of them show what they should."""
    _environment()
    asked = {t: not o.no_compilers and has_compiler(d) for t, d in DEVICES.items()}
    rows = [row(name, target, asked[target]) for name in o.only for target in o.targets]
    return {"ok": all(r["ok"] for r in rows), "rows": rows}


def _environment() -> None:
    """JAX stays on the CPU; libtpu asks nobody what this machine is."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ |= TPUS["v5e"].environment
    with suppress(EqsatError):  # then there is no compiler for a GPU either
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={cuda_tools()}".strip()


def has_compiler(device: str) -> bool:
    try:
        need_compiler(oracle_of(device))
    except EqsatError as error:
        told = error.diagnostics[0]
        say(f"SKIPPED kernels for {device}: {told.message}; {told.help}")
        return False
    return True


def row(name: str, target: str, compilers: bool) -> dict[str, Any]:
    """One program on one target."""
    import eqsat
    from eqsat.execute.pallas.executor import without_kernels

    settings = {"target": target, "settings": ["executor=pallas"], "time_limit": 20}
    run = eqsat.optimize(*program(name), **settings)
    assert run.schedule is not None
    refused = without_kernels(run.schedule, run.target)
    told = _compiled(run, DEVICES[target], refused) if compilers else {}
    dispatches = len(run.schedule.dispatches)
    good = dispatches - len(refused.keys() | told.keys())
    check = run.verify(samples=1) if name != "quantised_mlp" else None
    difference = 0.0 if check else _difference(run)
    right = check.outcome == "ok" if check else difference <= QUANTUM
    return {
        "program": name,
        "target": target,
        "dispatches": dispatches,
        "kernels": dispatches - len(refused),
        "compiled": good if compilers else None,
        "declined": {str(i): why for i, why in sorted(refused.items())},
        "not_compiled": {str(i): why for i, why in sorted(told.items())},
        "verified": check.outcome if check else None,
        "max_error": check.max_error if check else None,
        "limit": check.limit if check else None,
        "difference_to_xla": None if check else difference,
        "ok": right and not told and good >= LEAST * dispatches,
    }


def program(name: str) -> tuple[Any, ...]:
    """What `eqsat.optimize` takes: a program of the library, or the attention of its encoder."""
    import eqsat

    if name != "attention":
        return (eqsat.read(f"{PROGRAMS / LIBRARY[name]}"),)
    spec = importlib.util.spec_from_file_location("encoder", PROGRAMS / "encoder.py")
    assert spec is not None and spec.loader is not None
    encoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(encoder)
    return (lambda x: encoder.attention(x, encoder.params()), *encoder.encoder_example())


def _difference(run: Any) -> float:
    """Largest difference to the executor `xla`, for what takes the float64 reference too long."""
    import numpy as np

    from eqsat.execute.draw import random_inputs
    from eqsat.execute.executable import xla_executable
    from eqsat.execute.pallas.executor import PallasExecutable

    inputs = random_inputs(run.schedule.program, np.random.default_rng(0))
    inputs = [np.asarray(x, "f4") for x in inputs]
    found = PallasExecutable(run.schedule, run.source.opaque, run.source.weights, run.target)(
        *inputs
    )
    want = xla_executable(run.schedule, run.source.opaque, run.source.weights)(*inputs)
    return max(
        float(abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(found, want, strict=True)
    )


def _compiled(run: Any, device: str, refused: dict[int, str]) -> dict[int, str]:
    """Number of a dispatch → why the device's compiler refuses its kernel."""
    from eqsat.execute.pallas.executor import kernel_of
    from eqsat.plan.gridded.flat import BLOCKS, FLAT

    form = BLOCKS if device in TPUS else FLAT
    kernels = {
        i: kernel_of(run.schedule, i, run.target, form)
        for i in range(len(run.schedule.dispatches))
        if i not in refused
    }
    told = {i: compiled(kernel, device) for i, kernel in kernels.items()}
    return {i: why for i, why in told.items() if why}


def compiled(kernel: Any, device: str) -> str:
    """Why a device's compiler refuses a kernel; empty if it does not."""
    import jax
    from jax.sharding import SingleDeviceSharding

    platform = "tpu" if device in TPUS else "cuda"
    place = SingleDeviceSharding(chip(device))
    try:
        with kind_of(device):
            traced = jax.jit(kernel.call(interpret=False)).trace(*avals(kernel, place))
            traced.lower(lowering_platforms=(platform,)).compile()
    except Exception as error:  # what a compiler raises is its answer
        return f"{type(error).__name__}: {str(error)[:400]}"
    return ""


@cache
def chip(device: str) -> Any:
    from jax.experimental import topologies

    if device in TPUS:
        name, options = TPUS[device].topology, {}
    else:
        name, options = device, {"target_config": description(device), "topology": "1x1x1"}
    platform = "tpu" if device in TPUS else "cuda"
    return topologies.get_topology_desc(name, platform, **options).devices[0]


def avals(kernel: Any, sharding: Any) -> list[Any]:
    """What a kernel takes, on a device."""
    import jax

    from eqsat.ops.meaning.programs import element_dtype

    types = [kernel.types[r] for r in kernel.reads]
    return [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype), sharding=sharding) for t in types]


def kind_of(device: str) -> AbstractContextManager[Any]:
    """Mosaic asks for the kind of the device while it lowers."""
    from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

    if device not in TPUS:
        return nullcontext()
    one = AbstractDevice(device_kind=TPUS[device].kind, num_cores=1, platform="tpu")
    return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=one))
