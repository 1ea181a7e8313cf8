"""Partitioned sends: one message, filled and sent piece by piece (MPI-4.1 chapter 4).

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

Everything is local. Initialization tells the peer the parameters (:mod:`.handshake`); the channel
is made when those of the peer have come. Where the two sides do not fit each other both raise the
same error, each in the first call that sees it; such a request is *broken*, and can only be freed.

*Progress.* What the peer waits for happens without the program's help, wherever it is: groups that
are complete leave, and a receive that was started finds its sender and lets it send. Where that was
not possible at once, the progress thread does it (:mod:`..progress`). It calls MPI, for which
``MPI_THREAD_MULTIPLE`` is needed: under a lower level, and with ``progress=manual``, only calls of
this library advance anything.

*Threads.* A lock of the request guards all that it holds, so any thread may mark and ask. MPI is
called by the thread at hand under ``MPI_THREAD_MULTIPLE``, and by MPI's main thread only under a
lower level: marks of other threads only count then, and what they complete leaves in the next
``Pready``, ``Test`` or ``Wait`` of the main thread. No lock is held while a thread waits.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import debug, progress
from onesided.collectives.context import retire_at_end
from onesided.collectives.errors import OnesidedError, RequestError
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.partitioned.channel import (
    Channel,
    PartitionedMethod,
    Receiver,
    Sender,
    chosen,
)
from onesided.collectives.partitioned.counter import Counter, Grouping, compiled_counter
from onesided.collectives.partitioned.handshake import (
    RECEIVER,
    SENDER,
    Arguments,
    Matching,
    Parameters,
    check_fit,
)
from onesided.collectives.program import ACTIVE, BROKEN, FREED, INACTIVE, call, load
from onesided.collectives.request import Persistent


class _NoMarks:
    """The counter of a receive."""

    waiting = missing = 0


class PartitionedRequest(Persistent):
    """One side of a partitioned send; made by ``Psend_init`` and ``Precv_init``.

    ``Start`` is local and waits for nobody. ``Wait(status=None)`` waits for the peer, and for marks
    of other threads; ``Test(status=None)`` tells whether the round is complete, and makes the
    request inactive then. Both advance all requests of the process that are late. ``Wait`` returns
    the buffer as it was given.
    """

    _end: Any  # a Sender or a Receiver, once the sides know each other
    _counter: Any  # of marks

    def __init__(
        self, arguments: Arguments, matching: Matching, parameters: Parameters, hints: Hints
    ) -> None:
        super().__init__(matching.probe, hints.progress != MANUAL)
        self.arguments, self.matching, self.parameters = arguments, matching, parameters
        self.method = parameters.method  # as asked for; the transport taken, once it is known
        self._guard = threading.Lock()
        self._opened = self._begun = 0  # the round for which that has been done
        self._enlisted = False
        self._channel: Channel | None = None
        self._end = None
        self._end_owes: Callable[[], bool] | None = None  # of ends that may owe something
        self._reset: Callable[[], object] | None = None  # what begins a round, connected or not
        self._failures = matching.failures
        self._error: BaseException | None = None
        self._everywhere = progress.may_call_from_any_thread()
        self._watched = debug.observe(self)
        self._position = None if arguments.nowhere else matching.post(parameters, arguments.peer)
        load(self, 1, [[[call(self._advance, serves=False)]]], [arguments.given])
        self._made = True
        retire_at_end(self)

    # -- what a side implements ------------------------------------------------------------------

    def _connect(self, method: PartitionedMethod | None, channel: Channel) -> Sender | Receiver:
        """Local. Make this side's end; without a method, one that leads nowhere."""
        raise RequestError(f"{type(self).__name__} cannot be connected")

    def _step(self) -> bool:
        """Local. Do what can be done now; true when the round is complete on this side."""
        return True

    def _owes(self) -> bool:
        """Local. Whether the peer waits for what this side can do without the program."""
        return False

    def _forget(self, written: bool) -> None:
        """Local. Drop what was made for the other side, which may still write to it."""

    def waiting_for(self) -> str:
        """Local. What an active request lacks, in words, for the watchdog."""
        return ""

    # -- what can be asked -----------------------------------------------------------------------

    @property
    def filling(self) -> bool:
        """Local. True while it would be in vain to complete the round on the way out."""
        return self._error is not None

    @property
    def partitions(self) -> int:
        """Local. The partitions of this side."""
        return self.arguments.partitions

    @property
    def recvbuf(self) -> Any:
        """Local. The buffer as it was given."""
        return self.arguments.given

    def late(self) -> bool:
        """Local. Whether the peer waits for something that this side has still to do."""
        return bool(self._state == ACTIVE and not self._done and self._owes())

    def __repr__(self) -> str:
        side = "send to" if self.parameters.side == SENDER else "receive from"
        return (
            f"<{self.method} partitioned {side} rank {self.arguments.peer}, "
            f"tag {self.parameters.tag}: {self.state}, {self.rounds} starts>"
        )

    def Free(self) -> None:
        """Local. Give back the messages; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`, as does this one while the request
        is active. A broken round is given up, and so is that of a send whose partitions have not
        all been marked, after an exception between ``Start`` and the last mark: the peer's request
        breaks, too, and says so; what is under way is left to MPI. A request that was never
        started can be freed: its place in the order of initializations stays taken.
        """
        self._check_process("freed")
        with self._guard:
            if self._state == FREED:
                return
            given_up = self._state == ACTIVE and self._counter.missing > 0
            if self._state == ACTIVE and not given_up:
                self._refuse("freed")
            broken = given_up or self._state == BROKEN
            self._retire()
        progress.delist(self)
        if broken and self._position is not None and not isinstance(self._error, OnesidedError):
            why = "" if self._cause is None else f" after {type(self._cause).__name__}"
            self.matching.tell_failure(
                self._position, RequestError(f"a partitioned round was given up{why}")
            )
        self._unload()
        channel = self._channel
        if channel is not None:
            if broken and self.parameters.side == RECEIVER:
                self.matching.give_up(channel.comm, channel.peer, channel.sender)
            channel.close(broken)
        elif self._position is not None:
            self.matching.leave(self._position)
        self._channel = self._end = self._end_owes = None
        if not broken:  # else messages with these tags may be under way
            self.matching.give_tags(self.parameters.base)
        self._forget(broken and channel is not None)

    def retire(self) -> None:
        """Local. MPI ends: the memory of the peer goes, and from now on the request raises."""
        with self._guard:
            if self._state == FREED:
                return
            broken = self._state != INACTIVE
            self._retire()
        progress.delist(self)
        self._unload()
        channel = self._channel
        if channel is not None:
            channel.close(broken)
        self._channel = self._end = self._end_owes = None
        self._forget(broken and channel is not None)

    # -- inside ----------------------------------------------------------------------------------

    def _may_call(self) -> bool:
        """Local. Whether this thread may call MPI."""
        return self._everywhere or MPI.Is_thread_main()

    def _hear(self) -> None:
        """Raise where the peer has failed, or the sides do not fit. The caller holds the guard."""
        if self._failures and self._position is not None:
            self._error = self._failures.pop(self._position, self._error)
        if self._error is not None:
            raise self._error

    def _advance(self) -> bool:
        """What a round consists of: called until it is true."""
        with self._guard:
            self._hear()
            begins = self._begun != self.rounds
            if begins:
                begun = self._begin()
                if self._error is not None:
                    raise self._error
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
        rounds = self.rounds
        if self._opened != rounds:
            self._open_round()
        if self._channel is None and not self._meet():
            return False
        self._begun = rounds
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
        """Make the channel if the peer's parameters have come; false while they have not.

        What does not fit is kept as the error of the request. The caller holds the guard.
        """
        if self._error is not None:
            return False
        mine, position, comm = self.parameters, self._position, self.matching.comm
        theirs = mine
        if position is not None:
            found = self.matching.take(position)
            if found is None:
                return False
            theirs, comm = found
        sender, receiver = (mine, theirs) if mine.side == SENDER else (theirs, mine)
        arguments = self.arguments
        try:
            method = None
            if position is not None:
                ranks = (comm.rank, arguments.peer)
                check_fit(sender, receiver, *ranks[:: 1 if mine.side == SENDER else -1])
                method = chosen(sender, receiver)
        except OnesidedError as error:  # the peer comes to the same
            self._error = error
            return False
        grouping = Grouping.of(sender.partitions, sender.nbytes, sender.aggregate)
        channel = Channel(comm, arguments.peer, arguments.memory, grouping, sender, receiver)
        try:
            self._end = end = self._connect(method, channel)
        except Exception as error:
            channel.close()
            self._error = error
            if position is not None:
                self.matching.tell_failure(position, error)
            return False
        self._channel = channel
        if isinstance(end, Receiver) and type(end).owes is not Receiver.owes:
            self._end_owes = end.owes
        if method is not None:
            self.method = method.name
        return True

    def _refuse(self, verb: str) -> None:
        if self._state == BROKEN and isinstance(self._error, OnesidedError):
            raise self._error
        super()._refuse(verb)

    def _fill(self, status: MPI.Status | None) -> None:
        super()._fill(status)
        if status is not None and self.parameters.side == RECEIVER:
            status.source, status.tag = self.arguments.peer, self.parameters.tag
            status.Set_elements(MPI.BYTE, self.arguments.memory.size)


