"""What a rank has of a spectrum after the second transform of the four-step algorithm. Pure.

The line is a matrix of ``rows`` x ``columns`` elements; after both transforms row r of the result
holds the coefficients of the frequencies ``r + rows * c``, c = 0, 1, ... A rank has neighboring
rows. Of real data only the rows 0 to ``rows // 2`` are computed; what is in the others follows from
the symmetry of the spectrum, and of row r and its mirror image ``rows - r`` together every
frequency up to n // 2 is kept once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onesided.pencilfft.decomposition import block
from onesided.pencilfft.line.chunks import scaled_copy


class Spectrum(Protocol):
    """Local. How rows of the result lie in an array, which :meth:`read` and :meth:`write` use."""

    @property
    def length(self) -> int:
        """Coefficients that all ranks have together."""
        ...

    @property
    def mirrored(self) -> bool:
        """Whether the columns of the natural order lie as :func:`~.linelayout.halves` says."""
        ...

    @property
    def depth(self) -> int:
        """Rows of the array that :meth:`in_columns` takes."""
        ...

    def cut(self, index: int) -> tuple[int, int]:
        """Local. Which places of every row of the natural order a rank has."""
        ...

    def count(self, index: int) -> int:
        """Local. How many coefficients a rank has in the four-step order."""
        ...

    def in_columns(self, array: NDArray[Any]) -> Any:
        """Local. The places of this rank's coefficients among columns of the natural order."""
        ...

    def in_line(self, array: NDArray[Any]) -> Any:
        """Local. The places of this rank's coefficients in a line in the four-step order."""
        ...

    def write(self, chunk: NDArray[Any], part: slice, places: Any, factor: float) -> None:
        """Local. Some rows of the result, ``part``, times ``factor``, to their places."""
        ...

    def read(self, places: Any, part: slice, chunk: NDArray[Any]) -> None:
        """Local. The way back from :meth:`write`."""
        ...

    def frequencies(self) -> NDArray[np.int64]:
        """Local. The frequency of every coefficient of this rank in the four-step order."""
        ...


@dataclass(frozen=True)
class FullSpectrum:
    """Local. Of complex data: rank ``index`` has a block of the rows, each whole."""

    rows: int
    columns: int
    parts: int
    index: int

    mirrored = False

    @property
    def length(self) -> int:
        """Coefficients that all ranks have together."""
        return self.rows * self.columns

    @property
    def depth(self) -> int:
        """Rows of the array that :meth:`in_columns` takes."""
        return self.columns

    def cut(self, index: int) -> tuple[int, int]:
        """Local. See :class:`Spectrum`."""
        return block(self.rows, self.parts, index)

    def count(self, index: int) -> int:
        """Local. See :class:`Spectrum`."""
        start, stop = self.cut(index)
        return (stop - start) * self.columns

    def in_columns(self, array: NDArray[Any]) -> NDArray[Any]:
        """Local. See :class:`Spectrum`."""
        return array.T

    def in_line(self, array: NDArray[Any]) -> NDArray[Any]:
        """Local. See :class:`Spectrum`."""
        start, stop = self.cut(self.index)
        return array.reshape(stop - start, self.columns)

    def write(self, chunk: NDArray[Any], part: slice, places: NDArray[Any], factor: float) -> None:
        """Local. See :class:`Spectrum`."""
        scaled_copy(chunk, places[part], factor)

    def read(self, places: NDArray[Any], part: slice, chunk: NDArray[Any]) -> None:
        """Local. See :class:`Spectrum`."""
        np.copyto(chunk, places[part])

    def frequencies(self) -> NDArray[np.int64]:
        """Local. See :class:`Spectrum`."""
        rows = np.arange(*self.cut(self.index))
        return (rows[:, None] + self.rows * np.arange(self.columns)).reshape(-1)


class Places(NamedTuple):
    """Views of an array: where the coefficients of a half spectrum go.

    ``zero`` takes the first half of row 0, ``lower`` those of the rows that have a mirror image,
    ``upper`` the first halves of their mirror images, ``middle`` that of row ``rows / 2``.
    """

    zero: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    middle: NDArray[Any]


