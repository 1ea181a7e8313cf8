"""Kernel: the FFTW that pyfftw brings."""

from __future__ import annotations

import pyfftw.pyfftw

from onesided.pencilfft.kernels.fftw import FftwKernel

KERNEL = FftwKernel(
    "pyfftw", [(prefix, pyfftw.pyfftw.__file__) for prefix in ("fftw", "fftwf", "fftwl")]
)
