"""Distributed matrices and vectors against SciPy: products of all sides with vectors and blocks,
entries, life cycle, misuse; SciPy's solvers with whole vectors."""

from __future__ import annotations

import os
import tracemalloc
from unittest import mock

import numpy as np
from cases import parameters, ranks, skip_if_known
from cases_random import examine
from errors import agreed, raises
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import linalg

from onesided.collectives import MethodError, MismatchError, RequestError, UnsupportedError, methods
from onesided.sparse import DistMatrix, DistVector, Partition, diags, from_rows, from_scipy
from onesided.sparse import partition as partition_module
from onesided.sparse.kernels.registry import available

SIDES = {
    "A": lambda a: a,
    "T": lambda a: a.T,
    "H": lambda a: a.T.conj(),
    "conj": lambda a: a.conj(),
}
TAKEN = {"A": lambda a: a, "T": lambda a: a.T, "H": lambda a: a.H, "conj": lambda a: a.T.H}


def one_dense_row(rng):
    matrix = sparse.random_array((40, 40), density=0.02, rng=rng).tolil()
    matrix[17] = rng.standard_normal(40)
    return matrix


def empty_ends(rng):
    matrix = sparse.random_array((60, 50), density=0.1, rng=rng).tolil()
    matrix[:20], matrix[50:], matrix[:, :15], matrix[:, 40:] = 0, 0, 0, 0
    return matrix


MATRICES = {
    "square": lambda rng: sparse.random_array((90, 90), density=0.1, rng=rng),
    "tall": lambda rng: sparse.random_array((120, 31), density=0.1, rng=rng, format="csc"),
    "wide": lambda rng: sparse.random_array((30, 111), density=0.1, rng=rng, format="dok"),
    "dense row": one_dense_row,
    "empty ends": empty_ends,
    "reversed": lambda rng: sparse.dia_array(np.eye(13)[::-1] * 3),
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


def block(rng, size, k, dtype):
    """A vector, or a block of k of them."""
    x = rng.standard_normal(size if k is None else (size, k))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(x.shape)
    return x.astype(dtype)


def complex_values(whole, rng):
    whole = sparse.csr_array(whole).astype("c16")
    whole.data = whole.data * np.exp(1j * rng.uniform(0, 6, len(whole.data)))
    return whole


def check(matrix, whole, rng, side="A", k=None, dtype=None, times=2):
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


def made(make):
    """The matrix, or a skip where this MPI does not support the method."""
    try:
        return make()
    except UnsupportedError as error:
        skip_if_known(error, "")


def distributed(comm, whole, method="p2p", **options):
    """The matrix with row and column partitions that have nothing to do with each other."""
    whole = sparse.csr_array(whole)
    rows = Partition.balanced(np.diff(whole.indptr) + 1, comm.size)
    columns = Partition.even(whole.shape[1], comm.size)
    local = whole[slice(*rows.range(comm.rank))]
    return made(lambda: DistMatrix(comm, local, rows, columns, method=method, **options))


def same(mine, theirs):
    """Two sparse arrays with the same shape, dtype and entries, and as many stored ones."""
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    assert mine.dtype == theirs.dtype, (mine.dtype, theirs.dtype)
    assert mine.nnz == theirs.nnz
    assert np.array_equal(mine.toarray(), theirs.toarray())


# -- products and entries ------------------------------------------------------------------------


@parameters(name=list(MATRICES), kernel=available)
def case_products_and_pieces(comm, name, kernel, seed):
    rng = np.random.default_rng(seed)
    whole = complex_values(MATRICES[name](rng), rng)
    with distributed(comm, whole, kernel=kernel) as matrix:
        assert matrix.kernel_name == kernel
        for side in TAKEN:
            for k in (None, 3, 1, 2, 0, 3):
                check(matrix, whole, rng, side, k)
        whole.sum_duplicates()
        assert matrix.nnz == whole.nnz
        rows, columns = slice(*matrix.row_range), slice(*matrix.col_range)
        same(matrix.local_rows(), whole[rows])
        same(matrix.own_block(), whole[rows][:, columns])
        blocks = comm.allgather(matrix.diagonal())
        assert np.array_equal(np.concatenate(blocks), whole.diagonal())
        root = comm.size - 1
        gathered = matrix.gather(root)
        assert (gathered is None) == (comm.rank != root)
        if gathered is not None:
            same(gathered, whole)
        matrix.scale(3.0)
        check(matrix, 3.0 * whole, rng)


@parameters(kernel=available)
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
    same(matrix.local_rows(), whole[slice(*matrix.row_range)])
    matrix.Free()


SIZES = st.one_of(st.integers(0, 3), st.integers(1, 40))
DTYPES = ["f4", "f8", "c8", "c16"]
INFOS = [None, {"slots": "1", "unknown": "x"}, {"ranks_per_node": "1"}, {"ranks_per_node": "2"}]


@st.composite
def matrices(draw):
    """A matrix that may have empty rows, empty columns, and one dense row."""
    shape = draw(SIZES), draw(SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = block(rng, *shape, draw(st.sampled_from(DTYPES)))
    dense[rng.random(shape) > draw(st.sampled_from([0.0, 0.02, 0.2, 1.0]))] = 0
    full = draw(st.one_of(st.none(), st.integers(0, max(shape[0] - 1, 0))))
    if shape[0] and full is not None:
        dense[full] = rng.standard_normal(shape[1])
    for axis, view in enumerate((dense, dense.T)):
        for line in draw(st.sets(st.integers(0, max(shape[axis] - 1, 0)), max_size=5)):
            view[line : line + 1] = 0
    return sparse.csr_array(dense)


@st.composite
def parts(draw, size, count):
    """The caller's own partition, with ranks that own nothing."""
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=count - 1, max_size=count - 1)))
    return Partition(np.array([0, *cuts, size]))


