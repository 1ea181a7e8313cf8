"""Matrices of matrices, values that change, multigrid, eigenpairs, maps without entries: against
SciPy on the whole matrix."""

import numpy as np
from cases import parameters
from cases_formats import whole_of
from cases_solvers import DEFINITE, distributed, joined, random
from errors import raises
from scipy import sparse

from onesided.collectives import RequestError
from onesided.sparse import (
    AMG,
    SSOR,
    BlockILU,
    Jacobi,
    LinearOperator,
    Partition,
    from_rows,
    stencil7,
)
from onesided.sparse import solvers as ours
from onesided.sparse.kernels.registry import available


def some(shape, dtype, seed, density=0.3):
    rng = np.random.default_rng(seed)
    found = sparse.random_array(shape, density=density, rng=rng)
    if np.dtype(dtype).kind == "c":
        found = found + 1j * sparse.random_array(shape, density=density, rng=rng)
    return sparse.csr_array(found).astype(dtype)


def same(comm, matrix, whole, free=True):
    np.testing.assert_allclose(whole_of(comm, matrix), whole.toarray(), rtol=1e-5, atol=1e-6)
    if whole.dtype.itemsize == matrix.dtype.itemsize:
        assert matrix.dtype == whole.dtype
    x = np.arange(1.0, whole.shape[1] + 1)
    y = matrix @ x[slice(*matrix.col_range)]
    np.testing.assert_allclose(joined(comm, y), whole @ x, rtol=1e-4, atol=1e-4)
    if free:
        matrix.Free()


def case_an_operation_that_there_is_not_is_named(comm):
    A = distributed(comm, DEFINITE["grid"]())
    operator = LinearOperator(comm, A.row_partition, A.col_partition, A.multiply)
    calls = [
        (lambda: A @ None, TypeError, "takes this rank's block of x"),
        (lambda: A @ operator, TypeError, "A @ B needs a DistMatrix"),
        (lambda: np.ones(3) @ A, TypeError, "x @ A takes no DistMatrix"),
        (lambda: A[0, 1, 2], TypeError, "takes two, not 3"),
        (lambda: operator @ A, TypeError, "A @ B needs a DistMatrix"),
        (lambda: A + 1, TypeError, "A.shifted(s)"),
        (lambda: A * np.ones(3), TypeError, "A * s and A / s take a number"),
        (lambda: A @ distributed(comm, some((3, 3), "f8", 1)), ValueError, "(512, 512) and (3, 3)"),
        (lambda: A["a"], TypeError, "a number, a slice"),
        (lambda: A.norm(3), ValueError, "norm of order 3"),
        (lambda: A.set_values(np.ones(3)), ValueError, "factors of shape"),
        (lambda: operator.T, TypeError, "without multiply_adjoint"),
        (lambda: ours.cg(A.as_linear_operator(), None), TypeError, "not WholeOperator"),
    ]
    for call, kind, words in calls:
        raises(kind, call, words)
    A.Free()


@parameters(kernel=[*available(), "auto"])
def case_other_values_at_the_same_places(comm, kernel, seed):
    a = sparse.csr_array(DEFINITE["mesh"]())
    A = distributed(comm, a, kernel=kernel)
    halo, name = A.halo, A.kernel_name
    rows = slice(*A.row_range)
    single = np.ones(A.col_range[1] - A.col_range[0], "c16")
    A.T @ single.real
    makers = [Jacobi, SSOR, lambda A: BlockILU(A, hermitian=True), AMG]
    kept = [make(A) for make in makers]
    b = a.copy()
    b.data = b.data * 3
    b.setdiag(b.diagonal() + 2)
    b.sort_indices()
    mine = sparse.csr_array(b[rows])
    A.set_values(mine)
    same(comm, A, sparse.csr_array(b), free=False)
    assert np.allclose(joined(comm, A.T @ single.real), b.T @ np.ones(a.shape[0]))
    assert A.halo is halo
    assert name == A.kernel_name
    right = random(a.shape[0], float, seed)[rows]
    for make, old in zip(makers, kept, strict=True):
        new = make(A)
        one, other = (ours.cg(A, right, M=M, rtol=1e-8) for M in (old, new))
        assert one.converged
        assert one.iterations == other.iterations
        assert np.array_equal(one.x, other.x)
        for M in (old, new):
            if isinstance(M, AMG):
                M.Free()
    A.set_values(A.values * 2)
    same(comm, A, sparse.csr_array(b * 2))


