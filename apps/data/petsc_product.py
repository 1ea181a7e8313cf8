"""PETSc's product of a sparse matrix and a vector, or its solvers, timed when asked.

petsc_product.py FOLDER, under mpiexec. Rank r loads FOLDER/r.npz: its rows in CSR with global
columns, the ranges of its rows and columns, and its block of x. Then the first line comes out, in
JSON: versions, ranks, and of every rank's block of one product its norm and its scalar product
with the cosine of the global row numbers. After that every line "product COUNT LEAD" on standard
input is answered by the seconds of a product, on the slowest rank, of COUNT in a row, after others
have run for LEAD seconds. "cg COUNT LEAD" is answered by the seconds of COUNT iterations of
conjugate gradients for A y = x, without a preconditioner; then "residual 1 0" by how far the norm
of x - A y, computed anew, lies off that of the recurrence, relative to x. Where there is a
FOLDER/solver.json, "solve 1 0" is answered by the seconds of a solution of A y = x as that says,
"rest 1 0" then by the norm of x - A y relative to x, and "steps 1 0" by its iterations. The end of
the input ends the program. Ranks that wait for a line sleep.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc  # type: ignore[import-not-found]

PAUSE = 0.002  # seconds between two looks for a question
QUESTIONS = ("product", "cg", "residual", "solve", "rest", "steps")
TYPES = ("aij", "sell", "aijmkl", "aijperm", "aijsell")  # those of a processor
TRIAL = 0.02  # seconds of products by which they are compared
TINY = 1e-300  # a tolerance that is never reached


def loaded(comm: MPI.Intracomm, path: str) -> tuple[Any, Any, Any, int]:
    """The matrix, x with its numbers, y, and the number of the first row of this rank."""
    with np.load(path) as file:
        (first, last), (start, stop) = file["rows"].tolist(), file["columns"].tolist()
        rows = tuple(file[name].astype(PETSc.IntType, copy=False) for name in ("indptr", "indices"))
        shape = file["shape"].tolist()
        sizes = (last - first, shape[0]), (stop - start, shape[1])
        matrix = PETSc.Mat().createAIJ(sizes, csr=(*rows, file["data"]), comm=comm)
        x, y = matrix.createVecs()
        x.setArray(file["x"])
    return matrix, x, y, first


def fastest(comm: MPI.Intracomm, matrix: Any, x: Any, y: Any) -> tuple[Any, dict[str, float]]:
    """The matrix in the type whose product is the fastest, and the seconds of all of this build."""
    found, times = {}, {}
    for kind in TYPES:
        try:
            made = matrix if kind == TYPES[0] else matrix.convert(kind, PETSc.Mat())
            made.mult(x, y)
        except PETSc.Error:  # this build has no such type
            continue
        count = max(1, int(TRIAL / max(seconds(comm, made, x, y, 1), 1e-7)))
        found[kind], times[kind] = made, min(seconds(comm, made, x, y, count) for _ in range(3))
    best = min(times, key=lambda kind: times[kind])
    for kind, made in found.items():
        if kind not in (best, TYPES[0]):
            made.destroy()
    return found[best], times


def checksums(comm: MPI.Intracomm, y: Any, first: int) -> list[list[float]]:
    """Of every rank's block: its norm, and its scalar product with known numbers."""
    block = y.getArray(readonly=True)
    weights = np.cos(np.arange(first, first + len(block)))
    mine = [float(np.linalg.norm(block)), float(weights @ block)]
    return [list(each) for each in zip(*comm.allgather(mine), strict=True)]


def seconds(comm: MPI.Intracomm, matrix: Any, x: Any, y: Any, count: int) -> float:
    """Of one product, on the slowest rank."""
    multiply = matrix.mult
    comm.Barrier()
    began = MPI.Wtime()
    for _ in range(count):
        multiply(x, y)
    return float(comm.allreduce((MPI.Wtime() - began) / count, op=MPI.MAX))


def solver(comm: MPI.Intracomm, matrix: Any) -> Any:
    """Conjugate gradients that end with the last iteration alone."""
    ksp = PETSc.KSP().create(comm=comm)
    ksp.setType("cg")
    ksp.setNormType(PETSc.KSP.NormType.NATURAL)  # no reduction more than the method needs
    ksp.getPC().setType("none")
    ksp.setOperators(matrix)
    return ksp


