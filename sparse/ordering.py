"""Rows moved to the ranks that are to own them, under new indices, so that every rank's rows are
one block; and vectors between the two orders.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy import sparse

from onesided.collectives import RequestError, ResourceError, UnsupportedError, agreed
from onesided.sparse import stored
from onesided.sparse.halo import Halo, HaloPattern, Info
from onesided.sparse.moving import (
    Triplets,
    balanced,
    blocks_of,
    counterparts,
    gathered,
    moved,
    route,
    scattered,
    shared_dtype,
    shared_form,
)
from onesided.sparse.partition import Partition, check_columns, index_dtype
from onesided.sparse.vector import DistVector, checked_block

GRAPH_BYTES = 4 << 30  # that a gathered graph may take on one rank
_FEW_PARTS = 8  # up to here METIS is better at halving again and again (its manual, section 5)
_LARGEST = np.iinfo(np.int32).max
_SEED = 1

How = str | Partition | NDArray[np.integer[Any]]


class Ordering:
    """A permutation of the rows of a matrix, and how vectors get from one order to the other.

    The original order is the caller's: rank ``r`` has the block ``original.range(r)`` of it. In
    the matrix's order it has ``partition.range(r)``. ``numbers`` are the indices in the matrix's
    order of this rank's block of the original one.

    Blocks are of shape ``(n,)`` or ``(n, k)``. The first time that a dtype and a ``k`` are used a
    persistent request is planned, which :meth:`Free` frees. ``comm`` is borrowed and must outlive
    the ordering. ``matrices``: how many have it; the last one of them frees it.

    Examples
    --------
    >>> import scipy.sparse
    >>> rows = scipy.sparse.eye_array(2, 2 * comm.size, k=2 * comm.rank, format="csr")
    >>> mine, partition, ordering = partitioned(comm, rows, "rcm")
    >>> isinstance(ordering, Ordering)
    True
    """

    def __init__(
        self, comm: MPI.Intracomm, original: Partition, partition: Partition,
        numbers: NDArray[np.int64], *, method: str = "auto", info: Info = None,
    ) -> None:  # fmt: skip
        """Collective. Raises ``ValueError`` on every rank where numbers are no permutation."""
        self.comm, self.original, self.partition = comm, original, partition
        self.numbers = numbers
        self._how: dict[str, Any] = {"method": method, "info": info}
        self._freed, self.matrices = False, 0
        self._halos: dict[tuple[str, np.dtype[Any], int], Halo] = {}
        with agreed(comm, "Ordering"):
            original.check_parts(comm.size)
            partition.check_parts(comm.size)
            length = int(original.lengths()[comm.rank])
            if numbers.shape != (length,):
                raise ValueError(f"numbers of shape {numbers.shape} for {length} rows")
            if length and not (0 <= numbers.min() and numbers.max() < partition.size):
                words = f"numbers {numbers.min()} to {numbers.max()}"
                raise ValueError(f"{words} for {partition.size} rows")
        given: NDArray[Any] = np.argsort(numbers)
        ascending = numbers[given]
        sent = np.diff(np.searchsorted(ascending, partition.starts)).astype(np.int64)
        came = counterparts(comm, sent)
        kept = moved(comm, ascending, sent, came) - partition.range(comm.rank)[0]
        with agreed(comm):
            length = int(partition.lengths()[comm.rank])
            if not np.array_equal(np.sort(kept), np.arange(length)):
                raise ValueError(f"rank {comm.rank} gets rows that are not its {length} rows")
        # every entry is a ghost of the rank that it goes to, at the place where it belongs there
        self._patterns = {
            "forward": HaloPattern(len(given), kept, given, sent, came),
            "backward": HaloPattern(len(kept), given, kept, came, sent),
        }

    @property
    def original_range(self) -> tuple[int, int]:
        """Local. The half-open range of this rank's block in the original order."""
        return self.original.range(self.comm.rank)

    def forward(self, x: Any, out: Any = None) -> Any:
        """Collective. From this rank's block in the original order to that in the matrix's order.

        A DistVector gives one. ``out`` (of x's dtype, with the result's shape) is filled and
        returned if given. A rank without rows may pass an empty list; of different dtypes all
        get the common one. Raises on every rank: ``ValueError`` where a shape, ``out`` or k does
        not fit on one of them, ``RequestError`` after ``Free``.
        """
        return self._moved("forward", x, out)

    def backward(self, y: Any, out: Any = None) -> Any:
        """Collective. From this rank's block in the matrix's order to that in the original order.

        ``out`` and errors as in :meth:`forward`.
        """
        return self._moved("backward", y, out)

    def restored(self, rows: sparse.csr_array) -> sparse.csr_array:
        """Collective. This rank's rows in the original order, of rows in the matrix's; of a square
        matrix columns, too. ``RequestError`` after ``Free``."""
        numbers = self.forward(np.arange(*self.original_range))
        return _moved_rows(self.comm, rows, self.partition, self.original, numbers)

    def _moved(self, way: str, x: Any, out: Any) -> Any:
        wanted, (given, out) = out, (v.array if isinstance(v, DistVector) else v for v in (x, out))
        ends = self.original, self.partition
        source, target = ends if way == "forward" else ends[::-1]
        comm, error, block = self.comm, None, np.zeros(0)
        try:
            if self._freed:
                raise RequestError("the ordering has been freed")
            block = checked_block(source, comm.rank, given)
        except Exception as problem:
            error = problem
        checks = int(out is not None)
        kind, k, (checks,) = shared_form(comm, f"Ordering.{way}", block, error, checks)
        block = (block.reshape(len(block), k) if k else block).astype(kind, copy=False)
        with agreed(comm, f"Ordering.{way}") if checks else nullcontext():
            shape = (int(target.lengths()[comm.rank]), *block.shape[1:])
            if out is None:
                out = np.empty(shape, block.dtype)
            elif out.shape != shape or out.dtype != block.dtype or not out.flags.writeable:
                raise ValueError(f"out is not writeable, {shape}, {block.dtype}: {out.shape}")
        halo = self._halo(way, block)
        ghosts = halo.update(block.reshape(-1) if halo.k == 1 else block)
        out[halo.pattern.ghosts] = ghosts.reshape(out.shape)
        if wanted is not None:
            return wanted
        return x.like(out, target) if isinstance(x, DistVector) else out

    def _halo(self, way: str, x: NDArray[Any]) -> Halo:
        """Collective where it is the first of its kind. How such vectors move."""
        k = 1 if x.ndim == 1 else x.shape[1]
        key = way, x.dtype, k
        if key not in self._halos:
            self._halos[key] = Halo(self.comm, self._patterns[way], x.dtype, k, **self._how)
        return self._halos[key]

    def Free(self) -> None:
        """Collective. Free the requests; a second time has no effect."""
        for halo in self._halos.values():
            halo.Free()
        self._halos.clear()
        self._freed = True


