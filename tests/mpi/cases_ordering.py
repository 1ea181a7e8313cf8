"""Rows moved to their owners, vectors between the caller's order and the matrix's; generated
meshes."""

import os
from functools import partial
from unittest import mock

import cases_matrix
import numpy as np
import scipy.io
from cases import need, parameters, ranks
from cases_matrix import complex_values
from cases_sparse_reading import file_of
from errors import agreed, raises
from mpi4py import MPI
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from onesided.apps.tools import trace_mesh as mesh_module
from onesided.apps.tools.trace_mesh import trace_mesh
from onesided.collectives import MismatchError, RequestError, ResourceError, UnsupportedError
from onesided.sparse import (
    DistMatrix,
    Partition,
    block_array,
    diags,
    from_scipy,
    kron,
    read,
    write,
)
from onesided.sparse import ordering as ordering_module
from onesided.sparse.files.marketwriter import write_matrixmarket
from onesided.sparse.grids import stencil7
from onesided.sparse.ordering import Ordering, gathered_graph, partitioned


def scattered_grid(rng):
    """A grid whose points are numbered at random, so that contiguous rows are bad parts."""
    mix = rng.permutation(6**3)
    return stencil7(6)[mix][:, mix]


def with_empty_rows(rng):
    matrix = sparse.random_array((70, 70), density=0.06, rng=rng).tolil()
    matrix[10:25], matrix[:, 40:52] = 0, 0
    return matrix


MATRICES = {
    "grid": scattered_grid,
    "empty rows": with_empty_rows,
    "complex": lambda rng: complex_values(cases_matrix.MATRICES["square"](rng), rng),
    "zero": lambda rng: sparse.coo_array((9, 9)),
    **{name: cases_matrix.MATRICES[name]
       for name in ("square", "dense row", "identity", "few rows", "nothing")},
}  # fmt: skip


def owners_of(rng, size, parts):
    return rng.integers(0, parts, size)


def some_blocks(rng, size, parts):
    return Partition(np.sort(np.append(rng.integers(0, size + 1, parts - 1), [0, size])))


HOWS = {
    "rows": lambda rng, size, parts: "rows",
    "metis": lambda rng, size, parts: "metis",
    "rcm": lambda rng, size, parts: "rcm",
    "owners": owners_of,
    "blocks": some_blocks,
}


def mine_of(comm, whole, seed):
    """This rank's rows, in blocks of any length."""
    blocks = some_blocks(np.random.default_rng(seed), whole.shape[0], comm.size)
    return whole[slice(*blocks.range(comm.rank))], blocks


def order_of(comm, ordering, size):
    """For each row of the matrix's order its index in the original one, on all ranks."""
    if ordering is None:
        return np.arange(size)
    block = ordering.forward(np.arange(*ordering.original_range))
    return np.concatenate(comm.allgather(block))


@parameters(how=list(HOWS), name=list(MATRICES))
def case_rows_and_columns_are_permuted_alike(comm, how, name, seed):
    if how == "metis":
        need("pymetis")
    rng = np.random.default_rng(seed)
    whole = sparse.csr_array(MATRICES[name](rng))
    size = whole.shape[0]
    rows, given = mine_of(comm, whole, seed)
    asked = HOWS[how](rng, size, comm.size)
    moved, partition, ordering = partitioned(comm, rows, asked, method="p2p")
    order = order_of(comm, ordering, size)
    assert np.array_equal(np.sort(order), np.arange(size))
    assert partition.parts == comm.size
    assert partition.size == size
    expected = whole[order][:, order][slice(*partition.range(comm.rank))]
    assert moved.shape == expected.shape
    assert moved.dtype == whole.dtype
    assert abs(moved - expected).sum() == 0
    if how == "rows":
        balanced = Partition.balanced(np.diff(whole.indptr) + 1, comm.size)
        assert np.array_equal(partition.starts, balanced.starts)
    if how == "blocks":
        assert np.array_equal(partition.starts, asked.starts)
    if how == "owners":
        of_row = np.repeat(np.arange(comm.size), partition.lengths())
        assert np.array_equal(asked[order], of_row)
        assert all(np.all(np.diff(part) > 0) for part in np.split(order, partition.starts[1:-1]))
    if ordering is None:
        assert how in ("rows", "blocks") or np.array_equal(order, np.arange(size))
    else:
        assert np.array_equal(ordering.original.starts, given.starts)
        assert not np.array_equal(order, np.arange(size))
        ordering.Free()


