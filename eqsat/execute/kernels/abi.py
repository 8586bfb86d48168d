"""Whether XLA's typed FFI, as it is installed, is the one that the runtime was compiled for.

Handlers are machine code that reads XLA's structs, so one that is not laid out as `c/xla_ffi.h` has
it would be a crash: fields are compared by type and name, and a version or field that is unknown is
a reason to leave everything to XLA.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path

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
    text, own = map(_without_comments, (text, OWN_HEADER.read_text(encoding="utf-8")))
    version, known = _version(text), _version(own)
    if version != known:
        named = [".".join(map(str, v)) for v in (version, known)]
        raise Unsupported(f"version {named[0]} of XLA's FFI is not known here ({named[1]} is)")
    for struct in re.findall(r"\bstruct (\w+) \{", own):
        fields = _fields(own, struct)
        if _fields(text, struct)[: len(fields)] != fields:
            raise Unsupported(f"the fields of {struct} are not those of version {version}")
    for name, value in re.findall(r"\benum \{ (\w+) = (\d+) \}", own):
        if not re.search(rf"\b{name} = {value}\b", text):
            raise Unsupported(f"{name} is not {value} in XLA's FFI")


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def _version(text: str) -> tuple[int, ...]:
    """Major and minor version of the FFI that a header declares; -1 where it has none."""
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text))
    return tuple(int(found.get(k, -1)) for k in ("MAJOR", "MINOR"))


def _fields(text: str, struct: str) -> tuple[str, ...]:
    """Fields of a struct as a header without comments declares them; empty if it does not."""
    m = re.search(rf"\bstruct {struct} \{{(.*?)\n\s*\}}", text, flags=re.DOTALL)
    if m is None:
        return ()
    body = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"\1* \1", m[1])
    return tuple(" ".join(f.split()) for f in body.split(";") if f.strip())