def _as_index(value: Any, partitions: int, what: object) -> int:
    """Local. A partition's number; :class:`RequestError` where there is no such partition."""
    if not isinstance(value, int | np.integer) or not 0 <= value < partitions:
        raise RequestError(f"no partition {value!r}: there are {partitions}, {what!r}")
    return int(value)


# -- the sending side -----------------------------------------------------------------------------


class PartitionedSend(PartitionedRequest):
    """Partitions are marked ready one by one, or many at once; groups leave when they are complete.

    A partition must not be modified from its mark until the request is inactive again. Threads may
    mark in any order and at the same time; a mark never waits for the peer.
    """

    def __init__(
        self, arguments: Arguments, matching: Matching, parameters: Parameters, hints: Hints
    ) -> None:
        """``hints.compiled``: count in C, where that has been built."""
        grouping = arguments.grouping
        self._compiled = compiled_counter(grouping) if hints.compiled else None
        self._counter = Counter(grouping) if self._compiled is None else self._compiled
        self._sums = _Checksums(arguments) if debug.enabled() else None
        super().__init__(arguments, matching, parameters, hints)
        self._reset = self._counter.reset
        if self._compiled is not None:
            self._compiled.bind(self._completed, self._mark, self._mark_range)
            if self._sums is None:
                self.__dict__["Pready"] = self._compiled.pready
                self.__dict__["Pready_range"] = self._compiled.pready_range
        if self._sums is not None:
            self._hooked = 1  # so that _after_wait is called

    @property
    def compiled(self) -> bool:
        """Local. Whether partitions are counted in C."""
        return self._compiled is not None

    @property
    def filling(self) -> bool:
        """Local. True while partitions are not ready."""
        return super().filling or self._counter.missing > 0

    def Pready(self, partition: int) -> None:
        """Local. A partition is ready; its group leaves when it is the last one of it.

        Raises :class:`RequestError`, and changes nothing, where the request is not active, the
        partition is ready already or does not exist.
        """
        self._mark(partition)

    def _mark(self, partition: int) -> None:
        counter = self._counter
        self._guard.acquire()  # "with" takes longer, and this is called for every partition
        try:
            self._check_markable()
            if partition.__class__ is not int or not 0 <= partition < self.partitions:
                partition = _as_index(partition, self.partitions, self)
            before = counter.waiting
            if not counter.mark(partition):
                raise self._twice(partition)
            if self._sums is not None:
                self._sums.marked([partition])
            if counter.waiting > before:
                self._push()
        finally:
            self._guard.release()

    def Pready_range(self, low: int, high: int) -> None:
        """Local. The partitions from ``low`` to ``high``, both included, are ready.

        Raises as :meth:`Pready` does, and :class:`RequestError` where ``low`` exceeds ``high``.
        """
        self._mark_range(low, high)

    def _mark_range(self, low: int, high: int) -> None:
        with self._guard:
            self._check_markable()
            low, high = (_as_index(value, self.partitions, self) for value in (low, high))
            if low > high:
                raise RequestError(f"no partitions from {low} to {high}: {self!r}")
            ready = self._counter.mark_range(low, high)
            if ready >= 0:
                raise self._twice(ready)
            if self._sums is not None:
                self._sums.marked(range(low, high + 1))
            if self._counter.waiting:
                self._push()

    def Pready_list(self, partitions: Iterable[int]) -> None:
        """Local. These partitions are ready. Raises as :meth:`Pready` does."""
        if not isinstance(partitions, np.ndarray):
            partitions = np.array(list(partitions))
        with self._guard:
            self._check_markable()
            if not partitions.size:
                return
            ids = self._ids(partitions)
            ready = self._counter.mark_list(ids)
            if ready >= 0:
                raise self._twice(ready)
            if self._sums is not None:
                self._sums.marked(ids.tolist())
            if self._counter.waiting:
                self._push()

    def Parrived(self, partition: int) -> bool:
        """Local. It raises: only the receiving side knows what has arrived."""
        raise RequestError(f"a send has no partition that arrives: {self!r}")

    # -- inside ----------------------------------------------------------------------------------

    def _ids(self, partitions: Any) -> NDArray[np.int64]:
        if partitions.dtype.kind not in "iu" or partitions.ndim != 1:
            raise RequestError(f"no list of partitions: {partitions!r}")
        for value in (int(partitions.min()), int(partitions.max())):
            _as_index(value, self.partitions, self)
        return np.ascontiguousarray(partitions, np.int64)

    def _check_markable(self) -> None:
        """The caller holds the guard. Another thread may be in the middle of ``Start``."""
        if self._state != ACTIVE:
            self._refuse("marked ready")
        if self._opened != self.rounds:
            self._open_round()

    def _completed(self) -> None:
        """The compiled counter has a group that it cannot send."""
        with self._guard:
            if self._state == ACTIVE:
                self._push()

    def _push(self) -> None:
        """Let go what is complete, where this thread may call MPI and the peer is known."""
        try:
            if self._everywhere or MPI.Is_thread_main():
                if self._begun == self.rounds or self._begin():
                    self._end.drain(self._counter)
            if self._counter.waiting:
                self._enlist_if_owing()
        except BaseException as error:  # what has been taken from the counter may be lost
            self._error = error
            raise

    def _connect(self, method: PartitionedMethod | None, channel: Channel) -> Sender:
        channel.compiled = self._compiled
        return (Sender if method is None else method.sender()).of(channel)

    def _step(self) -> bool:
        counter, end = self._counter, self._end
        if counter.waiting:
            end.drain(counter)
        return not (counter.missing or counter.waiting) and end.idle()

    def _owes(self) -> bool:
        return bool(self._counter.waiting > 0)

    def waiting_for(self) -> str:
        counter = self._counter
        if counter.missing:
            unmarked = counter.unmarked()
            first = ", ".join(str(index) for index in unmarked[:8])
            more = ", ..." if len(unmarked) > 8 else ""
            return f"{len(unmarked)} partitions to be marked ({first}{more})"
        return f"{counter.waiting} groups to leave, and for what has left to arrive"

    def _after_wait(self) -> None:
        if self._sums is not None:
            self._sums.check(self)

    def _breaks(self, error: BaseException | None) -> None:
        super()._breaks(error)
        self._counter.close()

    def _forget(self, written: bool) -> None:
        self._counter.close()
        if self._compiled is not None:
            for verb in ("Pready", "Pready_range"):
                self.__dict__.pop(verb, None)
            self._compiled.bind(_freed, _freed, _freed)  # or the two keep each other alive

    def _twice(self, partition: int) -> RequestError:
        return RequestError(f"partition {partition} is marked ready twice: {self!r}")


