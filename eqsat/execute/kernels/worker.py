"""A process that compiles: LLVM IR on its standard input, object code on its standard output.

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
        try:
            send(sink, {"fine": True}, compile_ir(payload.decode(), head["cpu"], head["features"]))
        except RuntimeError as error:
            send(sink, {"fine": False}, str(error).encode())


if __name__ == "__main__":
    main()
