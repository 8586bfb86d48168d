"""One small function per operator, by kind; importing a file enters its operators."""

from __future__ import annotations

from eqsat.frontends.onnxgraph.graph import OPERATORS as OPERATORS
from eqsat.frontends.onnxgraph.ops import (  # noqa: F401
    attention,
    control,
    elementwise,
    indexing,
    reductions,
    shapes,
    windows,
)
