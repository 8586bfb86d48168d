"""LLVM IR of kernels: loops, guards, masked and strided lanes do what they say."""

import ctypes

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from eqsat.execute.kernels.ir import Code, new_module
from eqsat.execute.kernels.kinds import I64, POINTER, TYPES

F32 = TYPES["f32"]


def compiled(module, name):
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(opt=3)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    engine = llvm.create_mcjit_compiler(parsed, target)
    engine.finalize_object()
    pointers = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
    call = ctypes.CFUNCTYPE(None, *pointers)(engine.get_function_address(name))
    call.engine = engine  # lives as long as the call
    return call


def test_loops_masks_and_strides():
    code, (lo, hi, x, y) = Code.begin(new_module("m"), "k", [I64, I64, POINTER, POINTER])

    def step(i, total):
        every = code.load(code.at(x, F32, code.mul(i, 4)), F32, 4)
        some = code.load(code.at(x, F32, code.mul(i, 4)), F32, 4, mask=2)
        return [code.builder.fadd(total, code.builder.fadd(every, some))]

    (total,) = code.loop(lo, hi, 1, [code.zero(F32, 4)], step)
    code.store(total, y, F32)
    code.store(code.sum_of_lanes(total), code.at(y, F32, 4), F32)
    apart = code.load(x, F32, 4, stride=3, mask=code.first_lanes(hi, 4))
    code.store(apart, code.at(y, F32, 5), F32, stride=2, mask=code.first_lanes(hi, 4))
    small = code.compare("<", hi, 4)
    (chosen,) = code.when(small, lambda: [code.constant(F32, 1.0)], lambda: [code.zero(F32)])
    code.store(chosen, code.at(y, F32, 12), F32)
    code.end()
    kernel = compiled(code.module, "k")

    x = np.arange(1, 21, dtype=np.float32)
    y = np.full(13, -1, np.float32)
    kernel(1, 3, x.ctypes.data, y.ctypes.data)
    total = x[4:12].reshape(2, 4).sum(0) + np.append(x[4:12].reshape(2, 4)[:, :2].sum(0), [0, 0])
    np.testing.assert_array_equal(y[:4], total)
    assert y[4] == total.sum()
    np.testing.assert_array_equal(y[5:13], [1, -1, 4, -1, 7, -1, -1, 1])
    kernel(2, 2, x.ctypes.data, y.ctypes.data)  # a loop that runs not at all
    assert (y[:5] == 0).all()


def test_indices_that_are_known_are_computed_here():
    code, (lo, *_) = Code.begin(new_module("m"), "k", [I64])
    assert code.affine(3, (5, 0, 2), (2, lo, 4)) == 21
    assert code.digits(17, (2, 3, 4)) == [1, 1, 1]
    assert code.mul(lo, 0) == 0 and code.mul(lo, 1) is lo
    assert code.compare("<", 2, 3) is True
