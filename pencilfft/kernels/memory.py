"""Memory in the form of a layout: scratch, and arrays for kernels to be tried on."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import Layout

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64


def empty_packed(shape: tuple[int, ...], char: str, order: tuple[int, ...]) -> NDArray[Any]:
    """Local. Uninitialized, aligned, without gaps, its axes in this order of memory."""
    extents = [shape[axis] for axis in order]
    nbytes = int(np.prod(extents)) * np.dtype(char).itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    memory = raw[start : start + nbytes].view(char).reshape(extents)
    return memory.transpose(np.argsort(order))


def zeros_like_layout(layout: Layout, offset: int = 0) -> NDArray[Any]:
    """Local. Zeros in this layout, ``offset`` bytes behind the start of a page.

    The pages between the elements are never touched, so a few planes of a large array take the
    memory of those planes. Every element is written, so that each has memory of its own.
    """
    lowest = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if s < 0)
    highest = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True) if s > 0)
    dtype = np.dtype(layout.char)
    pages = mmap.mmap(-1, offset + highest - lowest + dtype.itemsize)
    array: NDArray[Any] = np.ndarray(
        layout.shape, dtype, pages, offset - lowest, strides=layout.strides
    )
    array.fill(0)
    return array


def memory_order(layout: Layout) -> tuple[int, ...]:
    """Local. The axes from the slowest to the fastest; of axes alike, the first one first."""
    axes = range(len(layout.shape))
    return tuple(sorted(axes, key=lambda axis: -abs(layout.strides[axis])))


def address_of(array: NDArray[Any]) -> int:
    """Local. Address of the first element; the quickest way that NumPy has."""
    address: int = array.__array_interface__["data"][0]
    return address
