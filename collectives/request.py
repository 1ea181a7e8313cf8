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

*Failure.* An exception in the middle of a round (Ctrl-C, a signal handler, a lack of memory) makes
the request *broken*: every verb but ``Free`` raises, and says why.

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
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mpi4py import MPI

from onesided.collectives import debug, progress
from onesided.collectives.agreement import agree, largest
from onesided.collectives.context import Resources, Scoped
from onesided.collectives.errors import OnesidedError, RequestError, UnsupportedError
from onesided.collectives.hints import MANUAL, Hints
from onesided.collectives.operation import Operation
from onesided.collectives.program import (
    ACTIVE,
    BROKEN,
    COMPILED,
    FREED,
    INACTIVE,
    Plan,
    Rounds,
    load,
)
from onesided.collectives.registry import Method
from onesided.collectives.transport import Credit, Outlet, Transport

STATES = {INACTIVE: "inactive", ACTIVE: "active", BROKEN: "broken", FREED: "freed"}


class Persistent(Rounds, Scoped):
    """The states of a persistent request, collective or not, and what its rounds ask for.

    ``probe`` drives MPI on the request's communicator. ``by_thread``: a thread may advance the
    request; ``by_python``: that takes calls of Python.
    """

    @property
    def any_order(self) -> bool:
        """Local. Ranks may start and complete such requests in different orders."""
        return True

    @property
    def turn(self) -> tuple[int, int]:
        """Local. The place among strictly ordered requests."""
        return (0, 0)

    #: What messages call it.
    noun = "request"
    _made = False  # what was not made to its end needs no Free

    def __init__(
        self, probe: Callable[..., object], by_thread: bool, by_python: bool = True
    ) -> None:
        super().__init__()
        self._probe, self._by_thread = probe, int(by_thread)
        self._by_python = by_thread and (by_python or not COMPILED)
        self._cause: BaseException | None = None

    @property
    def state(self) -> str:
        """Local. ``"inactive"``, ``"active"``, ``"broken"`` or ``"freed"``."""
        return STATES[self._state]

    @property
    def filling(self) -> bool:
        """Local. True while the caller has to do something before the round can end."""
        return bool(self._unready)

    @property
    def active(self) -> bool:
        """Local. True between ``Start`` and completion."""
        return bool(self._state == ACTIVE)

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Local. Whether the round is complete; it does not make the request inactive.

        True on an inactive request.
        """
        if self._state in (BROKEN, FREED):
            self._refuse("asked for its status")
        if self._state == ACTIVE and not self._unready and not self._done:
            self.advance(True)
            if not self._done:
                self._drive()
                self.advance(True)
            if self._state == BROKEN:
                self._refuse("asked for its status")
        if self._state == ACTIVE and not self._done:
            return False
        self._fill(status)
        return True

    def Cancel(self) -> None:
        """Local. It raises: persistent collectives and partitioned sends cannot be canceled
        (MPI-4.1 sections 3.8.4 and 7.13)."""
        self._refuse("canceled; nothing persistent can be")

    def __del__(self) -> None:
        if self._made and self._state != FREED:
            warnings.warn(f"{self!r} was never freed", ResourceWarning, source=self, stacklevel=2)

    # -- what the interpreter asks ----------------------------------------------------------------

    def _misuse(self, verb: str) -> RequestError:
        state, why = self.state, ""
        if self._state == BROKEN:
            what = type(self._cause).__name__ if self._cause is not None else "an exception"
            why = f", because {what} was raised in the middle of a round; free it"
        article = "an" if state[0] in "ai" else "a"
        return RequestError(f"{article} {state} {self.noun} cannot be {verb}: {self!r}{why}")

    def _refuse(self, verb: str) -> None:
        raise self._misuse(verb)

    def _inactive(self, verb: str) -> Any:
        if self._state != INACTIVE:
            self._refuse(verb)
        return self._answers[self._slot]

    def _fill(self, status: MPI.Status | None) -> None:
        """The status of a collective, and of a send, says nothing (MPI-4.1 section 3.7.3: it is
        empty)."""
        if status is not None:
            status.source, status.tag, status.error = MPI.ANY_SOURCE, MPI.ANY_TAG, MPI.SUCCESS
            status.Set_elements(MPI.BYTE, 0)

    def _drive(self) -> None:
        progress.drive(self._probe, self)

    def _enlist(self) -> None:
        progress.enlist(self, self._by_python)

    def _delist(self) -> None:
        progress.delist(self)

    def _breaks(self, error: BaseException | None) -> None:
        self._cause = error
        progress.delist(self)

    # where _hooked is set, around the verbs

    def _before_start(self) -> None: ...

    def _after_start(self) -> None: ...

    def _before_wait(self) -> None: ...

    def _after_wait(self) -> None: ...


class Request(Persistent):
    """A persistent collective; made by an initialization function, never directly.

    ``setup_time`` is the time that initialization took on this rank, in seconds. ``chosen_by``
    says by what ``auto`` chose the method, empty where the caller did: by measuring, now or
    before, or by what usually wins.
    """

    def __init__(self, operation: Operation, transport: Transport, resources: Resources) -> None:
        super().__init__(
            operation.context.comm.Iprobe, operation.hints.progress != MANUAL,
            transport.needs_mpi_thread(),
        )  # fmt: skip
        self.operation, self.transport, self.resources = operation, transport, resources
        self.method = operation.method
        self.setup_time = 0.0
        self.chosen_by = ""
        self.again: Callable[..., Request] | None = None
        self.watch: Any = None
        self._outlets: list[list[list[Outlet]]] = []  # by slot and chunk, from their first use
        self._written = bytearray(transport.chunks)
        self._filled = False  # the programs of filled rounds are there
        self._before: Callable[[], object] | None = None
        self._after: Callable[[Any], object] | None = None
        if not transport.as_given:
            self._before, self._after = operation.before, operation.after
        self._load_plans([])
        if not operation.any_order or self._before is not None or self._after is not None:
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
    def recvbuf(self) -> Any:
        """Local. The receive array of the last round (before the first: of the first)."""
        if self._state == FREED:
            self._refuse("asked for its buffer")
        return self._answers[self._slot]

    @property
    def direct(self) -> bool:
        """Local. The caller of an opened round can write where the blocks belong."""
        return self.transport.direct and self._before is None

    @property
    def turn(self) -> tuple[int, int]:
        """Local. The place among strictly ordered requests, the same on all ranks."""
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
        slots = len(self._outlets)
        return self._outlets[self._slot if self._state == ACTIVE else self.rounds % slots]

    @property
    def granted(self) -> bool:
        """Local. True where peers may write the next round already."""
        credit = self.transport.credit
        return credit is not None and credit.granted > credit.number

    @property
    def alternates(self) -> bool:
        """Local. True where the receive memory is that of other requests as well."""
        return self.transport.credit is not None and self.transport.credit.joint

    def waiting_for(self) -> str:
        """Local. What an active request lacks, in words, for the watchdog."""
        chains = [f"{here} of {count}" for here, count in self.stands() if here < count]
        where = f"; chains at step {', '.join(chains)}" if chains else ""
        return f"{self.transport.waiting_for(self._number)}{where}"

    def __repr__(self) -> str:
        number, by = self.operation.number, f", by {self.chosen_by}" if self.chosen_by else ""
        return f"<{self.method} request {number}{by}: {self.state}, {self.rounds} starts>"

    # -- the verbs: Start, Wait and Test are the interpreter's ------------------------------------

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Local. Whether the round is complete; it does not make the request inactive.

        True on an inactive request, false on an active one that is strictly ordered.
        """
        if self._state == ACTIVE and not self._done and not self.any_order:
            return False  # to ask would be to wait
        return super().Get_status(status)

    def Free(self) -> None:
        """Collective. Give back memory and message requests; a second call does nothing.

        Any other call afterwards raises :class:`RequestError`. So does this one, on every rank,
        while the request is active on any: it can be completed, and freed then. Memory that the
        caller still looks at stays mapped.
        """
        if self._state == FREED:
            return
        error = None
        if self._state == ACTIVE:
            error = self._misuse("freed")
        comm, name = self.resources.context.comm, f"Free of request {self.operation.number}"
        agree(comm, error, name)  # of two words, as every first agreement: others may be elsewhere
        broken = 0
        if self.resources.has_epochs:
            (broken,) = largest(comm, None, name, [self._state == BROKEN])
        self._end()
        self.resources.release(bool(broken))

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
        if self._state == FREED or self.again is None:
            self._refuse("repeated on other buffers")
        again: Callable[..., Request] = self.again  # type: ignore[assignment]
        return again(self, *buffers)

    def Open(self) -> bool:
        """Local (in strictly ordered methods it may wait for the other ranks). Start a round that
        the caller fills, where every rank that it sends to has given up its receive memory.

        True: the request is active. Write every chunk of every block to :attr:`outlets` and tell
        it by :meth:`Ready`, then :meth:`Wait` or :meth:`Test`.

        False: nothing has been started. This rank's own senders may write, as after
        :meth:`Release`. Fill the send array and call :meth:`Start`, or ask again. Methods without
        a direct way to the peers always return False.

        Raises :class:`RequestError` as :meth:`Start` does.
        """
        self._give_up("opened")
        transport = self.transport
        if not self.direct:
            return False
        if not self._filled:
            self._filled = True
            self._outlets = transport.outlets()
            self._load_plans(transport.filled_plans())
        if self.watch is not None:
            self.watch.before_open()
        if not transport.may_open(self.rounds):
            return False
        chunks = len(self._written)
        self._open(chunks)
        for chunk in range(chunks):
            self._written[chunk] = 0
        if self._hooked:
            self._after_start()
        if not chunks:
            self._fill_chunk()
        return True

    def Ready(self, chunk: int) -> None:
        """Local. The caller has written a chunk of every block to its outlets; it leaves now.

        Every chunk of an opened round is told once, in any order. What was written to the memory
        of a peer needs nothing more; where Puts or messages are issued, this moves earlier ones
        as well. Raises :class:`RequestError` outside of an opened round, and for a chunk that is
        ready already or does not exist.
        """
        if not self._unready or not 0 <= chunk < len(self._written) or self._written[chunk]:
            raise self._unexpected(chunk)
        self._written[chunk] = 1
        sent = self.transport.send_chunk(self._slot, chunk)
        self._fill_chunk()
        if sent:
            progress.drive(self._probe, self, ordered=False)

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
        """Local, in the same order on all ranks. Count rounds, and give credit, with a memory."""
        number, before = self.operation.number, self.transport.credit
        if before is not None:
            before.drop(number)
        self.transport.credit = credit
        self._count_with(credit)
        credit.join(number, self.transport.creditor())
        self.resources.on_release(functools.partial(credit.leave, number))

    def observe(self, watch: Any) -> None:
        """Local. Tell an observer of every verb (:mod:`.debug`)."""
        self.watch = watch
        self._hooked = 1

    def discard(self) -> None:
        """Local. What remains of a request that another rank could not build."""
        self._end()

    def _end(self) -> None:
        progress.delist(self)
        self._retire()
        if self.watch is not None:
            self.watch.stop()
            self.watch = None
        self._unload()
        self._outlets, self._before, self._after = [], None, None
        self.transport.forget()
        queue = self.operation.context.ordered
        if self in queue:
            queue.remove(self)

    def _load_plans(self, filled: list[Plan]) -> None:
        transport = self.transport
        plans, answers = transport.plans(), transport.answers
        slots = len(plans)
        given = [answers[slot % len(answers)] for slot in range(slots)]
        load(self, slots, plans + filled, given, transport.credit)

    def _give_up(self, verb: str) -> None:
        """Grant the next round, unless that has been done."""
        credit = self.transport.credit
        if self._state != INACTIVE or (credit is not None and credit.busy):
            self._refuse(verb)
        if self._before is not None:
            return  # what Start reads may be in the receive memory
        if self.watch is not None:
            self.watch.give_up(self.rounds)
        if credit is not None:
            credit.grant()

    def _misuse(self, verb: str) -> RequestError:
        credit = self.transport.credit
        if self._state == INACTIVE and credit is not None and credit.busy:
            return RequestError(
                f"{self!r} cannot be {verb}, while one into the same memory is active"
            )
        return super()._misuse(verb)

    def _unexpected(self, chunk: int) -> RequestError:
        if not self._unready:
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
        if self._before is not None:
            self._before()
        if self.watch is not None:
            self.watch.before_start(self.rounds)

    def _after_start(self) -> None:
        if not self.any_order:
            self.operation.context.ordered.append(self)

    def _before_wait(self) -> None:
        """Strictly ordered requests of a communicator are completed in the order of their starts:
        earlier ones first, whichever is waited for."""
        queue = self.operation.context.ordered
        while not self.any_order and queue and queue[0] is not self and self in queue:
            queue[0].complete_early()
        if self.watch is not None:
            self.watch.before_wait()

    def complete_early(self) -> None:
        """A round of a later request is waited for: do what this one's needs, and stay active."""
        while not self._done:
            if self._unready:
                self._inactive("completed before a later one")
            if self.watch is not None:
                self.watch.before_wait()
            self.advance(True)
            if self._state != ACTIVE:
                self._refuse("completed before a later one")
            if not self._done:
                self._drive()
        queue = self.operation.context.ordered
        if self in queue:
            queue.remove(self)

    def _after_wait(self) -> None:
        queue = self.operation.context.ordered
        if self in queue:
            queue.remove(self)
        if self.watch is not None:
            self.watch.after_wait()
        if self._after is not None:
            arrays = self.transport.arrays
            self._after(arrays[self._slot % len(arrays)])


