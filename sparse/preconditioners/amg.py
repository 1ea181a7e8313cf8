"""Algebraic multigrid by smoothed aggregation.

P. Vanek, J. Mandel, M. Brezina, Algebraic multigrid by smoothed aggregation for second and fourth
order elliptic problems, Computing 56 (1996), 179-196. Aggregates grow around a maximal independent
set of distance two, as of N. Bell, S. Dalton, L. N. Olson, Exposing fine-grained parallelism in
algebraic multigrid methods, SIAM Journal on Scientific Computing 34 (2012), C123-C152. Smoother:
M. Adams et al., Parallel multigrid smoothing: polynomial versus Gauss-Seidel, Journal of
Computational Physics 188 (2003), 593-610.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import sums
from onesided.collectives.agreement import agreed, largest
from onesided.collectives.context import Scoped
from onesided.collectives.errors import RequestError
from onesided.collectives.reduction.operation import broken_sums, drop_broken_sums
from onesided.sparse import stored
from onesided.sparse.alike import columns, plain, spelled, vector_dtype
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import everywhere, lengths
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.preconditioners.blocks import checked_diagonal, loops
from onesided.sparse.preconditioners.preconditioner import OfOneKind

Vector = NDArray[Any]

_KRYLOV_STEPS = 10
#: The part of the spectrum that the smoother takes away, as parts of the largest eigenvalue seen.
_LOWEST, _HIGHEST = 0.1, 1.1
_LEAST_GAIN = 0.7  # rows of a coarser level to those of a finer one, at most
_MOST_LEVELS = 12
_DEPENDENT = 1000  # so many times eps are left of a mode that depends on others
_COARSE_SWEEPS = 8  # of the smoother, where the coarsest level is too large to be inverted


class AMG(OfOneKind, Scoped):
    """One V-cycle of smoothed aggregation; Hermitian positive definite where A is.

    Rows are aggregated within each rank, prolongations are smoothed over all ranks, and coarser
    matrices are the distributed products P.H A P; the coarsest one is inverted on every rank. The
    smoother is a Chebyshev polynomial of the scaled matrix, so that the number of iterations
    hardly depends on the number of ranks.

    ``apply`` is Collective. The hierarchy holds requests: ``Free`` it, or use ``with``.

    Examples
    --------
    >>> with diags(comm, [-1, 2, -1], [-1, 0, 1], shape=(8, 8)) as A:
    ...     b = A @ np.ones(A.col_range[1] - A.col_range[0])
    ...     np.allclose(cg(A, b, M=AMG(A), rtol=1e-8).x, 1, atol=1e-3)
    True
    """

    def __init__(
        self, A: DistMatrix, *, near_nullspace: Any = None, block: int = 1, strength: float = 0.08,
        degree: int = 2, coarsest: int = 600, reuse: bool = False, dtype: DTypeLike | None = None,
    ) -> None:  # fmt: skip
        """Collective. ``near_nullspace``: this rank's block, (n,) or (n, m), or a DistVector, of
        vectors that A makes small, ones if None; of elasticity the rigid body motions. ``block``:
        consecutive unknowns of a node, which are aggregated together. Connections weaker than
        ``strength`` times the geometric mean of the diagonal are left out of aggregates, half as
        strong ones on each coarser level. ``degree``: products of a smoothing. ``reuse``: where A
        gets other values, prolongations are kept and coarser matrices alone computed anew.
        ``dtype``: that of the hierarchy, such as float32, which needs half the memory and time,
        under a solver in double precision; A's own if None. It is made in the wider of both, and
        with ``reuse`` the wider prolongations are kept as well.

        Raises the same error on every rank: ``ValueError`` for a matrix that is not square, a
        zero on its diagonal, shapes and numbers that do not fit.
        """
        how = block, strength, degree, coarsest, near_nullspace is None, reuse
        with agreed(A.comm, ("AMG", plain(how), spelled(dtype))):
            n = A.row_range[1] - A.row_range[0]
            self._kind = np.dtype(A.dtype if dtype is None else dtype)
            vector_dtype(A.dtype, self._kind)
            if block < 1 or n % block:
                raise ValueError(f"blocks of {block} in {n} rows")
            if degree < 1 or coarsest < 1 or not 0 <= strength < 1:
                raise ValueError(f"degree {degree}, coarsest {coarsest}, strength {strength}")
        given = np.ones((n, 1), A.dtype) if near_nullspace is None else near_nullspace
        wide = np.result_type(A.dtype, self._kind)
        self._modes = columns(A.comm, "near_nullspace", given, n, wide)
        with agreed(A.comm):
            if not self._modes.shape[1] or not np.all(np.isfinite(self._modes)):
                raise ValueError("near_nullspace has no vectors, or holds what is no number")
        self._block, self._strength, self._degree = block, strength, degree
        self._coarsest, self._reuse = coarsest, reuse
        self._levels: list[_Level] = []
        self._ways: list[DistMatrix] = []  # from each level to the next one, as they were made
        self._rounded: list[DistMatrix] = []  # the ways, in a narrower dtype
        self._freed = False
        self._inverse: Vector | None = None
        super().__init__(A)

    @property
    def freed(self) -> bool:
        """Local. True after ``Free``."""
        return self._freed

    @property
    def complexity(self) -> float:
        """Local. Entries of the matrices of all levels, divided by those of the first."""
        entries = [level.A.nnz for level in self._levels]
        return sum(entries) / max(entries[0], 1) if entries else 0.0

    def __repr__(self) -> str:
        sizes = ", ".join(str(level.A.shape[0]) for level in self._levels)
        return f"<AMG with levels of {sizes} rows, operator complexity {self.complexity:.2f}>"

    def _build(self) -> None:
        A = self.matrix
        A.check_square("AMG")  # on all ranks
        if self._freed:
            raise RequestError("the preconditioner has been freed")
        kept = self._ways if self._reuse else []
        self._free(bool(kept))
        if largest(A.comm, None, "AMG", [int(broken_sums(A.comm))])[0]:
            drop_broken_sums(A.comm)
        try:
            if self._modes.dtype != A.dtype:
                A = A.astype(self._modes.dtype)
            self._append(A)
            for P in kept or self._prolongations():
                self._append(self._levels[-1].coarsened(P))
            self._invert(self._levels[-1].A)
            if self._kind != A.dtype:
                self._round()
        except Exception as error:
            if getattr(error, "agreed_on", None) != A.comm:  # other ranks may not come
                raise
            self._free(False)
            if not kept:
                raise
            self._build()  # with ways that fit these values

    def _append(self, A: DistMatrix) -> None:
        """Collective. One more level, which is there to be freed also where it cannot be used."""
        self._levels.append(_Level(A))
        self._levels[-1].prepare()

    def _round(self) -> None:
        """Collective. The levels in a dtype that is narrower than that they were made in: products
        in it would have lost what is left where large entries cancel."""
        for level in self._levels:
            wide, level.A = level.A, level.A.astype(self._kind)
            if wide is not self.matrix:
                wide.Free()
            with agreed(level.A.comm):
                level.look()
            if level.P is not None:
                level.P = level.P.astype(self._kind)
                self._rounded.append(level.P)
            level.room()
        if not self._reuse:
            for way in self._ways:
                way.Free()
            self._ways = []

    def _prolongations(self) -> Iterator[DistMatrix]:
        """Collective. The way to a coarser level from the last one that there is, until that is
        small, or gains nothing."""
        modes, strength = self._modes, self._strength
        nodes = np.arange(len(modes)) // self._block
        while len(self._levels) < _MOST_LEVELS:
            level, A = self._levels[-1], self._levels[-1].A
            if A.shape[0] <= self._coarsest:
                return
            with agreed(A.comm):
                aggregates = _aggregates(A.local(), level.diagonal, nodes, strength)
                tentative, modes, nodes = _tentative(A.local(), aggregates, modes)
            coarse = lengths(A.comm, tentative.shape[1])
            if coarse.size > _LEAST_GAIN * A.shape[0] or not coarse.size:
                return
            self._ways.append(level.prolongation(tentative, coarse))
            yield self._ways[-1]
            strength /= 2

    def _invert(self, A: DistMatrix) -> None:
        """Collective. This rank's rows of the inverse of the coarsest matrix, if it is small."""
        self._inverse = None
        if A.shape[0] > 2 * self._coarsest:
            return
        whole = A.comm.bcast(A.gather())
        with agreed(A.comm):
            dense = whole.toarray().astype(np.result_type(A.dtype, np.float64))
            if not np.all(np.isfinite(dense)):
                raise ValueError("the coarsest matrix holds what is no number")
            rounding = len(dense) * float(np.finfo(A.dtype).eps)
            skew = np.max(np.abs(dense - dense.conj().T), initial=0)
            least = max(1e-13, rounding)
            if skew <= max(1e-10, rounding) * np.max(np.abs(dense), initial=0):
                inverse = np.linalg.pinv((dense + dense.conj().T) / 2, hermitian=True, rcond=least)
            else:
                inverse = np.linalg.pinv(dense, rcond=least)
            with np.errstate(over="ignore"):
                mine = inverse[slice(*A.row_range)].astype(self._kind)
            if not np.all(np.isfinite(mine)):
                raise ValueError(f"the coarsest matrix has an inverse too large for {self._kind}")
            self._inverse = np.ascontiguousarray(mine)

    apply = np.errstate(all="ignore")(OfOneKind.apply)  # of the caller; else one rank might raise

    def _times(self, r: NDArray[Any]) -> NDArray[Any]:
        """Collective. ``RequestError`` after ``Free``."""
        if not self._levels:
            raise RequestError("the preconditioner has been freed, or could not be made anew")
        return self._cycle(0, r)

    def _cycle(self, depth: int, b: Vector) -> Vector:
        """Collective. A V-cycle for A x = b from a level downwards; x belongs to the level."""
        level = self._levels[depth]
        if level.P is None:
            if self._inverse is None:
                return level.smoothed(b, True, _COARSE_SWEEPS * self._degree)
            b = everywhere(level.A.comm, level.A.row_partition, b)
            solved: Vector = np.einsum("ij,j->i", self._inverse, b)  # unlike BLAS' without threads
            return solved
        x = level.smoothed(b, True, self._degree)
        rest = level.rest(b)
        level.P.H.multiply(rest, level.right)
        correction = self._cycle(depth + 1, level.right)
        level.P.multiply(correction, rest)
        x += rest
        return level.smoothed(b, False, self._degree)

    def Free(self) -> None:
        """Collective. Free the requests of the coarser levels; a second time has no effect."""
        self._free(False)
        self._freed = True

    def _free(self, keep: bool) -> None:
        """Collective. Free the matrices of the levels, and unless they are kept the ways between
        them."""
        levels = [level.A for level in self._levels]
        for each in (*levels, *self._rounded, *([] if keep else self._ways)):
            if each is not self.matrix:
                each.Free()
        self._levels, self._rounded = [], []
        self._ways = self._ways if keep else []


