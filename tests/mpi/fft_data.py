"""Global arrays, their spectra and their blocks, for the cases of the FFT."""

from __future__ import annotations

import numpy as np
import scipy.fft
from cases import skip_if_known

from onesided.collectives import UnsupportedError
from onesided.pencilfft import PFFT, newDistArray

METHOD = "rma-notify"  # of the cases that are not about methods


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
    tolerance = {"f": 2e-5, "d": 1e-12, "g": 1e-17}[char.lower()]
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale * tolerance)


def planned(comm, shape, method=METHOD, **options):
    """A plan, or the case is skipped where this MPI does not support the method."""
    try:
        return PFFT(comm, shape, method=method, **options)
    except UnsupportedError as error:
        skip_if_known(error, method)


def there_and_back(plan, values, expected, char):
    """Forward and backward on this rank's blocks; inputs must stay what they were. The spectrum."""
    u = block(plan, values)
    kept = u.copy()
    u_hat = plan.forward(u)
    assert u_hat.dtype == plan.dtype(True)
    close(u_hat, expected[plan.local_slice()], char)
    kept_hat = u_hat.copy()
    close(plan.backward(u_hat.copy()), kept, char)
    np.testing.assert_array_equal(u, kept)
    plan.backward(u_hat)
    np.testing.assert_array_equal(u_hat, kept_hat)
    return kept_hat
