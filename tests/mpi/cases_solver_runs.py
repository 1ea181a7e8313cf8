"""How runs of solvers end, what they refuse, and what an iteration costs."""

import tracemalloc
from functools import partial
from itertools import pairwise
from unittest import mock

import numpy as np
from cases import parameters, ranks
from cases_solvers import DEFINITE, distributed, shipped, system
from errors import raises
from scipy import sparse

from onesided.collectives import RequestError, sums
from onesided.collectives.context import Context
from onesided.sparse import Partition, diags, from_scipy, stencil27
from onesided.sparse import solvers as ours
from onesided.sparse.preconditioners import SSOR, BlockILU, Jacobi
from onesided.sparse.solvers.space import Space

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
    assert comm.size > 1 or all(differ)
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
        assert call(M=Fails()) == "on all"
        words = call(M=Jacobi(other), callback=lambda x: other.scale(0.5))
        assert "values of the matrix" in words
    other.Free()
    assert not any(each.request.active for each in Context.of(comm).shared.values())
    assert ours.cg(A, mine).converged
    if solver in ("pipelined_cg", "chebyshev"):
        interrupt_in_sums(comm, lambda: call(callback=None))
        assert ours.cg(A, mine).converged
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

    solve = partial(getattr(ours, solver), A, M=precondition, maxiter=40)
    rights = {"lobpcg": [2], "cg": [mine, np.stack([mine, 2 * mine], axis=1)]}.get(solver, [mine])
    for right in rights:
        calls.clear()
        raises(ZeroDivisionError, partial(solve, right, rtol=1e-30), "on rank")
    A.Free()


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
    two = np.ones((n, 2))
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
        (lambda: ours.cg(A, good, M=3 if last else Jacobi), TypeError, "apply"),
        (lambda: ours.cg(A, good, callback=3), TypeError, "callback"),
        (lambda: ours.cg(A, np.array(["a"] * n)), TypeError, "<U1"),
        (lambda: ours.cg(single, good.astype("g")), TypeError, "products are of float32"),
        (lambda: ours.cg(tall, high), ValueError, "square"),
        (lambda: ours.gmres(A, good, restart=0), ValueError, "restart is 0"),
        (lambda: ours.chebyshev(A, good, bounds=(2.0, 1.0)), ValueError, "bounds are"),
        (lambda: ours.lsqr(A, good, damp=-1.0), ValueError, "damp is"),
        (lambda: ours.pagerank(A), ValueError, "below zero"),
        (lambda: ours.pagerank(A, damping=1.0), ValueError, "damping is 1.0"),
        (lambda: Jacobi(zero), ValueError, "row 9"),
        (lambda: SSOR(zero), ValueError, "row 9"),
        (lambda: SSOR(A, omega=2.0), ValueError, "omega is 2.0"),
        (lambda: Jacobi(tall), ValueError, "square"),
        (lambda: BlockILU(tall), ValueError, "square"),
        (lambda: BlockILU(empty), ValueError, "have no factors"),
    ]
    for call, kind, fragment in calls:
        raises(kind, call, fragment)
    assert ours.cg(A, good).converged
    for matrix in (A, tall, single, zero, empty):
        matrix.Free()
    raises(RequestError, lambda: ours.cg(A, good), "freed")


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
