"""Just-in-time handlers that XLA can call: object code from the cache or a worker, loaded for good.

What is loaded stays for the life of the process: compiled programs of JAX hold its addresses.

Handlers are machine code that reads XLA's structs, so one that is not laid out as `c/xla_ffi.h` has
it would be a crash: the fields of XLA's typed FFI, as it is installed, are compared by type and
name, and a version or field that is unknown is a reason to leave everything to XLA.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eqsat.execute.kernels import compiler, kernel, objects
from eqsat.execute.kernels.compiler import CannotCompile, compile_all
from eqsat.execute.kernels.worker import target_machine
from eqsat.model.dispatch import Machine
from eqsat.model.nest import NoNest

OWN_HEADER = Path(__file__).parent / "c" / "xla_ffi.h"


class Unsupported(Exception):
    """Why kernels cannot be called from XLA here, in a sentence."""


@functools.cache
def check_installed() -> None:
    """Unsupported if version or layout of the installed jaxlib's FFI is not known here."""
    import jax.ffi

    path = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unsupported(f"the headers of XLA's FFI cannot be read ({error})") from error
    check_header(text)


def check_header(text: str) -> None:
    """Unsupported if a header does not begin its structs as `c/xla_ffi.h` does."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or ctypes.sizeof(ctypes.c_size_t) != 8:
        raise Unsupported("pointers of this machine are not 64 bits wide")
    text, bundled = map(_without_comments, (text, OWN_HEADER.read_text(encoding="utf-8")))
    version, expected = _version(text), _version(bundled)
    if version != expected:
        named = [".".join(map(str, v)) for v in (version, expected)]
        raise Unsupported(f"version {named[0]} of XLA's FFI is not known here ({named[1]} is)")
    for struct in re.findall(r"\bstruct (\w+) \{", bundled):
        fields = _fields(bundled, struct)
        if _fields(text, struct)[: len(fields)] != fields:
            raise Unsupported(f"the fields of {struct} are not those of version {version}")
    for name, value in re.findall(r"\benum \{ (\w+) = (\d+) \}", bundled):
        if not re.search(rf"\b{name} = {value}\b", text):
            raise Unsupported(f"{name} is not {value} in XLA's FFI")


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _version(text: str) -> tuple[int, ...]:
    """Major and minor version of the FFI that a header declares; -1 where it has none."""
    numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text))
    return tuple(int(numbers.get(k, -1)) for k in ("MAJOR", "MINOR"))


def _fields(text: str, struct: str) -> tuple[str, ...]:
    """Fields of a struct as a header without comments declares them; empty if it does not."""
    m = re.search(rf"\bstruct {struct} \{{(.*?)\n\s*\}}", text, flags=re.DOTALL)
    if m is None:
        return ()
    body = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"\1* \1", m[1])
    return tuple(" ".join(f.split()) for f in body.split(";") if f.strip())


# families of instructions that a machine with features of its own names if they may be used
OPTIONAL = ("avx512", "avx10", "amx")
NEEDED = {"x86_64": ("avx2", "fma"), "aarch64": ("neon",), "arm64": ("neon",)}
ANY = Machine(0, 0, ())  # names no features, so code may use all that the host has

_lock = threading.RLock()
_loaded: dict[str, int] = {}  # key of an object → address of its function
_symbols: dict[str, int] = {}  # what objects call → address
_engines: list[Any] = []  # LLVM's, where it loads; they own the code


@functools.cache
def host() -> tuple[str, frozenset[str], str]:
    """LLVM's name of this CPU, the features that it has, and its architecture.

    What LLVM said is kept, so that a process that compiles nothing need not load it.
    """
    key = _host_key()
    cached = compiler.OBJECTS.read(key) if key else None
    if cached is not None:
        name, features, architecture = json.loads(cached)
        return name, frozenset(features), architecture
    description = _host_by_llvm()
    if key:
        name, named, architecture = description
        compiler.OBJECTS.write({key: json.dumps([name, sorted(named), architecture]).encode()})
    return description


def _host_key() -> str:
    """By what LLVM's words about this CPU are kept; empty where the system does not name it."""
    try:
        processors = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")
    except (OSError, UnicodeDecodeError):
        return ""
    changing = ("processor", "cpu MHz", "core id", "apicid", "initial apicid", "physical id")
    lines = [x for x in processors[0].splitlines() if x.split("\t")[0].strip() not in changing]
    return compiler.key("host", version("llvmlite"), *lines)


def _host_by_llvm() -> tuple[str, frozenset[str], str]:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    named = frozenset(k for k, v in features.items() if v)
    return llvm.get_host_cpu_name(), named, llvm.get_default_triple().split("-")[0]


