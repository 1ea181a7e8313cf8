"""Matrix Market files, read by all ranks together.

Who parses what: of a plain file that all ranks see, each rank reads and parses the lines that
begin in its own share of the bytes. A gzip'd file, or one that only rank 0 sees, rank 0 reads, and
deals blocks of whole lines to the ranks in turn, itself among the parsers, while a thread of it
reads the next one. No rank ever holds more than its share of the text's entries and one block of
text, rank 0 two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from onesided.collectives import agree, agreed
from onesided.collectives.agreement import largest
from onesided.collectives.context import Context
from onesided.sparse.alike import vector_dtype
from onesided.sparse.errors import MatrixMarketError
from onesided.sparse.files.entries import Entries, most_entries, parse_block
from onesided.sparse.files.matrixmarket import Header, read_header
from onesided.sparse.files.textfile import BLOCK_BYTES, Advance, TextFile, line_blocks
from onesided.sparse.moving import Triplets, before
from onesided.sparse.partition import Partition, index_dtype

_CACHED_BYTES = 1 << 19  # of text that is still in the cache when it is parsed


def read_triplets(
    comm: MPI.Intracomm, path: str | os.PathLike[str], dtype: DTypeLike | None, block_bytes: int,
    progress: Advance = None,
) -> tuple[tuple[int, int], Triplets]:  # fmt: skip
    """Collective. The shape, and on each rank the entries of the lines that it parsed.

    Symmetry is expanded.
    """
    file: TextFile | None = None
    found: tuple[Header, tuple[int, int, int] | None] | None = None
    with ExitStack() as stack:
        with agreed(comm):
            if comm.rank == 0:
                file = stack.enter_context(closing(TextFile(path)))
                header = read_header(file)
                found = header, None if file.packed else (file.offset, *_stamp(path))
        header, plain = comm.bcast(found)
        with agreed(comm):
            target = vector_dtype(header.dtype, dtype)
        if plain is not None and _all_see(comm, path, plain[1:]):
            pieces = [_read_own_lines(comm, path, header, plain[:2], block_bytes, progress)]
        else:
            pieces = _read_dealt_lines(comm, file, header, block_bytes, progress)
    return header.shape, Triplets.joined(pieces, index_dtype(max(header.shape)), target)


def _stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Local. By what a plain file is known again: its size, and when it was changed."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _all_see(comm: MPI.Intracomm, path: str | os.PathLike[str], stamp: tuple[int, int]) -> bool:
    """Collective. Whether every rank finds the same plain file under this name."""
    try:
        same = _stamp(path) == stamp and os.access(path, os.R_OK)
    except OSError:
        same = False
    return bool(comm.allreduce(same, op=MPI.LAND))


def _expanded(header: Header, first: int, found: Triplets) -> Triplets:
    """Local. With what the symmetry implies; the first entry has this number in the file."""
    rows, cols = found.rows, found.cols
    if header.is_array:
        rows, cols = header.positions(first, len(found.values))
    return Triplets(*header.expand(rows, cols, found.values))


# -- dealt by rank 0 ------------------------------------------------------------------------------


def _read_dealt_lines(
    comm: MPI.Intracomm, file: TextFile | None, header: Header, block_bytes: int, progress: Advance
) -> list[Triplets]:
    """Collective. Parse the blocks of lines that rank 0 deals, until it deals an empty one.

    What reading or parsing raises is raised on all ranks: in a turn that of the lowest rank, which
    has the first lines.
    """
    pieces: list[Triplets] = []
    total, context = 0, Context.of(comm)
    tag = context.next_tag()
    with ThreadPoolExecutor(1) as reader:
        blocks = _read_ahead(reader, file, block_bytes, progress) if file else None
        while True:
            line, text, failure = _dealt(context.comm, tag, blocks)
            block: Triplets | None = None
            if failure is None:
                try:
                    block = parse_block(header, text, line)
                except Exception as error:
                    failure = error
            ended = largest(comm, failure, None, [int(not text)])[0]
            lower, count = before(comm, 0 if block is None else len(block.values))
            first, total = total + lower, total + count
            if block is not None and total <= header.entries:
                pieces.append(_expanded(header, first, block))
            if ended or total > header.entries:
                break
    header.check_whole(total)
    return pieces


def _read_ahead(
    reader: ThreadPoolExecutor, file: TextFile, block_bytes: int, progress: Advance
) -> Iterator[tuple[int, bytes]]:
    """Local. The blocks, of which a thread reads the next one before it is asked for; empty ones
    in the end."""
    coming = reader.submit(file.block, block_bytes)
    while True:
        file.tell(progress)
        line, text = coming.result()
        if text:
            coming = reader.submit(file.block, block_bytes)
        yield line, text


def _dealt(
    comm: MPI.Intracomm, tag: int, blocks: Iterator[tuple[int, bytes]] | None
) -> tuple[int, bytes, Exception | None]:
    """Rank 0 keeps the next block and sends those after it to ranks 1, 2, ..., empty ones once
    reading fails; the others receive theirs."""
    if blocks is None:
        head = np.empty(2, np.int64)
        comm.Recv(head, 0, tag)
        block: Any = bytearray(int(head[1]))
        comm.Recv([block, MPI.BYTE], 0, tag)
        return int(head[0]), block, None
    failure: Exception | None = None
    mine: tuple[int, bytes] = 0, b""
    for rank in range(comm.size):
        line, text = 0, b""
        if failure is None:
            try:
                line, text = next(blocks)
            except Exception as error:
                failure = error
        if rank == 0:
            mine = line, text
        else:
            comm.Send(np.array([line, len(text)], np.int64), rank, tag)
            comm.Send([text, MPI.BYTE], rank, tag)
    return *mine, failure


# -- read by each rank ----------------------------------------------------------------------------


def _read_own_lines(
    comm: MPI.Intracomm, path: str | os.PathLike[str], header: Header, body: tuple[int, int],
    block_bytes: int, progress: Advance,
) -> Triplets:  # fmt: skip
    """Collective. Parse the lines that begin in this rank's share of the bytes ``body``.

    Nobody waits for anybody until all have parsed theirs; only then the line of a fault is
    counted, if there is one.
    """
    begin, end = body
    start, stop = Partition.even(end - begin, comm.size).range(comm.rank)
    size = min(block_bytes, _CACHED_BYTES)
    entries = Entries(header, 0)
    failure: Exception | None = None
    try:
        even = header.entries * (stop - start) / max(end - begin, 1)
        room = int(1.05 * even) + most_entries(header, min(size, stop - start))
        entries = Entries(header, min(room, most_entries(header, stop - start)))
        with open(path, "rb") as file:
            for at, text in line_blocks(file, begin + start, begin + stop, size):
                try:
                    entries.add(text, 1)
                except MatrixMarketError as error:
                    raise _located(path, header, at, text) or error from None
                if progress is not None and comm.rank == 0:
                    done = begin + (at + len(text) - begin) * comm.size
                    progress(min(done, end), end)
                if len(entries) > header.entries:
                    break
    except Exception as error:
        failure = error
    agree(comm, failure)
    first, total = before(comm, len(entries))
    header.check_whole(total)
    return _expanded(header, first, entries.triplets())


def _located(
    path: str | os.PathLike[str], header: Header, at: int, text: bytes
) -> Exception | None:
    """Local. What is wrong with a text that begins at this byte of the file, by its line there."""
    line = 1
    try:
        with open(path, "rb") as file:
            for start in range(0, at, BLOCK_BYTES):
                line += file.read(min(BLOCK_BYTES, at - start)).count(b"\n")
        parse_block(header, text, line)
    except Exception as error:
        return error
    return None
