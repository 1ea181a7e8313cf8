"""What carries out a plan: its engine, and when that is given back."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agree, from_root, largest
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.planner import Planner


class Execution:
    """The engine of a plan.

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
        self._commons = commons
        #: What was decided, and what carries it out.
        self.choice, self.engine = planner.plan(sizes)
        self._number = commons.count()
        self._destroyed = False
        self._flag, self._flags = np.zeros(1, np.int64), np.zeros(1, np.int64)
        selection.settle()
        self._keep(selection)

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
        """Collective. Transform."""
        self.engine.run(forward)(source, target, scale)

    def _keep(self, selection: Selection) -> None:
        """Collective. What has been measured, by any rank, into the file of rank 0."""
        comm = self._commons.context.comm
        mine = selection.news()
        if largest(comm, None, "news", [len(mine)])[0]:
            news = comm.gather(mine)
            # a warning may have been made an error
            from_root(comm, lambda: selection.keep(news or []))

    @property
    def alive(self) -> bool:
        """Local. False after :meth:`free`."""
        return not self._destroyed

    # -- the end ---------------------------------------------------------------------------------

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        if not self._destroyed:
            self._destroyed = True
            self.engine.free()
            self._commons.collect()

    def __del__(self) -> None:
        if not getattr(self, "_destroyed", True):
            self._commons.drop(self._number, self.engine)
            warnings.warn(
                "a plan was dropped without destroy(); its memory and communicators wait for the "
                "next plan on its communicator", ResourceWarning, source=self, stacklevel=2,
            )  # fmt: skip