@parameters(method=["p2p", "rma-fence", "rma-notify", "mpi", "auto"])
def case_vectors_by_every_kind_of_method(comm, method, seed):
    rng = np.random.default_rng(seed)
    size = 40
    numbers = rng.permutation(size)
    given = some_blocks(rng, size, comm.size)
    new = some_blocks(rng, size, comm.size)
    mine = numbers[slice(*given.range(comm.rank))]
    ordering = Ordering(comm, given, new, mine, method=method)
    for turn in range(6):
        x = rng.standard_normal((size, 2))[:, : turn % 2 + 1].astype("f8" if turn < 4 else "i4")
        expected = np.empty_like(x)
        expected[numbers] = x
        block = ordering.forward(x[slice(*given.range(comm.rank))])
        assert np.array_equal(block, expected[slice(*new.range(comm.rank))])
        back = ordering.backward(block)
        assert np.array_equal(back, x[slice(*given.range(comm.rank))])
    ordering.Free()
    ordering.Free()


def case_owners_of_all_rows_or_of_this_ranks(comm, seed):
    """Of a matrix that is not square, whose columns stay."""
    rng = np.random.default_rng(seed)
    whole = sparse.random_array((40, 25), density=0.2, rng=rng).tocsr()
    rows, given = mine_of(comm, whole, seed)
    owners = owners_of(rng, 40, comm.size)
    for asked in (owners.astype("u8"), owners[slice(*given.range(comm.rank))]):
        moved, partition, ordering = partitioned(comm, rows, asked, method="p2p")
        order = order_of(comm, ordering, 40)
        assert np.array_equal(owners[order], np.repeat(np.arange(comm.size), partition.lengths()))
        expected = whole[order][slice(*partition.range(comm.rank))]
        assert moved.shape == expected.shape
        assert abs(moved - expected).sum() == 0
        assert (ordering is None) == (comm.size == 1)


def case_the_graph_is_that_of_the_sum_with_the_transpose(comm, seed):
    whole = sparse.random_array((50, 50), density=0.05, rng=np.random.default_rng(seed)).tocsr()
    rows, given = mine_of(comm, whole, seed)
    graph = gathered_graph(comm, rows, given)
    assert (graph is not None) == (comm.rank == 0)
    if graph is not None:
        both = ((whole != 0) + (whole != 0).T).tolil()
        both.setdiag(False)
        assert graph.dtype == np.bool_
        assert (graph != both.tocsr()).nnz == 0
        assert graph.nnz == both.tocsr().nnz > 100


def case_cuthill_mckee_is_scipys_order(comm, seed):
    whole = sparse.csr_array(scattered_grid(np.random.default_rng(seed)))
    rows, _ = mine_of(comm, whole, seed)
    moved, _, ordering = partitioned(comm, rows, "rcm", method="p2p")
    order = order_of(comm, ordering, whole.shape[0])
    graph = (whole - 6.0 * sparse.eye_array(whole.shape[0])).tocsr()
    graph.eliminate_zeros()
    graph.sort_indices()
    assert np.array_equal(order, reverse_cuthill_mckee(graph, symmetric_mode=True))
    there = sparse.vstack(comm.allgather(moved)).tocoo()
    assert np.abs(there.row - there.col).max() < 60 < np.abs(np.subtract(*whole.nonzero())).max()


def ghosts_of(comm, rows, partition):
    with DistMatrix(comm, rows, partition, partition, method="p2p", kernel="scipy") as matrix:
        return matrix.report()


