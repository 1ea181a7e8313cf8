"""One outcome on all ranks: either every rank raises the same error, or none raises.

MPI programs fail by hanging: a rank that raises alone leaves the others in the next collective
call. Whatever needs agreement is therefore checked here, once, where a request is initialized;
starting and waiting agree on nothing. Where all agree it costs one Allreduce of a few words; only a
disagreement gathers what there is to say.

Ranks that have something for each other tell each other alone (:func:`told`, :func:`swapped`). Who
has something for a rank is found as by T. Hoefler, C. Siebert, A. Lumsdaine, Scalable communication
protocols for dynamic sparse data exchange, PPoPP 2010: a message that is complete has been
received, so when all ranks say that theirs are complete, none is under way.
"""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from onesided.collectives.errors import MismatchError, OnesidedError, class_of

#: Words of an agreement that has fewer numbers: ranks that are in different calls may agree then.
WORDS = 8

#: More than any number that ranks agree on.
LARGEST = 1 << 62

#: The word of a rank that has failed: no sum of a name is as large.
_FAILED = np.iinfo(np.int64).max
_NOTHING = object()


def portable(error: BaseException) -> tuple[type[BaseException], str]:
    """Class and words of an error; a class that other ranks may not know is replaced."""
    kind = type(error)
    if isinstance(error, MPI.Exception):
        return class_of(error), f"MPI: {error.Get_error_string()}"
    if isinstance(error, MemoryError) and not isinstance(error, OnesidedError):
        kind = MemoryError  # NumPy has a class of its own
    known = next(each for each in kind.__mro__ if _is_known(each))
    text = str(error) or kind.__name__
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    if isinstance(error, KeyError | UnicodeError | BaseExceptionGroup | SystemExit
                  | KeyboardInterrupt):  # fmt: skip
        return OnesidedError, f"{kind.__name__}: {text}"
    return (known if issubclass(kind, OnesidedError) or known is kind else OnesidedError), text


def _is_known(kind: type) -> bool:
    """Local. Whether all ranks have this class: Python's, or one of this package."""
    return kind.__module__ == "builtins" or (
        kind.__module__.startswith("onesided.") and "<locals>" not in kind.__qualname__)


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

    Examples
    --------
    >>> error = ValueError("only here") if comm.rank == 0 else None
    >>> try:
    ...     agree(comm, error, "reading")
    ... except ValueError as everywhere:
    ...     print("only here" in str(everywhere))
    True
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
    every one of which gives as many. One Allreduce where nobody has failed. Ranks may be in
    different calls where there are no more than ``WORDS - 2`` numbers."""
    return Agreement(comm, error, what, numbers).largest()


class Agreement:
    """One that is made again and again, with what :func:`largest` takes, in words made once.

    Examples
    --------
    >>> again = Agreement(comm, None, "step", [comm.rank])
    >>> again.largest() == again.largest() == [comm.size - 1]
    True
    """

    def __init__(
        self, comm: MPI.Comm, error: BaseException | None, what: object, numbers: Sequence[int]
    ) -> None:
        """Local."""
        self._comm, self._error, self._count = comm, error, len(numbers)
        self._name = name = "" if what is None else what if isinstance(what, str) else repr(what)
        check = number_of(name)
        flags = (check, -check) if error is None else (_FAILED, _FAILED)
        rest = (0,) * (WORDS - 2 - len(numbers))
        try:
            words = np.array([*flags, *numbers, *rest], np.int64)
        except OverflowError:  # more than anybody has, as what is wanted of it tells everywhere
            within = [max(-LARGEST, min(n, LARGEST)) for n in numbers]
            words = np.array([*flags, *within, *rest], np.int64)
        self._most = words.copy()
        sides = ([each, len(words), MPI.INT64_T] for each in (words, self._most))
        self._arguments: Any = (*sides, MPI.MAX)

    def largest(self) -> list[int]:
        """Collective. The largest of each of the numbers over all ranks."""
        self._comm.Allreduce(*self._arguments)
        most: list[int] = self._most.tolist()
        if most[0] != -most[1]:  # somebody has failed, or is somewhere else: say who
            mine = (None if self._error is None else portable(self._error), self._name)
            _raise(self._comm, self._comm.allgather(mine), self._error)
        return most[2 : 2 + self._count]


def number_of(name: str) -> int:
    """Local. A number that tells names apart."""
    return (zlib.crc32(name.encode(errors="surrogatepass")) << 24) + len(name) % (1 << 24)


def agree_once(comm: MPI.Comm, error: BaseException | None, what: object) -> None:
    """Collective. As :func:`agree`; an error that these ranks have agreed on before is raised
    again, without asking: who has failed before that has met it by this very call."""
    if error is not None and getattr(error, "agreed_on", None) == comm:
        raise error
    agree(comm, error, what)


def _raise(comm: MPI.Comm, everyone: Sequence[Any], error: BaseException | None) -> None:
    """Raise what the words of all ranks come to."""
    failed = [(rank, entry[0]) for rank, entry in enumerate(everyone) if entry[0] is not None]
    if failed:
        rank, (kind, text) = failed[0]
        if len(failed) < len(everyone):
            text = f"rank {rank}: {text}"
        agreed = kind(text)
        agreed.agreed_on = comm
        raise agreed from error
    for rank, (_, name) in enumerate(everyone):
        if name != everyone[0][1]:
            mismatch: Any = MismatchError(f"rank 0 is in {everyone[0][1]}, rank {rank} in {name}")
            mismatch.agreed_on = comm
            raise mismatch


def words_of_all(size: int, kind: DTypeLike) -> NDArray[Any]:
    """Local. An array for a few words of each rank, where all ranks are in a call already."""
    kind = np.dtype(kind)
    return np.frombuffer(bytearray(size * kind.itemsize), kind)


def from_root(comm: MPI.Comm, make: Callable[[], Any]) -> Any:
    """Collective, among ranks that are known to be in the same call. What ``make()`` returns on
    rank 0, where alone it is called; its error is raised on every rank."""
    error: Exception | None = None
    word: Any = None
    if comm.rank == 0:
        try:
            word = None, make()
        except Exception as problem:
            error, word = problem, (portable(problem), None)
    failed, value = comm.bcast(word)
    if failed is not None:
        kind, text = failed
        raise kind(f"rank 0: {text}" if comm.size > 1 else text) from error
    return value


class agreed:
    """Collective. Agree on the outcome of the block: all ranks go on, or all raise.

    The block must not communicate in a way that a failure on one rank would leave others
    waiting for. Used as ``with agreed(comm): check_my_arguments()``.

    Examples
    --------
    >>> try:
    ...     with agreed(comm, "reading"):
    ...         if comm.rank == 0:
    ...             raise ValueError("only here")
    ... except ValueError as everywhere:
    ...     print("only here" in str(everywhere))
    True
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


