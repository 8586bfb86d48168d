"""A program as it was read, with its weights and opaque calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat.model.border import Border
from eqsat.model.diag import Span
from eqsat.model.layout import Layout
from eqsat.model.program import Program

if TYPE_CHECKING:
    import numpy as np

    from eqsat.frontends.traced import Traced


@dataclass(frozen=True)
class Source:
    """A program with its weights by content hash and its opaque calls by key."""

    program: Program
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    opaque: Mapping[str, Any] = field(default_factory=dict)
    traced: Traced | None = None
    places: Mapping[Border, Span] = field(default_factory=dict)  # where layouts are stated
    layouts: Mapping[Border, Layout] = field(default_factory=dict)  # of what crosses packed
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that its file leaves open
