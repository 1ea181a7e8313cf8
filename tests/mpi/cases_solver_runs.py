"""How runs of solvers end, what they refuse, and what an iteration costs."""

import tracemalloc
from functools import partial
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from cases import parameters, ranks
from cases_solvers import DEFINITE, distributed, shipped, system
from errors import raises
from scipy import sparse

from onesided.collectives import Allreduce_init, MismatchError, RequestError, sums
from onesided.collectives.context import Context
from onesided.collectives.reduction.operation import broken_sums
from onesided.sparse import LinearOperator, Partition, diags, from_scipy, stencil27
from onesided.sparse import solvers as ours
from onesided.sparse.preconditioners import AMG, SSOR, BlockILU, BlockLU, Jacobi, amg
from onesided.sparse.solvers import run as runs
from onesided.sparse.solvers.space import Space

pytestmark = pytest.mark.one_mpi

SQUARE = ["cg", "pipelined_cg", "minres", "bicgstab", "gmres", "fgmres", "chebyshev"]
ALL = [*SQUARE, "lsqr", "lsmr"]


@parameters(solver=ALL)
def case_nothing_to_do(comm, solver):
    A = distributed(comm, DEFINITE["grid"]())
    solve = getattr(ours, solver)
    ones = np.ones(A.row_range[1] - A.row_range[0])
    right, empty = A @ ones, distributed(comm, sparse.csr_array((0, 0)))
    done = solve(A, right, ones)
    assert np.array_equal(done.x, ones)
    assert done.x is not ones
    for found in (done, solve(A, 0 * ones), solve(empty, np.zeros(0))):
        assert found.converged
        assert found.iterations == 0
        assert found is done or not found.x.any()
    none = solve(A, right, maxiter=0)
    assert none.reason.startswith("iteration limit: ")
    assert not none.x.any()
    A.Free()
    empty.Free()


@parameters(solver=ALL)
def case_the_limit_and_the_callback(comm, solver, seed):
    """Which may be of one rank alone."""
    A, _, mine = system(comm, DEFINITE["mesh"](), seed)
    seen = []
    how = {"restart": 1} if solver.endswith("gmres") else {}
    solve = partial(getattr(ours, solver), A, mine, rtol=0, maxiter=7, **how)
    found = solve(callback=lambda x: seen.append(x.copy()))
    assert found.reason.startswith("iteration limit: ")
    assert not found.converged
    assert found.iterations == len(seen) == 7
    assert np.array_equal(seen[-1], found.x)
    differ = [bool(np.any(a != b)) for a, b in pairwise(seen)]
    assert all(map(any, zip(*comm.allgather(differ), strict=True)))
    solve(callback=seen.append if comm.rank == 0 else None)
    assert len(seen) == (14 if comm.rank == 0 else 7)
    A.Free()


@ranks(at_least=2)
@parameters(solver=ALL)
def case_an_error_of_the_callback_is_raised_on_every_rank(comm, solver, seed):
    A, _, mine = system(comm, DEFINITE["grid"](), seed)

    def callback(x):
        if comm.rank == 1:
            raise ValueError("only here")

    how = {"bounds": (0.1, 20.0)} if solver == "chebyshev" else {}

    def call(**more):
        return str(raises(ValueError, lambda: getattr(ours, solver)(A, mine, **how, **more)))

    class Fails:
        applied = 0

        def apply(self, r, out):
            self.applied += 1
            if self.applied == 2:
                raise ValueError("on all")
            out[:] = r

    assert call(callback=callback) == "rank 1: only here"
    assert "values of the matrix" in call(callback=lambda x: A.scale(0.5))
    other = distributed(comm, DEFINITE["grid"]())
    if not solver.startswith("ls"):
        strange = Allreduce_init(comm, np.zeros(1), np.zeros(1), method="p2p")
        if comm.rank == 0:  # what has nothing to do with this solver is broken
            strange.Start()
            strange.give_up(ValueError("another matter"))
        assert call(M=Fails()) == "on all"
        assert not broken_sums(comm)
        strange.Free()
        words = call(M=Jacobi(other), callback=lambda x: other.scale(0.5))
        assert "values of the matrix" in words
    other.Free()
    assert not any(each.request.active for each in Context.of(comm).shared.values())
    assert ours.cg(A, mine).converged
    if solver in ("pipelined_cg", "chebyshev"):
        interrupt_in_sums(comm, lambda: call(callback=None))
        assert ours.cg(A, mine).converged
        build = sums(comm, amg._KRYLOV_STEPS + 1)
        if comm.rank == 0:  # as an interrupted build leaves them
            build.start()
            build.give_up(KeyboardInterrupt())
        AMG(A).Free()
    inner = []

    def solves(x):
        """After an exception has broken the sums of the run around it, which this one replaces."""
        if not inner:
            broken = sums(comm, 3)
            broken.start()
            broken.give_up(ValueError("given up"))
            inner.append(ours.cg(A, mine))

    assert getattr(ours, solver)(A, mine, callback=solves, **how).converged
    assert inner[0].converged
    A.Free()


