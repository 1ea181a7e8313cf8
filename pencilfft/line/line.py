"""Transforms of a distributed line: one-dimensional, of any length, on any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import Request
from onesided.collectives.agreement import agree, agreed
from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.kernels.protocol import Layout, Task
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.line.blocks import LineBlocks
from onesided.pencilfft.line.bluestein import Bluestein
from onesided.pencilfft.line.fourstep import FourStep
from onesided.pencilfft.line.lengths import LineFactors, choose_factors


class Algorithm(Protocol):
    """Collective. What does the transforms; ``factor`` multiplies every element of the result."""

    def exchanges(self, forward: bool) -> list[Request]:
        """Local. The persistent requests of one direction, in the order of their use."""
        ...

    def forward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. To the spectrum."""
        ...

    def backward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. From the spectrum."""
        ...

    def free(self) -> None:
        """Collective. Give back what is owned."""
        ...


class LineTransforms:
    """Both directions of the transform of one line over the ranks of ``comm``, planned once.

    Parameters
    ----------
    comm
        Communicator, borrowed; every rank has a block of the line, in rank order.
    n
        Elements of the line, at least 1; there may be fewer than ranks.
    dtype
        Of the line: complex64 or complex128; or float32 or float64, whose spectrum has the
        n // 2 + 1 coefficients that scipy.fft.rfft gives.
    selection
        The kernels of the transforms within a rank.
    method, info
        Of the exchanges, see :func:`onesided.collectives.Alltoallv_init`.
    transposed_out
        False: the spectrum is cut into blocks like the line. True: it stays in the four-step
        order, which saves one of three exchanges; :meth:`frequencies` says which coefficients
        a rank has. With ``rows`` = :attr:`factors` ``.n1`` and ``columns`` = n2, complex data: a
        rank has a block of the rows r, and of each the frequencies r + rows * c for all columns c
        in turn. Real data: a block of the rows r up to rows // 2; of each the frequencies
        r + rows * c up to n // 2, then those of row rows - r, unless it is the same row or r is 0.
        Lengths that are padded (``factors.padded``), and one rank, have the natural order.
    factors
        The matrix that the line is made, None for the one that costs least.

    Errors (PatternError, MethodError, UnsupportedError, ResourceError, MismatchError where ranks
    disagree) are raised by all ranks. Owns its requests and memory: see :meth:`free`.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        n: int,
        dtype: DTypeLike,
        selection: Selection,
        method: str = "auto",
        info: Mapping[str, str] | None = None,
        transposed_out: bool = False,
        *,
        factors: LineFactors | None = None,
    ) -> None:
        """Collective."""
        with agreed(comm):
            #: Dtype of the line.
            self.dtype = np.dtype(dtype)
            if self.dtype.char not in "fdFD" or not self.dtype.isnative:
                raise PatternError(
                    f"dtype {self.dtype} is not supported; float32, float64, complex64 and "
                    "complex128 are"
                )
            #: Rows and columns of the matrix that the line is made, and whether it is padded.
            self.factors = _checked(factors, n, comm.size, self.dtype.kind == "f")
        what = f"LineTransforms({n}, {self.dtype.name}, {transposed_out}, {self.factors})"
        agree(comm, what=f"{what} by {method}")
        #: Dtype of the spectrum.
        self.spectral_dtype = np.result_type(self.dtype, np.complex64)
        self._length, self._freed = n, False
        count = n // 2 + 1 if self.dtype.kind == "f" else n
        #: Which part of the line, and of the spectrum, this rank has.
        self.input_geometry = LineBlocks(n, comm.size, comm.rank)
        self.output_geometry = LineBlocks(count, comm.size, comm.rank)
        self._frequencies: NDArray[np.int64] | None = None
        self._algorithm: Algorithm
        shape = (self.factors.n1, self.factors.n2)
        if comm.size == 1:
            self._algorithm = OneRank(self.dtype.kind == "f", selection)
        elif self.factors.padded:
            self._algorithm = Bluestein(comm, n, shape, self.dtype, selection, method, info)
        else:
            four = FourStep(comm, shape, self.dtype, selection, method, info, transposed_out)
            self._algorithm = four
            if transposed_out:
                ends = np.cumsum([four.spectrum.count(rank) for rank in range(comm.size)])
                bounds = (0, *(int(end) for end in ends))
                self.output_geometry = LineBlocks(count, comm.size, comm.rank, bounds)
                self._frequencies = four.spectrum.frequencies()

    def exchanges(self, direction_forward: bool) -> tuple[Request, ...]:
        """Local. The persistent requests of one direction, in the order of their use.

        Directions may share some of them. None on one rank and after :meth:`free`.
        """
        return tuple(self._algorithm.exchanges(direction_forward))

    @property
    def requests(self) -> tuple[Request, ...]:
        """The persistent requests of both directions, each once."""
        return tuple(dict.fromkeys((*self.exchanges(True), *self.exchanges(False))))

    def frequencies(self) -> NDArray[np.int64]:
        """Local. The frequency, 0 to n - 1, of every coefficient that this rank has, in order."""
        if self._frequencies is None:
            return np.arange(*self.output_geometry.owned(self.output_geometry.index))
        return self._frequencies.copy()

    def run(
        self,
        direction_forward: bool,
        source: NDArray[Any],
        target: NDArray[Any],
        scale: int = 0,
    ) -> None:
        """Collective. Transform ``source`` to ``target``, divided by sqrt(n)**scale.

        Forward has the negative exponent. The arrays are this rank's parts, in any strides;
        ``source`` is left as it is, unless both are one array, which is allowed. A wrong array
        raises :class:`PatternError` on this rank, before anything is started.
        """
        if self._freed:
            raise RequestError("a transform of a line that was freed")
        ends = [
            ("line", self.input_geometry, self.dtype),
            ("spectrum", self.output_geometry, self.spectral_dtype),
        ]
        for array, (what, part, dtype) in zip(
            (source, target), ends if direction_forward else ends[::-1], strict=True
        ):
            if array.shape != part.subshape or array.dtype != dtype:
                raise PatternError(
                    f"the {what} has shape {array.shape} and dtype {array.dtype}, this rank's "
                    f"part has {part.subshape} (of {part.length}) and {dtype}"
                )
        if not target.flags.writeable:
            raise PatternError("the array that takes the result is read-only")
        algorithm = self._algorithm
        function = algorithm.forward if direction_forward else algorithm.backward
        with np.errstate(all="ignore"):  # infinities and NaN pass
            function(source, target, float(self._length) ** (-0.5 * scale))

    def free(self) -> None:
        """Collective. Give back requests and memory; twice is once."""
        self._freed = True
        self._algorithm.free()


