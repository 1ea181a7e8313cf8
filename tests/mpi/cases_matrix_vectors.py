"""Distributed vectors that do not fit, norms, and SciPy's solvers with whole vectors."""

import numpy as np
from cases import parameters
from errors import agreed, raises
from scipy import sparse
from scipy.sparse import linalg

from onesided.sparse import DistVector, Partition, from_scipy


@parameters(value=[1e-200, 1e200, 0.0, np.nan, np.inf])
def case_a_norm_is_as_large_as_its_vector(comm, value):
    """It neither overflows nor underflows, and what is not finite of one rank is seen by all."""
    partition = Partition.even(16, comm.size)
    x = DistVector(comm, partition, np.ones(len(range(*partition.range(comm.rank)))))
    if comm.rank == 0 or np.isfinite(value):
        x[...] = value
    with np.errstate(all="ignore"):
        norm = x.norm()
    factor = 4 if np.isfinite(value) else 1
    assert np.isclose(norm, factor * value, rtol=1e-14, atol=0, equal_nan=True), norm


def case_vectors_that_do_not_fit(comm):
    even = Partition.even(12, comm.size)
    mine = len(range(*even.range(comm.rank)))
    last = comm.rank == comm.size - 1
    agreed(comm, ValueError, lambda: DistVector(comm, even, np.ones(mine + last)),
           f"rank {comm.size - 1} owns")
    many, other = Partition.even(12, comm.size + 1), Partition.even(13, comm.size)
    raises(ValueError, lambda: DistVector(comm, many, np.ones(mine)), "parts")
    x = DistVector.zeros(comm, even)
    raises(ValueError, lambda: x + DistVector.zeros(comm, even, k=2), "shapes")
    raises(ValueError, lambda: x + DistVector.zeros(comm, other), "partitions")
    raises(TypeError, lambda: x + np.ones(mine), "DistVector")
    raises(TypeError, lambda: np.ones(mine) + x, "DistVector")
    raises(ValueError, lambda: x.norm(3), "order 3")
    raises(ValueError, lambda: x.gather(comm.size), "root")


def positive(rng, n):
    """A symmetric positive definite matrix that conjugate gradients need some iterations for."""
    part = sparse.random_array((n, n), density=0.1, rng=rng).tocsr()
    return sparse.csr_array(part @ part.T + sparse.diags_array(np.linspace(1, 9, n)))


TOLERANCES = {"lsqr": {"atol": 1e-12, "btol": 1e-12}, "lsmr": {"atol": 1e-12, "btol": 1e-12}}
SOLVERS = ["cg", "minres", "gmres", "bicgstab", "qmr", *TOLERANCES]


@parameters(name=SOLVERS)
def case_scipys_solvers_with_whole_vectors(comm, name, seed):
    rng = np.random.default_rng(seed)
    whole, b = positive(rng, 60), rng.standard_normal(60)
    with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
        how = TOLERANCES.get(name, {"rtol": 1e-12})
        x = getattr(linalg, name)(matrix.as_linear_operator(), b, **how)[0]
        assert np.allclose(x, linalg.spsolve(whole.tocsc(), b), atol=1e-6)
        assert len(set(comm.allgather(x.tobytes()))) == 1


def case_scipys_eigenvalues_with_whole_vectors(comm, seed):
    rng = np.random.default_rng(seed)
    whole, start = positive(rng, 40), rng.standard_normal(40)
    with from_scipy(comm, whole, method="p2p") as matrix:
        operator_ = matrix.as_linear_operator()
        values = linalg.eigsh(operator_, k=3, v0=start, return_eigenvectors=False)
        expected = np.linalg.eigvalsh(whole.toarray())[-3:]
        assert np.allclose(np.sort(values), expected)
        largest = linalg.svds(operator_, k=1, v0=start, return_singular_vectors=False)
        assert np.allclose(largest, expected[-1])