@st.composite
def problems(draw, count):
    whole = draw(matrices())
    rows, columns = (draw(parts(size, count)) for size in whole.shape)
    product = st.tuples(
        st.sampled_from(list(TAKEN)), st.sampled_from([None, 1, 2, 5]), st.booleans()
    )
    products = draw(st.lists(product, min_size=1, max_size=6))
    kernel, info = draw(st.sampled_from(available())), draw(st.sampled_from(INFOS))
    return whole, rows, columns, kernel, products, info


@parameters(method=lambda: list(methods()))
def case_random_matrices(comm, method, options, seed):
    def body(problem):
        whole, rows, columns, kernel, products, info = problem
        mine = whole[slice(*rows.range(comm.rank))]
        rng = np.random.default_rng(seed)
        how = {"method": method, "kernel": kernel, "info": info}
        with made(lambda: DistMatrix(comm, mine, rows, columns, **how)) as matrix:
            assert method in ("auto", matrix.method)
            for side, k, as_complex in products:
                dtype = np.result_type(whole.dtype, "c8") if as_complex else None
                check(matrix, whole, rng, side, k, dtype=dtype)
            pieces = comm.allgather((matrix.local_rows().toarray(), matrix.diagonal()))
            assert np.array_equal(np.concatenate([p[0] for p in pieces]), whole.toarray())
            assert np.array_equal(np.concatenate([p[1] for p in pieces]), whole.diagonal())
        return whole.nnz

    sizes = examine(comm, problems(comm.size), body, int(options.get("examples", "8")))
    assert sum(sizes) > 0, "every example was empty"


@parameters(method=["p2p", "rma-notify"], kernel=available, side=["A", "T", "H"])
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


