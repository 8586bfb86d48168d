"""Kernels called between guard pages: a byte read or written outside a buffer ends the process.

Every buffer lies at the very end of its pages, then at their very start, aligned to its element and
no better; what is read cannot be written. Scratch has guards, too. What is not written yet may
hold NaN in the first run and other bytes in the second.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.execute.kernels import jit
from eqsat.execute.kernels.compiler import CannotCompile
from eqsat.model.dispatch import Machine

NONE, READ, WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
PAGE = mmap.PAGESIZE
NAN, OTHER = 0xFF, 0xA5  # in every byte of a result before the call, and of the rest of its pages
_libc = ctypes.CDLL(None, use_errno=True)
# of Linux on x86-64: si_addr of siginfo_t, the error code of a page fault in ucontext_t, sigaction
_SI_ADDR, _PAGE_FAULT, _SIGACTION_BYTES, _SA_FLAGS, _SA_SIGINFO = 16, 192, 152, 136, 4
STRAYED = 86  # exit code of a process whose kernel left a buffer


class Guarded:
    """An array of its own pages, one that cannot be touched before them and one behind."""

    def __init__(self, shape: Sequence[int], dtype: Any, at_end: bool, fill: int = NAN):
        dtype = np.dtype(dtype)
        self.nbytes = int(np.prod(shape)) * dtype.itemsize
        pages = max(-(-self.nbytes // PAGE), 1)
        self.mapped = mmap.mmap(-1, (pages + 2) * PAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapped))
        self.inside, self.length = self.address + PAGE, pages * PAGE
        whole = np.frombuffer(self.mapped, np.uint8)
        whole[:] = self.fill = fill
        self.start = self.length - self.nbytes if at_end else 0
        self.bytes = whole[PAGE : PAGE + self.length]
        own = self.bytes[self.start : self.start + self.nbytes]
        self.array = own.view(dtype).reshape(shape)
        self._protect(self.address, PAGE, NONE)
        self._protect(self.inside + self.length, PAGE, NONE)

    @property
    def pointer(self) -> int:
        return self.inside + self.start

    def only_read(self) -> None:
        self._protect(self.inside, self.length, READ)

    def check_rest(self, what: str) -> None:
        """AssertionError if a byte of the pages beside the array was written."""
        rest = np.concatenate([self.bytes[: self.start], self.bytes[self.start + self.nbytes :]])
        assert (rest == self.fill).all(), f"{what}: bytes beside it were written"

    @staticmethod
    def _protect(address: int, length: int, how: int) -> None:
        if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(length), how):
            raise OSError(ctypes.get_errno(), "mprotect")


def function(kernel: Any, machine: Machine) -> Any:
    """The kernel as a ctypes function of (lo, hi, pointers …, scratch)."""
    address = jit.load_kernels({kernel.name: kernel.ir}, machine)[kernel.name]
    if isinstance(address, CannotCompile):
        raise address
    pointers = len(kernel.reads) + len(kernel.writes) + 1
    kinds = [ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * pointers]
    return ctypes.CFUNCTYPE(None, *kinds)(address)


def run(
    kernel: Any,
    machine: Machine,
    inputs: Sequence[np.ndarray[Any, Any]],
    results: Sequence[tuple[Sequence[int], Any]],
) -> list[np.ndarray[Any, Any]]:
    """The kernel's results; results: shape and dtype of each.

    It runs with all items at once and with buffers at the ends of their pages, then item by item
    backwards and with buffers at the starts; both must give the same bits.
    """
    whole, single = runs(kernel, machine, inputs, results, (OTHER, OTHER))
    for a, b in zip(whole, single, strict=True):
        assert a.tobytes() == b.tobytes(), "items one by one give other bits"
    return whole


def runs(
    kernel: Any,
    machine: Machine,
    inputs: Sequence[np.ndarray[Any, Any]],
    results: Sequence[tuple[Sequence[int], Any]],
    fills: tuple[int, int] = (NAN, OTHER),
) -> list[list[np.ndarray[Any, Any]]]:
    """The results of both runs: elements that nobody wrote differ."""
    call = function(kernel, machine)
    single = [(i, i + 1) for i in reversed(range(kernel.items))]
    both = ([(0, kernel.items)], single)
    return [
        _call(call, kernel, inputs, results, items, at_end=not i, fill=fills[i])
        for i, items in enumerate(both)
    ]


def run_on_threads(
    kernel: Any,
    machine: Machine,
    inputs: Sequence[np.ndarray[Any, Any]],
    results: Sequence[tuple[Sequence[int], Any]],
    count: int = 8,
) -> list[np.ndarray[Any, Any]]:
    """The kernel's results as `run` gives them, once so many threads have made the same bits.

    All write one result, each with scratch of its own: thread i does every item from the i-th on
    in turn, so that all items are done by all threads, many at once.
    """
    expected = run(kernel, machine, inputs, results)
    call = function(kernel, machine)
    buffers = [Guarded(x.shape, x.dtype, at_end=True) for x in inputs]
    for g, x in zip(buffers, inputs, strict=True):
        g.array[...] = x
        g.only_read()
    buffers += [Guarded(shape, dtype, at_end=True) for shape, dtype in results]
    pointers = [g.pointer for g in buffers]
    scratch = [Guarded([-(-kernel.scratch_bytes // 64) * 64], np.uint8, True) for _ in range(count)]
    start = threading.Barrier(count)

    def work(number: int) -> None:
        start.wait()
        for i in range(kernel.items):
            item = (i + number) % kernel.items
            call(item, item + 1, *pointers, scratch[number].pointer)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for g, want in zip(buffers[len(inputs) :], expected, strict=True):
        assert g.array.tobytes() == want.tobytes(), "threads give other bits"
    for g in (*buffers[len(inputs) :], *scratch):
        g.check_rest("a buffer")
    return expected


def _call(
    call: Any,
    kernel: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    results: Sequence[tuple[Sequence[int], Any]],
    items: Sequence[tuple[int, int]],
    at_end: bool,
    fill: int,
) -> list[np.ndarray[Any, Any]]:
    reads = [Guarded(x.shape, x.dtype, at_end, fill) for x in inputs]
    for g, x in zip(reads, inputs, strict=True):
        g.array[...] = x
        g.only_read()
    writes = [Guarded(shape, dtype, at_end, fill) for shape, dtype in results]
    scratch = Guarded([-(-kernel.scratch_bytes // 64) * 64], np.uint8, at_end, fill)
    for side, buffers in (("operand", reads), ("result", writes), ("scratch", [scratch])):
        _named.update({g: f"{side} {i}" for i, g in enumerate(buffers)})
    pointers = [*(g.pointer for g in reads), *(g.pointer for g in writes), scratch.pointer]
    for lo, hi in items:
        call(lo, hi, *pointers)
    for i, g in enumerate(writes):
        g.check_rest(f"result {i}")
    scratch.check_rest("scratch")
    _named.clear()
    return [g.array.copy() for g in writes]


# ---- who strayed ---------------------------------------------------------------------------------
_named: dict[Guarded, str] = {}  # buffers of the call that runs
_kept: list[Any] = []  # the handler: C has its address


def tell_strays(say: Callable[[str], None]) -> None:
    """On an access outside of a buffer: `say` which buffer and how far, then end the process.

    Linux on x86-64; elsewhere the signal alone ends it.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return

    def handle(_: int, info: int, context: int) -> None:
        address = ctypes.c_uint64.from_address(info + _SI_ADDR).value
        wrote = ctypes.c_uint64.from_address(context + _PAGE_FAULT).value & 2
        say(stray(address, "written" if wrote else "read"))
        os._exit(STRAYED)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)(handle)
    _kept.append(handler)
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    ctypes.c_void_p.from_buffer(action).value = ctypes.cast(handler, ctypes.c_void_p).value
    ctypes.c_int.from_buffer(action, _SA_FLAGS).value = _SA_SIGINFO
    for number in (signal.SIGSEGV, signal.SIGBUS):
        if _libc.sigaction(number, action, None):
            raise OSError(ctypes.get_errno(), "sigaction")


def stray(address: int, how: str) -> str:
    """Which buffer of the call that runs an address is nearest to, and where."""

    def away(g: Guarded) -> int:
        return max(g.pointer - address, address - (g.pointer + g.nbytes - 1))

    near = min(_named, key=away, default=None)
    if near is None or away(near) > near.length + PAGE:
        return f"{how} at {address:#x}, which is far from every buffer"
    return f"{_named[near]} is {how} at byte {address - near.pointer} of {near.nbytes}"