def same_ordering(one: Ordering | None, other: Ordering | None) -> bool:
    """Local. Whether this rank's rows have the same numbers by both; None: their own ones."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one.original.starts, other.original.starts) and np.array_equal(
        one.numbers, other.numbers)


def partitioned(
    comm: MPI.Intracomm, rows: sparse.csr_array, how: How = "rows", *,
    method: str = "auto", info: Info = None, budget: int = GRAPH_BYTES,
) -> tuple[sparse.csr_array, Partition, Ordering | None]:  # fmt: skip
    """Collective. Move the rows of a matrix, of which every rank passes a consecutive block.

    ``rows`` is CSR with global columns; so is the result: this rank's block of rows, the
    partition of all rows, and their ordering, or None where each row keeps its index. ``how``:

    - ``"rows"``: in their order, balanced by nonzeros;
    - ``"metis"``: METIS's parts of the graph of A + A^T, balanced by nonzeros, few ghosts;
    - ``"rcm"``: in reverse Cuthill-McKee order, balanced by nonzeros;
    - a :class:`Partition`: in their order, in these blocks;
    - an integer array: the rank that is to own each row of this rank's block, or of all rows.

    Where the rows of a square matrix get other indices, its columns get the same ones; the
    columns of another matrix stay as they are. Duplicate entries that move are summed. METIS and
    Cuthill-McKee work on rank 0, in at most ``budget`` bytes for the graph. ``method`` and
    ``info`` are those of the ordering's requests.

    Raises the same error on every rank: ``UnsupportedError`` without pymetis, ``ResourceError``
    where the graph exceeds the budget, ``ValueError`` and ``TypeError`` for a ``how`` that does
    not fit, ``MismatchError`` where ranks pass different ones.

    Examples
    --------
    >>> import scipy.sparse
    >>> rows = scipy.sparse.csr_array(np.eye(2, 2 * comm.size, 2 * comm.rank))
    >>> mine, partition, ordering = partitioned(comm, rows, "rows")
    >>> partition.size == 2 * comm.size, ordering is None
    (True, True)
    """
    with agreed(comm, "partitioned"):
        if getattr(rows, "format", None) != "csr" or rows.ndim != 2:
            raise TypeError(f"rows in CSR expected, not {type(rows).__name__}")
        check_columns(rows.indices, rows.shape[1])
    given = blocks_of(comm, rows.shape)
    dtype = shared_dtype(comm, rows.dtype, bool(rows.nnz))
    with agreed(comm, _words(how)):
        _check(comm, given, how, rows.shape[1])
    partition: Partition
    numbers: NDArray[np.int64] | None = None
    if isinstance(how, Partition):
        partition = how
    elif isinstance(how, str):
        partition, numbers = _by_name(comm, rows, given, how, budget)
    else:
        start, stop = given.range(comm.rank)
        mine = how[start:stop] if len(how) != stop - start else np.asarray(how, np.intp)
        partition, numbers = _by_owners(comm, mine, given)
    if numbers is None and np.array_equal(partition.starts, given.starts):
        return rows, given, None
    rows = _moved_rows(comm, rows.astype(dtype, copy=False), given, partition, numbers)
    if numbers is None:
        return rows, partition, None
    ordering = Ordering(comm, given, partition, numbers, method=method, info=info)
    return rows, partition, ordering


def _moved_rows(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, partition: Partition,
    numbers: NDArray[np.int64] | None,
) -> sparse.csr_array:  # fmt: skip
    """Collective. Send every row to its owner, under its new index."""
    n_cols = rows.shape[1]
    index = index_dtype(max(given.size, n_cols))
    columns: NDArray[Any] = rows.indices
    if numbers is not None and given.size == n_cols:
        columns = _renumbered(comm, columns, given, numbers)
    row = np.arange(*given.range(comm.rank)) if numbers is None else numbers
    entries = Triplets(
        np.repeat(row.astype(index), np.diff(rows.indptr)),
        columns.astype(index, copy=False),
        rows.data,
    )
    return route(comm, [entries], partition).to_rows(*partition.range(comm.rank), n_cols)


def _renumbered(
    comm: MPI.Intracomm, columns: NDArray[Any], given: Partition, numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Collective. The new indices of these columns; those of ghosts are asked of their owners."""
    pattern, places = HaloPattern.of(comm, columns, given)
    answers = numbers[pattern.send_index]
    ghosts = moved(comm, answers, pattern.send_counts, pattern.recv_counts)
    new: NDArray[np.int64] = np.concatenate([numbers, ghosts])[places]
    return new


