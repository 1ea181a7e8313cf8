"""Threads that wait for work, so that neither their making nor their end is in what is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from onesided.apps.cli.machine import THREAD_LEVELS
from onesided.collectives import UnsupportedError

#: What one thread does in a round.
Work = Callable[[], Any]


def check_threads(what: str) -> None:
    """Local. ``UnsupportedError`` where threads may not call this MPI, which ``what`` needs."""
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        here = f"MPI_THREAD_{THREAD_LEVELS[level].upper()}"
        raise UnsupportedError(f"{what} needs MPI_THREAD_MULTIPLE, this MPI runs with {here}")


class Team:
    """Local. So many threads, of which the caller is one; the others sleep between rounds.

    They are made now, and are ended by ``close``.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._errors: list[BaseException] = []  # of the last round
        self._members: list[_Member] = []
        self._count, self._busy = threading.Lock(), 0
        self._done = _locked()
        try:
            for _ in range(threads - 1):
                self._members.append(_Member(self._errors, self._finished))
        except RuntimeError:  # no more threads can be made
            self.close()
            raise

    def run(self, works: Sequence[Work]) -> list[Any]:
        """Local. Every thread does one of the works, the caller the first; what they returned.

        Returns when all of them have ended. An error of any of them is raised then, and the team
        can go on.
        """
        if not works:
            return []
        self._errors.clear()
        if len(works) == 1:
            return [works[0]()]
        busy = self._members[: len(works) - 1]
        if len(busy) < len(works) - 1:
            raise ValueError(f"{len(works)} works for {self.threads} threads")
        self._busy = len(busy)
        for member, work in zip(busy, works[1:], strict=True):
            member.begin(work)
        try:
            found = [works[0]()]
        except BaseException as error:
            self._errors.append(error)
            raise
        finally:
            self._done.acquire()
        if self._errors:
            raise self._errors[0]
        return found + [member.answer for member in busy]

    def _finished(self) -> None:
        """Local. One thread is; the last one wakes the caller, once."""
        with self._count:
            self._busy -= 1
            last = self._busy == 0
        if last:
            self._done.release()

    def close(self) -> None:
        """Local, between two rounds. The threads end; a second call does nothing."""
        for member in self._members:
            member.close()
        self._members = []


class _Member:
    """One thread, with a lock that lets it go; ``finished`` is called after each of its works."""

    def __init__(self, errors: list[BaseException], finished: Callable[[], None]) -> None:
        self._errors, self._finished = errors, finished
        self._go = _locked()
        self._work: Work | None = None
        self.answer: Any = None
        # a daemon: where the job ends by an error, nobody waits for it
        self._thread = threading.Thread(target=self._serve, name="team", daemon=True)
        self._thread.start()

    def begin(self, work: Work) -> None:
        self._work = work
        self._go.release()

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
                self.answer = self._work()
            except BaseException as error:
                self._errors.append(error)
            finally:
                self._finished()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
