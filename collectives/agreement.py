"""One outcome on all ranks: either every rank raises the same error, or none raises.

MPI programs fail by hanging: a rank that raises alone leaves the others in the next collective
call. Whatever needs agreement is therefore checked here, once, where a request is initialized;
starting and waiting agree on nothing. Where all agree it costs one Allreduce of a few words; only a
disagreement gathers what there is to say.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI

from onesided.collectives.errors import MismatchError, OnesidedError

#: The word of a rank that has failed: no sum of a name is as large.
_FAILED = np.iinfo(np.int64).max
_NOTHING = object()


def portable(error: BaseException) -> tuple[type[BaseException], str]:
    """Class and words of an error; a class that other ranks may not know is replaced."""
    kind = type(error)
    if isinstance(error, MPI.Exception):
        return OnesidedError, f"MPI: {error.Get_error_string()}"
    known = issubclass(kind, OnesidedError) or kind.__module__ == "builtins"
    text = str(error) or kind.__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyError | UnicodeError | SystemExit | KeyboardInterrupt):
        return OnesidedError, f"{kind.__name__}: {text}"
    return (kind if known else OnesidedError), text


def agree(
    comm: MPI.Comm,
    error: BaseException | None = None,
    what: object = None,
    value: object = _NOTHING,
) -> list[Any]:
    """Collective. Raise on every rank the error of the lowest rank that has one.

    ``what`` names the call (anything whose ``repr`` is equal on all ranks where they agree, or
    None); ranks that arrive with different names raise :class:`MismatchError` instead of hanging or
    corrupting each other's memory. With a ``value`` on every rank it returns those of all ranks,
    gathered when all are known to be in the same call.
    """
    nothing = largest(comm, error, what)
    return nothing if value is _NOTHING else comm.allgather(value)


def largest(
    comm: MPI.Comm,
    error: BaseException | None = None,
    what: object = None,
    numbers: Sequence[int] = (),
) -> list[int]:
    """Collective. As :func:`agree`; returns the largest of each of the ``numbers`` over all ranks,
    every one of which gives as many. One Allreduce where nobody has failed."""
    name = _name(what)
    check = (zlib.crc32(name.encode()) << 24) + len(name) % (1 << 24)
    flags = (check, -check) if error is None else (_FAILED, _FAILED)
    words = np.array([*flags, *numbers], np.int64)
    most = words.copy()
    comm.Allreduce(words, most, MPI.MAX)
    if most[0] != -most[1]:  # somebody has failed, or is somewhere else: say who
        mine = (None if error is None else portable(error), name)
        _raise(comm.allgather(mine), error)
    found: list[int] = most[2:].tolist()
    return found


def _name(what: object) -> str:
    return "" if what is None else what if isinstance(what, str) else repr(what)


def _raise(everyone: Sequence[Any], error: BaseException | None) -> None:
    """Raise what the words of all ranks come to."""
    failed = [(rank, entry[0]) for rank, entry in enumerate(everyone) if entry[0] is not None]
    if failed:
        rank, (kind, text) = failed[0]
        if len(failed) < len(everyone):
            text = f"rank {rank}: {text}"
        raise kind(text) from error
    for rank, (_, name) in enumerate(everyone):
        if name != everyone[0][1]:
            raise MismatchError(f"rank 0 is in {everyone[0][1]}, rank {rank} in {name}")


class agreed:
    """Collective. Agree on the outcome of the block: all ranks go on, or all raise.

    The block must not communicate in a way that a failure on one rank would leave others
    waiting for. Used as ``with agreed(comm): check_my_arguments()``.
    """

    def __init__(self, comm: MPI.Comm, what: object = None) -> None:
        self._comm, self._what = comm, what

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # an exit or an interrupt: the job ends, nothing collective is called
        agree(self._comm, error, self._what)