@parameters(method=["p2p", "rma-node"])
def case_halo_brings_each_ghost_from_its_owner(comm, method, seed, options):
    """Of a matrix that rank 0 has, whose values are a view with steps."""
    rng = np.random.default_rng(seed)
    whole = (sparse.random_array((70, 50), density=0.05, rng=rng).tocsr() * (1 + 2j)).real
    assert not whole.data.flags.c_contiguous
    info = {"ranks_per_node": options["ranks_per_node"]} if options else None
    with from_scipy(comm, whole if comm.rank == 0 else None, method=method, info=info) as matrix:
        start, stop = matrix.col_range
        used = np.unique(whole[slice(*matrix.row_range)].indices)
        ghosts = used[(used < start) | (used >= stop)]
        assert comm.size == 1 or comm.allreduce(len(ghosts))
        for turn in range(3):
            came = matrix.halo.update(np.arange(start, stop) + 1000.0 * turn)
            assert np.array_equal(came, ghosts + 1000.0 * turn)
        for k in (None, 3):
            check(matrix, whole, rng, k=k)
        sent = comm.allreduce(len(matrix.pattern.send_index))
        assert sent == comm.allreduce(len(ghosts))


# -- whose memory it is --------------------------------------------------------------------------


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
            mine = x[slice(*taken.col_range)]
            raises(ValueError, lambda wrong=wrong, mine=mine: taken.dot(mine, wrong), words)


def case_what_the_caller_gave_and_got_is_not_the_matrix(comm, seed):
    """from_rows copies, unless it is told not to; pieces are copies; scaling is of the copy."""
    rng = np.random.default_rng(seed)
    x = np.ones(40)
    for kernel in available():
        rows = sparse.csr_array(sparse.random_array((40, 40 * comm.size), density=0.2, rng=rng))
        given = rows.copy()
        with from_rows(comm, rows, method="p2p", kernel=kernel) as matrix:
            before = matrix @ x
            for piece in (matrix.local_rows(), matrix.own_block(), matrix.gather()):
                if piece is not None:
                    piece.data[:] = np.nan
            matrix.diagonal()[:] = np.nan
            held = matrix.local().data  # no copy, as only some products would see what is written
            raises(ValueError, lambda held=held: np.copyto(held, 2.0), "read-only")
            assert np.array_equal(matrix @ x, before)
            matrix.scale(3)
            matrix.scale_rows(np.full(40, 2.0))
            assert np.array_equal(rows.toarray(), given.toarray())
            rows.data[:] = -1.0
            rows.indices[:] = 0
            rows.indptr[:] = 0
            assert np.allclose(matrix @ x, 6 * before)
            assert np.allclose(matrix.local_rows().toarray(), 6 * given.toarray())
    with from_rows(comm, given, method="p2p", kernel="scipy", copy=False) as matrix:
        assert np.shares_memory(matrix.values, given.data)


@parameters(dtype=["f4", "f8", "c8", "c16"])
def case_zeros_and_large_numbers_are_kept(comm, dtype):
    """Places whose value is zero stay, and no absolute value overflows before the norm does."""
    size = 4 * comm.size + 1
    largest = np.finfo(dtype).max / 2
    value = largest * (1 + 1j) if np.dtype(dtype).kind == "c" else largest
    with diags(comm, [np.asarray(value, dtype), 0.0], [0, 1], shape=(size, size), dtype=dtype) as A:
        for made in (A, A.multiply(A.T.T), A.T.copy(), A - A):
            assert made.nnz == A.nnz, made
        if dtype == "c8":
            assert np.isclose(A.norm("max"), abs(complex(value)), rtol=1e-6)


