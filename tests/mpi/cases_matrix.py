"""Blocks of vectors, transposes and adjoints of distributed matrices, against SciPy."""

import os
import tracemalloc
from unittest import mock

import numpy as np
from cases import parameters, ranks
from cases_sparse import MATRICES, WAYS, made, raised, vector
from scipy import sparse

from onesided.collectives import RequestError, methods
from onesided.sparse import DistMatrix, Partition, from_rows, from_scipy
from onesided.sparse import partition as partition_module

SIDES = {
    "A": lambda a: a,
    "T": lambda a: a.T,
    "H": lambda a: a.T.conj(),
    "conj": lambda a: a.conj(),
}
TAKEN = {"A": lambda a: a, "T": lambda a: a.T, "H": lambda a: a.H, "conj": lambda a: a.T.H}


def block(rng, size, k, dtype):
    """A vector, or a block of k of them."""
    if k is None:
        return vector(rng, size, dtype)
    return vector(rng, size * k, dtype).reshape(size, k)


def complex_values(whole, rng):
    whole = sparse.csr_array(whole).astype("c16")
    whole.data = whole.data * np.exp(1j * rng.uniform(0, 6, len(whole.data)))
    return whole


def check(matrix, whole, rng, side, k, dtype=None, times=2):
    """Several products of one side of the matrix, each with another x, against SciPy's."""
    taken, expected = TAKEN[side](matrix), sparse.csr_array(SIDES[side](whole))
    assert taken.shape == expected.shape
    assert taken.dtype == matrix.dtype
    bound = 60 * np.finfo(matrix.dtype).eps
    for _ in range(times):
        x = block(rng, expected.shape[1], k, dtype or matrix.dtype)
        y = taken @ x[slice(*taken.col_range)]
        want = (expected @ x)[slice(*taken.row_range)]
        assert y.shape == want.shape, (y.shape, want.shape)
        assert y.dtype == want.dtype, (y.dtype, want.dtype)
        scale = (abs(expected) @ abs(x))[slice(*taken.row_range)]
        assert np.all(np.abs(y - want) <= bound * scale), np.max(np.abs(y - want))


def distributed(comm, whole, method="p2p", **options):
    """The matrix with row and column partitions that have nothing to do with each other."""
    whole = sparse.csr_array(whole)
    rows = Partition.balanced(np.diff(whole.indptr) + 1, comm.size)
    columns = Partition.even(whole.shape[1], comm.size)
    local = whole[slice(*rows.range(comm.rank))]
    return made(lambda: DistMatrix(comm, local, rows, columns, method=method, **options))


@parameters(name=list(MATRICES), side=list(TAKEN), kernel=WAYS)
def case_sides(comm, name, side, kernel, seed):
    rng = np.random.default_rng(seed)
    whole = complex_values(MATRICES[name](rng), rng)
    with distributed(comm, whole, kernel=kernel) as matrix:
        for k in (None, 3, 1, 2, 0, 3):
            check(matrix, whole, rng, side, k)


@parameters(method=lambda: list(methods()),
            name=["square", "wide", "dense row", "few rows", "reversed", "zero"])
def case_sides_by_method(comm, method, name, seed):
    rng = np.random.default_rng(seed)
    whole = MATRICES[name](rng)
    with distributed(comm, whole, method, kernel=WAYS[-1]) as matrix:
        assert method in ("auto", matrix.method)
        for _ in range(3):
            for side in ("A", "T"):
                for k in (None, 2):
                    check(matrix, whole, rng, side, k, times=1)


@parameters(kernel=WAYS)
def case_64_bit_indices(comm, kernel, seed):
    """As on a rank with more nonzeros than 32 bits count, but with fewer."""
    rng = np.random.default_rng(seed)
    whole = complex_values(sparse.random_array((40, 30), density=0.2, rng=rng), rng)
    with mock.patch.object(partition_module, "index_dtype", return_value=np.int64):
        matrix = distributed(comm, whole, kernel=kernel)
    assert matrix._rows.indices.dtype == matrix._rows.indptr.dtype == np.int64
    for side in TAKEN:
        for k in (None, 3):
            check(matrix, whole, rng, side, k)
    assert np.array_equal(matrix.local_rows().toarray(), whole[slice(*matrix.row_range)].toarray())
    matrix.Free()


def case_every_request_is_planned_once(comm, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.2, rng=rng)
    with distributed(comm, whole) as matrix:
        planned = []
        for _ in range(3):
            for k in (None, 1, 2, 4):
                check(matrix, whole, rng, "A", k)
                check(matrix, whole, rng, "T", k)
            check(matrix, whole, rng, "A", 1, dtype="c16")
            check(matrix, whole, rng, "H", 2, dtype="c16")
            halos = [*matrix._halos.items(), *matrix._reverse_halos.items()]
            planned.append([(k, id(halo.request)) for k, halo in halos])
        assert planned[0] == planned[1] == planned[2]
        assert [k for k, _ in planned[0]] == [1, 2, 4, 1, 2, 4]


