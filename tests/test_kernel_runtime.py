"""The runtime of kernels: FFI, splitting of work, object cache, faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz import guarded
from handwritten import MACHINE, Written, rows, sum_kernel
from runnable import needs_kernels

from eqsat.execute.kernels import compiler, jit
from eqsat.execute.kernels.kernel import handler
from eqsat.model.dispatch import Machine
from eqsat.model.filecache import LOOKED_SHARE

pytestmark = needs_kernels(MACHINE)


# writes for every item the first one of the range that it was done with
RANGES = """
define void @ranges(i64 %lo, i64 %hi, ptr %a, ptr %c, ptr %scratch) {
entry:
  br label %item
item:
  %i = phi i64 [%lo, %entry], [%i1, %item]
  %at = getelementptr i64, ptr %c, i64 %i
  store i64 %lo, ptr %at, align 8
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %hi
  br i1 %more, label %item, label %out
out:
  ret void
}
"""


def registered(kernel: Written, workers: int = 99) -> str:
    """The kernel as an FFI target."""
    jit.start_runtime()
    reads, writes = len(kernel.reads), len(kernel.writes)
    text = kernel.ir + handler(
        kernel.name, reads, writes, kernel.items, kernel.scratch_bytes, workers
    )
    entry = f"{kernel.name}_ffi"
    address = jit.load_kernels({entry: text}, MACHINE)[entry]
    assert isinstance(address, int)
    jax.ffi.register_ffi_target(entry, jax.ffi.pycapsule(address), platform="cpu", api_version=1)
    return entry


def test_a_kernel_between_guard_pages() -> None:
    a, b = rows(5)
    (c,) = guarded.run(sum_kernel(5, "between"), MACHINE, [a, b], [(a.shape, a.dtype)])
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize(("extra", "scratch"), [(1, 256), (0, 192)])
def test_guard_pages_end_a_process_that_strays(extra: int, scratch: int) -> None:
    code = (
        "import handwritten as t\n"
        "from fuzz import guarded\n"
        "a, b = t.rows(2)\n"
        f"k = t.sum_kernel(2, 'strays', {extra}, {scratch})\n"
        "guarded.run(k, t.MACHINE, [a, b], [(a.shape, a.dtype)])\n"
    )
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert done.returncode < 0  # by a signal


@pytest.mark.parametrize("items", [1, 3, 61])
def test_items_are_split_and_every_one_is_done_once(items: int) -> None:
    name = registered(sum_kernel(items, f"split{items}"))
    a, b = rows(items)

    @jax.jit
    def chain(x: jax.Array, y: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(a.shape, a.dtype))(x, y)
        return x

    for _ in range(50):
        np.testing.assert_array_equal(chain(a, b), a + 8 * b)


def test_a_range_of_items_is_of_one_part() -> None:
    """Each worker has a stretch of the items, and nobody claims items of two at once."""
    items = 64
    name = registered(Written("ranges", RANGES, items, 0, (0,), (1,)))
    call = jax.jit(jax.ffi.ffi_call(name, jax.ShapeDtypeStruct((items,), np.int64)))
    with jax.enable_x64(True):
        found = np.asarray([call(np.zeros(items, np.int64)) for _ in range(20)])
    parts = min(len(os.sched_getaffinity(0)), items)  # with one the caller does all at once
    own = np.arange(items) * parts // items
    assert (found * parts // items == own).all()
    assert (found <= np.arange(items)).all()
    assert (found[:, own > 0] > 0).all()


def test_many_threads_call_at_once() -> None:
    items = 24
    name = registered(sum_kernel(items, "threads"))
    a, b = map(jnp.asarray, rows(items))
    call = jax.jit(
        lambda x, y: jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)
    )
    want, wrong = np.asarray(a + b), []

    def work() -> None:
        for _ in range(100):
            if not np.array_equal(np.asarray(call(a, b)), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def sums_of(name: str, items: int) -> bool:
    """Whether a chain of calls of a sum kernel is right, several times."""
    a, b = rows(items)

    @jax.jit
    def chain(x: jax.Array, y: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(a.shape, a.dtype))(x, y)
        return x

    return all(np.array_equal(chain(a, b), a + 8 * b) for _ in range(20))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are looked up in /proc")
def test_workers_leave_when_no_job_comes() -> None:
    """They wait for the next job for a while, and then sleep."""
    assert sums_of(registered(sum_kernel(61, "leaves")), 61)
    own = threading.get_native_id()

    def running() -> list[str]:
        stats = [p for p in Path("/proc/self/task").glob("*/stat") if int(p.parent.name) != own]
        return [s for s in (p.read_text() for p in stats) if s.rpartition(")")[2].split()[0] == "R"]

    deadline = time.monotonic() + 30
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are pinned one by one")
def test_threads_that_are_all_pinned_to_one_core() -> None:
    name = registered(sum_kernel(24, "pinned"))
    assert sums_of(name, 24)
    threads = [int(p.name) for p in Path("/proc/self/task").iterdir()]
    before = {t: os.sched_getaffinity(t) for t in threads}
    try:
        for t in threads:
            os.sched_setaffinity(t, {min(before[t])})
        assert sums_of(name, 24)
    finally:
        for t, cores in before.items():
            os.sched_setaffinity(t, cores)


def test_no_memory_for_scratch_is_an_error() -> None:
    name = registered(sum_kernel(24, "greedy", scratch=2**60))
    with pytest.raises(jax.errors.JaxRuntimeError, match="eqsat: no memory for the scratch"):
        sums_of(name, 24)


def test_what_is_not_worth_waking_for_is_done_by_the_caller() -> None:
    name = registered(sum_kernel(24, "small"), workers=2)
    assert sums_of(name, 24)


def test_a_fork_calls_and_compiles() -> None:
    """XLA's threads do not live on in a fork: the caller does all items itself."""
    items = 16
    name = registered(sum_kernel(items, "forked"))
    a, b = map(jnp.asarray, rows(items))
    want = np.asarray(a + b)
    call = jax.jit(
        lambda x, y: jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)
    )
    call(a, b).block_until_ready()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks
        child = os.fork()
    if child == 0:
        fine = all(np.array_equal(np.asarray(call(a, b)), want) for _ in range(20))
        text = "define void @child() { ret void }"
        os._exit(
            0
            if fine and isinstance(jit.load_kernels({"child": text}, MACHINE)["child"], int)
            else 1
        )
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done == (child, 0)


