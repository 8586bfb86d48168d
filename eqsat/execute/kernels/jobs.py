"""Jobs in LLVM IR: a kernel's work items, split over XLA's own thread pool.

The caller and the tasks claim items from one
counter, half of an equal share of the rest at a time (guided self-scheduling, Polychronopoulos and
Kuck 1987). The job lies on the heap and is freed by whoever uses it last, so a task that the pool
starts late, when nothing is left to do, is harmless. The caller never waits for a task that did not
start. For those that did it looks for about a microsecond, then hands XLA a future that the last of
them completes.
"""

from __future__ import annotations

from eqsat.execute.kernels.abi import Abi, arguments, get, put, room

LOOKS = 64  # at the counter of a job, a pause of the CPU in between, before a future is made

# a job: counters on cache lines of their own, then what never changes
NEXT, DONE, REFERENCES, MEETING = 0, 64, 128, 136
INVOKE, ITEMS, SCRATCH, WORKERS, API, FUTURE, POINTERS = 192, 200, 208, 216, 224, 232, 256


def work(abi: Abi) -> str:
    """Claim and do items until none is left; true for the one who finished the last of them."""
    return f"""
define internal i1 @work(ptr %job, ptr %scratch) {{
entry:
{get("items", "job", ITEMS, "i64")}
{get("workers", "job", WORKERS, "i64")}
{get("invoke", "job", INVOKE, "ptr")}
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
{get("future", "job", FUTURE, "ptr")}
{get("api", "job", API, "ptr")}
{room(abi, "Future_SetAvailable")}
{arguments(abi, "Future_SetAvailable", future="ptr %future")}
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
{get("items", "job", ITEMS, "i64")}
  %next = load atomic i64, ptr %job monotonic, align 8
  %late = icmp sge i64 %next, %items
  br i1 %late, label %out, label %start
start:
{get("bytes", "job", SCRATCH, "i64")}
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


def parallel(abi: Abi) -> str:
    """False if there is no memory for a job: nothing is done then."""
    return f"""
define internal i1 @parallel(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %workers, ptr %scratch) {{
entry:
{room(abi, "ThreadPool_Schedule")}
{get("api", "frame", abi.at("CallFrame", "api"), "ptr")}
{get("ctx", "frame", abi.at("CallFrame", "ctx"), "ptr")}
  %pbytes = shl i64 %count, 3
  %s0 = add i64 %pbytes, {POINTERS + 63}
  %s1 = and i64 %s0, -64
  %job = call ptr @aligned_alloc(i64 64, i64 %s1)
  %failed = icmp eq ptr %job, null
  br i1 %failed, label %no, label %fill
no:
  ret i1 false
fill:
{put("j.0", "i64 0", "job", NEXT)}
{put("j.1", "i64 0", "job", DONE)}
{put("j.2", "i64 %workers", "job", REFERENCES)}
{put("j.3", "i64 0", "job", MEETING)}
{put("j.4", "ptr %invoke", "job", INVOKE)}
{put("j.5", "i64 %items", "job", ITEMS)}
{put("j.6", "i64 %bytes", "job", SCRATCH)}
{put("j.7", "i64 %workers", "job", WORKERS)}
{put("j.8", "ptr %api", "job", API)}
{put("j.9", "ptr null", "job", FUTURE)}
  %to = getelementptr i8, ptr %job, i64 {POINTERS}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %p, i64 %pbytes, i1 false)
{arguments(abi, "ThreadPool_Schedule", ctx="ptr %ctx", task="ptr @task", data="ptr %job")}
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


def join(abi: Abi, pause: str) -> str:
    declared, call = (f"declare void {pause}", f"  call void {pause}") if pause else ("", "")
    return f"""
{declared}
define internal void @join(ptr %frame, ptr %job) {{
entry:
{room(abi, "Future_Create")}
{get("items", "job", ITEMS, "i64")}
{get("api", "job", API, "ptr")}
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
{arguments(abi, "Future_Create", future="ptr null")}
  %e = call ptr %f(ptr %a)
  %made = icmp eq ptr %e, null
  br i1 %made, label %hand, label %refused
hand:
{get("future", "a", abi.at("Future_Create_Args", "future"), "ptr")}
{put("j.0", "ptr %future", "job", FUTURE)}
{put("f.0", "ptr %future", "frame", abi.at("CallFrame", "future"))}
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