@parameters(dtype=["f8", "c16"], precond=["none", "jacobi", "amg"], largest=[False, True])
def case_a_few_eigenpairs(comm, dtype, precond, largest, seed):
    whole = stencil7(7) + sparse.diags_array(np.linspace(0, 1, 343))
    if dtype == "c16":
        turn = sparse.diags_array(np.exp(1j * np.arange(343)))
        whole = turn @ whole @ turn.conj()
    whole = sparse.csr_array(whole)
    A = distributed(comm, whole)
    M = {"none": lambda A: None, "jacobi": Jacobi, "amg": AMG}[precond](A)
    if largest:
        M = None
    found = ours.lobpcg(A, 4, largest=largest, M=M, rtol=1e-6, maxiter=500)
    assert found.converged, found.reason
    values = np.linalg.eigvalsh(whole.toarray())
    np.testing.assert_allclose(found.values, values[::-1][:4] if largest else values[:4], rtol=1e-9)
    V = joined(comm, found.vectors)
    np.testing.assert_allclose(V.conj().T @ V, np.eye(4), atol=1e-10)
    rest = np.linalg.norm(whole @ V - V * found.values, axis=0)
    np.testing.assert_allclose(found.residuals, rest, rtol=1e-3, atol=1e-12)
    if M is not None and precond == "amg":
        M.Free()
    A.Free()


@parameters(name=["poisson", "mesh", "complex", "elastic", "neumann"])
def case_multigrid(comm, name, seed):
    """Few iterations, whatever the size; a coarse level of every kind is used."""
    how, nullspace = {"coarsest": 30}, None
    if name == "poisson":
        whole = stencil7(16)
    elif name == "complex":  # what is smooth turns from row to row
        turn = np.exp(1j * np.arange(1000))
        whole = sparse.diags_array(turn) @ stencil7(10) @ sparse.diags_array(turn.conj())
    elif name == "elastic":  # two unknowns of a node, coupled
        whole = sparse.kron(DEFINITE["mesh"](), np.array([[2.0, 0.5], [0.5, 1.0]])).tocsr()
        whole.sum_duplicates()
    elif name == "neumann":
        links = -abs(DEFINITE["mesh"]())
        links.setdiag(0)
        whole = links - sparse.diags_array(links.sum(axis=1))
    else:
        whole = DEFINITE[name]()
    whole = sparse.csr_array(whole)
    n = whole.shape[0]
    if name == "elastic":
        parts = Partition(Partition.even(n // 2, comm.size).starts * 2)
        A = from_rows(comm, whole[slice(*parts.range(comm.rank))], method="p2p")
        modes = np.tile(np.eye(2), ((A.row_range[1] - A.row_range[0]) // 2, 1))
        how |= {"block": 2, "near_nullspace": modes}
    else:
        A = distributed(comm, whole)
    rows = slice(*A.row_range)
    if name == "complex":
        how["near_nullspace"] = turn[rows]
    b = random(n, whole.dtype, seed)
    if name == "neumann":
        b, nullspace = b - b.mean(), np.ones(rows.stop - rows.start)
    with AMG(A, **how) as M:
        assert len(M._levels) > 1, M
        found = ours.cg(A, b[rows], M=M, rtol=1e-8, nullspace=nullspace)
        assert found.converged, found.reason
        plain = ours.cg(A, b[rows], M=Jacobi(A), rtol=1e-8, nullspace=nullspace)
        assert found.iterations < (25 if name == "poisson" else plain.iterations)
        rest = np.linalg.norm(b - whole @ joined(comm, found.x))
        assert rest <= 1e-8 * np.linalg.norm(b) * 1.01
        r, s = (random(n, whole.dtype, seed + k)[rows] for k in (1, 2))
        Mr, Ms = np.empty_like(r), np.empty_like(s)
        M.apply(r, Mr)
        M.apply(s, Ms)
        one, other = (comm.allreduce(np.vdot(x, y)) for x, y in ((s, Mr), (Ms, r)))
        assert abs(one - other) <= 1e-9 * abs(one)
    assert "levels" in repr(M)
    raises(RequestError, lambda: ours.cg(A, b[rows], M=M), "been freed")
    A.Free()


def case_multigrid_refuses(comm):
    A = distributed(comm, DEFINITE["grid"]())
    raises(ValueError, lambda: AMG(A, near_nullspace=np.ones(3)), "near_nullspace")
    raises(ValueError, lambda: AMG(A, block=0), "blocks of 0")
    tall = distributed(comm, some((6, 4), "f8", 1))
    raises(ValueError, lambda: AMG(tall), "square")
    A.Free()
    tall.Free()
