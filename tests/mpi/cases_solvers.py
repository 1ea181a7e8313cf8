"""Solvers against SciPy's on the whole matrix: solutions, iterations, eigenpairs, multigrid."""

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.io
import scipy.sparse.linalg as serial
from cases import parameters
from errors import agreed, raises
from mpi4py import MPI
from scipy import sparse

from onesided.collectives import RequestError
from onesided.collectives.context import Context
from onesided.sparse import (
    DistVector,
    LinearOperator,
    Partition,
    diags,
    from_rows,
    from_scipy,
    kron,
    stencil7,
    stencil27,
)
from onesided.sparse import solvers as ours
from onesided.sparse.preconditioners import AMG, SSOR, BlockILU, Jacobi

pytestmark = pytest.mark.one_mpi

TESTS = Path(__file__).resolve().parents[1]


def shipped(name):
    return sparse.csr_array(scipy.io.mmread(TESTS / "matrices" / f"{name}.mtx.gz", spmatrix=False))


def hermitian():
    return shipped("mhd1280b") + 0.1 * sparse.eye_array(1280)


def graph():
    """The Laplacian of a mesh, moved away from zero."""
    links = -abs(shipped("jagmesh7"))
    links.setdiag(0)
    return sparse.csr_array(links - sparse.diags_array(links.sum(axis=1) - 0.1))


DEFINITE = {
    "grid": lambda: sparse.csr_array(stencil27(8) + sparse.eye_array(512)),
    "mesh": graph,
    "bcsstk01": lambda: shipped("bcsstk01"),
    "bcsstm22": lambda: shipped("bcsstm22"),
    "Trefethen_20b": lambda: shipped("Trefethen_20b").astype(float),
    "complex": hermitian,
}
GENERAL = {
    "west0067": lambda: shipped("west0067") + 5 * sparse.eye_array(67),
    "drift": lambda: stencil27(7) + sparse.diags_array([3.0], offsets=[1], shape=(343, 343)),
    "complex": lambda: (1 + 0.5j) * stencil27(7) - 2j * sparse.eye_array(343),
}
RECTANGLES = {
    "ash219": lambda: shipped("ash219").astype(float),
    "ch5-5-b1": lambda: shipped("ch5-5-b1").astype(float),
    "wide": lambda: sparse.csr_array(shipped("ash219").T.astype(float)),
}


