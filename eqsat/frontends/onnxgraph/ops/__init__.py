"""One small function per operator, by kind; importing a file enters its operators."""

from __future__ import annotations

from eqsat.frontends.onnxgraph.call import OPERATORS as OPERATORS
from eqsat.frontends.onnxgraph.ops import (  # noqa: F401
    attention,
    contributed,
    control,
    elementwise,
    indexing,
    quantized,
    recurrent,
    reductions,
    resizing,
    shapes,
    windows,
)
