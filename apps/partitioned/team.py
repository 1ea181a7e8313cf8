"""Threads that wait for work, so that neither their making nor their end is timed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

#: What one thread does in a round; returns when its last partition was ready, by the clock.
Work = Callable[[], float]


class Team:
    """So many threads, of which the caller is one; the others sleep between rounds."""

    def __init__(self, threads: int) -> None:
        self._members = [_Member() for _ in range(threads - 1)]

    def run(self, works: Sequence[Work]) -> float:
        """Local. Every thread does one of the works; returns the latest of their times.

        Without works that is the time of the call. An error of any thread is raised here.
        """
        if not works:
            return time.perf_counter()
        if len(works) > len(self._members) + 1:
            raise ValueError(f"{len(works)} works for {len(self._members) + 1} threads")
        busy = self._members[: len(works) - 1]
        for member, work in zip(busy, works[1:], strict=True):
            member.begin(work)
        latest = works[0]()
        for member in busy:
            latest = max(latest, member.end())
        return latest

    def close(self) -> None:
        """Local. The threads end."""
        for member in self._members:
            member.close()
        self._members = []

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


class _Member:
    """One thread, with a lock that lets it go and one that lets the caller go on."""

    def __init__(self) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._work: Work | None = None
        self._latest = 0.0
        self._error: BaseException | None = None
        # a daemon: where the job ends by an error, nobody waits for it
        self._thread = threading.Thread(target=self._serve, name="marker", daemon=True)
        self._thread.start()

    def begin(self, work: Work) -> None:
        self._work = work
        self._go.release()

    def end(self) -> float:
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._latest

    def close(self) -> None:
        self._work = None
        self._go.release()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if self._work is None:
                return
            try:
                self._latest = self._work()
            except BaseException as error:
                self._error = error
            self._done.release()
