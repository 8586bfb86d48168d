"""Handlers of XLA's typed FFI in LLVM IR, and the runtime that they share.

A handler takes the call frame, reads where the buffers are and has a kernel do its work items:

    void @kernel(i64 lo, i64 hi, ptr read0 …, ptr write0 …, ptr scratch)

Several items are split over XLA's own thread pool. The caller and the tasks claim items from one
counter, half of an equal share of the rest at a time (guided self-scheduling, Polychronopoulos and
Kuck 1987). The job lies on the heap and is freed by whoever uses it last, so a task that the pool
starts late, when nothing is left to do, is harmless. The caller never waits for a task that did not
start. For those that did it looks for about a microsecond, then hands XLA a future that the last of
them completes.
"""

from __future__ import annotations

from eqsat.execute.kernels.abi import Abi

RUN = "eqsat_run"  # of the runtime, called by handlers
SLOTS = 64  # blocks of scratch that are kept for later calls
LOOKS = 64  # at the counter of a job, a pause of the CPU in between, before a future is made

# a job: counters on cache lines of their own, then what never changes
NEXT, DONE, REFERENCES, MEETING = 0, 64, 128, 136
INVOKE, ITEMS, SCRATCH, WORKERS, API, FUTURE, POINTERS = 192, 200, 208, 216, 224, 232, 256


def handler(
    abi: Abi, kernel: str, reads: int, writes: int, items: int, scratch_bytes: int, workers: int
) -> str:
    """IR of `@<kernel>_ffi`, beside the definition of `@<kernel>` in a module.

    workers: threads that are worth it at most, the caller among them.
    """
    count = reads + writes
    loads = [_buffer(abi, i, i, "args") for i in range(reads)]
    loads += [_buffer(abi, reads + i, i, "rets") for i in range(writes)]
    pointers = "".join(f", ptr %q{i}" for i in range(count))
    invoked = "\n".join(
        f"  %a{i} = getelementptr ptr, ptr %p, i64 {i}\n  %q{i} = load ptr, ptr %a{i}, align 8"
        for i in range(count)
    )
    stage = abi.at("CallFrame", "stage")
    return f"""
declare ptr @{RUN}(ptr, ptr, ptr, i64, i64, i64, i64)
define internal void @{kernel}_invoke(i64 %lo, i64 %hi, ptr %p, ptr %scratch) {{
{invoked}
  call void @{kernel}(i64 %lo, i64 %hi{pointers}, ptr %scratch)
  ret void
}}
define ptr @{kernel}_ffi(ptr %frame) {{
entry:
  %p = alloca [{max(count, 1)} x ptr], align 8
{_get("e", "frame", abi.at("CallFrame", "extension_start"), "ptr")}
  %plain = icmp eq ptr %e, null
  br i1 %plain, label %staged, label %metadata
metadata:
{_get("md", "e", abi.at("Metadata_Extension", "metadata"), "ptr")}
{_metadata(abi)}
  ret ptr null
staged:
{_get("stage", "frame", stage, "i32")}
  %now = icmp eq i32 %stage, 3
  br i1 %now, label %execute, label %other
other:
  ret ptr null
execute:
{chr(10).join(loads)}
  %err = call ptr @{RUN}(ptr %frame, ptr @{kernel}_invoke, ptr %p, i64 {count}, i64 {items}, i64 {scratch_bytes}, i64 {min(workers, items)})
  ret ptr %err
}}
"""  # noqa: E501


def _get(name: str, base: str, offset: int, kind: str) -> str:
    """`%name` loaded from `offset` bytes behind `%base`."""
    align = 4 if kind == "i32" else 8
    return (
        f"  %{name}.at = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align {align}"
    )


def _put(name: str, value: str, base: str, offset: int) -> str:
    """A typed value stored to `offset` bytes behind `%base`; name: of the address."""
    align = 4 if value.startswith("i32") else 8
    return (
        f"  %{name} = getelementptr i8, ptr %{base}, i64 {offset}\n"
        f"  store {value}, ptr %{name}, align {align}"
    )


def _metadata(abi: Abi) -> str:
    version = abi.at("Metadata", "api_version")
    major, minor = abi.version
    values = [
        (version + abi.at("Api_Version", "major_version"), major),
        (version + abi.at("Api_Version", "minor_version"), minor),
        (abi.at("Metadata", "traits"), 0),
    ]
    return "\n".join(_put(f"md.{i}", f"i32 {v}", "md", at) for i, (at, v) in enumerate(values))


