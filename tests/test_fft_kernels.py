"""Every kernel against scipy.fft, and chains of them on blocks of planes. No MPI."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from onesided.collectives.errors import PatternError, UnsupportedError
from onesided.pencilfft import local
from onesided.pencilfft.kernels import registry, scipy_kernel
from onesided.pencilfft.local import LocalTransform

NORM = ("backward", "ortho", "forward")
INVERSE = ("forward", "ortho", "backward")
TOLERANCE = {"f": 2e-5, "d": 1e-12}


def kernels():
    """Every kernel whose package is installed, and the one that stands in for SciPy's."""
    found = {"scipy-public": scipy_kernel.ScipyKernel()}
    for name in registry.BACKENDS:
        try:
            found[registry.choose_backend(name)] = registry.load_kernel(name)
        except UnsupportedError:
            continue
    return found


KERNELS = kernels()


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


def data(shape, char, seed=0):
    """Random numbers; complex for F and D."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if char in "FD":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(char)


def strided(array):
    """The same numbers in an array that is not contiguous and lies in another order."""
    order = (1, 0, 2)
    memory = np.zeros(tuple(2 * array.shape[i] for i in order), array.dtype).transpose(1, 0, 2)
    view = memory[::2, ::2, : array.shape[2]]
    view[...] = array
    return view


@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("scale", [0, 1, 2])
@pytest.mark.parametrize("layout", [np.array, strided])
def test_kernels_agree_with_scipy(kernel, char, axis, scale, layout):
    shape = (6, 5, 7)
    real, kind = layout(data(shape, char)), char.upper()
    tolerance = TOLERANCE[char] * 10
    original = real.copy()
    expected = scipy.fft.rfft(real, axis=axis, norm=NORM[scale])
    half = layout(np.zeros_like(expected))
    kernel.r2c(real, half, axis, scale)
    np.testing.assert_allclose(half, expected, atol=tolerance)
    np.testing.assert_array_equal(real, original)
    kept, back = half.copy(), layout(np.zeros(shape, char))
    kernel.c2r(half, back, axis, scale)
    wanted = scipy.fft.irfft(kept, shape[axis], axis=axis, norm=INVERSE[scale])
    np.testing.assert_allclose(back, wanted, atol=tolerance)
    np.testing.assert_array_equal(half, kept)
    for forward, norm, function in ((True, NORM, scipy.fft.fft), (False, INVERSE, scipy.fft.ifft)):
        values = layout(data(shape, kind))
        values.flags.writeable = False
        expected = function(values, axis=axis, norm=norm[scale])
        result = layout(np.zeros(shape, kind))
        kernel.c2c(values, result, axis, forward, scale)
        np.testing.assert_allclose(result, expected, atol=tolerance)
        result[...] = values
        kernel.c2c(result, result, axis, forward, scale)
        np.testing.assert_allclose(result, expected, atol=tolerance)


def test_scipy_kernel_uses_the_extension_that_writes_in_place():
    """Not a promise, but what every SciPy until now allows: if it goes, look at it again."""
    assert isinstance(scipy_kernel.KERNEL, scipy_kernel.PocketfftKernel)


def test_unknown_backends_are_refused():
    with pytest.raises(PatternError, match=r"'fftpack'.*scipy"):
        registry.choose_backend("fftpack")
    assert registry.choose_backend("auto") in registry.BACKENDS


def test_a_backend_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setitem(registry.BACKENDS, "ducc0", "package_that_does_not_exist")
    with pytest.raises(UnsupportedError, match="package_that_does_not_exist"):
        registry.choose_backend("ducc0")
    assert registry.choose_backend("auto") == "scipy"


@pytest.mark.parametrize("cache_bytes", [1, 3000, 1 << 30])
@pytest.mark.parametrize("axes", [(2,), (2, 1), (0,), (1,), (0, 1), (0, 2)])
@pytest.mark.parametrize("in_place", [False, True])
def test_chains_of_complex_transforms(kernel, monkeypatch, cache_bytes, axes, in_place):
    monkeypatch.setattr(local, "CACHE_BYTES", cache_bytes)
    shape, kind = (5, 6, 7), np.dtype(complex)
    source, target = data(shape, "D"), np.zeros(shape, complex)
    expected = scipy.fft.fftn(source, axes=axes, norm="ortho")
    kept = source.copy()
    chain = LocalTransform(kernel, axes, True, (shape, shape), (kind, kind), in_place)
    if in_place:
        target[...] = source
    chain(source, target, 1)
    np.testing.assert_allclose(target, expected, atol=1e-12)
    np.testing.assert_array_equal(source, kept)


@pytest.mark.parametrize("cache_bytes", [1, 1 << 30])
@pytest.mark.parametrize("axes", [(2,), (2, 1), (0,), (0, 2), (0, 1)])
def test_chains_of_real_transforms_and_back(kernel, monkeypatch, cache_bytes, axes):
    monkeypatch.setattr(local, "CACHE_BYTES", cache_bytes)
    shape = (5, 6, 7)
    half = tuple(n // 2 + 1 if i == axes[0] else n for i, n in enumerate(shape))
    kinds = (np.dtype(float), np.dtype(complex))
    source, target = data(shape, "d"), np.zeros(half, complex)
    forward = LocalTransform(kernel, axes, True, (shape, half), kinds)
    forward(source, target)
    expected = scipy.fft.rfftn(source, axes=axes[::-1])
    np.testing.assert_allclose(target, expected, atol=1e-12)
    kept, back = target.copy(), np.zeros(shape)
    backward = LocalTransform(kernel, axes[::-1], False, (half, shape), kinds[::-1])
    backward(target, back, 2)
    np.testing.assert_allclose(back, source, atol=1e-12)
    np.testing.assert_array_equal(target, kept)


def test_chains_on_nothing(kernel):
    kind = np.dtype(complex)
    chain = LocalTransform(kernel, (0,), True, ((4, 0, 3), (4, 0, 3)), (kind, kind))
    chain(np.zeros((4, 0, 3), complex), np.zeros((4, 0, 3), complex))
