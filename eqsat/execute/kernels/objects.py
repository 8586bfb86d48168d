"""Object code into this process without LLVM, whose library takes 49 MiB of it and 150 ms to load.

Of what the ELF of x86-64 allows, this knows what LLVM writes for kernels: allocated sections, and
addresses of 8 bytes. For all else there is LLVM's own loader. Source: System V ABI, AMD64
supplement, chapter 4. Unwind tables are left out: nothing is thrown through a kernel.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

_ELF = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_HEADER, _SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_SYMBOLS, _RELA, _NO_BITS, _UNWIND = 2, 4, 8, 0x70000001
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED, _GLOBAL = 0, 1
_ADDRESS = 1  # R_X86_64_64: symbol + addend
# flags of sections → how their pages may be used
_RIGHTS = {
    _EXECUTE: mmap.PROT_READ | mmap.PROT_EXEC,
    0: mmap.PROT_READ,
    _WRITE: mmap.PROT_READ | mmap.PROT_WRITE,
}


class CannotLoad(Exception):
    """Part of an object that this loader does not know, in a sentence."""


@dataclass(frozen=True)
class Section:
    """A section that is in memory at run time. bytes: empty where it starts as zeros."""

    number: int
    bytes: bytes
    size: int
    align: int
    rights: int  # a key of `_RIGHTS`


@dataclass(frozen=True)
class Relocation:
    """`symbol` + `addend`, 8 bytes, at an offset of a section."""

    section: int
    offset: int
    symbol: str | int  # a name, or the number of a section
    base: int  # offset in that section
    addend: int


@dataclass(frozen=True)
class Object:
    """Content of a relocatable file, as far as it is needed at run time."""

    sections: tuple[Section, ...]
    functions: Mapping[str, tuple[int, int]]  # global name → section and offset in it
    relocations: tuple[Relocation, ...]


def supported() -> bool:
    """Whether this machine is one whose objects are known here."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def load_objects(objects: Sequence[bytes], address_of: Callable[[str], int]) -> dict[str, int]:
    """Global symbol → address, of all objects. They stay for the life of the process.

    address_of: of a symbol that no object defines. CannotLoad where one is not as expected.
    """
    read = [read_elf(data) for data in objects]
    places, spans, total = _layout(read)
    memory = _mapped(total)
    start = ctypes.addressof(memory)
    addresses: dict[str, int] = {}
    for o, at in zip(read, places, strict=True):
        addresses |= {name: start + at[s] + offset for name, (s, offset) in o.functions.items()}
    for o, at in zip(read, places, strict=True):
        for section in o.sections:
            ctypes.memmove(start + at[section.number], section.bytes, len(section.bytes))
        for r in o.relocations:
            if isinstance(r.symbol, int):
                value = start + at[r.symbol] + r.base
            else:
                value = addresses[r.symbol] if r.symbol in addresses else address_of(r.symbol)
            place = start + at[r.section] + r.offset
            ctypes.c_uint64.from_address(place).value = (value + r.addend) % 2**64
    for rights, (begin, end) in spans.items():
        _protect(start + begin, end - begin, rights)
    return addresses


def library_symbol(name: str) -> int:
    """The address of a function of the libraries in this process; CannotLoad if there is none."""
    try:
        function = getattr(_process(), name)
    except AttributeError as e:
        raise CannotLoad(f"nothing in this process is called `{name}`") from e
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# ---- reading -----------------------------------------------------------------------------------
def read_elf(data: bytes) -> Object:
    """The object in these bytes; CannotLoad where it is not as expected."""
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as e:
        raise CannotLoad(f"it breaks off or points behind its end ({e})") from e