class _Level:
    """A matrix, its smoother, and the way to the next level, if there is one."""

    def __init__(self, A: DistMatrix) -> None:
        """Local."""
        self.A = A
        self.P: DistMatrix | None = None

    def prepare(self) -> None:
        """Collective. What the smoother needs."""
        with agreed(self.A.comm):
            self.look()
        self.room()
        self.radius = self._spectral_radius()

    @np.errstate(all="ignore")
    def look(self) -> None:
        """Local. Take the diagonal; ``ValueError`` where it, or its inverse, is zero or no number
        in the dtype of the matrix."""
        self.diagonal = checked_diagonal(self.A)
        self._scale = (1.0 / self.diagonal).astype(self.A.dtype)
        if not np.all(np.isfinite(self._scale)):
            raise ValueError(f"numbers on the diagonal are too small for {self.A.dtype}")

    def room(self) -> None:
        """Local. Vectors of the dtype of the matrix."""
        n, kind = len(self._scale), self.A.dtype
        self._x, self._rest, self._step, self._image = (np.zeros(n, kind) for _ in range(4))
        if self.P is not None:
            self.right = np.zeros(self.P.col_range[1] - self.P.col_range[0], kind)

    def _spectral_radius(self) -> float:
        """Collective. About the largest absolute eigenvalue of the scaled matrix.

        By Arnoldi's method (Lanczos' where A is Hermitian), which sees an eigenvalue that stands
        alone in a few steps; powers of the matrix would not.
        """
        A, kind = self.A, np.result_type(self.A.dtype, np.float64)
        steps = min(_KRYLOV_STEPS, A.shape[0])
        basis = np.zeros((steps + 1, len(self._scale)), A.dtype)
        small = np.zeros((steps + 1, steps), kind)
        rng = np.random.default_rng(A.row_range[0])
        basis[0] = rng.standard_normal(len(self._scale))
        length = self._lengths(basis[:1], basis[0])[0].real
        if not length > 0:
            return 1.0
        basis[0] *= 1.0 / math.sqrt(length)
        done = 0
        for step in range(steps):
            image = basis[step + 1]
            A.multiply(basis[step], self._image)
            np.multiply(self._image, self._scale, out=image)
            for _ in range(2):
                parts = self._lengths(basis[: step + 1], image)
                small[: step + 1, step] += parts
                image -= np.einsum("i,ij->j", parts.astype(A.dtype), basis[: step + 1])
            done = step + 1
            rest = math.sqrt(self._lengths(basis[step + 1 : step + 2], image)[0].real)
            if not rest > 1e-3 * np.abs(small[: step + 1, step]).max() or step + 1 == steps:
                break
            small[step + 1, step] = rest
            image *= 1.0 / rest
        values = np.linalg.eigvals(small[:done, :done]) if np.all(np.isfinite(small)) else [1.0]
        return float(np.max(np.abs(values))) or 1.0

    def _lengths(self, basis: Vector, vector: Vector) -> Vector:
        """Collective. Scalar products of the rows of a basis with a vector, the same bits on every
        rank."""
        wide = np.result_type(vector.dtype, np.float64)
        reduction, count = sums(self.A.comm, _KRYLOV_STEPS + 1, wide), len(basis)
        reduction.own[:count] = np.einsum("ij,j->i", basis.conj(), vector)
        reduction.reduce()
        found: Vector = reduction.total[:count].copy()
        return found

    def coarsened(self, P: DistMatrix) -> DistMatrix:
        """Collective. P is the way to the next level; the matrix there, P.H A P."""
        self.P = P
        self.right = np.zeros(P.col_range[1] - P.col_range[0], self.A.dtype)
        return self.A.galerkin(P)

    def prolongation(self, tentative: sparse.csr_array, coarse: Partition) -> DistMatrix:
        """Collective. P = (I - w D^-1 A) T.

        ``tentative`` is this rank's T with its own columns, in the order of its aggregates.
        """
        A, comm = self.A, self.A.comm
        how: dict[str, Any] = {"method": A.method, "kernel": A.kernel_name}
        columns = tentative.indices.astype(index_dtype(coarse.size)) + coarse.range(comm.rank)[0]
        parts = tentative.data, columns, tentative.indptr
        T = sparse.csr_array(parts, shape=(tentative.shape[0], coarse.size))
        local = A.local()
        row = np.repeat(np.arange(len(self._scale)), np.diff(local.indptr))
        damped = local.data * (-4.0 / 3.0 / self.radius * self._scale).astype(A.dtype)[row]
        damped[local.indices == row] += 1.0
        smoother = sparse.csr_array((damped, local.indices, local.indptr), shape=local.shape)
        smoothed = stored.product(comm, smoother, A.pattern, T)
        return DistMatrix(comm, smoothed, A.row_partition, coarse, **how)

    def rest(self, b: Vector) -> Vector:
        """Collective. b - A x; also what may be written to until the next smoothing."""
        self.A.multiply(self._x, self._rest)
        return np.subtract(b, self._rest, out=self._rest)

    def smoothed(self, b: Vector, from_zero: bool, degree: int) -> Vector:
        """Collective. x after some steps of Chebyshev's iteration; it stays this level's."""
        x, step = self._x, self._step
        high, low = _HIGHEST * self.radius, _LOWEST * self.radius
        middle, half = (high + low) / 2, (high - low) / 2
        if from_zero:
            x.fill(0)
            self._rest[:] = b
        else:
            self.rest(b)
        rest, alpha = self._rest, 1.0 / middle
        np.multiply(rest, self._scale, out=step)
        step *= alpha
        x += step
        for number in range(1, degree):
            self.A.multiply(step, self._image)
            rest -= self._image
            before = alpha
            factor = (half * alpha / 2) ** 2 * (2.0 if number == 1 else 1.0)
            alpha = 1.0 / (middle - factor / alpha)
            np.multiply(rest, self._scale, out=self._image)
            self._image *= alpha
            step *= alpha * factor / before
            step += self._image
            x += step
        return x


