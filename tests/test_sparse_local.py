"""Local pieces of distributed matrices: generated rows, the kernel, dtypes. No MPI runs."""

from __future__ import annotations

import importlib.util
import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import _sparsetools

from onesided.sparse import product, stencil27
from onesided.sparse.matrix import vector_dtype


def grid27(n):
    """The same matrix by Kronecker products."""
    band = sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(n, n))
    near = sparse.kron(band, sparse.kron(band, band))
    return (27 * sparse.eye_array(n**3) - near).tocsr()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_stencil_is_the_kronecker_product(n):
    mine = stencil27(n)
    assert mine.nnz == (3 * n - 2) ** 3
    assert abs(mine - grid27(n)).max() == 0
    assert mine.has_sorted_indices
    assert mine.indices.dtype == np.int32


@given(st.lists(st.integers(0, 64), min_size=2, max_size=4).map(sorted))
def test_stencil_rows_are_rows_of_the_whole(bounds):
    whole = stencil27(4)
    for start, stop in itertools.pairwise(bounds):
        rows = stencil27(4, (start, stop))
        assert rows.shape == (stop - start, 64)
        assert np.array_equal(rows.toarray(), whole[start:stop].toarray())


@pytest.mark.parametrize("rows", [(-1, 3), (5, 4), (0, 65)])
def test_stencil_rows_outside_the_grid_are_refused(rows):
    with pytest.raises(ValueError, match=rf"rows {rows[0]} to {rows[1]}"):
        stencil27(4, rows)


def test_without_scipys_kernel_the_public_product_serves(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(_sparsetools, "csr_matvec")
        spec = importlib.util.spec_from_file_location("product_without_kernel", product.__file__)
        copy = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, copy)
        spec.loader.exec_module(copy)
    assert copy.csr_matvec is not product.csr_matvec
    matrix = sparse.random_array((9, 7), density=0.4, rng=1, format="csr")
    assert matrix.nnz
    x, y = np.arange(7.0), np.ones(9)
    copy.csr_matvec(9, 7, matrix.indptr, matrix.indices, matrix.data, x, y)
    assert np.allclose(y, 1 + matrix @ x)


def test_vector_dtype():
    assert vector_dtype(np.dtype("i4"), None) == np.float64
    assert vector_dtype(np.dtype("f4"), None) == np.float32
    assert vector_dtype(np.dtype("f4"), "c16") == np.complex128
    for values, wanted in (("c16", "f8"), ("f2", None), ("f8", "i8"), ("g", None), ("O", None)):
        with pytest.raises(TypeError, match="which can be float32, float64"):
            vector_dtype(np.dtype(values), wanted)
