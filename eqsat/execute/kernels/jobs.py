"""Jobs in LLVM IR: a kernel's work items, split over XLA's own thread pool.

A job has as many parts as workers, each a stretch of its items. A worker has the part that the
number of its core says, so that in one dispatch after another a core takes the same stretch and
finds in its caches what it wrote. It claims half of what is left of its part at a time, then the
last half of what is left of others' parts, so that nobody waits for one who is late. The job lies
on the heap and is freed by whoever uses it last, so a task that the pool starts late, when nothing
is left to do, is harmless. The caller never waits for a task that did not start. For
those that did it looks as long as a worker stays, then hands XLA a future that the last of them
completes. Workers who still wait for a job get it without XLA (`kernels.waiting`); those who sleep
are woken where the work is worth it.
"""

from __future__ import annotations

import sys

from eqsat.execute.kernels.abi import Abi, arguments, get, put, room
from eqsat.execute.kernels.waiting import LOOKS, STAY_NS

# a job: counters, what never changes, then on two lines of cache each the parts, and the pointers
DONE, REFERENCES, MEETING, OWNERS = 0, 8, 16, 24
INVOKE, ITEMS, SCRATCH, WORKERS, API, FUTURE, POINTERS, CALLER = 64, 72, 80, 88, 96, 104, 112, 120
PARTS, PART_SHIFT = 128, 7
WAKE_WORKERS = 13  # that a dispatch is worth from which on sleeping threads are woken for it
STAYS = 2  # beside 1, "wake them": whoever runs a job goes on only when it is done
MOST_WORKERS = 64  # those who have a part are bits of one word
MOST_ITEMS = 2**31 - 1  # a part is two 32-bit numbers in one word: its first item and its end


def core() -> str:
    """The number of the core that runs this; 0 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return "define internal i64 @core() { ret i64 0 }"
    return """
declare i32 @sched_getcpu()
define internal i64 @core() {
  %n = call i32 @sched_getcpu()
  %low = call i32 @llvm.smax.i32(i32 %n, i32 0)
  %wide = zext i32 %low to i64
  ret i64 %wide
}"""


def work(abi: Abi) -> str:
    """Claim and do items until none is left; true for the one who finished the last of them."""
    return f"""