def _read(data: bytes) -> Object:
    head = _HEADER.unpack_from(data)
    if not head[0].startswith(_ELF) or head[1:3] != (_RELOCATABLE, _X86_64):
        raise CannotLoad("it is no relocatable ELF object of x86-64")
    heads = [_SECTION.unpack_from(data, head[6] + i * _SECTION.size) for i in range(head[12])]
    sections = {i: s for i, s in enumerate(_sections(data, heads)) if s is not None}
    tables = [h for h in heads if h[1] == _SYMBOLS]
    symbols = list(_symbols(data, heads, tables[0])) if tables else []
    functions = {
        name: (section, value)
        for name, binding, section, value in symbols
        if binding == _GLOBAL and section != _UNDEFINED
    }
    if missing := [name for name, (section, _) in functions.items() if section not in sections]:
        raise CannotLoad(f"`{missing[0]}` lies in no section that is in memory")
    relocations = [
        _relocation(sections, symbols, h[7], *_RELOCATION.unpack_from(data, at))
        for h in heads
        if h[1] == _RELA and h[7] in sections
        for at in range(h[4], h[4] + h[5], _RELOCATION.size)
    ]
    return Object(tuple(sections.values()), functions, tuple(relocations))


def _sections(data: bytes, heads: Sequence[tuple[int, ...]]) -> Iterator[Section | None]:
    for i, (_, kind, flags, _, offset, size, _, _, align, _) in enumerate(heads):
        if not flags & _ALLOC or kind == _UNWIND or not size:
            yield None
            continue
        rights = flags & (_WRITE | _EXECUTE)
        content = b"" if kind == _NO_BITS else data[offset : offset + size]
        if rights not in _RIGHTS or align > mmap.PAGESIZE or len(content) not in (0, size):
            raise CannotLoad(f"its section {i} is of an unknown form")
        yield Section(i, content, size, max(1, align), rights)


def _symbols(
    data: bytes, heads: Sequence[tuple[int, ...]], table: tuple[int, ...]
) -> Iterator[tuple[str, int, int, int]]:
    """Name, binding, section and offset in it, of each symbol."""
    names = heads[table[6]][4]
    for at in range(table[4], table[4] + table[5], _SYMBOL.size):
        name, info, _, section, value, _ = _SYMBOL.unpack_from(data, at)
        begin = names + name
        yield data[begin : data.index(b"\0", begin)].decode(), info >> 4, section, value


def _relocation(
    sections: Mapping[int, Section],
    symbols: Sequence[tuple[str, int, int, int]],
    section: int,
    offset: int,
    info: int,
    addend: int,
) -> Relocation:
    if info & 0xFFFFFFFF != _ADDRESS or not 0 <= offset <= sections[section].size - 8:
        raise CannotLoad(f"its relocation {info & 0xFFFFFFFF} in section {section} is unknown")
    name, _, home, value = symbols[info >> 32]
    if home == _UNDEFINED:
        return Relocation(section, offset, name, 0, addend)
    if home not in sections:
        raise CannotLoad(f"`{name}` lies in no section that is in memory")
    return Relocation(section, offset, home, value, addend)


# ---- memory ------------------------------------------------------------------------------------
def _layout(
    objects: Sequence[Object],
) -> tuple[list[dict[int, int]], dict[int, tuple[int, int]], int]:
    """Offsets of each object's sections, the pages of each kind of rights, and bytes of all."""
    places: list[dict[int, int]] = [{} for _ in objects]
    spans, at = {}, 0
    for rights in _RIGHTS:
        begin = at
        for o, offsets in zip(objects, places, strict=True):
            for s in o.sections:
                if s.rights == rights:
                    offsets[s.number] = at = -(-at // s.align) * s.align
                    at += s.size
        at = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        if at > begin:
            spans[rights] = (begin, at)
    return places, spans, at


def _mapped(size: int) -> ctypes.Array[ctypes.c_char]:
    """So many bytes of pages, zeros, never unmapped."""
    pages = mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = (ctypes.c_char * max(1, size)).from_buffer(pages)
    # not even when the interpreter ends: a thread of XLA's may be in a kernel still
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return memory


def _protect(address: int, size: int, rights: int) -> None:
    protect = _process().mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(address, size, _RIGHTS[rights]):
        raise CannotLoad("this system does not let pages be executed that were written")


@cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)
