"""The four-step algorithm: a transform of a distributed line by transforms of rows and columns.

The n = n1 n2 elements of a line are a matrix of n1 rows, element j in row j // n2. Its columns are
transformed, multiplied by roots of unity, and turned into rows, which are transformed; row k1 of
the result then holds the coefficients k1 + n1 k2, k2 = 0, 1, ... That is the *four-step order*; a
further exchange makes it the natural one. Real data need the rows 0 to n1 // 2 only, which halves
all work and all messages for odd and even n alike.

Source: D. H. Bailey, FFTs in external or hierarchical memory, J. Supercomputing 4 (1990) 23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import Request
from onesided.collectives.agreement import agreed
from onesided.pencilfft.decomposition import block
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.line.chunks import Side, cut, plan_chunks, times
from onesided.pencilfft.line.exchange import Crossing, ToColumns, ToFlat, crossing_forms, line_forms
from onesided.pencilfft.line.layout import LineLayout
from onesided.pencilfft.line.roots import twiddles
from onesided.pencilfft.line.spectrum import FullSpectrum, HalfSpectrum, Spectrum
from onesided.pencilfft.line.workspace import Form, LineWorkspace


class FourStep:
    """Both directions of a line of n1 n2 elements, ``factors`` being n1 and n2.

    ``dtype`` is that of the line; a real one goes to the n // 2 + 1 coefficients of its half
    spectrum. ``transposed``: the spectrum stays in the four-step order. Memory: three parts of
    the line as complex numbers, one of them the roots of unity.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        factors: tuple[int, int],
        dtype: np.dtype[Any],
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
        transposed: bool,
    ) -> None:
        """Collective. Errors are agreed; what they leave behind is given back."""
        n1, n2 = factors
        size, rank = comm.size, comm.rank
        self._transposed = transposed
        spectral = np.result_type(dtype, np.complex64)
        real = dtype.kind == "f"
        half = n1 // 2 + 1 if real else n1
        cuts = tuple(block(n2, size, index) for index in range(size))
        line = LineLayout(n1 * n2, n2, size, rank, cuts)
        kind = HalfSpectrum if real else FullSpectrum
        #: Which coefficients a rank has.
        self.spectrum: Spectrum = kind(n1, n2, size, rank)
        places = tuple(self.spectrum.cut(index) for index in range(size))
        natural = LineLayout(self.spectrum.length, n1, size, rank, places, self.spectrum.mirrored)
        forms: list[Form] = [
            *line_forms(line, dtype),
            *crossing_forms(line, half, spectral),
            *line_forms(natural, spectral),
        ]
        self._workspace = workspace = LineWorkspace(comm, forms, method, info)
        try:
            self._connect(line, natural, half, dtype, spectral)
            with agreed(comm):
                columns = range(*cuts[rank])
                self._twiddles = twiddles(range(half), columns, n1 * n2, spectral)
                self._plan(selection, real)
        except Exception:
            workspace.free()
            raise

    def _connect(
        self,
        line: LineLayout,
        natural: LineLayout,
        half: int,
        dtype: np.dtype[Any],
        spectral: np.dtype[Any],
    ) -> None:
        """Collective. The exchanges of forward, then those of backward."""
        workspace = self._workspace
        self._scatter = ToColumns(workspace, line, dtype)
        self._across = Crossing(workspace, line, half, spectral)
        self._exchanges = {True: [*self._scatter.requests, *self._across.requests], False: []}
        if not self._transposed:
            self._to_natural = ToFlat(workspace, natural, spectral)
            self._of_natural = ToColumns(workspace, natural, spectral)
            self._exchanges[True] += self._to_natural.requests
            self._exchanges[False] += self._of_natural.requests
        self._back = Crossing(workspace, line, half, spectral, back=True)
        self._gather = ToFlat(workspace, line, dtype)
        self._exchanges[False] += [*self._back.requests, *self._gather.requests]

    def exchanges(self, forward: bool) -> list[Request]:
        """Local. The persistent requests of one direction, in the order of their use."""
        return self._exchanges[forward]

    def _plan(self, selection: Selection, real: bool) -> None:
        """Local. The transforms of columns and rows, chunk by chunk."""
        values, rows = self._scatter.columns, self._across.received
        spectral = rows.dtype
        parts = cut(values.shape[1], 2 * len(values) * spectral.itemsize)
        work = Side.of_scratch(len(self._twiddles), parts, spectral, 0)
        there, back = ("r2c", "c2r") if real else ("c2c", "c2c")
        self._columns_forward = plan_chunks(selection, there, True, parts, Side(values, 0), work)
        self._columns_backward = plan_chunks(
            selection, back, False, parts, work, Side(self._gather.columns, 0)
        )
        parts = cut(len(rows), 2 * rows.shape[1] * spectral.itemsize)
        work = Side.of_scratch(rows.shape[1], parts, spectral, 1)
        self._rows_forward = plan_chunks(selection, "c2c", True, parts, Side(rows, 1), work)
        self._rows_backward = plan_chunks(
            selection, "c2c", False, parts, work, Side(self._back.sent, 1)
        )

    def forward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. ``target`` becomes ``factor`` times the spectrum of ``source``."""
        self._scatter(source)
        for chunk in self._columns_forward:
            chunk.transform()
            columns = self._across.sent[:, chunk.part]
            np.multiply(chunk.after, self._twiddles[:, chunk.part], out=columns)
        self._across()
        if self._transposed:
            places = self.spectrum.in_line(target)
            self._finish_rows(places, factor)
        else:
            places = self.spectrum.in_columns(self._to_natural.columns)
            self._finish_rows(places, 1.0)
            self._to_natural(target, factor)

    def _finish_rows(self, places: Any, factor: float) -> None:
        for chunk in self._rows_forward:
            chunk.transform()
            self.spectrum.write(chunk.after, chunk.part, places, factor)

    def backward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. ``target`` becomes ``factor`` times the line with spectrum ``source``."""
        if self._transposed:
            places = self.spectrum.in_line(source)
        else:
            self._of_natural(source)
            places = self.spectrum.in_columns(self._of_natural.columns)
        for chunk in self._rows_backward:
            self.spectrum.read(places, chunk.part, chunk.before)
            chunk.transform()
        self._back()
        for chunk in self._columns_backward:
            columns = self._back.received[:, chunk.part]
            times(self._twiddles[:, chunk.part], columns, True, chunk.before)
            chunk.transform()
        self._gather(target, factor)

    def free(self) -> None:
        """Collective. Give back requests and memory."""
        self._exchanges = {True: [], False: []}
        self._workspace.free()
