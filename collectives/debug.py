"""``ONESIDED_DEBUG=1``: what MPI cannot check is checked, at a price.

* The bytes of the expected receive blocks are poisoned (0xFF: not a number, or -1) when they are
  given up, so that reading them too early shows. That is done before the notification, credit or
  fence that lets peers write there: in ``Start``, ``Open`` or ``Release`` before round k on the
  slot of round k - 1, or on the one slot there is. Bytes that a faster peer may already have
  filled are never touched.
* The send blocks are compared before and after every round: changing them while a request is
  active is an error of the program (MPI-4.1 section 7.13). Not so in a round that was opened.
* Strictly ordered requests compare their starts on all ranks, so that different orders become an
  error on every rank instead of a deadlock.
* Ghost layers are poisoned likewise in the ``Start`` of a halo that fills them, and grids compare
  on all ranks which fields are given to ``update`` and ``accumulate``.
* In partitioned sends a partition must not change from its mark until the round is complete, and
  the receive buffer is poisoned at the beginning of a round.
* A watchdog prints the stacks and the state of all requests of this rank when nothing has moved
  for ``ONESIDED_DEBUG_SECONDS`` (30); every rank has one.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import weakref
import zlib
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree
from onesided.collectives.errors import RequestError

#: Environment variable that asks for debugging, the same on all ranks.
VARIABLE = "ONESIDED_DEBUG"


def enabled() -> bool:
    """Local. Whether the environment asks for debugging."""
    return os.environ.get(VARIABLE, "0").strip().lower() not in ("", "0", "false", "no")


def poison(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. What is written where nobody may read: an element of the bytes 0xFF, of no axes."""
    return np.frombuffer(b"\xff" * dtype.itemsize, dtype).reshape(())


def observe(request: Any) -> bool:
    """Local. Let the watchdog tell of a request that is not collective; false without debugging."""
    if enabled():
        _Watchdog.start()
        _Watchdog.requests.add(request)
    return enabled()


def moved() -> None:
    _Watchdog.moves += 1


class Watch:
    """Observes one request; called by it around every round."""

    def __init__(self, request: Any) -> None:
        """Local. ``request``: a :class:`~.request.Request`, which calls this around every verb."""
        self._of = weakref.ref(request)
        self._sum: int | None = None
        _Watchdog.start()
        _Watchdog.requests.add(request)
        self._sends, self._recvs, dtype = request.transport.watched()
        self._poison = poison(dtype)

    def before_start(self, rounds: int) -> None:
        """Collective for strictly ordered methods, else local."""
        self._compare()
        self.give_up(rounds)
        self._sum = self._checksum()
        _Watchdog.moves += 1

    def before_open(self) -> None:
        """Collective for strictly ordered methods, else local."""
        self._compare()
        self._sum = None
        _Watchdog.moves += 1

    def give_up(self, rounds: int) -> None:
        """Local. Before the round after ``rounds`` others is granted; later it does nothing."""
        request = self._of()
        if request is None or request.granted:
            return
        for view in self._recvs[(rounds + 1) % len(self._recvs)]:
            view[...] = self._poison

    def after_wait(self) -> None:
        """Local. Raises :class:`RequestError` where the send buffer has changed."""
        _Watchdog.moves += 1
        if self._sum is not None and self._checksum() != self._sum:
            raise RequestError(
                f"the send buffer was changed while the request was active: {self._of()!r}"
            )

    def stop(self) -> None:
        """Local. The request is being freed."""
        request = self._of()
        if request is not None:
            _Watchdog.requests.discard(request)
        self._sends, self._recvs = [], []
        _Watchdog.moves += 1

    def _compare(self) -> None:
        request = self._of()
        if request is not None and not request.any_order:
            operation = request.operation
            agree(operation.context.comm, None, f"Start of {operation.method} request "
                  f"{operation.number}, round {request.rounds}")

    def _checksum(self) -> int:
        total = 0
        for view in self._sends:
            total = zlib.crc32(np.ascontiguousarray(view).tobytes(), total)
        return total


class _Watchdog:
    """One thread per process that notices when nothing moves."""

    requests: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    moves = 0
    _thread: threading.Thread | None = None

    @classmethod
    def start(cls) -> None:
        if cls._thread is None:
            seconds = float(os.environ.get("ONESIDED_DEBUG_SECONDS", "30"))
            cls._thread = threading.Thread(
                target=cls._run, args=(seconds,), name="onesided-watchdog", daemon=True
            )
            cls._thread.start()

    @classmethod
    def _run(cls, seconds: float) -> None:
        reported, patience = -1, threading.Event()
        while True:
            before = cls.moves
            patience.wait(seconds)
            if cls.moves == before != reported and cls.requests:
                reported = before
                cls._report(seconds)

    @classmethod
    def _report(cls, seconds: float) -> None:
        rank = MPI.COMM_WORLD.rank if not MPI.Is_finalized() else -1
        lines = [f"onesided: rank {rank}: nothing has moved for {seconds:g} s"]
        for request in list(cls.requests):
            try:
                lacks = f"; waits for {request.waiting_for()}" if request.active else ""
            except Exception:  # it is being freed by another thread
                lacks = ""
            lines.append(f"onesided: rank {rank}: {request!r}{lacks}")
        print("\n".join(lines), file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
