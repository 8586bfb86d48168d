"""Handlers of XLA's typed FFI in LLVM IR, and the runtime that they share.

A handler takes the call frame, reads where the buffers are and has a kernel do its work items:

    void @kernel(i64 lo, i64 hi, ptr read0 …, ptr write0 …, ptr scratch)

Several items are split over XLA's own thread pool: see `kernels.jobs`.
"""

from __future__ import annotations

import sys

from eqsat.execute.kernels import jobs, waiting
from eqsat.execute.kernels.abi import Abi, arguments, get, put, room

RUN = "eqsat_run"  # of the runtime, called by handlers
SLOTS = 64  # blocks of scratch that are kept for later calls; a power of two
SLOT_BYTES = 64  # a line of cache each, as cores write to their own all the time
HUGE_PAGE = 2 * 2**20  # bytes, of which a block of scratch of that and more is made where it can be


def handler(
    abi: Abi, kernel: str, reads: int, writes: int, items: int, scratch_bytes: int, workers: int
) -> str:
    """IR of `@<kernel>_ffi`, beside the definition of `@<kernel>` in a module.

    workers: threads that are worth it at most, the caller among them.
    """
    count = reads + writes
    tasks = _tasks(items, scratch_bytes, workers)
    body = f"""{_buffers(abi, reads, writes)}
  %err = call ptr @{RUN}(ptr %frame, ptr @{kernel}_invoke, ptr %p, i64 {count}, {tasks})
  ret ptr %err"""
    return _DECLARED + _invoke(kernel, count) + _handler(abi, kernel, count, body)


def loop_handler(abi: Abi, loop: str, reads: int, writes: int, scratch_bytes: int) -> str:
    """IR of `@<loop>_ffi`, beside `ptr @<loop>(frame, pointers, scratch)`, which gives an error."""
    count = reads + writes
    tasks = _tasks(1, scratch_bytes, 1)
    body = f"""{_buffers(abi, reads, writes)}
{put("s.frame", "ptr %frame", "p", 8 * count)}
{put("s.error", "ptr null", "p", 8 * count + 8)}
  %err = call ptr @{RUN}(ptr %frame, ptr @{loop}_invoke, ptr %p, i64 {count}, {tasks})
  %own = load ptr, ptr %s.error, align 8
  %fine = icmp eq ptr %err, null
  %found = select i1 %fine, ptr %own, ptr %err
  ret ptr %found"""
    return f"""{_DECLARED}
define internal void @{loop}_invoke(i64 %lo, i64 %hi, ptr %p, ptr %scratch) {{
{get("frame", "p", 8 * count, "ptr")}
  %e = call ptr @{loop}(ptr %frame, ptr %p, ptr %scratch)
{put("s.error", "ptr %e", "p", 8 * count + 8)}
  ret void
}}
{_handler(abi, loop, count + 2, body)}"""


def loop_step(kernel: str, count: int, items: int, scratch_bytes: int, workers: int) -> str:
    """IR of `ptr @<kernel>_at(frame, pointers, scratch)`, beside the definition of `@<kernel>`.

    All items, from `count` pointers; it ends when they are done. Gives an error of XLA's or null.
    """
    if min(workers, items) > 1 and items <= jobs.MOST_ITEMS:
        tasks = _tasks(items, scratch_bytes, workers, in_loop=True)
        call = f"""  %err = call ptr @{RUN}(ptr %frame, ptr @{kernel}_invoke, ptr %p, i64 {count}, {tasks})
  ret ptr %err"""  # noqa: E501
    else:
        call = f"""  call void @{kernel}_invoke(i64 0, i64 {items}, ptr %p, ptr %scratch)
  ret ptr null"""
    return f"""{_DECLARED}{_invoke(kernel, count)}
define ptr @{kernel}_at(ptr %frame, ptr %p, ptr %scratch) {{
{call}
}}
"""


_DECLARED = f"\ndeclare ptr @{RUN}(ptr, ptr, ptr, i64, i64, i64, i64, i64)\n"


def _tasks(items: int, scratch_bytes: int, workers: int, in_loop: bool = False) -> str:
    """The last arguments of the runtime: items, scratch, how many workers, and how they work.

    In a loop they are woken for little, as they stay for the next job.
    """
    most = min(workers, items, jobs.MOST_WORKERS) if items <= jobs.MOST_ITEMS else 1
    how = 1 + jobs.STAYS if in_loop else int(workers >= jobs.WAKE_WORKERS)
    return f"i64 {items}, i64 {scratch_bytes}, i64 {most}, i64 {how}"


