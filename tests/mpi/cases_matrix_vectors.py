"""Distributed vectors, SciPy's operators and solvers, PETSc's shell."""

import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
from cases import need, parameters
from cases_matrix import block, complex_values, distributed
from cases_sparse import raised
from scipy import sparse
from scipy.sparse import linalg

from onesided.sparse import Partition, from_rows, from_scipy, stencil27
from onesided.sparse.petsc import ShellContext, shell
from onesided.sparse.vector import DistVector


@parameters(scale=[1e-200, 1e200, 0.0])
def case_norm_neither_overflows_nor_underflows(comm, scale):
    partition = Partition.even(16, comm.size)
    start, stop = partition.range(comm.rank)
    x = DistVector(comm, partition, np.full(stop - start, scale))
    assert np.isclose(x.norm(), 4 * scale, rtol=1e-14, atol=0)


@parameters(value=[np.nan, np.inf])
def case_norm_of_what_is_not_finite(comm, value):
    partition = Partition.even(5, comm.size)
    array = np.ones(len(range(*partition.range(comm.rank))))
    array[:] = value if comm.rank == 0 else 1
    with np.errstate(all="ignore"):
        norm = DistVector(comm, partition, array).norm()
    assert np.array_equal(norm, value, equal_nan=True), norm


def case_vectors_that_do_not_fit(comm):
    even = Partition.even(12, comm.size)
    mine = len(range(*even.range(comm.rank)))
    last = comm.rank == comm.size - 1
    text = raised(lambda: DistVector(comm, even, np.ones(mine + last)), ValueError)
    assert f"rank {comm.size - 1} owns" in text, text
    assert len(set(comm.allgather(text))) == 1
    many = Partition.even(12, comm.size + 1)
    assert "parts" in raised(lambda: DistVector(comm, many, np.ones(mine)), ValueError)
    x = DistVector.zeros(comm, even)
    assert "shapes" in raised(lambda: x + DistVector.zeros(comm, even, k=2), ValueError)
    assert "partitions" in raised(
        lambda: x + DistVector.zeros(comm, Partition.even(13, comm.size)), ValueError
    )
    assert "DistVector" in raised(lambda: x + np.ones(mine), TypeError)
    assert "DistVector" in raised(lambda: np.ones(mine) + x, TypeError)
    assert "order 3" in raised(lambda: x.norm(3), ValueError)
    assert "root" in raised(lambda: x.gather(comm.size), ValueError)


def case_generic_code_runs_with_vectors(comm):
    """Conjugate gradients as one writes them for one process."""
    partition = Partition.even(5**3, comm.size)
    with from_rows(comm, stencil27(5, partition.range(comm.rank)), method="p2p") as matrix:
        one = DistVector.zeros(comm, matrix.col_partition) + 1.0
        b = matrix @ one
        x, r = 0 * b, b.copy()
        p, rho = r.copy(), r.dot(r)
        for _ in range(60):
            q = matrix @ p
            alpha = rho / p.dot(q)
            x += alpha * p
            r -= alpha * q
            rho, before = r.dot(r), rho
            p = r + (rho / before) * p
            if rho < 1e-24:
                break
        assert (x - one).norm(np.inf) < 1e-10


def positive(rng, n):
    """A symmetric positive definite matrix that conjugate gradients need some iterations for."""
    part = sparse.random_array((n, n), density=0.1, rng=rng).tocsr()
    return sparse.csr_array(part @ part.T + sparse.diags_array(np.linspace(1, 9, n)))


def whole_solution(matrix, solver, b):
    x, failed = solver(matrix, b)
    assert failed == 0
    return x


SOLVERS = {
    "cg": lambda a, b: whole_solution(a, lambda a, b: linalg.cg(a, b, rtol=1e-10), b),
    "minres": lambda a, b: whole_solution(a, lambda a, b: linalg.minres(a, b, rtol=1e-12), b),
    "gmres": lambda a, b: whole_solution(a, lambda a, b: linalg.gmres(a, b, rtol=1e-10), b),
    "bicgstab": lambda a, b: whole_solution(a, lambda a, b: linalg.bicgstab(a, b, rtol=1e-10), b),
    "qmr": lambda a, b: whole_solution(a, lambda a, b: linalg.qmr(a, b, rtol=1e-10), b),
    "lsqr": lambda a, b: linalg.lsqr(a, b, atol=1e-12, btol=1e-12)[0],
    "lsmr": lambda a, b: linalg.lsmr(a, b, atol=1e-12, btol=1e-12)[0],
}


@parameters(name=list(SOLVERS))
def case_scipys_solvers_with_whole_vectors(comm, name, seed):
    rng = np.random.default_rng(seed)
    whole, b = positive(rng, 60), rng.standard_normal(60)
    with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
        x = SOLVERS[name](matrix.as_linear_operator(), b)
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


