"""Small programs that have layouts to choose, with random weights of fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Sample = tuple[Callable[..., Any], Any]  # a function and the type of its argument


def _weights(*shapes: tuple[int, ...]) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, dtype="f4") / (s[-1] * 4) ** 0.5 for s in shapes]


def _image(channels: int, size: int) -> Any:
    import jax

    return jax.ShapeDtypeStruct((1, channels, size, size), "float32")


def bottleneck(channels: int = 256, middle: int = 64, size: int = 28) -> Sample:
    """A residual block of ResNet-50 over an NCHW image, OIHW filters."""
    import jax

    first, spatial, last = _weights(
        (middle, channels, 1, 1), (middle, middle, 3, 3), (channels, middle, 1, 1)
    )

    def block(x: Any) -> Any:
        y = jax.nn.relu(_convolve(x, first))
        y = jax.nn.relu(_convolve(y, spatial))
        return jax.nn.relu(_convolve(y, last) + x)

    return block, _image(channels, size)


def stem(size: int = 112) -> Sample:
    """Few channels, a wide window with a stride, then another convolution; NCHW."""
    import jax

    first, second = _weights((32, 3, 7, 7), (32, 32, 3, 3))

    def network(x: Any) -> Any:
        return jax.nn.relu(_convolve(jax.nn.relu(_convolve(x, first, 2)), second, 2))

    return network, _image(3, size)


def deep(channels: int = 256, size: int = 7) -> Sample:
    """Two convolutions whose filters are larger than their images; NCHW."""
    import jax

    first, second = _weights((channels, channels, 3, 3), (channels, channels, 3, 3))

    def network(x: Any) -> Any:
        return _convolve(jax.nn.relu(_convolve(x, first)), second)

    return network, _image(channels, size)


def _convolve(x: Any, filters: Any, stride: int = 1) -> Any:
    from jax import lax

    pad = ((filters.shape[-1] // 2,) * 2,) * 2
    numbers = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(x, filters, (stride,) * 2, pad, dimension_numbers=numbers)


SAMPLES: dict[str, Callable[[], Sample]] = {"bottleneck": bottleneck, "stem": stem, "deep": deep}
