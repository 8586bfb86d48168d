"""The kernels' runtime in C: the IR that is checked in is made of it, and is what kernels call."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import jax.ffi
import llvmlite.binding as llvm
import pytest

from eqsat.execute.compilers.ask import import_path, is_installed
from eqsat.execute.kernels.kernel import handler, loop_handler, loop_step
from eqsat.execute.kernels.linked import ENTRIES, runtime_path

ROOT = Path(__file__).parents[1]
SOURCES = runtime_path("").parent
TRIPLES = {
    "runtime.x86_64-linux.ll": "x86_64-linux-gnu",
    "runtime.aarch64-linux.ll": "aarch64-linux-gnu",
    "runtime.arm64-darwin.ll": "arm64-apple-darwin",
}
SYSTEMS = pytest.mark.parametrize("name", TRIPLES)
needs_clang = pytest.mark.skipif(
    not is_installed("ziglang") or shutil.which("make") is None,
    reason="ziglang is not installed; `make runtime` installs it",
)


def test_every_system_is_there() -> None:
    assert {p.name for p in SOURCES.glob("*.ll")} == set(TRIPLES)


@SYSTEMS
def test_the_ir_says_of_what_it_was_made(name: str) -> None:
    first, second = (SOURCES / name).read_text().splitlines()[:2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    made = b"".join((SOURCES / n).read_bytes() for n in ("runtime.c", "xla_ffi.h"))
    assert first.endswith(f"clang of {extras['c'][0]}, {flags()}")
    assert second.endswith(hashlib.sha256(made).hexdigest()), "call `make runtime`"


def flags() -> str:
    found = re.search(r"^C_FLAGS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return found[1]


@SYSTEMS
def test_nothing_in_the_ir_is_of_the_machine_that_made_it(name: str) -> None:
    body = (SOURCES / name).read_text().split("\n", 2)[2]
    for word in ("target", "source_filename", "clang", "/", "!"):
        assert word not in body


@SYSTEMS
def test_llvm_makes_code_of_the_ir(name: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly((SOURCES / name).read_text())
    module.verify()
    machine = llvm.Target.from_triple(TRIPLES[name]).create_target_machine(codemodel="jitdefault")
    assert machine.emit_object(module)


@SYSTEMS
def test_what_modules_declare_is_what_the_runtime_defines(name: str) -> None:
    runtime = llvm.parse_assembly((SOURCES / name).read_text())
    kernel = "define void @k(i64 %lo, i64 %hi, ptr %a, ptr %b, ptr %s) {\n  ret void\n}\n"
    loop = "define ptr @l(ptr %frame, ptr %p, ptr %s) {\n  ret ptr null\n}\n"
    texts = [
        kernel + handler("k", 1, 1, 4, 64, 2),
        kernel + loop_step("k", 1, 1, 4, 64, 2),
        loop + loop_handler("l", 1, 1, 64),
    ]
    called = [f for t in texts for f in llvm.parse_assembly(t).functions if f.is_declaration]
    assert {f.name for f in called} == set(ENTRIES)
    for f in called:
        defined = runtime.get_function(f.name)
        assert not defined.is_declaration
        assert str(defined.global_value_type) == str(f.global_value_type)


@needs_clang
def test_clang_makes_the_ir_that_is_checked_in(tmp_path: Path) -> None:
    compiled(tmp_path)
    for name in TRIPLES:
        assert (tmp_path / name).read_text() == (SOURCES / name).read_text(), "call `make runtime`"


@needs_clang
def test_xlas_own_header_makes_the_same_ir(tmp_path: Path) -> None:
    shutil.copy(SOURCES / "runtime.c", tmp_path)
    (tmp_path / "xla_ffi.h").write_text("#include <xla/ffi/api/c_api.h>\n")
    compiled(tmp_path, f"C={tmp_path}", f"C_FLAGS={flags()} -I {jax.ffi.include_dir()}")
    for name in TRIPLES:
        made, kept = (p.read_text().splitlines()[2:] for p in (tmp_path / name, SOURCES / name))
        assert made == kept


def compiled(folder: Path, *settings: str) -> None:
    """The IR of every system by the Makefile's command, into a folder; it installs nothing."""
    command = ["make", "-s", "-o", ".venv/accelerators/.c", "runtime", f"INTO={folder}", *settings]
    subprocess.run(command, cwd=ROOT, env=os.environ | import_path(["ziglang"]), check=True)
