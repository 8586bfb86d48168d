"""XLA's typed FFI as bytes: its structs as we know them, checked against the installed headers.

Source: `xla/ffi/api/c_api.h` in `jax.ffi.include_dir()`. Handlers are machine code that reads these
structs, so a struct that is not laid out as it was known here would be a crash: fields are compared
by type and name, and a version or field that is unknown is a reason to leave everything to XLA.
"""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass
from pathlib import Path

VERSIONS = {(0, 3)}  # (major, minor) of the API whose meaning is known here

_BASE = ("size_t struct_size", "XLA_FFI_Extension_Base* extension_start")
# struct → its fields from the first on, as the header writes them; later ones are not used
FIELDS: dict[str, tuple[str, ...]] = {
    "XLA_FFI_Extension_Base": (
        "size_t struct_size",
        "XLA_FFI_Extension_Type type",
        "struct XLA_FFI_Extension_Base* next",
    ),
    "XLA_FFI_Api_Version": (*_BASE, "int major_version", "int minor_version"),
    "XLA_FFI_Buffer": (*_BASE, "XLA_FFI_DataType dtype", "void* data"),
    "XLA_FFI_Args": (*_BASE, "int64_t size", "XLA_FFI_ArgType* types", "void** args"),
    "XLA_FFI_Rets": (*_BASE, "int64_t size", "XLA_FFI_RetType* types", "void** rets"),
    "XLA_FFI_Attrs": (
        *_BASE,
        "int64_t size",
        "XLA_FFI_AttrType* types",
        "XLA_FFI_ByteSpan** names",
        "void** attrs",
    ),
    "XLA_FFI_CallFrame": (
        *_BASE,
        "const XLA_FFI_Api* api",
        "XLA_FFI_ExecutionContext* ctx",
        "XLA_FFI_ExecutionStage stage",
        "XLA_FFI_Args args",
        "XLA_FFI_Rets rets",
        "XLA_FFI_Attrs attrs",
        "XLA_FFI_Future* future",
    ),
    "XLA_FFI_Metadata": (
        "size_t struct_size",
        "XLA_FFI_Api_Version api_version",
        "XLA_FFI_Handler_Traits traits",
    ),
    "XLA_FFI_Metadata_Extension": (
        "XLA_FFI_Extension_Base extension_base",
        "XLA_FFI_Metadata* metadata",
    ),
    "XLA_FFI_Error_Create_Args": (*_BASE, "const char* message", "XLA_FFI_Error_Code errc"),
    "XLA_FFI_Error_Destroy_Args": (*_BASE, "XLA_FFI_Error* error"),
    "XLA_FFI_ThreadPool_Schedule_Args": (
        *_BASE,
        "XLA_FFI_ExecutionContext* ctx",
        "XLA_FFI_Task* task",
        "void* data",
    ),
    "XLA_FFI_ThreadPool_NumThreads_Args": (
        *_BASE,
        "XLA_FFI_ExecutionContext* ctx",
        "int64_t* num_threads",
    ),
    "XLA_FFI_Future_Create_Args": (*_BASE, "XLA_FFI_Future* future"),
    "XLA_FFI_Future_SetAvailable_Args": (*_BASE, "XLA_FFI_Future* future"),
    "XLA_FFI_Api": (
        *_BASE,
        "XLA_FFI_Api_Version api_version",
        "const XLA_FFI_InternalApi* internal_api",
        *(
            f"XLA_FFI_{name}* XLA_FFI_{name}"
            for name in (
                "Error_Create",
                "Error_GetMessage",
                "Error_Destroy",
                "Handler_Register",
                "Stream_Get",
                "Type_Register",
                "ExecutionContext_Get",
                "State_Set",
                "State_Get",
                "DeviceMemory_Allocate",
                "DeviceMemory_Free",
                "ThreadPool_Schedule",
                "ThreadPool_NumThreads",
                "Future_Create",
                "Future_SetAvailable",
            )
        ),
    ),
}
# enumerators whose values are written into machine code
ENUMERATORS = {
    "XLA_FFI_Extension_Metadata": 1,
    "XLA_FFI_ExecutionStage_EXECUTE": 3,
    "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED": 8,
}
_BYTES = {"size_t": 8, "int64_t": 8, "int": 4, "XLA_FFI_Handler_Traits": 4}