def interrupt_in_sums(comm, call):
    """Collective. Ctrl-C ends a run on all ranks, on the first while its sums are under way, which
    others have not started."""
    during, calls = Space.sums_during, []

    def interrupted(space, work, *own):
        calls.append(1)
        if len(calls) > 1:
            if comm.rank > 0:
                fails()
            work = fails
        return during(space, work, *own)

    def fails():
        raise KeyboardInterrupt

    with mock.patch.object(Space, "sums_during", interrupted):
        raises(KeyboardInterrupt, call)


BREAKDOWNS = {
    "cg, indefinite": ("cg", sparse.diags_array([3.0, -1, 2, -6, 1]), "(p, A p) = -"),
    "pipelined, indefinite": (
        "pipelined_cg", sparse.diags_array([3.0, -1, 2, -6, 1]), "(p, A p) = -"
    ),
    "bicgstab, skew": ("bicgstab", [[0.0, 1], [-1, 0]], "(r0, A M p) = 0"),
    "bicgstab, (t, s)": ("bicgstab", [[0.0, 1, 0], [-1, 0, 0], [1, 1, 1]], "= 0"),
    "gmres, singular": ("gmres", [[0.0, 1], [0, 0]], "the basis cannot be extended"),
    "gmres, zero": ("gmres", np.zeros((4, 4)), "the basis cannot be extended"),
    "not a number": ("gmres", sparse.diags_array([1.0, np.nan, 2.0]), "residual is nan"),
    "cg, not a number": ("cg", sparse.diags_array([1.0, np.nan]), "(p, A p) = nan"),
    "bicgstab, infinite": ("bicgstab", sparse.diags_array([1.0, np.inf]), "= "),
    "cg, M negative": ("cg", sparse.eye_array(9), "(r, M r) = -"),
    "pipelined, M negative": ("pipelined_cg", sparse.eye_array(9), "(r, M r) = -"),
}  # fmt: skip


@parameters(name=list(BREAKDOWNS))
def case_breakdown(comm, name):
    solver, entries, words = BREAKDOWNS[name]
    whole = sparse.csr_array(entries)
    A = distributed(comm, whole)
    b = np.ones(whole.shape[0])
    how = {"M": np.negative} if "M negative" in name else {}
    with np.errstate(all="ignore"):
        found = getattr(ours, solver)(A, b[slice(*A.row_range)], rtol=1e-12, maxiter=50, **how)
    reasons = comm.allgather((found.reason, found.iterations))
    assert all(other == reasons[0] for other in reasons)
    assert not found.converged
    assert found.reason.startswith("breakdown: "), found.reason
    assert words in found.reason, found.reason
    assert not how or found.iterations == 0
    A.Free()


