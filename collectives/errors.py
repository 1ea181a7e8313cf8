"""What can go wrong, one class per kind of mistake.

Errors found at initialization are agreed: every rank of the communicator raises the same class
with the same words (:mod:`onesided.collectives.agreement`). Errors in the use of a request
(:class:`RequestError`) are local. An error that nobody catches on one rank leaves the others
waiting for that rank for ever: :func:`abort_on_exception` ends the whole job instead.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from mpi4py import MPI

#: Seconds that the launcher gets to forward the last words of a failing rank.
MOMENT = 0.2

_installed = _forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


def in_forked_child() -> bool:
    """Local. Whether this process is the child of one that has MPI, which it must not touch."""
    return _forked


def likely(word: object, known: Iterable[str], alike: float = 0.6) -> str:
    """Local. Which known word was probably meant, as a part of a sentence; empty where none is as
    much ``alike``."""
    found = difflib.get_close_matches(str(word), known, 1, alike)
    return f" (did you mean {found[0]!r}?)" if found else ""


class OnesidedError(Exception):
    """Base of all errors that this package raises on purpose.

    Examples
    --------
    >>> try:
    ...     Alltoall_init(comm, np.zeros(comm.size), None, method="no such")
    ... except OnesidedError:
    ...     print("on all ranks")
    on all ranks
    """


class RequestError(OnesidedError, RuntimeError):
    """A call that the state of the request does not allow (MPI-4.1 section 7.13).

    Examples
    --------
    >>> request = Barrier_init(comm)
    >>> request.Free()
    >>> try:
    ...     request.Start()
    ... except RequestError as error:
    ...     print("freed" in str(error))
    True
    """


class PatternError(OnesidedError, ValueError):
    """Counts, displacements, boxes, types or buffers that do not fit each other.

    Examples
    --------
    >>> try:
    ...     Alltoall_init(comm, np.zeros(comm.size), None, info={"slots": "3"})
    ... except PatternError:
    ...     print("on all ranks")
    on all ranks
    """


class MethodError(OnesidedError, ValueError):
    """No transport has this name.

    Examples
    --------
    >>> try:
    ...     Alltoall_init(comm, np.zeros(comm.size), None, method="no such")
    ... except MethodError:
    ...     print("on all ranks")
    on all ranks
    """


class UnsupportedError(OnesidedError, NotImplementedError):
    """The transport or call exists, but not on this MPI, or not for this pattern.

    Examples
    --------
    >>> issubclass(UnsupportedError, OnesidedError)
    True
    """


class ResourceError(OnesidedError, MemoryError):
    """Shared memory, windows or communicators have run out.

    Examples
    --------
    >>> issubclass(ResourceError, OnesidedError)
    True
    """


class MPIError(OnesidedError, RuntimeError):
    """MPI has failed in a way that says nothing about another time.

    Examples
    --------
    >>> issubclass(MPIError, OnesidedError)
    True
    """


def class_of(error: MPI.Exception) -> type[OnesidedError]:
    """Local. What an error of MPI says: it cannot do this at all, it has run out of something, or
    it has failed this time."""
    kind = error.Get_error_class()
    if kind in (MPI.ERR_UNSUPPORTED_OPERATION, MPI.ERR_UNSUPPORTED_DATAREP, MPI.ERR_RMA_FLAVOR,
                MPI.ERR_RMA_SHARED, MPI.ERR_RMA_ATTACH):  # fmt: skip
        return UnsupportedError
    if kind in (MPI.ERR_NO_MEM, MPI.ERR_NO_SPACE, MPI.ERR_QUOTA):
        return ResourceError
    return MPIError


class MismatchError(OnesidedError, RuntimeError):
    """Ranks of one communicator called different collective functions at the same time.

    Examples
    --------
    >>> issubclass(MismatchError, OnesidedError)
    True
    """


class BroadcastError(OnesidedError, RuntimeError):
    """A passive broadcast cannot be completed, because a rank has failed or left.

    Examples
    --------
    >>> issubclass(BroadcastError, OnesidedError)
    True
    """


def abort_on_exception() -> None:
    """Local. From now on an exception that nobody catches aborts the job on all ranks.

    In threads too, where MPI and ``python -m mpi4py`` would leave the job hanging. The stack is
    printed first; the exit code is 1. Calling it again changes nothing. Importing the package
    never installs this: hooks belong to the program.

    Examples
    --------
    >>> abort_on_exception()  # from now on
    """
    global _installed
    if _installed:
        return
    _installed = True

    def aborting(hook: Callable[..., object]) -> Callable[..., None]:
        def hook_and_abort(*given: Any) -> None:
            try:
                hook(*given)
            finally:
                if getattr(given[0], "exc_type", None) is not SystemExit:  # that ends a thread
                    _abort()

        return hook_and_abort

    sys.excepthook, threading.excepthook = aborting(sys.excepthook), aborting(threading.excepthook)


def _abort() -> None:
    """Local. End the job, a moment later: launchers drop what they have not yet passed on."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it is closed, or its disk is full
            stream.flush()
    if in_forked_child():
        return  # MPI is its parent's
    time.sleep(MOMENT)
    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.COMM_WORLD.Abort(1)
