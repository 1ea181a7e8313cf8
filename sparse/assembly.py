"""Distributed matrices of entries that lie on any rank, of rows, or of a matrix of one rank."""

from __future__ import annotations

import operator
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from onesided.collectives import agreed
from onesided.collectives.memory import give_back
from onesided.sparse.alike import places, plain, spelled, values_dtype, vector_dtype
from onesided.sparse.halo import Info
from onesided.sparse.matrix import DistMatrix
from onesided.sparse.moving import Route, Triplets, balanced_rows, blocks_of, route, scattered
from onesided.sparse.moving import lengths as share_of
from onesided.sparse.ordering import How, partitioned
from onesided.sparse.partition import Partition, index_dtype, ranked
from onesided.sparse.stored import summed

_BYTES_PER_ROW = 40  # counters, row pointers and vectors that a rank needs for each of its rows


@dataclass(frozen=True)
class Choices:
    """What the caller wants of a matrix, besides its entries; see :func:`~onesided.sparse.read`."""

    method: str = "auto"
    info: Info = None
    dtype: DTypeLike | None = None
    partition: How = "rows"
    columns: Partition | None = None
    kernel: str = "auto"


def from_triplets(
    comm: MPI.Intracomm, rows: ArrayLike, cols: ArrayLike, values: ArrayLike,
    shape: tuple[int, int], *, method: str = "auto", info: Info = None,
    dtype: DTypeLike | None = None, partition: How = "rows", kernel: str = "auto",
) -> DistMatrix:  # fmt: skip
    """Collective. The matrix of the entries that the ranks pass, each rank any of them, or none.

    ``rows`` and ``cols`` are global indices from 0, one for each of the ``values``. Entries with
    the same indices are summed, on one rank or on several, as SciPy's ``coo_array`` does.
    ``shape`` is the same on all ranks. Values of different dtypes become their common one; the
    other arguments are those of :func:`~onesided.sparse.read`.

    Raises the same error on every rank: ``ValueError`` where lengths differ or an index is out
    of range, ``TypeError`` where indices are no integers or a dtype cannot hold the values,
    ``MismatchError`` where ranks pass different shapes.

    Examples
    --------
    >>> rows = cols = np.arange(comm.rank, 6, comm.size)  # any entries on any rank
    >>> with from_triplets(comm, rows, cols, np.ones(len(rows)), (6, 6)) as A:
    ...     A.nnz
    6
    """
    with agreed(comm, f"from_triplets with dtype={spelled(dtype)}"):
        shape = operator.index(shape[0]), operator.index(shape[1])
        given = np.asarray(values)
        row, col = places(rows, cols, given.size if given.ndim == 1 else -1, shape)
    kind = values_dtype(comm, given, dtype)
    typed = [Triplets(row, col, given.astype(kind, copy=False))]
    choices = Choices(method, info, dtype, partition, None, kernel)
    return from_any_rank(comm, shape, typed, choices)


