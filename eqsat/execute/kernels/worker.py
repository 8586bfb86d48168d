"""A process that compiles: LLVM IR on its standard input, object code (or assembly) on its output.

It is started by the path of this file and imports nothing of eqsat, so that it starts in a tenth of
a second. A message is a line of JSON, then as many bytes as its `bytes` says. Asked for nothing for
a while, it ends.
"""

from __future__ import annotations

import json
import select
import sys
from typing import IO, Any

IDLE_S = 20.0


def compile_ir(text: str, cpu: str, features: str) -> bytes:
    """Relocatable object code; RuntimeError with LLVM's message if the text is no valid module."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # of single instructions
    module = llvm.parse_assembly(text)
    module.verify()
    return target_machine(cpu, features).emit_object(module)


def assembly_of(text: str, cpu: str, features: str, triple: str) -> bytes:
    """Assembly for a machine that may be another one than this; RuntimeError as `compile_ir`."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3)
    return machine.emit_assembly(module).encode()


def target_machine(cpu: str, features: str) -> Any:
    """The machine that code is made for, and that loads it."""
    import llvmlite.binding as llvm

    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=3, codemodel="jitdefault")


def send(stream: IO[bytes], head: dict[str, Any], payload: bytes) -> None:
    """Write one message."""
    stream.write(json.dumps(head | {"bytes": len(payload)}).encode() + b"\n" + payload)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Read one message; None at the end of the stream or if it breaks off."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    payload = stream.read(head["bytes"])
    return (head, payload) if len(payload) == head["bytes"] else None


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while select.select([source], [], [], IDLE_S)[0]:
        message = receive(source)
        if message is None:
            return
        head, payload = message
        triple, kind = head["triple"], (head["cpu"], head["features"])
        try:
            made = (
                assembly_of(payload.decode(), *kind, triple)
                if triple
                else compile_ir(payload.decode(), *kind)
            )
            send(sink, {"fine": True}, made)
        except RuntimeError as error:
            send(sink, {"fine": False}, str(error).encode())


if __name__ == "__main__":
    main()
