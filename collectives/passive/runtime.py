"""The runtime of passive broadcasts (paper 003): the root calls, nobody else has to.

It ends together with all ranks, alone by an exception, or with the program.
"""

from __future__ import annotations

import threading
import time
import warnings
from types import TracebackType
from typing import Any, Self

from mpi4py import MPI

from onesided.collectives.agreement import agreed
from onesided.collectives.buffers import as_number
from onesided.collectives.context import Context, Resources, acquired
from onesided.collectives.errors import (
    OnesidedError,
    PatternError,
    RequestError,
    UnsupportedError,
    in_forked_child,
)
from onesided.collectives.passive.notices import CLOSING, Notices
from onesided.collectives.passive.relay import PATIENCE, SHORTEST, Backoff, Broadcaster, Relay
from onesided.collectives.passive.windows import SideWindows, bytes_of, check_root
from onesided.collectives.trees import LARGEST_FIRST, check_order

#: Seconds that a rank which leaves by an exception still serves the others, if none needs it.
GRACE = 0.25

#: Seconds that the end of a runtime that nobody closed waits for the other ranks.
EXIT_PATIENCE = 5.0


class OneSidedBroadcast:
    """Broadcasts into windows that only their root calls; a thread on every rank relays them.

    ::

        with OneSidedBroadcast(comm) as broadcast:
            wid = broadcast.register(window)
            if comm.rank == root:
                broadcast.bcast(data, wid, displacement, root)
                broadcast.flush()               # all ranks have it
            else:
                ...                             # compute; the data come meanwhile
                broadcast.wait(wid, 1, root)    # this rank has it

    *Who may read and write what.* A rank may read, and change, its own part of the window where
    :meth:`wait` or :meth:`received` said that a broadcast is here, or where the root said, after
    its :meth:`flush` or a :meth:`test` that was true, that all ranks have it, and this rank then
    called :meth:`flush` or :meth:`test`. As with any Put, the root must know that nobody needs
    the memory any more before it broadcasts into it again, by a barrier or another displacement;
    broadcasts of several roots into the same memory need a flush and a message between them.

    *What it needs.* ``MPI_THREAD_MULTIPLE``, and on the targets code that releases the
    interpreter lock from time to time
    (:class:`~onesided.collectives.passive.relay.Broadcaster`). From :meth:`register` until the
    runtime is closed it alone holds an epoch on the window: the caller opens none, and does not
    free it.

    Examples
    --------
    >>> window = MPI.Win.Allocate(24, 1, comm=comm)
    >>> with OneSidedBroadcast(comm) as broadcast:
    ...     number = broadcast.register(window)
    ...     if comm.rank == 0:
    ...         count = broadcast.bcast(np.arange(3.0), number, 0, 0)  # nobody else has to call
    ...     count = broadcast.wait(number, 1, 0)
    >>> np.frombuffer(window.tomemory(), float).tolist()
    [0.0, 1.0, 2.0]
    >>> window.Free()
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        *,
        waiter_timeout: float = 0.005,
        flush_timeout: float = 0.001,
        child_order: str = LARGEST_FIRST,
    ) -> None:
        """Collective. Make the side windows and start the Broadcaster.

        A Broadcaster that has nothing to do looks for requests less and less often, down to once
        in ``waiter_timeout`` seconds; a thread that waits in :meth:`flush`, :meth:`wait` or
        :meth:`bcast`, down to once in ``flush_timeout`` seconds. With 0 they never sleep.
        ``child_order`` is ``"largest-first"`` or, as the paper prints it, ``"low-bit-first"``.

        Raises on every rank: :class:`UnsupportedError` where a rank has no
        ``MPI_THREAD_MULTIPLE``, :class:`MethodError` for an unknown order, :class:`PatternError`
        for a time-out that is no time, :class:`MismatchError` where the ranks want different
        orders, :class:`ResourceError` where there are no windows left.
        """
        context = Context.of(comm)
        with agreed(context.comm, ("OneSidedBroadcast", child_order)):
            _check_threads()
            check_order(child_order)
            waiter = _seconds("waiter_timeout", waiter_timeout)
            flush = _seconds("flush_timeout", flush_timeout)
        self._turn: Any = threading.RLock()  # one broadcast of this rank at a time
        self._resources = Resources(context)
        try:
            with agreed(context.comm, "OneSidedBroadcast is open"):
                self._open(context, child_order, waiter, flush)
        except Exception:
            self._resources.release()
            raise
        self._ending.begin()

    def _open(self, context: Context, order: str, waiter: float, flush: float) -> None:
        """Collective. The private communicator, the side windows, and the thread."""
        comm: MPI.Intracomm = acquired(context.comm.Dup)
        self._resources.on_release(comm.Free)
        side = SideWindows(comm, self._resources)
        self._comm = comm
        self._relay = Relay(comm, order, flush, side, Notices(comm))
        self._broadcaster = Broadcaster(self._relay, waiter)
        self._ending = Ending(self._relay, self._broadcaster)
        self._resources.on_release(self._ending.at_release)
        self._broadcaster.start()

    # -- windows --------------------------------------------------------------------------------

    def register(self, window: MPI.Win) -> int:
        """Collective. Take a window over; the number that names it in broadcasts.

        The window is one on the same ranks in the same order, made in any way but
        ``Create_dynamic``; the ranks may expose different sizes with different displacement units.

        Raises on every rank: :class:`RequestError` where the runtime is closed, the window has
        been freed, or an epoch is open on it (which is so, too, where it has been registered),
        :class:`PatternError` where its ranks are others, :class:`UnsupportedError` for a dynamic
        window.
        """
        self._check_open("register")
        self._relay.check()
        # a rank that has failed does not come; this raises then
        self._relay.wait_for(self._comm.Ibarrier().Test)
        return self._relay.windows.add(self._comm, window)

    # -- the verbs ------------------------------------------------------------------------------

    def bcast(self, buf: Any, wid: int, displacement: int, root: int) -> int:
        """Local, called by the root alone: no other rank calls anything. Broadcast ``buf``.

        The bytes of ``buf``, a contiguous buffer without Python objects, go to ``displacement``
        of window ``wid`` on every rank, the root's own included, in units of each rank's own
        window. Returns the epoch: the number, from 1 on, of this broadcast among those of this
        root into this window, which receivers give to :meth:`wait`. ``buf`` may be reused at
        once. The children of the root have the data when it returns, all ranks after
        :meth:`flush`. A second broadcast waits until the first is everywhere.

        Raises :class:`PatternError` where ``root`` is not the caller, the window is not
        registered, the buffer is not contiguous, or the data are not inside the window of every
        rank; :class:`RequestError` where the runtime is closed or the window has been freed, all
        before anything is sent; :class:`BroadcastError` where a rank has failed.
        """
        self._check_open("bcast")
        check_root(self._comm.rank, root)
        exposed = self._relay.windows[wid]
        if exposed.window == MPI.WIN_NULL:
            raise RequestError(f"window {wid} has been freed")
        data, place = bytes_of(buf), as_number(displacement, "displacement")
        exposed.extents.check(place, data.size)
        if self._turn._is_owned() or self._relay.lock._is_owned():
            raise RequestError("a signal handler broadcasts in the middle of a broadcast")
        with self._turn:
            self._relay.wait_for(self._relay.finished)
            self._relay.check()
            return self._relay.start(wid, place, data)

    def flush(self) -> None:
        """Local. Wait until all ranks have everything that this rank broadcast.

        On a rank that broadcast nothing it returns at once. After it this rank reads what has
        come into its windows. Raises :class:`BroadcastError` where a rank has failed before the
        data were everywhere, :class:`RequestError` where the runtime is closed.
        """
        self._check_open("flush")
        self._relay.wait_for(self._relay.finished)
        self._relay.windows.sync()

    def test(self) -> bool:
        """Local. What :meth:`flush` would wait for, without waiting: whether it is so now.

        It helps to relay, so that a program may call it instead of releasing the interpreter
        lock. Raises as :meth:`flush` does.
        """
        self._check_open("test")
        self._relay.poll()
        done = self._relay.finished()
        if not done:
            self._relay.check()
        self._relay.windows.sync()
        return done

    def received(self, wid: int, root: int) -> int:
        """Local. The epoch of the last broadcast of ``root`` into window ``wid`` that is here.

        0 where none is. What is here has been passed on as well: this rank may read its part of
        the window, and change it. Raises :class:`PatternError` for a window that is not
        registered or a rank that does not exist, :class:`RequestError` where the runtime is
        closed.
        """
        self._check_open("received")
        exposed = self._relay.windows[wid]
        if not 0 <= root < self._comm.size:
            raise PatternError(f"root {root} of {self._comm.size} ranks")
        epoch = self._relay.arrived[wid, root]
        exposed.sync()
        return epoch

    def wait(self, wid: int, epoch: int, root: int) -> int:
        """Local. Wait until broadcast ``epoch`` of ``root`` into window ``wid`` is here.

        Returns :meth:`received`, which may be more. Raises as :meth:`received` does, and
        :class:`BroadcastError` where a rank has failed before the data were here.
        """
        self.received(wid, root)
        self._relay.wait_for(lambda: self._relay.arrived[wid, root] >= epoch)
        return self.received(wid, root)

    # -- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Collective. Complete all broadcasts, end the threads, give the windows back.

        A second call does nothing. It waits until every rank has come here or has failed. Where
        one has failed, or left the ``with`` block by an exception, nothing collective is called:
        the others raise :class:`BroadcastError`, with their threads ended as well. What the
        runtime held is then given back by :meth:`release`, or when the program ends.
        """
        if self._ending.over or in_forked_child():
            return
        try:
            self._ending.together()
        except BaseException as error:
            self._ending.alone(error)
            raise
        finally:
            if self._relay.notices.all_closing():  # the others wait for this rank there
                self._resources.release()
        if self._relay.failure is not None:
            self._relay.check()

    def release(self) -> None:
        """Collective, for a program that goes on after a failure. Give the windows back.

        Only where every rank has survived, and has left or closed the runtime; a second call does
        nothing. Raises :class:`RequestError` where the runtime is open.
        """
        if in_forked_child():
            raise RequestError("release of a OneSidedBroadcast of the parent, by a forked child")
        if not self._ending.over:
            raise RequestError("release of a OneSidedBroadcast that is open; close it")
        self._resources.release()

    def __enter__(self) -> Self:
        self._check_open("entered")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif not self._ending.over and not in_forked_child():
            self._ending.alone(error)

    def __del__(self) -> None:
        ending = getattr(self, "_ending", None)  # missing where it could not be made
        if ending is not None and not ending.over and not in_forked_child():
            warnings.warn(
                "a OneSidedBroadcast was dropped without close(); its thread runs until the "
                "program ends",
                ResourceWarning,
                stacklevel=1,
            )

    def _check_open(self, verb: str) -> None:
        if in_forked_child():
            raise RequestError(f"{verb} on a OneSidedBroadcast of the parent, by a forked child")
        if self._ending.over:
            raise RequestError(f"{verb} on a OneSidedBroadcast that is closed")


