"""A run of the baseline: sends and receives."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from onesided.apps.rmamt.cell import THREADS, Cell
from onesided.apps.rmamt.layout import Bytes, Memory
from onesided.apps.rmamt.patterns import PATTERNS
from onesided.apps.rmamt.plan import Plan
from onesided.apps.rmamt.stage import Stage


class TwoSided(Stage):
    """The baseline: one thread that sends and receives."""

    def __init__(self, comm: MPI.Intracomm, cell: Cell, plan: Plan) -> None:
        super().__init__(comm, cell, plan)
        layout = self.layout
        self._sends: Bytes = np.zeros(layout.nbytes, np.uint8)
        self._receives: Bytes = np.zeros(layout.nbytes, np.uint8)
        many = PATTERNS[cell.pattern].many
        self._call: Callable[[], None] = self._together if many else self._there_and_back
        self.ways = 1 if many else 2
        givers = self.route.incoming if many else [*self.route.outgoing, *self.route.incoming]
        self._memory = Memory(layout, self._sends, self._receives, comm.rank, givers)
        if not many:
            self.sent = 1  # both sides send
        views = self._sends.data, self._receives.data
        places = layout.places(0)
        self._outgoing, self._incoming = (
            [
                ((view[place : place + cell.size], cell.size, MPI.BYTE), peers[slot])
                for slot, place in places
                if peers
            ]
            for view, peers in zip(views, (self.route.outgoing, self.route.incoming), strict=True)
        )
        self._pair = tuple((view[: cell.size], cell.size, MPI.BYTE) for view in views)
        self.names = [THREADS]

    def round(self, name: str) -> float:
        """Collective."""
        begin = time.perf_counter()
        self._call()
        return time.perf_counter() - begin

    def prepare(self, name: str) -> None:
        """Local. The main thread is there always."""

    def _together(self) -> None:
        """Receives are posted before sends; all complete together."""
        receive, send = self.comm.Irecv, self.comm.Isend
        requests = [receive(buffer, peer) for buffer, peer in self._incoming]
        requests += [send(buffer, peer) for buffer, peer in self._outgoing]
        MPI.Request.Waitall(requests)

    def _there_and_back(self) -> None:
        """One message, and one in answer to it."""
        mine, theirs = self._pair
        if self.route.outgoing:
            peer = self.route.outgoing[0]
            self.comm.Send(mine, peer)
            self.comm.Recv(theirs, peer)
        else:
            peer = self.route.incoming[0]
            self.comm.Recv(theirs, peer)
            self.comm.Send(mine, peer)

    def fill(self, turn: int) -> None:
        """Local."""
        self._memory.fill(turn)

    def wrong(self, turn: int) -> int:
        """Local."""
        return self._memory.wrong(turn)
