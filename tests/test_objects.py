"""Object code is loaded without LLVM; what this loader does not know is refused with a sentence."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from eqsat.execute.kernels import jit, linked, objects, worker

pytestmark = pytest.mark.skipif(not objects.supported(), reason="of x86-64 under Linux")
# a table of numbers, a counter that is written, a call of another object, one of a library
FIRST = """
@table = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44], align 64
@count = internal global i64 5, align 8
@zeros = internal global [3 x i64] zeroinitializer, align 64
declare i64 @twice(i64)
declare i64 @labs(i64)
define i64 @look(i64 %i) {
  %at = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %at
  %w = call i64 @twice(i64 %v)
  %n = sub i64 0, %w
  %a = call i64 @labs(i64 %n)
  ret i64 %a
}
define i64 @counted() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  %z = load volatile i64, ptr @zeros
  store volatile i64 7, ptr @zeros
  %sum = add i64 %new, %z
  ret i64 %sum
}
"""
SECOND = "define i64 @twice(i64 %x) {\n  %y = shl i64 %x, 1\n  ret i64 %y\n}\n"


def compiled(text: str) -> bytes:
    return worker.compile_ir(text, jit.host()[0], "")


def called(address: int, *args: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(args))(address)(*args)


def test_constants_state_and_calls_of_others_and_of_libraries_work() -> None:
    found = objects.load_objects([compiled(FIRST), compiled(SECOND)], objects.library_symbol)
    assert [called(found["look"], i) for i in range(4)] == [22, 44, 66, 88]
    assert [called(found["counted"]), called(found["counted"])] == [6, 14]  # 6 + 0, then 7 + 7
    again = objects.load_objects([compiled(FIRST), compiled(SECOND)], objects.library_symbol)
    assert called(again["counted"]) == 6, "each has its own state"


def test_pages_of_code_cannot_be_written() -> None:
    found = objects.load_objects([compiled(FIRST), compiled(SECOND)], objects.library_symbol)
    assert {_rights(found[name]) for name in ("look", "counted", "twice")} == {"r-xp"}


def _rights(address: int) -> str:
    """How the pages at this address may be used."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, rights = line.split()[:2]
        begin, end = (int(x, 16) for x in span.split("-"))
        if begin <= address < end:
            return rights
    raise AssertionError("nothing is mapped there")


def test_a_symbol_that_nobody_has_is_named() -> None:
    text = "declare void @nobody_has_this()\ndefine void @f() {\n  call void @nobody_has_this()\n"
    with pytest.raises(objects.CannotLoad, match="`nobody_has_this`"):
        objects.load_objects([compiled(text + "  ret void\n}\n")], objects.library_symbol)


def test_what_is_no_object_or_breaks_off_is_refused() -> None:
    whole = compiled(FIRST)
    with pytest.raises(objects.CannotLoad, match="no relocatable ELF"):
        objects.read_elf(b"not an object" * 20)
    with pytest.raises(objects.CannotLoad, match="breaks off"):
        objects.read_elf(whole[: len(whole) // 2])
    with pytest.raises(objects.CannotLoad, match="breaks off"):
        objects.read_elf(b"")


def test_another_relocation_is_refused() -> None:
    whole = bytearray(compiled(FIRST))
    kind = next(
        at
        for at in range(0, len(whole) - 24)
        if objects._RELOCATION.unpack_from(whole, at)[1] & 0xFFFFFFFF == 1
        and objects._RELOCATION.unpack_from(whole, at)[1] >> 32 in range(1, 20)
        and objects._RELOCATION.unpack_from(whole, at)[2] == 0
        and objects._RELOCATION.unpack_from(whole, at)[0] > 0
    )
    whole[kind + 8] = 9  # R_X86_64_GOTPCREL
    with pytest.raises(objects.CannotLoad, match="relocation 9"):
        objects.read_elf(bytes(whole))


CALL_OF_A_KEPT_KERNEL = """
import sys
from eqsat.execute.kernels import jit
from eqsat.model.dispatch import Machine
text = "define i64 @seven() {\\n  ret i64 7\\n}\\n"
found = jit.load_kernels({"seven": text}, Machine(16, 16, ()))["seven"]
assert isinstance(found, int), found
jit.start_runtime()
print("llvmlite.binding" in sys.modules)
"""


def test_a_process_that_compiles_nothing_does_not_load_llvm() -> None:
    said = []
    for _ in range(2):
        command = [sys.executable, "-c", CALL_OF_A_KEPT_KERNEL]
        said.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert said[-1].strip() == "False"


def test_llvm_loads_what_this_loader_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> dict[str, int]:
        raise objects.CannotLoad("not here")

    monkeypatch.setattr(objects, "load_objects", refused)
    found = linked.link_code([compiled("define i64 @nine() {\n  ret i64 9\n}\n")], ["nine"])
    assert called(found["nine"]) == 9