@parameters(solver=[*SQUARE, "lobpcg"], where=["last", "empty", "all"], call=[0, 2])
def case_an_error_of_the_callers_function_is_raised_on_every_rank(
    comm, solver, where, call, seed
):
    A, _, mine = system(comm, DEFINITE["grid"](), seed)
    last = comm.rank == comm.size - 1
    if where == "empty" and comm.size > 1:
        A.Free()
        some = Partition.from_lengths([0 if rank == comm.size - 1 else 12 // (comm.size - 1)
                                       for rank in range(comm.size)])
        A = diags(comm, [-1.0, 2.0, -1.0], [-1, 0, 1], partition=some)
        mine = np.arange(1.0, 1 + A.row_range[1] - A.row_range[0])
    calls = []

    def precondition(r):
        calls.append(1)
        if len(calls) > call and (last or where == "all"):
            raise ZeroDivisionError(f"call {len(calls)} on rank {comm.rank}")
        return r / 2

    M = precondition
    if call:
        M = LinearOperator(comm, A.row_partition, A.col_partition,
                           lambda x, y: np.copyto(y, precondition(x)))
    solve = partial(getattr(ours, solver), A, M=M, maxiter=40)
    rights = {"lobpcg": [2], "cg": [mine, np.stack([mine, 2 * mine], axis=1)]}.get(solver, [mine])
    for right in rights:
        calls.clear()
        raises(ZeroDivisionError, partial(solve, right, rtol=1e-30), "on rank")
    A.Free()


@parameters(solver=SQUARE, dtype=["f4", "f8"])
def case_null_vectors_of_unlike_size(comm, solver, dtype, seed):
    """A beam with free ends, far away from the origin: both motions are taken out of x."""
    n, eps = 12, float(np.finfo(dtype).eps)
    bends = sparse.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(n - 2, n))
    A = distributed(comm, sparse.csr_array(bends.T @ bends).astype(dtype))
    rows, place = slice(*A.row_range), np.arange(float(n))
    away = np.stack([np.ones(n), 5e6 + 100 * place if dtype == "f8" else 1000 + place], axis=1)
    b = np.random.default_rng(seed).standard_normal(n).astype(dtype)[rows]
    nullspace = away.astype(dtype)[rows]
    how = {"left_nullspace": nullspace} if solver in ("gmres", "fgmres", "bicgstab") else {}
    found = getattr(ours, solver)(A, b, rtol=1e-3, nullspace=nullspace, **how)
    assert found.converged, found.reason
    motions, _ = np.linalg.qr(np.stack([np.ones(n), place - place.mean()], axis=1))
    x = np.concatenate(comm.allgather(found.x))
    np.testing.assert_allclose(motions.T @ x, 0, atol=1e5 * eps * np.linalg.norm(x))
    A.Free()


