"""What "converged" means: scales of all kinds, the true residual, singular systems; and a table of
every solver with every preconditioner on many matrices."""

import os
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse.linalg as serial
from cases import parameters, skip
from cases_solvers import DEFINITE, GENERAL, RECTANGLES, counted, distributed, joined, shipped
from scipy import sparse

from onesided.sparse import solvers as ours
from onesided.sparse import stencil7
from onesided.sparse.preconditioners import AMG, SSOR, BlockILU, Jacobi

pytestmark = pytest.mark.one_mpi

SOLVERS = ["cg", "pipelined_cg", "minres", "bicgstab", "gmres", "fgmres", "lsqr", "lsmr"]
LARGE = os.environ.get("ONESIDED_MATRICES", "")


@parameters(solver=[*SOLVERS, "chebyshev"], bad=[np.inf, np.nan])
def case_what_is_no_number_is_a_breakdown(comm, solver, bad):
    A = distributed(comm, DEFINITE["grid"]())
    b = np.ones(A.row_range[1] - A.row_range[0])
    if comm.rank == comm.size - 1:
        b[-1] = bad
    with np.errstate(all="ignore"):
        found = getattr(ours, solver)(A, b)
    assert not found.converged
    assert found.reason.startswith("breakdown: "), found.reason
    A.Free()


@parameters(solver=SOLVERS)
def case_converged_means_the_true_residual(comm, solver, seed):
    """An ill-conditioned system, close to what rounding allows: true, or not told."""
    n = 30
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    whole = sparse.csr_array(q @ np.diag(np.geomspace(1, 1e-9, n)) @ q.T)
    whole = sparse.csr_array((whole + whole.T) / 2)
    b = rng.standard_normal(n)
    A = distributed(comm, whole)
    mine = b[slice(*A.row_range)]
    told = []
    for rtol in (1e-2, 1e-6, 1e-8, 1e-13):
        with np.errstate(all="ignore"):
            found = getattr(ours, solver)(A, mine, rtol=rtol, maxiter=600)
        x = joined(comm, found.x)
        rest, size = np.linalg.norm(b - whole @ x), 1e-14 * np.linalg.norm(x)
        np.testing.assert_allclose(found.true_residual, rest, rtol=0.05, atol=size)
        told.append(found.converged)
        least = solver.startswith("ls") and found.reason.endswith("squares")
        assert not found.converged or least or rest <= rtol * np.linalg.norm(b) + size
    assert told[0] or solver in ("bicgstab", "gmres", "fgmres", "pipelined_cg"), told
    A.Free()


@parameters(solver=["gmres", "fgmres"])
def case_gmres_gives_the_least_residual_of_a_singular_system(comm, solver):
    whole = sparse.csr_array([[1.0, 3.0], [3.0, 9.0]])
    A = distributed(comm, whole)
    b = np.array([1.0, 0.0])
    found = getattr(ours, solver)(A, b[slice(*A.row_range)])
    x = joined(comm, found.x)
    assert not found.converged
    assert found.reason.startswith("breakdown: ")
    assert abs(x).max() < 10, x
    np.testing.assert_allclose(np.linalg.norm(b - whole @ x), np.sqrt(0.9), rtol=1e-9)
    A.Free()


@parameters(solver=["gmres", "fgmres", "bicgstab"])
def case_the_null_space_of_a_matrix_that_is_not_normal(comm, solver):
    """What A maps to zero is not what A.H does: b is consistent, and is left as it is."""
    whole = sparse.csr_array(np.array([[1.0, 0.0], [1.0, 0.0]]))
    A = distributed(comm, whole)
    rows = slice(*A.row_range)
    found = getattr(ours, solver)(A, np.ones(2)[rows], nullspace=np.array([0.0, 1.0])[rows])
    assert found.converged, found.reason
    np.testing.assert_allclose(joined(comm, found.x), [1, 0], atol=1e-4)
    assert found.relative_residual <= 1e-5
    A.Free()


# -- the table -----------------------------------------------------------------------------------


def named(name):
    """A matrix of the tests, or of the folder of matrices."""
    if name in SHIPPED:
        return SHIPPED[name]()
    return sparse.csr_array(scipy.io.mmread(Path(LARGE) / f"{name}.mtx.gz", spmatrix=False))


