"""24 further models for `peers.py`: which they are, and the 12 that are timed only at the end.

They are of the kinds of models that nobody had tuned eqsat to when benchmarks/peers.md first had
them, in sizes of their own. `HELD` was drawn on 2026-11-28, before any of the 24 was timed:
`sorted(random.Random(35).sample(sorted(FURTHER), 12))`. The other half may be looked at while
eqsat is worked on; these are timed when all is done.
"""

from __future__ import annotations

HELD = (
    "conv3d", "densenet", "gru", "inception", "kmeans", "lstm8", "mamba", "mixer", "resnext",
    "stencil", "vit", "wavenet",
)  # fmt: skip
OPEN = (
    "conformer", "decode8", "deeplab", "dlrm", "fir", "gnn", "nerf", "q18", "t5enc", "traincnn",
    "vgg16", "yolo",
)  # fmt: skip
