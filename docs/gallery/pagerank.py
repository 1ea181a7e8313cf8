"""PageRank of a web that grows: every page links to up to three older ones, the popular ones
preferred."""

import sys

import numpy as np
from mpi4py import MPI

from onesided import sparse

comm, n = MPI.COMM_WORLD, 3000
rng = np.random.default_rng(1)
links = [(1, 0)]
targets = [0]
for page in range(2, n):
    chosen = [targets[k] for k in rng.integers(len(targets), size=3)]
    links += [(page, target) for target in set(chosen)]
    targets += [page, *chosen]
mine = np.array(links[comm.rank :: comm.size])  # each rank passes some of the entries
with sparse.from_triplets(comm, mine[:, 0], mine[:, 1], np.ones(len(mine)), (n, n)) as A:
    found = sparse.pagerank(A)
    degree = A.T @ np.ones(A.row_range[1] - A.row_range[0])  # links to each page
    ranks, degrees = (comm.gather(each) for each in (found.x, degree))
if comm.rank == 0:
    ranks, degrees = np.concatenate(ranks), np.concatenate(degrees)
    assert np.isclose(ranks.sum(), 1)
    if len(sys.argv) > 1:
        import matplotlib.pyplot as plt

        plt.figure(figsize=(4.6, 3.4))
        plt.loglog(degrees + 1, ranks, ".", markersize=4, alpha=0.4)
        plt.xlabel("links to a page, plus one")
        plt.ylabel("PageRank")
        plt.savefig(sys.argv[1], dpi=72, bbox_inches="tight")