def _aggregates(
    local: sparse.csr_array, diagonal: Vector, nodes: NDArray[np.int64], strength: float
) -> NDArray[np.int64]:
    """Local. For each row the number of its aggregate; connections with ghosts do not count.

    -1 for a row that is coupled with no other, as those of boundary values: the smoother solves
    it, and no coarser level needs to see it.
    """
    n = local.shape[0]
    row = np.repeat(np.arange(n), np.diff(local.indptr))
    coupled = np.zeros(n, np.bool_)
    coupled[row[(local.indices != row) & (local.data != 0)]] = True
    size = np.where(coupled, np.sqrt(np.abs(diagonal)), np.inf)  # nothing is as strong as that
    least = strength * size[row] * size.take(local.indices, mode="clip")
    strong = (local.indices < n) & (np.abs(local.data) > least)
    if not n or len(nodes) == int(nodes[-1]) + 1:
        found = _around(local.indptr, local.indices, strong)
    else:
        places = nodes[row[strong]], nodes[local.indices[strong]]
        count = int(nodes[-1]) + 1
        ones = np.ones(len(places[0]), np.bool_)
        graph: Any = sparse.coo_array((ones, places), shape=(count, count)).tocsr()
        found = _around(graph.indptr, graph.indices, graph.data)[nodes]
    if not coupled.all():
        found[coupled] = np.unique(found[coupled], return_inverse=True)[1]
        found[~coupled] = -1
    return found


