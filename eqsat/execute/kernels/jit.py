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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from eqsat.execute.kernels import compiler, linked
from eqsat.execute.kernels.compiler import CannotCompile, compile_all
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


@functools.cache
def host() -> tuple[str, frozenset[str], str]:
    """LLVM's name of this CPU, the features that it has, and its architecture.

    What LLVM said is kept, so that a process that compiles nothing need not load it.
    """
    key = linked.host_key()
    cached = compiler.OBJECTS.read(key) if key else None
    if cached is not None:
        name, features, architecture = json.loads(cached)
        return name, frozenset(features), architecture
    description = _host_by_llvm()
    if key:
        name, named, architecture = description
        compiler.OBJECTS.write({key: json.dumps([name, sorted(named), architecture]).encode()})
    return description


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
    if not linked.runtime_path(architecture).is_file():
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
    with linked.lock:
        new = {k: name for name, k in keys.items() if k not in linked.loaded}
        compiled, failed = _objects({k: modules[name] for k, name in new.items()}, machine)
        addresses = linked.link_code(list(compiled.values()), [new[k] for k in compiled])
        linked.loaded.update({k: addresses[new[k]] for k in compiled})
        linked.keys.update({name: k for name, k in keys.items() if k in linked.loaded})
    return {name: failed[k] if k in failed else linked.loaded[k] for name, k in keys.items()}


def define(modules: Mapping[str, Module], machine: Machine) -> None:
    """Functions that other objects call by their names; CannotCompile if one cannot be compiled."""
    for name, address in load_modules(modules, machine).items():
        if isinstance(address, CannotCompile):
            raise address
        linked.symbols[name] = address


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


def start_runtime() -> None:
    """Load the runtime that modules of kernels call, once; CannotCompile if it has no code."""
    with linked.lock:
        if linked.symbols.keys() >= set(linked.ENTRIES):
            return
        text = linked.runtime_path(host()[2]).read_text(encoding="utf-8")
        key = _key("runtime", text, ANY)
        compiled, failed = _objects({key: Module(text, functools.partial(str, text))}, ANY)
        if failed:
            raise failed[key]
        addresses = linked.link_code([compiled[key]], linked.ENTRIES)
        linked.keys.update(dict.fromkeys(linked.ENTRIES, key))
        linked.symbols.update({name: addresses[name] for name in linked.ENTRIES})