class Assembler:
    """Local matrices of elements, on any ranks, added up in a matrix; again and again.

    Places are given once: with the first values that are added, or at creation. Who sends what to
    whom, and where it is added, is kept, as are the matrix's halo, partitions and kernels.
    ``matrix`` is the matrix, as soon as there are places; it is the caller's to free::

        assembler = sparse.Assembler(comm, shape=(n, n))
        for nodes, stiffness in elements:                      # any of them on any rank
            assembler.add(nodes[:, None], nodes[None, :], stiffness)
        A = assembler.assemble()

    Examples
    --------
    >>> nodes = np.array([[0, 1]] if comm.rank == 0 else []).reshape(-1, 2)  # an element
    >>> assembler = Assembler(comm, shape=(2, 2))
    >>> for each in nodes.astype(int):
    ...     assembler.add(each[:, None], each[None, :], [[1.0, -1], [-1, 1]])
    >>> with assembler.assemble() as A:
    ...     A.nnz
    4
    """

    matrix: DistMatrix

    def __init__(
        self, comm: MPI.Intracomm, rows: ArrayLike | None = None, cols: ArrayLike | None = None,
        shape: tuple[int, int] | None = None, *, method: str = "auto", info: Info = None,
        dtype: DTypeLike = np.float64, kernel: str = "auto",
    ) -> None:  # fmt: skip
        """Collective. ``rows`` and ``cols`` are numbers from 0, broadcast against each other.

        For elements with ``nodes`` (elements, n): ``nodes[:, :, None]`` and ``nodes[:, None, :]``;
        without them :meth:`add` says the places. They may be given several times, on one rank or
        on several. Errors, and the other arguments, as of :func:`from_triplets`; ``TypeError``
        without a shape.
        """
        with agreed(comm, ("Assembler", plain(shape), spelled(dtype), rows is None)):
            if shape is None:
                raise TypeError("an Assembler needs the shape of the matrix")
            self._size = operator.index(shape[0]), operator.index(shape[1])
            vector_dtype(np.dtype(dtype), dtype)
        self.comm, self._choices = comm, Choices(method, info, dtype, "rows", None, kernel)
        self._added: list[tuple[NDArray[Any], ...]] = []
        self._places: tuple[NDArray[Any], NDArray[Any]] | None = None
        if rows is not None:
            self._plan(rows, cols)

    def add(self, rows: ArrayLike, cols: ArrayLike, values: ArrayLike) -> None:
        """Local. Values to be added at places, until :meth:`assemble`; as often as one likes.

        All three are broadcast against each other, and copied; ``ValueError`` where they cannot be.
        """
        given = np.broadcast_arrays(rows, cols, values)
        if not given[0].size:  # an empty list has no integers
            return
        self._added.append(tuple(np.array(part).reshape(-1) for part in given))

    def assemble(self, values: ArrayLike | None = None) -> DistMatrix:
        """Collective. The matrix with these values, one for each place, summed; also returned.

        Without values it is made of what has been added since the last time: the first time that
        says the places, later it is added at the same places in the same order. Raises the same
        error on every rank: ``ValueError`` for another shape than that of the places, or other
        places, ``TypeError`` where values are complex and the matrix real.
        """
        if values is None:
            values = self._take()
        with agreed(self.comm, "assemble"):
            if not hasattr(self, "matrix"):
                raise ValueError("the Assembler has no places yet: add values")
            array = np.asarray(values)
            if array.shape != self._shape:
                raise ValueError(f"values of shape {array.shape} for places of shape {self._shape}")
            if not np.can_cast(array.dtype, self.matrix.dtype, casting="same_kind"):
                raise TypeError(f"values are {array.dtype}, the matrix {self.matrix.dtype}")
            array = array.reshape(-1).astype(self.matrix.dtype)
        came = self._route.send(array)
        count = len(self.matrix.values)
        sums = summed(came, self._at, count)
        self.matrix.set_values(sums.astype(self.matrix.dtype))
        return self.matrix

    def _take(self) -> NDArray[Any]:
        """Collective. The values that have been added; the first ones say the places."""
        with agreed(self.comm, "assemble what was added"):
            if hasattr(self, "matrix") and self._places is None:
                raise ValueError("the places were given when the Assembler was made: pass values")
            nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
            added, self._added = self._added or [nothing], []
            row, col, values = (np.concatenate(each) for each in zip(*added, strict=True))
            known = self._places
            if known is not None and not all(map(np.array_equal, known, (row, col))):
                raise ValueError("values were added at other places, or in another order")
        if known is None:
            self._plan(row, col)
            self._places = row, col
        return values

    def _plan(self, rows: ArrayLike | None, cols: ArrayLike | None) -> None:
        """Collective. The routes of these places, and the matrix, of zeros."""
        comm, shape = self.comm, self._size
        with agreed(comm):
            both = np.broadcast_arrays(*(np.asarray(each) for each in (rows, cols)))
            self._shape = both[0].shape
            mine = places(both[0].reshape(-1), both[1].reshape(-1), both[0].size, shape)
        check_room(comm, shape)
        partition = balanced_rows(comm, mine[0], shape[0])
        self._route = Route(comm, partition.owners(mine[0]))
        row, col = (self._route.send(part) for part in mine)
        start, stop = partition.range(comm.rank)
        columns, place = ranked(col)
        width = max(len(columns), 1)  # times rows: a number of 64 bits, unlike that of all columns
        numbers = place.astype(np.int64) + (row.astype(np.int64) - start) * width
        found, self._at = np.unique(numbers, return_inverse=True)
        counts = np.bincount(found // width, minlength=stop - start)
        kind = index_dtype(max(shape[1], len(found)))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(kind)
        target = np.dtype(self._choices.dtype)
        parts = np.zeros(len(found), target), columns[found % width].astype(kind), indptr
        local = sparse.csr_array(parts, shape=(stop - start, shape[1]))
        self.matrix = from_blocks(comm, local, partition, self._choices)


def from_any_rank(
    comm: MPI.Intracomm, shape: tuple[int, int], entries: list[Triplets], choices: Choices
) -> DistMatrix:
    """Collective. The matrix of all ranks' entries, whose indices and dtype have been checked.

    ``entries`` has one member, and is emptied: their memory is free when the matrix is made.
    """
    check_room(comm, shape)
    rows = balanced_rows(comm, entries[0].rows, shape[0])
    routed = route(comm, entries, rows)
    give_back(routed.values.nbytes)
    mine = routed.to_rows(*rows.range(comm.rank), shape[1])
    del routed
    give_back(mine.data.nbytes)
    return from_blocks(comm, mine, rows, choices)


def from_blocks(
    comm: MPI.Intracomm, rows: sparse.csr_array, partition: Partition, choices: Choices
) -> DistMatrix:
    """Collective. The matrix of consecutive blocks of rows, moved as the caller wants them."""
    how, method, info = choices.partition, choices.method, choices.info
    ordering = None
    if not (isinstance(how, str) and how == "rows"):
        rows, partition, ordering = partitioned(comm, rows, how, method=method, info=info)
    n_cols, columns = rows.shape[1], choices.columns
    if columns is None:
        columns = partition if partition.size == n_cols else Partition.even(n_cols, comm.size)
    made = DistMatrix(
        comm, rows, partition, columns, method=method, info=info, dtype=choices.dtype,
        kernel=choices.kernel,
    )  # fmt: skip
    made.keep_ordering(ordering)
    return made


def check_room(comm: MPI.Intracomm, shape: tuple[int, int]) -> None:
    """Collective. Raise ``MemoryError`` where a rank cannot hold its part of so many rows.

    A few bytes of a header can announce more rows than there is memory for their counters, with
    hardly an entry.
    """
    share = -(-max(shape) // comm.size)
    with agreed(comm, f"a matrix of {shape[0]} rows and {shape[1]} columns"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if share * _BYTES_PER_ROW > memory:
            raise MemoryError(
                f"a matrix of {shape[0]} rows and {shape[1]} columns needs at least "
                f"{share * _BYTES_PER_ROW >> 20} MiB on each of {comm.size} ranks, "
                f"a node here has {memory >> 20} MiB"
            )


def from_scipy(
    comm: MPI.Intracomm, matrix: Any | None, *, root: int = 0, method: str = "auto",
    info: Info = None, dtype: DTypeLike | None = None, partition: How = "rows",
    columns: Partition | None = None, kernel: str = "auto",
) -> DistMatrix:  # fmt: skip
    """Collective. Distribute a SciPy matrix or sparse array of any format that ``root`` holds.

    What other ranks pass is not looked at; pass None. ``partition`` says who owns which rows, see
    :func:`~onesided.sparse.partitioned`; "rows": in contiguous blocks balanced by nonzeros.
    ``columns`` says who owns which entries of x: as the rows in a square matrix, even blocks in
    another one, unless it is given. ``kernel`` says how to multiply, see
    :class:`DistMatrix`.

    Raises the same error on every rank: ``TypeError`` where root's matrix is none, or the dtype
    cannot hold its values; ``ValueError`` where it is not two-dimensional; ``MismatchError`` where
    ranks pass different roots or dtypes.

    Examples
    --------
    >>> import scipy.sparse
    >>> with from_scipy(comm, scipy.sparse.eye_array(4) if comm.rank == 0 else None) as A:
    ...     A.nnz
    4
    """
    csr = sparse.csr_array((0, 0))
    with agreed(comm, f"from_scipy with root={root}, dtype={spelled(dtype)}"):
        if not 0 <= root < comm.size:
            raise ValueError(f"root {root} on {comm.size} ranks")
        if comm.rank == root:
            csr = _as_csr(matrix, False)
    shape, index = comm.bcast((csr.shape, csr.indices.dtype), root=root)
    lengths = np.diff(csr.indptr).astype(index)
    rows = comm.bcast(Partition.balanced(lengths + 1, comm.size), root=root)
    mine = scattered(comm, lengths, rows, root)
    entries = share_of(comm, int(mine.sum(dtype=np.int64)))
    indices = scattered(comm, csr.indices.astype(index, copy=False), entries, root)
    data = scattered(comm, csr.data, entries, root)
    indptr = np.concatenate([np.zeros(1, index), np.cumsum(mine, dtype=index)])
    local = sparse.csr_array((data, indices, indptr), shape=(len(mine), shape[1]))
    choices = Choices(method, info, dtype, partition, columns, kernel)
    return from_blocks(comm, local, rows, choices)


def from_rows(
    comm: MPI.Intracomm, rows: Any, *, method: str = "auto", info: Info = None,
    dtype: DTypeLike | None = None, partition: How = "rows", columns: Partition | None = None,
    kernel: str = "auto", copy: bool = True,
) -> DistMatrix:  # fmt: skip
    """Collective. The matrix whose consecutive blocks of rows the ranks pass, columns global.

    ``rows`` is a SciPy matrix or sparse array; all have the same number of columns. The row
    partition is what was passed ("rows"), unless ``partition`` moves them, see
    :func:`~onesided.sparse.partitioned`; ``columns`` as in :func:`from_scipy`. The caller may
    change what was passed, unless ``copy`` is False: then the matrix may use its memory.

    Raises the same error on every rank: ``TypeError`` where rows are none or the dtype cannot hold
    their values, ``ValueError`` where the columns differ.

    Examples
    --------
    >>> import scipy.sparse
    >>> mine = scipy.sparse.eye_array(2, 2 * comm.size, k=2 * comm.rank, format="csr")
    >>> with from_rows(comm, mine) as A:
    ...     A.shape == (2 * comm.size, 2 * comm.size)
    True
    """
    csr = sparse.csr_array((0, 0))
    with agreed(comm):
        csr = _as_csr(rows, copy)
    choices = Choices(method, info, dtype, partition, columns, kernel)
    return from_blocks(comm, csr, blocks_of(comm, csr.shape), choices)


def _as_csr(matrix: Any, copy: bool) -> sparse.csr_array:
    """Local. The matrix as CSR; unless copied it shares the memory of one that is CSR already."""
    if not sparse.issparse(matrix):
        raise TypeError(f"a SciPy sparse matrix or array expected, not {type(matrix).__name__}")
    whole: Any = matrix
    if whole.ndim != 2:
        raise ValueError(f"two dimensions expected, not shape {whole.shape}")
    return sparse.csr_array(whole, copy=copy)
