"""PageRank: how often a random surfer of a directed graph is at each of its nodes.

S. Brin, L. Page, The anatomy of a large-scale hypertextual Web search engine, Computer Networks
and ISDN Systems 30 (1998), 107-117.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.sparse.alike import plain
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.solvers.run import Callback, Rules, Run
from onesided.sparse.solvers.solution import Solution


def pagerank(
    A: DistMatrix, x0: Any = None, *, damping: float = 0.85, rtol: float = 0.0,
    atol: float = 1e-8, maxiter: int | None = 1000, callback: Callback = None,
) -> Solution[NDArray[Any]]:  # fmt: skip
    """Collective. Ranks of the nodes of a graph, their sum one; entry (i, j) of A is a link i to j.

    From a node the surfer follows, with probability ``damping``, one of its links, as likely as
    the link's value says; else, and from a node without links, goes to any node. Values are zero
    or above. ``residuals[k]`` is the sum of absolute changes of iteration k + 1, by which it stops
    (<= max(rtol, atol, eps of the dtype)); ``maxiter`` None: ten times the number of nodes. One
    product with A.T and one reduction an iteration. ``x0`` None: all nodes alike. Raises on every
    rank ``ValueError`` for complex numbers, values below zero or not finite, and a damping outside
    of 0 to 1.

    Examples
    --------
    >>> links = from_triplets(comm, [0, 1, 2] * (comm.rank == 0), [1, 2, 0] * (comm.rank == 0),
    ...                       [1.0] * 3 * (comm.rank == 0), (3, 3))
    >>> np.allclose(pagerank(links).x, 1 / 3)
    True
    >>> links.Free()
    """
    if not isinstance(A, DistMatrix):
        raise TypeError(f"pagerank takes a DistMatrix, not {type(A).__name__}")
    with agreed(A.comm, ("pagerank", plain(damping))):
        if np.dtype(A.dtype).kind == "c" or np.iscomplexobj(x0):
            raise ValueError("pagerank needs a real matrix and a real x0; one is complex")
        if not 0 <= damping < 1:
            raise ValueError(f"damping is {damping}; it must be from 0 to below 1")
        start, stop = A.row_range
        first = np.full(stop - start, 1.0 / max(A.shape[0], 1), A.dtype) if x0 is None else x0
    run = Run("pagerank", A, first, None, Rules(rtol, atol, maxiter, callback))
    run.x[:] = run.b
    run.tolerance = max(rtol, atol, float(np.finfo(run.space.dtype).eps))  # of a sum of 1
    with agreed(A.comm):
        if not np.all(np.isfinite(A.values)) or np.any(A.values < 0):
            raise ValueError("a link has a value below zero, or that is no number")
    _iterate(run, damping)
    return run.solution(run.residuals[-1] if run.residuals else np.nan)


@np.errstate(all="ignore")
def _iterate(run: Run, damping: float) -> None:
    """Collective. x = damping (A.T (x / out) + dangling / n) + (1 - damping) / n, again and again.

    What a node gives to each of its links is one over the sum of their values.
    """
    space, x, A = run.space, run.x, cast(DistMatrix, run.A)
    size = max(A.shape[0], 1)
    transposed = A.T
    out = A.sum(axis=1)
    dangling = out == 0
    share = np.zeros_like(out)
    np.divide(1.0, out, out=share, where=~dangling)
    y, given = space.vector(), space.vector()
    total, lost = space.sums(x.sum(), x.sum(where=dangling))
    if not run.positive(total, "the sum of x0"):
        return
    space.scale(1.0 / total, x)
    lost /= total
    while True:
        np.multiply(x, share, out=given)
        transposed.multiply(given, y)
        y *= damping
        y += (damping * lost + 1.0 - damping) / size
        np.subtract(y, x, out=given)
        np.abs(given, out=given)
        np.copyto(x, y)
        change, lost = space.sums(given.sum(), x.sum(where=dangling))
        ends = run.record(change)
        if run.calls_back and not run.iterations:  # the first change is of an iteration, too
            run.call_back()
        if ends:
            return
