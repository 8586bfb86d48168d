"""Kernels in this process: object code linked once, symbols by name, handlers that XLA knows.

A run that was called before needs no more than this: its objects are kept by their keys.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eqsat.execute.kernels import objects
from eqsat.execute.kernels.compiler import OBJECTS, key

ENTRIES = ("eqsat_handle", "eqsat_step", "eqsat_handle_loop")  # of the runtime


def runtime_path(architecture: str) -> Path:
    """Where the runtime's IR for this system is; no such file where kernels do not run."""
    return Path(__file__).parent / "c" / f"runtime.{architecture}-{sys.platform}.ll"


lock = threading.RLock()
loaded: dict[str, int] = {}  # key of an object → address of its function
keys: dict[str, str] = {}  # function → key of its object
symbols: dict[str, int] = {}  # what objects call → address
registered: dict[str, str] = {}  # name of a kernel → why XLA cannot call it; empty: it can
_engines: list[Any] = []  # LLVM's, where it loads; they own the code


def host_key() -> str:
    """By what LLVM's words about this CPU are kept; empty where the system does not name it."""
    try:
        processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")
    except (OSError, UnicodeDecodeError):
        return ""
    changing = ("processor", "cpu MHz", "core id", "apicid", "initial apicid", "physical id")
    lines = [x for x in processors[0].splitlines() if x.split("\t")[0].strip() not in changing]
    return key("host", version("llvmlite"), *lines)


def link_code(payloads: Sequence[bytes], functions: Sequence[str]) -> dict[str, int]:
    """Load object code into the process; the addresses of these functions of it."""
    if not payloads:
        return {}
    try:
        if not objects.supported():
            raise objects.CannotLoad("the loader is of x86-64 under Linux")
        return objects.load_objects(payloads, _symbol_address)
    except objects.CannotLoad:
        return _link_by_llvm(payloads, functions)


def _symbol_address(symbol: str) -> int:
    """The address of what objects call: the runtime, or a function of a library."""
    return symbols[symbol] if symbol in symbols else objects.library_symbol(symbol)


def _link_by_llvm(payloads: Sequence[bytes], functions: Sequence[str]) -> dict[str, int]:
    """Link objects by LLVM's own loader, as `link_code`."""
    import llvmlite.binding as llvm

    from eqsat.execute.kernels.jit import host
    from eqsat.execute.kernels.worker import target_machine

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for symbol, address in symbols.items():
        llvm.add_symbol(symbol, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(host()[0], ""))
    for payload in payloads:
        engine.add_object_file(llvm.ObjectFileRef.from_data(payload))
    engine.finalize_object()
    _engines.append(engine)
    return {name: engine.get_function_address(name) for name in functions}


def register(name: str, address: int | Exception) -> str:
    """Tell XLA where a handler is, once; why it cannot be called, or nothing."""
    import jax.ffi

    with lock:
        if name not in registered and isinstance(address, int):
            capsule = jax.ffi.pycapsule(address)
            jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
        return registered.setdefault(name, "" if isinstance(address, int) else str(address))


def load_again(name: str, functions: dict[str, str]) -> bool:
    """Make a kernel known to XLA from objects that are kept; False if one is there no more.

    functions: those it needs, its handler the last, each with the key of its object.
    """
    handler = next(reversed(functions))
    with lock:
        new = {f: k for f, k in functions.items() if k not in loaded and f not in symbols}
        payloads = {k: OBJECTS.read(k) for k in new.values()}
        code = [data for data in payloads.values() if data is not None]
        if len(code) < len(payloads):
            return False
        addresses = link_code(code, list(new))
        symbols.update({f: addresses[f] for f in new if f != handler})
        loaded.update({k: addresses[f] for f, k in new.items() if f not in ENTRIES})
        keys.update(functions)
        return not register(name, loaded[functions[handler]])
