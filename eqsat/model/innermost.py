"""The innermost roles of an operand of a contraction, which decide what a kernel can stream.

`kn` is a k dim and, innermost, an n dim; `k·n32` a k dim and then a tile of 32 of n.
"""

from __future__ import annotations

import re
from functools import lru_cache

Order = tuple[tuple[str, int], ...]  # (role, extent of a tile; 0: a whole loop or its blocks)
_ONE = re.compile(r"([mnk])([1-9]\d*)?")


@lru_cache(maxsize=1_000)
def innermost(text: str) -> Order:
    """The roles that a text names, outermost first; ValueError if it is no such text.

    >>> innermost("k·n32")
    (('k', 0), ('n', 32))
    """
    plain = text.replace("·", "").replace(" ", "")
    found = tuple((role, int(extent or 0)) for role, extent in _ONE.findall(plain))
    if not found or _ONE.sub("", plain) or len({r for r, _ in found}) < len(found):
        raise ValueError(f"`{text}` is no order of roles")
    return found
