"""Passing broadcasts on down the tree: what a rank does for others, whoever of its threads does it.

A rank that a request has come to has the data already, in its own window. It puts them into the
windows of its children, requests the same of each, and then adds one to the done counter of the
root (paper 003, Figures 7 to 9). One look at the requests is :meth:`Relay.poll`. The Broadcaster
calls it all the time; a thread that waits for something calls it instead, which is faster.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.errors import BroadcastError
from onesided.collectives.passive.notices import FAILED, Notices
from onesided.collectives.passive.puts import memory_of, put_bytes, store
from onesided.collectives.passive.registration import Registered
from onesided.collectives.passive.rest import Rest
from onesided.collectives.passive.sidewindows import Description, SideWindows
from onesided.collectives.trees import children


class Relay:
    """The broadcasts of a runtime as one rank sees them.

    ``issued`` counts those of this rank, ``arrived`` those that are here, by window and root.
    ``lock`` is held by whoever moves data; ``helpers`` counts the threads that poll while they
    wait, so that the Broadcaster can leave it to them; ``longest`` is how many seconds they sleep
    at most; ``expecting`` tells that data are on their way to this rank. ``failure`` is what ended
    the relay.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        order: str,
        longest: float,
        side: SideWindows,
        notices: Notices,
    ) -> None:
        self.comm, self.order, self.longest = comm, order, longest
        self.side, self.notices = side, notices
        self.windows = Registered()
        self.arrived: Counter[tuple[int, int]] = Counter()
        self.issued = 0
        self.helpers = 0
        self.expecting = False
        self.failure: BaseException | None = None
        self.lock = threading.Lock()
        self._counting = threading.Lock()

    def poll(self) -> bool:
        """Local. Look once at notices and requests; true where there was something to do.

        Returns at once where another thread is at it. What goes wrong is kept in ``failure``, and
        the others are told.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
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
        rest = Rest(self.longest)
        limit = None if patience is None else time.monotonic() + patience
        with self._counting:
            self.helpers += 1
        try:
            while not condition():
                if not whatever_fails:
                    self.check()
                if limit is not None and time.monotonic() > limit:
                    raise BroadcastError(f"not complete after {patience:g} seconds")
                rest(self.poll(), self.expecting)
        finally:
            with self._counting:
                self.helpers -= 1

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