def random(size, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(size)
    return x.astype(dtype)


def distributed(comm, whole, **how):
    return from_scipy(comm, whole if comm.rank == 0 else None, **{"method": "p2p", **how})


def system(comm, whole, seed):
    """The matrix, the right-hand side, and this rank's block of it."""
    A = distributed(comm, whole)
    b = random(whole.shape[0], A.dtype, seed)
    return A, b, b[slice(*A.row_range)]


def joined(comm, x):
    return np.concatenate(comm.allgather(x))


def counted(solver, whole, b, **how):
    """SciPy's solution and how many iterations it took."""
    seen = []
    x, info = solver(whole, b, callback=lambda _: seen.append(1), **how)
    assert info == 0
    return x, len(seen)


@parameters(solver=["cg", "bicgstab"])
def case_iterates_are_those_of_scipy(comm, solver, seed):
    whole = DEFINITE["grid"]()
    A, b, mine = system(comm, whole, seed)
    guess = random(512, float, seed + 1)
    pairs = []
    for run, matrix, right, x0 in (
        (getattr(ours, solver), A, mine, guess[slice(*A.row_range)]),
        (getattr(serial, solver), whole, b, guess),
    ):
        seen = []
        look = {"callback": lambda x, seen=seen: seen.append(x.copy())}
        run(matrix, right, x0, maxiter=6, rtol=0, **look)
        pairs.append(seen)
    assert len(pairs[0]) == len(pairs[1]) == 6
    for mine, theirs in zip(*pairs, strict=True):
        np.testing.assert_allclose(joined(comm, mine), theirs, rtol=1e-9, atol=1e-12)
    A.Free()


@parameters(restart=[1, 5, 12])
def case_cycles_of_gmres_are_those_of_scipy(comm, restart, seed):
    whole = sparse.csr_array(GENERAL["drift"]())
    A, b, mine = system(comm, whole, seed)
    found = ours.gmres(A, mine, rtol=0.0, maxiter=2 * restart, restart=restart)
    expected, _ = serial.gmres(whole, b, rtol=1e-300, restart=restart, maxiter=2)
    assert found.iterations == 2 * restart
    assert found.reason.startswith("iteration limit: ")
    np.testing.assert_allclose(joined(comm, found.x), expected, rtol=1e-7, atol=1e-12)
    assert np.all(np.diff(found.residuals) <= 1e-12)
    A.Free()


@parameters(kind=[Jacobi, SSOR, BlockILU], dtype=["f8", "c16"])
def case_preconditioners_are_their_formulas(comm, kind, dtype, seed):
    """Also with an empty block on some ranks, and a complex vector with a real matrix."""
    whole = sparse.random_array((30, 30), density=0.2, rng=np.random.default_rng(seed))
    whole = sparse.csr_array(whole - 6 * sparse.eye_array(30)).astype(dtype)
    if dtype == "c16":
        whole = sparse.csr_array(whole + 0.3j * whole.T)
    for size in (30, 2):
        part = whole[:size, :size]
        A = distributed(comm, part)
        rows = slice(*A.row_range)
        block = part[rows, rows].toarray()
        diagonal = np.diag(np.diag(block))
        r = random(size, "c16", seed)[rows]
        out = np.full_like(r, np.nan)
        if kind is SSOR:
            w = 1.3
            SSOR(A, omega=w).apply(r, out)
            lower, upper = (diagonal / w + f(block, k) for f, k in ((np.tril, -1), (np.triu, 1)))
            inverse = np.linalg.inv(diagonal) if len(block) else block
            matrix = w / (2 - w) * lower @ inverse @ upper
        elif kind is BlockILU:
            BlockILU(A, fill_factor=50, drop_tol=0).apply(r, out)
            matrix = block
        else:
            Jacobi(A).apply(r, out)
            matrix = diagonal
        np.testing.assert_allclose(matrix @ out, r, atol=1e-12)
        A.Free()


@parameters(name=list(RECTANGLES), damp=[0.0, 0.7], guess=[False, True])
def case_lsqr(comm, name, damp, guess, seed):
    whole = RECTANGLES[name]()
    A, b, mine = system(comm, whole, seed)
    x0 = random(whole.shape[1], float, seed + 1) if guess else None
    first = None if x0 is None else x0[slice(*A.col_range)]
    found = ours.lsqr(A, mine, first, rtol=1e-9, damp=damp, maxiter=20000)
    assert found.converged, found.reason
    expected = serial.lsqr(whole, b, damp=damp, x0=x0, atol=1e-12, btol=1e-12, iter_lim=20000)
    x = joined(comm, found.x)
    error = np.linalg.norm(x - expected[0]) / np.linalg.norm(expected[0])
    assert error < 1e-4, error
    np.testing.assert_allclose(found.residuals[-1], expected[4], rtol=1e-4, atol=1e-4)
    A.Free()


def case_chebyshev(comm, seed):
    whole = DEFINITE["grid"]()
    A, b, mine = system(comm, whole, seed)
    values = np.linalg.eigvalsh(whole.toarray())
    low, high = ours.eigenvalue_bounds(A)
    assert 0.6 * values[0] < low < 1.3 * values[0]
    assert values[-1] <= high < 1.3 * values[-1]
    for bounds in ((values[0], values[-1]), None):
        found = ours.chebyshev(A, mine, rtol=1e-8, bounds=bounds)
        assert found.converged, found.reason
        assert np.linalg.norm(b - whole @ joined(comm, found.x)) <= 1.01e-8 * np.linalg.norm(b)
    wrong = ours.chebyshev(A, mine, bounds=(values[0], 0.3 * values[-1]), maxiter=5000)
    assert not wrong.converged
    assert wrong.reason.startswith("breakdown: the residual is")
    A.Free()


POWER = {
    "grid": DEFINITE["grid"],
    "Trefethen_20b": DEFINITE["Trefethen_20b"],
    "general": lambda: abs(shipped("west0067")) + 5 * sparse.eye_array(67),
    "complex": lambda: sparse.csr_array(GENERAL["complex"]()),
}


@parameters(name=list(POWER))
def case_power_iteration(comm, name, seed):
    whole = POWER[name]()
    A = distributed(comm, whole)
    last = {}
    how = {"callback": lambda x: last.update(x=x.copy())}
    found = ours.power_iteration(A, rtol=1e-9, maxiter=200000, **how)
    assert found.converged, found.reason
    assert np.array_equal(last["x"], found.vectors[:, 0])
    values = np.linalg.eigvals(whole.toarray())
    largest = values[np.argmax(abs(values))]
    assert abs(found.values[0] - largest) < 1e-8 * abs(largest)
    x = joined(comm, found.vectors)[:, 0]
    assert abs(np.linalg.norm(x) - 1) < 1e-12
    rest = np.linalg.norm(whole @ x - found.values[0] * x)
    assert abs(rest - found.residuals[-1]) < 1e-10 * abs(largest)
    A.Free()


def case_pagerank(comm, seed):
    whole = shipped("wiki-Vote").astype(float)
    whole.data[:] = 1 + np.arange(len(whole.data)) % 3
    A = distributed(comm, whole)
    found = ours.pagerank(A, atol=1e-12)
    assert found.converged
    n, out = whole.shape[0], whole.sum(axis=1)
    dangling = out == 0
    assert dangling.any()
    x = np.full(n, 1 / n)
    for _ in range(found.iterations + 1):
        given = np.divide(x, out, out=np.zeros(n), where=~dangling)
        x = 0.85 * (whole.T @ given + x[dangling].sum() / n) + 0.15 / n
    np.testing.assert_allclose(joined(comm, found.x), x, rtol=1e-10)
    assert abs(x.sum() - 1) < 1e-12
    A.Free()


SIX = ["cg", "pipelined_cg", "bicgstab", "gmres", "chebyshev", "lsqr"]


@parameters(solver=SIX)
def case_the_number_of_ranks_does_not_matter(comm, solver, seed):
    whole = DEFINITE["mesh"]()
    A, b, mine = system(comm, whole, seed)
    alone = from_scipy(MPI.COMM_SELF, whole, method="p2p")
    solve = getattr(ours, solver)
    many, one = solve(A, mine, maxiter=15, rtol=0), solve(alone, b, maxiter=15, rtol=0)
    assert many.iterations == one.iterations == 15
    assert many.reason == one.reason
    np.testing.assert_allclose(many.residuals, one.residuals, rtol=1e-8)
    scale = np.max(np.abs(one.x))
    np.testing.assert_allclose(joined(comm, many.x), one.x, rtol=0, atol=1e-8 * scale)
    A.Free()
    alone.Free()


@parameters(solver=SIX)
def case_distributed_vectors(comm, solver, seed):
    whole = DEFINITE["grid"]()
    A, _, mine = system(comm, whole, seed)
    b = DistVector(comm, A.row_partition, mine.copy())
    seen = []
    solve = getattr(ours, solver)
    found = solve(A, b, b, rtol=1e-8, callback=lambda x: seen.append(x.norm()))
    assert isinstance(found.x, DistVector)
    assert (A @ found.x - b).norm() <= 1.01e-8 * b.norm()
    assert np.array_equal(b.array, mine)
    assert abs(seen[-1] - found.x.norm()) < 1e-12
    plain = solve(A, mine, mine.copy(), rtol=1e-8)
    assert np.array_equal(plain.x, found.x.array)
    A.Free()


@parameters(kind=[Jacobi, SSOR, BlockILU])
def case_a_preconditioner_of_other_rows_is_refused(comm, kind):
    """On every rank, also where some have the same rows of both."""
    whole = stencil27(3)
    even = Partition.even(27, comm.size).lengths()
    other = even.copy()
    other[0], other[-1] = other[0] + 1, other[-1] - 1  # of one rank the same
    A = from_scipy(comm, whole)
    B = from_scipy(comm, whole, partition=Partition.from_lengths(other))
    b = np.ones(A.row_range[1] - A.row_range[0])
    if comm.size == 1:
        assert ours.cg(A, b, M=kind(B)).converged
    else:
        raises(ValueError, lambda: ours.cg(A, b, M=kind(B)), "rows")


# -- multigrid, eigenpairs, what is refused -------------------------------------------------------


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
        (lambda: A @ distributed(comm, sparse.eye_array(3)), ValueError, "(512, 512) and (3, 3)"),
        (lambda: A["a"], TypeError, "a number, a slice"),
        (lambda: A.norm(3), ValueError, "norm of order 3"),
        (lambda: A.set_values(np.ones(3)), ValueError, "factors of shape"),
        (lambda: operator.T, TypeError, "without multiply_adjoint"),
        (lambda: ours.cg(A.as_linear_operator(), None), TypeError, "or another Linear, not"),
    ]
    for call, kind, words in calls:
        raises(kind, call, words)
    A.Free()