def _invoke(kernel: str, count: int) -> str:
    """IR of `@<kernel>_invoke(lo, hi, pointers, scratch)`."""
    pointers = "".join(f", ptr %q{i}" for i in range(count))
    loads = "\n".join(
        f"  %a{i} = getelementptr ptr, ptr %p, i64 {i}\n  %q{i} = load ptr, ptr %a{i}, align 8"
        for i in range(count)
    )
    return f"""define internal void @{kernel}_invoke(i64 %lo, i64 %hi, ptr %p, ptr %scratch) {{
{loads}
  call void @{kernel}(i64 %lo, i64 %hi{pointers}, ptr %scratch)
  ret void
}}
"""


def _handler(abi: Abi, name: str, slots: int, body: str) -> str:
    """IR of `@<name>_ffi`: `body` is what it does once XLA executes it, with `%p` of so many."""
    stage = abi.at("CallFrame", "stage")
    return f"""
define ptr @{name}_ffi(ptr %frame) {{
entry:
  %p = alloca [{max(slots, 1)} x ptr], align 8
{get("e", "frame", abi.at("CallFrame", "extension_start"), "ptr")}
  %plain = icmp eq ptr %e, null
  br i1 %plain, label %staged, label %metadata
metadata:
{get("md", "e", abi.at("Metadata_Extension", "metadata"), "ptr")}
{_metadata(abi)}
  ret ptr null
staged:
{get("stage", "frame", stage, "i32")}
  %now = icmp eq i32 %stage, 3
  br i1 %now, label %execute, label %other
other:
  ret ptr null
execute:
{body}
}}
"""


def _metadata(abi: Abi) -> str:
    version = abi.at("Metadata", "api_version")
    major, minor = abi.version
    values = [
        (version + abi.at("Api_Version", "major_version"), major),
        (version + abi.at("Api_Version", "minor_version"), minor),
        (abi.at("Metadata", "traits"), 0),
    ]
    return "\n".join(put(f"md.{i}", f"i32 {v}", "md", at) for i, (at, v) in enumerate(values))


def _buffers(abi: Abi, reads: int, writes: int) -> str:
    loads = [_buffer(abi, i, i, "args") for i in range(reads)]
    loads += [_buffer(abi, reads + i, i, "rets") for i in range(writes)]
    return "\n".join(loads)


def _buffer(abi: Abi, slot: int, i: int, side: str) -> str:
    """The address of the data of argument or result `i` into slot `slot` of `%p`."""
    array = abi.at("CallFrame", side) + abi.at(side.capitalize(), side)
    return "\n".join(
        [
            get(f"x{slot}", "frame", array, "ptr"),
            get(f"b{slot}", f"x{slot}", 8 * i, "ptr"),
            get(f"d{slot}", f"b{slot}", abi.at("Buffer", "data"), "ptr"),
            put(f"s{slot}", f"ptr %d{slot}", "p", 8 * slot),
        ]
    )


def runtime(abi: Abi, pause: str) -> str:
    """IR of the runtime, one per process. pause: an instruction that says "waiting", or nothing."""
    return "\n".join(
        [
            _HEADER,
            jobs.core(),
            waiting.clock(),
            waiting.stay(pause),
            _scratch(),
            _errors(abi),
            jobs.work(abi),
            _run(abi),
            jobs.parallel(abi),
            jobs.join(abi, pause),
        ]
    )


_HEADER = f"""
@slots = internal global [{SLOTS * SLOT_BYTES} x i8] zeroinitializer, align 64
@no_memory = internal constant [45 x i8] c"eqsat: no memory for the scratch of a kernel\\00"
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.smax.i32(i32, i32)
"""