# -- new indices -----------------------------------------------------------------------------------


#: The blocks that rows are to be in, and the new index of each row that this rank has now; None (on
#: all ranks) where every row keeps its index.
Numbering = tuple[Partition, NDArray[np.int64] | None]


def _words(how: object) -> str:
    """What must be equal on all ranks."""
    words = repr(how) if isinstance(how, str | Partition) else "owners"
    return f"partitioned with {words}"


def _check(comm: MPI.Intracomm, given: Partition, how: How, n_cols: int) -> None:
    """Local. Raise what is wrong with ``how`` on this rank."""
    if isinstance(how, Partition):
        if how.parts != comm.size or how.size != given.size:
            raise ValueError(
                f"a partition of {how.size} rows in {how.parts} parts, for {given.size} rows "
                f"on {comm.size} ranks"
            )
    elif isinstance(how, str):
        if how not in ("rows", *ORDERS):
            raise ValueError(f"no partition {how!r}; there are rows, {', '.join(ORDERS)}")
        if how != "rows" and given.size != n_cols:
            raise ValueError(
                f"the partition {how} needs a square matrix, not {given.size} x {n_cols}"
            )
    else:
        mine = int(given.lengths()[comm.rank])
        if not mine and np.shape(how) == (0,):  # an empty list, say
            return
        if not isinstance(how, np.ndarray) or how.ndim != 1 or how.dtype.kind not in "iu":
            raise TypeError(
                "a partition is a name, a Partition, or an array of an owner for each row, not "
                f"{type(how).__name__}"
            )
        if len(how) not in (mine, given.size):
            raise ValueError(
                f"{len(how)} owners for the {mine} rows of rank {comm.rank}, {given.size} in all"
            )
        if len(how) and not (0 <= how.min() and how.max() < comm.size):
            raise ValueError(f"owners {how.min()} to {how.max()} on {comm.size} ranks")


