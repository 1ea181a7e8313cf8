"""Progress of every round in flight, also while the program is somewhere else.

Between ``Start`` and ``Wait`` a rank may be anywhere: in ``comm.Barrier``, in a blocking ``Recv``,
in NumPy, asleep. What could leave at ``Start`` has left. What could not, because a peer has not
given its credit, data have not come that are to be passed on, or a flush waits for its target,
makes a request *late*: some other rank may be waiting for it. Late requests are advanced by every
``Wait`` and ``Test`` of the process, and by its *progress threads*, which exist while something
is late, and for a moment after, and sleep between looks. A process with nothing late has none.

One of them executes what happens in shared memory; it is the compiled core's, and never takes the
interpreter lock. The other one, below, makes the calls that a round needs, most of them of MPI: for
these ``MPI_THREAD_MULTIPLE`` is needed, and a program that gives up the interpreter lock from time
to time (mpi4py does in its calls, but for what it does itself in the first collective call of
objects on a communicator). Which of them a round needs follows from its steps. The info key
``progress=manual`` forbids both for a request: then only Wait, Test, Open and Ready of the library
advance it, and not its collective calls (initialization, ``Free``, :func:`empty`, :func:`free`),
which wait for other ranks in MPI alone.

What waits for other ranks itself, the fence of a strictly ordered method off a node, is left to the
Wait or Test of its own request: whoever advances others must not be held up by them.

Here, too, is what completes several requests at once, ours and mpi4py's mixed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from onesided.collectives.errors import RequestError
from onesided.collectives.program import LOCAL_CALLS, NO_CALLS, stop_thread

#: Seconds before the first look of the progress thread, between its rarest ones, and after the last
#: late request until it ends.
FIRST, RAREST, LINGER = 0.0003, 0.003, 0.5

#: Signals of a thread's own errors, which it does not block.
OWN_ERRORS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}

#: A tag that no message of ours carries: a probe for it finds nothing, and so drives progress.
NO_TAG = 0


#: One of :mod:`.request`, or of partitioned sends, which import this module.
Request = Any

#: Requests that some other rank may be waiting for, in the order of their starts, and whether the
#: thread below may advance them, and has to.
_late: dict[Request, bool] = {}
_guard = threading.RLock()  # a signal handler may use a request, too
_thread: threading.Thread | None = None
_woken = threading.Event()
_ending = False


def may_call_from_any_thread() -> bool:
    """Local. Whether the progress thread may call MPI."""
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def enlist(request: Request, by_thread: bool = True) -> None:
    """Local. The request is late. ``by_thread``: this module's thread advances it."""
    global _thread
    _late[request] = by_thread
    if not by_thread or _ending or _has_thread():
        return
    # not with the guard: the thread takes it, and what is made may run what wants other locks
    made = threading.Thread(target=_look, name="onesided-progress", daemon=True)
    with _guard:
        if not _has_thread():
            _thread = made
    if _thread is made:
        # where there can be no more threads Wait and Test do it, and the next round tries again
        with contextlib.suppress(RuntimeError):
            made.start()


def _has_thread() -> bool:
    """Local. With the guard, so that a thread that is about to end has either seen what is late, or
    is not there any more."""
    with _guard:
        return _thread is not None and _thread.is_alive()


def delist(request: Request) -> None:
    """Local. The request is complete, or broken."""
    _late.pop(request, None)


def drive(probe: Any, request: Request | None = None) -> None:
    """Local. Advance MPI and every late request but this one, which the caller advances.

    ``probe`` is ``Iprobe`` of the request's own communicator: MPICH 5 answers a probe on COMM_SELF,
    or a duplicate of it, without looking at what other ranks want from this one.
    """
    probe(MPI.ANY_SOURCE, NO_TAG)
    if _late:
        for other in list(_late):
            if other is not request and attempt(other, LOCAL_CALLS):
                other.driven += 1


def unfinished() -> bool:
    """Local. Whether some round is late, and can be completed no more."""
    return bool(_late)


def finish(seconds: float = 5.0) -> None:
    """Local. At exit: complete what others wait for, and end the progress thread."""
    global _ending
    _ending = True
    _woken.set()
    stop_thread()
    thread = _thread
    if thread is not None and thread.is_alive() and thread is not threading.current_thread():
        thread.join(seconds)
    deadline = time.monotonic() + seconds
    while serve_late() and time.monotonic() < deadline:
        time.sleep(0.0002)


def serve_late() -> bool:
    """Local. At exit: advance what others wait for; whether something is left of it."""
    waiting = [request for request in list(_late) if not request.filling]
    for request in waiting:
        if not attempt(request, LOCAL_CALLS) and not request.late():
            delist(request)
    return bool(waiting)


