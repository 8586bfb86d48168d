"""One small function per operator, by kind; importing a file enters its operators."""


def enter_all() -> None:
    """Import every file, so that the table is whole."""
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
