"""Kernel: the FFTW that mpi4py-fft was built with."""

from __future__ import annotations

from mpi4py_fft.fftw.factory import fftlib

from onesided.pencilfft.kernels.fftw import FftwKernel

KERNEL = FftwKernel(
    "mpi4py-fft",
    [(module.__name__.split(".")[-1].split("_")[0], module.__file__) for module in fftlib.values()],
)