@parameters(dtype=["f4", "f8", "c16"])
def case_a_right_hand_side_in_the_null_space(comm, dtype):
    """What is left of it is rounding, and its solution zero."""
    for n in range(3, 40):
        ends = np.where(np.isin(np.arange(n), [0, n - 1]), 1.0, 2.0)
        line = sparse.diags_array([-1.0, ends, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        A = distributed(comm, sparse.csr_array(line.astype(dtype)))
        ones = np.ones(A.row_range[1] - A.row_range[0], dtype)
        found = ours.cg(A, ones, ones, nullspace=ones)
        assert found.converged, (n, found.reason)
        assert not found.x.any()
        A.Free()


@parameters(solver=ALL, dtype=["f4", "f8"])
def case_sums_of_single_precision_do_not_overflow(comm, solver, dtype):
    """Nor those of double precision, where the matrix is large."""
    large = 1e160 if solver.startswith("ls") else 1e150  # others square norms of A, and say so
    size, scale, right = {"f4": (100_000, 1.0, 1e17), "f8": (8, large, 1.0)}[dtype]
    A = diags(comm, [scale], [0], shape=(size, size), dtype=dtype)
    how = {"bounds": (0.9 * scale, 1.1 * scale)} if solver == "chebyshev" else {}
    b = np.full(A.row_range[1] - A.row_range[0], right, dtype)
    found = getattr(ours, solver)(A, b, **how)
    assert found.converged, found.reason
    A.Free()


@parameters(n=[54, 154, 316])
def case_pagerank_of_single_precision_ends(comm, n):
    """Ranks that are large change by their rounding, again and again."""
    rng = np.random.default_rng({54: 48, 154: 24, 316: 59}[n])
    assert rng.integers(3, 400) == n
    links = sparse.random_array((n, n), density=3 / n, rng=rng).tolil()
    links[:, 0], links[0, 1:3] = rng.random(n) + 0.1, rng.random(2)
    A = distributed(comm, sparse.csr_array(links).astype("f4"))
    assert ours.pagerank(A).converged
    A.Free()


class Refreshed:
    """A preconditioner of the caller's that changes when a solver begins."""

    def __init__(self, fails):
        self.fails = fails

    def refresh(self):
        self.hermitian = self.fails is not None
        if self.fails:
            raise ZeroDivisionError("refreshed")

    def apply(self, r, out):
        out[:] = r


@parameters(solver=["cg", "gmres"])
def case_a_preconditioner_of_new_values(comm, solver):
    """Whether it is Hermitian is asked of the matrix as it is."""
    A = diags(comm, [-1.0, 2.0, -0.5], [-1, 0, 1], shape=(8 * comm.size, 8 * comm.size))
    b, M = np.ones(A.row_range[1] - A.row_range[0]), BlockILU(A)
    skew, even = A.values, np.where(A.values == -0.5, -1.0, A.values)
    for values in (skew, even, skew):
        A.set_values(values)
        if solver == "cg" and values is skew:
            raises(ValueError, lambda: ours.cg(A, b, M=M), "needs a Hermitian")
        else:
            assert getattr(ours, solver)(A, b, M=M).converged
    A.Free()


@parameters(solver=ALL, dtype=["f4", "f8", "c8"], M=["none", "single"])
def case_numbers_of_unlike_size(comm, solver, dtype, M, seed):
    """Whose squares vanish or overflow: as those of moderate size, times a power of two."""
    A, _, mine = system(comm, DEFINITE["grid"]().astype(dtype), seed)
    how = {"bounds": (0.5, 60.0)} if solver == "chebyshev" else {}
    if M == "single" and solver in SQUARE:
        how["M"] = AMG(A, dtype="c8" if dtype == "c8" else "f4")
        how |= {"bounds": (0.05, 3.0)} if solver == "chebyshev" else {}
    solve, size = partial(getattr(ours, solver), A, rtol=1e-4, **how), np.linalg.norm(mine)
    b, seen = np.stack([mine, mine / 2], axis=1), np.empty_like(mine)
    expected = solve(b)
    for power in (-100, 90) if dtype != "f8" else (-900, 800):
        x = solve(b * A.dtype.type(2.0**power)).x
        found = solve(mine * A.dtype.type(2.0**power), callback=lambda x: np.copyto(seen, x))
        assert expected.converged
        assert found.converged, found.reason
        for one, other in ((x, expected.x), (found.x, x[:, 0]), (seen, found.x)):
            scales = [2.0 ** (-power if each is not expected.x else 0) for each in (one, other)]
            np.testing.assert_allclose(one * scales[0], other * scales[1], rtol=1e-3, atol=1e-4)
        assert found.true_residual <= 1e-4 * found.size * (1 + 1e-6)
        assert found.residuals[-1] <= 2.0**power * comm.allreduce(size)
    if "M" in how:
        how["M"].Free()
    A.Free()


@parameters(solver=[*ALL, "lobpcg"], kind=["none", Jacobi, SSOR, "single"])
def case_a_caller_whose_numpy_raises(comm, solver, kind):
    """Numbers too small for single precision, on one rank alone, end no run there."""
    A = diags(comm, [-0.1, 2, -0.1], [-1, 0, 1], shape=(64, 64))
    b = np.full(A.row_range[1] - A.row_range[0], 1e-300 if comm.rank else 1.0)
    how = {} if kind == "none" or solver.startswith("ls") else {"M": None}
    with np.errstate(all="raise"):
        if how:
            how["M"] = AMG(A, dtype="f4", coarsest=8) if kind == "single" else kind(A)
            how["M"].apply(np.ones_like(b) if kind is Jacobi else b, np.empty_like(b))
        elif kind == "single" and solver.startswith("ls"):
            how = {"damp": 1e-20, "x0": b}
        found = getattr(ours, solver)(A, b[:, None] if solver == "lobpcg" else b, **how)
    assert found.converged, found.reason
    if "M" in how and kind == "single":
        how["M"].Free()
    A.Free()


@parameters(dtype=["f4", "f8"])
def case_a_preconditioner_of_entries_that_are_rounded(comm, dtype, seed):
    A = diags(comm, [-0.3, 2, -0.3], [-1, 0, 1], shape=(64, 64), dtype=dtype)
    n = A.row_range[1] - A.row_range[0]
    scale = 1 + np.random.default_rng([seed, comm.rank]).random(n).astype(dtype)
    A.scale_rows(scale)
    A.scale_columns(scale)
    assert ours.cg(A, np.ones(n, dtype), M=BlockILU(A)).converged
    A.Free()


@parameters(solver=["lsqr", "lsmr"])
def case_damping_keeps_single_precision(comm, solver):
    """Also where a rank has columns and no rows."""
    A = distributed(comm, sparse.csr_array(np.ones((1, 4), "f4")))
    rows = A.row_range[1] - A.row_range[0]
    b = np.ones(rows, "f4") if rows else []
    assert getattr(ours, solver)(A, b, damp=np.float64(0.5)).x.dtype == np.float32
    A.Free()


@parameters(solver=["cg", "gmres"], kind=["map", BlockLU, Jacobi, "function"])
def case_a_complex_preconditioner_of_a_real_system(comm, solver, kind):
    """The run is as that of a complex right-hand side; what no run knows of is refused."""
    A = diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(12, 12))
    Z = diags(comm, [-1, 2 + 1j, -1], [-1, 0, 1], shape=(12, 12))
    b = np.ones(A.row_range[1] - A.row_range[0])
    solve = partial(getattr(ours, solver), A, rtol=1e-9, maxiter=3)
    if kind == "function":
        raises(TypeError, lambda: solve(b, M=lambda r: r * (1 + 1j)), "complex128")
    else:
        M = Z if kind == "map" else kind(Z)
        found, wide = solve(b, M=M), solve(b + 0j, M=M)
        assert found.x.dtype == np.complex128
        np.testing.assert_array_equal(found.residuals, wide.residuals)
    A.Free()
    Z.Free()


def case_bad_input_is_refused_on_every_rank(comm):
    last = comm.rank == comm.size - 1
    A = distributed(comm, DEFINITE["grid"]())
    tall = distributed(comm, shipped("ash219"))
    single = distributed(comm, DEFINITE["grid"]().astype("f4"))
    holes = sparse.csr_array(sparse.diags_array([1.0] * 9 + [0.0]))
    zero, empty = distributed(comm, holes), distributed(comm, sparse.csr_array((6, 6)))
    n = A.row_range[1] - A.row_range[0]
    good, high = np.ones(n), np.ones(tall.row_range[1] - tall.row_range[0])
    odd = np.ones(n + 1) if last else good
    two, mixed = np.ones((n, 2)), MismatchError  # of more than one rank
    calls = [
        (lambda: ours.cg(A, odd), ValueError, "b has shape"),
        (lambda: ours.cg(A, good, odd), ValueError, "x0 has shape"),
        (lambda: ours.cg(A, two, two[:, :1] if last else two), ValueError, "x0 has shape"),
        (lambda: ours.gmres(A, two, np.ones((n, 3))), ValueError, "x0 has shape"),
        (lambda: ours.cg(A, good[:, None, None]), ValueError, "b has shape"),
        (lambda: ours.cg(A, good[:, None][: comm.rank + 1]), ValueError, "b has shape"),
        (lambda: ours.cg(A.as_linear_operator(), good), TypeError, "LinearOperator makes one"),
        (lambda: ours.cg(A, good, rtol=-1.0 if last else 0.0), (ValueError, TypeError), ""),
        (lambda: ours.cg(A, good, rtol=np.nan), ValueError, "rtol is nan"),
        (lambda: ours.cg(A, good, maxiter=-1), ValueError, "maxiter is -1"),
        (lambda: ours.cg(A, good, M=3 if last else np.copy), TypeError, "apply"),
        (lambda: ours.cg(A, good, M=Jacobi), TypeError, "the class Jacobi"),
        (lambda: ours.cg(A, good, nullspace=np.nan * good), ValueError, "no number"),
        (lambda: ours.cg(A, good, callback=3), TypeError, "callback"),
        (lambda: ours.cg(A, np.array(["a"] * n)), TypeError, "<U1"),
        (lambda: ours.cg(single, good.astype("g")), TypeError, "products are of float32"),
        (lambda: ours.cg(tall, high), ValueError, "square"),
        (lambda: ours.gmres(A, good, restart=0), ValueError, "restart is 0"),
        (lambda: ours.chebyshev(A, good, bounds=(2.0, 1.0)), ValueError, "bounds are"),
        (lambda: ours.chebyshev(A, good, bounds=np.array([2.0, 1.0])), ValueError, "bounds are"),
        (lambda: ours.lsqr(A, good, damp=-1.0), ValueError, "damp is"),
        (lambda: ours.pipelined_cg(A, good, replacement=comm.rank), mixed, "pipelined_cg"),
        (lambda: ours.gmres(A, good, restart=1 + comm.rank), mixed, "gmres"),
        (lambda: ours.cg(A, good, M=Refreshed(last)), ZeroDivisionError, "refreshed"),
        (lambda: ours.cg(A, good, M=Refreshed(None)), ValueError, "needs a Hermitian"),
        (lambda: ours.pagerank(A), ValueError, "below zero"),
        (lambda: ours.pagerank(A.T), TypeError, "takes a DistMatrix"),
        (lambda: ours.pagerank(A, good + 0j if last else good), ValueError, "a real x0"),
        (lambda: ours.pagerank(A, damping=1.0), ValueError, "damping is 1.0"),
        (lambda: Jacobi(zero), ValueError, "row 9"),
        (lambda: SSOR(zero), ValueError, "row 9"),
        (lambda: SSOR(A, omega=2.0), ValueError, "omega is 2.0"),
        (lambda: Jacobi(tall), ValueError, "square"),
        (lambda: BlockILU(tall), ValueError, "square"),
        (lambda: BlockILU(empty), ValueError, "have no factors"),
    ]
    for call, kind, fragment in calls:
        if kind is not mixed or comm.size > 1:
            raises(kind, call, fragment)
    assert ours.cg(A, good).converged
    for matrix in (A, tall, single, zero, empty):
        matrix.Free()
    raises(RequestError, lambda: ours.cg(A, good), "freed")


@parameters(solver=SQUARE, jacobi=[False, True], guessed=[False, True])
def case_a_later_call_agrees_once(comm, solver, jacobi, guessed):
    """What is the same as before is not asked for again; what a rank passes that differs is."""
    A, last = distributed(comm, DEFINITE["grid"]()), comm.rank == comm.size - 1
    ones = np.ones(A.row_range[1] - A.row_range[0])
    how = {"M": Jacobi(A)} if jacobi else {}
    how |= {"bounds": (0.1, 20.0)} if solver == "chebyshev" else {}
    solve, x0 = partial(getattr(ours, solver), A, **how), ones / 2 if guessed else None
    right, odd, wide = A @ ones, np.ones(len(ones) + 1), np.ones((len(ones), 2))
    first = solve(right, x0)
    others = [
        (lambda: solve(odd if last else right, x0), ValueError, "b has shape"),
        (lambda: solve(wide if last else right, x0), ValueError, "blocks of 0 and of 2"),
        (lambda: solve(right, x0, rtol=0.1 if last else 0.2), MismatchError, "rank 0 is in"),
        (lambda: solve(right, None if last else ones), MismatchError, "rank 0 is in"),
        (lambda: solve(right, x0, callback=print if last else 3), TypeError, "callback"),
    ]
    for call, kind, fragment in [*others, (None, None, None)]:
        found = solve(right, x0)
        with mock.patch.object(runs, "largest", side_effect=AssertionError("asked again")):
            again = solve(right, x0)
        for each in (found, again):
            assert np.array_equal(each.x, first.x)
            assert np.array_equal(each.residuals, first.residuals)
            assert each.reason == first.reason
            assert each.true_residual == first.true_residual
        if call is not None and comm.size > 1:
            raises(kind, call, fragment)
    B = distributed(comm, DEFINITE["grid"]())
    for matrix in (A, B):
        matrix.scale(1.5)
    fresh = {"M": Jacobi(B)} if jacobi else {}
    afresh = getattr(ours, solver)(B, 3 * right, x0, **how | fresh)
    assert np.array_equal(solve(3 * right, x0).x, afresh.x)
    for matrix in (A, B):
        matrix.Free()
    raises(RequestError, lambda: solve(right, x0), "freed")


@parameters(reuse=[False, True])
def case_a_rounded_hierarchy_knows_slow_modes(comm, reuse):
    """Of a problem whose slow modes are below the rounding of the hierarchy's dtype."""
    off, diagonal = -np.ones(59), [1.0, *[2.0] * 58, 1.0]
    line = sparse.diags_array([off, diagonal, off], offsets=[-1, 0, 1])
    unit = sparse.eye_array(60)
    whole = sparse.csr_array(sparse.kron(unit, line) + 1e-6 * sparse.kron(line, unit))
    A, b = distributed(comm, whole), np.random.default_rng(0).standard_normal(3600)
    mine, counts = (b - b.mean())[slice(*A.row_range)], []
    for dtype in (None, "f4"):
        with AMG(A, dtype=dtype, reuse=reuse) as M:
            for _ in range(2):
                found = ours.cg(A, mine, M=M, rtol=1e-8, maxiter=100, nullspace=np.ones(len(mine)))
                assert found.converged
                counts.append(found.iterations)
                A.scale(2.0)
    assert max(counts) <= min(counts) + 3, counts
    A.Free()


REDUCTIONS = {
    "cg": (2, 0),
    "pipelined_cg": (0, 1),
    "bicgstab": (3, 0),
    "gmres": (2, 0),
    "chebyshev": (0, 1),
    "lsqr": (2, 0),
}


def rounds_of_sums(comm):
    """How many reductions of a communicator's own there have been."""
    return sum(each.request.rounds for each in Context.of(comm).shared.values())


@parameters(solver=list(REDUCTIONS))
def case_reductions_of_an_iteration(comm, solver, seed):
    """The difference of a long and a short run, so that what comes before does not count."""
    A, _, mine = system(comm, DEFINITE["mesh"](), seed)
    how = {"restart": 100} if solver == "gmres" else {}
    how |= {"bounds": (0.1, 20.0)} if solver == "chebyshev" else {}
    found = []
    A.T @ (A @ mine)  # what is planned or found out once is there
    for limit in (8, 18):
        started, before = Space.sums_during, rounds_of_sums(comm)
        with mock.patch.object(Space, "sums_during", autospec=True, side_effect=started) as hidden:
            run = getattr(ours, solver)(A, mine, rtol=0, maxiter=limit, **how)
        assert run.iterations == limit
        waited = rounds_of_sums(comm) - before - hidden.call_count
        found.append((waited, hidden.call_count))
    per = tuple((b - a) / 10 for a, b in zip(*found, strict=True))
    assert per == REDUCTIONS[solver], found
    A.Free()


@parameters(solver=[*ALL, "power_iteration"], jacobi=[False, True])
def case_an_iteration_allocates_no_vector(comm, solver, jacobi, seed):
    n = 24
    A = from_scipy(comm, stencil27(n) if comm.rank == 0 else None, method="p2p")
    rows = A.row_range[1] - A.row_range[0]
    peaks = []

    def callback(x):
        _, peak = tracemalloc.get_traced_memory()
        peaks.append(peak - callback.before)
        tracemalloc.reset_peak()
        callback.before = tracemalloc.get_traced_memory()[0]

    callback.before = 0
    how = {"maxiter": 12, "rtol": 0, "callback": callback}
    how |= {"restart": 3} if solver.endswith("gmres") else {}
    if jacobi and solver in SQUARE:
        how["M"] = Jacobi(A)
    b = np.random.default_rng(seed).standard_normal(rows)
    tracemalloc.start()
    try:
        getattr(ours, solver)(A, b, **how)
    finally:
        tracemalloc.stop()
    assert len(peaks) >= 4
    assert max(peaks[2:]) < 4 * rows, (peaks, 8 * rows)
    A.Free()
