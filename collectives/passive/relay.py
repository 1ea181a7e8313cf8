"""Passing broadcasts on down the tree: what a rank does for others, whoever of its threads does it.

A rank that a request has come to has the data already, in its own window. It puts them into the
windows of its children, requests the same of each, and then adds one to the done counter of the
root (paper 003, Figures 7 to 9). One look at the requests is :meth:`Relay.poll`. The Broadcaster,
a thread, calls it all the time; a thread that waits for something calls it instead, which is
faster. Between two looks that found nothing they rest: not at all, then longer and longer.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import BroadcastError, RequestError
from onesided.collectives.passive.notices import FAILED, Notices
from onesided.collectives.passive.windows import (
    Description,
    Registered,
    SideWindows,
    memory_of,
    put_bytes,
    store,
)
from onesided.collectives.trees import children

#: Looks without a rest after something has happened.
SPINS = 64

#: Looks between two rests: a long transfer moves on by a piece at each.
LOOKS = 2

#: Seconds of the first rest; each one is twice the one before.
SHORTEST = 50e-6

#: Seconds that a call inside MPI gets to come back when the thread is to end.
PATIENCE = 5.0


class Backoff:
    """Called after every look. ``longest`` is in seconds; with 0 it yields and never sleeps.

    A thread beside one that computes on the same core is better off asleep: it gets the core back
    at once when it wakes, but only after a time slice when it yields. So ``yields`` is for those
    that wait for something that is about to come.
    """

    def __init__(
        self, longest: float, sleep: Callable[[float], object] = time.sleep, yields: bool = True
    ) -> None:
        self._longest, self._sleep = longest, sleep
        self._yields = yields or longest == 0
        self._idle = 0

    def __call__(self, worked: bool, expecting: bool = False) -> None:
        """Local. ``worked``: the look found something to do; ``expecting``: it soon will."""
        self._idle = 0 if worked else self._idle + 1
        if expecting and self._idle > SPINS + LOOKS:
            self._idle = SPINS + 1
        seconds = self.seconds()
        if seconds:
            self._sleep(seconds)
        elif seconds == 0 and self._yields:
            os.sched_yield()

    def seconds(self) -> float | None:
        """Local. The length of the rest that is due: 0 is a yield, None no rest at all."""
        rests, look = divmod(self._idle - SPINS, LOOKS)
        if rests < 0 or self._longest == 0:
            return 0.0
        return None if look else min(self._longest, SHORTEST * 2.0 ** min(rests, 40))


class Relay:
    """The broadcasts of a runtime as one rank sees them.

    ``issued`` counts those of this rank, ``arrived`` those that are here, by window and root.
    ``lock`` is held by whoever moves data; ``helpers`` counts the threads that poll while they
    wait, so that the Broadcaster can leave it to them; ``longest`` is how many seconds they sleep
    at most; ``expecting`` tells that data are on their way to this rank. ``failure`` is what ended
    the relay.
    """

    def __init__(
        self, comm: MPI.Intracomm, order: str, longest: float, side: SideWindows, notices: Notices
    ) -> None:
        self.comm, self.order, self.longest = comm, order, longest
        self.side, self.notices = side, notices
        self.windows = Registered()
        self.arrived: Counter[tuple[int, int]] = Counter()
        self.issued = 0
        self._helping: dict[object, None] = {}  # no lock, which what interrupts could want
        self.expecting = False
        self.failure: BaseException | None = None
        # it is asked who has it: an interrupt may come just before it is taken, and just after
        self.lock: Any = threading.RLock()

    @property
    def helpers(self) -> int:
        """How many threads poll while they wait."""
        return len(self._helping)

    def poll(self) -> bool:
        """Local. Look once at notices and requests; true where there was something to do.

        Returns at once where another thread is at it. What goes wrong is kept in ``failure``, and
        the others are told.
        """
        if self.lock._is_owned():
            return False  # of what this interrupts
        try:
            if not self.lock.acquire(blocking=False):
                return False
            moved = self.notices.listen()
            self.expecting = False
            if self.broken():
                return moved
            for root, number in self.side.requested():
                self.serve(root, number)
                self.side.accept(root, number)
                self.side.count_done(root)
                moved = True
            self.expecting = self.side.expecting()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise  # an interrupt is the caller's, too
            return False
        else:
            return moved
        finally:
            if self.lock._is_owned():
                self.lock.release()

    def serve(self, root: int, number: int) -> None:
        """Local. Pass on broadcast ``number`` of ``root``, which has come here."""
        description = self.side.describe(root)
        exposed = self.windows[description.wid]
        exposed.window.Sync()
        start = description.displacement * exposed.extents.units[self.comm.rank]
        data = memory_of(exposed.window)[start : start + description.nbytes]
        self.send(root, number, description, data)
        self.arrived[description.wid, root] = description.epoch

    def start(self, wid: int, displacement: int, data: NDArray[np.uint8]) -> int:
        """Local. Begin a broadcast of this rank, whose previous one is done; its epoch."""
        rank = self.comm.rank
        with self.lock:
            exposed = self.windows[wid]
            epoch = self.arrived[wid, rank] + 1
            try:
                start = displacement * exposed.extents.units[rank]
                data = store(exposed.window, data, start)
                self.issued += 1
                description = Description(wid, epoch, displacement, data.size)
                self.send(rank, self.issued, description, data)
            except BaseException as error:
                self.fail(error)
                raise
            self.arrived[wid, rank] = epoch
        return epoch

    def send(
        self, root: int, number: int, description: Description, data: NDArray[np.uint8]
    ) -> None:
        """Local. Data, description and request to every child, one child after the other.

        Raises :class:`BroadcastError` where a rank has failed, before it sends to one that may
        have left because of it.
        """
        exposed = self.windows[description.wid]
        for child in children(self.comm.rank, self.comm.size, root, self.order):
            unit = exposed.extents.units[child]
            self.notices.listen()
            self.check()
            self.side.warn(child, root, number)
            put_bytes(exposed.window, data, child, description.displacement, unit)
            exposed.window.Flush(child)
            self.side.announce(child, root, number, description)

    def finished(self) -> bool:
        """Local. True where all ranks have what this rank broadcast."""
        return self.side.done() == self.issued * (self.comm.size - 1)

    def wait_for(
        self,
        condition: Callable[[], bool],
        patience: float | None = None,
        whatever_fails: bool = False,
    ) -> None:
        """Local. Relay until the condition holds.

        Raises :class:`BroadcastError` after ``patience`` seconds, and, unless the condition can
        come ``whatever_fails``, where a rank has failed.
        """
        if self.lock._is_owned():
            raise RequestError("a signal handler waits for broadcasts in the middle of their relay")
        backoff = Backoff(self.longest)
        limit = None if patience is None else time.monotonic() + patience
        token = object()
        try:
            self._helping[token] = None
            while not condition():
                if not whatever_fails:
                    self.check()
                if limit is not None and time.monotonic() > limit:
                    raise BroadcastError(f"not complete after {patience:g} seconds")
                backoff(self.poll(), self.expecting)
        finally:
            self._helping.pop(token, None)

    def broken(self) -> bool:
        """Local. True where a rank has failed, so that broadcasts cannot go on."""
        return self.failure is not None or bool(self.notices.failed)

    def check(self) -> None:
        """Local. Raise :class:`BroadcastError` where a rank has failed."""
        if self.failure is not None:
            raise BroadcastError(
                f"the broadcasts of rank {self.comm.rank} have failed: {words_of(self.failure)}"
            ) from self.failure
        for rank, words in list(self.notices.failed.items()):
            raise BroadcastError(f"rank {rank} has failed: {words}")

    def fail(self, error: BaseException) -> None:
        """Local. This rank takes part no more; tell the others, who would wait for it."""
        if self.failure is None:
            self.failure = error
        with contextlib.suppress(MPI.Exception):  # where MPI is what has failed
            self.notices.tell(FAILED, words_of(error))


def words_of(error: BaseException) -> str:
    """Kind and words of an error; the words alone where it is that of another rank."""
    if isinstance(error, BroadcastError):
        return str(error)
    text = error.Get_error_string() if isinstance(error, MPI.Exception) else str(error)
    return f"{type(error).__name__}: {text}"


class Broadcaster(threading.Thread):
    """The thread that relays (paper 003, Figure 9): a rank takes part while it computes.

    It polls the relay until it is told to stop; errors are kept in the relay. Python gives a
    thread its turn only where another one releases the interpreter lock. NumPy, SciPy and MPI
    calls, sleep, and input and output release it; a loop of Python code does every few
    milliseconds; compiled code that holds it stops the relay for as long as it runs.

    A daemon, so that a rank which ends in any way does not wait for it.
    """

    def __init__(self, relay: Relay, longest: float) -> None:
        super().__init__(name="onesided-broadcaster", daemon=True)
        self._relay = relay
        self._leave = longest >= relay.longest  # to a thread that waits and looks as often
        self._enough = False
        self._gate = threading.Lock()  # opened at the end; waiting for it is cheaper than an Event
        self._gate.acquire()
        self._backoff = Backoff(longest, self._sleep, yields=False)

    def _sleep(self, seconds: float) -> None:
        if self._gate.acquire(timeout=seconds):
            self._enough = True

    def run(self) -> None:
        while not self._enough:
            helped = self._leave and self._relay.helpers
            worked = not helped and self._relay.poll()
            self._backoff(worked, self._relay.expecting)

    def stop(self) -> None:
        """Local. End the thread and wait for it.

        Raises :class:`BroadcastError` where it does not come back from MPI: a rank that it sends
        to does not call MPI any more.
        """
        if self.ident is None:
            return  # it was never started
        if not self._enough:
            self._enough = True
            self._gate.release()
        self.join(PATIENCE)
        if self.is_alive():
            raise BroadcastError(
                f"the Broadcaster does not come back from MPI in {PATIENCE:g} seconds: a rank that "
                "it sends to does not call MPI any more"
            )
