"""Local pieces of distributed matrices: generated rows, the kernel, dtypes. No MPI runs."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from onesided.sparse import stencil7, stencil27
from onesided.sparse.alike import vector_dtype
from onesided.sparse.files import entries
from onesided.sparse.files.matrixmarket import Header
from onesided.sparse.kernels import rows as kernels
from onesided.sparse.preconditioners import amg, blocks


def grid(n, near):
    """The same matrix by Kronecker products; near: 7 or 27 points."""
    eye, line = sparse.eye_array(n), sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n))

    def along(*axes):
        return sparse.kron(axes[0], sparse.kron(axes[1], axes[2]))

    if near == 27:
        around = along(line + eye, line + eye, line + eye) - along(eye, eye, eye)
    else:
        around = along(line, eye, eye) + along(eye, line, eye) + along(eye, eye, line)
    return ((near - 1) * sparse.eye_array(n**3) - around).tocsr()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("stencil", "near"), [(stencil7, 7), (stencil27, 27)])
def test_stencil_is_the_kronecker_product(stencil, near, n):
    mine = stencil(n)
    assert near == 7 or mine.nnz == (3 * n - 2) ** 3
    assert abs(mine - grid(n, near)).max() == 0
    assert mine.has_canonical_format
    assert mine.indices.dtype == np.int32


@pytest.mark.parametrize("stencil", [stencil7, stencil27])
@given(st.lists(st.integers(0, 64), min_size=2, max_size=4).map(sorted))
def test_stencil_rows_are_rows_of_the_whole(stencil, bounds):
    whole = stencil(4)
    for start, stop in itertools.pairwise(bounds):
        rows = stencil(4, (start, stop))
        assert rows.shape == (stop - start, 64)
        assert np.array_equal(rows.toarray(), whole[start:stop].toarray())


def test_stencils_of_grids_that_are_no_cubes():
    whole = stencil27((2, 3, 4))
    near = whole.toarray() != 0
    points = np.array(list(itertools.product(range(2), range(3), range(4))))
    steps = np.abs(points[:, None] - points[None]).max(axis=2)
    assert np.array_equal(near, steps <= 1)
    assert np.array_equal(stencil27((2, 3, 4), (5, 17)).toarray(), whole[5:17].toarray())
    assert stencil7((1, 1, 3)).toarray().tolist() == [[6, -1, 0], [-1, 6, -1], [0, -1, 6]]
    with pytest.raises(ValueError, match="grid with 2 x 0 x 3 points"):
        stencil27((2, 0, 3))
    with pytest.raises(ValueError, match="grid with 2 x 3 points"):
        stencil27((2, 3))


@pytest.mark.parametrize("rows", [(-1, 3), (5, 4), (0, 65)])
def test_stencil_rows_outside_the_grid_are_refused(rows):
    with pytest.raises(ValueError, match=rf"rows {rows[0]} to {rows[1]}"):
        stencil27(4, rows)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("k", [None, 1, 3])
def test_indexed_sum_is_numpys_add_at(dtype, k):
    rng = np.random.default_rng(6)
    shape = () if k is None else (k,)
    index = rng.integers(0, 8, 25)
    values = (rng.random((25, *shape)) - 0.5).astype(dtype)
    values[3] = np.inf
    y = np.ones((9, *shape), dtype)
    expected = y.copy()
    np.add.at(expected, index, values)
    kernels.IndexedSum(index, 9, np.dtype(dtype))(values, y)
    assert np.allclose(y, expected, rtol=1e-5)
    assert np.all(y[8] == 1)


def test_vector_dtype():
    assert vector_dtype(np.dtype("i4"), None) == np.float64
    assert vector_dtype(np.dtype("f4"), None) == np.float32
    assert vector_dtype(np.dtype("f4"), "c16") == np.complex128
    for values, wanted in (("c16", "f8"), ("f2", None), ("f8", "i8"), ("g", None), ("O", None)):
        with pytest.raises(TypeError, match="which can be float32, float64"):
            vector_dtype(np.dtype(values), wanted)


def test_slow_parts_of_libraries_are_imported_when_they_are_needed():
    slow = ["scipy.io", "scipy.linalg", "scipy.sparse.linalg", "scipy.sparse.csgraph", "h5py"]
    program = (
        "import sys, scipy.sparse; own = set(sys.modules); import onesided.sparse;"
        f"print([n for n in {slow} if n in sys.modules and n not in own])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_without_a_compiler_python_reads(monkeypatch):
    monkeypatch.setattr(entries, "_lines", None)
    header = Header("f", "coordinate", "real", "general", (2, 2), 1, 2)
    block = entries.parse_block(header, b"2 1 +3.5\n", 3)
    assert (block.rows[0], block.cols[0], block.values[0]) == (1, 0, 3.5)
    assert entries.parser().startswith("Python")


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("density", [0.0, 0.01, 0.05, 0.5])
def test_aggregates_are_the_same_without_a_compiler(monkeypatch, index, density):
    if amg.loops is None:
        pytest.skip("sparse/preconditioners/loops.c is not compiled")
    half = sparse.random_array((200, 200), density=density, rng=7)
    graph = sparse.csr_array(half + half.T)
    strong = graph.data > 0.3
    places = graph.indptr.astype(index), graph.indices.astype(index)
    found = amg._around(*places, strong)
    monkeypatch.setattr(amg, "loops", None)
    assert found.tolist() == amg._around(*places, strong).tolist()
    assert set(found.tolist()) == set(range(found.max() + 1))
    sizes = np.bincount(found)
    assert sizes.max() > 1 or density < 0.01


@pytest.mark.parametrize("kind", ["f8", "c16"])
def test_factors_on_the_pattern_are_the_same_without_a_compiler(monkeypatch, kind):
    if blocks.loops is None:
        pytest.skip("sparse/preconditioners/loops.c is not compiled")
    whole = sparse.random_array((60, 60), density=0.1, rng=3).astype(kind)
    block = sparse.csr_array(whole + whole.conj().T + 10 * sparse.eye_array(60))
    r = np.arange(1.0, 61) + (1j if kind == "c16" else 0)
    made = blocks.incomplete(block, False)
    assert made.definite
    rest = block @ made.solve(r) - r
    assert 0 < np.abs(rest).max() < 0.5 * np.abs(r).max()
    compiled = made.solve(r)
    monkeypatch.setattr(blocks, "loops", None)
    assert np.allclose(blocks.incomplete(block, False).solve(r), compiled, rtol=1e-12)
    line = sparse.diags_array([-1.0, 4, -2], offsets=[-1, 0, 1], shape=(9, 9))
    exact = blocks.incomplete(sparse.csr_array(line), False)  # without fill L U is the matrix
    assert np.allclose(line @ exact.solve(np.ones(9)), 1)
    assert not exact.definite


def test_factors_without_a_pivot_are_refused():
    with pytest.raises(ValueError, match="row 1 of the block has a zero pivot"):
        blocks.incomplete(sparse.csr_array(np.array([[1.0, 1], [1, 1]])), False)
    with pytest.raises(ValueError, match="row 0 of the block"):
        blocks.incomplete(sparse.csr_array(np.array([[0.0, 1], [1, 1]])), False)


def test_rows_without_couplings_are_in_no_aggregate():
    line = sparse.diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(9, 9)).toarray()
    line[[0, 8], :], line[:, [0, 8]] = 0, 0
    line[[0, 8], [0, 8]] = 1
    local = sparse.csr_array(line)
    found = amg._aggregates(local, local.diagonal(), np.arange(9), 0.08)
    assert found[0] == found[8] == -1
    assert set(found[1:8].tolist()) == set(range(found.max() + 1))
    T, modes, nodes = amg._tentative(local, found, np.ones((9, 1)))
    assert T.shape == (9, found.max() + 1)
    assert T[[0, 8]].nnz == 0
    assert len(modes) == len(nodes) == T.shape[1]