@parameters(dtype=["f8", "c16"])
def case_operators_of_scipy(comm, dtype, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 20), density=0.3, rng=rng).tocsr()
    if dtype == "c16":
        whole = complex_values(whole, rng)
    with distributed(comm, whole) as matrix:
        taken = matrix.as_linear_operator()
        assert isinstance(taken, linalg.LinearOperator)
        assert taken.dtype == np.dtype(dtype)
        for k in (None, 1, 3):
            x, y = block(rng, 20, k, dtype), block(rng, 30, k, dtype)
            assert np.allclose(taken @ x, whole @ x)
            assert np.allclose(taken.H @ y, whole.conj().T @ y)
            assert np.allclose(taken.T @ y, whole.T @ y)
            back = (2 * taken.H) @ taken
            assert np.allclose(back @ x, 2 * (whole.conj().T @ (whole @ x)))
        y = block(rng, 30, None, dtype)
        assert np.allclose(taken.rmatvec(y), whole.conj().T @ y)
        assert np.allclose(taken.matvec(x[:, :1]), whole @ x[:, :1])


@parameters(dtype=["f8", "c16"])
def case_what_petsc_calls(comm, dtype, seed):
    """The context of the shell, with arrays in the place of PETSc's vectors."""
    rng = np.random.default_rng(seed)
    whole = complex_values(sparse.random_array((20, 20), density=0.4, rng=rng), rng)
    whole = whole if dtype == "c16" else whole.real
    with from_scipy(comm, whole, method="p2p") as matrix:
        context, mine = ShellContext(matrix), slice(*matrix.row_range)
        a = block(rng, 20, None, dtype)
        x, y = (SimpleNamespace(array_r=v, array_w=v) for v in (a[mine], np.empty_like(a[mine])))
        x.array_r.flags.writeable = False
        for call, expected in (
            (context.mult, whole @ a),
            (context.multTranspose, whole.T @ a),
            (context.multHermitian, whole.conj().T @ a),
        ):
            call(None, x, y)
            assert np.allclose(y.array_w, expected[mine])
        context.getDiagonal(None, y)
        assert np.array_equal(y.array_w, whole.diagonal()[mine])


def case_what_petsc_is_told(comm):
    """The shell's sizes and context, with a stand-in for petsc4py."""
    told = {}

    class Mat:
        def createPython(self, size, context=None, comm=None):
            told.update(size=size, context=context, comm=comm)
            return self

        def setUp(self):
            told["ready"] = True

    library = SimpleNamespace(PETSc=SimpleNamespace(Mat=Mat, ScalarType=np.float64))
    whole = sparse.random_array((20, 30), density=0.3, rng=np.random.default_rng(3))
    with mock.patch.dict(sys.modules, {"petsc4py": library}), distributed(comm, whole) as matrix:
        assert isinstance(shell(matrix), Mat)
        n_rows, n_cols = (len(range(*ends)) for ends in (matrix.row_range, matrix.col_range))
        assert told["size"] == ((n_rows, 20), (n_cols, 30))
        assert told["context"].matrix is matrix
        assert told["comm"] is comm
        assert told["ready"]
        with distributed(comm, whole.astype("f4")) as single:
            assert "float32" in raised(lambda: shell(single), TypeError)


def case_petsc_solves_with_the_shell(comm, seed):
    need("petsc4py")
    from petsc4py import PETSc

    rng = np.random.default_rng(seed)
    whole, b = positive(rng, 60), rng.standard_normal(60)
    with from_scipy(comm, whole, method="p2p", dtype=PETSc.ScalarType) as matrix:
        made = shell(matrix)
        right, left = made.createVecs()
        left.array_w[...] = b[slice(*matrix.row_range)]
        solver = PETSc.KSP().create(comm=comm)
        solver.setOperators(made)
        solver.setType("cg")
        solver.getPC().setType("jacobi")
        solver.setTolerances(rtol=1e-10)
        solver.solve(left, right)
        expected = linalg.spsolve(whole.tocsc(), b)[slice(*matrix.row_range)]
        assert np.allclose(right.array_r, expected, atol=1e-6)
        for thing in (solver, right, left, made):
            thing.destroy()


def case_without_petsc4py_the_shell_says_so_on_every_rank(comm):
    with from_scipy(comm, sparse.eye_array(4, dtype="f4"), method="p2p") as matrix:
        try:
            text = raised(lambda: shell(matrix), ImportError)
        except TypeError as error:  # petsc4py is here, with scalars of another type
            text = str(error)
        assert "petsc" in text.lower()
        assert len(set(comm.allgather(text))) == 1