def _buffer(abi: Abi, slot: int, i: int, side: str) -> str:
    """The address of the data of argument or result `i` into slot `slot` of `%p`."""
    array = abi.at("CallFrame", side) + abi.at(side.capitalize(), side)
    return "\n".join(
        [
            _get(f"x{slot}", "frame", array, "ptr"),
            _get(f"b{slot}", f"x{slot}", 8 * i, "ptr"),
            _get(f"d{slot}", f"b{slot}", abi.at("Buffer", "data"), "ptr"),
            _put(f"s{slot}", f"ptr %d{slot}", "p", 8 * slot),
        ]
    )


def runtime(abi: Abi, pause: str) -> str:
    """IR of the runtime, one per process. pause: an instruction that says "waiting", or nothing."""
    return "\n".join(
        [
            _HEADER,
            _scratch(),
            _errors(abi),
            _work(abi),
            _run(abi),
            _parallel(abi),
            _join(abi, pause),
        ]
    )


_HEADER = f"""
@slots = internal global [{SLOTS} x ptr] zeroinitializer, align 64
@no_memory = internal constant [45 x i8] c"eqsat: no memory for the scratch of a kernel\\00"
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""


def _scratch() -> str:
    """Blocks of scratch stay allocated between calls, so that their pages are there already.

    A block begins with a line that holds its size; kernels get what follows. The first block that
    is found is taken, and replaced if it is too small, so that blocks grow to what is needed.
    """
    return f"""
