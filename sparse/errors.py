"""What can be wrong with a matrix file, and with a call that reads or writes one."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI

from onesided.collectives import OnesidedError


class MatrixFileError(OnesidedError, ValueError):
    """A file that holds no valid matrix, or not the whole of it; names the file.

    Examples
    --------
    >>> issubclass(MatrixFileError, ValueError)
    True
    """


class MatrixMarketError(MatrixFileError):
    """A file that is not, or not whole, or not valid Matrix Market; names the file and line.

    Examples
    --------
    >>> issubclass(MatrixMarketError, ValueError)
    True
    """


class HarwellBoeingError(MatrixFileError):
    """A Harwell-Boeing or Rutherford-Boeing file that is not valid; names the file and line.

    Examples
    --------
    >>> issubclass(HarwellBoeingError, ValueError)
    True
    """


def check_comm(who: str, comm: object) -> None:
    """Local. ``TypeError`` where the arguments of a call are the wrong way round."""
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"{who} takes a communicator, and then the path, not {comm!r:.60}")


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Local. What a library says of a damaged file becomes a :class:`MatrixFileError`.

    Errors of the system with a number (no such file, no permission, disk full) stay what they
    are; but a place in the file that is not there is the file's own fault.
    """
    try:
        yield
    except (OnesidedError, MemoryError, ImportError):
        raise
    except Exception as error:
        words = str(error.args[0] if error.args else "") or type(error).__name__
        # HDF5 has the system's number in its words only
        told = re.search(r"errno = (\d{1,4})\b", words)
        number = (isinstance(error, OSError) and error.errno) or (int(told[1]) if told else 0)
        if number not in (0, errno.EINVAL):
            raise OSError(number, os.strerror(number), path) from error
        raise MatrixFileError(f"{path}: {words}") from error