@cache
def kind_of(name):
    """definite, hermitian, general or rectangle."""
    whole = named(name)
    if whole.shape[0] != whole.shape[1]:
        return "rectangle"
    if abs(whole - whole.conj().T).max() > 0:
        return "general"
    diagonal = whole.diagonal().real
    if np.any(diagonal <= 0):
        return "hermitian"
    try:
        scale = sparse.diags_array(1 / np.sqrt(diagonal))
        unit = (scale @ whole @ scale).tocsc()
        lu = serial.splu(unit, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                         options={"SymmetricMode": True})
    except RuntimeError:
        return "hermitian"
    pivots = lu.U.diagonal()
    return "definite" if np.all(pivots.real > 0) else "hermitian"


SHIPPED = DEFINITE | {f"{name}, general": make for name, make in GENERAL.items()} | RECTANGLES
SHIPPED |= {
    "indefinite": lambda: sparse.csr_array(stencil7(5) - 4.5 * sparse.eye_array(125)),
    "orsirr_1": lambda: shipped("orsirr_1"),
    "line": lambda: sparse.csr_array(
        sparse.diags_array([2.0, -1.0, -1.0], offsets=[0, 1, -1], shape=(90, 90))
    ),
}


def band(*values, n=40):
    """A Toeplitz matrix; ``values`` by offset, from the one below the diagonal on."""
    offsets = range(-1, len(values) - 1)
    return sparse.csr_array(sparse.diags_array(values, offsets=offsets, shape=(n, n)))


def drawn(rows, cols, seed, kind=float):
    found = sparse.random_array((rows, cols), density=0.2, rng=seed)
    if kind is complex:
        found = found + 1j * sparse.random_array((rows, cols), density=0.2, rng=seed + 1)
    return sparse.csr_array(found)


def square(a, shift):
    return sparse.csr_array(a.conj().T @ a + shift * sparse.eye_array(a.shape[1]))


def plane(along, across, n=7):
    """The five-point stencil with another strength along each axis."""
    line, unit = band(-1.0, 2.0, -1.0, n=n), sparse.eye_array(n)
    return sparse.csr_array(along * sparse.kron(unit, line) + across * sparse.kron(line, unit))


def saddle():
    b = drawn(30, 10, 5) + sparse.eye_array(30, 10)
    return sparse.csr_array(sparse.block_array([[square(drawn(30, 30, 4), 1), b], [b.T, None]]))


SHIPPED |= {
    "identity": lambda: sparse.csr_array(sparse.eye_array(30)),
    "diagonal": lambda: sparse.csr_array(sparse.diags_array(np.geomspace(1, 1e3, 40))),
    "beam": lambda: sparse.csr_array(band(-1.0, 2.0, -1.0, n=20) @ band(-1.0, 2.0, -1.0, n=20)),
    "anisotropic": lambda: plane(1.0, 0.02),
    "drawn, definite": lambda: square(drawn(40, 40, 1), 0.5),
    "drawn, complex, definite": lambda: square(drawn(30, 30, 2, complex), 0.5),
    "links": lambda: sparse.csr_array(
        serial.LaplacianNd((6, 6)).tosparse() * -1.0 + 0.1 * sparse.eye_array(36)
    ),
    "Helmholtz": lambda: sparse.csr_array(plane(1.0, 1.0) - 1.3 * sparse.eye_array(49)),
    "saddle": saddle,
    "upwind": lambda: band(-1.0, 2.0),
    "Grcar": lambda: band(-1.0, 1.0, 1.0, 1.0, 1.0),
    "convection": lambda: sparse.csr_array(plane(1.0, 1.0) + sparse.kron(
        sparse.eye_array(7), band(-0.9, 0.0, 0.9, n=7))),
    "drawn, general": lambda: sparse.csr_array(drawn(40, 40, 3) + 4 * sparse.eye_array(40)),
    "drawn, complex, general": lambda: sparse.csr_array(
        drawn(30, 30, 6, complex) + (3 + 2j) * sparse.eye_array(30)
    ),
    "tall": lambda: drawn(60, 12, 7),
    "flat, complex": lambda: drawn(12, 50, 8, complex),
}
#: What not all of the methods can solve; but what they tell must be true.
HARD = ["west0479", "young1c", "plskz362", "dwg961b", "zenios", "lp_share1b", "mycielskian5",
        "karate", "Hamrle1", "ch5-5-b1", "bcsstm22"]