def _freed(*partition: object, **names: object) -> None:
    raise RequestError("a freed request cannot be marked ready")


class _Checksums:
    """``ONESIDED_DEBUG=1``: a partition must not change from its mark to the end of the round."""

    def __init__(self, arguments: Arguments) -> None:
        self._memory = arguments.memory
        self._part = arguments.memory.size // arguments.partitions
        self._sums: dict[int, int] = {}

    def marked(self, partitions: Iterable[int]) -> None:
        """Local. These are ready."""
        for index in partitions:
            self._sums[index] = self._sum(index)

    def check(self, request: object) -> None:
        """Local. Raises :class:`RequestError` where a partition has changed since its mark."""
        sums, self._sums = self._sums, {}
        changed = sorted(index for index, found in sums.items() if self._sum(index) != found)
        if changed:
            raise RequestError(
                f"partitions {changed[:8]} were changed after they had been marked: {request!r}"
            )

    def _sum(self, index: int) -> int:
        return zlib.crc32(self._memory[index * self._part : (index + 1) * self._part].tobytes())


# -- the receiving side ---------------------------------------------------------------------------


class PartitionedReceive(PartitionedRequest):
    """Partitions, cut as this side likes, can be read as soon as they have arrived.

    The buffer is the peer's from ``Start`` until ``Wait``, but for the partitions of which
    :meth:`Parrived` has said that they are there.
    """

    def __init__(
        self, arguments: Arguments, matching: Matching, parameters: Parameters, hints: Hints,
        give_back: Callable[[bool], object] | None,
    ) -> None:
        """``give_back``: called when the request is freed, with whether the peer may still
        write."""
        self._counter = _NoMarks()
        self._give_back = give_back
        super().__init__(arguments, matching, parameters, hints)
        if self._watched and not arguments.nowhere:
            self._reset = self._poison

    def Parrived(self, partition: int) -> bool:
        """Local. Whether a partition can be read: all groups that it is made of have come.

        True on an inactive request, as in MPI. Where it is false all requests of the process that
        are late have been advanced, so that it may be asked until it is true. Under a thread level
        below multiple that is so in the main thread; elsewhere it tells what is known already.

        Raises :class:`RequestError` where there is no such partition, on a freed request, and where
        the peer has given up; the error of the handshake comes from :meth:`Wait` and :meth:`Test`.
        """
        if self._arrived(partition):
            return True
        if self._may_call():
            progress.drive(self._probe, self)
        return False

    def _arrived(self, partition: int) -> bool:
        with self._guard:
            if self._state in (BROKEN, FREED):
                self._refuse("asked for a partition")
            index = _as_index(partition, self.partitions, self)
            if self._state != ACTIVE:
                return True
            if self._failures:
                self._hear()
            calls = self._may_call()
            if self._begun != self.rounds and not (calls and self._begin()):
                return False
            channel, end = self._channel, self._end
            if channel is None or end is None:
                return False
            part = self.arguments.memory.size // self.partitions
            first, stop = channel.grouping.covering(index * part, (index + 1) * part)
            there = end.arrived(first, stop) if calls else end.arrivals.all(first, stop)
            return bool(there)

    def Pready(self, partition: int) -> None:
        """Local. It raises: only the sending side marks."""
        raise RequestError(f"a receive has no partition to mark: {self!r}")

    def Pready_range(self, low: int, high: int) -> None:
        """Local. It raises: only the sending side marks."""
        self.Pready(low)

    def Pready_list(self, partitions: Any) -> None:
        """Local. It raises: only the sending side marks."""
        self.Pready(-1)

    # -- inside ----------------------------------------------------------------------------------

    def _connect(self, method: PartitionedMethod | None, channel: Channel) -> Receiver:
        return (Receiver if method is None else method.receiver()).of(channel)

    def _poison(self) -> None:
        self.arguments.memory[:] = 0xFF  # nothing can have come: the round has not begun

    def _step(self) -> bool:
        done: bool = self._end.advance()
        return done

    def _owes(self) -> bool:
        return self._begun != self.rounds or (self._end_owes is not None and self._end_owes())

    def waiting_for(self) -> str:
        return "its peer" if self._channel is None else "partitions to arrive"

    def _forget(self, written: bool) -> None:
        if self._give_back is not None:
            self._give_back(written)
            self._give_back = None
