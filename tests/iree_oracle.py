"""What IREE itself computes for MLIR text: an oracle that shares nothing with eqsat."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FLAGS = (
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=generic",
)


@lru_cache(maxsize=64)
def compile_text(text: str, input_type: str = "auto", flags: tuple[str, ...] = ()) -> bytes:
    """The VM bytecode of a module for this CPU; RuntimeError with IREE's own words.

    One module may hold many functions: starting the compiler takes longer than most of them.
    """
    from iree.compiler.tools import CompilerToolError, compile_str

    extra = ["--iree-hal-target-device=local", *FLAGS, *flags]
    try:
        found = compile_str(text, input_type=input_type, extra_args=extra)
    except CompilerToolError as error:
        raise RuntimeError(str(error)) from None
    assert found is not None
    return found


@lru_cache(maxsize=16)
def _module(text: str, input_type: str, flags: tuple[str, ...]) -> tuple[Any, list[str]]:
    from iree import runtime

    config = runtime.Config("local-sync")  # one thread
    module = runtime.VmModule.copy_buffer(config.vm_instance, compile_text(text, input_type, flags))
    names = [n for n in module.function_names if n[:2] != "__" and not n.endswith("$async")]
    return runtime.load_vm_module(module, config), names


def run(
    text: str,
    inputs: Sequence[Array | float | int],
    function: str | None = None,
    input_type: str = "auto",
    flags: tuple[str, ...] = (),
) -> list[Array]:
    """The results of one public function of the module (its first if not named).

    Arguments that are no tensors (`f32`, `index`) are passed as Python numbers.
    """
    bound, names = _module(text, input_type, flags)
    given = [np.array(x, order="C") if isinstance(x, np.ndarray) else x for x in inputs]
    found = getattr(bound, function or names[0])(*given)
    results = found if isinstance(found, tuple | list) else [found]
    return [np.asarray(r.to_host() if hasattr(r, "to_host") else r) for r in results]