def told(folder: str) -> dict[str, Any] | None:
    """What ``solver.json`` says, if it is there."""
    path = os.path.join(folder, "solver.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as words:
        found: dict[str, Any] = json.load(words)
    return found


def told_solver(comm: MPI.Intracomm, matrix: Any, whole: Any, how: dict[str, Any]) -> Any:
    """The solver that was told, set up; ``whole`` is the matrix in PETSc's own format, of which
    the preconditioner is made."""
    ksp = PETSc.KSP().create(comm=comm)
    try:
        ksp.setType(how["ksp"])
        ksp.getPC().setType(how["pc"])
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)  # the residual is what ends ours
        ksp.setTolerances(rtol=how["rtol"], atol=how["atol"] or TINY, max_it=how["maxiter"])
        ksp.setGMRESRestart(how["restart"])
        ksp.setOperators(matrix, whole)
        ksp.setUp()
    except PETSc.Error as error:
        sys.exit(f"PETSc has no {how['ksp']} with {how['pc']}: {error}")
    return ksp


def solution_seconds(comm: MPI.Intracomm, ksp: Any, x: Any, y: Any) -> float:
    """Of one solution, on the slowest rank; the program ends where there is none."""
    comm.Barrier()
    began = MPI.Wtime()
    ksp.solve(x, y)
    taken = MPI.Wtime() - began
    if ksp.getConvergedReason() < 0:
        sys.exit(f"no solution in {ksp.getIterationNumber()} iterations")
    return float(comm.allreduce(taken, op=MPI.MAX))


def rest_norm(matrix: Any, x: Any, y: Any) -> float:
    """Of x - A y, relative to x."""
    rest = x.duplicate()
    matrix.mult(y, rest)
    rest.aypx(-1.0, x)
    return float(rest.norm()) / (float(x.norm()) or 1.0)


def solve_seconds(comm: MPI.Intracomm, ksp: Any, x: Any, y: Any, count: int) -> float:
    """Of so many iterations, on the slowest rank."""
    ksp.setTolerances(rtol=TINY, atol=TINY, max_it=count)
    comm.Barrier()
    began = MPI.Wtime()
    ksp.solve(x, y)
    taken = MPI.Wtime() - began
    if ksp.getIterationNumber() != count:
        sys.exit(f"{ksp.getIterationNumber()} iterations of {count}")
    return float(comm.allreduce(taken, op=MPI.MAX))


def residual_error(ksp: Any, matrix: Any, x: Any, y: Any) -> float:
    """How far the norm of x - A y lies off that of the recurrence, relative to x."""
    rest = x.duplicate()
    matrix.mult(y, rest)
    rest.aypx(-1.0, x)
    return abs(float(rest.norm()) - float(ksp.getResidualNorm())) / (float(x.norm()) or 1.0)


def next_question(comm: MPI.Intracomm) -> tuple[int, int, float]:
    """Which question, COUNT and LEAD on all ranks; no COUNT at the end. Only rank 0 reads."""
    question = np.zeros(3)
    if comm.rank == 0:
        words = sys.stdin.readline().split()
        if len(words) == 3 and words[0] in QUESTIONS:
            question[:] = QUESTIONS.index(words[0]), int(words[1]), float(words[2])
    request = comm.Ibcast(question, 0)
    while not request.Test():
        time.sleep(PAUSE)
    return int(question[0]), int(question[1]), float(question[2])


def main() -> None:
    comm = MPI.COMM_WORLD.Dup()
    matrix, x, y, first = loaded(comm, os.path.join(sys.argv[1], f"{comm.rank}.npz"))
    whole = matrix
    matrix, types = fastest(comm, matrix, x, y)
    # before the first line: afterwards the folder goes, and a preconditioner may be missing
    ksp: Any = solver(comm, matrix) if matrix.size[0] == matrix.size[1] else None
    how = comm.bcast(told(sys.argv[1]) if comm.rank == 0 else None)
    if how is not None:
        ksp = told_solver(comm, matrix, whole, how)
    matrix.mult(x, y)
    norms, sums = checksums(comm, y, first)
    if comm.rank == 0:
        facts = {
            "version": ".".join(map(str, PETSc.Sys.getVersion())),
            "mpi": MPI.Get_library_version().split(",")[0].strip(" \0\n"),
            "ranks": comm.size, "type": matrix.getType(), "types": types,
            "norms": norms, "sums": sums,
        }  # fmt: skip
        print(json.dumps(facts), flush=True)
    answers = (
        lambda count: seconds(comm, matrix, x, y, count) * count,
        lambda count: solve_seconds(comm, ksp, x, y, count),
        lambda count: residual_error(ksp, matrix, x, y),
        lambda count: solution_seconds(comm, ksp, x, y),
        lambda count: rest_norm(matrix, x, y),
        lambda count: float(ksp.getIterationNumber()),
    )
    kind, count, lead = next_question(comm)
    while count:
        answer = answers[kind](count)
        while lead > 0:
            lead -= answer
            answer = answers[kind](count)
        if comm.rank == 0:
            print(f"{answer / (1 if kind else count):.9e}", flush=True)
        kind, count, lead = next_question(comm)


main()
