"""What the kinds of files have in common: modes, the communicator, a look around, and errors."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from math import prod
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed
from onesided.collectives.context import Context
from onesided.collectives.errors import OnesidedError, PatternError
from onesided.pencilfft.io.selection import Box

MODES = ("r", "r+", "a", "w")
CALL_BYTES = 1 << 30  # that one call of the system, or of MPI, moves at most


class FileError(OnesidedError, OSError):
    """A file that is missing, cut short, not ours, or cannot be read or written; names it."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Local. What HDF5 or the system say about ``path`` becomes a :class:`FileError`.

    h5py tells a file that is cut short by OSError, RuntimeError, KeyError or ValueError, depending
    on what is missing.
    """
    try:
        yield
    except OnesidedError:
        raise
    except OSError as error:
        raise FileError(f"{error.filename or path}: {error.strerror or error}") from error
    except (EOFError, KeyError, RuntimeError, ValueError) as error:
        words = error.args[0] if error.args else type(error).__name__
        raise FileError(f"{path}: {words}") from error


def check_array(place: str, shape: tuple[int, ...], dtype: Any, array: Any) -> None:
    """Local. PatternError where an array cannot take what ``place`` has of this shape and dtype."""
    wanted = tuple(array.global_shape)
    if shape != wanted:
        raise PatternError(f"{place} has shape {shape}, the array {wanted}")
    casting: Any = "same_kind" if array.dtype.kind in "fc" else "safe"  # integers would wrap
    if not np.can_cast(dtype, array.dtype, casting):
        raise PatternError(f"{place} holds {dtype}, which an array of {array.dtype} cannot take")


class FileBase(ABC):
    """Local. A name for files of distributed arrays; nothing is opened until a read or write.

    ``mode`` is "r" to read only, "a" (or "r+", if the file must be there) to add steps, "w" to
    begin anew. ``comm`` is the communicator of those who read and write, by default that of the
    arrays, MPI.COMM_WORLD where every rank has these whole, as one-dimensional ones. Arrays of
    MPI.COMM_SELF, which all of them have, are written once.

    Examples
    --------
    >>> issubclass(HDF5File, FileBase)
    True
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        domain: Sequence[Any] | None = None,
        mode: str = "a",
        comm: MPI.Comm | None = None,
    ) -> None:
        if mode not in MODES:
            raise PatternError(f"mode is {mode!r}, not one of {MODES}")
        self.filename, self.domain, self.f = os.fspath(filename), domain, None
        self._mode, self._comm = mode, comm

    def open(self, mode: str = "r") -> None:
        """Local. Open the file to look around in ``f``; to read only."""
        if mode != "r":
            raise PatternError(f"mode is {mode!r}, but a file is opened to be read only")
        self.close()
        self.f = self._opened()

    def close(self) -> None:
        """Local. Close what :meth:`open` opened; reads and writes leave nothing open."""
        if self.f is not None:
            self.f.close()
            self.f = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self.close()
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Local. Close what is open, as after an error."""
        FileBase.close(self)

    @abstractmethod
    def _opened(self) -> Any:
        """The file, to be read."""

    def _require_writable(self) -> None:
        if self._mode == "r":
            raise PatternError(f"{self.filename} was opened with mode='r', to read only")

    def _writers(self, fields: Any) -> tuple[MPI.Comm, dict[Any, list[Any]]]:
        """Collective where ``comm`` was given. Who writes, and a list of what for each name."""
        with nullcontext() if self._comm is None else agreed(self._comm):
            lists = _listed(fields)
        entries = chain.from_iterable(lists.values())
        return self._communicator(map(_array_of, entries)), lists

    def _communicator(self, arrays: Iterable[Any]) -> MPI.Comm:
        """Local. The communicator given, or that of the arrays, those aside that all ranks have."""
        if self._comm is not None:
            return self._comm
        given = list(arrays)
        found = [comm for comm in map(_comm_of, given) if comm is not None]
        if not found:
            raise PatternError("the arrays have no communicator: give comm=")
        if all(getattr(array, "_p0", array) is None for array in given):  # no block of a pencil
            return MPI.COMM_WORLD
        return next((comm for comm in found if comm != MPI.COMM_SELF), found[0])


def _comm_of(array: Any) -> MPI.Comm | None:
    """The communicator of an array, if it has one."""
    try:
        return getattr(array, "comm", None)
    except PatternError:
        return None


def is_everyones(array: Any, comm: MPI.Comm) -> bool:
    """Local. Whether each rank of several has an array for itself; PatternError where it lives on
    other ranks."""
    own = _comm_of(array)
    if own is None or own is comm:
        return False
    if own != MPI.COMM_SELF and MPI.Comm.Compare(comm, own) == MPI.UNEQUAL:
        raise PatternError("the arrays of one call live on different communicators")
    return own == MPI.COMM_SELF and comm.size > 1


def _listed(fields: Any) -> dict[Any, list[Any]]:
    """Local. Of the argument of a write a list for each name, as an iterator gives its arrays once;
    what is none of arrays is refused where all ranks learn of it."""
    if not isinstance(fields, Mapping) or not fields:
        raise PatternError(f"fields is {fields!r}, not a dict of names and lists of arrays")
    lists = {}
    for name, entries in fields.items():
        several = np.iterable(entries) and not isinstance(entries, np.ndarray)
        lists[name] = list(entries) if several else [entries]
    return lists


def _array_of(entry: Any) -> Any:
    """Local. The array of an entry of such a list, without its slice."""
    return entry[0] if isinstance(entry, list | tuple) and entry else entry


def at_root(comm: MPI.Comm, call: Callable[[], Any]) -> Any:
    """Collective. Rank 0 makes the call; all have its result, or its exception."""
    result, error = None, None
    if comm.rank == 0:
        try:
            result = call()
        except Exception as found:
            error = found
    agree(comm, error)
    return comm.bcast(result)


def gathered(
    comm: MPI.Comm, box: Box | None, data: Any, dtype: np.dtype[Any], root: int = 0
) -> Iterator[tuple[Box, NDArray[Any]]]:
    """Collective. On ``root`` the box and the data of each rank that has one, in memory that the
    next ones may take; nothing on the other ranks."""
    link = Context.of(comm).comm  # where no message of the caller is
    boxes, room = comm.gather(box, root), np.empty(0, dtype)
    with agreed(comm):
        if boxes is not None:
            counts = [_count(place) for rank, place in enumerate(boxes) if rank != root]
            room = np.empty(max(counts, default=0), dtype)
        elif box is not None:
            room = np.ascontiguousarray(data, dtype).reshape(-1)  # a scalar is in native order
    if boxes is None:
        for part in _parts(room):
            link.Send(part, root)
    for rank, place in enumerate(boxes or ()):
        if place is not None and rank == root:
            yield place, data
        elif place is not None:
            for part in _parts(room[: _count(place)]):
                link.Recv(part, rank, 0)
            spans = [span.stop - span.start for span in place]
            yield place, room[: _count(place)].reshape(spans)


def _count(box: Box | None) -> int:
    return 0 if box is None else prod(span.stop - span.start for span in box)


def _parts(data: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """What one call of MPI moves at a time: Open MPI 5.0 counts its bytes in 32 bits."""
    words = data.view(np.uint8)
    return (words[at : at + CALL_BYTES] for at in range(0, len(words), CALL_BYTES))
