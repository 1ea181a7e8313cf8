"""Kernel: Intel's MKL, from its Python package or the system; no cosine or sine transforms."""

from __future__ import annotations

import ctypes
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.scripts import Kernel as CFunction
from onesided.pencilfft.kernels import mkl_library as mkl
from onesided.pencilfft.kernels.memory import address_of
from onesided.pencilfft.kernels.protocol import Run, Task

#: A set of lines: how many, and how far apart they start in source and target.
Lines = tuple[int, int, int]


class MklKernel:
    """Local. See :class:`~.protocol.Kernel`; one thread, whatever MKL is told elsewhere."""

    name = "mkl"

    def plan(self, task: Task, effort: str) -> Run | None:
        sizes = [np.dtype(layout.char).itemsize for layout in (task.source, task.target)]
        strides = task.source.strides[task.axis], task.target.strides[task.axis]
        if not task.complex_kind or task.source.char in "gG" or any(
            s % size
            for layout, size in zip((task.source, task.target), sizes, strict=True)
            for s in layout.strides
        ):
            return None
        (count, *distances), loops = _largest_apart(_merged_lines(task))
        descriptor = mkl.Descriptor(
            task.source.char in "fF", mkl.COMPLEX if task.kind == "c2c" else mkl.REAL, task.length
        )
        descriptor.set(mkl.PLACEMENT, mkl.IN_PLACE if task.in_place else mkl.NOT_IN_PLACE)
        if task.kind != "c2c":
            descriptor.set(mkl.CONJUGATE_EVEN_STORAGE, mkl.COMPLEX_COMPLEX)
        descriptor.set(mkl.INPUT_STRIDES, (0, strides[0] // sizes[0]))
        descriptor.set(mkl.OUTPUT_STRIDES, (0, strides[1] // sizes[1]))
        descriptor.set(mkl.NUMBER_OF_TRANSFORMS, count)
        descriptor.set(mkl.INPUT_DISTANCE, distances[0] // sizes[0])
        descriptor.set(mkl.OUTPUT_DISTANCE, distances[1] // sizes[1])
        descriptor.set(mkl.THREAD_LIMIT, 1)
        forward = task.kind == "r2c" or (task.kind == "c2c" and task.forward)
        descriptor.set(mkl.FORWARD_SCALE if forward else mkl.BACKWARD_SCALE, task.factor)
        return MklRun(descriptor, forward, loops) if descriptor.commit() else None


class MklRun:
    """Local. The call on all sets of lines, whose offsets in bytes are ``loops``."""

    def __init__(
        self, descriptor: mkl.Descriptor, forward: bool, loops: list[tuple[int, int]]
    ) -> None:
        library = mkl.load_transforms()
        self._compute = library.DftiComputeForward if forward else library.DftiComputeBackward
        self._descriptor, self._loops = descriptor, loops

    def __call__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        handle, compute = self._descriptor.handle, self._compute
        here, there = address_of(source), address_of(target)
        for source_offset, target_offset in self._loops:
            status = compute(handle, here + source_offset, there + target_offset)
            if status:
                raise RuntimeError(f"MKL failed with status {status} on shape {source.shape}")

    def lowered(self, source: NDArray[Any], target: NDArray[Any]) -> list[CFunction]:
        """Local. The same for the compiled core."""
        function = ctypes.cast(self._compute, ctypes.c_void_p).value or 0
        handle = self._descriptor.handle.value or 0
        return [CFunction(function, handle, True, *offsets) for offsets in self._loops]


def _merged_lines(task: Task) -> list[Lines]:
    """The other axes, those that follow each other evenly in both arrays merged into one."""
    others = [
        (n, s, t)
        for axis, (n, s, t) in enumerate(
            zip(task.source.shape, task.source.strides, task.target.strides, strict=True)
        )
        if axis != task.axis and n > 1
    ]
    merged: list[Lines] = []
    for n, s, t in sorted(others, key=lambda line: (abs(line[2]), abs(line[1]))):
        if merged and (s, t) == tuple(merged[-1][0] * step for step in merged[-1][1:]):
            merged[-1] = (merged[-1][0] * n, *merged[-1][1:])
        else:
            merged.append((n, s, t))
    return merged


def _largest_apart(lines: list[Lines]) -> tuple[Lines, list[tuple[int, int]]]:
    """The largest set of lines, and the offsets in bytes at which it is repeated."""
    if not lines:
        return (1, 0, 0), [(0, 0)]
    largest = max(lines, key=lambda line: (line[0], -abs(line[2])))
    rest = sorted((line for line in lines if line is not largest), key=lambda line: -abs(line[2]))
    offsets = [
        (
            sum(i * line[1] for i, line in zip(index, rest, strict=True)),
            sum(i * line[2] for i, line in zip(index, rest, strict=True)),
        )
        for index in product(*(range(line[0]) for line in rest))
    ]
    return largest, offsets


mkl.load_transforms()
KERNEL = MklKernel()