def build(operation: Operation, method: Method, keep: Iterable[object]) -> Request:
    """Collective. The request; what was made for it is given back where any rank fails.

    ``keep``: the buffers that MPI or peers may touch as long as the request lives.
    """
    context = operation.context
    resources = Resources(context)
    resources.keep += keep
    transport: Transport | None = None
    request: Request | None = None
    error: Exception | None = None
    try:
        transport = method.load()(operation, resources)
        check_progress(operation.hints, transport, method.name)
        request = Request(operation, transport, resources)
    except Exception as problem:
        error = problem
    try:
        agree(context.comm, error, f"built request {operation.number}")
    except Exception:
        if request is not None:
            request.discard()
        elif transport is not None:
            transport.forget()
        resources.release()
        context.in_step()
        raise
    if request is None:
        raise OnesidedError("the request was not built")
    if debug.enabled():
        request.observe(debug.Watch(request))
    return request


def check_progress(hints: Hints, transport: Transport, method: str) -> None:
    """Local. Raise :class:`UnsupportedError` where the method could not keep its promise.

    A method whose rounds need MPI while the program is elsewhere needs a thread that may call it.
    """
    if transport.needs_mpi_thread() and hints.progress != MANUAL:
        if not progress.may_call_from_any_thread():
            raise UnsupportedError(
                f"{method} moves data for others between Start and Wait, for which it needs "
                "MPI_THREAD_MULTIPLE; use p2p or mpi-persistent, or promise by info "
                "progress=manual that no rank waits for another outside of this library's calls"
            )


