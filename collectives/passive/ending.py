"""How a runtime ends: together with all ranks, alone by an exception, or with the program."""

from __future__ import annotations

import time
import warnings

from onesided.collectives.context import EXIT_PATIENCE
from onesided.collectives.errors import OnesidedError
from onesided.collectives.passive.broadcaster import PATIENCE, Broadcaster
from onesided.collectives.passive.notices import CLOSING
from onesided.collectives.passive.relay import Relay
from onesided.collectives.passive.rest import SHORTEST, Rest

#: Seconds that a rank which leaves by an exception still serves the others.
GRACE = 0.25


class Ending:
    """The last steps of a runtime; ``over`` where one of them has been taken, or none is needed.

    What a rank tells first, that it closes or that it has failed, holds: so either all ranks find
    that all close, or none does. Only in the first case a collective call follows.
    """

    def __init__(self, relay: Relay, broadcaster: Broadcaster) -> None:
        self._relay, self._broadcaster = relay, broadcaster
        self.over = True
        self._begun = False

    def begin(self) -> None:
        """Local, once all ranks know that all could open the runtime."""
        self.over, self._begun = False, True

    def together(self, patience: float | None = None) -> None:
        """Local, on every rank: wait until all broadcasts are complete and all ranks close.

        Raises :class:`BroadcastError` where a rank has failed, or after ``patience`` seconds.
        """
        relay, notices = self._relay, self._relay.notices
        relay.wait_for(relay.finished, patience=patience)
        notices.tell(CLOSING)
        relay.wait_for(notices.all_in, patience=patience, whatever_fails=True)
        if not notices.all_closing():
            relay.check()
        self.over = True
        self._broadcaster.stop()

    def alone(self, error: BaseException) -> None:
        """Local. Leave by an error: tell the others, serve them a moment longer, end the thread.

        The moment is for those that are sending to this rank: the MPI may need it to move the
        data, which takes longer where they are long. They hear of the error and stop.
        """
        self.over = True
        self._relay.fail(error)
        left = time.monotonic()
        rest = Rest(min(self._relay.longest, SHORTEST))
        while not self._relay.notices.all_in():
            seconds = time.monotonic() - left
            if seconds > PATIENCE or (seconds > GRACE and not self._relay.side.expecting()):
                break
            rest(self._relay.poll())
        self._broadcaster.stop()

    def at_release(self) -> None:
        """Collective, where the resources are released: by close, or when the program ends."""
        if not self.over:
            try:
                self.together(EXIT_PATIENCE)
            except OnesidedError as error:
                warnings.warn(f"a broadcast is incomplete: {error}", ResourceWarning, stacklevel=1)
                self.over = True
        self._broadcaster.stop()
        if self._begun:
            self._relay.notices.complete()
            self._relay.windows.release()
