"""A rank's rows of a matrix, from which matrices are made for several methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpi4py import MPI
from scipy import sparse

from onesided.apps.cli.progress import on_rank_0, reading
from onesided.sparse import DistMatrix, Partition, read
from onesided.sparse.halo import Info

Maker = Callable[[str], DistMatrix]


def maker(make: Maker, info: Info) -> Maker:
    """Local. What makes one matrix for every method that it is called with, Collective.

    All multiply in the memory of the first one, so that methods differ by nothing else. Where the
    first one cannot be made its error is raised, and the next is the first.
    """
    first: list[DistMatrix] = []

    def of(method: str) -> DistMatrix:
        if first:
            return first[0].with_method(method, info=info)
        first.append(make(method))
        return first[0]

    return of


def maker_of_file(comm: MPI.Intracomm, path: str | Path, info: Info, partition: str) -> Maker:
    """Local. What reads the matrix of a file when it is called first, while rank 0 shows how far
    it is."""

    def make(method: str) -> DistMatrix:
        with reading(on_rank_0(comm), f"reading {Path(path).name}") as advance:
            return read(comm, path, method=method, info=info, partition=partition, progress=advance)

    return maker(make, info)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """``entries``: this rank's rows, CSR with global columns; who owns which rows and columns."""

    entries: sparse.csr_array
    rows: Partition
    columns: Partition

    @classmethod
    def even(cls, comm: MPI.Intracomm, entries: sparse.csr_array) -> RowBlock:
        """Local. Of a square matrix in even blocks."""
        partition = Partition.even(entries.shape[1], comm.size)
        return cls(entries, partition, partition)

    @property
    def shape(self) -> tuple[int, int]:
        """Local. Of the whole matrix."""
        return self.rows.size, self.columns.size

    def maker(self, comm: MPI.Intracomm, info: Info) -> Maker:
        """Local. What makes the matrix with a method, Collective; see :func:`maker`."""
        entries, rows, columns = self.entries, self.rows, self.columns
        return maker(
            lambda method: DistMatrix(comm, entries, rows, columns, method=method, info=info), info
        )
