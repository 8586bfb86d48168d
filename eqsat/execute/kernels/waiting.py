"""Workers in LLVM IR that stay for the next job: to wake a thread takes ten microseconds.

A worker that has done a job takes a seat and looks for at most `STAY_NS` whether it is handed
another one, a pause of the CPU in between; now and then it yields, so that it keeps nobody from a
core. Then its thread goes back to XLA's pool. A seat is a line of cache: nobody, a worker who
waits, or the address of the job that he is handed.
"""

from __future__ import annotations

import sys

STAY_NS = 50_000  # a worker looks for the next job, and a caller for the end of one
SEATS = 16
SEAT_BYTES = 64
LOOKS = 64  # between two looks at the clock
NOBODY, WAITING = 0, 1


def clock() -> str:
    """Nanoseconds on a clock that never goes back; 0 where none is known: nobody waits there."""
    if not sys.platform.startswith("linux"):
        return "define internal i64 @clock() { ret i64 0 }"
    return """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @clock() {
  %t = alloca [2 x i64], align 8
  %e = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t, align 8
  %n.at = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %n.at, align 8
  %s1 = mul i64 %s, 1000000000
  %sum = add i64 %s1, %n
  ret i64 %sum
}"""


def stay(pause: str) -> str:
    """`@stay`: the next job of a worker, or null; `@hand`: whether a job found one who waits;
    `@anyone`: whether somebody waits."""
    bound = STAY_NS if sys.platform.startswith("linux") else 0
    wait = f"  call void {pause}" if pause else ""
    return f"""
@seats = internal global [{SEATS * SEAT_BYTES} x i8] zeroinitializer, align 64
define internal ptr @seat_at(i64 %i) {{
  %at = getelementptr [{SEAT_BYTES} x i8], ptr @seats, i64 %i
  ret ptr %at
}}
define internal i1 @turned(i64 %from, i64 %to) {{
  ; the first seat that says `from` says `to` now; false if there is none
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = call ptr @seat_at(i64 %i)
  %now = load atomic i64, ptr %at monotonic, align 8
  %fits = icmp eq i64 %now, %from
  br i1 %fits, label %take, label %next
take:
  %pair = cmpxchg ptr %at, i64 %from, i64 %to acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %out, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SEATS}
  br i1 %more, label %look, label %out
out:
  %found = phi i1 [true, %take], [false, %next]
  ret i1 %found
}}
define internal i1 @hand(ptr %job) {{
  %given = ptrtoint ptr %job to i64
  %found = call i1 @turned(i64 {WAITING}, i64 %given)
  ret i1 %found
}}
define internal i1 @anyone() {{
  %found = call i1 @turned(i64 {WAITING}, i64 {WAITING})
  ret i1 %found
}}
define internal ptr @stay() {{
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = call ptr @seat_at(i64 %i)
  %pair = cmpxchg ptr %at, i64 {NOBODY}, i64 {WAITING} acq_rel monotonic
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %sit, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {SEATS}
  br i1 %more, label %look, label %none
none:
  ret ptr null
sit:
  %begin = call i64 @clock()
  br label %wait
wait:
  %k = phi i64 [0, %sit], [%k1, %again], [0, %longer]
  %now = load atomic i64, ptr %at acquire, align 8
  %still = icmp eq i64 %now, {WAITING}
  br i1 %still, label %again, label %got
again:
{wait}
  %k1 = add i64 %k, 1
  %on = icmp ult i64 %k1, {LOOKS}
  br i1 %on, label %wait, label %yield
yield:
  %x = call i32 @sched_yield()
  %time = call i64 @clock()
  %past = sub i64 %time, %begin
  %early = icmp slt i64 %past, {bound}
  br i1 %early, label %longer, label %leave
longer:
  br label %wait
leave:
  %last = cmpxchg ptr %at, i64 {WAITING}, i64 {NOBODY} acq_rel acquire
  %seen = extractvalue {{ i64, i1 }} %last, 0
  %left = extractvalue {{ i64, i1 }} %last, 1
  br i1 %left, label %none, label %got
got:
  %job = phi i64 [%now, %wait], [%seen, %leave]
  store atomic i64 {NOBODY}, ptr %at release, align 8
  %found = inttoptr i64 %job to ptr
  ret ptr %found
}}"""
