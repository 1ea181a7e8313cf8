"""How long to rest between two looks that found nothing: not at all, then longer and longer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: Looks without a rest after something has happened.
SPINS = 64

#: Looks between two rests: a long transfer moves on by a piece at each.
LOOKS = 2

#: Seconds of the first rest; each one is twice the one before.
SHORTEST = 50e-6


class Rest:
    """Called after every look. ``longest`` is in seconds; with 0 it yields and never sleeps.

    A thread beside one that computes on the same core is better off asleep: it gets the core back
    at once when it wakes, but only after a time slice when it yields. So ``yields`` is for those
    that wait for something that is about to come.
    """

    def __init__(
        self, longest: float, sleep: Callable[[float], object] = time.sleep, yields: bool = True
    ) -> None:
        self._longest, self._sleep = longest, sleep
        self._yields = yields or longest == 0
        self._idle = 0

    def __call__(self, worked: bool, expecting: bool = False) -> None:
        """Local. ``worked``: the look found something to do; ``expecting``: it soon will."""
        self._idle = 0 if worked else self._idle + 1
        if expecting and self._idle > SPINS + LOOKS:
            self._idle = SPINS + 1
        seconds = self.seconds()
        if seconds:
            self._sleep(seconds)
        elif seconds == 0 and self._yields:
            os.sched_yield()

    def seconds(self) -> float | None:
        """Local. The length of the rest that is due: 0 is a yield, None no rest at all."""
        rests, look = divmod(self._idle - SPINS, LOOKS)
        if rests < 0 or self._longest == 0:
            return 0.0
        return None if look else min(self._longest, SHORTEST * 2.0 ** min(rests, 40))