@ranks(at_least=2)
@parameters(kind=["shuffled mesh", "mesh", "grid"])
def case_metis_shrinks_ghosts(comm, kind, seed):
    need("pymetis")
    if kind == "grid":
        rows = stencil7(12, Partition.even(12**3, comm.size).range(comm.rank))
    else:
        rows = trace_mesh(comm, 6000, 1)
    if kind == "shuffled mesh":
        mix = np.random.default_rng(seed).permutation(6000)
        rows = sparse.vstack(comm.allgather(rows)).tocsr()[mix][:, mix]
        rows = rows[slice(*Partition.even(6000, comm.size).range(comm.rank))]
    before, partition, _ = partitioned(comm, rows)
    by_rows = ghosts_of(comm, before, partition)
    after, partition, ordering = partitioned(comm, rows, "metis", method="p2p")
    by_metis = ghosts_of(comm, after, partition)
    assert by_metis.nonzeros.sum() == by_rows.nonzeros.sum() > 10000
    assert by_metis.imbalance < 1.06
    share = {"shuffled mesh": 0.1, "mesh": 1.0, "grid": 1.0}[kind]
    words = f"{by_rows.ghosts} ghosts by rows, {by_metis.ghosts} by METIS"
    assert by_metis.ghosts.sum() <= share * by_rows.ghosts.sum(), words
    ordering.Free()


def case_report(comm, seed):
    whole = sparse.random_array((80, 80), density=0.05, rng=np.random.default_rng(seed)).tocsr()
    rows, partition, _ = partitioned(comm, mine_of(comm, whole, seed)[0])
    found = ghosts_of(comm, rows, partition)
    assert np.array_equal(found.rows, partition.lengths())
    assert found.nonzeros.sum() == whole.nnz
    for rank in range(comm.size):
        start, stop = partition.range(rank)
        used = np.unique(whole[start:stop].indices)
        owners = partition.owners(used)
        from_rank = np.bincount(owners, minlength=comm.size) * 8
        from_rank[rank] = 0
        assert np.array_equal(found.sent[:, rank], from_rank)
        assert found.ghosts[rank] * 8 == from_rank.sum()
        with_me = (found.sent[:, rank] > 0) | (found.sent[rank] > 0)
        assert found.neighbors[rank] == with_me.sum()
        assert found.nonzeros[rank] == whole[start:stop].nnz
        matrix_bytes = 12 * found.nonzeros[rank] + 4 * (stop - start + 1)
        vectors = 8 * (2 * (stop - start) + found.ghosts[rank]) + found.sent[rank].sum()
        assert found.product_bytes[rank] == matrix_bytes + vectors
    assert found.imbalance == found.nonzeros.max() * comm.size / whole.nnz
    text = str(found)
    assert f"{whole.nnz} nonzeros" in text
    assert f"imbalance {found.imbalance:.3f}" in text
    assert len(text.splitlines()) == comm.size + 6
    assert len(set(comm.allgather(text))) == 1


def case_bad_partitions_are_refused_on_every_rank(comm):
    whole = sparse.eye_array(12, format="csr") + sparse.eye_array(12, k=1, format="csr")
    even = Partition.even(12, comm.size)
    rows = whole[slice(*even.range(comm.rank))]
    last = comm.rank == comm.size - 1
    wide = rows[:, :10]
    far = np.full(12, comm.size if last else 0)
    calls = [
        (lambda: partitioned(comm, None if last else rows), TypeError, "NoneType"),
        (lambda: partitioned(comm, rows.tocoo() if last else rows), TypeError, "coo_array"),
        (lambda: partitioned(comm, rows, "best"), ValueError, "rows, metis, rcm"),
        (lambda: partitioned(comm, rows, 3 if last else far * 0), TypeError, "int"),
        (lambda: partitioned(comm, rows, np.zeros(12)), TypeError, "ndarray"),
        (lambda: partitioned(comm, rows, np.zeros(55, int)), ValueError, "55 owners"),
        (lambda: partitioned(comm, rows, far), ValueError, f"to {comm.size} on"),
        (lambda: partitioned(comm, rows, Partition.even(11, comm.size)), ValueError, "11 rows"),
        (lambda: partitioned(comm, rows, Partition.even(12, comm.size + 1)), ValueError, "parts"),
        (lambda: partitioned(comm, wide, "rcm"), ValueError, "square"),
        (lambda: partitioned(comm, rows, "rcm", budget=40), ResourceError, "40 are allowed"),
    ]
    if comm.size > 1:
        odd = wide if last else rows
        calls += [
            (lambda: partitioned(comm, odd), ValueError, "10"),
            (lambda: partitioned(comm, rows, "rcm" if last else "rows"), MismatchError, "rcm"),
        ]
    for call, kind, words in calls:
        agreed(comm, kind, call, words)


