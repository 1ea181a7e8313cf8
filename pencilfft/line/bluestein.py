"""Bluestein's algorithm: a transform of any length as a convolution of a length that suits.

As ``2 j k = j**2 + k**2 - (k - j)**2``, coefficient k of a line of n elements is ``chirp(k)`` times
the sum over j of ``line(j) chirp(j)`` and ``1 / chirp(k - j)``, where ``chirp(m)`` is
``exp(-1j pi m**2 / n)``: a convolution. It is done by two transforms of a longer, padded line by
the four-step algorithm; between them the four-step order is as good as the natural one, so that
four exchanges are enough.

Source: L. I. Bluestein, A linear filtering approach to the computation of the discrete Fourier
transform, IEEE Trans. Audio Electroacoustics 18 (1970) 451.
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
from onesided.pencilfft.line.chunks import Chunk, Side, cut, plan_chunks, times
from onesided.pencilfft.line.exchange import (
    Crossing,
    ToColumns,
    ToFlat,
    crossing_forms,
    line_forms,
)
from onesided.pencilfft.line.layout import LineLayout
from onesided.pencilfft.line.roots import chirp, twiddles
from onesided.pencilfft.line.workspace import Form, LineWorkspace


class Bluestein:
    """Both directions of a line of ``length`` elements, padded to the m1 m2 of ``factors``.

    ``dtype`` is that of the line; a real one goes to n // 2 + 1 coefficients, and the convolution
    then has room for just these. Both sides are in natural order. Memory: four parts of the
    padded line and one of the line as complex numbers.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        length: int,
        factors: tuple[int, int],
        dtype: np.dtype[Any],
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective. Errors are agreed; what they leave behind is given back."""
        m1, m2 = self._factors = factors
        size, rank = comm.size, comm.rank
        self._real = dtype.kind == "f"
        self._length = length
        spectral = np.result_type(dtype, np.complex64)
        cuts = tuple(block(m2, size, index) for index in range(size))
        self._columns = range(*cuts[rank])
        count = length // 2 + 1 if self._real else length
        line = LineLayout(length, m2, size, rank, cuts)
        spectrum = LineLayout(count, m2, size, rank, cuts)
        forms: list[Form] = [
            *line_forms(line, dtype),
            *line_forms(spectrum, spectral),
            *crossing_forms(line, m1, spectral),
        ]
        self._workspace = workspace = LineWorkspace(comm, forms, method, info)
        try:
            self._across = Crossing(workspace, line, m1, spectral)
            self._back = Crossing(workspace, line, m1, spectral, back=True)
            self._forward = self._backward = (
                ToColumns(workspace, line, dtype),
                ToFlat(workspace, spectrum, spectral),
            )
            if self._real:
                self._backward = (
                    ToColumns(workspace, spectrum, spectral),
                    ToFlat(workspace, line, dtype),
                )
            with agreed(comm):
                self._plan(selection)
            self._make_filter(count)
        except Exception:
            workspace.free()
            raise

    def exchanges(self, forward: bool) -> list[Request]:
        """Local. The persistent requests of one direction, in the order of their use."""
        if not self._workspace.requests:
            return []
        begin, end = self._forward if forward else self._backward
        between = (*self._across.requests, *self._back.requests)
        return [*begin.requests, *between, *end.requests]

    def _plan(self, selection: Selection) -> None:
        """Local. The tables, and the transforms of columns and rows, chunk by chunk."""
        m1, m2 = self._factors
        rows = self._across.received
        dtype = rows.dtype
        self._twiddles = twiddles(range(m1), self._columns, m1 * m2, dtype)
        self._chirp = np.empty((-(-self._length // m2), len(self._columns)), dtype)
        for row, values in enumerate(self._chirp):
            values[...] = chirp(row * m2 + np.array(self._columns, np.int64), self._length)
        self._filter = np.empty_like(rows)
        parts = cut(len(self._columns), 3 * m1 * dtype.itemsize)
        work = Side.of_scratch(m1, parts, dtype, 0)
        self._columns_forward = plan_chunks(selection, "c2c", True, parts, work, work)
        self._columns_backward = plan_chunks(selection, "c2c", False, parts, work, work)
        parts = cut(len(rows), 3 * m2 * dtype.itemsize)
        work, sent = Side.of_scratch(m2, parts, dtype, 1), Side(self._back.sent, 1)
        self._rows_forward = plan_chunks(selection, "c2c", True, parts, Side(rows, 1), work)
        self._rows_backward = plan_chunks(selection, "c2c", False, parts, sent, sent)

    def _make_filter(self, count: int) -> None:
        """Collective. The spectrum of 1 / chirp, divided by the length of the convolution."""
        m1, m2 = self._factors
        rows = m2 * np.arange(m1)[:, None]
        with agreed(self._workspace.comm):
            for chunk in self._columns_forward:
                shifts = rows + np.array(self._columns[chunk.part], np.int64)
                shifts[shifts > m1 * m2 - self._length] -= m1 * m2
                inverse = np.conjugate(chirp(shifts, self._length))
                np.copyto(chunk.before, np.where(shifts < count, inverse, 0), casting="same_kind")
                self._finish_columns(chunk)
        self._across()
        for chunk in self._rows_forward:
            chunk.transform()
            np.multiply(chunk.after, 1 / (m1 * m2), out=self._filter[chunk.part])

    def _finish_columns(self, chunk: Chunk) -> None:
        """Local. Transform filled columns, and make them ready to be sent."""
        chunk.transform()
        sent = self._across.sent[:, chunk.part]
        np.multiply(chunk.after, self._twiddles[:, chunk.part], out=sent)

    def forward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. ``target`` becomes ``factor`` times the spectrum of ``source``."""
        begin, end = self._forward
        begin(source)
        self._convolve(begin, False)
        for chunk in self._columns_backward:
            self._begin_columns(chunk)
            sent = end.columns[:, chunk.part]
            np.multiply(chunk.after[: len(sent)], self._chirp[: len(sent), chunk.part], out=sent)
        end(target, factor)

    def backward(self, source: NDArray[Any], target: NDArray[Any], factor: float) -> None:
        """Collective. ``target`` becomes ``factor`` times the line with spectrum ``source``."""
        begin, end = self._backward
        begin(source)
        if self._real:
            self._halve_ends(begin.columns)
        self._convolve(begin, True)
        for chunk in self._columns_backward:
            self._begin_columns(chunk)
            sent = end.columns[:, chunk.part]
            values, table = chunk.after[: len(sent)], self._chirp[: len(sent), chunk.part]
            if self._real:
                values.real *= table.real
                values.imag *= table.imag
                np.add(values.real, values.imag, out=sent)
            else:
                times(table, values, True, sent)
        end(target, 2 * factor if self._real else factor)

    def _convolve(self, begin: ToColumns, conjugate: bool) -> None:
        """Collective. From columns in *received* to the product of spectra, sent and received."""
        layout = begin.layout
        used = layout.rows
        complete = layout.length - (used - 1) * layout.width  # columns of the last row
        begin.columns[-1, max(0, complete - self._columns.start) :] = 0
        for chunk in self._columns_forward:
            table = self._chirp[:used, chunk.part]
            times(table, begin.columns[:, chunk.part], conjugate, chunk.before[:used])
            chunk.before[used:] = 0
            self._finish_columns(chunk)
        self._across()
        for there, back in zip(self._rows_forward, self._rows_backward, strict=True):
            there.transform()
            times(self._filter[there.part], there.after, conjugate, back.before)
            back.transform()
        self._back()

    def _begin_columns(self, chunk: Chunk) -> None:
        """Local. Transform what was received to columns of the result."""
        columns = self._back.received[:, chunk.part]
        times(self._twiddles[:, chunk.part], columns, True, chunk.before)
        chunk.transform()

    def _halve_ends(self, columns: NDArray[Any]) -> None:
        """Local. The two coefficients of a half spectrum that have no mirror image."""
        ends = {0} if self._length % 2 else {0, self._length // 2}
        for end in ends:
            row, column = divmod(end, self._factors[1])
            if column in self._columns:
                columns[row, column - self._columns.start] *= 0.5

    def free(self) -> None:
        """Collective. Give back requests and memory."""
        self._workspace.free()