@dataclass(frozen=True)
class Abi:
    """Byte offsets per struct and field, sizes per struct, and the version of the headers."""

    version: tuple[int, int]
    offsets: dict[str, dict[str, int]]
    sizes: dict[str, int]

    def at(self, struct: str, field: str) -> int:
        """Offset of a field in `XLA_FFI_<struct>`."""
        return self.offsets[f"XLA_FFI_{struct}"][field]

    def size(self, struct: str) -> int:
        """Bytes of `XLA_FFI_<struct>` up to the last field we know."""
        return self.sizes[f"XLA_FFI_{struct}"]


class Unsupported(Exception):
    """Why kernels cannot be called from XLA here, in a sentence."""


@functools.cache
def installed() -> Abi:
    """The FFI of the installed jaxlib; Unsupported if its version or layout is not known here."""
    import jax.ffi

    path = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unsupported(f"the headers of XLA's FFI cannot be read ({error})") from error
    return read_header(text)


def read_header(text: str) -> Abi:
    """The layout in a header; Unsupported if it is not what is known here."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or ctypes.sizeof(ctypes.c_size_t) != 8:
        raise Unsupported("pointers of this machine are not 64 bits wide")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text)
    version = tuple(int(dict(found).get(k, -1)) for k in ("MAJOR", "MINOR"))
    if version not in VERSIONS:
        known = ", ".join(f"{a}.{b}" for a, b in sorted(VERSIONS))
        named = ".".join(map(str, version))
        raise Unsupported(f"version {named} of XLA's FFI is not known here ({known} is)")
    for struct, fields in FIELDS.items():
        if declared(text, struct)[: len(fields)] != fields:
            raise Unsupported(f"the fields of {struct} are not those of version {version}")
    for name, value in ENUMERATORS.items():
        if not re.search(rf"\b{name} = {value}\b", text):
            raise Unsupported(f"{name} is not {value} in XLA's FFI")
    offsets, sizes = _layouts()
    return Abi((version[0], version[1]), offsets, sizes)


def declared(text: str, struct: str) -> tuple[str, ...]:
    """Fields of a struct as a header without comments declares them; empty if it does not."""
    m = re.search(rf"\bstruct {struct} \{{(.*?)\n\s*\}}", text, flags=re.DOTALL)
    if m is None:
        return ()
    body = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"\1* \1", m[1])
    return tuple(" ".join(f.split()) for f in body.split(";") if f.strip())


def _layouts() -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Offsets and sizes by the rules of C: each field at the next multiple of its alignment."""
    offsets: dict[str, dict[str, int]] = {}
    sizes: dict[str, int] = {}
    aligned: dict[str, int] = {}
    for struct, fields in FIELDS.items():
        at, widest, offsets[struct] = 0, 1, {}
        for field in fields:
            kind, name = field.rsplit(" ", 1)
            size = align = 8 if kind.endswith("*") else _BYTES.get(kind, 4)
            if kind in sizes and not kind.endswith("*"):
                size, align = sizes[kind], aligned[kind]
            at = -(-at // align) * align
            offsets[struct][name] = at
            at, widest = at + size, max(widest, align)
        sizes[struct], aligned[struct] = -(-at // widest) * widest, widest
    return offsets, sizes


def get(name: str, base: str, offset: int, kind: str) -> str:
    """`%name` loaded from `offset` bytes behind `%base`."""
    align = 4 if kind == "i32" else 8
    return (
        f"  %{name}.at = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align {align}"
    )


def put(name: str, value: str, base: str, offset: int) -> str:
    """A typed value stored to `offset` bytes behind `%base`; name: of the address."""
    align = 4 if value.startswith("i32") else 8
    return (
        f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  store {value}, ptr %{name}, align {align}"
    )


def arguments(abi: Abi, function: str, **fields: str) -> str:
    """The arguments of a function of XLA's, in `%a`, and its address, `%f`; `%api` is known."""
    struct = f"{function}_Args"
    given = [f"i64 {abi.size(struct)}", "ptr null", *fields.values()]
    at = [0, 8, *(abi.at(struct, field) for field in fields)]
    lines = [
        put(f"a.{i}", value, "a", x) for i, (value, x) in enumerate(zip(given, at, strict=True))
    ]
    address = get("f", "api", abi.at("Api", f"XLA_FFI_{function}"), "ptr")
    return "\n".join([*lines, address])


def room(abi: Abi, function: str) -> str:
    """`%a`, room for the arguments of a function of XLA's."""
    return f"  %a = alloca [{abi.size(f'{function}_Args')} x i8], align 8"
