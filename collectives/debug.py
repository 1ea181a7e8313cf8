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
  for ``ONESIDED_DEBUG_SECONDS`` (30; 0: never); every rank has one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import weakref
import zlib
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives import profiling
from onesided.collectives.agreement import agree
from onesided.collectives.errors import PatternError, RequestError

#: Environment variable that asks for debugging, the same on all ranks.
VARIABLE = "ONESIDED_DEBUG"

#: And the one that says after how many seconds the watchdog speaks; 0: never.
SECONDS = "ONESIDED_DEBUG_SECONDS"


def enabled() -> bool:
    """Local. Whether the environment asks for debugging."""
    return os.environ.get(VARIABLE, "0").strip().lower() not in ("", "0", "false", "no")


def seconds() -> float:
    """Local. After which the watchdog speaks; 0 without debugging. Raises :class:`PatternError`,
    so ranks call it where they agree."""
    given = os.environ.get(SECONDS, "").strip() or "30"
    try:
        return max(0.0, min(float(given), threading.TIMEOUT_MAX)) if enabled() else 0.0
    except ValueError:
        raise PatternError(f"{SECONDS} is a number of seconds, not {given!r}") from None


def poison(dtype: np.dtype[Any]) -> NDArray[Any]:
    """Local. What is written where nobody may read: an element of the bytes 0xFF, of no axes."""
    return np.frombuffer(b"\xff" * dtype.itemsize, dtype).reshape(())


_moves = 0

#: Empty as soon as some thread has taken it, to start the watchdog of the process.
_unwatched = [True]


def observe() -> bool:
    """Local. Let the watchdog, one thread per process, tell of requests; false without
    debugging."""
    wait = seconds()
    if wait > 0:
        with contextlib.suppress(IndexError):  # another thread, or an earlier call, has it
            _unwatched.pop()
            look = threading.Thread(
                target=_look, args=(wait,), name="onesided-watchdog", daemon=True)
            look.start()
    return enabled()


def moved() -> None:
    """Local. Something has: the watchdog is quiet."""
    global _moves
    _moves += 1


class Watch:
    """Observes one request; called by it around every round."""

    def __init__(self, request: Any) -> None:
        """Local. ``request``: a :class:`~.request.Request`, which calls this around every verb."""
        self._of = weakref.ref(request)
        self._sum: int | None = None
        observe()
        self._sends, self._recvs, dtype = request.transport.watched()
        self._poison = poison(dtype)

    def before_start(self, rounds: int) -> None:
        """Collective for strictly ordered methods, else local."""
        self._compare()
        self.give_up(rounds)
        self._sum = self._checksum()
        moved()

    def before_open(self) -> None:
        """Collective for strictly ordered methods, else local."""
        self._compare()
        self._sum = None
        moved()

    def give_up(self, rounds: int) -> None:
        """Local. Before the round after ``rounds`` others is granted; later it does nothing."""
        request = self._of()
        if request is None or request.granted:
            return
        for view in self._recvs[(rounds + 1) % len(self._recvs)]:
            view[...] = self._poison

    def after_wait(self) -> None:
        """Local. Raises :class:`RequestError` where the send buffer has changed."""
        moved()
        if self._sum is not None and self._checksum() != self._sum:
            raise RequestError(
                f"the send buffer was changed while the request was active: {self._of()!r}"
            )

    def stop(self) -> None:
        """Local. The request is being freed."""
        self._sends, self._recvs = [], []
        moved()

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


def _look(wait: float) -> None:
    reported, patience = -1, threading.Event()
    while True:
        before = _moves
        patience.wait(wait)
        if _moves == before != reported and profiling.known():
            reported = before
            _report(wait)


def _report(wait: float) -> None:
    rank = MPI.COMM_WORLD.rank if not MPI.Is_finalized() else -1
    lines = [f"onesided: rank {rank}: nothing has moved for {wait:g} s"]
    for request in profiling.known():
        try:
            lacks = f"; waits for {request.waiting_for()}" if request.active else ""
        except Exception:  # it is being freed by another thread
            lacks = ""
        lines.append(f"onesided: rank {rank}: {request!r}{lacks}")
    for stream in (sys.stderr, sys.__stderr__ or sys.stderr):  # the first may be no file
        with contextlib.suppress(Exception):
            print("\n".join(lines), file=stream, flush=True)
            lines.clear()
            faulthandler.dump_traceback(stream, all_threads=True)
            break
