"""Transforms of a distributed line: a plan of two dimensions, with roots of unity in between.

The n = n1 n2 elements of a line are a matrix of n1 rows, element j in row j // n2, and every rank
has a block of whole rows. The columns are transformed, multiplied by roots of unity, and the rows
are transformed; row k1 of the result holds the coefficients k1 + n1 k2, k2 = 0, 1, ... Read by
columns they are in their natural order, so that a rank that has a block of the columns has
neighboring coefficients. All that is four stages with a transpose after each of the first three,
of which the first and the last transform nothing.

Real lines are transformed as complex ones, and of the spectrum the columns up to n2 // 2 are kept.

Source: D. H. Bailey, FFTs in external or hierarchical memory, J. Supercomputing 4 (1990) 23.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft.decomposition import PencilGeometry
from onesided.pencilfft.engine import Course
from onesided.pencilfft.settings import Settings
from onesided.pencilfft.stages import COMPLEX, AxisTransform, Stage

#: Elements of a table of roots that are worked on at a time.
_PIECE = 1 << 16

#: exp(-2j pi q / 4) for q = 0 to 3.
_QUARTERS = np.array([1, -1j, -1, 1j])


@dataclass(frozen=True)
class LinePencil:
    """Local. This rank's part of a distributed line: ``rows`` of ``width`` elements, the last of
    which may be incomplete. The names are those of a pencil.

    No axis is whole, so that there is none to redistribute to; ``axis`` is the only one.
    """

    length: int
    width: int
    rows: tuple[int, int]
    comm: MPI.Intracomm
    axis: int = 0

    @property
    def subcomm(self) -> tuple[MPI.Comm, ...]:
        """The communicator of all ranks that hold a part; borrowed."""
        return (self.comm,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return (self.length,)

    @property
    def substart(self) -> tuple[int, ...]:
        """Place of this rank's first element."""
        return (min(self.length, self.rows[0] * self.width),)

    @property
    def subshape(self) -> tuple[int, ...]:
        """Local shape."""
        return (min(self.length, self.rows[1] * self.width) - self.substart[0],)

    def local_slice(self) -> tuple[slice, ...]:
        """Local. The part as slices of the global array."""
        return (slice(self.substart[0], self.substart[0] + self.subshape[0]),)

    def pencil(self, axis: int) -> LinePencil:
        """Local. It raises PatternError: no rank can have the whole axis."""
        raise PatternError("a distributed line has no axis along which a rank could have all of it")

    def transfer(self, pencil: Any, dtype: Any) -> Any:
        """Local. It raises PatternError."""
        return self.pencil(0)


@dataclass
class LineEnd:
    """One side of a line: the caller's array, and the matrix that the stages read or write.

    ``shape`` is that of the caller's rows, batch axes first; ``turned``: they are the columns of
    the matrix. Where the array is not the matrix (a line of real numbers, half a spectrum),
    ``work`` lies between. ``first`` and ``length`` are of the line.
    """

    shape: tuple[int, ...]
    turned: bool
    work: NDArray[Any] | None
    first: int
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0 if self.work is None else self.work.nbytes

    def load(self, array: NDArray[Any]) -> NDArray[Any]:
        """Local. The matrix with the numbers of the array."""
        work = self.work
        if work is None:
            return self._matrix(array)
        if array.dtype.kind == "f":
            work[...] = array
            return self._matrix(work)
        count = array.shape[-1]
        # x = Re sum w X exp(...), as the modes above n / 2 are the conjugates of those below
        with np.errstate(all="ignore"):  # infinities and NaN pass
            np.multiply(array, 2, out=work[..., :count])
        work[..., count:] = 0
        for mode in {0, self.length / 2}:
            place = mode - self.first
            if place in range(count):
                work[..., int(place)] = array[..., int(place)]
        return self._matrix(work)

    def room(self, array: NDArray[Any]) -> NDArray[Any]:
        """Local. The matrix whose numbers the array is to have."""
        return self._matrix(array if self.work is None else self.work)

    def store(self, array: NDArray[Any]) -> None:
        """Local. The numbers of the matrix into the array."""
        if self.work is not None:
            found = self.work[..., : array.shape[-1]]
            array[...] = found.real if array.dtype.kind == "f" else found

    def _matrix(self, line: NDArray[Any]) -> NDArray[Any]:
        rows = line.reshape(self.shape)
        return rows.swapaxes(-1, -2) if self.turned else rows


