"""Is a parallel Fourier transform right? Two ways to know, by the size of the array."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.fft
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.report import byte_count
from onesided.apps.verdict import Verdict
from onesided.collectives import sums
from onesided.pencilfft import PFFT, newDistArray

GATHER_LIMIT = 1 << 28  # bytes of the global input that rank 0 may hold and transform
SLACK = 20.0  # rounding errors allowed, in units of the dtype's epsilon times log2(N)


class FourierCheck:
    """Collective. Checks plans of one shape, dtype and grid with one input.

    An input of at most ``GATHER_LIMIT`` bytes is gathered on rank 0 and transformed with
    ``scipy.fft``. A larger one is checked by Parseval's identity, and by a plane wave whose
    transform is known, on every rank.
    """

    def __init__(self, comm: MPI.Intracomm, plan: PFFT, source: NDArray[Any]) -> None:
        self._comm, self._source = comm, source
        shape = plan.global_shape(False)
        count = int(np.prod(shape))
        total = count * plan.dtype(False).itemsize
        epsilon = float(np.finfo(plan.dtype(False)).eps)
        self._tolerance = float(SLACK * epsilon * max(1.0, np.log2(count)))
        self._gathers = total <= GATHER_LIMIT
        self._reference: NDArray[Any] | None = None
        limit = byte_count(GATHER_LIMIT)
        if self._gathers:
            whole = gathered(comm, source, plan.local_slice(False), shape)
            if whole is not None:
                is_complex = whole.dtype.kind == "c"
                transform: Any = scipy.fft.fftn if is_complex else scipy.fft.rfftn
                self._reference = transform(whole, norm="forward")
            self.against = f"scipy.fft on the gathered array (it has at most {limit}), and back"
        else:
            self.against = (
                f"Parseval's identity, a plane wave (the array has over {limit}), and back"
            )

    def __call__(self, plan: PFFT) -> Verdict:
        """Collective. Transform, compare, transform back, compare."""
        spectrum = newDistArray(plan, True, val=np.nan)
        plan.forward(self._source, spectrum, normalize=True)
        if self._gathers:
            error = self._against_scipy(plan, spectrum)
        else:
            error = max(self._parseval(plan, spectrum), self._plane_wave(plan))
        back = newDistArray(plan, False, val=np.nan)
        plan.backward(spectrum, back, normalize=False)
        error = _worst(error, self._distance(back, self._source))
        return Verdict(error, self._tolerance)

    def _against_scipy(self, plan: PFFT, spectrum: NDArray[Any]) -> float:
        whole = gathered(self._comm, spectrum, plan.local_slice(True), plan.global_shape(True))
        error = 0.0
        if whole is not None and self._reference is not None:
            scale = np.linalg.norm(self._reference) or 1.0
            error = float(np.linalg.norm(whole - self._reference) / scale)
        return float(self._comm.bcast(error))

    def _parseval(self, plan: PFFT, spectrum: NDArray[Any]) -> float:
        """Sums of squares in both spaces; half a spectrum counts its inner part twice."""
        count = float(np.prod(plan.global_shape(False)))
        power = np.abs(np.asarray(spectrum)) ** 2
        if plan.dtype(False).kind != "c":
            last = plan.local_slice(True)[-1]
            twice = np.arange(last.start, last.stop) * 2 % plan.global_shape(False)[-1] != 0
            power *= 1.0 + twice
        ours = self._sum(float(power.sum(dtype=np.float64)))
        theirs = self._sum(float(np.vdot(self._source, self._source).real)) / count
        return abs(ours - theirs) / (theirs or 1.0)

    def _plane_wave(self, plan: PFFT) -> float:
        """A wave of frequency 1, 2, 3, ... along the axes has one spectral entry, 1."""
        shape = plan.global_shape(False)
        wave = tuple((axis + 1) % length for axis, length in enumerate(shape))
        source = newDistArray(plan, False)
        phase = np.zeros(())
        for axis, part in enumerate(plan.local_slice(False)):
            along = 2 * np.pi * wave[axis] * np.arange(part.start, part.stop) / shape[axis]
            phase = phase + along.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        is_complex = source.dtype.kind == "c"
        source[...] = np.exp(1j * phase) if is_complex else np.cos(phase)
        spectrum = newDistArray(plan, True, val=np.nan)
        plan.forward(source, spectrum, normalize=True)
        expected = np.zeros_like(np.asarray(spectrum))
        opposite = tuple(-k % length for k, length in zip(wave, shape, strict=True))
        for peak, height in ((wave, 1.0),) if is_complex else ((wave, 0.5), (opposite, 0.5)):
            inside = _local_index(peak, plan.local_slice(True))
            if inside is not None:
                expected[inside] += height
        return self._distance(spectrum, expected)

    def _distance(self, array: NDArray[Any], expected: NDArray[Any]) -> float:
        difference = np.asarray(array) - np.asarray(expected)
        size = self._sum(float(np.vdot(expected, expected).real))
        return float(np.sqrt(self._sum(float(np.vdot(difference, difference).real)) / (size or 1)))

    def _sum(self, value: float) -> float:
        return float(sums(self._comm).of(value)[0])


def _worst(one: float, other: float) -> float:
    """Local. The larger, or not a number if one is."""
    return float(np.maximum(one, other))


def _local_index(index: tuple[int, ...], block: tuple[slice, ...]) -> tuple[int, ...] | None:
    """Local. A global index within a block, None where it lies elsewhere."""
    if all(part.start <= i < part.stop for i, part in zip(index, block, strict=True)):
        return tuple(i - part.start for i, part in zip(index, block, strict=True))
    return None


def gathered(
    comm: MPI.Intracomm, block: NDArray[Any], where: tuple[slice, ...], shape: tuple[int, ...]
) -> NDArray[Any] | None:
    """Collective. The global array on rank 0, None elsewhere."""
    places = comm.gather(where)
    if places is None:
        comm.Send(np.ascontiguousarray(block), dest=0)
        return None
    whole = np.full(shape, np.nan, block.dtype)
    whole[where] = block
    for rank in range(1, comm.size):
        part = np.empty_like(whole[places[rank]], order="C")
        comm.Recv(part, source=rank)
        whole[places[rank]] = part
    return whole
