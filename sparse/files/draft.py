"""Files that all ranks write together. A file gets its name when it is whole; until then, or after
a failure, the old one stays."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable
from typing import Any, BinaryIO

from mpi4py import MPI

from onesided.collectives import agreed
from onesided.sparse.errors import naming


def write_together(
    comm: MPI.Intracomm, path: str, begin: Callable[[str], Any],
    fill: Callable[[BinaryIO, Any], object],
) -> None:  # fmt: skip
    """Collective. Rank 0 begins a file, every rank writes its part of it, rank 0 gives it its name.

    ``begin`` gets the name to write to until then; ``fill``, on every rank, the open file and what
    ``begin`` returned. Both are Local. A symbolic link is followed. Raises the same error on every
    rank: ``OSError`` where there is something under this name that is not a regular file.
    """
    draft = final = ""
    with agreed(comm, ("write", path)):
        if comm.rank == 0:
            final = os.path.realpath(path)
            if os.path.lexists(final):
                mode = os.stat(final).st_mode
                if stat.S_ISDIR(mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
                if not stat.S_ISREG(mode):
                    raise OSError(f"{path} is not a regular file; it is not replaced")
            draft = f"{final}.{uuid.uuid4().hex[:12]}.new"
    draft = comm.bcast(draft)
    try:
        begun = None
        with agreed(comm), naming(draft):
            if comm.rank == 0:
                begun = begin(draft)
        begun = comm.bcast(begun)
        with agreed(comm), naming(draft), open(draft, "r+b") as file:
            fill(file, begun)
            file.flush()
            os.fsync(file.fileno())
        with agreed(comm):
            if comm.rank == 0:
                os.replace(draft, final)
                with contextlib.suppress(OSError):  # it is there; not every folder can be synced
                    folder = os.open(os.path.dirname(final), os.O_RDONLY)
                    try:
                        os.fsync(folder)
                    finally:
                        os.close(folder)
    except Exception:  # agreed: no rank writes any more
        if comm.rank == 0:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        raise