class Ending:
    """The last steps of a runtime; ``over`` where one of them has been taken, or none is needed.

    Either all ranks find that all close, or none does. Only in the first case a collective call
    follows, also where a rank has been interrupted after it told that it closes.
    """

    def __init__(self, relay: Relay, broadcaster: Broadcaster) -> None:
        self._relay, self._broadcaster = relay, broadcaster
        self.over = True
        self._begun = False

    def begin(self) -> None:
        """Local, once all ranks know that all could open the runtime."""
        self.over, self._begun = False, True

    def together(self, patience: float | None = None) -> None:
        """Local, on every rank: wait until all broadcasts are complete and all ranks close.

        Raises :class:`BroadcastError` where a rank has failed, or after ``patience`` seconds.
        """
        relay, notices = self._relay, self._relay.notices
        relay.wait_for(relay.finished, patience=patience)
        notices.tell(CLOSING)
        relay.wait_for(notices.all_in, patience=patience, whatever_fails=True)
        if not notices.all_closing():
            relay.check()
        self.over = True
        self._broadcaster.stop()

    def alone(self, error: BaseException) -> None:
        """Local. Leave by an error: tell the others, serve them a moment longer, end the thread.

        The moment is for those that are sending to this rank: the MPI may need it to move the
        data, which takes longer where they are long. They hear of the error and stop. A rank that
        told them before that it closes waits for the decision, which may be that all do.
        """
        self.over = True
        self._relay.fail(error)
        left, notices = time.monotonic(), self._relay.notices
        backoff = Backoff(min(self._relay.longest, SHORTEST))
        while not notices.all_in():
            wanted = CLOSING in notices.told or self._relay.side.expecting()
            if time.monotonic() - left > (PATIENCE if wanted else GRACE):
                break
            backoff(self._relay.poll())
        self._broadcaster.stop()

    def at_release(self) -> None:
        """Collective, where the resources are released: by close, or when the program ends."""
        if not self.over:
            try:
                self.together(EXIT_PATIENCE)
            except OnesidedError as error:
                warnings.warn(f"a broadcast is incomplete: {error}", ResourceWarning, stacklevel=1)
                self.over = True
        self._broadcaster.stop()
        if self._begun:
            self._relay.notices.complete()
            self._relay.windows.release()


def _check_threads() -> None:
    """Local. Raise :class:`UnsupportedError` without ``MPI_THREAD_MULTIPLE``."""
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        names = {getattr(MPI, name): f"MPI_{name}"
                 for name in ("THREAD_SINGLE", "THREAD_FUNNELED", "THREAD_SERIALIZED")}
        raise UnsupportedError(
            "OneSidedBroadcast needs MPI_THREAD_MULTIPLE for its thread, and MPI has been "
            f"initialized with {names[level]}; use "
            "bcast_linear(window, buf, displacement, root), which needs no thread"
        )


def _seconds(name: str, value: Any) -> float:
    """Local. A time-out; :class:`PatternError` for what is none."""
    if not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise PatternError(f"{name} is {value!r:.20}, not a time in seconds")
    return float(value)