define internal ptr @scratch_take(i64 %bytes) {{
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = getelementptr ptr, ptr @slots, i64 %i
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
  %r0 = add i64 %bytes, 127
  %r1 = and i64 %r0, -64
  %block = call ptr @aligned_alloc(i64 64, i64 %r1)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %out, label %sized
out:
  ret ptr null
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
  br label %look
look:
  %i = phi i64 [0, %some], [%i1, %next]
  %at = getelementptr ptr, ptr @slots, i64 %i
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
    create, destroy = abi.size("Error_Create_Args"), abi.size("Error_Destroy_Args")
    return f"""
define internal ptr @error_memory(ptr %api) {{
  %a = alloca [{create} x i8], align 8
{_put("a.0", f"i64 {create}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr @no_memory", "a", abi.at("Error_Create_Args", "message"))}
{_put("a.3", "i32 8", "a", abi.at("Error_Create_Args", "errc"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_Error_Create"), "ptr")}
  %e = call ptr %f(ptr %a)
  ret ptr %e
}}
define internal void @error_drop(ptr %api, ptr %e) {{
  %a = alloca [{destroy} x i8], align 8
{_put("a.0", f"i64 {destroy}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr %e", "a", abi.at("Error_Destroy_Args", "error"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_Error_Destroy"), "ptr")}
  call void %f(ptr %a)
  ret void
}}"""


def _work(abi: Abi) -> str:
    """Claim and do items until none is left; true for the one who finished the last of them."""
    return f"""
define internal i1 @work(ptr %job, ptr %scratch) {{
entry:
{_get("items", "job", ITEMS, "i64")}
{_get("workers", "job", WORKERS, "i64")}
{_get("invoke", "job", INVOKE, "ptr")}
  %pointers = getelementptr i8, ptr %job, i64 {POINTERS}
  %done.at = getelementptr i8, ptr %job, i64 {DONE}
  %parts = shl i64 %workers, 1
  %first = load atomic i64, ptr %job monotonic, align 8
  br label %claim
claim:
  %lo = phi i64 [%first, %entry], [%seen, %take], [%later, %did]
  %finished = phi i1 [false, %entry], [%finished, %take], [%last, %did]
  %rest = sub i64 %items, %lo
  %some = icmp sgt i64 %rest, 0
  br i1 %some, label %take, label %out
take:
  %part = udiv i64 %rest, %parts
  %size = call i64 @llvm.smax.i64(i64 %part, i64 1)
  %hi = add i64 %lo, %size
  %pair = cmpxchg ptr %job, i64 %lo, i64 %hi acq_rel monotonic
  %seen = extractvalue {{ i64, i1 }} %pair, 0
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %do, label %claim
do:
  call void %invoke(i64 %lo, i64 %hi, ptr %pointers, ptr %scratch)
  %before = atomicrmw add ptr %done.at, i64 %size acq_rel
  %after = add i64 %before, %size
  %last = icmp eq i64 %after, %items
  br label %did
did:
  %later = load atomic i64, ptr %job monotonic, align 8
  br label %claim
out:
  ret i1 %finished
}}
define internal void @drop(ptr %job, i64 %by) {{
  %at = getelementptr i8, ptr %job, i64 {REFERENCES}
  %before = atomicrmw sub ptr %at, i64 %by acq_rel
  %last = icmp eq i64 %before, %by
  br i1 %last, label %out, label %kept
out:
  call void @free(ptr %job)
  ret void
kept:
  ret void
}}
define internal void @complete(ptr %job) {{
  ; the second to come here, the caller with its future or the last worker, completes it
  %at = getelementptr i8, ptr %job, i64 {MEETING}
  %before = atomicrmw add ptr %at, i64 1 acq_rel
  %second = icmp eq i64 %before, 1
  br i1 %second, label %set, label %out
set:
{_get("future", "job", FUTURE, "ptr")}
{_get("api", "job", API, "ptr")}
  %a = alloca [{abi.size("Future_SetAvailable_Args")} x i8], align 8
{_put("a.0", f"i64 {abi.size('Future_SetAvailable_Args')}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr %future", "a", abi.at("Future_SetAvailable_Args", "future"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_Future_SetAvailable"), "ptr")}
  %e = call ptr %f(ptr %a)
  %fine = icmp eq ptr %e, null
  br i1 %fine, label %out, label %failed
failed:
  call void @error_drop(ptr %api, ptr %e)
  br label %out
out:
  ret void
}}
define internal void @task(ptr %job) {{
entry:
{_get("items", "job", ITEMS, "i64")}
  %next = load atomic i64, ptr %job monotonic, align 8
  %late = icmp sge i64 %next, %items
  br i1 %late, label %out, label %start
start:
{_get("bytes", "job", SCRATCH, "i64")}
  %plain = icmp eq i64 %bytes, 0
  br i1 %plain, label %go, label %need
need:
  %taken = call ptr @scratch_take(i64 %bytes)
  %failed = icmp eq ptr %taken, null
  br i1 %failed, label %out, label %go
go:
  %scratch = phi ptr [null, %start], [%taken, %need]
  %last = call i1 @work(ptr %job, ptr %scratch)
  call void @scratch_give(ptr %scratch)
  br i1 %last, label %tell, label %out
tell:
  call void @complete(ptr %job)
  br label %out
out:
  call void @drop(ptr %job, i64 1)
  ret void
}}"""


def _run(abi: Abi) -> str:
    """All items of a kernel, alone or with tasks on XLA's pool; gives an error of XLA's or null."""
    count = abi.size("ThreadPool_NumThreads_Args")
    return f"""
define ptr @{RUN}(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %most) {{
entry:
  %n = alloca i64, align 8
  %a = alloca [{count} x i8], align 8
{_get("api", "frame", abi.at("CallFrame", "api"), "ptr")}
{_get("ctx", "frame", abi.at("CallFrame", "ctx"), "ptr")}
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
  br i1 %single, label %alone, label %ask
ask:
  store i64 1, ptr %n, align 8
{_put("a.0", f"i64 {count}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr %ctx", "a", abi.at("ThreadPool_NumThreads_Args", "ctx"))}
{_put("a.3", "ptr %n", "a", abi.at("ThreadPool_NumThreads_Args", "num_threads"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_ThreadPool_NumThreads"), "ptr")}
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
  %did = call i1 @parallel(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %workers, ptr %scratch)
  br i1 %did, label %out, label %alone
alone:
  call void %invoke(i64 0, i64 %items, ptr %p, ptr %scratch)
  br label %out
out:
  call void @scratch_give(ptr %scratch)
  ret ptr null
}}"""  # noqa: E501


def _parallel(abi: Abi) -> str:
    """False if there is no memory for a job: nothing is done then."""
    size = abi.size("ThreadPool_Schedule_Args")
    return f"""
define internal i1 @parallel(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %workers, ptr %scratch) {{
entry:
  %a = alloca [{size} x i8], align 8
{_get("api", "frame", abi.at("CallFrame", "api"), "ptr")}
{_get("ctx", "frame", abi.at("CallFrame", "ctx"), "ptr")}
  %pbytes = shl i64 %count, 3
  %s0 = add i64 %pbytes, {POINTERS + 63}
  %s1 = and i64 %s0, -64
  %job = call ptr @aligned_alloc(i64 64, i64 %s1)
  %failed = icmp eq ptr %job, null
  br i1 %failed, label %no, label %fill
no:
  ret i1 false
fill:
{_put("j.0", "i64 0", "job", NEXT)}
{_put("j.1", "i64 0", "job", DONE)}
{_put("j.2", "i64 %workers", "job", REFERENCES)}
{_put("j.3", "i64 0", "job", MEETING)}
{_put("j.4", "ptr %invoke", "job", INVOKE)}
{_put("j.5", "i64 %items", "job", ITEMS)}
{_put("j.6", "i64 %bytes", "job", SCRATCH)}
{_put("j.7", "i64 %workers", "job", WORKERS)}
{_put("j.8", "ptr %api", "job", API)}
{_put("j.9", "ptr null", "job", FUTURE)}
  %to = getelementptr i8, ptr %job, i64 {POINTERS}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %p, i64 %pbytes, i1 false)
{_put("a.0", f"i64 {size}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr %ctx", "a", abi.at("ThreadPool_Schedule_Args", "ctx"))}
{_put("a.3", "ptr @task", "a", abi.at("ThreadPool_Schedule_Args", "task"))}
{_put("a.4", "ptr %job", "a", abi.at("ThreadPool_Schedule_Args", "data"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_ThreadPool_Schedule"), "ptr")}
  %tasks = sub i64 %workers, 1
  br label %start
start:
  %left = phi i64 [%tasks, %fill], [%left1, %started]
  %e = call ptr %f(ptr %a)
  %fine = icmp eq ptr %e, null
  br i1 %fine, label %started, label %refused
started:
  %left1 = sub i64 %left, 1
  %more = icmp sgt i64 %left1, 0
  br i1 %more, label %start, label %go
refused:
  ; the caller's own reference keeps the job
  call void @error_drop(ptr %api, ptr %e)
  call void @drop(ptr %job, i64 %left)
  br label %go
go:
  %last = call i1 @work(ptr %job, ptr %scratch)
  br i1 %last, label %out, label %wait
wait:
  call void @join(ptr %frame, ptr %job)
  br label %out
out:
  call void @drop(ptr %job, i64 1)
  ret i1 true
}}"""  # noqa: E501


def _join(abi: Abi, pause: str) -> str:
    size = abi.size("Future_Create_Args")
    declared, call = (f"declare void {pause}", f"  call void {pause}") if pause else ("", "")
    return f"""
{declared}
define internal void @join(ptr %frame, ptr %job) {{
entry:
  %a = alloca [{size} x i8], align 8
{_get("items", "job", ITEMS, "i64")}
{_get("api", "job", API, "ptr")}
  %done.at = getelementptr i8, ptr %job, i64 {DONE}
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %again]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %items
  br i1 %all, label %out, label %again
again:
{call}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {LOOKS}
  br i1 %more, label %look, label %promise
promise:
{_put("a.0", f"i64 {size}", "a", 0)}
{_put("a.1", "ptr null", "a", 8)}
{_put("a.2", "ptr null", "a", abi.at("Future_Create_Args", "future"))}
{_get("f", "api", abi.at("Api", "XLA_FFI_Future_Create"), "ptr")}
  %e = call ptr %f(ptr %a)
  %made = icmp eq ptr %e, null
  br i1 %made, label %hand, label %refused
hand:
{_get("future", "a", abi.at("Future_Create_Args", "future"), "ptr")}
{_put("j.0", "ptr %future", "job", FUTURE)}
{_put("f.0", "ptr %future", "frame", abi.at("CallFrame", "future"))}
  call void @complete(ptr %job)
  br label %out
refused:
  call void @error_drop(ptr %api, ptr %e)
  br label %yield
yield:
  %x = call i32 @sched_yield()
  %now = load atomic i64, ptr %done.at acquire, align 8
  %ended = icmp eq i64 %now, %items
  br i1 %ended, label %out, label %yield
out:
  ret void
}}"""
