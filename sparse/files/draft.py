"""A file gets its name when it is whole; until then, or after a failure, the old one stays."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator

from mpi4py import MPI

from onesided.collectives import agreed


@contextlib.contextmanager
def drafted(comm: MPI.Intracomm, path: str | os.PathLike[str]) -> Iterator[str]:
    """Collective. The name to write to; at the end rank 0 puts it on the disk, under ``path``.

    The block must agree on its errors. A symbolic link is followed. Raises on every rank
    ``OSError`` where there is something under this name that is not a regular file.
    """
    final = os.path.realpath(path)
    with agreed(comm, ("write", os.fspath(path))):
        if comm.rank == 0 and os.path.lexists(final):
            mode = os.stat(final).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
            if not stat.S_ISREG(mode):
                raise OSError(f"{os.fspath(path)} is not a regular file; it is not replaced")
    draft: str = comm.bcast(f"{final}.{uuid.uuid4().hex[:12]}.new")
    try:
        yield draft
        with agreed(comm):
            if comm.rank == 0:
                os.replace(draft, final)
                _to_disk(os.path.dirname(final))
    except Exception:  # agreed: no rank writes any more
        if comm.rank == 0:
            with contextlib.suppress(OSError):
                os.unlink(draft)
        raise


def _to_disk(folder: str) -> None:
    """Local. Make a renamed file last."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