def why_not(machine: Machine) -> str:
    """Why kernels for this machine cannot run here; empty if they can."""
    try:
        check_installed()
        _, has, architecture = host()
    except Unsupported as error:
        return str(error)
    except (ImportError, OSError, RuntimeError) as error:
        return f"LLVM cannot be used here ({error})"
    if architecture not in NEEDED:
        return f"there are no kernels for {architecture}"
    if not kernel.runtime_path(architecture).is_file():
        return f"there are no kernels for {sys.platform} on {architecture}"
    missing = [f for f in (*NEEDED[architecture], *machine.features) if f not in has]
    return f"this CPU has no {', '.join(dict.fromkeys(missing))}" if missing else ""


def allowed_features(machine: Machine) -> str:
    """Features of the host that kernels for this machine may use, as LLVM reads them.

    A machine that names none may use all. One that does uses these and what else the host has, but
    of the families in `OPTIONAL` only those of which it names one.
    """
    _, has, _ = host()
    named = machine.features
    dropped = [f for f in OPTIONAL if named and not any(n.startswith(f) for n in named)]
    flags = {f: not f.startswith(tuple(dropped)) for f in has}
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(flags.items()))


@dataclass(frozen=True)
class Module:
    """IR that is written only where no object of it is kept.

    content: everything that the IR follows from; `write` may raise NoNest.
    """

    content: str
    write: Callable[[], str]


def load_kernels(modules: Mapping[str, str], machine: Machine) -> dict[str, int | CannotCompile]:
    """Name of a function → its address, or why it has none. modules: the IR that defines each.

    Objects come from the cache or are compiled now, several at once; a text that was loaded before
    keeps its address. The caller has seen that `why_not(machine)` is empty.
    """
    texts = {name: Module(text, functools.partial(str, text)) for name, text in modules.items()}
    return load_modules(texts, machine)


def load_modules(modules: Mapping[str, Module], machine: Machine) -> dict[str, int | CannotCompile]:
    """Addresses of functions, or why one has none, as `load_kernels`."""
    keys = {name: _key(name, m.content, machine) for name, m in modules.items()}
    with _lock:
        new = {k: name for name, k in keys.items() if k not in _loaded}
        compiled, failed = _objects({k: modules[name] for k, name in new.items()}, machine)
        addresses = _link(list(compiled.values()), [new[k] for k in compiled])
        _loaded.update({k: addresses[new[k]] for k in compiled})
    return {name: failed[k] if k in failed else _loaded[k] for name, k in keys.items()}


def define(modules: Mapping[str, Module], machine: Machine) -> None:
    """Functions that other objects call by their names; CannotCompile if one cannot be compiled."""
    for name, address in load_modules(modules, machine).items():
        if isinstance(address, CannotCompile):
            raise address
        _symbols[name] = address


def _key(name: str, content: str, machine: Machine) -> str:
    """Cache key of an object: everything that its code depends on."""
    cpu, _, architecture = host()
    return compiler.key(
        name, content, cpu, architecture, allowed_features(machine), version("llvmlite")
    )


def _objects(
    modules: Mapping[str, Module], machine: Machine
) -> tuple[dict[str, bytes], dict[str, CannotCompile]]:
    """Key → object code, and key → why there is none."""
    cached = {k: payload for k in modules if (payload := compiler.OBJECTS.read(k)) is not None}
    missing = [k for k in modules if k not in cached]
    failed: dict[str, CannotCompile] = {}

    def written() -> Iterator[tuple[str, str]]:
        for k in missing:
            try:
                yield k, modules[k].write()
            except NoNest as why:
                failed[k] = CannotCompile(str(why))

    if not missing:
        return cached, failed
    answers = compile_all(written(), len(missing), host()[0], allowed_features(machine))
    compiled = {k: a for k, a in answers.items() if isinstance(a, bytes)}
    failed |= {k: a for k, a in answers.items() if isinstance(a, CannotCompile)}
    compiler.OBJECTS.write(compiled)
    return cached | compiled, failed


def _link(payloads: Sequence[bytes], functions: Sequence[str]) -> dict[str, int]:
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
    return _symbols[symbol] if symbol in _symbols else objects.library_symbol(symbol)


def _link_by_llvm(payloads: Sequence[bytes], functions: Sequence[str]) -> dict[str, int]:
    """Link objects by LLVM's own loader, as `_link`."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for symbol, address in _symbols.items():
        llvm.add_symbol(symbol, address)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(host()[0], ""))
    for payload in payloads:
        engine.add_object_file(llvm.ObjectFileRef.from_data(payload))
    engine.finalize_object()
    _engines.append(engine)
    return {name: engine.get_function_address(name) for name in functions}


def start_runtime() -> None:
    """Load the runtime that modules of kernels call, once; CannotCompile if it has no code."""
    with _lock:
        if _symbols.keys() >= set(kernel.ENTRIES):
            return
        text = kernel.runtime_path(host()[2]).read_text(encoding="utf-8")
        key = _key("runtime", text, ANY)
        compiled, failed = _objects({key: Module(text, functools.partial(str, text))}, ANY)
        if failed:
            raise failed[key]
        addresses = _link([compiled[key]], kernel.ENTRIES)
        _symbols.update({name: addresses[name] for name in kernel.ENTRIES})
