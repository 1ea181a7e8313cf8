"""One table: every constructor, operator, solver, preconditioner, reader and writer of sparse/,
with a rank that has no rows, with more ranks than rows, with dtypes that differ between ranks,
matrix and vectors, and by both ways of multiplying. A row is a function of a :class:`Cell`."""

import gc
import gzip
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from unittest import mock

import h5py
import numpy as np
import scipy.io
import scipy.sparse.linalg
from cases import need, parameters, skip
from cases_formats import market_of, matlab_of, npz_of, petsc_of
from cases_matrix import SIDES, TAKEN
from errors import raises
from scipy import sparse

from onesided import sparse as ours
from onesided.collectives import MismatchError, OnesidedError, RequestError, sums
from onesided.sparse import DistMatrix, DistVector, Partition, assembly, from_rows, halo
from onesided.sparse.kernels.rows import compiled
from onesided.sparse.solvers import iteration

#: Which rank has no rows; "hardly": there are fewer rows than ranks.
LAYOUTS = ["even", "first", "middle", "last", "hardly"]

#: Dtypes of values, of indices and of vectors, in turn by rank.
KINDS = {
    "f8": ("f8", "i4", "f8"),
    "f4": ("f4", "i4", "f4"),
    "c8": ("c8", "i4", "c8"),
    "c16": ("c16", "i8 i4", "c16"),
    "f4 by f8": ("f4", "i8", "f8"),
    "f8 by c16": ("f8", "i4", "c16"),
    "f4 by c16": ("f4", "i4 i8", "c16"),
    "f4 f8": ("f4 f8", "i8 i4", "f8"),
    "f8 c8": ("f8 c8", "i4 i8", "c16"),
    "f8 by f4 f8": ("f8", "i4", "f4 f8"),
    "f4 by i8": ("f4", "i4", "i8"),
}
KERNELS = ["scipy", *(["auto"] if compiled() else [])]
METHODS = ["p2p", "rma-notify"]
ROWS: dict[str, Callable[["Cell"], None]] = {}


def row(*names):
    """Put a function into the table, once for each of the names, which it then also gets."""

    def mark(function):
        if not names:
            ROWS[function.__name__] = function
        for name in names:
            ROWS[f"{function.__name__} {name}"] = lambda cell, name=name: function(cell, name)
        return function

    return mark


