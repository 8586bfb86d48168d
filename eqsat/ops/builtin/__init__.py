"""eqsat's own ops: every module here has their records in `OPS`, and `ops.registry` finds them."""
