"""Our matrices as PETSc's and back, PETSc's own solvers on them, where there
is petsc4py for this MPI; and what it would be told."""

import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
from cases import need, parameters, skip
from cases_formats import whole_of
from cases_matrix import block, complex_values
from cases_numerics import EASY, kind_of, named
from cases_solvers import DEFINITE, distributed, random
from errors import raises
from scipy import sparse

from onesided.sparse import from_scipy, petsc
from onesided.sparse import solvers as ours

#: How PETSc solves a definite system: a Krylov method, a preconditioner, whose factors.
THEIRS = {
    "its own choice": (None, None, None),
    "GAMG": ("cg", "gamg", None),
    "hypre": ("cg", "hypre", None),
    "MUMPS": ("preonly", "lu", "mumps"),
    "with the shell": ("cg", "jacobi", None),
}
#: PETSc's names of solvers, ours, and by which part iterations may differ.
ALIKE = {
    "definite": [("cg", "cg", 0.1), ("minres", "minres", 0.1), ("gmres", "gmres", 0.02)],
    "hermitian": [("minres", "minres", 0.1), ("gmres", "gmres", 0.02)],
    "general": [("gmres", "gmres", 0.02), ("bcgs", "bicgstab", 0.3)],
    "rectangle": [("lsqr", "lsqr", 0.1)],
}


@parameters(shell=[False, True])
def case_there_and_back(comm, shell, seed):
    need("petsc4py")
    a = DEFINITE["grid"]()
    A = distributed(comm, a)
    M = petsc.shell(A) if shell else petsc.aij(A)
    x, y = M.createVecs()
    x.array[:] = random(512, float, seed)[slice(*A.col_range)]
    M.mult(x, y)
    np.testing.assert_allclose(y.array, A @ x.array, rtol=1e-12, atol=1e-12)
    if not shell:
        with petsc.from_aij(M) as back:
            assert np.array_equal(whole_of(comm, back), a.toarray())
    for thing in (M, x, y):
        thing.destroy()
    A.Free()


def solved(A, M, mine, **how):
    """How often PETSc iterates, None without success, and what it comes to; unpreconditioned norms
    where it has them."""
    from petsc4py import PETSc

    ksp = PETSc.KSP().create(A.comm)
    ksp.setOperators(M)
    if how["solver"] is not None:
        ksp.setType(how["solver"])
        ksp.getPC().setType(how["precond"])
    if how.get("factors"):
        ksp.getPC().setFactorSolverType(how["factors"])
    if how["solver"] == "gmres":
        ksp.setGMRESRestart(50)
        ksp.setPCSide(PETSc.PC.Side.RIGHT)
    if how["precond"] == "none" and how["solver"] in ("cg", "bcgs"):
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.setTolerances(rtol=how["rtol"], atol=0, max_it=3000)
    x, y = M.createVecs()
    y.array[:] = mine
    ksp.solve(y, x)
    count = ksp.getIterationNumber() if ksp.getConvergedReason() > 0 else None
    found = x.array.copy()
    for thing in (ksp, x, y):
        thing.destroy()
    return count, found


@parameters(name=list(THEIRS))
def case_their_solvers(comm, name, seed):
    need("petsc4py")
    A = distributed(comm, DEFINITE["grid"]())
    mine = random(512, float, seed)[slice(*A.row_range)]
    M = petsc.shell(A) if name == "with the shell" else petsc.aij(A)
    solver, precond, factors = THEIRS[name]
    count, x = solved(A, M, mine, solver=solver, precond=precond, factors=factors, rtol=1e-9)
    rest, size = (np.sqrt(comm.allreduce(v @ v)) for v in (A @ x - mine, mine))
    assert count is not None
    assert rest <= 1e-7 * size
    M.destroy()
    A.Free()


@parameters(name=EASY)
def case_as_many_iterations(comm, name, seed):
    """Without preconditioner, to the same residual."""
    need("petsc4py")
    whole = sparse.csr_array(named(name))
    if whole.dtype.kind == "c":
        skip("PETSc is built for real numbers")
    A = distributed(comm, whole.astype(float))
    b = whole @ np.random.default_rng(seed).standard_normal(whole.shape[1])
    mine = b[slice(*A.row_range)]
    M = petsc.aij(A)
    for theirs, name_, part in ALIKE[kind_of(name)]:
        count, _ = solved(A, M, mine, solver=theirs, precond="none", rtol=1e-6)
        how = {"restart": 50} if name_ == "gmres" else {}
        found = getattr(ours, name_)(A, mine, rtol=1e-6, maxiter=3000, **how)
        if count is None:  # a breakdown of theirs
            continue
        assert found.converged, (name_, found.reason)
        assert abs(found.iterations - count) <= 2 + part * count, (name_, found.iterations, count)
    M.destroy()
    A.Free()


@parameters(dtype=["f8", "c16"])
def case_what_petsc_calls(comm, dtype, seed):
    """The context of the shell, with arrays in the place of PETSc's vectors."""
    rng = np.random.default_rng(seed)
    whole = complex_values(sparse.random_array((20, 20), density=0.4, rng=rng), rng)
    whole = whole if dtype == "c16" else whole.real
    with from_scipy(comm, whole, method="p2p") as matrix:
        context, mine = petsc.ShellContext(matrix), slice(*matrix.row_range)
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
    with (
        mock.patch.dict(sys.modules, {"petsc4py": library}),
        from_scipy(comm, whole, method="p2p") as matrix,
        from_scipy(comm, whole, method="p2p", dtype="f4") as single,
    ):
        assert isinstance(petsc.shell(matrix), Mat)
        n_rows, n_cols = (len(range(*ends)) for ends in (matrix.row_range, matrix.col_range))
        assert told["size"] == ((n_rows, 20), (n_cols, 30))
        assert told["context"].matrix is matrix
        assert told["comm"] is comm
        assert told["ready"]
        raises(TypeError, lambda: petsc.shell(single), "float32")


def case_without_petsc4py_the_shell_says_so_on_every_rank(comm):
    with from_scipy(comm, sparse.eye_array(4, dtype="f4"), method="p2p") as matrix:
        try:
            text = str(raises(ImportError, lambda: petsc.shell(matrix)))
        except TypeError as error:  # petsc4py is here, with scalars of another type
            text = str(error)
        assert "petsc" in text.lower()
        assert len(set(comm.allgather(text))) == 1
