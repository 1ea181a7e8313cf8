"""Post, start, complete, wait: active target among the ranks that really exchange data.

``Start`` posts, which is local, and says *ready* to the sources. The access epoch is opened when
all targets are ready, so requests may be started and completed in any order. The messages are all
that ranks tell each other before an epoch, and MPI is told so (``MPI_MODE_NOCHECK`` at both ends:
every post has been made before the start that matches it). Otherwise MPI says the same once more,
and ``MPI_Win_post`` is not local: Open MPI 5.0 keeps 32 posts for a rank, and the 33rd waits until
that rank opens its epoch, which waits for this one's message.
"""

from __future__ import annotations

from mpi4py import MPI

from onesided.collectives.context import Resources
from onesided.collectives.exchange import Exchange
from onesided.collectives.schedule import OneSided, merged
from onesided.collectives.transports.lock import Signals


class Pscw(OneSided):
    """General active target synchronization; any order of starts and waits."""

    own_windows = True
    overlay = True
    advances_in_start = False  # to complete an epoch may take until the target enters MPI

    def __init__(self, operation: Exchange, resources: Resources) -> None:
        super().__init__(operation, resources)
        exchange = self.exchange
        targets = [delivery.peer for delivery in self.destinations()]
        sources = sorted(self.sources())
        self._ready = Signals(exchange, resources, sources, targets)
        self._stages = [merged(self.stages(turn)) for turn in range(self.turns)]
        self._access = exchange.context.group.Incl(targets) if targets else None
        self._exposure = exchange.context.group.Incl(sources) if sources else None
        for group in (self._access, self._exposure):
            if group is not None:
                resources.on_release(group.Free)
        self._messages = self._ready.messages()
        self._turn = 0
        self._unsent = False
        self._exposed: list[MPI.Win] = []

    def begin(self, slot: int) -> None:
        self._turn = slot
        self.sync()
        if self._exposure is not None:
            self._exposed = self.own()
            for window in self._exposed:
                window.Post(self._exposure, MPI.MODE_NOCHECK)
        MPI.Prequest.Startall(self._messages)
        self._unsent = True
        for target, source in self.local[slot]:
            target[...] = source

    def advance(self) -> bool:
        if self._unsent:
            if not MPI.Prequest.Testall(self._messages):
                return False
            self._send()
            self._unsent = False
        while self._exposed:
            if not self._exposed[-1].Test():
                return False
            self._exposed = self._exposed[:-1]
        return True

    def _send(self) -> None:
        """One access epoch: all targets have posted, so nothing here waits for user code."""
        if self._access is None:
            return
        windows = self.own()
        for window in windows:
            window.Start(self._access, MPI.MODE_NOCHECK)
        for puts, stores in self._stages[self._turn]:
            for put in puts:
                put.issue()
            for target, source in stores:
                target[...] = source
        self.sync()
        for window in windows:
            window.Complete()

    def waiting_for(self, number: int) -> str:
        if self._unsent:
            return f"ready messages from {list(self._ready.into)}"
        return f"completion by {list(self._ready.out)}"

    def forget(self) -> None:
        super().forget()
        self._ready.forget()
        self._stages, self._messages, self._exposed = [], [], []