def case_without_pymetis(comm):
    rows = stencil7(3, Partition.even(27, comm.size).range(comm.rank))
    with mock.patch.object(ordering_module, "find_spec", return_value=None):
        agreed(comm, UnsupportedError, lambda: partitioned(comm, rows, "metis"),
               "pymetis", "extra partition")


def case_bad_vectors_are_refused_on_every_rank(comm, seed):
    even = Partition.even(10, comm.size)
    start, stop = even.range(comm.rank)
    ordering = Ordering(comm, even, even, 9 - np.arange(start, stop), method="p2p")
    last = comm.rank == comm.size - 1
    x = np.zeros(stop - start)
    calls = [
        (lambda: ordering.forward(np.zeros(stop - start + last)), ValueError, "the block"),
        (lambda: ordering.backward(np.zeros((stop - start, 1, 1))), ValueError, "the block"),
        (lambda: ordering.forward(x, np.zeros(77 if last else stop - start)), ValueError, "77"),
    ]
    if comm.size > 1:
        other = x[:, None] if last else x
        calls.append((lambda: ordering.forward(other), ValueError, "blocks of"))
    for call, kind, words in calls:
        agreed(comm, kind, call, words)
    block = ordering.forward(np.arange(start, stop, dtype="f4" if last else "f8"))
    assert block.dtype == ("f4" if comm.size == 1 else "f8")
    assert np.array_equal(block, 9 - np.arange(start, stop))
    ordering.Free()
    raises(RequestError, lambda: ordering.forward(x), "freed")


@parameters(made=["copy", "with_method", "-A", "A + A", "A @ A", "T.copy"])
def case_what_is_made_of_a_matrix_keeps_its_order(comm, made):
    """The last matrix of an ordering frees it; matrices of other orders are not mixed with it."""
    size = 5 * comm.size
    whole = sparse.csr_array(np.arange(size * size, dtype=float).reshape(size, size))
    given = whole if comm.rank == 0 else None
    A = from_scipy(comm, given, partition=np.arange(size) % comm.size, method="p2p")
    B = {"copy": A.copy, "with_method": lambda: A.with_method("mpi"), "-A": lambda: -A,
         "A + A": lambda: A + A, "A @ A": lambda: A @ A, "T.copy": A.T.copy}[made]()
    if comm.size > 1:
        with from_scipy(comm, given, partition=A.row_partition, method="p2p") as plain:
            for join in (lambda: A + plain, lambda: A @ plain, lambda: plain @ A.T):
                agreed(comm, ValueError, join, "different orders")
            owners, narrow = np.arange(size) % comm.size, given if given is None else given[:, :3]
            with (from_scipy(comm, narrow, partition=owners, method="p2p") as P,
                  from_scipy(comm, narrow, partition=A.row_partition, method="p2p") as Q):
                for join in (lambda: plain @ P, lambda: P.T @ plain, lambda: plain.galerkin(P),
                             lambda: Q @ P.T, lambda: P @ Q.T):  # fmt: skip
                    agreed(comm, ValueError, join, "different orders")
                (A @ P).Free()
                (P @ P.T).Free()
                A.galerkin(P).Free()
    A.Free()
    with file_of(comm, b"", "B.mtx") as path:
        write(B, path)
        with read(comm, path) as found:
            got = found.gather()
    ordering = B.ordering
    assert ordering is None or not ordering._freed
    B.Free()
    assert ordering is None or ordering._freed
    expected = {"-A": -whole, "A + A": whole + whole, "A @ A": whole @ whole, "T.copy": whole.T}
    if got is not None:
        assert abs(got - expected.get(made, whole)).max() == 0