def _scratch() -> str:
    """Blocks of scratch stay allocated between calls, so that their pages are there already.

    A block begins with a line that holds its size; kernels get what follows. Cores look at slots of
    their own first, so that each gets the block that is in its caches. The first block that is
    found is taken, and replaced if it is too small, so that blocks grow to what is needed. Of large
    ones Linux is asked for huge pages.
    """
    declared, ask = "", ""
    if sys.platform.startswith("linux"):
        declared = "declare i32 @madvise(ptr, i64, i32)"
        ask = "  %asked = call i32 @madvise(ptr %block, i64 %r3, i32 14)"
    return f"""
{declared}
define internal ptr @slot_at(i64 %core, i64 %i) {{
  %n = add i64 %core, %i
  %slot = and i64 %n, {SLOTS - 1}
  %at = getelementptr [{SLOT_BYTES} x i8], ptr @slots, i64 %slot
  ret ptr %at
}}
define internal ptr @scratch_take(i64 %bytes) {{
entry:
  %core = call i64 @core()
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = call ptr @slot_at(i64 %core, i64 %i)
  %seen = load atomic ptr, ptr %at monotonic, align 8
  %none = icmp eq ptr %seen, null
  br i1 %none, label %next, label %grab
grab:
  %got = atomicrmw xchg ptr %at, ptr null acq_rel
  %lost = icmp eq ptr %got, null
  br i1 %lost, label %next, label %check
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SLOTS}
  br i1 %more, label %look, label %new
check:
  %size = load i64, ptr %got, align 8
  %fits = icmp uge i64 %size, %bytes
  br i1 %fits, label %have, label %small
small:
  call void @free(ptr %got)
  br label %new
new:
  %large = icmp uge i64 %bytes, {HUGE_PAGE}
  %align = select i1 %large, i64 {HUGE_PAGE}, i64 64
  %r0 = add i64 %bytes, 63
  %r1 = add i64 %r0, %align
  %whole = sub i64 0, %align
  %r3 = and i64 %r1, %whole
  %block = call ptr @aligned_alloc(i64 %align, i64 %r3)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %out, label %got_it
out:
  ret ptr null
got_it:
  br i1 %large, label %huge, label %sized
huge:
{ask}
  br label %sized
sized:
  store i64 %bytes, ptr %block, align 8
  br label %have
have:
  %b = phi ptr [%got, %check], [%block, %sized]
  %data = getelementptr i8, ptr %b, i64 64
  ret ptr %data
}}
define internal void @scratch_give(ptr %data) {{
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %out, label %some
some:
  %block = getelementptr i8, ptr %data, i64 -64
  %core = call i64 @core()
  br label %look
look:
  %i = phi i64 [0, %some], [%i1, %next]
  %at = call ptr @slot_at(i64 %core, i64 %i)
  %pair = cmpxchg ptr %at, ptr null, ptr %block acq_rel monotonic
  %done = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %done, label %out, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SLOTS}
  br i1 %more, label %look, label %full
full:
  call void @free(ptr %block)
  br label %out
out:
  ret void
}}"""


def _errors(abi: Abi) -> str:
    return f"""
define internal ptr @error_memory(ptr %api) {{
{room(abi, "Error_Create")}
{arguments(abi, "Error_Create", message="ptr @no_memory", errc="i32 8")}
  %e = call ptr %f(ptr %a)
  ret ptr %e
}}
define internal void @error_drop(ptr %api, ptr %e) {{
{room(abi, "Error_Destroy")}
{arguments(abi, "Error_Destroy", error="ptr %e")}
  call void %f(ptr %a)
  ret void
}}"""


def _run(abi: Abi) -> str:
    """All items of a kernel, alone or with tasks on XLA's pool; gives an error of XLA's or null."""
    return f"""
define ptr @{RUN}(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %most, i64 %worth) {{
entry:
  %n = alloca i64, align 8
{room(abi, "ThreadPool_NumThreads")}
{get("api", "frame", abi.at("CallFrame", "api"), "ptr")}
{get("ctx", "frame", abi.at("CallFrame", "ctx"), "ptr")}
  %plain = icmp eq i64 %bytes, 0
  br i1 %plain, label %ready, label %need
need:
  %taken = call ptr @scratch_take(i64 %bytes)
  %failed = icmp eq ptr %taken, null
  br i1 %failed, label %memory, label %ready
memory:
  %e = call ptr @error_memory(ptr %api)
  ret ptr %e
ready:
  %scratch = phi ptr [null, %entry], [%taken, %need]
  %single = icmp sle i64 %most, 1
  br i1 %single, label %alone, label %several
several:
  %low = and i64 %worth, 1
  %wakes = icmp ne i64 %low, 0
  %stays = icmp uge i64 %worth, {jobs.STAYS}
  br i1 %wakes, label %ask, label %awake
awake:
  %waits = call i1 @anyone()
  br i1 %waits, label %ask, label %alone
ask:
  store i64 1, ptr %n, align 8
{arguments(abi, "ThreadPool_NumThreads", ctx="ptr %ctx", num_threads="ptr %n")}
  %none = call ptr %f(ptr %a)
  %asked = icmp eq ptr %none, null
  br i1 %asked, label %decide, label %refused
refused:
  call void @error_drop(ptr %api, ptr %none)
  br label %alone
decide:
  %threads = load i64, ptr %n, align 8
  %workers = call i64 @llvm.smin.i64(i64 %threads, i64 %most)
  %one = icmp sle i64 %workers, 1
  br i1 %one, label %alone, label %split
split:
  %did = call i1 @parallel(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %workers, i1 %wakes, i1 %stays, ptr %scratch)
  br i1 %did, label %out, label %alone
alone:
  call void %invoke(i64 0, i64 %items, ptr %p, ptr %scratch)
  br label %out
out:
  call void @scratch_give(ptr %scratch)
  ret ptr null
}}"""  # noqa: E501