@dataclass(frozen=True)
class HalfSpectrum:
    """Local. Of real data: rank ``index`` has a block of the rows 0 to ``rows // 2``.

    In the four-step order the coefficients of row r, then of its mirror image, follow each other.
    """

    rows: int
    columns: int
    parts: int
    index: int

    mirrored = True

    @property
    def length(self) -> int:
        """Coefficients that all ranks have together."""
        return self.rows * self.columns // 2 + 1

    @property
    def depth(self) -> int:
        """Rows of the array that :meth:`in_columns` takes."""
        return self.columns // 2 + 1

    @property
    def low(self) -> int:
        """Frequencies up to n // 2 in a row that is neither 0 nor a mirror image."""
        return (self.columns + 1) // 2

    def cut(self, index: int) -> tuple[int, int]:
        """Local. See :class:`Spectrum`."""
        start, stop = block(self.rows // 2 + 1, self.parts, index)
        return min(self.rows, max(0, 2 * start - 1)), min(self.rows, max(0, 2 * stop - 1))

    def count(self, index: int) -> int:
        """Local. See :class:`Spectrum`."""
        zero, regular, middle = self._kinds(index)
        return zero * self.depth + regular * self.columns + middle * self.low

    def _kinds(self, index: int) -> tuple[int, int, int]:
        """How many rows of each kind a rank has: row 0, with mirror image, the middle one."""
        start, stop = block(self.rows // 2 + 1, self.parts, index)
        zero = int(start == 0 and stop > 0)
        middle = int(start <= self.rows / 2 < stop and self.rows % 2 == 0)
        return zero, stop - start - zero - middle, middle

    def in_columns(self, array: NDArray[Any]) -> Places:
        """Local. See :class:`Spectrum`."""
        zero, regular, middle = self._kinds(self.index)
        end = zero + 2 * regular
        low, high = array[: self.low], array[: self.columns // 2]
        return Places(
            array[:, :zero].T,
            low[:, zero:end:2].T,
            high[:, zero + 1 : end : 2].T,
            low[:, end : end + middle].T,
        )

    def in_line(self, array: NDArray[Any]) -> Places:
        """Local. See :class:`Spectrum`."""
        zero, regular, middle = self._kinds(self.index)
        start = zero * self.depth
        end = start + regular * self.columns
        pairs = array[start:end].reshape(regular, self.columns)
        return Places(
            array[:start].reshape(zero, self.depth),
            pairs[:, : self.low],
            pairs[:, self.low :],
            array[end:].reshape(middle, self.low),
        )

    def _rows(self, part: slice) -> tuple[int, slice, slice, int]:
        """Of some rows: how many are row 0, which have images, as rows of the rank and counted
        among themselves, and how many are the middle one."""
        zero, regular, middle = self._kinds(self.index)
        start, stop = max(part.start, zero), min(part.stop, zero + regular)
        stop = max(start, stop)
        return (
            max(0, zero - part.start),
            slice(start - part.start, stop - part.start),
            slice(start - zero, stop - zero),
            int(middle and part.stop > zero + regular),
        )

    def write(self, chunk: NDArray[Any], part: slice, places: Places, factor: float) -> None:
        """Local. See :class:`Spectrum`."""
        zero, here, there, middle = self._rows(part)
        scaled_copy(chunk[:zero, : self.depth], places.zero[:zero], factor)
        scaled_copy(chunk[here, : self.low], places.lower[there], factor)
        upper = places.upper[there]
        scaled_copy(chunk[here, ::-1][:, : self.columns // 2], upper, factor)
        np.conjugate(upper, out=upper)
        if middle:
            scaled_copy(chunk[-1:, : self.low], places.middle, factor)

    def read(self, places: Places, part: slice, chunk: NDArray[Any]) -> None:
        """Local. See :class:`Spectrum`."""
        zero, here, there, middle = self._rows(part)
        high = self.columns // 2
        backwards = chunk[:, ::-1]
        if zero:
            chunk[:1, : self.depth] = places.zero
            image = places.zero[:, 1 : self.low]
            np.conjugate(image, out=backwards[:1, : self.low - 1])
        chunk[here, : self.low] = places.lower[there]
        np.conjugate(places.upper[there], out=backwards[here, :high])
        if middle:
            chunk[-1:, : self.low] = places.middle
            np.conjugate(places.middle[:, :high], out=backwards[-1:, :high])

    def frequencies(self) -> NDArray[np.int64]:
        """Local. See :class:`Spectrum`."""
        start, stop = block(self.rows // 2 + 1, self.parts, self.index)
        zero, regular, _ = self._kinds(self.index)
        line = np.empty(self.count(self.index), np.int64)
        places = self.in_line(line)
        steps = self.rows * np.arange(self.depth)
        rows = np.arange(start, stop)[:, None]
        places.zero[...] = steps
        paired = rows[zero : zero + regular]
        places.lower[...] = paired + steps[: self.low]
        places.upper[...] = self.rows - paired + steps[: self.columns // 2]
        places.middle[...] = rows[zero + regular :] + steps[: self.low]
        return line