def _checked(factors: LineFactors | None, n: int, parts: int, real: bool) -> LineFactors:
    """The factors given, if they fit, or the best ones."""
    if factors is None:
        return choose_factors(n, parts, real)
    product = factors.n1 * factors.n2
    least = n + (n // 2 + 1 if real else n) - 1
    if n < 1 or factors.n1 < 1 or (product < least if factors.padded else product != n):
        raise PatternError(f"{factors} do not fit a line of {n} elements")
    return factors


class OneRank:
    """Local. A line that is not distributed: a kernel does it all."""

    def __init__(self, real: bool, selection: Selection) -> None:
        self._selection = selection
        self._kinds = ("r2c", "c2r") if real else ("c2c", "c2c")

    def exchanges(self, forward: bool) -> list[Request]:
        """Local. None."""
        return []

    def forward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Local. To the spectrum."""
        self._run(self._kinds[0], True, source, target, factor)

    def backward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Local. From the spectrum."""
        self._run(self._kinds[1], False, source, target, factor)

    def _run(
        self,
        kind: str,
        forward: bool,
        source: NDArray[Any],
        target: NDArray[Any],
        factor: float,
    ) -> None:
        same = source.__array_interface__ == target.__array_interface__
        if not same and np.shares_memory(source, target):
            raise PatternError("the two arrays overlap without being the same")
        layouts = Layout.of(source), Layout.of(target)
        run = self._selection.run_for(Task(kind, 0, forward, 0, False, *layouts, same))
        run(source, target)
        if factor != 1.0:
            np.multiply(target, factor, out=target)

    def free(self) -> None:
        """Local. There is nothing to give back."""
