"""Global arrays, their spectra and their blocks, for the cases of the FFT."""

from __future__ import annotations

import numpy as np
import scipy.fft

from onesided.pencilfft import newDistArray


def whole(shape, dtype, seed):
    """Local. A global array of random numbers, the same on all ranks."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def spectrum(values, axes=None, norm="forward"):
    """Local. What scipy.fft makes of the global array."""
    function = scipy.fft.rfftn if values.dtype.kind == "f" else scipy.fft.fftn
    return function(values, axes=axes, norm=norm)


def block(plan, values, forward_output=False):
    """Local. This rank's part of a global array."""
    array = newDistArray(plan, forward_output)
    array[...] = values[plan.local_slice(forward_output)]
    return array


def close(found, expected, char="d"):
    """Local. Blocks that may be empty; ``char`` tells the precision."""
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    tolerance = {"f": 2e-5, "d": 1e-12}[char.lower()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale * tolerance)