@parameters(side=list(TAKEN), k=[None, 3])
def case_out_of_sides(comm, side, k, seed):
    rng = np.random.default_rng(seed)
    whole = complex_values(sparse.random_array((24, 24), density=0.3, rng=rng), rng)
    with from_scipy(comm, whole, method="p2p") as matrix:
        taken = TAKEN[side](matrix)
        x = block(rng, 24, k, "c16")
        mine = x[slice(*taken.col_range)].copy()
        expected = (SIDES[side](whole) @ x)[slice(*taken.row_range)]
        out = np.full_like(expected, np.nan)
        assert taken.dot(mine, out=out) is out
        assert np.allclose(out, expected)
        assert np.array_equal(mine, x[slice(*taken.col_range)])
        assert taken.dot(mine, out=mine) is mine
        assert np.allclose(mine, expected)
        frozen = out.copy()
        frozen.flags.writeable = False
        for wrong, words in (
            (np.empty((len(out) + 1, *out.shape[1:]), out.dtype), "out must be"),
            (out.real.copy(), "out must be"), (out[..., None], "out must be"),
            (np.repeat(out, 2, axis=0)[::2], "out must be"),
            (frozen, "read-only"),
        ):  # fmt: skip
            assert words in raised(lambda wrong=wrong: taken.dot(x[slice(*taken.col_range)], wrong),
                                   ValueError)


WRONG = {
    "longer": (lambda x: np.append(x, x[-1:]), ValueError, "owns the"),
    "three axes": (lambda x: x[:, None, None], ValueError, "owns the"),
    "number": (lambda x: 1.0, ValueError, "shape ()"),
    "text": (lambda x: x.astype("U4"), TypeError, "<U4"),
    "long double": (lambda x: x.astype("g"), TypeError, "longdouble"),
    "block": (lambda x: np.stack([x, x], axis=1), ValueError, "a block of 2 vectors"),
    "complex": (lambda x: 1j * x, ValueError, "complex"),
}


@ranks(at_least=2)
@parameters(name=list(WRONG), side=["A", "T"], where=["first", "last"])
def case_one_wrong_vector_is_an_error_everywhere(comm, name, side, where, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 20), density=0.3, rng=rng)
    spoil, kind, words = WRONG[name]
    guilty = 0 if where == "first" else comm.size - 1
    with distributed(comm, whole) as matrix:
        taken = TAKEN[side](matrix)
        n = taken.col_range[1] - taken.col_range[0]
        x = spoil(np.ones(n)) if comm.rank == guilty else np.ones(n)
        text = raised(lambda: taken @ x, kind)
        if np.dtype("g").itemsize > 8:
            assert words in text or "float128" in text, text
        assert len(set(comm.allgather(text))) == 1
        assert f"rank {guilty}" in text, text
        check(matrix, whole, rng, side, None)


@ranks(at_least=2)
def case_one_wrong_out_is_an_error_everywhere(comm, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.3, rng=rng)
    with distributed(comm, whole) as matrix:
        n, m = matrix._n_cols, matrix._n_rows
        out = np.empty(m + 1) if comm.rank == 1 else np.empty(m)
        text = raised(lambda: matrix.dot(np.ones(n), out), ValueError)
        assert "rank 1: out must be" in text, text


class Counted:
    """A communicator that counts how often ``Allreduce`` is called."""

    def __init__(self, comm):
        self.comm, self.calls = comm, 0

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def Allreduce(self, *given, **how):
        self.calls += 1
        return self.comm.Allreduce(*given, **how)


@ranks(at_least=2)
@parameters(side=["A", "T"], debug=["0", "1"])
def case_a_form_is_compared_once(comm, side, debug, seed):
    """In debug mode always; else what is wrong later is an error where it is."""
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.3, rng=rng)
    with (
        mock.patch.dict(os.environ, {"ONESIDED_DEBUG": debug}),
        distributed(comm, whole) as matrix,
    ):
        taken = TAKEN[side](matrix)
        check(matrix, whole, rng, side, 2)
        check(matrix, whole, rng, side, None)
        n = taken.col_range[1] - taken.col_range[0]
        wrong = np.ones(n + (comm.rank == 1))
        taken.comm = counted = Counted(comm)
        if debug == "1" or comm.rank == 1:
            assert "rank 1 owns" in raised(lambda: taken @ wrong, ValueError)
        for _ in range(3):
            taken @ np.ones(n)
        assert counted.calls >= 4 if debug == "1" else counted.calls == 0, counted.calls
        other = np.ones((n, 3 + (comm.rank == 1)))
        assert "a block of 3" in raised(lambda: taken @ other, ValueError)
        taken.comm = comm
        check(matrix, whole, rng, side, 3)


@parameters(method=["p2p", "rma-notify"], kernel=WAYS, side=["A", "T", "H"])
def case_products_allocate_no_arrays(comm, method, kernel, side, seed):
    rng = np.random.default_rng(seed)
    n = 6000
    whole = 2j * sparse.eye_array(n).tocsr() + sparse.eye_array(n).tocsr()[::-1]
    with distributed(comm, whole, method, kernel=kernel) as matrix:
        taken = TAKEN[side](matrix)
        for k in (None, 3):
            x = block(rng, len(range(*taken.col_range)), k, "c16")
            y = np.empty_like(x)
            taken.dot(x, out=y)
            taken.dot(x, out=y)
            tracemalloc.start()
            try:
                taken.dot(x, out=y)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert x.nbytes > 16_000, x.nbytes
            assert peak < x.nbytes // 2, (peak, x.nbytes)


def case_sides_after_free(comm):
    matrix = from_rows(comm, sparse.eye_array(3, format="csr") * 2, method="p2p")
    transposed, n = matrix.T, matrix._n_rows
    transposed @ np.ones(n)
    matrix.Free()
    for call in (
        lambda: transposed @ np.ones(n),
        lambda: matrix.T @ np.ones(n),
        lambda: matrix.local_rows(),
        lambda: matrix.own_block(),
        lambda: matrix.diagonal(),
        lambda: matrix.gather(),
        lambda: matrix.sum(),
        lambda: matrix.scale(2),
        lambda: matrix.as_linear_operator() @ np.ones(matrix.shape[1]),
    ):
        assert "freed" in raised(call, RequestError)
    matrix.Free()
