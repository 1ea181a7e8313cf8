"""How long to rest between two looks that found nothing: not at all, then longer and longer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: Looks without a rest after something has happened.
SPINS = 64

#: Looks between two rests: a long transfer moves on by a piece at each.
LOOKS = 4

#: Seconds of the first rest; each one is twice the one before.
SHORTEST = 50e-6


class Rest:
    """Called after every look. ``longest`` is in seconds; with 0 it yields and never sleeps."""

    def __init__(self, longest: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._longest, self._sleep = longest, sleep
        self._idle = 0

    def __call__(self, worked: bool) -> None:
        """Local. ``worked``: the look found something to do."""
        self._idle = 0 if worked else self._idle + 1
        seconds = self.seconds()
        if seconds is None:
            return
        if seconds:
            self._sleep(seconds)
        else:
            os.sched_yield()

    def seconds(self) -> float | None:
        """Local. The length of the rest that is due: 0 is a yield, None no rest at all."""
        rests, look = divmod(self._idle - SPINS, LOOKS)
        if rests < 0 or self._longest == 0:
            return 0.0
        return None if look else min(self._longest, SHORTEST * 2.0 ** min(rests, 40))