def alternate(requests: Sequence[Request]) -> None:
    """Local, but called on all ranks with the same requests in the same order.

    Says that these requests receive into the same memory, or into parts of it: they are started
    in one common order on all ranks, and only one of them is active at a time. They share one
    round number and one credit, so :meth:`~.Request.Release` on any of them lets peers
    write for whichever is started next. They may be of different methods.

    Raises :class:`RequestError` where a request occurs twice, has been started, alternates
    already, owns its receive memory in two slots, or is of another communicator than the first.
    """
    if len({id(request) for request in requests}) != len(requests):
        raise RequestError("a request occurs twice in alternate()")
    for request in requests:
        if request.state != "inactive" or request.rounds or request.granted:
            raise RequestError(f"{request!r} cannot alternate: it has been used or freed")
        if request.alternates:
            raise RequestError(f"{request!r} alternates with other requests already")
        if request.transport.owns_slots:
            raise RequestError(f"{request!r} cannot alternate: it has two slots of its own")
        if request.operation.context is not requests[0].operation.context:
            raise RequestError(f"{request!r} and {requests[0]!r} are of different communicators")
    if not requests:
        return
    context = requests[0].operation.context
    together = Credit(context.comm, context.next_tag(), joint=True)
    for request in requests:
        request.alternate_in(together)