# ---- the FFI of XLA ------------------------------------------------------------------------------
def header() -> str:
    path = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    return path.read_text()


def test_the_installed_layout_is_known() -> None:
    jit.check_header(header())


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("XLA_FFI_API_MINOR 3", "XLA_FFI_API_MINOR 9", "version 0.9 of XLA's FFI is not known"),
        ("XLA_FFI_API_MAJOR 0", "XLA_FFI_API_BIG 0", "version -1.3"),
        ("  void* data;\n  int64_t rank;", "  int64_t rank;\n  void* data;", "XLA_FFI_Buffer"),
        ("XLA_FFI_ExecutionStage_EXECUTE = 3", "XLA_FFI_ExecutionStage_EXECUTE = 4", "is not 3"),
    ],
)
def test_another_layout_is_unsupported(old: str, new: str, why: str) -> None:
    text = header()
    assert old in text
    with pytest.raises(jit.Unsupported, match=why):
        jit.check_header(text.replace(old, new))


# ---- objects -------------------------------------------------------------------------------------
@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path))
    return tmp_path / "kernels"


def test_an_object_is_kept_and_a_damaged_one_is_not_taken(own_cache: Path) -> None:
    assert compiler.OBJECTS.read("k") is None
    assert compiler.OBJECTS.write({"k": b"code" * 100})
    assert compiler.OBJECTS.read("k") == b"code" * 100
    (path,) = own_cache.iterdir()
    good = path.read_bytes()
    for damaged in (good[:-1], good[:-1] + b"!", b"", good[5:], good + b"x"):
        path.write_bytes(damaged)
        assert compiler.OBJECTS.read("k") is None


def test_a_folder_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "file"))
    assert not compiler.OBJECTS.write({"k": b"code"})
    assert compiler.OBJECTS.read("k") is None
    kernel = sum_kernel(1, "uncached")
    assert isinstance(jit.load_kernels({"uncached": kernel.ir}, MACHINE)["uncached"], int)


def test_a_full_disk_leaves_nothing_behind(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert not compiler.OBJECTS.write({"k": b"code"})
    assert list(own_cache.iterdir()) == []


def test_the_cache_is_bounded_and_keeps_what_was_used_last(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler.OBJECTS, "largest_bytes", 1000)
    for i in range(4):
        compiler.OBJECTS.write({f"k{i}": bytes(200)})
        os.utime(own_cache / f"k{i}.o", (i, i))
    assert compiler.OBJECTS.read("k0") is not None  # so that it is not the oldest
    compiler.OBJECTS.write({"k4": bytes(200)})
    assert {p.stem for p in own_cache.iterdir()} == {"k0", "k3", "k4"}


def test_sizes_are_looked_at_first_and_then_now_and_then(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(
        compiler.OBJECTS, "shrink", lambda: looks.append(len(list(own_cache.iterdir())))
    )
    monkeypatch.setattr(compiler.OBJECTS, "largest_bytes", 1000 / LOOKED_SHARE)
    for i in range(1, 12):
        compiler.OBJECTS.write({f"k{i}": bytes(200)})
    assert looks == [1, 6, 11]  # what the process did not write itself counts, too


def test_two_writers_of_one_object(own_cache: Path) -> None:
    payload = bytes(50_000)
    threads = [
        threading.Thread(target=lambda: [compiler.OBJECTS.write({"k": payload}) for _ in range(20)])
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        assert compiler.OBJECTS.read("k") in (None, payload)
    assert [p.name for p in own_cache.iterdir()] == ["k.o"]


def test_a_kernel_that_llvm_refuses_has_a_reason() -> None:
    found = jit.load_kernels({"no": "define void @no() { ret i32 0 }"}, MACHINE)["no"]
    assert isinstance(found, compiler.CannotCompile)
    assert str(found).startswith("LLVM: ")


def test_a_compiler_process_that_ended_is_started_again() -> None:
    cpu, features = jit.host()[0], jit.allowed_features(MACHINE)
    text = "define void @f() { ret void }"
    w = compiler.Worker()
    first = w.compile(text, cpu, features)
    assert w.process is not None
    w.process.kill()
    w.process.wait()
    assert w.compile(text, cpu, features) == first
    w.close()


def test_where_no_process_can_be_started_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    monkeypatch.setattr(compiler, "_workers", [])
    found = jit.load_kernels({"f": "define void @f() { ret void }"}, Machine(16, 16, ()))["f"]
    assert isinstance(found, compiler.CannotCompile)
    assert "no process could be started" in str(found)


def test_features_are_limited_to_the_machine() -> None:
    named = dict.fromkeys(jit.allowed_features(MACHINE).split(","))
    assert not any(f.startswith("+avx512") for f in named)
    assert jit.why_not(Machine(64, 32, (), features=("avx9000f",))) == "this CPU has no avx9000f"