def attempt(request: Request, level: int) -> bool:
    """Advance; an error stays with the request, whose own verbs raise it."""
    try:
        return bool(request.advance(level))
    except Exception:
        return False


def _help(request: Request, level: int) -> bool:
    moved = attempt(request, level)
    request.helped_by_python += moved
    return moved


def _look() -> None:
    """The progress thread, which takes no signals: the program may block them in its own."""
    global _thread
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - OWN_ERRORS)
    level = LOCAL_CALLS if may_call_from_any_thread() else NO_CALLS
    pause, idle, me = FIRST, 0.0, threading.current_thread()
    while not _ending and _thread is me:
        _woken.wait(pause)
        if not any(_late.values()):
            idle += pause
            pause = RAREST
            if idle > LINGER:
                with _guard:
                    if not any(_late.values()):
                        if _thread is me:
                            _thread = None
                        return
            continue
        idle = 0.0
        moved = [_help(request, level) for request, ours in _late.copy().items() if ours]
        pause = FIRST if any(moved) else min(pause * 1.3, RAREST)


def _after_fork() -> None:
    """The child of a fork has no progress thread, and must not complete the parent's rounds."""
    global _thread, _guard
    _thread, _guard = None, threading.RLock()
    _late.clear()


os.register_at_fork(after_in_child=_after_fork)


# -- several requests at once ---------------------------------------------------------------------


def _ours(request: Any) -> bool:
    return not isinstance(request, MPI.Request)


def Startall(requests: Sequence[Any]) -> None:
    """Local. Start every request, ours and ``MPI.Prequest``; in any order of the list, which may
    differ between ranks.

    Raises :class:`RequestError`, before anything is started, where one occurs twice or is not
    inactive. Where one of them fails after others have been started, these stay active. Strictly
    ordered requests are started in the order of their initialization.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> [request.active for request in requests]
    [True, True]
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in Startall")
    for request in requests:
        if _ours(request) and request.state != "inactive":
            raise RequestError(f"{request!r} cannot be started; nothing has been started")
    for request in sorted(requests, key=lambda each: each.turn if _ours(each) else (0, 0)):
        request.Start()


def Waitall(requests: Sequence[Any], statuses: list[MPI.Status] | None = None) -> list[Any]:
    """Wait for every request, ours and mpi4py's mixed. ``statuses`` is filled, by request.

    Ours first, because waiting for them drives MPI as well: nothing of mpi4py's is held up.

    Returns by request the receive array of ours, None for mpi4py's.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> [float(received[0]) == comm.size for received in Waitall(requests)]
    [True, True]
    >>> for request in requests:
    ...     request.Free()
    """
    values: list[Any] = [None] * len(requests)
    if statuses is not None:
        statuses += [MPI.Status() for _ in range(len(requests) - len(statuses))]
    for ours in (True, False):
        for i, request in enumerate(requests):
            if _ours(request) == ours:
                value = request.Wait(None if statuses is None else statuses[i])
                values[i] = value if ours else None
    return values


def Waitany(requests: Sequence[Any], status: MPI.Status | None = None) -> int:
    """Wait until one of the active requests is complete; returns its index.

    ``MPI.UNDEFINED`` where none is active.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> sorted([Waitany(requests), Waitany(requests)])
    [0, 1]
    >>> Waitany(requests) == MPI.UNDEFINED  # none is active any more
    True
    >>> for request in requests:
    ...     request.Free()
    """
    spins = 0
    while True:
        index, found = Testany(requests, status)
        if found:
            return index
        spins = _rest(spins)


def Waitsome(
    requests: Sequence[Any], statuses: list[MPI.Status] | None = None
) -> list[int] | None:
    """Wait until some of the active requests are complete; returns their indices.

    None where none is active.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> done = Waitsome(requests)
    >>> set(done) <= {0, 1} and len(done) > 0
    True
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    spins = 0
    while True:
        found = Testsome(requests, statuses)
        if found is None or found:
            return found
        spins = _rest(spins)


def Testall(requests: Sequence[Any], statuses: list[MPI.Status] | None = None) -> bool:
    """Local. True when all are complete, which makes them inactive; else nothing is changed.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not Testall(requests):
    ...     pass  # compute something else
    >>> for request in requests:
    ...     request.Free()
    """
    if not Get_status_all(requests):
        return False
    Waitall(requests, statuses)
    return True


