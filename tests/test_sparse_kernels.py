"""The local products: each against SciPy's public one, and how they are chosen."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from scipy import sparse

from onesided.sparse.kernels import mkl_kernel, registry
from onesided.sparse.kernels.scipy_calls import Csr
from onesided.sparse.kernels.sorted_rows import WINDOW, irregular

SHAPES = [(50, 40), (0, 5), (5, 0), (3 * WINDOW + 7, 30)]


@pytest.fixture(params=list(registry.KERNELS))
def kernel(request):
    if request.param not in registry.available():
        pytest.skip(f"kernel {request.param} is not installed")
    return request.param


def matrix(shape, dtype, index):
    made = sparse.random_array(shape, density=0.1, rng=np.random.default_rng(3)).tocsr()
    assert made.nnz or not min(shape)
    values = made.data.astype(dtype)
    if values.dtype.kind == "c":
        values *= np.exp(1j * np.arange(len(values))).astype(dtype)
    arrays = made.indptr.astype(index), made.indices.astype(index), values
    return Csr(shape[1], *arrays), sparse.csr_array((values, made.indices, made.indptr), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_overwrite_their_result(kernel, dtype, index, k, shape):
    rows, whole = matrix(shape, dtype, index)
    vectors = () if k is None else (k,)
    multiply = registry.KERNELS[kernel].make(rows)
    for turn in range(2):
        x = np.random.default_rng(turn).random((shape[1], *vectors)).astype(dtype)
        y = np.full((shape[0], *vectors), np.nan, dtype)
        multiply(x, y)
        rounding = 50 * np.finfo(dtype).eps * (abs(whole) @ abs(x))
        assert np.all(np.abs(y - whole @ x) <= rounding)


def test_values_that_are_no_numbers_stay_in_their_rows(kernel):
    rows, whole = matrix((50, 40), "f8", "i4")
    x = np.random.default_rng(1).random(40)
    x[3], x[7] = np.nan, np.inf
    y = np.zeros(50)
    registry.KERNELS[kernel].make(rows)(x, y)
    assert np.array_equal(np.isnan(y), np.isnan(whole @ x))
    assert np.isnan(y).any()
    assert not np.isnan(y).all()


def test_sorting_rows_keeps_the_bits():
    rows, _ = matrix((3 * WINDOW + 7, 30), "f8", "i4")
    x, one, other = np.random.default_rng(1).random(30), *np.zeros((2, len(rows)))
    registry.KERNELS["scipy"].make(rows)(x, one)
    registry.KERNELS["scipy-sorted"].make(rows)(x, other)
    assert np.array_equal(one, other)
    assert np.any(one)


def test_names_of_kernels(monkeypatch):
    assert registry.named("auto") == registry.available()
    assert registry.available()[:2] == ["scipy", "scipy-sorted"]
    assert registry.named("scipy") == ["scipy"]
    with pytest.raises(ValueError, match="no kernel 'x'; there are auto, scipy, scipy-sorted, mkl"):
        registry.named("x")
    offer = registry.Offer(registry.KERNELS["mkl"].make, lambda: False, "MKL")
    monkeypatch.setitem(registry.KERNELS, "mkl", offer)
    with pytest.raises(ValueError, match="'mkl' needs MKL, which is not installed"):
        registry.named("mkl")


def test_what_mkl_refuses_is_an_error(monkeypatch):
    if "mkl" not in registry.available():
        pytest.skip("kernel mkl is not installed")
    rows, _ = matrix((50, 40), "f8", "i4")
    calls = mkl_kernel._calls("d", 4)
    refuse = ctypes.CFUNCTYPE(ctypes.c_int, *calls["optimize"].argtypes)(lambda name: 2)
    monkeypatch.setattr(mkl_kernel, "_calls", lambda *key: {**calls, "optimize": refuse})
    with pytest.raises(MemoryError, match="status 2"):
        mkl_kernel.MklKernel(rows, optimized=True)
    mkl_kernel.MklKernel(rows, optimized=False)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([], False), ([3] * 50, False), ([2, 5] * 25, True), ([99, 200] * 25, False), ([0, 1], True)],
    ids=["none", "alike", "short", "long", "two"],
)
def test_only_short_rows_of_changing_length_are_worth_sorting(lengths, expected):
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    count = int(indptr[-1])
    rows = Csr(300, indptr, np.zeros(count, np.int64), np.ones(count))
    assert irregular(rows) is expected
