"""Conjugate gradients on Poisson's equation in three dimensions: no preconditioner, symmetric
over-relaxation, and smoothed aggregation."""

import sys

import numpy as np
from mpi4py import MPI

from onesided import sparse

comm = MPI.COMM_WORLD
found = {}
rows = sparse.Partition.even(32**3, comm.size).range(comm.rank)
with sparse.from_rows(comm, sparse.stencil7(32, rows)) as A:
    b = np.random.default_rng(comm.rank).standard_normal(A.row_range[1] - A.row_range[0])
    for name, make in (("none", None), ("SSOR", sparse.SSOR), ("AMG", sparse.AMG)):
        M = make(A) if make else None
        found[name] = sparse.cg(A, b, rtol=1e-8, M=M)
        assert found[name].converged
if comm.rank == 0:
    assert found["AMG"].iterations < found["SSOR"].iterations < found["none"].iterations
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        plt.figure(figsize=(4.6, 3.4))
        for name, solution in found.items():
            plt.semilogy(solution.residuals, label=name)
        plt.xlabel("iteration")
        plt.ylabel("norm of the residual")
        plt.legend(title="preconditioner")
        plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