def Testany(requests: Sequence[Any], status: MPI.Status | None = None) -> tuple[int, bool]:
    """Local. The index of a request that is complete, and whether there is one.

    ``(MPI.UNDEFINED, True)`` where none is active.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not (found := Testany(requests))[1]:
    ...     pass
    >>> found[0] in (0, 1)
    True
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    return _any(requests, status, _tested)


def Testsome(
    requests: Sequence[Any], statuses: list[MPI.Status] | None = None
) -> list[int] | None:
    """Local. The indices of the active requests that are complete; None where none is active.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not (done := Testsome(requests)):
    ...     pass
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    return _some(requests, statuses, _tested)


def Get_status_all(
    requests: Sequence[Any], statuses: list[MPI.Status] | None = None
) -> bool:
    """Local. Whether all are complete; as the next two it makes none of them inactive.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not Get_status_all(requests):
    ...     pass  # the requests stay active
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    given = [] if statuses is None else statuses[: len(requests)]
    found = [*given, *(MPI.Status() for _ in requests[len(given) :])]
    complete = all([
        bool(_null(request) or request.Get_status(status))
        for request, status in zip(requests, found, strict=True)
    ])
    if complete and statuses is not None:
        statuses += found[len(given) :]
    return complete


def Get_status_any(
    requests: Sequence[Any], status: MPI.Status | None = None
) -> tuple[int, bool]:
    """Local. The index of a request that is complete, and whether there is one.

    ``(MPI.UNDEFINED, True)`` where none is active. Where the MPI is older than 4.1, an inactive
    persistent request of its own counts as complete: it tells them apart in no other way.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not Get_status_any(requests)[1]:
    ...     pass  # the requests stay active
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    return _any(requests, status, _asked)


def Get_status_some(
    requests: Sequence[Any], statuses: list[MPI.Status] | None = None
) -> list[int] | None:
    """Local. The indices of the active requests that are complete; None where none is active.

    Which are active is told as in :func:`Get_status_any`.

    Examples
    --------
    >>> requests = [Allreduce_init(comm, np.ones(1), np.zeros(1)) for _ in range(2)]
    >>> Startall(requests)
    >>> while not Get_status_some(requests):
    ...     pass  # the requests stay active
    >>> received = Waitall(requests)
    >>> for request in requests:
    ...     request.Free()
    """
    return _some(requests, statuses, _asked)


#: Whether a request is active, and whether its round is complete.
Question = Callable[[Any, MPI.Status | None], tuple[bool, bool]]


def _any(
    requests: Sequence[Any], status: MPI.Status | None, ask: Question
) -> tuple[int, bool]:
    """Local. The first index for which ``ask`` says "complete"; it is no use to go on where it says
    "active" of none."""
    some = False
    for i, request in enumerate(requests):
        active, complete = ask(request, status)
        if complete:
            return i, True
        some |= active
    return MPI.UNDEFINED, not some


def _some(
    requests: Sequence[Any], statuses: list[MPI.Status] | None, ask: Question
) -> list[int] | None:
    """Local. The indices for which ``ask`` says "complete"; None where it says "active" of none."""
    found: list[int] = []
    some = False
    for i, request in enumerate(requests):
        status = MPI.Status()
        if statuses is not None and len(found) < len(statuses):
            status = statuses[len(found)]
        try:
            active, complete = ask(request, status)
        except Exception:
            if not found or not _ours(request):  # MPI tells it only once
                raise
            break  # those before are inactive by now; the next call raises it
        some |= active
        if complete:
            if statuses is not None and len(found) == len(statuses):
                statuses.append(status)
            found.append(i)
    return found if some else None


def _question(verb: str, of_some: str) -> Question:
    """By a verb of a request, and what MPI has for some requests: of one it tells whether it was
    inactive, or is complete, and nothing else does."""

    def ask(request: Any, status: MPI.Status | None) -> tuple[bool, bool]:
        if _null(request):
            return False, False
        look = getattr(request, verb)
        if _ours(request):
            active = request.state in ("active", "broken")  # a broken one raises
            return active, active and bool(look(status))
        try:
            index, done = getattr(MPI.Request, of_some)([request], status)
        except (NotImplementedError, MPI.Exception) as error:
            # MPICH 5.0 refuses persistent collectives; what has come, and is wrong, is told
            if isinstance(error, MPI.Exception) and error.Get_error_class() == MPI.ERR_TRUNCATE:
                raise
            return True, bool(look(status))
        return index != MPI.UNDEFINED or not done, bool(done and index != MPI.UNDEFINED)

    return ask


def _null(request: Any) -> bool:
    return bool(not _ours(request) and request == MPI.REQUEST_NULL)


_asked, _tested = _question("Get_status", "Get_status_any"), _question("Test", "Testany")


def _rest(spins: int) -> int:
    if spins % 8 == 7:
        os.sched_yield()
    return spins + 1
