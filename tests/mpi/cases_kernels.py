"""Kernels that some ranks lack, halos that are stored in place, other methods for the same
entries."""

import time
from unittest import mock

import numpy as np
from cases import parameters
from cases_matrix import check, distributed
from errors import agreed, raises
from scipy import sparse

from onesided.collectives import MethodError, RequestError, methods
from onesided.sparse import DistMatrix, Partition, from_rows
from onesided.sparse import halo as halo_module
from onesided.sparse import matrix as matrix_module
from onesided.sparse.kernels import registry
from onesided.sparse.kernels.rows import PlainKernel, compiled
from onesided.sparse.product import SplitProduct


@parameters(method=lambda: list(methods()), bound=[0, 1 << 60])
def case_halos_in_place_and_packed(comm, method, bound, seed):
    """Straight into the neighbors' memory, and packed; late ranks; x changes at once."""
    rng = np.random.default_rng(seed + comm.rank)
    whole = sparse.random_array((60, 60), density=0.2, rng=np.random.default_rng(seed)).tocsr()
    assert whole.nnz
    both = {"DIRECT_BYTES": bound, "DIRECT_BLOCK_BYTES": bound}
    for kernel in registry.available():
        with mock.patch.multiple(halo_module, **both):
            matrix = distributed(comm, whole, method, kernel=kernel)
            x, y = (np.zeros((len(range(*r)), 3)) for r in (matrix.col_range, matrix.row_range))
            matrix.multiply(x, y)
        assert sorted(matrix._halos) == [1, 3]
        sends = len(matrix.pattern.send_index) > 0
        for halo in matrix._halos.values():
            assert halo._direct == (halo.request.direct and bound == 0 and sends)
        for turn in range(6):
            time.sleep(float(rng.choice([0.0, 0.0, 0.003])))
            for k in (None, 3):
                x = np.random.default_rng(turn).standard_normal((60,) if k is None else (60, k))
                mine = x[slice(*matrix.col_range)].copy()
                y = matrix @ mine
                mine[...] = np.nan
                assert np.allclose(y, (whole @ x)[slice(*matrix.row_range)])
        matrix.Free()


def case_a_kernel_that_one_rank_lacks_is_not_tried(comm, seed):
    whole = sparse.random_array((30, 30), density=0.2, rng=np.random.default_rng(seed)).tocsr()
    lacks = comm.rank == comm.size - 1
    with mock.patch.object(matrix_module, "compiled", return_value=compiled() and not lacks):
        matrix = distributed(comm, whole)
    assert matrix.kernel_name == "scipy"
    check(matrix, whole, np.random.default_rng(seed))
    matrix.Free()


class Halves(PlainKernel):
    """A kernel from outside, in Python, that can tell interior rows from boundary rows."""

    def __init__(self, rows):
        super().__init__(rows)
        self.rows, self.whole = rows, rows.as_scipy()
        ghosts = self.whole[:, rows.n_own :]
        self.inner = np.diff(ghosts.indptr) == 0

    def interior(self, x, y):
        y[self.inner] = (self.whole[:, : self.rows.n_own] @ x)[self.inner]

    def boundary(self, x, ghosts, y):
        y[~self.inner] = (self.whole @ np.concatenate([x, ghosts]))[~self.inner]


def case_a_kernel_from_outside_that_splits_its_rows(comm, seed):
    whole = sparse.random_array((30, 30), density=0.1, rng=np.random.default_rng(seed)).tocsr()
    with mock.patch.dict(registry.KERNELS, {"halves": registry.Offer(Halves, SplitProduct)}):
        matrix = distributed(comm, whole, kernel="halves")
        check(matrix, whole, np.random.default_rng(seed))
        matrix.Free()


def case_wrong_kernels_are_refused_on_every_rank(comm):
    rows = sparse.eye_array(4, format="csr")
    missing = registry.Offer(PlainKernel, present=lambda: comm.rank != 0, needs="a library")
    even = Partition.even(4, comm.size)
    mine = rows[slice(*even.range(comm.rank))]
    with mock.patch.dict(registry.KERNELS, {"other": missing}):
        agreed(comm, ValueError, lambda: DistMatrix(comm, mine, even, even, kernel="other"),
               "needs a library, which is not installed")


@parameters(kernel=["auto", "sell"], of=["kernel", "program", "TransposedProduct", "IndexedSum"])
def case_a_kernel_without_memory_on_one_rank(comm, kernel, of):
    """When the matrix is made, or at the first product of a kind; after which the next one works.
    """
    module = halo_module if of == "IndexedSum" else matrix_module
    make, lacks = getattr(module, of, PlainKernel), [comm.rank == comm.size - 1]

    def scarce(*given):
        if lacks and lacks.pop():
            raise MemoryError("no room for a copy")
        return make(*given)

    rows = sparse.eye_array(4, format="csr")
    if of == "kernel":
        scipy_too = {} if compiled() else {"scipy": registry.Offer(scarce)}
        with mock.patch.dict(registry.KERNELS, {"sell": registry.Offer(scarce), **scipy_too}):
            raises(MemoryError, lambda: from_rows(comm, rows, method="p2p", kernel=kernel),
                   "no room for a copy")
        return
    with (
        from_rows(comm, rows, method="p2p", kernel=kernel if compiled() else "scipy") as matrix,
        mock.patch.object(module, of, scarce),
    ):
        taken = matrix if of == "program" else matrix.T
        x = np.ones((len(range(*taken.col_range)), 3))
        raises(MemoryError, lambda: taken @ x, "no room for a copy")
        assert np.all(taken @ x == (1 if of == "program" else comm.size))


@parameters(method=lambda: list(methods()))
def case_with_another_method(comm, method, seed):
    """The same entries by another method: products, a Free of its own, values of its own."""
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((40, 30), density=0.2, rng=rng).tocsr()
    first = distributed(comm, whole, "p2p")
    x = np.ones(len(range(*first.col_range)))
    first.T @ np.ones(len(range(*first.row_range)))
    other = first.with_method(method)
    assert method in ("auto", other.method)
    assert other.halo is not first.halo
    assert other._rows.data is first._rows.data
    for side in ("A", "T"):
        for k in (None, 2):
            check(other, whole, rng, side, k)
            check(first, whole, rng, side, k)
    other.scale(2.0)
    check(other, 2.0 * whole, rng)
    check(first, whole, rng)
    raises(MethodError, lambda: first.with_method("teleport"), "teleport")
    first.Free()
    check(other, 2.0 * whole, rng, "T", None)
    raises(RequestError, lambda: first.with_method(method), "freed")
    raises(RequestError, lambda: first @ x, "freed")
    other.Free()
    raises(RequestError, lambda: other @ x, "freed")