def _by_name(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, how: str, budget: int
) -> Numbering:
    """Collective. The rows in their order, cut where the nonzeros are balanced; or the order, and
    the cuts, that rank 0 finds in the graph."""
    mine = np.diff(rows.indptr).astype(np.int64) + 1
    if how == "rows" or given.size == 0:
        return balanced(comm, mine) or given, None
    graph = gathered_graph(comm, rows, given, budget)
    weights = gathered(comm, mine)
    numbers, partition = None, given
    with agreed(comm):
        if graph is not None and weights is not None:
            order, partition = ORDERS[how](graph, weights, comm.size)
            numbers = np.empty(len(order), np.int64)
            numbers[order] = np.arange(len(order))
    partition = comm.bcast(partition)
    return _numbering(comm, partition, scattered(comm, numbers, given), given)


Order = tuple[NDArray[Any], Partition]


def _metis(graph: sparse.csr_array, weights: NDArray[np.int64], parts: int) -> Order:
    """Local. Parts of about equal nonzeros with few ghosts; in a part, rows in their order."""
    owners = metis_parts(graph, weights, parts)
    lengths = np.bincount(owners, minlength=parts)
    return np.argsort(owners, kind="stable"), Partition.from_lengths(lengths)


def _bandwidth(graph: sparse.csr_array, weights: NDArray[np.int64], parts: int) -> Order:
    """Local. The reverse Cuthill-McKee order, cut where the nonzeros are balanced."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to import

    order = reverse_cuthill_mckee(graph, symmetric_mode=True)
    return order, Partition.balanced(weights[order], parts)


ORDERS: dict[str, Callable[[sparse.csr_array, NDArray[np.int64], int], Order]] = {
    "metis": _metis,
    "rcm": _bandwidth,
}


def _by_owners(comm: MPI.Intracomm, owners: NDArray[Any], given: Partition) -> Numbering:
    """Collective. Every row to its owner, among the rows of an owner in their order."""
    owners = owners.astype(np.intp, copy=False)
    counts = np.bincount(owners, minlength=comm.size).astype(np.int64)
    lower, total = np.zeros_like(counts), np.zeros_like(counts)
    comm.Exscan(counts, lower, op=MPI.SUM)
    comm.Allreduce(counts, total, op=MPI.SUM)
    partition = Partition.from_lengths(total)
    order = np.argsort(owners, kind="stable")
    place = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = partition.starts[:-1] + (lower if comm.rank else 0)
    numbers = np.empty(len(owners), np.int64)
    numbers[order] = np.repeat(first, counts) + place
    return _numbering(comm, partition, numbers, given)


def _numbering(
    comm: MPI.Intracomm, partition: Partition, numbers: NDArray[np.int64], given: Partition
) -> Numbering:
    """Collective. Without numbers where no row gets another index."""
    same = bool(np.array_equal(numbers, np.arange(*given.range(comm.rank))))
    return partition, None if comm.allreduce(same, op=MPI.LAND) else numbers


# -- graphs ----------------------------------------------------------------------------------------


def gathered_graph(
    comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition, budget: int = GRAPH_BYTES
) -> sparse.csr_array | None:
    """Collective. The pattern of A + A^T without its diagonal, on rank 0; None elsewhere.

    ``rows`` are this rank's, ``given.range(comm.rank)`` of a square matrix, columns global. The
    sum is made where the rows are; rank 0 holds the result only, one bool and one index for each
    of its entries. Raises :class:`ResourceError` on every rank where that is more than
    ``budget`` bytes.
    """
    mine = _own_pattern(comm, rows, given)
    entries = int(comm.allreduce(mine.nnz))
    index = np.dtype(index_dtype(max(entries, given.size)))
    need = entries * (index.itemsize + 1) + (given.size + 1) * index.itemsize
    if need > budget:
        raise ResourceError(
            f"the graph of {given.size} rows and {entries} edges takes {need} bytes on one rank, "
            f"{budget} are allowed: partition by rows, or give an owner for each row"
        )
    return stored.gathered(comm, mine, 0)


def _own_pattern(comm: MPI.Intracomm, rows: sparse.csr_array, given: Partition) -> sparse.csr_array:
    """Collective. This rank's rows of the pattern of A + A^T, without the diagonal."""
    start, stop = given.range(comm.rank)
    index = index_dtype(given.size)
    row = np.repeat(np.arange(start, stop, dtype=index), np.diff(rows.indptr))
    col = rows.indices.astype(index)
    off = row != col
    here = Triplets(row[off], col[off], np.ones(int(off.sum()), np.bool_))
    there = route(comm, [Triplets(here.cols, here.rows, here.values)], given)
    both = [part.to_rows(start, stop, given.size) for part in (here, there)]
    return sparse.csr_array(both[0] + both[1])