define internal ptr @part_at(ptr %job, i64 %part) {{
  %offset = shl i64 %part, {PART_SHIFT}
  %parts = getelementptr i8, ptr %job, i64 {PARTS}
  %at = getelementptr i8, ptr %parts, i64 %offset
  ret ptr %at
}}
define internal {{ i64, i64 }} @claim(ptr %at, i1 %own) {{
  ; half of what is left of a part, its first items for the owner and its last for others
entry:
  %first = load atomic i64, ptr %at monotonic, align 8
  br label %look
look:
  %now = phi i64 [%first, %entry], [%seen, %take]
  %lo = and i64 %now, 4294967295
  %hi = lshr i64 %now, 32
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %take, label %out
take:
  %rest = sub i64 %hi, %lo
  %rest1 = add i64 %rest, 1
  %size = lshr i64 %rest1, 1
  %middle = add i64 %lo, %size
  %back = sub i64 %hi, %size
  %from = select i1 %own, i64 %lo, i64 %back
  %to = select i1 %own, i64 %middle, i64 %hi
  %lo1 = select i1 %own, i64 %middle, i64 %lo
  %hi1 = select i1 %own, i64 %hi, i64 %back
  %high = shl i64 %hi1, 32
  %next = or i64 %high, %lo1
  %pair = cmpxchg ptr %at, i64 %now, i64 %next acq_rel monotonic
  %seen = extractvalue {{ i64, i1 }} %pair, 0
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %out, label %look
out:
  %a = phi i64 [0, %look], [%from, %take]
  %b = phi i64 [0, %look], [%to, %take]
  %r0 = insertvalue {{ i64, i64 }} undef, i64 %a, 0
  %r1 = insertvalue {{ i64, i64 }} %r0, i64 %b, 1
  ret {{ i64, i64 }} %r1
}}
define internal i64 @own_part(ptr %job) {{
  ; by the core, so that it has in its caches what it wrote before; the next one if that is taken
entry:
{get("workers", "job", WORKERS, "i64")}
  %owners = getelementptr i8, ptr %job, i64 {OWNERS}
  %core = call i64 @core()
  %first = urem i64 %core, %workers
  br label %try
try:
  %part = phi i64 [%first, %entry], [%other, %try]
  %bit = shl i64 1, %part
  %before = atomicrmw or ptr %owners, i64 %bit monotonic
  %held = and i64 %before, %bit
  %free = icmp eq i64 %held, 0
  %part1 = add i64 %part, 1
  %other = urem i64 %part1, %workers
  br i1 %free, label %out, label %try
out:
  ret i64 %part
}}
define internal i1 @left(ptr %job) {{
entry:
{get("workers", "job", WORKERS, "i64")}
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = call ptr @part_at(ptr %job, i64 %i)
  %now = load atomic i64, ptr %at monotonic, align 8
  %lo = and i64 %now, 4294967295
  %hi = lshr i64 %now, 32
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %out, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %workers
  br i1 %more, label %look, label %out
out:
  %found = phi i1 [true, %look], [false, %next]
  ret i1 %found
}}
define internal i1 @work(ptr %job, ptr %scratch) {{
entry:
{get("items", "job", ITEMS, "i64")}
{get("workers", "job", WORKERS, "i64")}
{get("invoke", "job", INVOKE, "ptr")}
{get("pointers", "job", POINTERS, "ptr")}
  %done.at = getelementptr i8, ptr %job, i64 {DONE}
  %own = call i64 @own_part(ptr %job)
  br label %visit
visit:
  %k = phi i64 [0, %entry], [%k1, %next]
  %did = phi i64 [0, %entry], [%sum, %next]
  %first = icmp eq i64 %k, 0
  %part0 = add i64 %own, %k
  %part = urem i64 %part0, %workers
  %at = call ptr @part_at(ptr %job, i64 %part)
  br label %claim
claim:
  %sum = phi i64 [%did, %visit], [%sum1, %do]
  %range = call {{ i64, i64 }} @claim(ptr %at, i1 %first)
  %lo = extractvalue {{ i64, i64 }} %range, 0
  %hi = extractvalue {{ i64, i64 }} %range, 1
  %some = icmp ult i64 %lo, %hi
  br i1 %some, label %do, label %next
do:
  call void %invoke(i64 %lo, i64 %hi, ptr %pointers, ptr %scratch)
  %size = sub i64 %hi, %lo
  %sum1 = add i64 %sum, %size
  br label %claim
next:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %workers
  br i1 %more, label %visit, label %tell
tell:
  %before = atomicrmw add ptr %done.at, i64 %sum acq_rel
  %after = add i64 %before, %sum
  %ended = icmp eq i64 %after, %items
  %any = icmp ne i64 %sum, 0
  %last = and i1 %ended, %any
  ret i1 %last
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
define internal void @task(ptr %given) {{
entry:
  br label %begin
begin:
  %job = phi ptr [%given, %entry], [%next, %leave]
  %some = call i1 @left(ptr %job)
  br i1 %some, label %start, label %out
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
{get("caller", "job", CALLER, "i64")}
  %core = call i64 @core()
  call void @drop(ptr %job, i64 1)
  %apart = icmp ne i64 %core, %caller
  br i1 %apart, label %leave, label %end
leave:
  %next = call ptr @stay()
  %none = icmp eq ptr %next, null
  br i1 %none, label %end, label %begin
end:
  ret void
}}"""


def parallel(abi: Abi) -> str:
    """False if there is no memory for a job: nothing is done then."""
    return f"""
define internal i1 @parallel(ptr %frame, ptr %invoke, ptr %p, i64 %count, i64 %items, i64 %bytes, i64 %workers, i1 %wakes, i1 %stays, ptr %scratch) {{
entry:
{room(abi, "ThreadPool_Schedule")}
{get("api", "frame", abi.at("CallFrame", "api"), "ptr")}
{get("ctx", "frame", abi.at("CallFrame", "ctx"), "ptr")}
  %pbytes = shl i64 %count, 3
  %parts = shl i64 %workers, {PART_SHIFT}
  %to.at = add i64 %parts, {PARTS}
  %s = add i64 %to.at, %pbytes
  %s0 = add i64 %s, 127
  %s1 = and i64 %s0, -128
  %job = call ptr @aligned_alloc(i64 128, i64 %s1)
  %failed = icmp eq ptr %job, null
  br i1 %failed, label %no, label %fill
no:
  ret i1 false
fill:
{put("j.0", "i64 0", "job", OWNERS)}
{put("j.1", "i64 0", "job", DONE)}
{put("j.2", "i64 %workers", "job", REFERENCES)}
{put("j.3", "i64 0", "job", MEETING)}
{put("j.4", "ptr %invoke", "job", INVOKE)}
{put("j.5", "i64 %items", "job", ITEMS)}
{put("j.6", "i64 %bytes", "job", SCRATCH)}
{put("j.7", "i64 %workers", "job", WORKERS)}
{put("j.8", "ptr %api", "job", API)}
{put("j.9", "ptr null", "job", FUTURE)}
  %to = getelementptr i8, ptr %job, i64 %to.at
{put("j.10", "ptr %to", "job", POINTERS)}
  %core = call i64 @core()
{put("j.11", "i64 %core", "job", CALLER)}
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %p, i64 %pbytes, i1 false)
  br label %divide
divide:
  %i = phi i64 [0, %fill], [%i1, %divide]
  %lo = phi i64 [0, %fill], [%hi, %divide]
  %i1 = add i64 %i, 1
  %n = mul i64 %i1, %items
  %hi = udiv i64 %n, %workers
  %high = shl i64 %hi, 32
  %range = or i64 %high, %lo
  %at = call ptr @part_at(ptr %job, i64 %i)
  store i64 %range, ptr %at, align 8
  %undivided = icmp ult i64 %i1, %workers
  br i1 %undivided, label %divide, label %schedule
schedule:
{arguments(abi, "ThreadPool_Schedule", ctx="ptr %ctx", task="ptr @task", data="ptr %job")}
  %tasks = sub i64 %workers, 1
  br label %start
start:
  %left = phi i64 [%tasks, %schedule], [%left1, %started]
  %handed = call i1 @hand(ptr %job)
  br i1 %handed, label %started, label %asleep
asleep:
  br i1 %wakes, label %wake, label %without
wake:
  %e = call ptr %f(ptr %a)
  %fine = icmp eq ptr %e, null
  br i1 %fine, label %started, label %refused
started:
  %left1 = sub i64 %left, 1
  %more = icmp sgt i64 %left1, 0
  br i1 %more, label %start, label %go
refused:
  call void @error_drop(ptr %api, ptr %e)
  br label %without
without:
  ; the caller's own reference keeps the job
  call void @drop(ptr %job, i64 %left)
  br label %go
go:
  %last = call i1 @work(ptr %job, ptr %scratch)
  br i1 %last, label %out, label %wait
wait:
  call void @join(ptr %frame, ptr %job, i1 %stays)
  br label %out
out:
  call void @drop(ptr %job, i64 1)
  ret i1 true
}}"""  # noqa: E501


def join(abi: Abi, pause: str) -> str:
    bound = STAY_NS if sys.platform.startswith("linux") else 0
    declared, call = (f"declare void {pause}", f"  call void {pause}") if pause else ("", "")
    return f"""
{declared}
define internal void @join(ptr %frame, ptr %job, i1 %stays) {{
entry:
{room(abi, "Future_Create")}
{get("items", "job", ITEMS, "i64")}
{get("api", "job", API, "ptr")}
  %done.at = getelementptr i8, ptr %job, i64 {DONE}
  %begin = call i64 @clock()
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %again], [0, %longer]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %items
  br i1 %all, label %out, label %again
again:
{call}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {LOOKS}
  br i1 %more, label %look, label %pass
pass:
  %y = call i32 @sched_yield()
  %time = call i64 @clock()
  %past = sub i64 %time, %begin
  %early = icmp slt i64 %past, {bound}
  br i1 %early, label %longer, label %late
late:
  br i1 %stays, label %yield, label %promise
longer:
  br label %look
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
