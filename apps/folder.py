"""A folder that all ranks of a node use for a while."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpi4py import MPI

from onesided.collectives import agreed


@contextmanager
def shared_folder(comm: MPI.Intracomm) -> Iterator[Path]:
    """Collective. A new folder, which rank 0 makes, and removes when all ranks leave the block.

    After an exception nothing collective is called. ``OSError`` on every rank where it cannot be
    made.
    """
    name = ""
    with agreed(comm):
        if comm.rank == 0:
            name = tempfile.mkdtemp(prefix="onesided-")
    name = comm.bcast(name)
    try:
        yield Path(name)
        comm.Barrier()
    finally:
        if comm.rank == 0:
            shutil.rmtree(name, ignore_errors=True)