def _around(
    indptr: NDArray[Any], indices: NDArray[Any], strong: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Local. Aggregates of the nodes of a graph around roots, no two of which share a neighbor.

    Nodes become roots in their order, where they can. Neighbors of a root have its number; others
    that of the first of their neighbors that has one.
    """
    label = np.full(len(indptr) - 1, -1, np.int64)
    if loops is not None:
        loops.aggregate(indptr, indices, strong, label)
        return label
    near = [indices[start:stop][strong[start:stop]] for start, stop in itertools.pairwise(indptr)]
    count = 0
    for node, others in enumerate(near):
        if label[node] < 0 and np.all(label[others] < 0):
            label[node] = label[others] = count
            count += 1
    first = label.copy()
    for node in np.flatnonzero(first < 0).tolist():
        known = first[near[node]]
        label[node] = known[known >= 0][0]
    return label


def _tentative(
    local: sparse.csr_array, aggregates: NDArray[np.int64], modes: Vector
) -> tuple[sparse.csr_array, Vector, NDArray[np.int64]]:
    """Local. T with orthonormal columns that hold the modes; the coarse modes, and coarse nodes.

    Within an aggregate modes are made orthogonal one after the other, so their sizes do not matter.
    Rows of no aggregate are empty. Columns that the matrix maps to zero have no place on a coarser
    level: they are motions of a piece that nothing holds, all of which is one aggregate.
    """
    n, m = modes.shape
    inside = aggregates >= 0
    label = aggregates[inside]
    count = int(label.max(initial=-1)) + 1
    basis = np.zeros((n, m), np.result_type(modes, np.float64))
    basis[inside] = modes[inside]
    coarse, good = np.zeros((count, m, m), basis.dtype), np.zeros((count, m), np.bool_)
    row = np.repeat(np.arange(n), np.diff(local.indptr))
    near = aggregates[row] == aggregates.take(local.indices, mode="clip")
    near &= inside[row] & (local.indices < n)
    row, col, entries = row[near], local.indices[near], local.data[near]
    within = aggregates[row]

    def summed(terms: Vector, where: NDArray[np.int64] = label) -> Vector:
        return stored.summed(terms, where, count)

    for j in range(m):
        column = basis[inside, j]
        size = np.sqrt(summed(np.abs(column) ** 2))
        for i in 2 * list(range(j)):
            part = summed(basis[inside, i].conj() * column)
            coarse[:, i, j] += part
            column -= part[label] * basis[inside, i]
        left = np.sqrt(summed(np.abs(column) ** 2))
        there = left > _DEPENDENT * np.finfo(modes.dtype).eps * size
        coarse[there, j, j] = left[there]
        basis[inside, j] = column * np.divide(1.0, left, out=0 * left, where=there)[label]
        energy = basis[row, j].conj() * entries * basis[col, j]
        least = 100 * np.finfo(local.dtype).eps * summed(np.abs(energy), within)
        good[:, j] = there & (np.abs(summed(energy, within)) > least)
    number = np.where(good, np.cumsum(good.reshape(-1)).reshape(good.shape) - 1, -1)
    kept = good[label]
    lengths = np.zeros(n + 1, np.int64)
    lengths[1:][inside] = kept.sum(axis=1)
    place = basis[inside][kept].astype(modes.dtype), number[label][kept], np.cumsum(lengths)
    T = sparse.csr_array(place, shape=(n, int(good.sum())))
    return T, coarse[good].astype(modes.dtype), np.repeat(np.arange(count), good.sum(axis=1))
