"""PETSc's product of a sparse matrix and a vector, timed when asked to.

petsc_product.py FOLDER, under mpiexec. Rank r loads FOLDER/r.npz: its rows in CSR with global
columns, the ranges of its rows and columns, and its block of x. Then the first line comes out, in
JSON: versions, ranks, and of every rank's block of one product its norm and its scalar product
with the cosine of the global row numbers. After that every line "product COUNT LEAD" on standard
input is answered by the seconds of a product, on the slowest rank, of COUNT in a row, after others
have run for LEAD seconds; the end of the input ends the program. Ranks that wait for a line sleep.
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


def loaded(comm: MPI.Comm, path: str) -> tuple[Any, Any, Any, int]:
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


def checksums(comm: MPI.Comm, y: Any, first: int) -> list[list[float]]:
    """Of every rank's block: its norm, and its scalar product with known numbers."""
    block = y.getArray(readonly=True)
    weights = np.cos(np.arange(first, first + len(block)))
    mine = [float(np.linalg.norm(block)), float(weights @ block)]
    return [list(each) for each in zip(*comm.allgather(mine), strict=True)]


def seconds(comm: MPI.Comm, matrix: Any, x: Any, y: Any, count: int) -> float:
    """Of one product, on the slowest rank."""
    multiply = matrix.mult
    comm.Barrier()
    began = MPI.Wtime()
    for _ in range(count):
        multiply(x, y)
    return float(comm.allreduce((MPI.Wtime() - began) / count, op=MPI.MAX))


def next_question(comm: MPI.Comm) -> tuple[int, float]:
    """COUNT and LEAD on all ranks; no COUNT at the end. Only rank 0 reads."""
    question = np.zeros(2)
    if comm.rank == 0:
        words = sys.stdin.readline().split()
        if len(words) == 3:
            question[:] = int(words[1]), float(words[2])
    request = comm.Ibcast(question, 0)
    while not request.Test():
        time.sleep(PAUSE)
    return int(question[0]), float(question[1])


def main() -> None:
    comm = MPI.COMM_WORLD.Dup()
    matrix, x, y, first = loaded(comm, os.path.join(sys.argv[1], f"{comm.rank}.npz"))
    matrix.mult(x, y)
    norms, sums = checksums(comm, y, first)
    if comm.rank == 0:
        facts = {
            "version": ".".join(map(str, PETSc.Sys.getVersion())),
            "mpi": MPI.Get_library_version().split(",")[0].strip(" \0\n"),
            "ranks": comm.size,
            "type": matrix.getType(),
            "norms": norms,
            "sums": sums,
        }
        print(json.dumps(facts), flush=True)
    count, lead = next_question(comm)
    while count:
        taken = seconds(comm, matrix, x, y, count)
        while lead > 0:
            lead -= taken * count
            taken = seconds(comm, matrix, x, y, count)
        if comm.rank == 0:
            print(f"{taken:.9e}", flush=True)
        count, lead = next_question(comm)


main()
