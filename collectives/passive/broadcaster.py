"""The thread that relays (paper 003, Figure 9): a rank takes part while it computes.

Python gives a thread its turn only where another one releases the interpreter lock. NumPy, SciPy
and MPI calls, sleep, and input and output release it; a loop of Python code does every few
milliseconds; compiled code that holds it stops the relay for as long as it runs.
"""

from __future__ import annotations

import threading
import time

from onesided.collectives.errors import BroadcastError
from onesided.collectives.passive.relay import Relay
from onesided.collectives.passive.rest import Rest

#: Seconds that a call inside MPI gets to come back when the thread is to end.
PATIENCE = 5.0


class Broadcaster(threading.Thread):
    """Polls the relay until it is told to stop; errors are kept in the relay.

    A daemon, so that a rank which ends in any way does not wait for it; ``seconds`` is the
    processor time that it has used.
    """

    def __init__(self, relay: Relay, longest: float) -> None:
        super().__init__(name="onesided-broadcaster", daemon=True)
        self._relay = relay
        self._leave = longest >= relay.longest  # to a thread that waits and looks as often
        self._enough = False
        self._gate = threading.Lock()  # opened at the end; waiting for it is cheaper than an Event
        self._gate.acquire()
        self._rest = Rest(longest, self._sleep, yields=False)
        self.seconds = 0.0

    def _sleep(self, seconds: float) -> None:
        if self._gate.acquire(timeout=seconds):
            self._enough = True

    def run(self) -> None:
        while not self._enough:
            helped = self._leave and self._relay.helpers
            worked = not helped and self._relay.poll()
            self._rest(worked, self._relay.expecting)
            self.seconds = time.thread_time()

    def stop(self) -> None:
        """Local. End the thread and wait for it.

        Raises :class:`BroadcastError` where it does not come back from MPI: a rank that it sends
        to does not call MPI any more.
        """
        if self.ident is None:
            return  # it was never started
        if not self._enough:
            self._enough = True
            self._gate.release()
        self.join(PATIENCE)
        if self.is_alive():
            raise BroadcastError(
                f"the Broadcaster does not come back from MPI in {PATIENCE:g} seconds: a rank that "
                "it sends to does not call MPI any more"
            )
