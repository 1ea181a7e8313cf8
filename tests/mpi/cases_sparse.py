"""Distributed matrices against SciPy: products, dtypes, life cycle, misuse."""

from itertools import pairwise

import numpy as np
from cases import parameters, ranks, skip_if_known
from scipy import sparse

from onesided.collectives import MethodError, MismatchError, RequestError, UnsupportedError, methods
from onesided.sparse import DistMatrix, Partition, from_rows, from_scipy
from onesided.sparse.kernels.compiled import compiled


def one_dense_row(rng):
    matrix = sparse.random_array((40, 40), density=0.02, rng=rng).tolil()
    matrix[17] = rng.standard_normal(40)
    return matrix


def empty_ends(rng):
    matrix = sparse.random_array((60, 50), density=0.1, rng=rng).tolil()
    matrix[:20], matrix[50:], matrix[:, :15], matrix[:, 40:] = 0, 0, 0, 0
    return matrix


def reversed_identity(rng):
    return sparse.dia_array(np.eye(13)[::-1] * 3)


#: Kernels that multiply in one way and the other: after the halo, and before and after it.
WAYS = ["scipy", *(["sell"] if compiled() else [])]

MATRICES = {
    "square": lambda rng: sparse.random_array((90, 90), density=0.1, rng=rng),
    "tall": lambda rng: sparse.random_array((120, 31), density=0.1, rng=rng, format="csc"),
    "wide": lambda rng: sparse.random_array((30, 111), density=0.1, rng=rng, format="dok"),
    "dense row": one_dense_row,
    "empty ends": empty_ends,
    "reversed": reversed_identity,
    "identity": lambda rng: sparse.eye_array(23, format="bsr"),
    "zero": lambda rng: sparse.coo_array((17, 19)),
    "few rows": lambda rng: sparse.csr_array(rng.standard_normal((2, 2))),
    "one": lambda rng: sparse.csr_matrix([[2.0]]),
    "no rows": lambda rng: sparse.csr_array((0, 5)),
    "no columns": lambda rng: sparse.csr_array((5, 0)),
    "nothing": lambda rng: sparse.csr_array((0, 0)),
    "duplicates": lambda rng: sparse.csr_array(
        (rng.standard_normal(30), rng.integers(0, 6, 30), np.arange(0, 31, 5)), shape=(6, 6)
    ),
}


def vector(rng, size, dtype=np.float64):
    x = rng.standard_normal(size)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(size)
    return x.astype(dtype)


def check(comm, matrix, whole, rng, times=3, dtype=np.float64):
    """Several products, each with another x, against SciPy's."""
    whole = sparse.csr_array(whole)
    whole.sum_duplicates()
    if matrix.shape != whole.shape or matrix.nnz != whole.nnz:
        raise AssertionError(f"{matrix.shape}, {matrix.nnz}: not {whole.shape}, {whole.nnz}")
    bound = 40 * np.finfo(matrix.dtype).eps
    for _ in range(times):
        x = vector(rng, whole.shape[1], dtype)
        y = matrix @ x[slice(*matrix.col_range)]
        expected = whole @ x
        scale = (abs(whole) @ abs(x))[slice(*matrix.row_range)]
        assert y.dtype == expected.dtype, (y.dtype, expected.dtype)
        error = np.abs(y - expected[slice(*matrix.row_range)])
        assert y.shape == error.shape
        assert np.all(error <= bound * scale), float(np.max(error))
    covered = comm.allgather(matrix.row_range + matrix.col_range)
    assert covered[0][0] == covered[0][2] == 0
    assert (covered[-1][1], covered[-1][3]) == whole.shape
    for before, after in pairwise(covered):
        assert (before[1], before[3]) == (after[0], after[2])


def made(make):
    """The matrix, or a skip where this MPI does not support the method."""
    try:
        return make()
    except UnsupportedError as error:
        skip_if_known(error, "")


