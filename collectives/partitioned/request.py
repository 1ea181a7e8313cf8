"""Partitioned sends: one message, filled and sent piece by piece (MPI-4.1 chapter 4).

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

Everything is local. Initialization tells the peer the parameters (:mod:`.handshake`); the channel
is made when those of the peer have come. Where the two sides do not fit each other both raise the
same error, each in the first call that sees it; such a request is *broken*, and can only be freed.

*Progress.* Groups that are complete leave, and a receive that was started finds its sender and lets
it send; what was not possible at once the progress thread does (:mod:`..progress`).

*Threads.* A lock of the request guards all that it holds, so any thread may mark and ask; a signal
handler, too, but where it has interrupted a call of the same request, which refuses it. MPI is
called by the thread at hand under ``MPI_THREAD_MULTIPLE``, and by MPI's main thread only under a
lower level: marks of other threads only count then, and what they complete leaves in the next
``Pready``, ``Test`` or ``Wait`` of the main thread. No lock is held while a thread waits.
"""

from __future__ import annotations

import os
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.context import interrupts_later, retire_at_end
from onesided.collectives.errors import OnesidedError, RequestError, in_forked_child
from onesided.collectives.hints import MANUAL
from onesided.collectives.initialization import Info
from onesided.collectives.partitioned.channel import AUTO, as_index, check_name, end_between
from onesided.collectives.partitioned.counter import Counter, Grouping, compiled_counter
from onesided.collectives.partitioned.handshake import (
    RECEIVER,
    SENDER,
    Arguments,
    Guard,
    guarded,
    read_arguments,
)
from onesided.collectives.program import ACTIVE, BROKEN, FREED, INACTIVE, load
from onesided.collectives.request import Persistent
from onesided.collectives.steps import call

#: Bytes that a group holds at least, where partitions are smaller.
AGGREGATE = 65536


