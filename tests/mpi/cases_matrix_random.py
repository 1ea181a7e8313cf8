"""Random matrices, partitions and vectors, found by hypothesis, against SciPy on every rank."""

from __future__ import annotations

import numpy as np
from cases import parameters
from cases_matrix import TAKEN, check
from cases_random import examine
from cases_sparse import WAYS, made
from hypothesis import strategies as st
from scipy import sparse

from onesided.collectives import methods
from onesided.sparse import DistMatrix, Partition

SIZES = st.one_of(st.integers(0, 3), st.integers(1, 40))
DTYPES = ["f4", "f8", "c8", "c16"]


@st.composite
def matrices(draw):
    """A matrix that may have empty rows, empty columns, and one dense row."""
    shape = draw(SIZES), draw(SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    dense = rng.standard_normal(shape)
    if dtype.kind == "c":
        dense = dense + 1j * rng.standard_normal(shape)
    dense[rng.random(shape) > draw(st.sampled_from([0.0, 0.02, 0.2, 1.0]))] = 0
    full = draw(st.one_of(st.none(), st.integers(0, max(shape[0] - 1, 0))))
    if shape[0] and full is not None:
        dense[full] = rng.standard_normal(shape[1])
    for axis, view in enumerate((dense, dense.T)):
        for line in draw(st.sets(st.integers(0, max(shape[axis] - 1, 0)), max_size=5)):
            view[line : line + 1] = 0
    return sparse.csr_array(dense.astype(dtype))


@st.composite
def parts(draw, size, ranks):
    """The caller's own partition, with ranks that own nothing."""
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=ranks - 1, max_size=ranks - 1)))
    return Partition(np.array([0, *cuts, size]))


@st.composite
def problems(draw, ranks):
    whole = draw(matrices())
    rows, columns = (draw(parts(size, ranks)) for size in whole.shape)
    products = draw(
        st.lists(
            st.tuples(
                st.sampled_from(list(TAKEN)),
                st.sampled_from([None, 1, 2, 5]),
                st.booleans(),
            ),
            min_size=1, max_size=6,
        )
    )
    info = draw(st.sampled_from([None, {"slots": "1"}, {"ranks_per_node": "1"}]))
    return whole, rows, columns, draw(st.sampled_from(WAYS)), products, info


@parameters(method=lambda: list(methods()))
def case_random_matrices(comm, method, options, seed):
    def body(problem):
        whole, rows, columns, kernel, products, info = problem
        mine = whole[slice(*rows.range(comm.rank))]
        rng = np.random.default_rng(seed)
        how = {"method": method, "kernel": kernel, "info": info}
        matrix = made(lambda: DistMatrix(comm, mine, rows, columns, **how))
        try:
            for side, k, as_complex in products:
                dtype = np.result_type(whole.dtype, "c8") if as_complex else None
                check(matrix, whole, rng, side, k, dtype=dtype)
            pieces = comm.allgather((matrix.local_rows().toarray(), matrix.diagonal()))
            assert np.array_equal(np.concatenate([p[0] for p in pieces]), whole.toarray())
            assert np.array_equal(np.concatenate([p[1] for p in pieces]), whole.diagonal())
        finally:
            matrix.Free()
        return whole.nnz

    sizes = examine(comm, problems(comm.size), body, int(options.get("examples", "8")))
    assert sum(sizes) > 0, "every example was empty"