def parts_of(layout, size):
    """How many rows each rank has."""
    if layout == "hardly":
        return [1] * (size - 1) + [0] if size > 1 else [1]
    empty = {"first": 0, "middle": size // 2, "last": size - 1}.get(layout)
    if size == 1 or empty is None:
        return Partition.even(12, size).lengths().tolist()
    lengths = Partition.even(12, size - 1).lengths().tolist()
    return [*lengths[:empty], 0, *lengths[empty:]]


def definite(n, imaginary):
    """Hermitian, positive definite, of small integers; a ring of neighbors."""
    whole = np.diag(6.0 + np.arange(n) % 3).astype(complex)
    for i in range(n - 1):
        whole[i, i + 1] = -1 + 1j * imaginary
        whole[i + 1, i] = -1 - 1j * imaginary
    if n > 2:
        whole[0, n - 1] = whole[n - 1, 0] = -2
    return sparse.csr_array(whole)


def ring(n):
    """The Laplacian of a ring, whose null space is the constant vector; of a path of two."""
    whole = np.zeros((n, n))
    for i in range(n if n > 2 else n - 1):
        j = (i + 1) % n
        whole[[i, j], [j, i]] -= 1
        whole[[i, j], [i, j]] += 1
    return sparse.csr_array(whole)


def drawn(n_rows, n_cols, imaginary, seed):
    """A rectangle of small integers, each row and column with some entries."""
    rng = np.random.default_rng(seed)
    whole = np.where(rng.random((n_rows, n_cols)) < 0.3, rng.integers(1, 5, (n_rows, n_cols)), 0)
    whole = whole + 1j * imaginary * np.where(whole == 3, 1, 0)
    for i in range(max(n_rows, n_cols)):
        whole[i % n_rows, i % n_cols] = 5
    return sparse.csr_array(whole)


class Cell:
    """What a row of the table is tried with."""

    def __init__(self, comm, layout, kinds, kernel, method, seed):
        self.comm, self.seed = comm, seed
        values, indices, vectors = (kind.split() for kind in KINDS[kinds])
        rank = comm.rank
        self.kind, self.index, self.vector_kind = (
            np.dtype(names[rank % len(names)]) for names in (values, indices, vectors)
        )
        self.rows = Partition.from_lengths(np.array(parts_of(layout, comm.size)))
        self.n = self.rows.size
        having = [r for r in range(comm.size) if self.rows.lengths()[r]]
        self.dtype = np.result_type(*(values[r % len(values)] for r in having))
        given = [vectors[r % len(vectors)] for r in range(comm.size)]
        self.result = np.result_type(self.dtype, *given)
        self.how = {"method": method, "kernel": kernel}
        self.imaginary = int(self.dtype.kind == "c")
        self.eps = float(np.finfo(self.dtype).eps)
        self.made = []
        self.whole = self.as_given(definite(self.n, self.imaginary))

    @cached_property
    def A(self):
        return self.distributed(self.whole)

    def as_given(self, whole):
        """The whole matrix that ranks of these dtypes pass: real, where one has real rows."""
        kinds = self.comm.allgather(self.kind)
        real = any(kind.kind != "c" for kind in kinds)
        dtype = "c16" if self.dtype.kind == "c" else "f8"
        return sparse.csr_array(whole.real if real else whole).astype(dtype)

    def block_of(self, whole, rows=None):
        """This rank's rows, as the kinds say; a rank without rows passes SciPy's default."""
        start, stop = (rows or self.rows).range(self.comm.rank)
        if start == stop:
            return sparse.csr_array((0, whole.shape[1]))
        block = whole[start:stop]
        block = (block if self.kind.kind == "c" else block.real).astype(self.kind)
        parts = block.data, block.indices.astype(self.index), block.indptr.astype(self.index)
        made = sparse.csr_array(parts, shape=block.shape)
        made.indices, made.indptr = parts[1:]  # SciPy makes them narrower
        return made

    def distributed(self, whole, **how):
        return self.kept(from_rows(self.comm, self.block_of(whole), **self.how, **how))

    def kept(self, made):
        """To be freed when the row has passed, if there is anything to be freed."""
        if hasattr(made, "Free"):
            self.made.append(made)
        return made

    def vector(self, partition=None, seed=0, k=0):
        """This rank's block of a vector of small integers, and the whole of it."""
        partition = partition or self.rows
        rng = np.random.default_rng(self.seed + seed)
        shape = (partition.size, k) if k else (partition.size,)
        whole = rng.integers(-4, 5, shape) + 0j
        if all(kind.kind == "c" for kind in self.comm.allgather(self.vector_kind)):
            whole += 1j * rng.integers(-4, 5, shape)
        mine = whole[slice(*partition.range(self.comm.rank))]
        mine = (mine if self.vector_kind.kind == "c" else mine.real).astype(self.vector_kind)
        return mine, whole

    def joined(self, block):
        blocks = self.comm.allgather(np.asarray(block))
        assert len({each.dtype for each in blocks}) == 1, [each.dtype for each in blocks]
        return np.concatenate(blocks)

    def close(self, block, expected, bound=None):
        found = self.joined(block)
        limit = 100 * self.eps if bound is None else bound
        limit *= max(1.0, np.abs(expected).max(initial=0))
        assert found.shape == expected.shape, (found.shape, expected.shape)
        assert np.all(np.abs(found - expected) <= limit), (found, expected)

    def same(self, made, whole, dtype=None):
        """Entries, one dtype on all ranks, and a product."""
        self.kept(made)
        kinds = self.comm.allgather(made.dtype)
        assert set(kinds) == {self.dtype if dtype is None else np.dtype(dtype)}, kinds
        rows = made.local_rows()
        assert made.nnz == self.comm.allreduce(rows.nnz)
        expected = whole.toarray()
        self.close(rows.toarray(), expected)
        x, all_of_x = self.vector(made.col_partition)
        x = x.astype(np.result_type(self.result, made.dtype))
        self.close(made @ x, expected @ all_of_x)

    def path(self, ending):
        """A file that all ranks name, in a folder that goes with the cell."""
        if not hasattr(self, "folder"):
            self.folder = self.comm.bcast(
                tempfile.mkdtemp(prefix="onesided-table-") if self.comm.rank == 0 else None
            )
        return os.path.join(self.folder, f"a{ending}")

    def tidy(self):
        for made in reversed(self.made):
            made.Free()
        self.comm.Barrier()
        if hasattr(self, "folder") and self.comm.rank == 0:
            shutil.rmtree(self.folder)


# -- constructors --------------------------------------------------------------------------------


@row()
def rows_of_each_rank(cell):
    block = cell.block_of(cell.whole)
    for made in (cell.A, DistMatrix(cell.comm, block, cell.rows, cell.rows, **cell.how)):
        cell.same(made, cell.whole)
        assert np.array_equal(made.row_partition.starts, cell.rows.starts)


@row("f4", "f8", "c16")
def a_wanted_dtype(cell, wanted):
    """When the matrix is made, and of one that is there."""
    kind = np.dtype(wanted)
    if cell.dtype.kind == "c" and kind.kind != "c":
        kind = np.dtype("c8" if wanted == "f4" else "c16")
    for made in (cell.distributed(cell.whole, dtype=kind), cell.A.astype(kind)):
        cell.same(made, cell.whole, kind)


@row("triplets", "assembler", "added")
def entries_of_each_rank(cell, way):
    """Every rank passes those entries whose turn it is; one without rows passes empty lists."""
    block = sparse.coo_array(cell.block_of(cell.whole))
    start = cell.rows.range(cell.comm.rank)[0]
    i, j, values = block.row.astype(cell.index) + start, block.col.astype(cell.index), block.data
    if not len(values):
        i, j, values = [], [], []
    shape = cell.whole.shape
    if way == "triplets":
        made = ours.from_triplets(cell.comm, i, j, values, shape, partition=cell.rows, **cell.how)
        cell.same(made, cell.whole)
        return
    given = {"shape": shape} if way == "added" else {"rows": i, "cols": j, "shape": shape}
    assembler = ours.Assembler(cell.comm, dtype=cell.dtype, **given, **cell.how)
    for factor in (1, 2):
        if way == "added":  # nothing, one by one, then the rest
            assembler.add([], [], [])
            for part in (slice(0, 1), slice(1, None)) if len(values) else ():
                assembler.add(i[part], j[part], np.asarray(values)[part] * factor)
            made = assembler.assemble()
        else:
            made = assembler.assemble(np.asarray(values) * factor)
        cell.same(made, cell.whole * factor)
    before = assembler.matrix.values.copy()
    if way == "added":
        assembler.add([0, 0, 0], 0, 1)
    for wrong in (assembler.assemble, lambda: assembler.assemble(np.zeros((2, 3)))):
        raises((ValueError, OnesidedError), wrong, "places")
    assert np.array_equal(assembler.matrix.values, before)


@row()
def elements(cell):
    """Matrices of elements of two nodes, dealt to the ranks in turn; some have none."""
    left = np.arange(cell.comm.rank, cell.n - 1, cell.comm.size)
    left = left[: 0 if cell.rows.lengths()[cell.comm.rank] == 0 else None]
    everything = np.concatenate(cell.comm.allgather(left))
    nodes = np.stack([left, left + 1], axis=1).astype(cell.index)
    if not len(nodes):
        nodes = np.zeros((0, 2))
    assembler = ours.Assembler(
        cell.comm, nodes[:, :, None], nodes[:, None, :], (cell.n, cell.n), **cell.how
    )
    matrix = np.array([[1.0, -1.0], [-1.0, 1.0]])
    whole = np.zeros((cell.n, cell.n))
    for node in everything:
        whole[node : node + 2, node : node + 2] += matrix
    made = assembler.assemble(np.broadcast_to(matrix, (len(nodes), 2, 2)))
    cell.same(made, sparse.csr_array(whole), "f8")
    n = 1 << 62  # of as many columns the entries of some rows have no numbers of 64 bits
    with mock.patch.object(assembly, "check_room"):
        how = cell.how | {"kernel": "scipy"}  # others have room for x
        far = ours.Assembler(cell.comm, [0, 3, 2], [n - 1, n - 1, 7], (4, n), **how)
    made = cell.kept(far.assemble([1.0, 2.0, 3.0]))
    assert (made.nnz, made.sum()) == (3, 6 * cell.comm.size)


@row()
def columns_of_more_than_32_bits(cell):
    """Where there are no rows SciPy makes their indices no wider."""
    count = len(range(*cell.rows.range(cell.comm.rank)))
    parts = np.ones(count, cell.kind), np.zeros(count, "i4"), np.arange(count + 1, dtype="i4")
    rows = sparse.csr_array(parts, shape=(count, 1 << 40))
    assert count or rows.indices.dtype == np.int32
    how = cell.how | {"kernel": "scipy"}  # others have room for x
    A = cell.kept(from_rows(cell.comm, rows, **how))
    assert (A.nnz, A.sum()) == (cell.n, cell.n)


@row("csr", "coo", "dia")
def a_matrix_of_one_rank(cell, form):
    root = cell.comm.size - 1
    whole = (cell.whole if cell.dtype.kind == "c" else cell.whole.real).astype(cell.dtype)
    mine = whole.asformat(form) if cell.comm.rank == root else None
    made = ours.from_scipy(cell.comm, mine, root=root, partition=cell.rows, **cell.how)
    cell.same(made, cell.whole)


@row("rows", "rcm", "owners", "metis")
def other_partitions(cell, how):
    if how == "metis":
        need("pymetis")
    numbers = np.arange(*cell.rows.range(cell.comm.rank))
    owners = (numbers * 7 + 1) % cell.comm.size
    A = cell.distributed(cell.whole, partition=owners if how == "owners" else how)
    for k in (0, 3):
        x, whole = cell.vector(k=k)
        x = x.astype(cell.result)
        if A.ordering is not None:
            y = A.ordering.backward(A @ A.ordering.forward(x), out=np.empty_like(x))
            cell.close(y, cell.whole @ whole)
            y = A.ordering.backward(A @ A.ordering.forward(DistVector(cell.comm, cell.rows, x)))
            cell.close(y.array, cell.whole @ whole)
            assert np.array_equal(y.partition.starts, cell.rows.starts)
            assert A.ordering.backward(A.ordering.forward(y), out=y) is y
        else:
            cell.close(A @ whole[slice(*A.col_range)].astype(cell.result), cell.whole @ whole)


@row("mtx", "h5", "mtx rcm", "h5 owners")
def written_and_read(cell, name):
    """In the caller's order, also where rows were moved; what is made of such a matrix has its
    ordering where it has its numbering."""
    ending, _, how = name.partition(" ")
    whole, A = cell.whole, cell.A
    if how:
        whole = whole + sparse.csr_array(np.diag(np.arange(cell.n) % 3.0))
        owners = np.arange(*cell.rows.range(cell.comm.rank)) * 5 % cell.comm.size
        A = cell.distributed(whole, partition=owners if how == "owners" else how)
        p = drawn(cell.n, max(cell.n // 2, 1), 0, 9).real.astype("f8")
        P = cell.kept(ours.from_scipy(cell.comm, p, partition=A.row_partition, **cell.how))
        assert cell.kept(A.galerkin(P)).ordering is None
        assert cell.kept(A @ P).ordering is A.ordering
        assert cell.kept(A.T.copy()).ordering is A.ordering
    path = cell.path(f".{ending}")
    ours.write(A, path)
    made = ours.read(cell.comm, path, partition=cell.rows, dtype=cell.dtype, **cell.how)
    cell.same(made, whole)


@row("numbers", "bools")
def rows_written_by_each_rank(cell, of):
    """Of the common kind; what a rank without rows passes decides nothing."""
    block, path = cell.block_of(cell.whole), cell.path(".mtx")
    whole = cell.whole if of == "numbers" else abs(cell.whole).sign()
    if of == "bools" and block.nnz:
        block = block.astype(bool)
    ours.write_matrixmarket(cell.comm, path, block)
    made = ours.read(cell.comm, path, partition=cell.rows, dtype=cell.dtype, **cell.how)
    cell.same(made, whole)
    with open(path) as file:
        assert ("pattern" in file.readline()) == (of == "bools")


@row("npz", "mat", "mtx.gz", "petsc", "h5ad")
def read_from(cell, ending):
    path, kind = cell.path(f".{ending}"), cell.dtype
    if cell.comm.rank == 0:
        whole = (cell.whole if kind.kind == "c" else cell.whole.real).astype(kind)
        with open(path, "wb") as file:
            file.write(bytes_of(ending, whole))
    cell.comm.Barrier()
    made = ours.read(cell.comm, path, partition=cell.rows, dtype=kind, **cell.how)
    cell.same(made, cell.whole)


def bytes_of(ending, whole):
    if ending == "npz":
        return npz_of(whole)
    if ending == "mat":
        return matlab_of({"A": sparse.csc_array(whole)})
    if ending == "mtx.gz":
        return gzip.compress(market_of(whole.astype(np.result_type(whole.dtype, "f8"))))
    if ending == "petsc":
        return petsc_of(whole, ">i4", ">c16" if whole.dtype.kind == "c" else ">f8")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        group = file.create_group("X")
        group.attrs["encoding-type"] = "csr_matrix"
        group.attrs["shape"] = whole.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(whole, name)
    return buffer.getvalue()


@row("0", "3")
def vectors_in_files(cell, k):
    x, whole = cell.vector(k=int(k))
    x = x.astype(cell.result)
    path = cell.path(".npy")
    ours.write(DistVector(cell.comm, cell.rows, x), path)
    assert np.array_equal(np.load(path), whole)
    for partition in (None, cell.rows):
        cell.close(ours.read_vector(cell.comm, path, partition).array, whole, 0)


# -- products ------------------------------------------------------------------------------------


@row(*(f"{side} {k}" for side in SIDES for k in (0, 1, 3)))
def products(cell, name):
    side, k = name.split()
    columns = Partition.even(7, cell.comm.size)
    whole = cell.as_given(drawn(cell.n, 7, cell.imaginary, 5))
    A = TAKEN[side](cell.distributed(whole, columns=columns))
    expected = SIDES[side](whole.toarray())
    x, all_of_x = cell.vector(A.col_partition, k=int(k))
    for _ in range(3):
        cell.close(A @ x, expected @ all_of_x)
    cell.close((A @ DistVector(cell.comm, A.col_partition, x)).array, expected @ all_of_x)
    alike = len(set(cell.comm.allgather(x.dtype))) == 1
    if alike:
        assert (A @ x).dtype == np.result_type(cell.dtype, x.dtype)
    start, stop = A.row_range
    out = np.empty((stop - start, *x.shape[1:]), cell.result)
    if alike and out.dtype == np.result_type(cell.dtype, x.dtype):
        A.dot(x, out)
        cell.close(out, expected @ all_of_x)


@row("1", "3", "1 direct", "3 direct")
def products_as_one_call(cell, name):
    """The script of a product against its reference in Python: the same bits, also where blocks
    are packed straight into the memory of neighbors, and where wrong operands come between."""
    k, direct = int(name[0]), name.endswith("direct")
    small = {"DIRECT_BYTES": 0, "DIRECT_BLOCK_BYTES": 0}
    with mock.patch.multiple(halo, **small) if direct else nullcontext():
        A = cell.distributed(sparse.csr_array(drawn(cell.n, cell.n, cell.imaginary, 5)))
        lengths = [stop - start for start, stop in (A.col_range, A.row_range)]
        shapes = [(n, k) if k > 1 else (n,) for n in lengths]
        for turn in range(5):
            x = np.random.default_rng(turn).random(shapes[0]).astype(cell.dtype)
            y, expected = (np.full(shapes[1], np.nan, cell.dtype) for _ in range(2))
            A.multiply(x, y)
            if k == 1 or turn:
                A.product(A.halo if k == 1 else A._halos[k], x, expected)
                assert np.array_equal(y, expected)
        if cell.how["kernel"] == "auto" and k == 1 and len(x) and len(y):
            for operands in ((x[1:], y), (x, y[1:])):
                raises(ValueError, lambda operands=operands: A.multiply(*operands), "bytes")
        A.multiply(x, y)
        assert np.array_equal(y, expected)
        A.halo.start(np.ones(lengths[0], cell.dtype))
        packed = A.halo.sendbuf.copy()
        other, result = (np.zeros(n, cell.dtype) for n in lengths)
        for again in (lambda: A.halo.start(other), lambda: A.multiply(other, result)):
            raises(RequestError, again)
            assert np.array_equal(A.halo.sendbuf, packed)
        assert np.all(A.halo.finish() == 1)
        A.multiply_back(result, other)
        back = A._reverse_halos[1]
        back.ghosts[:] = 1
        back.start()
        raises(RequestError, lambda: A.multiply_back(result, other))
        assert np.all(back.ghosts == 1)
        back.finish(other)


@row("0", "1", "3")
def whole_vectors(cell, k):
    columns = Partition.even(7, cell.comm.size)
    whole = cell.as_given(drawn(cell.n, 7, cell.imaginary, 5)).toarray()
    operator = cell.distributed(sparse.csr_array(whole), columns=columns).as_linear_operator()
    assert isinstance(operator, scipy.sparse.linalg.LinearOperator)
    assert operator.dtype == cell.dtype
    x, y = (cell.vector(each, k=int(k))[1].astype(cell.result) for each in (columns, cell.rows))
    adjoint = whole.conj().T
    for found, expected in (
        (operator @ x, whole @ x),
        (operator.H @ y, adjoint @ y),
        (operator.T @ y, whole.T @ y),
        (((2 * operator.H) @ operator) @ x, 2 * adjoint @ (whole @ x)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)
    if k == "1":
        np.testing.assert_allclose(operator.matvec(x), whole @ x, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(operator.rmatvec(y), adjoint @ y, rtol=1e-5, atol=1e-4)


@row()
def a_map_without_entries(cell):
    def multiply(x, y):
        cell.A.dot(x, out=y) if x.dtype == y.dtype else None

    def back(x, y):
        cell.A.H.dot(x, out=y)

    made = ours.LinearOperator(
        cell.comm, cell.rows, cell.rows, multiply, multiply_adjoint=back, dtype=cell.dtype
    )
    x, whole = cell.vector()
    x = x.astype(cell.result)
    cell.close(made @ x, cell.whole @ whole)
    cell.close(made.H @ x, cell.whole.conj().T @ whole)
    cell.close(made.T @ x, cell.whole.T @ whole)
    raises(TypeError, lambda: cell.A + made, "takes a DistMatrix, not LinearOperator")


# -- matrices of matrices ------------------------------------------------------------------------

UNARY = {
    "copy": (lambda A: A.copy(), lambda a: a),
    "double": (lambda A: A * 2, lambda a: a * 2),
    "half": (lambda A: A / 2, lambda a: a / 2),
    "negative": (lambda A: -A, lambda a: -a),
    "transpose": (lambda A: A.T.copy(), lambda a: a.T),
    "adjoint": (lambda A: A.H.copy(), lambda a: a.conj().T),
    "conjugate": (lambda A: A.T.H.copy(), lambda a: a.conj()),
    "square": (lambda A: A @ A, lambda a: a @ a),
    "A.H A": (lambda A: A.H @ A, lambda a: a.conj().T @ a),
    "A A.H": (lambda A: A @ A.H, lambda a: a @ a.conj().T),
    "A + A": (lambda A: A + A, lambda a: a + a),
    "A + A.T": (lambda A: A + A.T, lambda a: a + a.T),
    "A.with_method": (lambda A: A.with_method("p2p"), lambda a: a),
}


@row(*UNARY)
def made_of(cell, name):
    make, expected = UNARY[name]
    whole = sparse.csr_array(cell.whole + sparse.eye_array(cell.n, k=1)).astype(cell.whole.dtype)
    A = cell.distributed(whole)
    cell.same(make(A), sparse.csr_array(expected(whole)))


@row()
def places_that_stay(cell):
    """Entries that cancel keep their places, as the diagonal does where nothing was stored."""
    if cell.n < 2:
        skip("no entries beside the diagonal")
    nothing = cell.A - cell.A
    assert nothing.nnz == cell.A.nnz
    cell.same(nothing, cell.whole * 0)
    off = cell.whole.toarray()
    np.fill_diagonal(off, 0)
    B = cell.distributed(sparse.csr_array(off))
    shifted = B.shifted(0)
    assert shifted.nnz == B.nnz + cell.n
    cell.same(shifted, sparse.csr_array(off))
    even = cell.whole.toarray()
    np.fill_diagonal(even, 2)
    C = cell.distributed(sparse.csr_array(even))
    gone = C.shifted(-2)
    assert gone.nnz == C.nnz
    cell.same(gone, sparse.csr_array(off))


@row("DistMatrix", "SciPy")
def kronecker(cell, what):
    b = sparse.csr_array(drawn(3, 2, 0, 3).real)
    B = b
    if what == "DistMatrix":
        B = cell.kept(ours.from_scipy(cell.comm, b, **cell.how))
    kind = np.result_type(cell.dtype, "f8")
    made = cell.A.astype(kind)
    cell.same(ours.kron(cell.kept(made), B), sparse.kron(cell.whole, b).tocsr(), kind)
    if what == "DistMatrix":
        square = ours.kron(B, b.T)
        cell.same(square, sparse.kron(b, b.T).tocsr(), "f8")
        assert square.row_range == square.col_range


@row()
def blocks_of_matrices(cell):
    p = sparse.csr_array(drawn(cell.n, 3, 0, 9).real)
    P = cell.kept(ours.from_scipy(cell.comm, p, dtype=cell.dtype, **cell.how))
    made = ours.block_array([[cell.A, P], [P.T.copy(), None]], **cell.how)
    cell.same(made, sparse.block_array([[cell.whole, p], [p.T, None]]).tocsr())
    for wrong in ([[cell.A, None], [P, None]], [[cell.A], [P]]) if cell.n != 3 else ():
        raises(ValueError, lambda wrong=wrong: ours.block_array(wrong), "block")


@row()
def of_diagonals(cell):
    d, whole = cell.vector(seed=2)
    D = DistVector(cell.comm, cell.rows, d.real.astype(cell.kind.type(0).real.dtype))
    expected = np.diag(whole.real) + 2 * np.eye(cell.n, k=1) - np.eye(cell.n, k=-cell.n)
    made = ours.diags(cell.comm, [D, 2, -1], [0, 1, -cell.n], partition=cell.rows,
                      dtype=cell.dtype, **cell.how)
    cell.same(made, sparse.csr_array(expected))
    wide = ours.diags(cell.comm, 3, -1, shape=(4, 9), dtype=cell.dtype, **cell.how)
    cell.same(wide, sparse.csr_array(3 * np.eye(4, 9, k=-1)))


@row("matrix", "transpose", "number", "vector")
def entries_multiplied(cell, by):
    whole = cell.whole.toarray()
    if by == "vector":
        kinds = TypeError, OnesidedError
        raises(kinds, lambda: cell.A.multiply(cell.vector()[0]), "takes a DistMatrix")
        return
    other = {"matrix": cell.A, "transpose": cell.A.T, "number": 3}[by]
    expected = {"matrix": whole, "transpose": whole.T, "number": 3}[by]
    cell.same(cell.A.multiply(other), sparse.csr_array(whole * expected))


@row()
def rectangles_multiplied(cell):
    b = sparse.csr_array(drawn(cell.n, max(cell.n // 2, 1), 0, 9).real)
    B = cell.kept(from_rows(cell.comm, b[slice(*cell.rows.range(cell.comm.rank))], **cell.how))
    W = cell.kept(ours.from_scipy(cell.comm, b.T, **cell.how))
    for made, expected in ((B @ W, b @ b.T), (W @ B, b.T @ b)):
        cell.same(made, sparse.csr_array(expected), "f8")
        assert cell.n == 1 or made.row_range == made.col_range
    kind = np.result_type(cell.dtype, "f8")
    for made, expected in (
        (cell.A @ B, cell.whole @ b),
        (B.T @ cell.A, b.T @ cell.whole),
        (cell.A.H @ B, cell.whole.conj().T @ b),
        (cell.A.galerkin(B), b.T @ cell.whole @ b),
    ):
        cell.same(made, sparse.csr_array(expected), kind)


# -- entries -------------------------------------------------------------------------------------


@row()
def duplicates_are_summed(cell):
    """As in files and triplets: norms and numbers of entries are those of the sums."""
    start, stop = cell.rows.range(cell.comm.rank)
    count = stop - start
    own = np.arange(start, stop)
    parts = (
        np.tile([3, -3, 2, 2], count).astype(cell.kind),
        np.repeat(own, 4).astype(cell.index),
        np.arange(0, 4 * count + 1, 4).astype(cell.index),
    )
    A = cell.kept(from_rows(cell.comm, sparse.csr_array(parts, shape=(count, cell.n)), **cell.how))
    assert A.nnz == cell.n
    assert A.norm("max") == A.norm(1) == A.norm(np.inf) == 4
    assert np.isclose(A.norm(), 4 * np.sqrt(cell.n))


@row()
def norms_and_sums(cell):
    dense = cell.whole.toarray()
    assert np.isclose(cell.A.norm(), np.linalg.norm(dense), rtol=1e-6)
    for order in (1, np.inf):
        assert np.isclose(cell.A.norm(order), np.linalg.norm(dense, order), rtol=1e-6)
    assert np.isclose(cell.A.norm("max"), np.abs(dense).max())
    assert np.isclose(cell.A.sum(), dense.sum())
    cell.close(cell.A.sum(axis=0), dense.sum(axis=0))
    cell.close(cell.A.sum(axis=1), dense.sum(axis=1))
    cell.close(cell.A.diagonal(), dense.diagonal())
    assert cell.A.report().nonzeros.sum() == cell.whole.nnz
    found = cell.A.gather(cell.comm.size - 1)
    assert (found is None) == (cell.comm.rank != cell.comm.size - 1)
    if found is not None:
        assert np.array_equal(found.toarray(), dense)


@row()
def entries_from_anywhere(cell):
    for wanted in ([], [0], [cell.n - 1, 0, 0], slice(None)):
        mine = wanted if cell.comm.rank % 2 == 0 else []
        expected = cell.whole.toarray()[mine if isinstance(mine, slice) else np.array(mine, int)]
        assert np.array_equal(cell.A[mine].toarray(), expected)
    found = cell.A[[cell.n - 1, 0], 0:2]
    assert np.array_equal(found.toarray(), cell.whole.toarray()[[cell.n - 1, 0]][:, 0:2])


@row()
def scaled(cell):
    f, whole = cell.vector(seed=3)
    f, whole = f.real.astype(cell.kind.type(0).real.dtype), whole.real
    A = cell.A.copy()
    A.scale_rows(f)
    cell.same(A, sparse.csr_array(whole[:, None] * cell.whole.toarray()))
    B = cell.A.copy()
    B.scale_columns(DistVector(cell.comm, cell.rows, f))
    B.scale(2)
    cell.same(B, sparse.csr_array(2 * cell.whole.toarray() * whole))
    last = np.arange(*cell.rows.range(cell.comm.rank)) == cell.n - 1
    huge = np.where(last, np.finfo(cell.dtype).max, 1).astype(cell.dtype)
    with np.errstate(all="raise"):
        for scale in (cell.A.scale_rows, cell.A.scale_columns):
            raises(FloatingPointError, lambda scale=scale: scale(huge), "overflow")
        if cell.n > 2:
            b, fixed = np.ones_like(huge), [cell.n - 1]
            lift = partial(cell.A.zero_rows, fixed, x=huge, b=b, columns=True)
            raises(FloatingPointError, lift, "overflow")
            assert np.all(b == 1)
    C, small = cell.A.copy(), np.where(last, np.finfo(cell.dtype).tiny, 1).astype(cell.dtype)
    C.scale_rows(small)
    D = cell.A.copy()
    D.set_values(np.full(len(D.values), np.finfo(cell.dtype).max))
    with np.errstate(all="raise"):
        assert np.isclose(C.norm(), np.linalg.norm(cell.whole.toarray()[:-1]), rtol=1e-6)
        assert cell.n == 1 or np.isinf(D.sum())
    C.Free()
    D.Free()
    same = B
    B.T @ np.ones(len(f), cell.dtype)
    B *= 3 * 2**66
    B /= 2**68
    assert B is same
    cell.same(B, sparse.csr_array(1.5 * cell.whole.toarray() * whole))
    cell.same(B.T.copy(), sparse.csr_array(1.5 * cell.whole.toarray() * whole).T)


@row("values", "rows")
def other_values(cell, way):
    """At the same places, also in products with the adjoint that is kept."""
    block, halo = cell.A.local_rows(), cell.A.halo
    cell.A.T @ np.ones(len(block.indptr) - 1, cell.dtype)
    cell.A.set_values((block * 3) if way == "rows" else 3 * block.data)
    cell.same(cell.A, cell.whole * 3)
    cell.same(cell.A.T.copy(), cell.whole.T * 3)
    assert cell.A.halo is halo


@row("x and b", "columns", "alone")
def boundary_values(cell, way):
    """Every third row, told by the rank that does not own it."""
    fixed = np.arange(0, cell.n, 3)
    told = fixed[cell.comm.rank :: cell.comm.size]
    dense, x = cell.whole.toarray(), np.arange(1.0, cell.n + 1)
    b = np.arange(cell.n) % 4.0
    ranks = slice(*cell.rows.range(cell.comm.rank))
    mine = b[ranks].astype(cell.result)
    if way == "alone":
        cell.A.zero_rows(told, 2)
    else:
        cell.A.zero_rows(told, 2, x[ranks].astype("f4"), mine, columns=way == "columns")
    expected = b - (dense[:, fixed] @ x[fixed] if way == "columns" else 0)
    expected[fixed] = 2 * x[fixed]
    if way != "alone":
        cell.close(mine, expected)
    dense[fixed] = 0
    if way == "columns":
        dense[:, fixed] = 0
    dense[fixed, fixed] = 2
    cell.same(cell.A, sparse.csr_array(dense))
    assert cell.A.nnz == cell.whole.nnz
    smaller = cell.A.eliminate_zeros()
    assert smaller.nnz == np.count_nonzero(dense)
    cell.same(smaller, sparse.csr_array(dense))


@row("number", "block")
def another_diagonal(cell, way):
    d, whole = cell.vector(seed=4)
    d, whole = d.real, whole.real
    cell.A.set_diagonal(3 if way == "number" else DistVector(cell.comm, cell.rows, d))
    dense = cell.whole.toarray()
    np.fill_diagonal(dense, 3 if way == "number" else whole)
    cell.close(cell.A.local_rows().toarray(), dense)


# -- vectors -------------------------------------------------------------------------------------


@row("0", "2")
def distributed_vectors(cell, k):
    """Sums, functions, scalar products and norms of them."""
    x, whole = cell.vector(k=int(k))
    y, other = cell.vector(seed=1, k=int(k))
    X, Y = (DistVector(cell.comm, cell.rows, each) for each in (x, y))
    moved = X.copy()
    moved += 2 * Y
    moved -= X
    for found, expected in (
        (X + Y, whole + other), (X - 2 * Y, whole - 2 * other), (-X * 3, -3 * whole),
        (abs(X), abs(whole)), (X.conj(), whole.conj()), (X + 1.0, whole + 1), (moved, 2 * other),
        (np.multiply(X, Y), whole * other),
    ):  # fmt: skip
        cell.close(found.array, expected)
    cell.close(np.exp(X / 4).array, np.exp(whole / 4), 1e-5)
    for found, expected in (
        (X.dot(Y), (whole * other).sum(axis=0)), (X @ Y, (whole * other).sum(axis=0)),
        (X.vdot(Y), (whole.conj() * other).sum(axis=0)), (X.sum(), whole.sum(axis=0)),
        (X.norm(), np.linalg.norm(whole, axis=0)), (X.norm(1), abs(whole).sum(axis=0)),
        (X.norm(np.inf), abs(whole).max(axis=0)),
    ):  # fmt: skip
        assert np.allclose(found, expected, rtol=1e-5)
    if cell.result.kind != "c":
        assert np.array_equal(X.min(), whole.real.min(axis=0))
        assert np.array_equal(X.max(), whole.real.max(axis=0))
    X.axpy(3, Y)
    cell.close(X[...], whole + 3 * other)
    X[...] = Y
    cell.close(X.real.array, other.real)
    assert X.astype("c16").dtype == np.complex128


@row("0", "2")
def vectors_of_one_rank(cell, k):
    root = cell.comm.size - 1
    _, whole = cell.vector(k=int(k))
    mine = whole if cell.comm.rank == root else None
    made = DistVector.scatter(cell.comm, mine, cell.rows, root)
    cell.close(made.array, whole)
    found = made.gather(root)
    assert (found is None) == (cell.comm.rank != root)
    assert found is None or np.array_equal(found, whole)


@row("1", "2")
def vectors_of_matrix_market(cell, k):
    _, whole = cell.vector(k=int(k))
    path = cell.path("_b.mtx")
    if cell.comm.rank == 0:
        scipy.io.mmwrite(path, whole)
    cell.comm.Barrier()
    found = ours.read_vector(cell.comm, path, cell.rows)
    cell.close(found.array, whole[:, 0] if k == "1" else whole)


# -- solvers -------------------------------------------------------------------------------------

PRECONDITIONERS = {
    "none": lambda A: None,
    "Jacobi": ours.Jacobi,
    "SSOR": ours.SSOR,
    "ILU": lambda A: ours.BlockILU(A, hermitian=True),
    "AMG": lambda A: ours.AMG(A, coarsest=3),
}
SQUARE = ["cg", "pipelined_cg", "minres", "chebyshev", "gmres", "fgmres", "bicgstab"]


def solved(cell, name, A, whole, M=None, **how):
    """Solve with the vectors of the cell and compare with NumPy."""
    b, all_of_b = cell.vector(seed=7)
    x0, _ = cell.vector(seed=8)
    rtol = 1e-4 if cell.eps > 1e-10 else 1e-10
    given = {} if M is None else {"M": M}
    found = getattr(ours, name)(A, b, x0, rtol=rtol, **given, **how)
    assert found.converged, found.reason
    assert found.x.dtype == cell.result, found.x.dtype
    expected = np.linalg.solve(whole.toarray(), all_of_b)
    cell.close(found.x, expected, 30 * rtol)
    return found


@row(*(f"{name} {precond}" for name in SQUARE for precond in PRECONDITIONERS))
def solvers(cell, name):
    solver, precond = name.split()
    M = cell.kept(PRECONDITIONERS[precond](cell.A))
    solved(cell, solver, cell.A, cell.whole, M)


MAPS = {
    "function": lambda A, inverse: lambda r: inverse * r,
    "Linear": lambda A, inverse: ours.LinearOperator(
        A.comm, A.row_partition, A.col_partition,
        lambda x, y: np.multiply(x.T, inverse, out=y.T), dtype=A.dtype,
    ),
    "SciPy": lambda A, inverse: scipy.sparse.linalg.LinearOperator(
        (len(inverse), len(inverse)), matvec=lambda r: inverse * r, dtype=inverse.dtype
    ),
    "Jacobi": lambda A, inverse: ours.Jacobi(A),
    "SSOR": lambda A, inverse: ours.SSOR(A),
    "BlockLU": lambda A, inverse: ours.BlockLU(A),
    "inner": lambda A, inverse: ours.inner(A, ours.cg, maxiter=2),
    "ILUTP": lambda A, inverse: ours.BlockILU(A, fill_factor=2, drop_tol=1e-3),
    "AMG, single": lambda A, inverse: ours.AMG(A, coarsest=3, dtype=A.dtype.char.replace("d", "f")
                                               .replace("D", "F")),
    "AMG, reused": lambda A, inverse: ours.AMG(A, coarsest=3, reuse=True),
}


@row(*MAPS)
def other_preconditioners(cell, kind):
    """What a solver takes for M; then with other values of the matrix."""
    M = cell.kept(MAPS[kind](cell.A, 1.0 / cell.A.diagonal().real))
    solved(cell, "fgmres", cell.A, cell.whole, M)
    if kind in ("inner", "ILUTP"):
        words = "cg needs a Hermitian preconditioner"
        raises(ValueError, lambda: ours.cg(cell.A, cell.vector()[0], M=M), words)
        return
    cell.A.scale(3)
    solved(cell, "cg", cell.A, cell.whole * 3, M)


INVERSES = {
    "none": lambda cell: None,
    "Jacobi": lambda cell: ours.Jacobi(cell.A),
    "matrix": lambda cell: cell.distributed(
        sparse.diags_array(1 / cell.whole.diagonal().real).tocsr(), dtype=cell.dtype
    ),
}
SYSTEMS = ["right", "guess", "indefinite", "not a number", "limit", "sums in use"]


@row(*(f"{precond}, {kind}" for precond in INVERSES for kind in SYSTEMS
       if (precond, kind) != ("Jacobi", "indefinite")))
def iterations_as_one_call(cell, name):
    """The script of an iteration of cg against its reference in Python, to rounding: every x on the
    way, residuals, and how it ends; and again, with the script that is kept."""
    precond, kind = name.split(", ")
    M = INVERSES[precond](cell)
    if kind == "indefinite":
        cell.A.scale_rows(np.where(np.arange(*cell.rows.range(cell.comm.rank)) % 2, 1, -1))
    if precond == "Jacobi":
        M.inverse.flags.writeable = False
    b, _ = cell.vector(seed=7)
    x0 = cell.vector(seed=8)[0] if kind == "guess" else None
    if kind == "not a number" and len(b):
        b = b.astype(cell.result)
        b[0] = np.nan
    limit, rtol = 2 if kind == "limit" else 40, 1e-4 if cell.eps > 1e-10 else 1e-10
    runs, others = [], []
    for form in ("script", "reference", "script"):
        way = []

        def look(x, way=way):
            if kind == "sums in use" and len(way) == 1:
                others.append(sums(cell.comm, 3, "c16" if cell.result.kind == "c" else "f8"))
                others[0].start()
            way.append(np.array(x))

        has_steps = iteration._has_steps if form == "script" else lambda *given: False
        with mock.patch.object(iteration, "_has_steps", has_steps):
            found = ours.cg(cell.A, b, x0, rtol=rtol, maxiter=limit, M=M, callback=look)
        if others:
            others[0].finish()
            if form == "reference":
                break_sums(others[0], cell.comm.rank == 0)
            others.clear()
        runs.append((found, way))
        kept = [each for A in (cell.A, *cell.A._promoted.values()) for each in A.kept.values()]
        if cell.how["kernel"] == "auto" and precond != "matrix" and cell.comm.rank == 0:
            alike = cell.result == cell.dtype or cell.result.kind == cell.dtype.kind
            assert bool(kept) == alike or form == "reference", (kept, cell.result, cell.dtype)
    (first, one), (second, other), (third, again) = runs
    assert first.x.dtype == second.x.dtype
    assert first.reason.split("=")[0] == second.reason.split("=")[0] or first.converged
    assert first.converged == second.converged == third.converged
    bound = 1e4 * float(np.finfo(cell.result).eps)
    most = bound * np.nan_to_num(first.residuals[0])
    np.testing.assert_allclose(first.residuals[:3], second.residuals[:3], bound, most)
    for mine, theirs in zip(one[:2], other[:2], strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=bound, atol=bound)
    assert len(one) == len(again)
    assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(one, again, strict=True))
    gone, halo_of_it = weakref.ref(cell.A), cell.A.halo
    if kind == "right" and precond != "matrix" and not cell.A._promoted:
        cell.made.clear()
        cell.__dict__.pop("A")
        del M, kept
        gc.disable()
        try:
            assert gone() is None
        finally:
            gc.enable()
            halo_of_it.Free()


def break_sums(of, here):
    """Collective. An exception is raised while they are waited for, on some ranks."""

    def fails():
        raise KeyError("in the middle")

    of.start()
    if not here:
        of.finish()
        return
    request = of.request
    before, request._hooked, request._after_wait = request._hooked, 1, fails
    try:
        of.finish()
    except KeyError:
        assert request.state == "broken"
    request._hooked = before
    del request._after_wait


@row("lsqr", "lsmr")
def least_squares(cell, solver):
    solved(cell, solver, cell.A, cell.whole)
    b, whole = cell.vector(seed=7)
    found = getattr(ours, solver)(cell.A, b, damp=0.5, rtol=1e-6)
    a = cell.whole.toarray()
    expected = np.linalg.solve(a.conj().T @ a + 0.25 * np.eye(cell.n), a.conj().T @ whole)
    cell.close(found.x, expected, 1e-3)


@row(*SQUARE, "lsqr", "lsmr")
def several_right_hand_sides(cell, solver):
    """One of them is zero; each has a history of its own."""
    b, whole = cell.vector(seed=7, k=3)
    b[:, 1] = whole[:, 1] = 0
    how = {} if solver.startswith("ls") else {"M": ours.Jacobi(cell.A)}
    found = getattr(ours, solver)(cell.A, b, rtol=1e-5, **how)
    assert found.converged
    assert found.residuals.shape == (found.iterations + 1, 3)
    assert found.columns[1].iterations == 0
    cell.close(found.x, np.linalg.solve(cell.whole.toarray(), whole), 1e-3)
    rest = np.linalg.norm(whole - cell.whole @ cell.joined(found.x), axis=0)
    np.testing.assert_allclose(found.true_residual, rest, rtol=0.05, atol=1e3 * cell.eps)


@row()
def right_hand_sides_together(cell):
    """Solved for together; each column ends as it does alone."""
    b, whole = cell.vector(seed=7, k=4)
    b[:, 1], whole[:, 1] = 0, 0
    x0 = cell.vector(seed=8, k=4)[0]
    for make, first in ((lambda A: None, x0), (ours.Jacobi, None), (ours.SSOR, x0)):
        how = {"rtol": 1e-5, "M": make(cell.A)}
        guess = first if first is None or len(b) else []
        found = ours.cg(cell.A, b, guess, **how)
        assert found.converged
        cell.close(found.x, np.linalg.solve(cell.whole.toarray(), whole), 1e-3)
        for j, column in enumerate(found.columns):
            alone = ours.cg(cell.A, b[:, j], None if first is None else first[:, j], **how)
            assert abs(column.iterations - alone.iterations) <= 1
            atol = 1e-4 * alone.residuals.max()
            for pair in zip(column.residuals[:3], alone.residuals[:3], strict=False):
                np.testing.assert_allclose(*pair, rtol=1e-3, atol=atol)
    if cell.n > 4:
        sign = np.where(np.arange(*cell.rows.range(cell.comm.rank)) % 2, 1, -1)
        cell.A.scale_rows(sign)
        found = ours.cg(cell.A, b, x0, maxiter=3)
        assert found.columns[1].converged
        assert not found.converged
        assert np.all(np.isfinite(found.x))


@row(*(f"{name} {precond}" for name in SQUARE for precond in ("none", "Jacobi", "AMG")))
def null_spaces(cell, name):
    """The Laplacian of a ring: the constant vector is taken away from b, which has some, from M r
    and from x."""
    solver, precond = name.split()
    if cell.n < 2:
        skip("a ring of one has no neighbors")
    whole = ring(cell.n)
    A = cell.distributed(whole)
    rng = np.random.default_rng(3)
    exact = rng.integers(-9, 10, cell.n).astype(float)  # right-hand sides may be integers
    ranks = slice(*cell.rows.range(cell.comm.rank))
    b = (whole @ exact + 1)[ranks].astype(cell.vector_kind)
    exact -= exact.mean()
    M = cell.kept(PRECONDITIONERS[precond](A))
    ones = np.ones(len(b), cell.vector_kind.type(0).real.dtype)
    rtol = 1e-4 if cell.eps > 1e-10 else 1e-8
    how = {"left_nullspace": ones} if solver in ("gmres", "fgmres", "bicgstab") else {}
    found = getattr(ours, solver)(A, b, rtol=rtol, M=M, nullspace=ones, **how)
    assert found.converged, found.reason
    cell.close(found.x, exact, 300 * rtol)


@row("vectors", "right-hand sides", "nullspace", "near_nullspace", "ordering", "boundary values",
     "no null space")
def an_empty_list_for_no_rows(cell, what):
    """A rank without rows need not know how many vectors the others pass."""

    def mine(block):
        return block if len(block) else []

    b, whole = cell.vector(seed=7, k=3)
    if what == "vectors":
        cell.close(DistVector(cell.comm, cell.rows, mine(b)).array, whole)
    elif what == "ordering":
        owners = np.arange(*cell.rows.range(cell.comm.rank)) * 5 % cell.comm.size
        order = cell.distributed(cell.whole, partition=mine(owners)).ordering
        if order is not None:
            cell.close(order.backward(mine(order.forward(mine(b)))), whole)
    elif what == "boundary values":
        right, x = b[:, 0].astype(cell.result), np.ones(len(b), "f4")
        cell.A.zero_rows([0], 2, mine(x), mine(right), columns=True)
        cell.close(right, np.append(2, whole[1:, 0] - cell.whole.toarray()[1:, 0]))
    elif what == "right-hand sides":
        for solver in (ours.cg, ours.gmres):
            found = solver(cell.A, mine(b), mine(b), rtol=1e-5)
            cell.close(found.x, np.linalg.solve(cell.whole.toarray(), whole), 1e-3)
    elif what == "no null space":
        solved(cell, "cg", cell.A, cell.whole, nullspace=mine(np.zeros((len(b), 0))))
    elif what == "near_nullspace":
        M = cell.kept(ours.AMG(cell.A, coarsest=3, near_nullspace=mine(np.ones((len(b), 2)))))
        solved(cell, "cg", cell.A, cell.whole, M)
    elif cell.n > 1:
        A, exact = cell.distributed(ring(cell.n)), whole[:, 0].real - whole[:, 0].real.mean()
        right = (ring(cell.n) @ exact)[slice(*cell.rows.range(cell.comm.rank))]
        found = ours.minres(A, right, rtol=1e-4, nullspace=mine(np.ones((len(b), 2))))
        cell.close(found.x, exact, 0.03)


@row(*list(PRECONDITIONERS)[1:])
def preconditioners_by_themselves(cell, precond):
    """M r is linear, of r's dtype, and M Hermitian positive."""
    M = cell.kept(PRECONDITIONERS[precond](cell.A))
    r, _ = cell.vector()
    r = r.astype(cell.result)
    out, twice = np.full_like(r, 9), np.full_like(r, 9)
    M.apply(r, out)
    M.apply(2 * r, twice)
    cell.close(twice, 2 * cell.joined(out), 1e-4)
    whole_r, whole_m = cell.joined(r), cell.joined(out)
    assert not whole_r.any() or np.vdot(whole_r, whole_m).real > 0


@row("smallest", "largest", "zero", "nullspace", "tiny")
def eigenpairs(cell, which):
    """Zero is an eigenvalue, unless its vector is in the null space that is left out."""
    if cell.n < 6:
        skip("too few rows for two eigenpairs")
    whole = ring(cell.n) if which in ("zero", "nullspace") else cell.whole
    if which == "tiny":
        whole = whole * tiny(cell)
    how = {"largest": which == "largest"}
    if which == "nullspace":
        how["nullspace"] = np.ones(len(cell.vector()[0]))
    rtol = 1e-4 if cell.eps > 1e-10 else 1e-7
    found = ours.lobpcg(cell.distributed(whole), 2, rtol=rtol, **how)
    assert found.converged, found.reason
    values = np.linalg.eigvalsh(whole.toarray())[:: -1 if which == "largest" else 1]
    expected = values[1:3] if which == "nullspace" else values[:2]
    atol = 1e-4 if which == "zero" else 0
    np.testing.assert_allclose(found.values, expected, rtol=10 * rtol, atol=atol)
    assert cell.joined(found.vectors).shape == (cell.n, 2)


def tiny(cell):
    """A number whose square is zero in the narrowest dtype of a rank."""
    kinds = cell.comm.allgather(cell.kind)
    return 1e-30 if any(np.finfo(kind).eps > 1e-10 for kind in kinds) else 1e-170


@row("moderate", "tiny")
def the_largest_eigenvalue(cell, size):
    factor = tiny(cell) if size == "tiny" else 1
    A = cell.distributed(cell.whole * factor)
    found = ours.power_iteration(A, rtol=1e-3, maxiter=5000)
    assert found.converged, found.reason
    values = np.linalg.eigvalsh(cell.whole.toarray())
    np.testing.assert_allclose(found.values / factor, values[-1:], rtol=1e-2)
    short = ours.power_iteration(A, maxiter=0)
    assert cell.n == 1 or short.reason.startswith("iteration limit: a larger maxiter")


@row("all alike", "x0")
def page_ranks(cell, start):
    """Links of a ring, each node to its next two; in the end all have the same rank."""
    if cell.dtype.kind == "c":
        skip("ranks of pages are real")
    links = sparse.csr_array(
        np.eye(cell.n, k=1) + np.eye(cell.n, k=1 - cell.n) + (cell.n > 1) * np.eye(cell.n)
    )
    A = cell.distributed(links)
    x0 = None
    if start == "x0":
        kind = cell.vector_kind.type(0).real.dtype
        x0 = np.arange(1.0, cell.n + 1)[slice(*A.row_range)].astype(kind)
    found = ours.pagerank(A, x0, atol=1e-6)
    assert found.converged, found.reason
    cell.close(found.x, np.full(cell.n, 1 / cell.n), 1e-5)


# -- refused on all or on none -------------------------------------------------------------------


@row("float", "uint64", "string")
def indices_of_other_kinds(cell, kind):
    """Indices of one rank that are no integers are an error of all; unsigned ones are right."""
    last = cell.comm.size - 1
    i = np.arange(cell.comm.rank, cell.n, cell.comm.size)
    if cell.comm.rank == last and kind != "string":
        i = i.astype(kind)
    elif cell.comm.rank == last:
        i = np.array([str(each) for each in i], dtype="U3")
    values = np.ones(len(i), cell.kind)
    wrong = kind != "uint64" and cell.n > last
    for make in (
        lambda: ours.from_triplets(cell.comm, i, i, values, (cell.n, cell.n), **cell.how),
        lambda: ours.Assembler(cell.comm, i, i, (cell.n, cell.n), **cell.how).assemble(values.real),
    ):
        if wrong:
            raises((TypeError, OnesidedError), make, "not integers")
        else:
            cell.close(cell.kept(make()).local_rows().toarray(), np.eye(cell.n))


@row("vector", "scattered", "zeros", "map", "map's columns")
def partitions_that_differ(cell, of):
    """One rank has another, by which it may own as many rows."""
    comm = cell.comm
    if comm.size == 1:
        skip("one rank has one partition")
    here = np.arange(comm.size)
    ends = [Partition.from_lengths(cell.n * (here == p)) for p in (0, comm.size - 1)]
    other = ends[np.array_equal(ends[0].starts, cell.rows.starts)]
    part = other if comm.rank == comm.size - 1 else cell.rows
    whole = np.ones(cell.n) if comm.rank == 0 else None
    make = {
        "vector": lambda: DistVector(comm, part, np.ones(part.lengths()[comm.rank])),
        "scattered": lambda: DistVector.scatter(comm, whole, part),
        "zeros": lambda: DistVector.zeros(comm, part),
        "map": lambda: ours.LinearOperator(comm, part, cell.rows, np.copyto),
        "map's columns": lambda: ours.LinearOperator(comm, cell.rows, part, np.copyto),
    }[of]
    raises(MismatchError, make, f"Partition of {cell.n} in {comm.size} parts")


@row("astype", "map", "diags", "triplets", "SciPy", "assembler")
def spelled_in_different_ways(cell, of):
    """Ranks pass one value: a dtype by name or type, offsets in a list or from an iterator."""
    comm, many = cell.comm, 2000
    turn, here = comm.rank % 4, np.arange(comm.rank, 4, comm.size)
    dtype = (cell.dtype.str, cell.dtype.type, cell.dtype, cell.dtype.name)[turn]
    offsets = (list, tuple, np.array, iter)[turn](list(range(many)))
    eye = sparse.eye_array(4) if comm.rank == 0 else None
    made = {
        "astype": lambda: cell.A.astype(dtype),
        "map": lambda: ours.LinearOperator(comm, cell.rows, cell.rows, np.copyto, dtype=dtype),
        "diags": lambda: ours.diags(comm, [1] * many, offsets, shape=(4, 4), dtype=dtype),
        "triplets": lambda: ours.from_triplets(comm, here, here, here, (4, 4), dtype=dtype),
        "SciPy": lambda: ours.from_scipy(comm, eye, dtype=dtype),
        "assembler": lambda: ours.Assembler(comm, here, here, (4, 4), dtype=dtype).assemble(here),
    }[of]()
    assert made.dtype == cell.dtype
    if of != "map":
        cell.kept(made)
    if of == "diags":
        assert made.nnz == 10


@row()
def numbers_spelled_in_different_ways(cell):
    """NumPy's on one rank, Python's on another."""
    n, A, (b, _) = cell.n, cell.A, cell.vector()

    def given(value):
        return np.asarray(value)[()] if cell.comm.rank % 2 else value

    for solver, how in (
        (ours.cg, {"rtol": given(1e-3), "maxiter": given(99), "M": ours.SSOR(A, omega=given(1.0))}),
        (ours.gmres, {"restart": given(3), "atol": given(1e-3)}),
        (ours.lsqr, {"damp": given(0.5)}),
    ):
        assert solver(A, b, **how).converged
    dtype = A.dtype.str if cell.comm.rank % 2 else A.dtype.type
    assert cell.kept(ours.AMG(A, dtype=dtype, coarsest=given(3))).complexity >= 1
    some = ours.Assembler(cell.comm, [0], [0], (given(n), n), **cell.how)
    assert cell.kept(some.assemble([1.0])).shape == (n, n)
    A.scale(given(2.0))
    cell.same(A, 2 * cell.whole)


@row("shape", "astype", "map", "zeros", "diags")
def nonsense_of_one_rank(cell, of):
    """What cannot be converted is an error of all."""
    wrong, comm = cell.comm.rank == cell.comm.size - 1, cell.comm
    dtype = "nonsense" if wrong else cell.dtype.str
    make = {
        "shape": lambda: ours.from_triplets(comm, [], [], [], None if wrong else (2, 3)),
        "astype": lambda: cell.A.astype(dtype),
        "map": lambda: ours.LinearOperator(comm, cell.rows, cell.rows, np.copyto, dtype=dtype),
        "zeros": lambda: DistVector.zeros(comm, cell.rows, dtype),
        "diags": lambda: ours.diags(comm, [1], ["nonsense" if wrong else 0], shape=(4, 4)),
    }[of]
    raises((TypeError, ValueError), make)


def mixes():
    """Every kind with two layouts, and every layout with four kinds, by kernels and methods."""
    for place, kinds in enumerate(KINDS):
        for turn in (0, 1):
            layout = LAYOUTS[(place + turn * (1 + place // 5)) % len(LAYOUTS)]
            kernel = KERNELS[(place + turn) % len(KERNELS)]
            method = METHODS[(place // 2 + turn) % len(METHODS)]
            yield f"{layout}/{kinds}/{kernel}/{method}"


@parameters(row=list(ROWS), mix=list(mixes()))
def case_sparse(comm, row, mix, seed):
    made = Cell(comm, *mix.split("/"), seed % 1000)
    ROWS[row](made)
    made.tidy()
