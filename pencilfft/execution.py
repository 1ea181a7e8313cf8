"""What carries out a plan, and gets better at it while it is used.

A plan is there at once: its kernels and the size of its blocks are those of an earlier plan, of one
that is alike, or a guess. What is not known is measured after some of the first transforms, when
these have taken as long as measuring takes, so that no program runs twice as long for it; and it
is remembered.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, agreed, from_root, largest
from onesided.collectives.errors import ResourceError, UnsupportedError
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.planner import MARGIN, Choice, Planner, seconds_of

#: Seconds of measuring for every second that the program has spent in transforms.
SHARE = 0.5

#: Transforms whose time the measurement of a candidate takes, about, beside what it takes to make.
TRIAL_CALLS, TRIAL_SECONDS = 12, 0.02


class Execution:
    """The engine of a plan, and what is still to be found out about it.

    Shared by a plan and its transforms; when the last of them is dropped, it warns, and what has
    to be freed waits for the next collective call.
    """

    def __init__(
        self,
        commons: Commons,
        planner: Planner,
        selection: Selection,
        sizes: tuple[int, ...] | None,
    ) -> None:
        """Collective. Errors are agreed."""
        self._commons, self._planner, self._selection = commons, planner, selection
        #: What was decided, and what carries it out.
        self.choice, self.engine, self._candidates = planner.plan(sizes)
        self._number = commons.count()
        self._destroyed = False
        self._flag, self._flags = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._calls, self._used, self._spent = 0, 0.0, 0.0
        self._bound: float | None = None  # seconds of the present engine
        self._changed = False  # kernels, since the engine was made
        selection.settle()
        self._keep()
        self._open = bool(self._candidates) or planner.adaptive

    def agree(self, error: Exception | None) -> None:
        """Collective. Raise on every rank what one of them has to say; cheap where none has."""
        comm = self._commons.context.comm
        self._flag[0] = error is not None
        comm.Allreduce(self._flag, self._flags, MPI.MAX)
        if self._flags[0]:
            agree(comm, error, "a transform")

    @property
    def transposes(self) -> bool:
        """Local. Whether data travel between ranks."""
        return bool(self.engine.exchanges(True))

    def run(
        self, forward: bool, source: NDArray[Any], target: NDArray[Any], scale: int
    ) -> None:
        """Collective. Transform, and now and then look for a better way."""
        if not self._open:
            self.engine.run(forward)(source, target, scale)
            return
        began = time.perf_counter()
        self.engine.run(forward)(source, target, scale)
        self._used += time.perf_counter() - began
        self._calls += 1
        if not self._calls & (self._calls - 1):  # rarely, and the same on all ranks
            self._improve()

    @property
    def alive(self) -> bool:
        """Local. False after :meth:`free`."""
        return not self._destroyed

    # -- improving -------------------------------------------------------------------------------

    def _improve(self) -> None:
        """Collective. Measure for as long as the transforms so far allow."""
        comm = self._commons.context.comm
        spans = largest(comm, None, "improve", _nanos(self._used, self._spent))
        used, spent = (1e-9 * span for span in spans)
        allowed = SHARE * used - spent
        call = used / self._calls
        began, steps = time.perf_counter(), 0
        while allowed > 0 and self._open:
            if not self._step(allowed, call):
                break
            steps += 1
            (taken,) = largest(comm, None, "improved", _nanos(time.perf_counter() - began))
            allowed = SHARE * used - spent - 1e-9 * taken
        if steps:
            self._keep()
        self._spent += time.perf_counter() - began

    def _step(self, allowed: float, call: float) -> bool:
        """Collective. Find out one thing; false where there is not enough time for it yet."""
        comm = self._commons.context.comm
        asks = self._selection.open
        cost = self._selection.cost if asks else 0.0
        wanted, needed = largest(comm, None, "kernels", [asks, *_nanos(cost)])
        if wanted:
            if allowed < 1e-9 * needed:
                return False
            with agreed(comm):
                self._changed = (asks and self._selection.improve()) or self._changed
            return True
        if largest(comm, None, "changed", [self._changed])[0]:
            self._changed = False
            self._replace(self.choice, None)
            return True
        if not self._candidates:
            self._planner.learn(self.choice)
            self._open = False
            return True
        if allowed < 2 * TRIAL_SECONDS + TRIAL_CALLS * call:
            return False
        if self._bound is None:
            self._bound = seconds_of(comm, self.engine)
        self._replace(self._candidates.pop(0), (1 - MARGIN) * self._bound)
        if not self._candidates:
            self._candidates = self._planner.next_candidates(self.choice)
        return True

    def _replace(self, choice: Choice, bound: float | None) -> None:
        """Collective. Another engine, if it takes less than ``bound`` seconds."""
        try:
            engine = self._planner.make(choice)
        except (UnsupportedError, ResourceError):
            return
        if bound is not None:
            seconds = seconds_of(self._commons.context.comm, engine)
            if seconds >= bound:
                engine.free()
                return
            self._bound = seconds
        self.engine, before = engine, self.engine
        self.choice = choice
        before.free()

    def _keep(self) -> None:
        """Collective. What has been measured, by any rank, into the file of rank 0."""
        comm = self._commons.context.comm
        mine = self._selection.news()
        most = largest(comm, None, "news", [len(mine)])[0]
        if most:
            news = comm.gather(mine)
            # a warning may have been made an error
            from_root(comm, lambda: self._selection.keep(news or []))

    # -- the end ---------------------------------------------------------------------------------

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        if not self._destroyed:
            self._destroyed, self._open = True, False
            self.engine.free()
            self._commons.collect()

    def __del__(self) -> None:
        if not getattr(self, "_destroyed", True):
            self._commons.drop(self._number, self.engine)
            warnings.warn(
                "a plan was dropped without destroy(); its memory and communicators wait for the "
                "next plan on its communicator", ResourceWarning, source=self, stacklevel=2,
            )  # fmt: skip


def _nanos(*seconds: float) -> list[int]:
    return [int(1e9 * each) for each in seconds]