@parameters(made=["(2 * A) @ A.T", "(A @ D) @ A.T", "A @ B.T", "DistMatrix", "kron", "blocks",
                  "diags"])
def case_what_is_in_one_order_is_multiplied(comm, made):
    """Also where nothing is known of the order of one of the two."""
    n, m = 4 * comm.size, 3
    whole = sparse.csr_array(np.arange(n * m, dtype=float).reshape(n, m) % 7)
    given, owners = whole if comm.rank == 0 else None, np.arange(n) % comm.size
    A, B = (from_scipy(comm, given, partition=owners, method="p2p") for _ in range(2))
    D = diags(comm, [2.0], [0], partition=A.col_partition, method="p2p")
    S = from_scipy(comm, None if given is None else given @ given.T, partition=owners, method="p2p")
    L = {
        "(2 * A) @ A.T": lambda: (2 * A) @ A.T, "(A @ D) @ A.T": lambda: (A @ D) @ A.T,
        "A @ B.T": lambda: A @ B.T,
        "DistMatrix": lambda: DistMatrix(comm, S.local_rows(), S.row_partition, S.col_partition),
        "kron": lambda: kron(S, sparse.eye_array(1)),
        "blocks": lambda: block_array([[S]]),
        "diags": lambda: diags(comm, S.diagonal(), partition=S.row_partition),
    }[made]()
    left, right, square = (comm.bcast(each.gather()) for each in (L, A, S))
    results = [(L @ A, left @ right), (L.galerkin(A), right.T @ left @ right),
               (L @ S, left @ square), (S @ L, square @ left)]  # fmt: skip
    if np.array_equal(L.row_partition.starts, S.row_partition.starts):
        results.append((S + L, square + left))
    for found, expected in results:
        got = found.gather()
        assert got is None or abs(got - expected).max() == 0
        found.Free()
    assert (L.ordering is A.ordering) == (".T" in made or comm.size == 1)
    if ".T" in made:
        with file_of(comm, b"", "L.mtx") as path:
            write(L, path)
            with read(comm, path) as found:
                got = found.gather()
        assert got is None or abs(got - (2 - (made == "A @ B.T")) * whole @ whole.T).max() == 0


def case_numbers_that_are_no_permutation(comm):
    even = Partition.even(8, comm.size)
    start, stop = even.range(comm.rank)
    twice = np.maximum(np.arange(start, stop), 1)
    beyond = np.arange(start, stop) + 1
    for numbers, words in ((twice, "not its"), (beyond, "8 rows"), (beyond[:0], "numbers")):
        agreed(comm, ValueError, lambda numbers=numbers: Ordering(comm, even, even, numbers), words)


# -- generated meshes, and files of them ---------------------------------------------------------


def whole_of(comm, rows):
    return sparse.vstack(comm.allgather(rows)).tocsr()


def same(one, other):
    arrays = zip(
        (one.indptr, one.indices, one.data), (other.indptr, other.indices, other.data), strict=True
    )
    return one.shape == other.shape and all(np.array_equal(a, b) for a, b in arrays)


@parameters(size=[1, 2, 3, 64, 1000, 9999], curves=[0, 5])
def case_meshes_are_symmetric_with_degree_3_at_most(comm, size, curves):
    rows = trace_mesh(comm, size, curves)
    assert rows.shape == (Partition.even(size, comm.size).lengths()[comm.rank], size)
    whole = whole_of(comm, rows)
    assert same(whole, trace_mesh(MPI.COMM_SELF, size, curves))
    assert np.all(whole.data == 1.0)
    assert whole.has_canonical_format
    assert abs(whole - whole.T).nnz == 0
    assert not whole.diagonal().any()
    degrees = np.diff(whole.indptr)
    assert degrees.max(initial=0) <= 3
    assert size < 1000 or np.mean(degrees == 3) > 0.9
    assert connected_components(whole)[0] == 1


