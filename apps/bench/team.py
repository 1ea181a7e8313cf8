"""Threads that wait for work, so that neither their making nor their end is in what is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, Self

from mpi4py import MPI

from onesided.apps.cli.machine import THREAD_LEVELS
from onesided.collectives import ResourceError, UnsupportedError, agreed

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

    They are made now, and are ended by ``close``; ``ResourceError`` where there are too many.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._answers: list[Any] = [None] * threads  # of the last round, as its errors
        self._errors: list[BaseException] = []
        self._count, self._busy = threading.Lock(), 0
        self._done: SimpleQueue[None] = SimpleQueue()
        #: The works of every thread but the caller; None ends it.
        self._works: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in range(1, threads)]
        # daemons: where the job ends by an error, nobody waits for them
        self._members = [
            threading.Thread(target=self._serve, args=(number, works), name="team", daemon=True)
            for number, works in enumerate(self._works, 1)
        ]
        try:
            for member in self._members:
                member.start()
        except RuntimeError as error:  # no more threads can be made
            self.close()
            raise ResourceError(f"{threads - 1} threads: {error}") from error

    @classmethod
    def of_all(cls, comm: MPI.Intracomm, threads: int, calling: str = "") -> Self:
        """Collective. A team on every rank, each of its own size, for threads that call MPI where
        it is said what they are ``calling`` for. Where one rank cannot have its threads, none has
        any: ``ResourceError`` or ``UnsupportedError`` on all."""
        with ExitStack() as stack:
            with agreed(comm):
                if calling:
                    check_threads(calling)
                team = cls(threads)
                stack.callback(team.close)
            stack.pop_all()
        return team

    def run(self, works: Sequence[Work]) -> list[Any]:
        """Local. Every thread does one of the works, the caller the first; what they returned.

        Returns when all of them have ended. An error of any of them is raised then, and the team
        can go on.
        """
        if len(works) > 1 + len(self._works):
            raise ValueError(f"{len(works)} works for {self.threads} threads")
        if len(works) < 2:
            return [work() for work in works]
        self._errors.clear()
        self._busy = len(works) - 1
        for queue, work in zip(self._works, works[1:], strict=False):
            queue.put(work)
        try:
            self._answers[0] = works[0]()
        except BaseException as error:
            self._errors.append(error)
            raise
        finally:
            self._done.get()
        if self._errors:
            raise self._errors[0]
        return self._answers[: len(works)]

    def _serve(self, number: int, works: SimpleQueue[Work | None]) -> None:
        while (work := works.get()) is not None:
            try:
                self._answers[number] = work()
            except BaseException as error:
                self._errors.append(error)
            with self._count:
                self._busy -= 1
                last = self._busy == 0
            if last:  # the caller is woken once
                self._done.put(None)

    def close(self) -> None:
        """Local, between two rounds. The threads end; a second call does nothing."""
        for works in self._works:
            works.put(None)
        self._works = []
        for member in self._members:
            if member.is_alive():
                member.join()