def case_free(comm):
    matrix = from_rows(comm, sparse.eye_array(3, format="csr") * 2, method="p2p")
    transposed, x = matrix.T, np.ones(3)
    transposed @ x
    matrix.Free()
    matrix.Free()
    for call in (
        lambda: matrix @ x,
        lambda: transposed @ x,
        lambda: matrix.T @ x,
        matrix.local_rows,
        matrix.own_block,
        matrix.diagonal,
        matrix.gather,
        matrix.sum,
        lambda: matrix.scale(2),
        lambda: matrix.as_linear_operator() @ np.ones(matrix.shape[1]),
    ):
        raises(RequestError, call, "freed")
    with from_scipy(comm, sparse.eye_array(10), method="p2p") as other:
        x = np.ones(len(range(*other.col_range)))
        assert np.all(other @ x == 1)
    raises(RequestError, lambda: other @ x, "freed")


@ranks(at_least=2)
def case_an_exception_inside_with_calls_nothing_collective(comm):
    matrix = from_scipy(comm, sparse.eye_array(10), method="p2p")

    def body():
        with matrix:
            if comm.rank == 0:
                raise KeyError("only here")

    if comm.rank == 0:
        raises(KeyError, body)
        comm.Barrier()
        matrix.Free()
    else:
        comm.Barrier()
        body()


# -- misuse --------------------------------------------------------------------------------------

