"""The entries of distributed matrices: as SciPy arrays, summed, scaled, gathered."""

import numpy as np
from cases import parameters, ranks
from cases_matrix import check, distributed
from cases_sparse import MATRICES, raised
from scipy import sparse

from onesided.sparse import from_rows, from_scipy


def same(mine, theirs):
    """Two sparse arrays with the same shape, dtype and entries."""
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    assert mine.dtype == theirs.dtype, (mine.dtype, theirs.dtype)
    assert np.array_equal(mine.toarray(), theirs.toarray())


@parameters(name=list(MATRICES))
def case_pieces(comm, name, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.csr_array(MATRICES[name](rng)).astype("f8")
    whole.sum_duplicates()
    with distributed(comm, whole) as matrix:
        mine = matrix.local_rows()
        rows, columns = slice(*matrix.row_range), slice(*matrix.col_range)
        same(mine, whole[rows])
        assert mine.nnz == whole[rows].nnz
        same(matrix.own_block(), whole[rows][:, columns])
        blocks = comm.allgather(matrix.diagonal())
        assert np.array_equal(np.concatenate(blocks), whole.diagonal())
        root = comm.size - 1
        gathered = matrix.gather(root)
        assert (gathered is None) == (comm.rank != root)
        if gathered is not None:
            same(gathered, whole)
            assert gathered.nnz == whole.nnz


def case_pieces_are_copies(comm, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.3, rng=rng).tocsr()
    with distributed(comm, whole) as matrix:
        for piece in (matrix.local_rows(), matrix.own_block(), matrix.gather()):
            if piece is not None:
                piece.data[:] = np.nan
        matrix.diagonal()[:] = np.nan
        check(matrix, whole, rng, "A", None)


def case_scaling_leaves_the_callers_arrays_alone(comm, seed):
    rng = np.random.default_rng(seed)
    rows = sparse.csr_array(rng.standard_normal((5, 5 * comm.size)))
    before = rows.copy()
    with from_rows(comm, rows, method="p2p") as matrix:
        matrix.scale(3)
        matrix.scale_rows(np.full(5, 2.0))
        assert np.allclose(matrix.local_rows().toarray(), 6 * before.toarray())
    assert np.array_equal(rows.toarray(), before.toarray())


def case_wrong_factors_are_refused_on_every_rank(comm):
    whole = sparse.eye_array(12, format="csr")
    last = comm.rank == comm.size - 1
    with from_scipy(comm, whole, method="p2p") as matrix:
        n = matrix.row_range[1] - matrix.row_range[0]
        good = np.ones(n)
        for call, kind, words in (
            (lambda: matrix.scale(1j), TypeError, "complex"),
            (lambda: matrix.scale(np.ones(2)), ValueError, "shape"),
            (lambda: matrix.scale_rows(np.ones(n + 1) if last else good), ValueError, "factors"),
            (lambda: matrix.scale_columns(np.ones(n + 1) if last else good), ValueError, "factors"),
            (lambda: matrix.scale_columns(1j * good if last else good), TypeError, "complex"),
            (lambda: matrix.gather(root=comm.size), ValueError, "root"),
        ):
            text = raised(call, kind)
            assert words in text, text
            assert len(set(comm.allgather(text))) == 1
        assert np.all(matrix.diagonal() == 1)


@ranks(at_least=2)
def case_factors_that_differ(comm):
    with from_scipy(comm, sparse.eye_array(12), method="p2p") as matrix:
        try:
            matrix.scale(1 + comm.rank)
        except RuntimeError as error:
            assert "scale by" in str(error)
        else:
            raise AssertionError("another factor on every rank was accepted")
