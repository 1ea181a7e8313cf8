"""Memory in the form of a layout: scratch, and arrays for kernels to be tried on."""

from __future__ import annotations

import mmap
from dataclasses import replace
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


def untouched(layout: Layout, offset: int = 0) -> NDArray[Any]:
    """Local. Zeros in this layout, ``offset`` bytes behind the start of a page.

    Pages take memory when they are first written, so a few planes of a large array take the
    memory of those planes.
    """
    steps = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    pages = mmap.mmap(-1, offset + span(layout))
    start = offset - sum(step for step in steps if step < 0)
    return np.ndarray(layout.shape, layout.char, pages, start, strides=layout.strides)


def span(layout: Layout) -> int:
    """Local. Bytes from the first to behind the last element in memory; of a layout not empty."""
    steps = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
    return sum(map(abs, steps)) + np.dtype(layout.char).itemsize


def packed(layout: Layout) -> Layout:
    """Local. The same without gaps, in the same order of memory."""
    strides, step = [0] * len(layout.shape), np.dtype(layout.char).itemsize
    for axis in reversed(memory_order(layout)):
        strides[axis] = step
        step *= layout.shape[axis]
    return replace(layout, strides=tuple(strides))


def memory_order(layout: Layout) -> tuple[int, ...]:
    """Local. The axes from the slowest to the fastest; of axes alike, the first one first."""
    axes = range(len(layout.shape))
    return tuple(sorted(axes, key=lambda axis: -abs(layout.strides[axis])))


def address_of(array: NDArray[Any]) -> int:
    """Local. Address of the first element; the quickest way that NumPy has."""
    address: int = array.__array_interface__["data"][0]
    return address