WRONG = {
    "longer": (lambda x: np.append(x, x[-1:]), ValueError, "owns the"),
    "three axes": (lambda x: x[:, None, None], ValueError, "owns the"),
    "number": (lambda x: 1.0, ValueError, "shape ()"),
    "text": (lambda x: x.astype("U4"), TypeError, "<U4"),
    "long double": (lambda x: x.astype("g"), TypeError, np.dtype("g").name),
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
        good = np.ones(len(range(*taken.col_range)))
        out = np.empty(len(range(*taken.row_range)) + (comm.rank == guilty))
        text = f"rank {guilty}: out must be"
        assert text in str(raises(ValueError, lambda: taken.dot(good, out)))
        x = spoil(good) if comm.rank == guilty else good
        agreed(comm, kind, lambda: taken @ x, words, f"rank {guilty}")
        check(matrix, whole, rng, side)


@ranks(at_least=2)
@parameters(side=["A", "T"], debug=["0", "1"])
def case_a_form_that_is_known_is_not_compared_again(comm, side, debug, seed):
    """But in debug mode; else what is wrong later is an error where it is."""
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((30, 30), density=0.3, rng=rng)
    with (
        mock.patch.dict(os.environ, {"ONESIDED_DEBUG": debug}),
        distributed(comm, whole) as matrix,
    ):
        taken = TAKEN[side](matrix)
        check(matrix, whole, rng, side, 2)
        check(matrix, whole, rng, side, None)
        n = len(range(*taken.col_range))
        wrong = np.ones(n + (comm.rank == 1))
        if debug == "1" or comm.rank == 1:
            raises(ValueError, lambda: taken @ wrong, "rank 1 owns")
        other = np.ones((n, 3 + (comm.rank == 1)))
        raises(ValueError, lambda: taken @ other, "a block of 3")
        check(matrix, whole, rng, side, 3)


def case_bad_input_is_refused_on_every_rank(comm):
    good = sparse.eye_array(12, format="csr")
    last = comm.rank == comm.size - 1
    even = Partition.even(12, comm.size)
    mine = good[slice(*even.range(comm.rank))]
    odd = mine[:, :7] if last else mine
    whole = good if comm.rank == 0 else None
    many = Partition.even(12, comm.size + 1)
    beyond = mine.copy()
    if last:
        beyond.indices[-1] = 12
    for call, kind, words in (
        (lambda: DistMatrix(comm, beyond, even, even), ValueError, "to 12 in a matrix of 12"),
        *((lambda how=how: from_rows(comm, beyond, partition=how), ValueError, "to 12 in")
          for how in ("rows", "rcm", Partition(np.array([0] + [12] * comm.size)))),
        (lambda: from_scipy(comm, np.eye(3), method="p2p"), TypeError, "ndarray"),
        (lambda: from_scipy(comm, None, method="p2p"), TypeError, "NoneType"),
        (lambda: from_scipy(comm, good, root=comm.size), ValueError, "root"),
        (lambda: from_scipy(comm, whole, method="teleport"), MethodError, "teleport"),
        (lambda: from_scipy(comm, whole, dtype="i8"), TypeError, "int64"),
        (lambda: from_scipy(comm, whole, dtype="f2"), TypeError, "float16"),
        (lambda: DistMatrix(comm, odd, even, even), ValueError, "7"),
        (lambda: DistMatrix(comm, mine, even, even, kernel="x"), ValueError,
         "no kernel 'x'; there are auto, scipy"),
        (lambda: DistMatrix(comm, mine, many, even), ValueError, f"{comm.size + 1} parts"),
    ):
        agreed(comm, kind, call, words)
    if comm.size > 1:
        agreed(comm, ValueError, lambda: from_rows(comm, odd, method="p2p"), "7")
        unlike = Partition(np.array([0, 1 + comm.rank, *[12] * (comm.size - 1)]))
        for how in ({"columns": unlike}, {"columns": unlike, "partition": "rcm"}):
            raises(MismatchError, lambda how=how: from_rows(comm, mine, **how), "partitions")
        for wrong in ({"root": comm.rank % 2}, {"dtype": "f4" if comm.rank else "f8"}):
            raises(MismatchError, lambda wrong=wrong: from_scipy(comm, good, **wrong), "from_scipy")
    with from_scipy(comm, good, method="p2p") as matrix:
        factors = np.ones(len(range(*matrix.row_range)))
        longer = np.append(factors, 1.0) if last else factors
        turned = 1j * factors if last else factors
        for call, kind, words in (
            (lambda: matrix.scale(1j), TypeError, "complex"),
            (lambda: matrix.scale(np.ones(2)), ValueError, "shape"),
            (lambda: matrix.scale_rows(longer), ValueError, "factors"),
            (lambda: matrix.scale_columns(longer), ValueError, "factors"),
            (lambda: matrix.scale_columns(turned), TypeError, "complex"),
            (lambda: matrix.gather(root=comm.size), ValueError, "root"),
            (lambda: matrix[0, 12], IndexError, "column 12, there are 12"),
            (lambda: matrix[[12, 0]], IndexError, "row 12, there are 12"),
            (lambda: matrix[np.array([1 << 63], np.uint64)], IndexError, f"row {1 << 63}, "),
        ):
            agreed(comm, kind, call, words)
        vector = DistVector(comm, matrix.col_partition, factors)
        for call in (lambda: vector @ matrix, lambda: vector.dot(matrix), lambda: vector.vdot(2.0),
                     lambda: factors.dot(matrix), lambda: np.dot(factors, matrix),
                     lambda: vector + matrix, lambda: matrix.dot(factors, out=[0.0])):
            raises(TypeError, call)  # on every rank, without a word between them
        if comm.size > 1:
            raises(MismatchError, lambda: matrix.scale(1 + comm.rank), "scale by")
        assert np.all(matrix.diagonal() == 1)


# -- vectors -------------------------------------------------------------------------------------


@parameters(value=[1e-200, 1e200, 1e308, 0.0, np.nan, np.inf])
def case_a_norm_is_as_large_as_its_vector(comm, value):
    """It neither overflows nor underflows, and what is not finite of one rank is seen by all; also
    where NumPy raises errors."""
    partition = Partition.even(16, comm.size)
    x = DistVector(comm, partition, np.ones(len(range(*partition.range(comm.rank)))))
    if comm.rank == 0 or np.isfinite(value):
        x[...] = value
    with np.errstate(all="raise"):
        norm, others = x.norm(), [x.norm(1), x.sum(), x.dot(x), x.vdot(x)]
    factor = 4 if np.isfinite(value) else 1
    assert np.all(np.isnan(others) if np.isnan(value) else np.array(others) >= 0)
    assert np.isclose(norm, factor * value, rtol=1e-14, atol=0, equal_nan=True), norm


@parameters(dtype=["f4", "f8", "c8", "c16", "i8"], k=[None, 3])
def case_axpy_adds_a_number_or_one_for_each_vector(comm, dtype, k, seed):
    even = Partition.even(4 * comm.size + 1, comm.size)
    shape = (len(range(*even.range(comm.rank))), *([] if k is None else [k]))
    x, y = (DistVector(comm, even, np.random.default_rng(seed + n).integers(1, 9, shape)
                       .astype(dtype)) for n in range(2))
    for factor in (2, *([] if k is None else [np.array([1, 0, -3])])):
        expected = y.array + factor * x.array
        y.axpy(factor, x)
        assert np.array_equal(y.array, expected), factor


def case_results_of_which_some_have_a_place(comm):
    """All are returned; and what compares two vectors says nothing about them as a whole."""
    even = Partition.even(3 * comm.size + 1, comm.size)
    mine = np.arange(0.5, len(range(*even.range(comm.rank))))
    x, place = DistVector(comm, even, mine), DistVector.zeros(comm, even)
    fraction, whole = np.modf(x, out=(place, None))
    assert fraction is place
    assert np.array_equal(place.array, np.modf(mine)[0])
    assert np.array_equal(whole.array, np.modf(mine)[1])
    raises(ValueError, lambda: bool(x < whole), "neither true nor false")


def case_vectors_that_do_not_fit(comm):
    even = Partition.even(12, comm.size)
    mine = len(range(*even.range(comm.rank)))
    last = comm.rank == comm.size - 1
    agreed(comm, ValueError, lambda: DistVector(comm, even, np.ones(mine + last)),
           f"rank {comm.size - 1} owns")
    many, other = Partition.even(12, comm.size + 1), Partition.even(13, comm.size)
    raises(ValueError, lambda: DistVector(comm, many, np.ones(mine)), "parts")
    x = DistVector.zeros(comm, even)
    raises(ValueError, lambda: x + DistVector.zeros(comm, even, k=2), "shapes")
    raises(ValueError, lambda: x + DistVector.zeros(comm, other), "partitions")
    raises(TypeError, lambda: x + np.ones(mine), "DistVector")
    raises(TypeError, lambda: np.ones(mine) + x, "DistVector")
    still = DistVector(comm, even, np.zeros(mine))
    still.array.flags.writeable = False
    raises(ValueError, lambda: still.axpy(2.0, x), "read-only")
    raises(TypeError, lambda: x.axpy(2j, x), "2j times float64 is added to a vector of float64")
    raises(ValueError, lambda: x.norm(3), "order 3")
    raises(ValueError, lambda: x.gather(comm.size), "root")


def positive(rng, n):
    """A symmetric positive definite matrix that conjugate gradients need some iterations for."""
    part = sparse.random_array((n, n), density=0.1, rng=rng).tocsr()
    return sparse.csr_array(part @ part.T + sparse.diags_array(np.linspace(1, 9, n)))


TOLERANCES = {"lsqr": {"atol": 1e-12, "btol": 1e-12}, "lsmr": {"atol": 1e-12, "btol": 1e-12}}
SOLVERS = ["cg", "minres", "gmres", "bicgstab", "qmr", *TOLERANCES]


@parameters(name=SOLVERS)
def case_scipys_solvers_with_whole_vectors(comm, name, seed):
    rng = np.random.default_rng(seed)
    whole, b = positive(rng, 60), rng.standard_normal(60)
    with from_scipy(comm, whole if comm.rank == 0 else None, method="p2p") as matrix:
        how = TOLERANCES.get(name, {"rtol": 1e-12})
        x = getattr(linalg, name)(matrix.as_linear_operator(), b, **how)[0]
        assert np.allclose(x, linalg.spsolve(whole.tocsc(), b), atol=1e-6)
        assert len(set(comm.allgather(x.tobytes()))) == 1
