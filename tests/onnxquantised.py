"""Networks as `quantize_static` of onnxruntime writes them, by hand: u8 activations with zero
points, i8 weights per channel, i32 biases, QuantizeLinear and DequantizeLinear around every op.

A ReLU is the lower end of the bytes behind it, as there, and a max pool keeps the scale it reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, helper
from onnxmodels import FLOAT, Writer, value

WIDE, POSITIVE = (10 / 255, 128), (6 / 255, 0)  # scale and zero point, of values of any sign or not


class Quantised:
    """A graph that grows op by op; a value is its dequantised name and (scale, zero point)."""

    def __init__(self, opset: int = 17):
        self.w = Writer(opset=opset)
        self.count = 0

    def at(self, op: str) -> str:
        self.count += 1
        return f"/{op}_{self.count}"

    def round_trip(self, x: str, scale: float, zero: int) -> str:
        at, w = self.at("q"), self.w
        s, z = w.constant(f"{at}/s", np.float32(scale)), w.constant(f"{at}/z", np.uint8(zero))
        q = w.op("QuantizeLinear", f"{at}/QuantizeLinear", x, s, z)
        return w.op("DequantizeLinear", f"{at}/DequantizeLinear", q, s, z)

    def weight(self, shape: tuple[int, ...], scale_of_x: float) -> tuple[str, str]:
        """i8 [out, …] with a scale per channel and 0 as zero points, and an i32 bias."""
        at, w = self.at("weight"), self.w
        real = w.rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        scale = (np.abs(real).reshape(shape[0], -1).max(1) / 127).astype("f4")
        whole = np.round(real / scale.reshape(-1, *[1] * (len(shape) - 1))).astype("i1")
        bias = np.round(0.1 * w.rng.standard_normal(shape[0]) / (scale * scale_of_x)).astype("i4")
        return (
            self._dequantised(f"{at}.weight", whole, scale),
            self._dequantised(f"{at}.bias", bias, (scale * np.float32(scale_of_x)).astype("f4")),
        )

    def _dequantised(self, name: str, whole: Any, scale: Any) -> str:
        w = self.w
        given = [
            w.constant(f"{name}_quantized", whole),
            w.constant(f"{name}_scale", scale),
            w.constant(f"{name}_zero_point", np.zeros(len(scale), whole.dtype)),
        ]
        return w.op("DequantizeLinear", f"{name}/DequantizeLinear", *given, axis=0)

    def conv(
        self, x: str, channels: tuple[int, int], size: int = 3, stride: int = 1, *,
        of: tuple[float, int] = POSITIVE, to: tuple[float, int] = POSITIVE, groups: int = 1,
    ) -> str:  # fmt: skip
        shape = channels[1], channels[0] // groups, size, size
        weight, bias = self.weight(shape, of[0])
        y = self.w.op(
            "Conv", self.at("conv"), x, weight, bias, kernel_shape=[size] * 2,
            strides=[stride] * 2, pads=[size // 2] * 4, group=groups,
        )  # fmt: skip
        return self.round_trip(y, *to)

    def block(self, x: str, channels: tuple[int, int], stride: int) -> str:
        """Two convolutions and a skip, which has a convolution of its own where shapes differ."""
        y = self.conv(x, channels, 3, stride)
        y = self.conv(y, (channels[1], channels[1]), to=WIDE)
        if stride > 1 or channels[0] != channels[1]:
            x = self.conv(x, channels, 1, stride, to=WIDE)
        return self.round_trip(self.w.op("Add", self.at("add"), y, x), *POSITIVE)

    def head(self, x: str, channels: int, classes: int) -> str:
        y = self.w.op("GlobalAveragePool", self.at("pool"), x)
        y = self.round_trip(y, *POSITIVE)
        y = self.round_trip(self.w.op("Flatten", self.at("flatten"), y, axis=1), *POSITIVE)
        weight, bias = self.weight((classes, channels), POSITIVE[0])
        y = self.w.op("Gemm", self.at("gemm"), y, weight, bias, transB=1)
        return self.round_trip(y, *WIDE)

    def model(self, result: str, size: int, classes: int) -> ModelProto:
        self.w.nodes.append(helper.make_node("Identity", [result], ["logits"], name="/out"))
        given = [value("input", FLOAT, 1, 3, size, size)]
        return self.w.model(given, [value("logits", FLOAT, 1, classes)])


def resnet(
    width: int = 64, size: int = 224, classes: int = 1000, stages: int = 4, blocks: int = 2
) -> ModelProto:
    """ResNet-18 of this width, or its first stages and blocks."""
    g = Quantised()
    x = g.conv(g.round_trip("input", *WIDE), (3, width), 7, 2, of=WIDE)
    x = g.w.op("MaxPool", g.at("pool"), x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = g.round_trip(x, *POSITIVE)
    channels = width
    for stage in range(stages):
        for block in range(blocks):
            x = g.block(x, (channels, width << stage), 1 if block or not stage else 2)
            channels = width << stage
    return g.model(g.head(x, channels, classes), size, classes)
