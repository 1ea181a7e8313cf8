"""What a plan asks of a kernel: one-dimensional transforms of local data along one axis."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.steps import address

#: Alignment of scratch memory in bytes: vector instructions want it.
ALIGNMENT = 64

#: The transforms between real and complex data, and from complex to complex.
COMPLEX_KINDS = ("c2c", "r2c", "c2r")
#: The cosine and sine transforms, which take real data, or both parts of complex data.
REAL_KINDS = ("dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4")

#: The type that undoes a cosine or sine transform of this type, but for a factor.
_INVERSE_TYPES = {1: 1, 2: 3, 3: 2, 4: 4}


@dataclass(frozen=True)
class Layout:
    """Local. Form of an array: its shape, its strides in bytes and its dtype's character."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    char: str

    @classmethod
    def of(cls, array: NDArray[Any]) -> Layout:
        """Local. The layout of ``array``; its address is no part of it."""
        return cls(array.shape, array.strides, array.dtype.char)

    @property
    def order(self) -> tuple[int, ...]:
        """Local. The axes from the slowest to the fastest; of axes alike, the first one first."""
        return tuple(sorted(range(len(self.shape)), key=lambda axis: -abs(self.strides[axis])))

    @property
    def span(self) -> int:
        """Local. Bytes from the first to behind the last element in memory; of one not empty."""
        steps = [(n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(steps) + np.dtype(self.char).itemsize

    @property
    def touched(self) -> int:
        """Local. Roughly the bytes of the pages of memory that hold elements."""
        apart, inner = 1, np.dtype(self.char).itemsize
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if abs(stride) >= mmap.PAGESIZE:
                apart *= extent
            else:
                inner += abs(stride) * (extent - 1)
        return apart * -(-inner // mmap.PAGESIZE) * mmap.PAGESIZE

    def untouched(self, offset: int = 0) -> NDArray[Any]:
        """Local. Zeros in this layout, ``offset`` bytes behind the start of a page.

        Pages take memory when they are first written, so a few planes of a large array take the
        memory of those planes.
        """
        back = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0]
        pages = mmap.mmap(-1, offset + self.span)
        return np.ndarray(self.shape, self.char, pages, offset - sum(back), strides=self.strides)


@dataclass(frozen=True)
class Task:
    """Local. One transform along ``axis`` between arrays of these layouts.

    ``kind``: "c2c", "r2c", "c2r", "dct1" to "dct4", "dst1" to "dst4". ``forward``: of c2c the
    negative sign in the exponent; a cosine or sine transform that is not forward is the inverse
    type (dct3 for dct2), without its factor. The result is divided by ``sqrt(M)**scale``, M being
    :attr:`logical_length`, in complex kinds times ``others``. ``orthogonal``: the rows of the
    matrix are made orthogonal, as ``scipy.fft.dct(..., orthogonalize=True)`` does. ``in_place``:
    source and target are one array.
    ``threads``: as many as a library may use, where it has them.
    """

    kind: str
    axis: int
    forward: bool
    scale: int
    orthogonal: bool
    source: Layout
    target: Layout
    in_place: bool
    threads: int = 1
    others: int = 1

    @property
    def length(self) -> int:
        """Local. Points along the axis, of real data in r2c and c2r."""
        side = self.target if self.kind == "c2r" else self.source
        return side.shape[self.axis]

    @property
    def logical_length(self) -> int:
        """Local. M, the length of the complex transform that this one is a part of."""
        n = self.length
        if self.complex_kind:
            return n
        return {"dct1": 2 * (n - 1), "dst1": 2 * (n + 1)}.get(self.kind, 2 * n)

    @property
    def factor(self) -> Any:
        """Local. What the result of the plain sums is multiplied by, in its precision."""
        exact = np.longdouble(self.logical_length * self.others) ** (-0.5 * self.scale)
        return np.dtype(self.target.char.lower()).type(exact)

    @property
    def sine(self) -> bool:
        """Local. Whether this is a sine transform."""
        return self.kind.startswith("dst")

    @property
    def type(self) -> int:
        """Local. Type, 1 to 4, of the cosine or sine transform that is to be computed."""
        named = int(self.kind[-1])
        return named if self.forward else _INVERSE_TYPES[named]

    @property
    def complex_kind(self) -> bool:
        """Local. Whether this is no cosine or sine transform."""
        return self.kind in COMPLEX_KINDS

    @property
    def whole_steps(self) -> bool:
        """Local. Whether all strides are whole numbers of elements."""
        return all(
            step % np.dtype(side.char).itemsize == 0
            for side in (self.source, self.target)
            for step in side.strides
        )

    @property
    def empty(self) -> bool:
        """Local. Whether there is nothing to do."""
        return 0 in self.source.shape or 0 in self.target.shape


#: ``run(source, target)``: the arrays have the layouts of the task, at any address. Nothing of
#: their size is allocated and nothing but ``target`` is written. One that is a function of C has a
#: method ``lowered``, too, see :mod:`onesided.collectives.scripts`.
Run = Callable[[NDArray[Any], NDArray[Any]], object]


class Kernel(Protocol):
    """Local. One library of transforms."""

    name: str

    def plan(self, task: Task, effort: str) -> Run | None:
        """Local. The call that does ``task``, or None where this library cannot.

        ``effort`` says how long a library may look for a fast way of its own: "estimate" not at
        all, "brief" for some milliseconds, being one candidate of many, "measure" as it likes.
        """
        ...


def real_view(array: NDArray[Any]) -> NDArray[Any]:
    """Local. The parts of complex data along a new last axis; real data as they are."""
    if array.dtype.kind != "c":
        return array
    view: NDArray[Any] = array[..., None].view(array.real.dtype)
    return view


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """Local. New memory, not initialized."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -address(raw) % ALIGNMENT
    return raw[start : start + nbytes]