EASY = list(SHIPPED)
SHIPPED |= {name: partial(shipped, name) for name in HARD if name not in SHIPPED}
MATRICES = list(SHIPPED)
FITS = {
    "definite": SOLVERS,
    "hermitian": ["minres", "gmres", "fgmres", "bicgstab", "lsqr", "lsmr"],
    "general": ["gmres", "fgmres", "bicgstab", "lsqr", "lsmr"],
    "rectangle": ["lsqr", "lsmr"],
}
PRECONDITIONERS = {
    "none": lambda A, definite: None,
    "jacobi": lambda A, definite: Jacobi(A),
    "ssor": lambda A, definite: SSOR(A),
    "ilu": lambda A, definite: BlockILU(A, hermitian=definite),
    "amg": lambda A, definite: AMG(A),
}
#: Why a matrix may have no preconditioner of a kind.
NO_PRECONDITIONER = {
    "jacobi": "the diagonal has 0",
    "ssor": "the diagonal has 0",
    "ilu": "have no factors|are not Hermitian",
    "amg": "the diagonal has 0",
}
NO_M = ("lsqr", "lsmr")


def larger(comm):
    """Square matrices of the folder that an iteration of Python can afford."""
    if not LARGE:
        return []
    names = []
    for path in sorted(Path(LARGE).glob("*.mtx.gz")):
        rows, cols, entries, *_ = scipy.io.mminfo(path)
        if rows == cols and entries <= 60_000 and path.name[:-7] not in MATRICES:
            names.append(path.name[:-7])
    return names


def row(comm, name, seed, maxiter):
    """Solve with everything that fits; what of it converged. Whatever is told must be true."""
    whole = sparse.csr_array(named(name).astype(np.result_type(named(name).dtype, float)))
    kind = kind_of(name)
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal(whole.shape[1])
    b = whole @ exact
    A = distributed(comm, whole)
    mine = b[slice(*A.row_range)]
    size, scale = np.linalg.norm(b), abs(whole).sum(axis=1).max()
    converged = {}
    for precond, make in PRECONDITIONERS.items():
        if kind == "rectangle" and precond != "none":
            continue
        try:
            M = make(A, kind == "definite")
        except ValueError as error:
            assert re.search(NO_PRECONDITIONER[precond], str(error)), (name, precond, error)
            continue
        for solver in FITS[kind]:
            if M is not None and (solver in NO_M or (solver == "minres" and kind != "definite")):
                continue
            how = {} if M is None else {"M": M}
            how |= {"restart": 50} if solver.endswith("gmres") else {}
            how |= {"replacement": 10} if solver == "pipelined_cg" else {}
            with np.errstate(all="ignore"):
                found = getattr(ours, solver)(A, mine, rtol=1e-6, maxiter=maxiter, **how)
            heard = found.converged, found.iterations, found.reason, found.residuals.tolist()
            assert all(other == heard for other in comm.allgather(heard))
            assert len(found.residuals) == found.iterations + 1
            x = joined(comm, found.x)
            rest = np.linalg.norm(b - whole @ x)
            rounding = 1e-13 * scale * abs(x).max()
            facts = name, precond, solver, found.reason, rest / size
            least = found.reason.endswith("squares")
            small = rest <= 1e-6 * size * (1 + 1e-7) + rounding
            assert least or not found.converged or small, facts
            assert not np.isfinite(rest) or abs(found.true_residual - rest) <= (
                1e-6 * rest + rounding * len(b)
            ), facts
            converged[precond, solver] = found.iterations if found.converged else None
        if isinstance(M, AMG):
            M.Free()
    A.Free()
    return whole, b, kind, converged


@parameters(name=MATRICES)
def case_table(comm, name, seed):
    most = 60 if name not in EASY else 20000 if kind_of(name) == "definite" else 1000
    whole, b, kind, converged = row(comm, name, seed, most)
    assert converged
    if name not in EASY:
        return
    if kind == "definite":
        missing = [key for key, count in converged.items() if count is None]
        assert not missing, missing
        for precond in ("none", "jacobi"):
            M = sparse.diags_array(1 / whole.diagonal()) if precond == "jacobi" else None
            _, theirs = counted(serial.cg, whole, b, rtol=1e-6, M=M)
            assert abs(converged[precond, "cg"] - theirs) <= 2 + theirs // 8, (converged, theirs)
            # rounding delays the pipelined recurrences where the condition is bad
            assert converged[precond, "pipelined_cg"] <= 2 + 3 * theirs, (converged, theirs)
        if whole.dtype.kind != "c":  # SciPy's conjugates nothing
            _, theirs = counted(serial.minres, whole, b, rtol=1e-7)
            assert converged["none", "minres"] <= 2 + 1.2 * theirs
    assert sum(count is not None for count in converged.values()) >= len(converged) // 2, converged


@parameters(name=larger)
def case_table_of_the_folder(comm, name, seed):
    if not LARGE:
        skip("ONESIDED_MATRICES names no folder")
    row(comm, name, seed, 300)
