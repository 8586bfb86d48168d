"""What the compiler of a target does with temporaries behind the search, as its file says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompilerPlacing:
    """scratchpad_bytes: of a memory beside the main one in which temporaries are kept as long as
    all that dispatches touch fits. in_place: a result may lie where an operand lay that is read
    element by element, by it and by nothing later."""

    scratchpad_bytes: int = 0
    in_place: bool = False
