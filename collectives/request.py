"""The persistent request: its states and its verbs, whatever it carries out and moves data with.

It behaves like ``mpi4py.MPI.Prequest``::

    inactive --Start()--> active --Wait(), or Test() that returns True--> inactive --Free()--> freed

It *has* an operation (what was agreed on: an exchange, a broadcast), a transport (how the data
move) and resources (what is to be given back). The transport has said at initialization what a
round consists of (:mod:`.program`); ``Start``, ``Wait`` and ``Test`` execute that, and are those of
its interpreter. Nothing here allocates per round.

*Whose is what.* The request borrows the private communicator of its context and owns its slots and
its message requests. It keeps the caller's buffers alive. A send buffer must not be modified while
the request is active; a receive buffer, or the slot that ``Wait`` returned, is the caller's from
``Wait`` until the next ``Start``, or until ``Release``.

*Failure.* An exception in the middle of a round makes the request *broken*: Ctrl-C, a signal
handler, a lack of memory, in a step or in what happens around the steps (unpacking types with
holes, telling the progress threads, ``Ready``). Every verb but ``Free`` then raises from the cause,
and ``Free``, on all ranks, gives the round up. So it does with a round that was opened and whose
filling was abandoned. Two exceptions leave all as it was: one in packing, before ``Start`` has sent
anything (it packs again), and one before ``Wait`` has executed anything (it can be called again).

*Filled rounds.* With ``Open`` instead of ``Start`` the caller writes the blocks where they belong,
chunk by chunk while they are in the cache, instead of to a send array that is then copied::

    if request.Open():
        for chunk, outlets in enumerate(request.outlets):
            for peer, part, array in outlets:
                array[...] = ...            # what would be the part of the send array
            request.Ready(chunk)
    else:                                   # a peer may still be reading the round before
        send[...] = ...
        request.Start()
    received = request.Wait()
    ...                                     # read it for the last time
    request.Release()                       # from now on peers may write the next round

Every rank decides on its own: one may open a round that another one starts.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from onesided.collectives import profiling, progress
from onesided.collectives.agreement import agree, agreed, largest
from onesided.collectives.context import Resources, Scoped, interrupts_later
from onesided.collectives.errors import RequestError, UnsupportedError, in_forked_child
from onesided.collectives.hints import MANUAL
from onesided.collectives.program import (
    ACTIVE,
    ALL_CALLS,
    BROKEN,
    FREED,
    INACTIVE,
    LOCAL_CALLS,
    Hooks,
    Rounds,
    load,
)
from onesided.collectives.steps import Plan
from onesided.collectives.transport import Credit, Operation, Outlet, Transport

STATES = {INACTIVE: "inactive", ACTIVE: "active", BROKEN: "broken", FREED: "freed"}


class Persistent(Rounds, Hooks, Scoped):
    """The states of a persistent request, collective or not, and what its rounds ask for.

    ``probe`` drives MPI on the request's communicator. ``by_thread``: threads may advance the
    request. ``driven`` counts how often a call for another request has moved it, and
    ``helped_by_python`` how often the progress thread of Python has (``helped``: the core's).
    """

    @property
    def any_order(self) -> bool:
        """Local. Ranks may start and complete such requests in different orders."""
        return True

    @property
    def turn(self) -> tuple[int, int]:
        """Local, internal. The place among strictly ordered requests."""
        return (0, 0)

    noun = "request"  # in messages
    _made = False  # what was not made to its end needs no Free

    def __init__(self, probe: Callable[..., object], by_thread: bool) -> None:
        super().__init__()
        self._probe = probe
        self._by_thread = self._by_python = int(by_thread)
        self.driven = self.helped_by_python = 0
        self._label = ""
        profiling.know(self)
        self.cause: BaseException | None = None  # of a broken round

    @property
    def label(self) -> str:
        """Local. The program's word; it tells requests apart in a profile (:mod:`.profiling`)."""
        return self._label

    @label.setter
    def label(self, word: Any) -> None:
        self._label = str(word)  # what the program's own class raises is raised here

    @property
    def state(self) -> str:
        """Local. ``"inactive"``, ``"active"``, ``"broken"`` or ``"freed"``."""
        return STATES[self._state]

    @property
    def filling(self) -> bool:
        """Local, internal. True while the caller has to do something before the round can end."""
        return bool(self._unready)

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return bool(self._state == ACTIVE)

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Local. Whether the round is complete; it does not make the request inactive.

        True on an inactive request. It does what ``Test`` does, otherwise.
        """
        if self._state in (BROKEN, FREED):
            self._refuse("asked for its status")
        self._check_process("asked for its status")
        if self._state == ACTIVE and not self._unready and not self._done:
            level = ALL_CALLS if not self._hooked or self._before_test() else LOCAL_CALLS
            self.advance(level)
            if not self._done:
                self._drive()
                self.advance(level)
            if self._state in (BROKEN, FREED):  # another thread has met an error, or freed it
                self._refuse("asked for its status")
        if self._state == ACTIVE and not self._done:
            return False
        self._fill(status)
        return True

    def give_up(self, error: BaseException) -> None:
        """Local, internal. Nobody will complete the round that is active, if one is: the request is
        broken by this error."""
        self._break(error)

    def retire(self) -> None:
        """Local, internal. MPI ends before the request has been freed: from now on it raises, also
        where another thread waits for it."""
        self._retire()
        self._unload()
        progress.delist(self)

    def described(self) -> tuple[str, int]:
        """Local, internal. What a profile calls it, and the bytes that this rank sends in a round,
        where they are known."""
        return self.noun, 0

    def Cancel(self) -> None:
        """Local. It raises: persistent collectives and partitioned sends cannot be canceled
        (MPI-4.1 sections 3.8.4 and 7.13)."""
        self._refuse("canceled; nothing persistent can be")

    def __del__(self) -> None:
        if self._made and self._state != FREED:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    def complete_at_end(self) -> bool:
        """Local, internal. At the end of the program: advance a round, and MPI, of which other
        ranks may need that; whether the round is under way still."""
        if self.active:
            progress.attempt(self, LOCAL_CALLS)
            self._drive()
        return self.active and not self._done

    def _agree_to_free(self, comm: MPI.Comm, name: str) -> tuple[bool, bool, int]:
        """Collective. Raise on every rank where the round is active on any, and lost on none.

        It is lost where it is broken, or was opened and not filled. Returns whether it is lost,
        whether any rank is in the middle of its steps, or has not started a round that another one
        has, so that epochs may be open and data on their way, and the largest number of a round.
        From now on no thread starts a round, nor begins to wait for other ranks in one that is
        lost; where it raises they may again.
        """
        self._check_process("freed")
        self._freeing = 1
        try:
            return self._agreed_to_free(comm, name)
        except BaseException:
            self._freeing = 0
            raise

    def _agreed_to_free(self, comm: MPI.Comm, name: str) -> tuple[bool, bool, int]:
        lost = self._state == BROKEN or (self._state == ACTIVE and bool(self._unready))
        active = self._state == ACTIVE and not lost
        unfinished = (lost or active) and not self._done
        inside: Exception | None = None
        try:
            self._refuse_inside()
            if self._opening:
                self._refuse("freed while another thread opens a round")
            self._check_calls()
        except RequestError as problem:
            inside = problem
        words = [lost, active, unfinished, self._number, self.rounds, -self.rounds]
        any_lost, any_active, torn, reached, most, least = largest(comm, inside, name, words)
        if any_active and not any_lost:
            agree(comm, self._misuse("freed") if active else None, name)  # it raises on all
        if any_lost and not self.any_order:
            self._freeing = 2
            with agreed(comm, name):  # a thread may have come since
                self._check_calls()
        # what has left for a rank that has not started the round is on its way
        return bool(any_lost), bool(torn or (any_lost and most != -least)), reached

    def _check_calls(self) -> None:
        """Local. Raise where a thread is in a call that only other ranks can end."""
        if self._calling and not self.any_order:
            self._refuse("freed while another thread waits in it for other ranks")

    # -- what the interpreter asks ----------------------------------------------------------------

    def _retire(self) -> None:
        profiling.forget(self)
        super()._retire()

    def _misuse(self, verb: str) -> RequestError:
        state, why = self.state, ""
        if self._state == BROKEN:
            what = "an exception" if self.cause is None else type(self.cause).__name__
            words = f" ({self.cause})" if str(self.cause or "") else ""
            why = f", because {what}{words} was raised in the middle of a round; free it"
        article = "an" if state[0] in "ai" else "a"
        return RequestError(f"{article} {state} {self.noun} cannot be {verb}: {self!r}{why}")

    def _refuse(self, verb: str) -> None:
        raise self._misuse(verb) from self.cause

    def _check_process(self, verb: str) -> None:
        if in_forked_child():
            self._refuse(f"{verb} in a forked child, whose memory is its parent's")

    def _inactive(self, verb: str) -> Any:
        if self._state != INACTIVE:
            self._refuse(verb)
        return self._answers[self._slot]

    def _fill(self, status: MPI.Status | None) -> None:
        """The status of a collective, and of a send, is empty (MPI-4.1 section 3.7.3)."""
        if status is not None:
            status.source, status.tag, status.error = MPI.ANY_SOURCE, MPI.ANY_TAG, MPI.SUCCESS
            status.Set_elements(MPI.BYTE, 0)

    def _drive(self) -> None:
        progress.drive(self._probe, self)

    def _enlist(self) -> None:
        progress.enlist(self, bool(self._by_python))

    def _delist(self) -> None:
        progress.delist(self)

    def _breaks(self, error: BaseException | None) -> None:
        self.cause = error
        progress.delist(self)


class Request(Persistent):
    """A persistent collective; made by an initialization function, never directly.

    ``setup_time`` is the time that initialization took on this rank, in seconds. ``chosen_by``
    says by what ``auto`` chose the method, empty where the caller did: by measuring, now or
    before, or by what usually wins.

    Examples
    --------
    >>> request = Alltoall_init(comm, np.zeros(comm.size), None, method="rma-notify")
    >>> request.Start()
    >>> request.active
    True
    >>> request.Wait().size == comm.size
    True
    >>> request.state
    'inactive'
    >>> request.Free()
    """

    def __init__(self, operation: Operation, transport: Transport, resources: Resources) -> None:
        super().__init__(operation.context.comm.Iprobe, operation.hints.progress != MANUAL)
        self.operation, self.transport, self.resources = operation, transport, resources
        self.method = operation.method
        self.setup_time = 0.0
        self.chosen_by = ""
        self.again: Callable[..., Request] | None = None
        self.watch: Any = None
        self._outlets: list[list[list[Outlet]]] = []  # by slot and chunk, from their first use
        self._written = bytearray(transport.chunks)
        self._sending: list[int] = []  # threads in the middle of sending a chunk
        self._filled = self._sends = False  # the programs of filled rounds are there; send chunks
        self._before: Callable[[], object] | None = None
        self._after: Callable[[Any], object] | None = None
        if not transport.as_given:
            self._before, self._after = operation.before, operation.after
        self._load_plans([])
        resources.belong_to(self)
        hooks = self._before is not None or self._after is not None
        self._waits_in_start = transport.waits_in_start
        if self._blocks or hooks or self._waits_in_start:
            self._hooked = 1
        self._made = True

    # -- what can be asked ---------------------------------------------------------------------

    @property
    def any_order(self) -> bool:
        """Local. Ranks may start and complete requests of this method in different orders."""
        return self.operation.any_order

    @property
    def sendbuf(self) -> Any:
        """Local. The send data as the caller gave them."""
        return self.operation.sent

    @property
    def packed(self) -> tuple[Any, Any]:
        """Local. The array that is sent, and the numbers of its rows as ``rows`` of
        :func:`Alltoallw_init` has them: what a caller who gave these writes before a round. The
        same in all rounds; the caller's until ``Free``."""
        if self._state == FREED:
            self._refuse("asked for its rows")
        operation: Any = self.operation
        if getattr(operation, "rows", None) is None:
            raise UnsupportedError("the rows of the send array have no numbers")
        return self.transport.packed or (operation.send.array, operation.rows)

    @property
    def recvbuf(self) -> Any:
        """Local. The receive array of the last round (before the first: of the first)."""
        if self._state == FREED:
            self._refuse("asked for its buffer")
        return self._answers[self._slot]

    @property
    def direct(self) -> bool:
        """Local, internal. The caller of an opened round can write where the blocks belong."""
        return self.transport.direct and self._before is None

    @property
    def turn(self) -> tuple[int, int]:
        """Local, internal. The place among strictly ordered requests, the same on all ranks."""
        if self.any_order:
            return (0, 0)
        return (self.operation.context.number, self.operation.number)

    @property
    def outlets(self) -> list[list[Outlet]]:
        """Local. By chunk, where the caller of an opened round writes: (peer, part, array).

        ``part`` is a box of the send array, and ``array`` takes what would be there: the peer's
        own memory where it is visible, a buffer of the request, or the part itself. The block
        that this rank sends to itself is included. They are those of the active round, or of the
        next one; where boxes are received into memory from :func:`empty`, or by messages, they are
        the same in all rounds. They are the caller's until ``Free``.
        """
        if self._state == FREED:
            self._refuse("asked for its outlets")
        if not self._outlets:
            self._outlets = self.transport.outlets()
        slot = self._slot if self._state == ACTIVE else self.rounds
        return self._outlets[slot % len(self._outlets)]

    @property
    def granted(self) -> bool:
        """Local, internal. True where peers may write the next round already."""
        credit = self.transport.credit
        return credit is not None and credit.granted > credit.number

    def described(self) -> tuple[str, int]:
        operation: Any = self.operation
        call = getattr(operation, "call", None) or getattr(operation, "name", "Bcast")
        nbytes = getattr(operation, "nbytes", 0)
        if hasattr(operation, "send"):
            nbytes = sum(b.size for b in operation.send.blocks) * operation.send.dtype.itemsize
        return f"{call} by {operation.method}", int(nbytes)

    def waiting_for(self) -> str:
        """Local, internal. What an active request lacks, in words, for the watchdog."""
        chains = [f"{here} of {count}" for here, count in self.stands() if here < count]
        where = f"; chains at step {', '.join(chains)}" if chains else ""
        return f"{self.transport.waiting_for(self._number)}{where}"

    def __repr__(self) -> str:
        number, by = self.operation.number, f", by {self.chosen_by}" if self.chosen_by else ""
        return f"<{self.method} request {number}{by}: {self.state}, {self.rounds} starts>"

    def __del__(self) -> None:
        # data may be on their way: the end of MPI completes it, or frees nothing where it is broken
        if self._made and self._state in (ACTIVE, BROKEN):
            self.resources.keep.append(self)
            self.resources.belong_to(self)
        super().__del__()  # a warning may have been made an error

    # -- the verbs: Start, Wait and Test are the interpreter's ------------------------------------

    def Free(self) -> None:
        """Collective. Give back memory and message requests; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`. So does this one, on every rank,
        while the request is active on any: it can be completed, and freed then. But where it is
        broken, or was opened and not filled, on any rank, its round is given up on all; another
        thread that is in it leaves with :class:`RequestError`, which this call waits for. Out of a
        call of MPI that waits for other ranks (in strictly ordered methods) it cannot: this one
        raises then, on every rank. Memory that the caller still looks at stays mapped.
        """
        if self._state == FREED:
            return
        comm, name = self.resources.context.comm, f"Free of request {self.operation.number}"
        credit, own = self.transport.credit, self._state in (ACTIVE, BROKEN)
        with interrupts_later():  # the others would be freed, and this one not
            lost, torn, reached = self._agree_to_free(comm, name)
            self.retire()
            self.resources.release(torn)
            if credit is not None and lost:
                credit.settle(reached, own)  # others that alternate with it can be started again

    def like(self, *buffers: Any) -> Request:
        """Collective. Another request of the same pattern, by the same method, on other buffers.

        Neighbors are known, so nobody asks who has something for whom, and nothing is measured.
        The new request is independent of this one, which may be active or broken meanwhile.

        Parameters
        ----------
        buffers
            What the initialization function was given first: ``sendbuf, recvbuf``, of a broadcast
            ``buf``. They describe the same blocks of the same types; their memory may be of
            another kind (plain, from :func:`empty`, None for the request's own).

        Raises
        ------
        RequestError
            This request has been freed.
        PatternError, MismatchError, UnsupportedError, ResourceError
            On every rank: blocks that differ from this request's on any rank, or what the method
            refuses.
        """
        self._check_process("repeated on other buffers")
        if self._state == FREED or self.again is None:
            self._refuse("repeated on other buffers")
        again: Callable[..., Request] = self.again  # type: ignore[assignment]
        return again(self, *buffers)

    def Open(self) -> bool:
        """Local (in strictly ordered methods it waits for the other ranks). Start a round that the
        caller fills, where every rank that it sends to has given up its receive memory.

        True: the request is active. Write every chunk of every block to :attr:`outlets` and tell
        it by :meth:`Ready`, then :meth:`Wait` or :meth:`Test`.

        False: nothing has been started. This rank's own senders may write, as after
        :meth:`Release`. Fill the send array and call :meth:`Start`, or ask again. Methods without
        a direct way to the peers always return False.

        Raises :class:`RequestError` as :meth:`Start` does.
        """
        if self._opening or self._freeing:  # by another thread, or by what a handler interrupts
            if self._state != INACTIVE or in_forked_child():
                self._give_up("opened")  # it raises, and says why
            self._refuse("opened while another call opens or frees it")
        self._opening = 1
        try:
            self._give_up("opened")
            return self.direct and self._opened()
        finally:
            self._opening = 0

    def _opened(self) -> bool:
        """``Open``, of which there is one at a time, and no ``Start``."""
        transport = self.transport
        if not self._filled:
            self._outlets = transport.outlets()
            self._load_plans(transport.filled_plans())
            self._sends = transport.sends_chunks()
            self._filled = True
        if self._waits_in_start:
            self._complete_earlier()
        if self.watch is not None:
            self.watch.before_open()
        chunks = len(self._written)
        try:
            if not transport.may_open(self.rounds):
                return False
            self._open(max(chunks, 1))
            for chunk in range(chunks):
                self._written[chunk] = 0
            if self._hooked:
                self._after_start()
            if not chunks:
                self._fill_chunk()
        except BaseException as error:
            if self._state == INACTIVE:  # a fence may have been passed, a message may come
                self._open(1)
            self._break(error)
            raise
        return True

    def Ready(self, chunk: int) -> None:
        """Local. The caller has written a chunk of every block to its outlets; it leaves now.

        Every chunk of an opened round is told once, in any order. What was written to the memory
        of a peer needs nothing more; where Puts or messages are issued, this moves earlier ones
        as well. Raises :class:`RequestError` outside of an opened round, and for a chunk that is
        ready already or does not exist.
        """
        known = 0 <= chunk < len(self._written) and not self._written[chunk]
        if self._state != ACTIVE or not self._unready or not known or in_forked_child():
            raise self._unexpected(chunk)
        try:
            self._written[chunk] = 1
            sent = self._sends and self._send_chunk(self._slot, chunk)
            self._fill_chunk()
            if sent:
                progress.drive(self._probe, self)
        except BaseException as error:
            self._break(error)
            raise

    def _send_chunk(self, slot: int, chunk: int) -> bool:
        """Free by another thread has retired the request, or sees that it has to wait."""
        me = threading.get_ident()
        try:
            self._sending.append(me)
            return self._state == ACTIVE and self.transport.send_chunk(slot, chunk)
        finally:
            if me in self._sending:
                self._sending.remove(me)

    def mark(self, chunk: int) -> Callable[[], object]:
        """Local, internal. ``Ready(chunk)`` as a call for scripts; the core's own where that is
        all."""
        if len(self._written) == 1 and not self.transport.sends_chunks():  # before any Open, too
            found: Callable[[], object] = self._fill_chunk
            return found
        return functools.partial(self.Ready, chunk)

    def Release(self) -> None:
        """Local. The receive memory has been read for the last time: peers may write to it.

        Without it that is so from the next :meth:`Start` or :meth:`Open`. The caller neither reads
        nor writes the receive blocks until the next :meth:`Wait`. Of requests that alternate, one
        says so for all. A second call does nothing; nor does any where peers never wait for it, or
        where the data to be sent are in that memory (``MPI.IN_PLACE``).

        Raises :class:`RequestError` where the request is active or freed.
        """
        self._give_up("released")

    # -- inside ----------------------------------------------------------------------------------

    def alternate_in(self, credit: Credit) -> None:
        """Local, internal, in the same order on all ranks. Count rounds, and give credit, with a
        memory."""
        number, before = self.operation.number, self.transport.credit
        if before is not None:
            before.leave(number)
        self.transport.credit = credit
        self._count_with(credit)
        credit.join(number, self.transport.creditor())
        self.resources.on_release(functools.partial(credit.leave, number))

    def observe(self, watch: Any) -> None:
        """Local, internal. Tell an observer of every verb (:mod:`.debug`)."""
        self.watch = watch
        self._waits_in_start |= not self.any_order  # they are compared
        self._hooked = 1

    def retire(self) -> None:
        """Local, internal. Drop every view of the memory: the request is freed, was not built on
        another rank, or MPI ends."""
        super().retire()
        while set(self._sending) - {threading.get_ident()}:
            os.sched_yield()
        if self.watch is not None:
            self.watch.stop()
            self.watch = None
        self._outlets, self._before, self._after = [], None, None
        self.transport.forget()
        self._leave_order()
        self.cause = None

    def _load_plans(self, filled: list[Plan]) -> None:
        transport = self.transport
        plans, answers = transport.plans(), transport.answers
        given = [answers[slot % len(answers)] for slot in range(len(plans))]
        load(self, plans + filled, given, transport.credit)

    def _give_up(self, verb: str) -> None:
        """Grant the next round, unless that has been done."""
        credit = self.transport.credit
        if in_forked_child() or self._state != INACTIVE or (credit is not None and credit.busy):
            self._check_process(verb)
            self._refuse(verb)
        if self._before is not None:
            return  # what Start reads may be in the receive memory
        if self.watch is not None:
            self.watch.give_up(self.rounds)
        if credit is not None:
            credit.grant()

    def _misuse(self, verb: str) -> RequestError:
        credit = self.transport.credit if self._state == INACTIVE else None
        if credit is not None and credit.busy:
            words = "while one into the same memory is active"
            return RequestError(f"{self!r} cannot be {verb}, {words}")
        return super()._misuse(verb)

    def _unexpected(self, chunk: int) -> RequestError:
        self._check_process("told that a chunk is ready")
        if self._state != ACTIVE or not self._unready:
            return RequestError(f"chunk {chunk} of {self!r}, which has no chunk to be written")
        count = len(self._written)
        known = "is ready already" if 0 <= chunk < count else f"does not exist, there are {count}"
        return RequestError(f"chunk {chunk} {known}: {self!r}")

    # -- what the interpreter asks ----------------------------------------------------------------

    def _inactive(self, verb: str) -> Any:
        if self._unready and self._state == ACTIVE:
            missing = [chunk for chunk, ready in enumerate(self._written) if not ready]
            raise RequestError(f"the chunks {missing} are not ready: {self!r}")
        return super()._inactive(verb)

    def _before_start(self) -> None:
        if self._waits_in_start:
            self._complete_earlier()
        if self._before is not None:
            self._before()
        if self.watch is not None:
            self.watch.before_start(self.rounds)

    def _after_start(self) -> None:
        if self._blocks:
            self.operation.context.ordered.append(self)

    def _complete_earlier(self) -> None:
        """What waits for other ranks before this round has begun does so after what the rounds
        before wait for: ranks may wait for these before they start this one."""
        for earlier in list(self.operation.context.ordered):
            if earlier._unready:  # the caller fills it: nor can those behind it be completed here
                break
            earlier.complete_early()

    def _earlier(self) -> list[Request]:
        """Those that wait for other ranks, and were started before this one."""
        queue: list[Request] = list(self.operation.context.ordered)  # another thread may change it
        return queue[: queue.index(self)] if self in queue else []

    def _before_wait(self) -> None:
        """What waits for other ranks does so in the order of the starts, whatever is waited for."""
        for earlier in self._earlier():
            earlier.complete_early(self)

    def _before_test(self) -> bool:
        for earlier in self._earlier():
            if earlier in self._earlier():  # which another thread has not begun anew meanwhile
                earlier.advance(ALL_CALLS)
                if not earlier._done:
                    return False
        return True

    def complete_early(self, later: Request | None = None) -> None:
        """Local, internal. A round of a ``later`` request is waited for, or begins: do what this
        one's needs, and stay active. Another thread may complete it, and start it again after the
        later one."""
        rounds = self.rounds
        while (not self._done and self.rounds == rounds
               and (later is None or self in later._earlier())):  # fmt: skip
            if self._unready:
                self._inactive("completed before a later one")
            self.advance(ALL_CALLS)
            if self._state in (BROKEN, FREED):
                self._refuse("completed before a later one")
            if not self._done:
                self._drive()
                os.sched_yield()

    def _leave_order(self) -> None:
        queue = self.operation.context.ordered
        if self in queue:
            queue.remove(self)

    def _breaks(self, error: BaseException | None) -> None:
        super()._breaks(error)
        self._leave_order()

    def _after_wait(self) -> None:
        self._leave_order()
        if self.watch is not None:
            self.watch.after_wait()
        if self._after is not None:
            arrays = self.transport.arrays
            self._after(arrays[self._slot % len(arrays)])
