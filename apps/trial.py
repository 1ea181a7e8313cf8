"""Does a method work here? A small exchange with it, checked, on the ranks given."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import words
from onesided.collectives import Alltoallv_init, OnesidedError, Request

ROUNDS = 4
ENTRIES = 5  # per block
PATIENCE = 60.0  # seconds for a small exchange before the job is ended


@dataclass(frozen=True)
class Trial:
    """How a small exchange went: whether it worked, which method was used, and what went wrong.

    ``supported`` is false where the method itself said that it cannot work on this MPI.
    """

    method: str
    works: bool
    supported: bool
    used: str
    words: str


def try_method(comm: MPI.Intracomm, method: str, info: Mapping[str, str]) -> Trial:
    """Collective. Exchange a few blocks with changing data and check every entry.

    Ends the job where nothing comes back in time.
    """
    sent = np.empty((comm.size, ENTRIES), np.int64)
    with _patience(method):
        try:
            request = Alltoallv_init(comm, sent, None, method=method, info=info)
        except OnesidedError as error:
            return Trial(method, False, False, method, words(error))
        wrong = sum(_round(comm, request, sent, number) for number in range(ROUNDS))
        wrong = comm.allreduce(wrong)
        used = request.method
        request.Free()
    if wrong:
        return Trial(method, False, True, used, f"{wrong} wrong entries in {ROUNDS} rounds")
    return Trial(method, True, True, used, "")


def _round(comm: MPI.Intracomm, request: Request, sent: NDArray[Any], number: int) -> int:
    """Collective. One round with data that tell round, source, target and index apart."""
    peers = np.arange(comm.size)[:, None]
    index = np.arange(ENTRIES)
    sent[...] = ((number * comm.size + comm.rank) * comm.size + peers) * ENTRIES + index
    request.Start()
    received = np.asarray(request.Wait()).reshape(comm.size, ENTRIES)
    expected = ((number * comm.size + peers) * comm.size + comm.rank) * ENTRIES + index
    return int(np.count_nonzero(received != expected))


@contextmanager
def _patience(method: str) -> Iterator[None]:
    """Local. End the job where the block takes too long, whatever it hangs in."""

    def give_up() -> None:
        text = f"onesided: {method} has not finished a small exchange in {PATIENCE:.0f} s"
        print(text, file=sys.stderr, flush=True)
        threading.Timer(5.0, os._exit, (3,)).start()
        MPI.COMM_WORLD.Abort(3)

    timer = threading.Timer(PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
