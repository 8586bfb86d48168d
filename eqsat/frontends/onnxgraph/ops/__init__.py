"""One small function per operator, by kind; importing a file enters its operators."""

from __future__ import annotations

from eqsat.frontends.onnxgraph.ops import (  # noqa: F401
    attention,
    casts,
    contributed,
    control,
    convolution,
    elementwise,
    indexing,
    linear,
    normal,
    pooling,
    quantized,
    recurrent,
    reductions,
    resizing,
    shapes,
)
from eqsat.frontends.onnxgraph.registry import OPERATORS as OPERATORS
