"""Kernels written by hand, for tests of what calls them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.model.dispatch import Machine

MACHINE = Machine(32, 16, (), features=("avx2", "fma"))
WIDTH = 64


@dataclass(frozen=True)
class Written:
    """A kernel written by hand."""

    name: str
    ir: str
    items: int
    scratch_bytes: int
    reads: tuple[int, ...] = (0, 1)
    writes: tuple[int, ...] = (2,)


def sum_kernel(items: int, name: str = "sum", extra: int = 0, scratch: int = 256) -> Written:
    """Adds rows of WIDTH floats, each by its scratch; extra: floats read behind the end."""
    ir = f"""
define void @{name}(i64 %lo, i64 %hi, ptr %a, ptr %b, ptr %c, ptr %scratch) {{
entry:
  br label %row
row:
  %i = phi i64 [%lo, %entry], [%i1, %done]
  %base = mul i64 %i, {WIDTH}
  br label %column
column:
  %j = phi i64 [0, %row], [%j1, %column]
  %x = add i64 %base, %j
  %pa = getelementptr float, ptr %a, i64 %x
  %pb0 = getelementptr float, ptr %b, i64 %x
  %pb = getelementptr float, ptr %pb0, i64 {extra}
  %pc = getelementptr float, ptr %c, i64 %x
  %ps = getelementptr float, ptr %scratch, i64 %j
  %va = load <8 x float>, ptr %pa, align 4
  %vb = load <8 x float>, ptr %pb, align 4
  %s = fadd <8 x float> %va, %vb
  store volatile <8 x float> %s, ptr %ps, align 4
  %t = load volatile <8 x float>, ptr %ps, align 4
  store <8 x float> %t, ptr %pc, align 4
  %j1 = add i64 %j, 8
  %more = icmp slt i64 %j1, {WIDTH}
  br i1 %more, label %column, label %done
done:
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %hi
  br i1 %again, label %row, label %out
out:
  ret void
}}
"""
    return Written(name, ir, items, scratch)


def rows(items: int) -> tuple[np.ndarray, np.ndarray]:
    a = np.arange(items * WIDTH, dtype=np.float32).reshape(items, WIDTH)
    return a, 3 * a + 1
