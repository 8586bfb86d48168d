"""Devices by the names they are asked for: what each compiler calls them.

Sizes of a topology matter to none of the answers: one device of it is compiled for. The files of
`chips/` describe NVIDIA's parts to XLA in its own text format, each with its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CHIPS = Path(__file__).with_name("chips")


@dataclass(frozen=True)
class Tpu:
    """topology: of libtpu; kind: the device kind that JAX knows; accelerator: that of its host."""

    topology: str
    kind: str
    accelerator: str

    @property
    def environment(self) -> dict[str, str]:
        """With which libtpu asks nobody what this machine is, and locks nothing."""
        return {
            "TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_ACCELERATOR_TYPE": self.accelerator, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }  # fmt: skip


@dataclass(frozen=True)
class Nvidia:
    """arch: what ptxas calls it."""

    arch: str


TPUS = {
    "v4": Tpu("v4:2x2x1", "TPU v4", "v4-8"),
    "v5e": Tpu("v5e:2x2", "TPU v5 lite", "v5litepod-4"),
    "v5p": Tpu("v5p:2x2x1", "TPU v5", "v5p-8"),
    "v6e": Tpu("v6e:2x2", "TPU v6 lite", "v6e-4"),
}
NVIDIA = {
    "a100": Nvidia("sm_80"),
    "h100": Nvidia("sm_90a"),
    "h200": Nvidia("sm_90a"),
    "b200": Nvidia("sm_100a"),
}


def description(chip: str) -> str:
    """XLA's description of one of NVIDIA's parts, without the comments."""
    lines = (CHIPS / f"{chip}.txtpb").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")) + "\n"
