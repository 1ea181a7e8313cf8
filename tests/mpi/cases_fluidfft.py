"""The method of fluidfft: what its base class asks for, on fields that NumPy transforms, too.

Without fluidfft a stand-in is its base, whose constructor keeps the shape.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import entry_points
from types import ModuleType

import numpy as np


class Base:
    def __init__(self, *shape):
        self.shape = shape


def plugin():
    """The class that fluidfft would get."""
    (found,) = entry_points(group="fluidfft.plugins", name="fft3d.mpi_with_onesided")
    try:
        importlib.import_module("fluidfft.fft3d.base")
    except ImportError:
        for name in ("fluidfft", "fluidfft.fft3d", "fluidfft.fft3d.base"):
            sys.modules[name] = ModuleType(name)
        sys.modules["fluidfft.fft3d.base"].BaseFFTMPI = Base
    return found.load().FFTclass


def case_fields_and_spectra(comm, seed):
    """Both calls of each direction; arrays of earlier results stay as they are."""
    shape = 8, 6, 10
    made = plugin()(*shape)
    whole = np.random.default_rng(seed).random(shape)
    spectrum = np.fft.rfftn(whole) / whole.size
    assert made.get_shapeX_seq() == shape
    assert made.get_shapeK_seq() == spectrum.shape

    def part(array, first, local):
        return array[tuple(slice(a, a + n) for a, n in zip(first, local, strict=True))]

    mine = part(whole, made.get_seq_indices_first_X(), made.get_shapeX_loc())
    wanted = part(spectrum, made.get_seq_indices_first_K(), made.get_shapeK_loc())
    field, into = made.create_arrayX(), made.create_arrayK(0)
    field[:] = mine
    found = made.fft(field)
    np.testing.assert_allclose(found, wanted, atol=1e-14)
    made.fft_as_arg(2 * field, into)
    np.testing.assert_allclose(into, 2 * wanted, atol=1e-14)
    back = made.ifft(found)
    made.ifft_as_arg(into, field)
    np.testing.assert_allclose(found, wanted, atol=1e-14)
    np.testing.assert_allclose(back, mine, atol=1e-14)
    np.testing.assert_allclose(field, 2 * mine, atol=1e-14)
    made._plan.destroy()