class PartitionedRequest(Persistent):
    """One side of a partitioned send; made by ``Psend_init`` and ``Precv_init``.

    ``Start`` is local and waits for nobody. ``Wait(status=None)`` waits for the peer, and for marks
    of other threads; ``Test(status=None)`` tells whether the round is complete, and makes the
    request inactive then. Both advance all requests of the process that are late. ``Wait`` returns
    the buffer as it was given.

    Examples
    --------
    >>> with Psend_init(comm, np.zeros(8), 4, MPI.PROC_NULL) as send:
    ...     isinstance(send, PartitionedRequest)
    True
    """

    _end: Any = None  # a Sender or a Receiver, once the sides know each other
    _counter: Any  # of marks
    _compiled: Any = None  # that counter, where it is the compiled one

    def __init__(self, arguments: Arguments) -> None:
        matching, hints = arguments.matching, arguments.hints
        super().__init__(matching.probe, hints.progress != MANUAL)
        self.matching, self.parameters = matching, arguments.parameters
        self.memory, self.peer, self._given = arguments.memory, arguments.peer, arguments.given
        self.method = self.parameters.method  # as asked for; the transport taken, once it is known
        self.guard = Guard()
        self._opened = self._begun = 0  # the round for which that has been done
        self._enlisted = self._told = False
        self._end_owes: Callable[[], bool] | None = None  # of ends that may owe something
        self._reset: Callable[[], object] | None = None  # what begins a round, connected or not
        self._failures: dict[Any, Any] = matching.failures
        self._error: BaseException | None = None
        self._everywhere = progress.may_call_from_any_thread()
        self._watched = debug.observe()
        nowhere = self.peer == MPI.PROC_NULL
        self._position = None if nowhere else matching.post(self.parameters, self.peer)
        self._failure: Exception | None = None  # of which the peer hears
        self._hooked = 1  # the verbs ask before they take the lock of the round
        load(self, [[[call(self._advance, serves=False)]]], [self._given])
        self._made = True
        retire_at_end(self)

    # -- what a side implements ------------------------------------------------------------------

    @abstractmethod
    def _step(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this side."""

    @abstractmethod
    def _owes(self) -> bool:
        """Local. Whether the peer waits for what this side can do without the program."""

    @abstractmethod
    def _forget(self, written: bool) -> None:
        """Local. Drop what was made for the other side, which may still write to it."""

    @abstractmethod
    def waiting_for(self) -> str:
        """Local, internal. What an active request lacks, in words, for the watchdog."""

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def filling(self) -> bool:
        """Local, internal. True while it would be in vain to complete the round on the way out."""
        return self._error is not None

    @property
    def partitions(self) -> int:
        """Local. The partitions of this side."""
        return self.parameters.partitions

    @property
    def recvbuf(self) -> Any:
        """Local. The buffer as it was given."""
        return self._given

    def late(self) -> bool:
        """Local. Whether the peer waits for something that this side has still to do."""
        return bool(self._state == ACTIVE and not self._done and self._owes())

    def described(self) -> tuple[str, int]:
        sends = self.parameters.side == SENDER
        return f"{'Psend' if sends else 'Precv'} by {self.method}", sends * self.memory.size

    def __repr__(self) -> str:
        side = "send to" if self.parameters.side == SENDER else "receive from"
        return (f"<{self.method} partitioned {side} rank {self.peer}, tag {self.parameters.tag}: "
                f"{self.state}, {self.rounds} starts>")

    def Pready(self, *partitions: Any, **names: Any) -> None:
        """Local. On a receive it raises, as do the next two: only the sending side marks."""
        raise RequestError(f"a receive has no partition to mark: {self!r}")

    Pready_range = Pready_list = Pready

    def Parrived(self, partition: int) -> bool:
        """Local. On a send it raises: only the receiving side knows what has arrived."""
        raise RequestError(f"a send does not know what has arrived: {self!r}")

    def Free(self) -> None:
        """Local. Give back the messages; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`, as does this one while the request
        is active. A broken round is given up, and so is that of a send whose partitions have not
        all been marked, after an exception between ``Start`` and the last mark: the peer's request
        breaks, too, and says so; what is under way is left to MPI. So is an active round whose
        error is known. A request that was never started can be freed: its place in the order of
        initializations stays taken.
        """
        self._check_process("freed")
        self._refuse_inside()  # a signal handler, or a step, which may hold the guard
        self.matching.guard.run(bool)  # nor by what has interrupted that
        with interrupts_later():  # the peer is told, and all is given back
            broken = self._end_by_free()
            if broken is not None:
                self._give_back_all(broken)

    def _give_back_all(self, broken: bool) -> None:
        """Local, without the guard: another thread may be executing the round, and want it."""
        matching, position, error = self.matching, self._position, self._failure
        while self._compiled is not None and self._compiled.copying:
            os.sched_yield()  # another thread stores a group, which the peer gives up only then
        if broken and error is None and not isinstance(self._error, OnesidedError):
            cause = self._error or self.cause
            why = "" if cause is None else f" after {type(cause).__name__}"
            error = RequestError(f"a partitioned round was given up{why}")
        if error is not None and position is not None and not self._told:
            matching.tell_failure(position, error, waits=True)
        end = self._release(broken)
        if position is None:
            return
        receives, slot = self.parameters.side == RECEIVER, self.parameters.slot
        sound = not broken and self._error is None  # else messages may be under way
        if end is None:
            matching.leave(position, slot)
        elif not sound and receives:
            matching.give_up(end.comm, end.peer, slot, end.sender)
        if sound and receives:
            matching.give_slot(self.peer, slot)

    @guarded
    def _end_by_free(self) -> bool | None:
        """From now on the request is freed, and takes no mark. Whether its round is given up; None
        where it was freed before."""
        if self._state == FREED:
            return None
        self._error = self._failures.pop(self._position, self._error)
        given_up = self._state == ACTIVE and (self._counter.close() or self._error is not None)
        broken = given_up or self._state == BROKEN
        if self._state == ACTIVE and not broken:
            self._refuse("freed")
        self._retire()
        return broken

    def retire(self) -> None:
        """Local, internal. MPI ends: the memory of the peer goes, and from now on the request
        raises."""
        if self._state != FREED:
            broken = self._state != INACTIVE
            self._retire()
            self._release(broken)

    def _release(self, broken: bool) -> Any:
        """Local. Give back what was made for rounds; ``broken``: one of them is under way."""
        progress.delist(self)
        self._unload()
        end, self._end, self._end_owes = self._end, None, None
        if end is not None:
            end.close(broken)
        self._forget(broken and end is not None)
        return end

    def __del__(self) -> None:
        if self._made and self._state in (ACTIVE, BROKEN) and self._end is not None:
            _dropped.append(self)  # MPI may still read or write its memory, until its end
        super().__del__()

    # -- inside ----------------------------------------------------------------------------------

    def _may_call(self) -> bool:
        """Local. Whether this thread may call MPI."""
        return self._everywhere or MPI.Is_thread_main()

    def _hear(self) -> None:
        """Raise where the peer has failed, or the sides do not fit. The caller holds the guard."""
        self._error = self._failures.pop(self._position, self._error)
        if self._error is None:
            return
        if not isinstance(self._error, Exception):  # that was for the call that it has ended
            raise RequestError("a call of this request was interrupted") from self._error
        raise self._error

    def _settled(self) -> bool:
        """Raise the error of this request, once the peer has been told of it; false while another
        thread is in the way of that. The caller holds the guard."""
        if self._failure is not None and self._position is not None and not self._told:
            self._told = self.matching.tell_failure(self._position, self._failure, waits=False)
            if not self._told:
                return False
        self._hear()
        return True

    def advance(self, level: int) -> bool:
        """Local. Execute what can be, unless another thread, or what this one has interrupted, is
        at it. The guard is taken first: no thread waits for it inside of the round."""
        if in_forked_child():
            return False
        with self.guard.lock:
            return not self.guard.busy and super().advance(level)

    @guarded
    def _advance(self) -> bool:
        """What a round consists of: called until it is true."""
        if self._state == FREED or not self._settled():  # another thread may have given it up
            return False
        begins = self._begun != self.rounds
        if begins:
            begun = self._begin()
            if self._error is not None:
                return self._settled()
            if begun and self._end_owes is None and not self._counter.waiting:
                return False  # mostly
        if self._begun != self.rounds or not self._step():
            if begins:
                self._enlist_if_owing()
            return False
        if self._enlisted:
            self._enlisted = False
            progress.delist(self)
        if self._watched:
            debug.moved()
        return True

    def _begin(self) -> bool:
        """The round begins, if the peer is known; the caller holds the guard, and may call MPI."""
        if self._opened != self.rounds:
            self._open_round()
        if self._end is None and not self._meet():
            return False
        self._begun = self.rounds
        self._end.begin()
        return True

    def _open_round(self) -> None:
        """A round begins: only what this side knows alone. The caller holds the guard."""
        self._opened = self.rounds
        if self._reset is not None:
            self._reset()
        if self._watched:
            debug.moved()

    def _enlist_if_owing(self) -> None:
        """The caller holds the guard. Once in a round; :meth:`_advance` delists at its end."""
        if not self._enlisted and self._owes():
            self._enlisted = True
            self._enlist()

    def _meet(self) -> bool:
        """Make the end if the peer's parameters have come; false while they have not.

        What does not fit is kept as the error of the request. The caller holds the guard.
        """
        if self._error is not None:
            return False
        theirs, comm = self.parameters, self.matching.comm
        if self._position is not None:
            found = self.matching.guard.attempt(self.matching.take, self._position)
            if found is None:
                return False
            theirs, comm = found
        try:
            name, end = end_between(comm, self.peer, self.parameters, theirs, self.memory,
                                    self._compiled)
        except Exception as error:  # the peer comes to one of ours, too
            self._error, self._failure = error, None if isinstance(error, OnesidedError) else error
            return False
        try:
            end.open()
        except Exception as error:
            end.close()
            self._error = self._failure = error
            return False
        self._end, self.method = end, name
        self._end_owes = getattr(end, "owes", None)
        return True

    def _before_start(self) -> None:
        self.guard.refuse_inside()  # while no lock of the round is taken, and nothing broken

    _before_wait = _before_start

    def _before_test(self) -> bool:
        self.guard.refuse_inside()
        return True

    def _refuse(self, verb: str) -> None:
        if self._state == BROKEN and isinstance(self._error, OnesidedError):
            raise self._error
        super()._refuse(verb)

    def _fill(self, status: MPI.Status | None) -> None:
        super()._fill(status)
        if status is not None and self.parameters.side == RECEIVER and self.rounds:
            status.source = self.peer
            if self.peer != MPI.PROC_NULL:
                status.tag = self.parameters.tag
                status.Set_elements(MPI.BYTE, self.memory.size)


#: Those that nobody holds any more, in the middle of a round.
_dropped: list[Any] = []


# -- the sending side -----------------------------------------------------------------------------


class PartitionedSend(PartitionedRequest):
    """Partitions are marked ready one by one, or many at once; groups leave when they are complete.

    A partition must not be modified from its mark until the request is inactive again. Threads may
    mark in any order and at the same time; a mark never waits for the peer.

    Examples
    --------
    >>> with Psend_init(comm, np.zeros(8), 4, MPI.PROC_NULL) as send:
    ...     send.Start()
    ...     send.Pready_range(0, 2)
    ...     send.Pready_list([3])
    ...     sent = send.Wait()
    """

    def __init__(self, arguments: Arguments) -> None:
        grouping = arguments.parameters.grouping
        self._compiled = compiled_counter(grouping) if arguments.hints.compiled else None
        self._counter = Counter(grouping) if self._compiled is None else self._compiled
        #: While debugging, what partitions held when they were marked.
        self._sums: dict[int, int] | None = {} if debug.enabled() else None
        super().__init__(arguments)
        self._reset = self._counter.reset
        if self._compiled is not None:
            self._compiled.bind(self._completed, self.Pready, self.Pready_range)
            if self._sums is None:
                self.__dict__["Pready"] = self._compiled.pready
                self.__dict__["Pready_range"] = self._compiled.pready_range

    @property
    def filling(self) -> bool:
        """Local, internal. True while partitions are not ready."""
        return super().filling or self._counter.missing > 0

    @guarded
    def Pready(self, partition: int) -> None:
        """Local. A partition is ready; its group leaves when it is the last one of it.

        Raises :class:`RequestError`, and changes nothing, where the request is not active, the
        partition is ready already or does not exist.
        """
        self._check_markable()
        partition = as_index(partition, self.partitions, self)
        self._add(partition if self._compiled is None else np.array([partition], np.int64))

    @guarded
    def Pready_range(self, low: int, high: int) -> None:
        """Local. The partitions from ``low`` to ``high``, both included, are ready.

        Raises as :meth:`Pready` does, and :class:`RequestError` where ``low`` exceeds ``high``.
        """
        self._check_markable()
        low, high = (as_index(value, self.partitions, self) for value in (low, high))
        if low > high:
            raise RequestError(f"no partitions from {low} to {high}: {self!r}")
        self._add(np.arange(low, high + 1, dtype=np.int64))

    def Pready_list(self, partitions: Iterable[int]) -> None:
        """Local. These partitions are ready. Raises as :meth:`Pready` does."""
        if not isinstance(partitions, np.ndarray):
            partitions = np.array(list(partitions))
        self._mark_list(partitions)

    # -- inside ----------------------------------------------------------------------------------

    def _add(self, which: int | NDArray[np.int64]) -> None:
        """Mark a partition, or many. The caller holds the guard."""
        counter = self._counter
        before = counter.waiting if self._compiled is None else 0  # C takes no guard
        try:
            ready = counter.mark(which)
            if ready < 0:
                if self._sums is not None:
                    self._sums |= {index: self._sum(index) for index in np.atleast_1d(which)}
                if counter.waiting > before:
                    self._push()
        except BaseException as error:  # some may have been marked
            self._error = error
            raise
        if ready >= 0:
            raise RequestError(f"partition {ready} is marked ready twice: {self!r}")

    def _sum(self, index: int) -> int:
        part = self.memory.size // self.partitions
        return zlib.crc32(self.memory[index * part : (index + 1) * part].data)

    @guarded
    def _mark_list(self, partitions: NDArray[Any]) -> None:
        self._check_markable()
        if not partitions.size:
            return
        if partitions.dtype.kind not in "iu" or partitions.ndim != 1:
            raise RequestError(f"no list of partitions: {partitions!r}")
        for value in (int(partitions.min()), int(partitions.max())):
            as_index(value, self.partitions, self)
        self._add(np.ascontiguousarray(partitions, np.int64))

    def _check_markable(self) -> None:
        """Another thread may be in the middle of ``Start``."""
        if self._state != ACTIVE:
            self._refuse("marked ready")
        if self._opened != self.rounds:
            self._open_round()

    def _completed(self) -> None:
        """The compiled counter has a group that it cannot send."""
        with self.guard.lock:
            if self.guard.busy:  # a signal handler has marked
                self._enlist_if_owing()
            elif self._state == ACTIVE:
                self.guard.run(self._push)

    def _push(self) -> None:
        """Let go what is complete, where this thread may call MPI and the peer is known."""
        try:
            if self._may_call() and (self._begun == self.rounds or self._begin()):
                self._end.drain(self._counter)
            if self._counter.waiting:
                self._enlist_if_owing()
        except BaseException as error:  # what has been taken from the counter may be lost
            self._error = error
            raise

    def _step(self) -> bool:
        counter, end = self._counter, self._end
        if counter.waiting:
            end.drain(counter)
        return not (counter.missing or counter.waiting) and end.idle()

    def _owes(self) -> bool:
        return bool(self._counter.waiting > 0)

    def waiting_for(self) -> str:
        unmarked = self._counter.unmarked()
        if not unmarked:
            return f"{self._counter.waiting} groups to leave, and for what has left to arrive"
        first, more = ", ".join(map(str, unmarked[:8])), ", ..." * (len(unmarked) > 8)
        return f"{len(unmarked)} partitions to be marked ({first}{more})"

    def _after_wait(self) -> None:
        sums = self._sums or {}
        changed = sorted(int(each) for each, found in sums.items() if self._sum(each) != found)
        sums.clear()
        if changed:
            raise RequestError(
                f"partitions {changed[:8]} were changed after they had been marked: {self!r}"
            )

    def _breaks(self, error: BaseException | None) -> None:
        super()._breaks(error)
        self._counter.close()

    def _forget(self, written: bool) -> None:
        self._counter.close()
        if self._compiled is not None:
            for verb in ("Pready", "Pready_range"):
                self.__dict__.pop(verb, None)
            self._compiled.bind(_freed, _freed, _freed)  # or the two keep each other alive


def _freed(*partition: object, **names: object) -> None:
    raise RequestError("a freed request cannot be marked ready")


# -- the receiving side ---------------------------------------------------------------------------


class PartitionedReceive(PartitionedRequest):
    """Partitions, cut as this side likes, can be read as soon as they have arrived.

    The buffer is the peer's from ``Start`` until ``Wait``, but for the partitions of which
    :meth:`Parrived` has said that they are there.

    Examples
    --------
    >>> with Precv_init(comm, np.zeros(8), 4, MPI.PROC_NULL) as receive:
    ...     receive.Start()
    ...     there = receive.Parrived(3)
    ...     received = receive.Wait()
    >>> there
    True
    """

    def __init__(self, arguments: Arguments) -> None:
        self._counter = Counter(Grouping(1, 0, 1))  # nothing is marked
        self._give_back = arguments.give_back
        super().__init__(arguments)
        if self._watched and self._position is not None:
            self._reset = partial(self.memory.fill, 0xFF)  # nothing can have come before that

    def Parrived(self, partition: int) -> bool:
        """Local. Whether a partition can be read: all groups that it is made of have come.

        True on an inactive request, as in MPI. Where it is false all requests of the process that
        are late have been advanced, so that it may be asked until it is true. Under a thread level
        below multiple that is so in the main thread; elsewhere it tells what that one has seen
        since the first such question.

        Raises :class:`RequestError` where there is no such partition, on a freed request, and where
        the peer has given up; and where the sides do not fit, as :meth:`Wait` does.
        """
        if self._arrived(partition):
            return True
        if self._may_call():
            progress.drive(self._probe, self)
        return False

    @guarded
    def _arrived(self, partition: int) -> bool:
        if self._state in (BROKEN, FREED):
            self._refuse("asked for a partition")
        index = as_index(partition, self.partitions, self)
        if self._state != ACTIVE:
            return True
        self._hear()
        calls, there = self._may_call(), False
        try:
            begins = self._begun != self.rounds
            end = self._end if not begins or (calls and self._begin()) else None
            if end is not None:
                part = self.memory.size // self.partitions
                first, stop = end.grouping.covering(index * part, (index + 1) * part)
                end.asked = end.asked or not calls
                there = end.arrived(first, stop) if calls else end.have_come(first, stop)
                if begins:  # Start, in another thread, will find that it has begun
                    self._enlist_if_owing()
        except BaseException as error:  # what it was about to note may be lost
            self._error = error
            raise
        self._hear()
        return there

    # -- inside ----------------------------------------------------------------------------------

    def _step(self) -> bool:
        return bool(self._end.advance())

    def _owes(self) -> bool:
        return self._begun != self.rounds or (self._end_owes is not None and self._end_owes())

    def waiting_for(self) -> str:
        return "its peer" if self._end is None else "partitions to arrive"

    def _forget(self, written: bool) -> None:
        self._give_back(written)
        self._give_back = bool


def Psend_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, dest: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: Info = None,
) -> PartitionedSend:
    """Local. The sending side of a partitioned send, inactive.

    ``buf``: a contiguous array or buffer of ``partitions`` equal parts, or mpi4py's ``[data,
    count, type]`` and its shorter forms, whose count is that of one partition. Partitions are
    joined to *groups* of at most ``aggregate`` bytes (one partition at least), and a group leaves
    when all its partitions are ready; 0 joins nothing. The sender's value counts. ``method`` is a
    name of :func:`partitioned_methods`, the same on both sides or "auto" on one. Keys of ``info``:
    ``compiled=false`` counts partitions in Python where a compiled counter has been built,
    ``progress=manual`` keeps the progress thread away from this request; others are ignored.

    The receiver calls :func:`Precv_init` with as many bytes of the same type and the same tag, in
    as many partitions as it likes; requests of one pair and tag are matched in the order of their
    initialization, which no other call has to accompany. ``dest`` may be ``MPI.PROC_NULL``.

    Where no collective call of this package, such as :func:`empty`, has been made on ``comm``
    before, messages go over it with tags from the upper half of its range: a program that receives
    with ``MPI.ANY_TAG`` on it, mpi4py's default, gives a duplicate then. ``comm`` and the buffer
    must outlive the request.

    Raises :class:`PatternError` for partitions that do not divide the buffer, a buffer that is not
    contiguous, and tags or ranks out of range, :class:`MethodError` for an unknown method.

    Examples
    --------
    >>> source, target = np.arange(8.0), np.zeros(8)
    >>> send = Psend_init(comm, source, 4, comm.rank)  # to itself
    >>> receive = Precv_init(comm, target, 2, comm.rank)
    >>> Startall([receive, send])
    >>> for part in (3, 0, 2, 1):  # from any thread
    ...     send.Pready(part)
    >>> while not receive.Parrived(0):
    ...     pass
    >>> target[:4].tolist()
    [0.0, 1.0, 2.0, 3.0]
    >>> received = Waitall([send, receive])
    >>> bool((target == source).all())
    True
    >>> for request in (send, receive):
    ...     request.Free()
    """
    check_name(method)
    given = read_arguments(comm, buf, partitions, dest, tag, aggregate, SENDER, method, info)
    return PartitionedSend(given)


def Precv_init(
    comm: MPI.Intracomm, buf: Any, partitions: int, source: int, tag: int = 0, *,
    method: str = AUTO, aggregate: int = AGGREGATE, info: Info = None,
) -> PartitionedReceive:
    """Local. The receiving side of a partitioned send, inactive; see :func:`Psend_init`.

    Into a contiguous part of an array from :func:`empty` a sender on the same node stores, which is
    the fastest way, as many receives at a time as the array has links. ``MPI.ANY_SOURCE`` and
    ``MPI.ANY_TAG`` are refused, as by MPI.

    Raises as :func:`Psend_init` does, whose example has a receive, too, and :class:`ResourceError`
    for more than 4,096 receives from one rank at a time.

    Examples
    --------
    >>> with Precv_init(comm, np.zeros(8), 4, MPI.PROC_NULL) as receive:
    ...     receive.Start()
    ...     received = receive.Wait()
    >>> received.size
    8
    """
    check_name(method)
    given = read_arguments(comm, buf, partitions, source, tag, aggregate, RECEIVER, method, info)
    return PartitionedReceive(given)