# -- words for some ranks -----------------------------------------------------------------------


def told(
    comm: MPI.Intracomm,
    tag: int,
    words: Mapping[int, Any],
    answer: Callable[[int], Any] | None = None,
) -> dict[int, Any]:
    """Collective. By rank, what ranks have told this one, which tells ``words[p]`` to rank ``p``.

    With an ``answer``, on all ranks, a rank that is told something and has not told anything itself
    answers: then every rank that has been told something is heard. ``tag`` is not that of any other
    call before the ranks have agreed on something.
    """
    waits = {peer for peer in words if answer is not None and peer != comm.rank}
    heard = {comm.rank: words[comm.rank]} if comm.rank in words else {}
    sends = [comm.Issend([pickle.dumps(words[p]), MPI.BYTE], p, tag) for p in _others(comm, words)]
    barrier: MPI.Request | None = None
    status = MPI.Status()
    while True:
        while (message := comm.Improbe(MPI.ANY_SOURCE, tag, status)) is not None:
            source, room = status.Get_source(), bytearray(status.Get_count(MPI.BYTE))
            message.Recv([room, MPI.BYTE])
            heard[source] = pickle.loads(room)
            if answer is not None and source not in words:
                sends.append(comm.Issend([pickle.dumps(answer(source)), MPI.BYTE], source, tag))
        complete = MPI.Request.Testall(sends)
        if barrier is None and complete:
            barrier = comm.Ibarrier()
        if barrier is not None and complete and waits <= heard.keys() and barrier.Test():
            return heard
        os.sched_yield()


def swapped(comm: MPI.Intracomm, tag: int, words: Mapping[int, Any]) -> dict[int, Any]:
    """Collective over ranks that all tell each other something. By rank, what has come.

    ``recv`` of an object probes first, and an MPI's probe may keep its core until something comes,
    though the rank that is to send may wait for that core.
    """
    sends = [comm.isend(words[peer], peer, tag) for peer in _others(comm, words)]
    heard = {}
    for peer in _others(comm, words):
        while (message := comm.improbe(peer, tag)) is None:
            os.sched_yield()
        heard[peer] = message.recv()
    MPI.Request.Waitall(sends)
    if comm.rank in words:
        heard[comm.rank] = words[comm.rank]
    return heard


def _others(comm: MPI.Intracomm, words: Mapping[int, Any]) -> list[int]:
    """Local. The other ranks, from the next one on, so that not all begin with one."""
    ranks = [peer for peer in words if peer != comm.rank]
    return sorted(ranks, key=lambda peer: (peer - comm.rank) % comm.size)