def raised(call, kind):
    """The words of the error of that kind that the call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


@parameters(name=list(MATRICES), kernel=[*WAYS, "auto"])
def case_product(comm, name, kernel, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.csr_array(MATRICES[name](rng))
    rows = Partition.balanced(np.diff(whole.indptr) + 1, comm.size)
    columns = Partition.even(whole.shape[1], comm.size)
    local = whole[slice(*rows.range(comm.rank))]
    matrix = DistMatrix(comm, local, rows, columns, method="p2p", kernel=kernel)
    assert kernel in ("auto", matrix.kernel_name)
    check(comm, matrix, whole, rng)
    matrix.Free()


@parameters(
    method=["p2p", "rma-fence", "rma-fence-hier", "rma-lock-hier", "rma-notify", "rma-pscw"],
    info=[{"ranks_per_node": "1"}, {"ranks_per_node": "2"}, {"slots": "1", "unknown": "x"}],
)
def case_info(comm, method, info, seed):
    rng = np.random.default_rng(seed)
    whole = MATRICES["square"](rng)
    mine = whole if comm.rank == 0 else None
    with made(lambda: from_scipy(comm, mine, method=method, info=info)) as matrix:
        check(comm, matrix, whole, rng, times=5)


def case_from_scipy_with_strided_values(comm, seed):
    """The real part of a complex matrix is a view with steps, on root alone."""
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.3, rng=rng).tocsr()
    whole = (whole * (1 + 2j)).real
    assert not whole.data.flags.c_contiguous
    with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
        check(comm, matrix, whole, rng)


@parameters(name=list(MATRICES))
def case_from_scipy(comm, name, seed):
    rng = np.random.default_rng(seed)
    whole = MATRICES[name](rng)
    root = comm.size - 1
    with from_scipy(comm, whole if comm.rank == root else None, root=root, method="p2p") as matrix:
        check(comm, matrix, whole, rng)
        if whole.shape[0] == whole.shape[1]:
            assert matrix.row_range == matrix.col_range


def case_products_have_the_dtype_that_numpy_gives_them(comm, seed):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((25, 25), density=0.3, rng=rng).tocsr()
    single = whole.astype("f4")
    with (
        from_scipy(comm, whole, method="p2p") as matrix,
        from_scipy(comm, single, method="p2p") as narrow,
    ):
        for dtype in ("i4", "f4", "c8", "c16"):
            x = np.arange(25).astype(dtype) * (1 + 2j if dtype[0] == "c" else 1)
            y = matrix @ x[slice(*matrix.col_range)]
            assert y.dtype == (np.complex128 if dtype[0] == "c" else np.float64)
            assert np.allclose(y, (whole @ x)[slice(*matrix.row_range)])
        x = np.arange(25).astype("c8")[slice(*narrow.col_range)]
        assert (narrow @ x).dtype == np.complex64
        for dtype in ("f8", "c16", "i8"):  # NumPy's promotion
            wide = np.linspace(0, 7, 25).astype(dtype)
            expected = single @ wide
            for taken in (narrow, narrow):
                y = taken @ wide[slice(*narrow.col_range)]
                assert y.dtype == expected.dtype
                assert np.allclose(y, expected[slice(*narrow.row_range)], rtol=1e-12)
            y = narrow.T @ wide[slice(*narrow.row_range)]
            assert np.allclose(y, (single.T @ wide)[slice(*narrow.col_range)], rtol=1e-12)
        words = raised(lambda: matrix @ np.array(["a"] * len(x)), TypeError)
        assert "<U1" in words
        strided = np.arange(50.0)[::2][slice(*matrix.col_range)]
        expected = whole @ np.arange(50.0)[::2]
        assert np.allclose(matrix @ strided, expected[slice(*matrix.row_range)])


def case_wrong_vectors_are_refused_before_anything_is_sent(comm, seed):
    whole = sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(seed))
    with from_scipy(comm, whole, method="p2p") as matrix:
        n = matrix.col_range[1] - matrix.col_range[0]
        first = comm.bcast(n)
        for x in (np.zeros(n + 1), np.zeros((n + 1, 1)), np.float64(1), np.zeros((n, 1, 1))):
            words = raised(lambda x=x: matrix @ x, ValueError)
            assert f"rank 0 owns the {first} columns" in words, words
        check(comm, matrix, whole, np.random.default_rng(seed))


@parameters(method=lambda: list(methods()), kernel=WAYS)
def case_x_may_change_as_soon_as_the_product_returns(comm, method, kernel, seed):
    whole = sparse.csr_array(np.ones((24, 24)))
    even = Partition.even(24, comm.size)
    local = whole[slice(*even.range(comm.rank))]
    matrix = made(lambda: DistMatrix(comm, local, even, even, method=method, kernel=kernel))
    x = np.zeros(len(range(*matrix.col_range)))
    for turn in range(30):
        x[:] = turn * (comm.rank + 1)
        y = matrix @ x
        x[:] = np.nan
        expected = turn * sum((r + 1) * int(even.lengths()[r]) for r in range(comm.size))
        assert np.all(y == expected), (turn, y, expected)
    matrix.Free()


@parameters(method=["p2p", "rma-notify", "rma-fence"])
def case_matrices_in_turn_on_overlapping_communicators(comm, method, seed):
    rng = np.random.default_rng(seed)
    whole = [sparse.random_array((35, 35), density=0.2, rng=rng).tocsr() for _ in range(3)]
    part = comm.Split(comm.rank % 2, comm.rank)
    comms = [comm, comm, part]
    matrices = [
        made(lambda c=c, w=w: from_scipy(c, w if c.rank == 0 else None, method=method))
        for c, w in zip(comms, whole, strict=True)
    ]
    for _ in range(4):
        for c, w, matrix in zip(comms, whole, matrices, strict=True):
            check(c, matrix, w, rng, times=1)
    for matrix in matrices:
        matrix.Free()
    part.Free()


@parameters(method=["p2p", "rma-node"])
def case_halo_brings_each_ghost_from_its_owner(comm, method, seed, options):
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((70, 50), density=0.05, rng=rng).tocsr()
    info = {"ranks_per_node": options["ranks_per_node"]} if options else None
    with from_scipy(comm, whole if comm.rank == 0 else None, method=method, info=info) as matrix:
        start, stop = matrix.col_range
        used = np.unique(whole[slice(*matrix.row_range)].indices)
        ghosts = used[(used < start) | (used >= stop)]
        assert comm.size == 1 or comm.allreduce(len(ghosts))
        for turn in range(3):
            came = matrix.halo.update(np.arange(start, stop) + 1000.0 * turn)
            assert np.array_equal(came, ghosts + 1000.0 * turn)
        x = rng.standard_normal((50, 3))
        for block in (x[:, 0], x):
            came = matrix @ np.ascontiguousarray(block[start:stop])
            np.testing.assert_allclose(came, (whole @ block)[slice(*matrix.row_range)], atol=1e-12)
        sent = comm.allreduce(len(matrix.halo.send_index))
        assert sent == comm.allreduce(len(ghosts))


def case_free(comm):
    whole = sparse.eye_array(10, format="csr")
    matrix = from_scipy(comm, whole, method="p2p")
    x = np.ones(len(range(*matrix.col_range)))
    matrix.Free()
    matrix.Free()
    assert "freed" in raised(lambda: matrix @ x, RequestError)
    with from_scipy(comm, whole, method="p2p") as other:
        assert np.all(other @ x == 1)
    assert "freed" in raised(lambda: other @ x, RequestError)


@ranks(at_least=2)
def case_an_exception_inside_with_calls_nothing_collective(comm):
    matrix = from_scipy(comm, sparse.eye_array(10), method="p2p")

    def body():
        with matrix:
            if comm.rank == 0:
                raise KeyError("only here")

    if comm.rank == 0:
        raised(body, KeyError)
        comm.Barrier()
        matrix.Free()
    else:
        comm.Barrier()
        body()


def case_bad_input_is_refused_on_every_rank(comm):
    good = sparse.eye_array(12, format="csr")
    last = comm.size - 1
    even = Partition.even(12, comm.size)
    mine = good[slice(*even.range(comm.rank))]
    odd = mine if comm.rank != last else mine[:, :7]
    whole = good if comm.rank == 0 else None
    calls = [
        (lambda: from_scipy(comm, np.eye(3), method="p2p"), TypeError, "ndarray"),
        (lambda: from_scipy(comm, None, method="p2p"), TypeError, "NoneType"),
        (lambda: from_scipy(comm, good, root=comm.size), ValueError, "root"),
        (lambda: from_scipy(comm, whole, method="teleport"), MethodError, "teleport"),
        (lambda: from_scipy(comm, whole, dtype="i8"), TypeError, "int64"),
        (lambda: from_scipy(comm, whole, dtype="f2"), TypeError, "float16"),
        (lambda: DistMatrix(comm, odd, even, even), ValueError, "7"),
        (lambda: DistMatrix(comm, mine, even, even, kernel="x"), ValueError, "'x'"),
        (
            lambda: DistMatrix(comm, mine, Partition.even(12, comm.size + 1), even),
            ValueError,
            f"{comm.size + 1} parts",
        ),
    ]
    if comm.size > 1:
        calls.append((lambda: from_rows(comm, odd, method="p2p"), ValueError, "7"))
    for call, kind, words in calls:
        text = raised(call, kind)
        assert words in text, text
        assert len(set(comm.allgather(text))) == 1, comm.allgather(text)


@ranks(at_least=2)
def case_roots_that_differ(comm):
    matrix = sparse.eye_array(5)
    for wrong in ({"root": comm.rank % 2}, {"dtype": "f4" if comm.rank else "f8"}):
        try:
            from_scipy(comm, matrix, method="p2p", **wrong)
        except MismatchError as error:
            assert "from_scipy" in str(error)
        else:
            raise AssertionError(f"{wrong} was accepted")
