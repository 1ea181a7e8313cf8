"""One outcome on all ranks: either every rank raises the same error, or none raises.

MPI programs fail by hanging: a rank that raises alone leaves the others in the next collective
call. Whatever needs agreement is therefore checked here, once, where a request is initialized;
starting and waiting agree on nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from mpi4py import MPI

from onesided.collectives.errors import MismatchError, OnesidedError


def _portable(error: BaseException) -> tuple[type[BaseException], str]:
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
    value: object = None,
) -> list[Any]:
    """Collective. Raise on every rank the error of the lowest rank that has one.

    ``what`` names the call (any picklable object that must be equal on all ranks, or None);
    ranks that arrive with different names raise :class:`MismatchError` instead of hanging or
    corrupting each other's memory. Returns the ``value`` of every rank.
    """
    mine = (None if error is None else _portable(error), what, value)
    everyone = comm.allgather(mine)
    failed = [(rank, entry[0]) for rank, entry in enumerate(everyone) if entry[0] is not None]
    if failed:
        rank, (kind, text) = failed[0]
        if comm.size > 1 and len(failed) < comm.size:
            text = f"rank {rank}: {text}"
        raise kind(text) from error
    for rank, (_, name, _) in enumerate(everyone):
        if name != everyone[0][1]:
            raise MismatchError(f"rank 0 is in {everyone[0][1]}, rank {rank} in {name}")
    return [entry[2] for entry in everyone]


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