@parameters(dtype=["f8", "c16"], precond=["none", "jacobi", "amg"], largest=[False, True])
def case_a_few_eigenpairs(comm, dtype, precond, largest, seed):
    """Also where small eigenvectors of other ranks' processors have other signs."""
    whole = stencil7(7) + sparse.diags_array(np.linspace(0, 1, 343))
    if dtype == "c16":
        turn = sparse.diags_array(np.exp(1j * np.arange(343)))
        whole = turn @ whole @ turn.conj()
    whole = sparse.csr_array(whole)
    A = distributed(comm, whole)
    M = {"none": lambda A: None, "jacobi": Jacobi, "amg": AMG}[precond](A)
    if largest:
        M = None
    eigh = np.linalg.eigh

    def other(matrix):
        values, vectors = eigh(matrix)
        return values, vectors if comm.rank == 0 else -vectors

    with mock.patch.object(np.linalg, "eigh", other):
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


@parameters(name=["poisson", "mesh", "complex", "elastic", "unlike", "neumann", "pieces"])
def case_multigrid(comm, name, seed):
    """Few iterations, whatever the size; a coarse level of every kind is used."""
    how, nullspace = {"coarsest": 30}, None
    if name == "poisson":
        whole = stencil7(16)
    elif name == "complex":  # what is smooth turns from row to row
        turn = np.exp(1j * np.arange(1000))
        whole = sparse.diags_array(turn) @ stencil7(10) @ sparse.diags_array(turn.conj())
    elif name in ("elastic", "unlike"):  # two unknowns of a node, coupled
        whole = sparse.kron(DEFINITE["mesh"](), np.array([[2.0, 0.5], [0.5, 1.0]])).tocsr()
        whole.sum_duplicates()
    elif name == "neumann":
        links = -abs(DEFINITE["mesh"]())
        links.setdiag(0)
        whole = links - sparse.diags_array(links.sum(axis=1))
    elif name == "pieces":  # paths that nothing holds, some of them so short that they coarsen away
        lengths, rng = np.arange(300) % 40 + 2, np.random.default_rng(seed)
        ends = np.cumsum(lengths)
        links = -rng.random(ends[-1]) - 0.1
        links[ends - 1] = 0
        links = sparse.diags_array([links[:-1], links[:-1]], offsets=[-1, 1])
        whole = links - sparse.diags_array(links.sum(axis=1))
    else:
        whole = DEFINITE[name]()
    whole = sparse.csr_array(whole)
    n = whole.shape[0]
    if name in ("elastic", "unlike"):
        parts = Partition(Partition.even(n // 2, comm.size).starts * 2)
        A = from_rows(comm, whole[slice(*parts.range(comm.rank))], method="p2p")
        modes = np.tile(np.eye(2), ((A.row_range[1] - A.row_range[0]) // 2, 1))
        alike = how | {"block": 2, "near_nullspace": modes}
        how = alike | {"near_nullspace": modes * ([1, 1e-9] if name == "unlike" else 1)}
    else:
        A = distributed(comm, whole)
    rows = slice(*A.row_range)
    if name == "complex":
        how["near_nullspace"] = turn[rows]
    b = random(n, whole.dtype, seed)
    if name == "neumann":
        b, nullspace = b - b.mean(), np.ones(rows.stop - rows.start)
    if name == "pieces":
        b = whole @ b
    with AMG(A, **how) as M:
        assert len(M._levels) > 1, M
        if name == "unlike":
            with AMG(A, **alike) as other:
                assert repr(M) == repr(other)
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


@parameters(reuse=[False, True])
def case_multigrid_of_other_values(comm, reuse):
    """After values that it cannot use it is made anew of others, and leaves nothing."""
    A = distributed(comm, stencil7(8))
    pair = sparse.csr_array([[1.0, -1.0], [-1.0, 1.0]])  # which one aggregate makes zero
    pairs = kron(diags(comm, [1.0], [0], shape=(20, 20)), pair)
    good, diagonal = A.values.copy(), A.values > 1
    b = np.ones(A.row_range[1] - A.row_range[0])
    with AMG(A, coarsest=20) as M:
        ours.cg(A, b, M=M)  # the communicator has the sums that are wanted
    live = len(Context.of(comm).live)
    M = AMG(A, coarsest=20, reuse=reuse)
    first = ours.cg(A, b, M=M)
    A.set_values(np.where(diagonal, 0.0, good))
    raises(ValueError, lambda: ours.cg(A, b, M=M), "the diagonal has 0.0")
    assert len(Context.of(comm).live) == live
    raises(RequestError, lambda: M.apply(b, b.copy()), "could not be made anew")
    agreed(comm, ValueError, lambda: AMG(A, dtype="f4"), "the diagonal has 0.0")
    right = pairs @ np.arange(*map(float, pairs.col_range))
    with AMG(pairs, coarsest=3) as other:
        assert ours.cg(pairs, right, M=other, rtol=1e-10).converged
    with pairs.shifted(1.0) as held, AMG(held, coarsest=3, reuse=reuse) as other:
        assert len(other._levels) > 1
        held.set_values(pairs.values)  # for which the coarse matrix would be zero
        assert ours.cg(held, right, M=other, rtol=1e-10).converged
    A.set_values(good)
    again = ours.cg(A, b, M=M)
    np.testing.assert_array_equal(again.residuals, first.residuals)
    M.Free()
    A.set_values(good)
    raises(RequestError, lambda: ours.cg(A, b, M=M), "been freed")
    assert len(Context.of(comm).live) == live
    A.Free()
    pairs.Free()


def case_multigrid_refuses(comm):
    A = distributed(comm, DEFINITE["grid"]())
    raises(ValueError, lambda: AMG(A, near_nullspace=np.ones(3)), "near_nullspace")
    raises(ValueError, lambda: AMG(A, block=0), "blocks of 0")
    bad = np.full(A.row_range[1] - A.row_range[0], np.nan)
    raises(ValueError, lambda: AMG(A, near_nullspace=bad), "no number")
    tall = distributed(comm, sparse.eye_array(6, 4))
    raises(ValueError, lambda: AMG(tall), "square")
    A.Free()
    tall.Free()
