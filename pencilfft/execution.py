"""What carries out a plan: its engine, and when that is given back."""

from __future__ import annotations

import warnings

import numpy as np
from mpi4py import MPI

from onesided.collectives import sums
from onesided.collectives.agreement import agree, from_root, largest
from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.legs import Flight
from onesided.pencilfft.planner import Planner


class Execution:
    """The engine of a plan.

    Shared by a plan and its transforms; when the last of them is dropped, it warns, and what has
    to be freed waits for the next collective call.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        planner: Planner,
        selection: Selection,
        sizes: tuple[int, ...] | None,
    ) -> None:
        """Collective. Errors are agreed."""
        self._commons = Commons.of(comm)
        self._comm = self._commons.context.comm
        #: What was decided, and what carries it out.
        self.choice, self.engine = planner.plan(sizes)
        #: Whether data travel between ranks.
        self.transposes = bool(self.engine.exchanges(True))
        self._number = self._commons.count()
        #: False after :meth:`free`.
        self.alive = True
        #: A transform that was begun and is not completed.
        self.flight: Flight | None = None
        self._left: Exception | None = None  # of one, which the other ranks do not know of
        # over all ranks errors, and fields with their squares: a counter in shared memory takes a
        # fifth of MPI's time
        self._sums = sums(comm, 3, np.int64) if comm.size > 1 else None
        selection.settle()
        self._keep(selection)

    def run(self, forward: bool, flight: Flight) -> None:
        """Collective. Transform, or raise on every rank what one of them has to say.

        Ranks agree once, at the end, when the arguments and what the kernels did are known.
        """
        flight.error = flight.error or self._left
        flight.begin(self.engine, forward)
        flight.wait()
        self._agree(flight)

    def start(self, forward: bool, flight: Flight) -> None:
        """Collective. Begin a transform; raise on every rank what one of them has to say of the
        arguments, or of what the kernels did in one that was begun before."""
        flight.error = flight.error or self._left
        self._agree(flight)
        flight.begin(self.engine, forward)
        self.flight = flight

    def test(self) -> bool:
        """Local. Go on with the transform that was begun; whether it is complete."""
        return self.flight is None or self.flight.test()

    def wait(self) -> None:
        """Collective. Complete the transform that was begun; raise what this rank has to say. The
        others hear of it when they begin the next one."""
        flight, self.flight = self.flight, None
        if flight is not None:
            self._left = flight.wait()
            if self._left is not None:
                raise self._left

    @property
    def any_order(self) -> bool:
        """Local. Whether ranks may go on with this plan and others in different orders."""
        both = (*self.engine.exchanges(True), *self.engine.exchanges(False))
        return all(each.request.any_order for each in both)

    def _agree(self, flight: Flight) -> None:
        error, fields = flight.error, flight.fields
        failed = error is not None
        if self._sums is not None:
            self._sums.own[:] = failed, fields, fields * fields
            self._sums.reduce()
            failed, total, squares = self._sums.total.tolist()
            if total * total != squares * self._comm.size and not failed:
                failed, error = True, PatternError("ranks have different numbers of fields")
        if failed:
            self._left = None
            agree(self._comm, error, "a transform")

    def _keep(self, selection: Selection) -> None:
        """Collective. What has been measured, by any rank, into the file of rank 0."""
        comm = self._comm
        mine = selection.news()
        if largest(comm, None, "news", [len(mine)])[0]:
            news = comm.gather(mine)
            # a warning may have been made an error
            from_root(comm, lambda: selection.keep(news or []))

    # -- the end ---------------------------------------------------------------------------------

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing. RequestError while a
        transform is under way."""
        if self.flight is not None:
            raise RequestError("a plan cannot be destroyed while a transform is under way")
        if self.alive:
            self.alive = False
            self.engine.free()
            self._commons.collect()

    def __del__(self) -> None:
        if getattr(self, "alive", False):
            self._commons.drop(self._number, self.engine)
            warnings.warn(
                "a plan was dropped without destroy(); its memory and communicators wait for the "
                "next plan on its communicator", ResourceWarning, source=self, stacklevel=2,
            )  # fmt: skip