def metis_parts(
    graph: sparse.csr_array, weights: NDArray[np.int64], parts: int
) -> NDArray[np.int32]:
    """Local. A part for each vertex: parts of about equal weight, few edges between them.

    ``graph`` is symmetric, without loops; its values are not looked at. The same graph gets the
    same parts. Raises :class:`UnsupportedError` without pymetis, and where METIS's 32-bit
    integers cannot count the graph's edges or its weight.
    """
    if find_spec("pymetis") is None:
        raise UnsupportedError("the METIS partition needs pymetis (the extra partition)")
    if max(graph.nnz, int(weights.sum())) > _LARGEST:
        raise UnsupportedError(
            f"METIS counts in 32 bits: {graph.nnz} edges, weight {int(weights.sum())}"
        )
    vertices = len(weights)
    if parts == 1 or vertices <= parts or graph.nnz == 0:
        blocks = Partition.balanced(weights, parts)
        return blocks.owners(np.arange(vertices)).astype(np.int32)
    import pymetis

    arrays = graph.indptr, graph.indices, weights
    starts, edges, vweights = (np.ascontiguousarray(each, np.int32) for each in arrays)
    adjacency = pymetis.CSRAdjacency(starts, edges)
    options = pymetis.Options(seed=_SEED)
    _, found = pymetis.part_graph(
        parts, adjacency, vweights=vweights, recursive=parts <= _FEW_PARTS, options=options
    )
    return np.asarray(found, np.int32)
