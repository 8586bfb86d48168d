"""Files of arrays: safetensors, with the element types that NumPy lacks as bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.model.diag import fail
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.elements import DTYPE_NAMES, KEY_DIGITS, element_dtype, key_digest

_ALIGNMENT = 64  # bytes
_BLOCK = 1 << 20  # bytes that are hashed at once


def rooms_for(types: Iterable[tuple[Any, Sequence[int]]]) -> list[np.ndarray[Any, Any]]:
    """Arrays of no values yet, aligned so, one behind the other in one block of memory.

    NumPy asks for huge pages for a block of 4 MiB and more, which are read faster: the core's
    prefetchers stop at the end of a page. Many weights by themselves are smaller.
    """
    specs = [(np.dtype(dtype), tuple(shape)) for dtype, shape in types]
    sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in specs]
    starts = [0, *accumulate(-(-n // _ALIGNMENT) * _ALIGNMENT for n in sizes)]
    block = np.empty(starts[-1] + _ALIGNMENT, np.uint8)
    block = block[-block.ctypes.data % _ALIGNMENT :]
    return [
        block[start : start + size].view(dtype).reshape(shape)
        for (dtype, shape), start, size in zip(specs, starts, sizes, strict=False)
    ]


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Arrays by name as safetensors; types NumPy lacks (bf16, f8, i4) go as bytes, the metadata
    names the real type."""
    from safetensors.numpy import save_file

    data, types = {}, {}
    for key, array in arrays.items():
        value = np.asarray(array)
        types[key] = str(TensorType(DTYPE_NAMES[value.dtype.name], value.shape))
        native = value.dtype.kind in "fiub"
        stored = value if native else np.frombuffer(value.tobytes(), np.uint8)
        data[key] = np.ascontiguousarray(stored).reshape(stored.shape)
    save_file(data, str(path), metadata=types | {"format": "1"})


def read_arrays(path: str | Path) -> dict[str, np.ndarray[Any, Any]]:
    """Undo `write_arrays`; EqsatError E504 if the file is not one of these.

    Arrays are read-only and mapped: what nobody reads takes no memory. The file may be renamed or
    removed meanwhile, but not written to.
    """
    places = _places(path)
    mapped = np.asarray(np.memmap(path, np.uint8, mode="r"))
    arrays = {}
    for key, (t, begin) in places.items():
        dtype = np.dtype(element_dtype(t.dtype))
        part = mapped[begin : begin + dtype.itemsize * math.prod(t.shape)]
        arrays[key] = part.view(dtype).reshape(t.shape)
    return arrays


def device_arrays(path: str | Path, keys: Sequence[str]) -> list[Any] | None:
    """Arrays of a file as JAX takes them, by name; None if it lacks one of them, E504 if broken."""
    import jax

    places = _places(path)
    if not places.keys() >= set(keys):
        return None
    # read, as the pages of a mapped file would count beside the copy; and `jnp.asarray` would
    # compile a program that copies, for every shape
    with Path(path).open("rb") as file:
        types = [places[key][0] for key in keys]
        rooms = rooms_for((element_dtype(t.dtype), t.shape) for t in types)
        for key, room in zip(keys, rooms, strict=True):
            _read_into(file, room, places[key][1])
    with jax.ensure_compile_time_eval():  # this may be the first call, in a trace
        return [jax.device_put(room) for room in rooms]


def _read_into(file: BufferedReader, array: np.ndarray[Any, Any], begin: int) -> None:
    """Fill an array from this byte of a file on."""
    room: Any = array.reshape(-1).view(np.uint8)
    file.seek(begin)
    if file.readinto(room) != array.nbytes:
        raise fail("E504", f"cannot read weights from {file.name}: it breaks off")


def content_keys(path: str | Path) -> dict[str, str]:
    """Name → content hash (`weight_key`) of each array of a file; E504 if it is not one of these.

    In blocks, as the pages of a mapped file would count as memory of this process.
    """
    keys = {}
    with Path(path).open("rb") as file:
        for name, (t, begin) in _places(path).items():
            dtype = np.dtype(element_dtype(t.dtype))
            file.seek(begin)
            left = dtype.itemsize * math.prod(t.shape)
            digest = key_digest(dtype, t.shape)
            while block := file.read(min(left, _BLOCK)):
                digest.update(block)
                left -= len(block)
            keys[name] = digest.hexdigest()[:KEY_DIGITS]
    return keys


def _places(path: str | Path) -> dict[str, tuple[TensorType, int]]:
    """Name → type and first byte of each array of a safetensors file: length, header, arrays.

    EqsatError E504 if the file is not one that `write_arrays` wrote.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:  # checks the whole header
            types = file.metadata() or {}
            keys = list(file.keys())
        with Path(path).open("rb") as data:
            length = int.from_bytes(data.read(8), "little")
            header = json.loads(data.read(length))
        begins = {key: 8 + length + header[key]["data_offsets"][0] for key in keys}
        places = {key: (TensorType.parse(types[key]), begins[key]) for key in keys}
        for key, (t, begin) in places.items():
            size = np.dtype(element_dtype(t.dtype)).itemsize * math.prod(t.shape)
            if begin + size != 8 + length + header[key]["data_offsets"][1]:
                raise ValueError(f"`{key}` is not {t}")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise fail("E504", f"cannot read weights from {path}: {error}") from error
    return places
