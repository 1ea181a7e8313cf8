"""The thread protocol of paper 002.

Every thread raises a counter when it is there and waits for a broadcast of the main thread. That
one starts its clock, opens the epoch, sends the broadcast, waits until all threads have
transferred, closes the epoch, stops its clock, and sends the second broadcast, after which the
threads go back to the beginning. Threads never synchronize windows, and neither their making nor
their end is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

#: The operations of one thread in one epoch.
Work = Callable[[], object]


class Gang:
    """So many threads, of which each does its own work in every round.

    Without threads the caller does all works itself, one after the other.
    """

    def __init__(self, threads: int) -> None:
        self._works: Sequence[Work] = ()
        self._closing = False
        self._error: BaseException | None = None
        self._counter, self._arrived = threading.Lock(), 0
        self._complete = _locked()
        self._first = [_locked() for _ in range(threads)]
        self._second = [_locked() for _ in range(threads)]
        # daemons: where the job ends by an error, nobody waits for them
        self._threads = [
            threading.Thread(target=self._live, args=(n,), name=f"transfers {n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def ready(self, works: Sequence[Work]) -> None:
        """Local. Wait until every thread is there, and give each its work of the next round."""
        if self._threads:
            if len(works) != len(self._threads):
                raise ValueError(f"{len(works)} works for {len(self._threads)} threads")
            self._complete.acquire()
        self._works = works

    def begin(self) -> None:
        """Local. The first broadcast: the epoch is open."""
        for gate in self._first:
            gate.release()

    def transferred(self) -> None:
        """Local. Wait until all have transferred; an error of any thread is raised here."""
        if self._threads:
            self._complete.acquire()
        else:
            for work in self._works:
                work()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Local. The second broadcast: the epoch is closed."""
        for gate in self._second:
            gate.release()

    def close(self) -> None:
        """Local, between two rounds. The threads end."""
        if self._threads:
            self._complete.acquire()
        self._closing = True
        self.begin()
        for thread in self._threads:
            thread.join()
        self._threads, self._first, self._second = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def _count(self) -> None:
        """One more is there; the last one wakes the main thread."""
        with self._counter:
            self._arrived += 1
            if self._arrived < len(self._first):
                return
            self._arrived = 0
        self._complete.release()

    def _live(self, number: int) -> None:
        first, second = self._first[number], self._second[number]
        while True:
            self._count()
            first.acquire()
            if self._closing:
                return
            try:
                self._works[number]()
            except BaseException as error:
                self._error = error
            self._count()
            second.acquire()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
