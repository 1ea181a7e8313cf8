"""What carries out a plan: its engine, and when that is given back."""

from __future__ import annotations

import contextlib
import warnings
from functools import partial

import numpy as np
from mpi4py import MPI

from onesided.collectives import Sums
from onesided.collectives.agreement import agree, from_root, largest
from onesided.collectives.context import Resources
from onesided.collectives.errors import PatternError, RequestError
from onesided.pencilfft.commons import Commons
from onesided.pencilfft.engine import Engine
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.legs import Flight


def give_back(
    held: Resources, engine: Engine, sums: Sums | None, flight: Flight | None
) -> None:
    """Collective. Complete the transform that is under way, where it is not broken on any rank;
    free the engine of a plan, the sums by which its ranks agree, and what has held their context.

    What cannot be given up, as a peer that was interrupted will not come, stays until MPI's end.
    """
    broken = flight is not None and flight.broken is not None
    if largest(held.context.comm, None, "free a plan", [int(broken)])[0]:
        if flight is not None and not broken:
            flight.break_off(RequestError("another rank was interrupted"))
    elif flight is not None:
        flight.wait()
    try:
        engine.free()
    finally:
        if sums is not None:
            with contextlib.suppress(RequestError):
                sums.request.Free()
        held.release()


class Execution:
    """The engine of a plan.

    Shared by a plan and its transforms; when the last of them is dropped, it warns, and what has
    to be freed waits for the next collective call on the communicator, or, where that is gone, for
    MPI's end; one rank frees it at once then.
    """

    def __init__(self, comm: MPI.Intracomm, engine: Engine, selection: Selection) -> None:
        """Collective. Errors are agreed."""
        self._commons = Commons.of(comm)
        self._comm = self._commons.context.comm
        self.engine = engine
        #: Whether data travel between ranks.
        self.transposes = bool(self.engine.exchanges(True))
        self._number = self._commons.count()
        #: A transform that was begun and is not completed; or that was broken off in its middle:
        #: the requests are then in different rounds on different ranks, for ever.
        self.flight: Flight | None = None
        #: An error of this rank in a completed one, which the others do not know of.
        self.left: Exception | None = None
        # over all ranks errors, and fields with their squares: a counter in shared memory takes a
        # fifth of MPI's time. Those of the communicator's own could be left broken by others
        self._sums: Sums | None = None
        self._said = (False, 0)  # what the last of these were about
        #: Live until :meth:`free`, or MPI's end: the communicator may be freed before the plan.
        self.held = Resources(self._commons.context)
        if comm.size > 1:
            self._sums = Sums(comm, 3, np.dtype(np.int64))
        selection.settle()
        self._keep(selection)

    def run(self, flight: Flight) -> None:
        """Collective. Transform, or raise on every rank what one of them has to say.

        Ranks agree once, at the end, when the arguments and what the kernels did are known.
        """
        flight.error = flight.error or self.left
        self.flight = flight
        try:
            flight.begin()
            flight.run()
            failed = self._sum(flight)
        except BaseException as problem:
            flight.break_off(problem)
            raise
        self.flight = None
        if failed:
            self._agree(flight)

    def start(self, flight: Flight) -> None:
        """Collective. Begin a transform; raise on every rank what one of them has to say of the
        arguments, or of what the kernels did in one that was begun before."""
        flight.error = flight.error or self.left
        self.flight = flight
        try:
            if not self._sum(flight):
                flight.begin()
                flight.leave()
                return
        except BaseException as problem:
            flight.break_off(problem)
            raise
        self.flight = None
        self._agree(flight)

    def refuse(self, name: str) -> None:
        """Local. RequestError where a transform is under way, or where one was broken off."""
        if self.flight is None:
            return
        problem = self.flight.broken
        if problem is None:
            raise RequestError(f"{name} of a plan while a transform of it is under way")
        raise RequestError(
            f"{name} of a plan whose transform was broken off by {type(problem).__name__}; make a "
            "new plan"
        ) from problem

    @property
    def alive(self) -> bool:
        """Local. False after :meth:`free`, and once MPI's end has given everything back."""
        return self.held in self.held.context.live and not MPI.Is_finalized()

    @property
    def in_order(self) -> set[str]:
        """Local. The methods with which ranks have to go on with all plans in one order."""
        both = (*self.engine.exchanges(True), *self.engine.exchanges(False))
        return {each.method for each in both if not each.request.any_order}

    def _sum(self, flight: Flight) -> bool:
        """Collective. Whether any rank has an error; that of this one is in the flight."""
        sums, factor = self._sums, flight.scale ^ flight.usual  # 0 but where a call has its own
        said = flight.error is not None, 4 * flight.fields + factor
        if sums is None:
            return said[0]
        if said != self._said:
            sums.own[:] = (*said, said[1] ** 2)
            self._said = said
        sums.start()
        if flight.under_way:
            flight.complete(sums.request.Test, sums.finish)
        else:
            sums.finish()
        failed, total, squares = sums.total.tolist()
        if total * total != squares * self._comm.size and not failed:
            flight.error = PatternError("ranks have different numbers of fields, or factors")
            return True
        return bool(failed)

    def _agree(self, flight: Flight) -> None:
        """Collective. Some rank has an error: raise it on all."""
        error, self.left = flight.error, None
        flight.fail(None)  # it keeps nothing of the caller's
        agree(self._comm, error, "a transform")

    def _keep(self, selection: Selection) -> None:
        """Collective. What has been measured, by any rank, into the file of rank 0."""
        comm, wisdom = self._comm, selection.wisdom
        mine = wisdom.news()
        if largest(comm, None, "news", [len(mine)])[0]:
            news = comm.gather(mine)
            # a warning may have been made an error
            from_root(comm, lambda: wisdom.keep(news or []))

    # -- the end ---------------------------------------------------------------------------------

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing. RequestError on every rank
        while a transform is under way on any, and none was broken off. Local after MPI's end."""
        if self.alive:
            flight = self.flight
            begun, broken = flight is not None, flight is not None and flight.broken is not None
            any_begun, any_broken = largest(self._comm, None, "destroy", [int(begun), int(broken)])
            if any_begun and not any_broken:
                raise RequestError("a plan cannot be destroyed while a transform is under way")
            try:
                self._commons.collect()
            finally:
                give_back(self.held, self.engine, self._sums, self.flight)

    def __del__(self) -> None:
        if not hasattr(self, "held") or not self.alive:
            return
        give = partial(give_back, self.held, self.engine, self._sums, self.flight)
        freed = self.held.context.orphaned  # the communicator
        if freed and self._comm.size == 1:
            give()
            then = "have been freed"
        else:
            self._commons.drop(self._number, give)
            then = "stay until MPI ends" if freed else "wait for the next plan on its communicator"
        warnings.warn(
            f"a plan was dropped without destroy(); its memory and communicators {then}",
            ResourceWarning, source=self, stacklevel=2,
        )  # fmt: skip
