"""The legs of a transform: a pass over local data, and the transpose that follows it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import RequestError
from onesided.collectives.scripts import ALIGNMENT as KERNEL_ALIGNMENT
from onesided.collectives.steps import address
from onesided.pencilfft.passes import Pass, Script
from onesided.pencilfft.workspace import DIRECT, STAGED, Transpose

#: An array that a pass reads or writes, and where it begins.
End = tuple[NDArray[Any], int]


def end_of(array: NDArray[Any]) -> End:
    """Local. Of an array."""
    return array, address(array)


#: What is given to a transform that will not compute anything.
NOTHING: End = end_of(np.empty(0))


@dataclass
class Leg:
    """A pass, and the transpose after it. ``reads`` and ``writes``: None is the user's array.

    ``source`` is the transpose that filled ``reads``; its memory is released after the pass.
    ``follows``: what the leg before has written to the user's output is read. ``stays``: the
    result takes the place of what is read. ``before`` changes what is read, in place. ``scripts``
    are those of arrays that have been there, by their layouts, and by what of these matters here.
    """

    local: Pass
    reads: End | None = None
    writes: End | None = None
    source: Transpose | None = None
    transpose: Transpose | None = None
    follows: bool = False
    stays: bool = False
    before: Callable[[NDArray[Any]], None] | None = None
    scripts: dict[Any, Script] = field(default_factory=dict)

    def begin(self, flight: Flight) -> None:
        """Local. Transform the blocks of this rank and hand them on."""
        transpose = self.transpose
        opened = transpose is None or transpose.open()
        if flight.error is None:
            try:
                reads, writes = self.ends(flight)
                if self.before is not None:
                    self.before(reads[0])
                call = self.scripts.get(flight.layouts) if opened else None
                if call is None:
                    call = self.prepare(flight, DIRECT if opened else STAGED)
                call((reads[0], writes[0]), (reads[1], writes[1]))
            except Exception as problem:
                flight.error = problem
        if self.source is not None:
            self.source.release()
        if transpose is not None:
            if not opened:
                transpose.start()
            elif flight.error is not None:
                transpose.ready_all()

    def test(self) -> bool:
        """Local. Whether other ranks have handed on what this leg waits for."""
        return self.transpose is None or bool(self.transpose.test())

    def prepare(self, flight: Flight, route: str) -> Script:
        """Local. What runs for arrays of these layouts, by this route where others take it."""
        key = flight.layouts if route == DIRECT else (route, flight.layouts)
        if key not in self.scripts:
            (reads, here), (writes, there) = self.ends(flight)
            words = flight.scale, flight.fields, reads.strides, here % KERNEL_ALIGNMENT
            to: str | None = route
            form: tuple[Any, ...] = route, *words
            if self.transpose is None:  # else it does not matter where the user's output is
                to, form = None, (*words, writes.strides, there % KERNEL_ALIGNMENT, writes is reads)
            if form not in self.scripts:
                self.scripts[form] = self.local.script(
                    reads, writes, flight.scale, to, flight.fields
                )
            self.scripts[key] = self.scripts[form]
        return self.scripts[key]

    def ends(self, flight: Flight) -> tuple[End, End]:
        """Local. What it reads and what it writes."""
        reads = flight.target if self.follows else self.reads or flight.source
        return reads, reads if self.stays else self.writes or flight.target

    def forget(self) -> None:
        """Local. Drop every view of the plan's memory."""
        self.local.forget()
        self.scripts.clear()
        self.reads = self.writes = self.source = self.transpose = self.before = None