def line_course(comm: MPI.Intracomm, settings: Settings) -> Course:
    """Collective. That of a line over the ranks of ``comm``. One rank has one stage, of one row.

    UnsupportedError for what only more dimensions have.
    """
    batch, n = settings.batch, settings.shape[0]
    step = settings.transforms[0]
    if settings.transposed_out or step.words not in ("c2c", "r2c") or step.physical != step.length:
        raise UnsupportedError(
            "one-dimensional arrays are transformed c2c or r2c, to the natural order, without "
            f"padding, not {settings.describe()}"
        )
    if comm.size == 1:
        n1, n2 = 1, n
        stages = [_whole(settings)]
    else:
        n1, n2 = factors(n, comm.size)
        stages = _four_stages(settings, (n1, n2), comm.size, comm.rank)
    lead = len(batch)
    count = n // 2 + 1 if settings.dtype.kind == "f" else n
    dtypes = settings.dtype, settings.spectral_dtype
    pencils, ends, forms = [], [], []
    for side, (stage, lengths, dtype) in enumerate(
        zip((stages[0].before, stages[-1].after), (n, count), dtypes, strict=True)
    ):
        turned = bool(side) and comm.size > 1
        split = lead + (1 if turned else 0)
        rows, width = stage.ranges[split], n1 if turned else stage.shape[-1]
        pencil = LinePencil(lengths, width, rows, comm)
        pencils.append(pencil)
        shape = (*batch, rows[1] - rows[0], width)
        forms.append(((*batch, *pencil.subshape), dtype, tuple(range(lead + 1))))
        work = None
        if comm.size > 1 and settings.dtype.kind == "f":
            with agreed(comm):
                work = np.empty((*batch, prod(shape[lead:])), dtypes[1])
        ends.append(LineEnd(shape, turned, work, pencil.substart[0], n))
    tables: dict[tuple[bool, int], Callable[[], NDArray[Any]]] = {}
    if comm.size > 1:
        after, before = stages[1].after.ranges[lead + 1], stages[2].before.ranges[lead]
        kind = stages[1].dtypes[1]
        tables[True, 2] = lambda: twiddles(range(*before), range(n2), n, kind)
        tables[False, 2] = lambda: twiddles(range(n1), range(*after), n, kind).conjugate()
    every = [MPI.COMM_SELF] * lead + [comm, MPI.COMM_SELF]
    return Course(every, stages, pencils, forms, (ends[0], ends[1]), tables)


def _whole(settings: Settings) -> Stage:
    """The only stage on one rank: a line is a matrix of one row."""
    lead = len(settings.batch)
    (step,) = settings.transforms
    shape = (*settings.batch, 1, step.length)
    before = PencilGeometry(shape, (1,) * len(shape), (0,) * len(shape),
                            tuple(range(len(shape))), lead + 1)  # fmt: skip
    after = before.resized(lead + 1, step.spectral)
    dtypes = settings.dtype, settings.spectral_dtype
    return Stage(before, (step.shifted(lead + 1),), after, dtypes)


def _four_stages(
    settings: Settings, factors: tuple[int, int], parts: int, rank: int
) -> list[Stage]:
    """Rows, columns that are transformed, rows that are transformed, columns."""
    lead = len(settings.batch)
    alone = (0,) * lead
    rows = PencilGeometry(
        (*settings.batch, *factors), (*(1,) * lead, parts, 1), (*alone, rank, 0),
        tuple(range(lead + 2)), lead + 1,
    )  # fmt: skip
    kind = COMPLEX.get(settings.dtype.char, settings.dtype)
    kept = factors[1] // 2 + 1 if settings.dtype.kind == "f" else 0
    calls = ("c2c", True), ("c2c", False)
    first, second = (
        AxisTransform(lead + axis, *calls, length=n, physical=n, kept=axis and kept)
        for axis, n in enumerate(factors)
    )
    columns = rows.pencil(lead)
    turned = columns.pencil(lead + 1)
    cut = turned.resized(lead + 1, second.spectral)
    last = cut.pencil(lead)
    return [
        Stage(rows, (), rows, (kind, kind)),
        Stage(columns, (first,), columns, (kind, kind)),
        Stage(turned, (second,), cut, (kind, kind)),
        Stage(last, (), last, (kind, kind)),
    ]


def factors(length: int, parts: int) -> tuple[int, int]:
    """Local. The rows and columns of a line over so many ranks, each of which has one at least.

    They are as alike as can be. UnsupportedError where there are none; it names the next length.
    """
    found = _factors(length, parts)
    if found is None:
        good = next(n for n in range(length, 4 * max(length, parts**2)) if _factors(n, parts))
        raise UnsupportedError(
            f"a line of {length} elements is no product of two numbers that are {parts} at least, "
            f"which {parts} ranks need; the next one is {good}"
        )
    return found


def _factors(length: int, parts: int) -> tuple[int, int] | None:
    least = next((n for n in range(isqrt(length), 0, -1) if length % n == 0), 1)
    return (length // least, least) if least >= parts else None


def twiddles(rows: range, columns: range, order: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. The matrix ``exp(-2j pi r c / order)``; r c must not exceed 2**61."""
    table = np.empty((len(rows), len(columns)), dtype)
    second = np.arange(columns.start, columns.stop, dtype=np.int64)
    step = max(1, _PIECE // max(1, len(columns)))
    for first in range(0, len(rows), step):
        part = np.array(rows[first : first + step], np.int64)
        table[first : first + step] = roots(part[:, None] * second, order)
    return table


def roots(exponents: NDArray[np.int64], order: int) -> NDArray[Any]:
    """Local. ``exp(-2j pi e / order)`` for every integer e in ``exponents``, of long doubles.

    The angle is reduced to an eighth of the circle by integer arithmetic, so its rounding error
    does not grow with e.
    """
    reduced = exponents % order
    quarters = (4 * reduced + order // 2) // order
    eighth = np.arctan(np.longdouble(1))
    angles = (4 * reduced - quarters * order) * (2 * eighth / order)
    found: NDArray[Any] = (np.cos(angles) - 1j * np.sin(angles)) * _QUARTERS[quarters % 4]
    return found