def case_pieces_of_a_mesh_fit(comm):
    """Made in many small pieces it is the same."""
    expected = trace_mesh(MPI.COMM_SELF, 5000, 2)
    for level in (mesh_module._ROOT_LEVEL, 4):
        with mock.patch.multiple(mesh_module, _AT_ONCE=300, _ROOT_LEVEL=level):
            assert same(whole_of(comm, trace_mesh(comm, 5000, 2)), expected)


def case_bad_meshes_are_refused_on_every_rank(comm):
    for size, seed in ((0, 0), (1 << 32, 0), (10, -1)):
        raises(ValueError, lambda: trace_mesh(comm, size, seed), f"{size} triangles")  # noqa: B023
    if comm.size > 1:
        raises(MismatchError, lambda: trace_mesh(comm, 10 + comm.rank), "size=1")


def fields(rng):
    matrix = sparse.random_array((40, 23), density=0.2, rng=rng, format="csr")
    yield "real", matrix
    yield "real", matrix.astype("f4")
    yield "complex", matrix + 1j * matrix**2 / 3
    yield "integer", (matrix * 100).astype("i8")
    yield "pattern", matrix != 0
    where = (matrix.data > 0.5, matrix.indices, matrix.indptr)
    yield "integer", sparse.csr_array(where, shape=matrix.shape)  # some are False
    yield "real", sparse.csr_array((7, 3))
    yield "real", sparse.csr_array((0, 0))


@parameters(number=range(8))
def case_files_of_every_field_are_read_back(comm, number, seed):
    field, whole = list(fields(np.random.default_rng(seed)))[number]
    rows = whole[slice(*Partition.even(whole.shape[0], comm.size).range(comm.rank))]
    with file_of(comm, b"old", "field.mtx") as path:
        write_matrixmarket(comm, path, rows, comments=["one", "two words"])
        head = f"%%MatrixMarket matrix coordinate {field} general\n% one\n% two words\n"
        assert path.read_bytes().startswith(head.encode())
        back = sparse.csr_array(scipy.io.mmread(path, spmatrix=False))
        assert back.shape == whole.shape
        assert back.nnz == whole.nnz
        assert np.array_equal(back.toarray(), whole.toarray())
        assert os.listdir(path.parent) == ["field.mtx"]


def case_files_do_not_depend_on_the_number_of_ranks(comm):
    expected, texts = trace_mesh(MPI.COMM_SELF, 4000, 1), []
    with file_of(comm, b"", "mesh.mtx") as path:
        for group in (comm, MPI.COMM_SELF):
            rows = trace_mesh(group, 4000, 1)
            if group is comm or comm.rank == 0:
                write_matrixmarket(group, path, rows, symmetric=True, pattern=True)
            comm.Barrier()
            texts.append(path.read_bytes())
            comm.Barrier()
        assert texts[0] == texts[1]
        with read(comm, path, method="p2p") as matrix:
            assert same(whole_of(comm, matrix.local_rows()), expected)


def case_files_that_cannot_be_written(comm):
    rows = stencil7(2, Partition.even(8, comm.size).range(comm.rank))
    narrow, nothing = sparse.csr_array((rows.shape[0], 5)), rows if comm.rank else None
    write = partial(write_matrixmarket, comm)
    with file_of(comm, b"old", "mesh.mtx") as path:
        calls = [
            (lambda: write(path / "no/x.mtx", rows), OSError, "/no/x.mtx."),
            (lambda: write(path, nothing), TypeError, "None"),
            (lambda: write(path.parent, rows), OSError, "directory"),
            (lambda: write(path, rows, comments=["a\nb"]), ValueError, "one line"),
            (lambda: write(path, narrow, symmetric=True), ValueError, "(8, 5)"),
        ]
        if comm.size > 1:
            mixed = path.parent if comm.rank else path
            calls.append((lambda: write(mixed, rows), MismatchError, path.name))
        for call, kind, words in calls:
            agreed(comm, kind, call, words)
        assert path.read_bytes() == b"old"
        assert os.listdir(path.parent) == ["mesh.mtx"]