class Flight:
    """One direction of a plan under way, from :meth:`load` on: its ends, the power of its factor,
    how many ``fields`` of the first axis (0 is all), and this rank's first ``error``.

    A rank that has one computes nothing more, but gives the others what they wait for. ``broken``
    is what has ended it in its middle: nobody can go on with it.
    """

    __slots__ = (
        "_ends", "_leg", "_legs", "_lock", "_result", "broken", "error", "fields", "layouts",
        "scale", "source", "target", "usual",
    )  # fmt: skip

    #: Those that were begun and are not complete: any wait of this process goes on with them, as
    #: other ranks may wait for another one first.
    under_way: ClassVar[dict[Flight, None]] = {}

    def __init__(self, engine: Any, forward: bool, usual: int = 0) -> None:
        self.usual = usual  # the power of the factor in calls that do not say another
        self._legs: list[Leg] = engine.legs(forward)
        self._ends: tuple[Any, Any] | None = None
        if engine.ends is not None:
            self._ends = engine.ends[not forward], engine.ends[forward]
        self.broken: BaseException | None = None
        self._leg = 0
        # another thread may wait, and go on with this one. Whether this one has it is asked of the
        # lock: an interrupt may come just before it is taken, and just after
        self._lock: Any = threading.RLock()
        self.fail(None)

    def fail(self, error: Exception | None) -> None:
        """Local. There are no arrays, because of this error."""
        self.source = self.target = NOTHING
        self.scale = self.fields = 0
        self.layouts: tuple[Any, ...] = ()
        self._result: Any = None  # where that goes which the last leg has left in another array
        self.error = error

    def load(
        self, source: NDArray[Any], target: NDArray[Any], scale: int, fields: int = 0
    ) -> None:
        """Local. What it is about from now on; arrays that fit."""
        self.error = None
        self.scale, self.fields = scale, fields
        if self._ends is not None:
            self._result = target
            source, target = self._ends[0].load(source), self._ends[1].room(target)
        here, there = address(source), address(target)
        self.source, self.target = (source, here), (target, there)
        self.layouts = (
            scale, fields, source.strides, target.strides, here % KERNEL_ALIGNMENT,
            there % KERNEL_ALIGNMENT, target is source,
        )  # fmt: skip

    def prepare(self) -> None:
        """Local. Plan for arrays of these layouts; otherwise the first call does."""
        for leg in self._legs:
            leg.prepare(self, DIRECT)

    def begin(self) -> None:
        """Local. Begin the first leg."""
        self._leg = 0
        self._legs[0].begin(self)

    def leave(self) -> None:
        """Local. Others may have to go on with it from now on."""
        self.under_way[self] = None

    def test(self) -> bool:
        """Local. Go on as far as can be without waiting; whether it is complete."""
        if self._lock._is_owned():
            return False  # a signal handler asks, and what it interrupts is at it
        try:
            if not self._lock.acquire(blocking=False):
                return False  # another thread is at it
            while self in self.under_way and self._legs[self._leg].test():
                self._next()
            return self not in self.under_way
        except BaseException as problem:
            if self._lock._is_owned():
                self.break_off(problem)
            raise
        finally:
            if self._lock._is_owned():
                self._lock.release()

    def wait(self) -> Exception | None:
        """Collective. Complete it; the first error of this rank."""
        if self._lock._is_owned():
            raise RequestError("a signal handler waits for the transform that it interrupts")
        try:
            self._lock.acquire()
            return self.run()
        except BaseException as problem:
            if self._lock._is_owned():
                self.break_off(problem)
            raise
        finally:
            if self._lock._is_owned():
                self._lock.release()

    def run(self) -> Exception | None:
        """Collective. As :meth:`wait`, of one that nobody else goes on with."""
        legs = self._legs
        while self._leg < len(legs):
            transpose = legs[self._leg].transpose
            if transpose is not None:
                if self.under_way:
                    self.complete(transpose.test, transpose.wait)
                else:
                    transpose.wait()
            self._next()
        return self.error

    def complete(self, test: Callable[[], object], wait: Callable[[], object]) -> None:
        """Collective. Wait for a request, and go on with other transforms meanwhile."""
        others = self.under_way
        while len(others) > (self in others):
            if test():
                return
            for each in tuple(others):
                if each is not self:
                    with contextlib.suppress(Exception):  # whoever waits for it will hear of it
                        each.test()
            os.sched_yield()
        wait()

    def break_off(self, problem: BaseException) -> None:
        """Local. Nobody goes on with it."""
        self.broken = problem
        self.under_way.pop(self, None)

    def _next(self) -> None:
        """The leg is complete: begin the next one, or end."""
        self._leg += 1
        if self._leg < len(self._legs):
            self._legs[self._leg].begin(self)
            return
        self.under_way.pop(self, None)
        if self._ends is not None and self.error is None:
            try:
                self._ends[1].store(self._result)
            except Exception as problem:
                self.error = problem
        self.source = self.target = NOTHING  # they are the caller's alone from now on
        self.layouts, self._result = (), None
