"""Threads that live for a run and do a piece of work together, again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from onesided.apps.heat.stencil import settings


class Team:
    """Local. The calling thread and ``threads`` - 1 others, made now and ended by ``close``.

    ``broken``: a thread has raised; others that wait for what it should have done must stop.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.broken = threads, False
        self._work: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._go = [_locked() for _ in range(threads - 1)]
        self._done = [_locked() for _ in range(threads - 1)]
        self._others = [
            threading.Thread(target=self._live, args=pair, daemon=True, name=f"tiles {number}")
            for number, pair in enumerate(zip(self._go, self._done, strict=True), 1)
        ]
        for thread in self._others:
            thread.start()

    def run(self, work: Callable[[], object]) -> None:
        """Local. Every thread calls ``work`` once; returns when all have done so.

        What it raises in any of them is raised here.
        """
        self._work = work
        for go in self._go:
            go.release()
        try:
            work()
        except BaseException:
            self.broken = True
            raise
        finally:
            for done in self._done:
                done.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Local. End the threads; a second call does nothing."""
        self._work = None
        for go in self._go:
            go.release()
        for thread in self._others:
            thread.join()
        self._go, self._done, self._others = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _live(self, go: threading.Lock, done: threading.Lock) -> None:
        with settings():
            while True:
                go.acquire()
                work = self._work
                if work is None:
                    return
                try:
                    work()
                except BaseException as error:
                    self._error, self.broken = error, True
                finally:
                    done.release()


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
