"""Transforms of the rows or columns of a matrix, a few lines at a time, so that what is done
before and after them happens in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.kernels.protocol import Layout, Run, Task
from onesided.pencilfft.kernels.selection import Selection

#: Bytes that a chunk may touch so that it stays in the second-level cache.
CHUNK_BYTES = 1 << 19

#: Fewest lines in a chunk, so that strided access uses whole cache lines.
FEWEST_LINES = 8

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64


def cut(count: int, line_bytes: int) -> list[slice]:
    """Local. ``count`` lines in chunks, given the bytes that one line touches."""
    size = max(FEWEST_LINES, CHUNK_BYTES // max(1, line_bytes))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class Side:
    """Local. Where chunks are read or written: in a whole matrix, or in scratch memory.

    Lines lie along ``axis`` of the matrix; ``scratch`` memory has room for one chunk.
    """

    array: NDArray[Any]
    axis: int
    scratch: bool = False

    @classmethod
    def of_scratch(
        cls, length: int, parts: Sequence[slice], dtype: np.dtype[Any], axis: int
    ) -> Side:
        """Local. Scratch memory for the largest of ``parts``, lines of ``length`` elements."""
        lines = max((part.stop - part.start for part in parts), default=0)
        nbytes = length * lines * dtype.itemsize
        raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        shape = (length, lines) if axis == 0 else (lines, length)
        return cls(raw[start : start + nbytes].view(dtype).reshape(shape), axis, True)

    def lines(self, part: slice) -> NDArray[Any]:
        """Local. The chunk that holds the lines ``part``."""
        chosen = slice(0, part.stop - part.start) if self.scratch else part
        return self.array[:, chosen] if self.axis == 0 else self.array[chosen]


@dataclass(frozen=True)
class Chunk:
    """Local. Some lines, ``part``: transformed from ``before`` to ``after``."""

    part: slice
    before: NDArray[Any]
    after: NDArray[Any]
    run: Run

    def transform(self) -> None:
        """Local. Do it."""
        self.run(self.before, self.after)


def plan_chunks(
    selection: Selection,
    kind: str,
    forward: bool,
    parts: Sequence[slice],
    before: Side,
    after: Side,
) -> list[Chunk]:
    """Local. The transforms of all lines; the same side twice is a transform in place."""
    chunks = []
    for part in parts:
        source, target = before.lines(part), after.lines(part)
        task = Task(
            kind=kind,
            axis=before.axis,
            forward=forward,
            scale=0,
            orthogonal=False,
            source=Layout.of(source),
            target=Layout.of(target),
            in_place=before is after,
        )
        chunks.append(Chunk(part, source, target, selection.run_for(task)))
    return chunks


def scaled_copy(source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
    """Local. ``target[...] = factor * source`` without a temporary array."""
    if factor == 1.0:
        np.copyto(target, source)
    else:
        np.multiply(source, factor, out=target)


def times(table: NDArray[Any], values: NDArray[Any], conjugate: bool, out: NDArray[Any]) -> None:
    """Local. ``out[...] = values * table``, or times the conjugate of the table.

    Without a temporary array, for which ``out`` and ``values`` must not overlap.
    """
    if conjugate:
        np.conjugate(table, out=out)
        table = out
    np.multiply(table, values, out=out)
