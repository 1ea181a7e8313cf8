"""Our transforms as a method of fluidfft, and so of fluidsim: ``"fft3d.mpi_with_onesided"``.

fluidfft finds it by the entry point, imports it when it is asked for, and asks it for ``FFTclass``.
"""

from __future__ import annotations

from typing import Any

from fluidfft.fft3d.base import BaseFFTMPI
from mpi4py import MPI

from onesided.pencilfft.distarray import newDistArray
from onesided.pencilfft.plan import PFFT


class FFT3DMPIWithOnesided(BaseFFTMPI):  # type: ignore[misc]
    """Real transforms in three dimensions, on all ranks of the world; axes keep their order."""

    def __init__(self, n0: int = 2, n1: int = 2, n2: int = 4) -> None:
        """*Collective.* The shape of the grid: z, y, x."""
        self._plan = PFFT(MPI.COMM_WORLD, (n0, n1, n2), dtype=float)
        self.shapeX, self.shapeK = self.get_shapeX_loc(), self.get_shapeK_loc()
        super().__init__(n0, n1, n2)

    def create_arrayX(self, value: Any = None, shape: Any = None) -> Any:
        """*Local.* This rank's part of a field, filled with the value."""
        return newDistArray(self._plan, False, val=value)

    def create_arrayK(self, value: Any = None, shape: Any = None) -> Any:
        """*Local.* This rank's part of a spectrum, filled with the value."""
        return newDistArray(self._plan, True, val=value)

    def fft_as_arg(self, fieldX: Any, fieldK: Any) -> None:
        """*Collective.* Transform into the second array."""
        self._plan.forward(fieldX, fieldK)

    def ifft_as_arg(self, fieldK: Any, fieldX: Any) -> None:
        """*Collective.* Transform back into the second array."""
        self._plan.backward(fieldK, fieldX)

    ifft_as_arg_destroy = ifft_as_arg

    def fft(self, fieldX: Any) -> Any:
        """*Collective.* The spectrum, in an array of its own."""
        return self._plan.forward(fieldX, self.create_arrayK())

    def ifft(self, fieldK: Any) -> Any:
        """*Collective.* The field, in an array of its own."""
        return self._plan.backward(fieldK, self.create_arrayX())

    def get_shapeX_loc(self) -> tuple[int, ...]:
        """*Local.* The shape of this rank's part of a field."""
        return self._plan.shape(False)

    def get_shapeK_loc(self) -> tuple[int, ...]:
        """*Local.* The shape of this rank's part of a spectrum."""
        return self._plan.shape(True)

    def get_shapeX_seq(self) -> tuple[int, ...]:
        """*Local.* The shape of the whole field."""
        return self._plan.global_shape(False)

    def get_shapeK_seq(self) -> tuple[int, ...]:
        """*Local.* The shape of the whole spectrum."""
        return self._plan.global_shape(True)

    def get_dimX_K(self) -> tuple[int, ...]:
        """*Local.* Which axis of the field each axis of the spectrum is."""
        return 0, 1, 2

    def get_seq_indices_first_X(self) -> tuple[int, ...]:
        """*Local.* Where this rank's part of a field begins."""
        return tuple(part.start for part in self._plan.local_slice(False))

    def get_seq_indices_first_K(self) -> tuple[int, ...]:
        """*Local.* Where this rank's part of a spectrum begins."""
        return tuple(part.start for part in self._plan.local_slice(True))


FFTclass = FFT3DMPIWithOnesided
