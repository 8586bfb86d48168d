// The runtime of kernels, one per process: handlers of XLA's typed FFI, jobs on XLA's threads,
// threads that wait for the next job, and scratch that stays allocated.
//
// `make runtime` compiles it to the `.ll` files beside it, one per system; LLVM makes them machine
// code where they run, so that neither a compiler of C nor a wheel per system is needed.
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "xla_ffi.h"

enum {
  LINE = 64,             // bytes of a line of cache
  SLOTS = 64,            // blocks of scratch that are kept for later calls; a power of two
  HUGE_PAGE = 2 << 20,   // bytes; a block of so many and more is made of these where it can be
  SEATS = 16,            // threads that wait for a job at once
  LOOKS = 64,            // at memory, between two at the clock
  MOST_WORKERS = 64,     // of a job: those who have a part are bits of one word
  WAKE_WORKERS = 13,     // that a dispatch is worth from which on sleeping threads are woken for it
  MOST_ITEMS = INT32_MAX // of a job: a part is two 32-bit numbers
};

// ---- the system --------------------------------------------------------------------------------
#ifdef __linux__
enum { STAY_NS = 50000 }; // a worker looks for the next job, and a caller for the end of one

static size_t current_core(void) {
  int n = sched_getcpu();
  return n > 0 ? (size_t)n : 0;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void ask_for_huge_pages(void* block, size_t bytes) { madvise(block, bytes, MADV_HUGEPAGE); }
#else // not tried: nobody stays there
enum { STAY_NS = 0 };
static size_t current_core(void) { return 0; }
static int64_t now_ns(void) { return 0; }
static void ask_for_huge_pages(void* block, size_t bytes) { (void)block, (void)bytes; }
#endif

// Says to the core that a loop waits; ARM has none but a hint that does nothing here.
static void pause(void) {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// ---- scratch -----------------------------------------------------------------------------------
// Blocks stay allocated between calls, so that their pages are there already. Cores look at slots
// of their own first, so that each gets the block that is in its caches. The first block that is
// found is taken, and replaced if it is too small, so that blocks grow to what is needed.
typedef struct {
  size_t bytes;
  alignas(LINE) char data[];
} Block;

static struct {
  alignas(LINE) _Atomic(Block*) block; // a line each, as cores write to their own all the time
} slots[SLOTS];

// So many bytes, aligned to a line; NULL if there is no memory.
static void* take_scratch(size_t bytes) {
  size_t core = current_core();
  for (int64_t i = 0; i < SLOTS; i++) {
    _Atomic(Block*)* slot = &slots[(core + i) % SLOTS].block;
    if (!atomic_load_explicit(slot, memory_order_relaxed)) continue;
    Block* found = atomic_exchange_explicit(slot, NULL, memory_order_acq_rel);
    if (!found) continue;
    if (found->bytes >= bytes) return found->data;
    free(found);
    break;
  }
  size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
  size_t whole = (sizeof(Block) + bytes + align - 1) & -align;
  Block* made = aligned_alloc(align, whole);
  if (!made) return NULL;
  if (bytes >= HUGE_PAGE) ask_for_huge_pages(made, whole);
  made->bytes = bytes;
  return made->data;
}

static void give_scratch(void* data) {
  if (!data) return;
  Block* block = (Block*)((char*)data - offsetof(Block, data));
  size_t core = current_core();
  for (int64_t i = 0; i < SLOTS; i++) {
    Block* none = NULL;
    if (atomic_compare_exchange_strong_explicit(&slots[(core + i) % SLOTS].block, &none, block,
                                                memory_order_acq_rel, memory_order_relaxed))
      return;
  }
  free(block);
}

// ---- errors ------------------------------------------------------------------------------------
static XLA_FFI_Error* no_memory(const XLA_FFI_Api* api) {
  XLA_FFI_Error_Create_Args args = {
      .struct_size = sizeof args,
      .message = "eqsat: no memory for the scratch of a kernel",
      .errc = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
  };
  return api->XLA_FFI_Error_Create(&args);
}

// Whether a call of XLA's went well; its error, if it did not, is given back.
static bool is_fine(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (!error) return true;
  XLA_FFI_Error_Destroy_Args args = {.struct_size = sizeof args, .error = error};
  api->XLA_FFI_Error_Destroy(&args);
  return false;
}

// ---- kernels -----------------------------------------------------------------------------------
// Does the items lo … hi - 1 of a kernel. pointers: its buffers, those it reads first.
typedef void Invoke(int64_t lo, int64_t hi, void** pointers, void* scratch);

// A kernel as its module has it: see `kernel.py`. workers: threads that are worth it at most, the
// caller among them.
typedef struct {
  Invoke* invoke;
  int64_t reads, writes, scratch_bytes, items, workers;
} Kernel;

// ---- jobs --------------------------------------------------------------------------------------
// A kernel's items, split over XLA's own threads. A job has as many parts as workers, each a
// stretch of its items. A worker has the part that the number of its core says, so that in one
// dispatch after another a core takes the same stretch and finds in its caches what it wrote. It
// claims half of what is left of its part at a time, then the last half of what is left of others'
// parts, so that nobody waits for one who is late. The job lies on the heap and is freed by whoever
// uses it last, so a task that the pool starts late, when nothing is left to do, is harmless. The
// caller never waits for a task that did not start. For those that did it looks as long as a worker
// stays, then hands XLA a future that the last of them completes. Workers who still wait for a job
// get it without XLA; those who sleep are woken where the work is worth it.
typedef struct {
  uint32_t lo, hi; // items that are left
} Part;

typedef struct {
  alignas(2 * LINE) _Atomic(Part) left; // cores fetch lines in pairs
} PartLine;

typedef struct {
  // written by all who work
  alignas(2 * LINE) _Atomic int64_t done; // items
  _Atomic int64_t references;             // of the caller and of tasks
  _Atomic int64_t met;                    // of the caller with its future and the last worker
  _Atomic uint64_t owned;                 // parts that somebody has begun with, a bit each
  // what never changes
  alignas(LINE) const Kernel* kernel;
  const XLA_FFI_Api* api;
  XLA_FFI_Future* future; // written by the caller before it is met
  void** pointers;
  int64_t workers;
  size_t caller; // its core
  PartLine parts[];
} Job;

static bool is_some(Part p) { return p.lo < p.hi; }

// Half of what is left of a part, its first items for the owner and its last for others.
static Part claim(_Atomic(Part)* left, bool own) {
  Part now = atomic_load_explicit(left, memory_order_relaxed);
  while (is_some(now)) {
    uint32_t size = (now.hi - now.lo + 1) / 2;
    Part mine = own ? (Part){now.lo, now.lo + size} : (Part){now.hi - size, now.hi};
    Part rest = own ? (Part){mine.hi, now.hi} : (Part){now.lo, mine.lo};
    if (atomic_compare_exchange_strong_explicit(left, &now, rest, memory_order_acq_rel,
                                                memory_order_relaxed))
      return mine;
  }
  return now;
}

// The part of this core, the next one if that is taken.
static int64_t own_part(Job* job) {
  int64_t part = current_core() % job->workers;
  while (atomic_fetch_or_explicit(&job->owned, 1ull << part, memory_order_relaxed) >> part & 1)
    part = (part + 1) % job->workers;
  return part;
}

static bool any_left(Job* job) {
  for (int64_t i = 0; i < job->workers; i++)
    if (is_some(atomic_load_explicit(&job->parts[i].left, memory_order_relaxed))) return true;
  return false;
}

// Claims and does items until none is left; true for the one who did the last of them.
static bool work(Job* job, void* scratch) {
  int64_t own = own_part(job), did = 0;
  for (int64_t k = 0; k < job->workers; k++) {
    _Atomic(Part)* left = &job->parts[(own + k) % job->workers].left;
    for (Part p; is_some(p = claim(left, k == 0)); did += p.hi - p.lo)
      job->kernel->invoke(p.lo, p.hi, job->pointers, scratch);
  }
  int64_t before = atomic_fetch_add_explicit(&job->done, did, memory_order_acq_rel);
  return did && before + did == job->kernel->items;
}

static void drop(Job* job, int64_t references) {
  if (atomic_fetch_sub_explicit(&job->references, references, memory_order_acq_rel) == references)
    free(job);
}

// The second to come here, the caller with its future or the last worker, completes it.
static void complete(Job* job) {
  if (!atomic_fetch_add_explicit(&job->met, 1, memory_order_acq_rel)) return;
  XLA_FFI_Future_SetAvailable_Args args = {.struct_size = sizeof args, .future = job->future};
  is_fine(job->api, job->api->XLA_FFI_Future_SetAvailable(&args));
}

// ---- threads that wait -------------------------------------------------------------------------
// To wake a thread takes ten microseconds. A worker that has done a job takes a seat and looks for
// at most `STAY_NS` whether it is handed another one; now and then it yields, so that it keeps
// nobody from a core. Then its thread goes back to XLA's pool.
static char waiting; // its address says that somebody waits

static struct {
  alignas(LINE) _Atomic(void*) held; // NULL: nobody; `&waiting`; the job that who waits is handed
} seats[SEATS];

static bool turn(int64_t seat, void* from, void* to) {
  return atomic_compare_exchange_strong_explicit(&seats[seat].held, &from, to, memory_order_acq_rel,
                                                 memory_order_acquire);
}

static bool is_waiting(int64_t seat) {
  return atomic_load_explicit(&seats[seat].held, memory_order_relaxed) == &waiting;
}

static bool anyone_waits(void) {
  for (int64_t i = 0; i < SEATS; i++)
    if (is_waiting(i)) return true;
  return false;
}

// Whether somebody who waits got the job.
static bool hand_over(Job* job) {
  for (int64_t i = 0; i < SEATS; i++)
    if (is_waiting(i) && turn(i, &waiting, job)) return true;
  return false;
}

// Waits on a seat; the job that came, or NULL.
static Job* wait_on(int64_t seat) {
  int64_t begin = now_ns();
  for (;;) {
    for (int64_t i = 0; i < LOOKS; i++) {
      void* held = atomic_load_explicit(&seats[seat].held, memory_order_acquire);
      if (held != &waiting) return held;
      pause();
    }
    sched_yield();
    if (now_ns() - begin < STAY_NS) continue;
    if (turn(seat, &waiting, NULL)) return NULL;
  }
}

// The next job of a worker, or NULL.
static Job* next_job(void) {
  for (int64_t i = 0; i < SEATS; i++) {
    if (!turn(i, NULL, &waiting)) continue;
    Job* job = wait_on(i);
    if (job) atomic_store_explicit(&seats[i].held, NULL, memory_order_release);
    return job;
  }
  return NULL;
}

// What a thread of XLA's does with a job, and with those that it is handed after it.
static void task(void* given) {
  for (Job* job = given; job;) {
    size_t bytes = job->kernel->scratch_bytes;
    void* scratch = NULL;
    if (any_left(job) && (!bytes || (scratch = take_scratch(bytes)))) {
      bool last = work(job, scratch);
      give_scratch(scratch);
      if (last) complete(job);
    }
    size_t caller = job->caller;
    bool is_apart = current_core() != caller;
    drop(job, 1);
    job = is_apart ? next_job() : NULL;
  }
}

// ---- callers -----------------------------------------------------------------------------------
// Waits for the last items of others. in_loop: only with them done; else XLA may get a future.
static void join(XLA_FFI_CallFrame* frame, Job* job, bool in_loop) {
  int64_t items = job->kernel->items, begin = now_ns();
  do {
    for (int64_t i = 0; i < LOOKS; i++) {
      if (atomic_load_explicit(&job->done, memory_order_acquire) == items) return;
      pause();
    }
    sched_yield();
  } while (now_ns() - begin < STAY_NS);
  XLA_FFI_Future_Create_Args args = {.struct_size = sizeof args};
  if (!in_loop && is_fine(job->api, job->api->XLA_FFI_Future_Create(&args))) {
    frame->future = job->future = args.future;
    complete(job);
    return;
  }
  do sched_yield();
  while (atomic_load_explicit(&job->done, memory_order_acquire) != items);
}

// A job with every item in its part; NULL if there is no memory.
static Job* new_job(XLA_FFI_CallFrame* frame, const Kernel* kernel, void** pointers,
                    int64_t workers) {
  size_t parts = workers * sizeof(PartLine);
  size_t given = (kernel->reads + kernel->writes) * sizeof(void*);
  size_t whole = (sizeof(Job) + parts + given + alignof(Job) - 1) & -alignof(Job);
  Job* job = aligned_alloc(alignof(Job), whole);
  if (!job) return NULL;
  *job = (Job){
      .references = workers,
      .kernel = kernel,
      .api = frame->api,
      .pointers = (void**)((char*)job->parts + parts),
      .workers = workers,
      .caller = current_core(),
  };
  memcpy(job->pointers, pointers, given);
  for (int64_t i = 0; i < workers; i++) {
    Part part = {i * kernel->items / workers, (i + 1) * kernel->items / workers};
    atomic_init(&job->parts[i].left, part);
  }
  return job;
}

// False if there is no memory for a job: nothing is done then. wakes: threads that sleep, too.
static bool in_parallel(XLA_FFI_CallFrame* frame, const Kernel* kernel, void** pointers,
                        int64_t workers, bool wakes, bool in_loop, void* scratch) {
  Job* job = new_job(frame, kernel, pointers, workers);
  if (!job) return false;
  XLA_FFI_ThreadPool_Schedule_Args args = {
      .struct_size = sizeof args, .ctx = frame->ctx, .task = task, .data = job};
  for (int64_t tasks = workers - 1; tasks > 0; tasks--) {
    if (hand_over(job)) continue;
    if (wakes && is_fine(job->api, job->api->XLA_FFI_ThreadPool_Schedule(&args))) continue;
    drop(job, tasks); // the caller's own reference keeps the job
    break;
  }
  if (!work(job, scratch)) join(frame, job, in_loop);
  drop(job, 1);
  return true;
}

// Threads that a kernel is worth at most, by its own numbers.
static int64_t most_workers(const Kernel* kernel) {
  int64_t most = kernel->workers < MOST_WORKERS ? kernel->workers : MOST_WORKERS;
  if (kernel->items > MOST_ITEMS) return 1;
  return most < kernel->items ? most : kernel->items;
}

// Threads for a kernel now, the caller among them.
static int64_t workers_now(XLA_FFI_CallFrame* frame, const Kernel* kernel, bool wakes) {
  int64_t most = most_workers(kernel), threads = 1;
  if (most <= 1 || (!wakes && !anyone_waits())) return 1;
  XLA_FFI_ThreadPool_NumThreads_Args args = {
      .struct_size = sizeof args, .ctx = frame->ctx, .num_threads = &threads};
  if (!is_fine(frame->api, frame->api->XLA_FFI_ThreadPool_NumThreads(&args))) return 1;
  return threads < most ? threads : most;
}

// All items of a kernel, alone or with others; an error of XLA's or NULL. In a loop threads are
// woken for little, as they stay for the next job.
static XLA_FFI_Error* run(XLA_FFI_CallFrame* frame, const Kernel* kernel, void** pointers,
                          bool in_loop) {
  void* scratch = NULL;
  if (kernel->scratch_bytes && !(scratch = take_scratch(kernel->scratch_bytes)))
    return no_memory(frame->api);
  bool wakes = in_loop || kernel->workers >= WAKE_WORKERS;
  int64_t workers = workers_now(frame, kernel, wakes);
  if (workers <= 1 || !in_parallel(frame, kernel, pointers, workers, wakes, in_loop, scratch))
    kernel->invoke(0, kernel->items, pointers, scratch);
  give_scratch(scratch);
  return NULL;
}

// Whether XLA wants the work done; if it asks what handler this is, it is told.
static bool is_execution(XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start) return frame->stage == XLA_FFI_ExecutionStage_EXECUTE;
  XLA_FFI_Metadata* asked = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  asked->api_version.major_version = XLA_FFI_API_MAJOR;
  asked->api_version.minor_version = XLA_FFI_API_MINOR;
  asked->traits = 0;
  return false;
}

static void read_buffers(XLA_FFI_CallFrame* frame, int64_t reads, int64_t writes, void** pointers) {
  for (int64_t i = 0; i < reads; i++)
    pointers[i] = ((XLA_FFI_Buffer*)frame->args.args[i])->data;
  for (int64_t i = 0; i < writes; i++)
    pointers[reads + i] = ((XLA_FFI_Buffer*)frame->rets.rets[i])->data;
}

// ---- what modules of kernels call --------------------------------------------------------------
// The handler of a kernel.
XLA_FFI_Error* eqsat_handle(XLA_FFI_CallFrame* frame, const Kernel* kernel) {
  if (!is_execution(frame)) return NULL;
  void* pointers[kernel->reads + kernel->writes + 1];
  read_buffers(frame, kernel->reads, kernel->writes, pointers);
  return run(frame, kernel, pointers, false);
}

// A kernel in a loop, with scratch of the loop's: all of its items are done when it returns.
XLA_FFI_Error* eqsat_step(XLA_FFI_CallFrame* frame, const Kernel* kernel, void** pointers,
                          void* scratch) {
  if (most_workers(kernel) > 1) return run(frame, kernel, pointers, true);
  kernel->invoke(0, kernel->items, pointers, scratch);
  return NULL;
}

// A loop as its module has it: a function of the frame, the buffers, and scratch.
typedef struct {
  XLA_FFI_Error* (*steps)(XLA_FFI_CallFrame* frame, void** pointers, void* scratch);
  int64_t reads, writes, scratch_bytes;
} Loop;

// The handler of a loop.
XLA_FFI_Error* eqsat_handle_loop(XLA_FFI_CallFrame* frame, const Loop* loop) {
  if (!is_execution(frame)) return NULL;
  void* pointers[loop->reads + loop->writes + 1];
  read_buffers(frame, loop->reads, loop->writes, pointers);
  void* scratch = NULL;
  if (loop->scratch_bytes && !(scratch = take_scratch(loop->scratch_bytes)))
    return no_memory(frame->api);
  XLA_FFI_Error* error = loop->steps(frame, pointers, scratch);
  give_scratch(scratch);
  return error;
}
