"""Harwell-Boeing and Rutherford-Boeing files, dealt by rank 0 and parsed by all ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives import agreed
from onesided.sparse.errors import HarwellBoeingError
from onesided.sparse.files.compressed import check_indices, major_indices
from onesided.sparse.files.dealing import Advance, turns
from onesided.sparse.files.harwell import BoeingHeader, Section, parse_fields, read_boeing_header
from onesided.sparse.files.textfile import TextFile
from onesided.sparse.alike import vector_dtype
from onesided.sparse.partition import Partition, index_dtype
from onesided.sparse.triplets import Triplets, sent_to


def read_boeing(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    dtype: DTypeLike | None,
    block_bytes: int,
    progress: Advance = None,
) -> tuple[tuple[int, int], Triplets]:
    """Collective. The shape, and an even share of the entries on each rank.

    Symmetry is expanded. ``comm`` must be free of other messages.
    """
    file, header = _open(comm, path)
    try:
        head = header.matrix
        target = vector_dtype(head.dtype, dtype)
        source = _Source(comm, file, head.path, block_bytes, progress)
        columns = Partition.even(head.shape[1] + 1, comm.size)
        entries = Partition.even(head.entries, comm.size)
        start, stop = entries.range(comm.rank)
        pointers = source.fields(header.pointers, columns) - 1
        rows = source.fields(header.indices, entries) - 1
        check_indices(comm, head.path, "row", rows, head.shape[0], start)
        values = np.ones(stop - start)
        if header.values is not None:
            parts = header.values.fields // max(head.entries, 1)
            values = source.fields(header.values, Partition(parts * entries.starts))
            values = values.view(np.complex128) if parts > 1 else values
        cols = major_indices(comm, head.path, pointers, columns.range(comm.rank)[0], entries)
    finally:
        if file is not None:
            file.close()
    rows, cols, values = head.expand(rows, cols, values)
    index = index_dtype(max(head.shape))
    return head.shape, Triplets.joined([Triplets(rows, cols, values)], index, target)


def _open(
    comm: MPI.Intracomm, path: str | os.PathLike[str]
) -> tuple[TextFile | None, BoeingHeader]:
    """Open the file on rank 0; all ranks get the header, or raise what went wrong."""
    file: TextFile | None = None
    found: BoeingHeader | None = None
    with agreed(comm):
        if comm.rank == 0:
            file = TextFile(path, HarwellBoeingError)
            try:
                found = read_boeing_header(file)
            except Exception:
                file.close()
                raise
    header = comm.bcast(found)
    if header is None:
        raise HarwellBoeingError(f"{path}: rank 0 sent no header")
    return file, header


@dataclass(frozen=True)
class _Source:
    """The file, open on rank 0, section by section."""

    comm: MPI.Intracomm
    file: TextFile | None
    path: str
    block_bytes: int
    progress: Advance

    def fields(self, section: Section, partition: Partition) -> NDArray[Any]:
        """Collective. Read the next section; this rank's part of its numbers."""
        dtype = np.dtype(np.int64 if section.format.integer else np.float64)
        left = section.format.lines(section.fields)
        begin = 0 if self.file is None else self.file.line

        def next_block() -> tuple[int, bytes]:
            nonlocal left
            if self.file is None:
                return 0, b""
            line, text = self.file.block(self.block_bytes, left)
            left -= text.count(b"\n")
            return line, text

        def parse(text: bytes, line: int) -> NDArray[Any]:
            if not text:
                return np.zeros(0, dtype)
            first = (line - begin) * section.format.repeat
            return parse_fields(self.path, section, text, line, first)

        begin = self.comm.bcast(begin)
        numbers: list[NDArray[np.int64]] = []
        found: list[NDArray[Any]] = []
        tell = partial(self.file.tell, self.progress) if self.file else int
        for turn in turns(self.comm, next_block if self.file else None, parse, tell):
            if turn.parsed is not None and len(turn.parsed):
                first = (turn.line - begin) * section.format.repeat
                numbers.append(np.arange(first, first + len(turn.parsed)))
                found.append(turn.parsed)
        there = self.comm.allreduce(sum(map(len, found)))
        if there < section.fields:
            raise HarwellBoeingError(
                f"{self.path} is truncated: of {section.fields} fields of {section.name}s, from "
                f"line {begin} on, it holds {there}"
            )
        none: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        number = np.concatenate(numbers or none)
        value = np.concatenate(found or [np.zeros(0, dtype)])
        came = sent_to(self.comm, partition.owners(number), [number, value])
        start, stop = partition.range(self.comm.rank)
        placed = np.empty(stop - start, dtype)
        placed[came[0] - start] = came[1]
        return placed
