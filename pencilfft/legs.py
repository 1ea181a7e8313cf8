"""The legs of a transform: a pass over local data, and the transpose that follows it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from onesided.collectives.errors import RequestError
from onesided.collectives.program import address
from onesided.collectives.scripts import ALIGNMENT as KERNEL_ALIGNMENT
from onesided.pencilfft.blocking import Blocking
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.operations import Operation, chains
from onesided.pencilfft.passes import Pass, Scratch, Script
from onesided.pencilfft.stages import Stage
from onesided.pencilfft.transpose import DIRECT, STAGED, Transpose
from onesided.pencilfft.workspace import Workspace

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
            form = route, flight.scale, flight.fields, reads.strides, here % KERNEL_ALIGNMENT
            to: str | None = route
            if self.transpose is None:  # else it does not matter where the user's output is
                to, form = None, (*form, writes.strides, there % KERNEL_ALIGNMENT, writes is reads)
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
        "scale", "source", "target",
    )  # fmt: skip

    #: Those that were begun and are not complete: any wait of this process goes on with them, as
    #: other ranks may wait for another one first.
    under_way: ClassVar[dict[Flight, None]] = {}

    def __init__(self, engine: Any, forward: bool) -> None:
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


@dataclass
class Builder:
    """Makes the legs of a plan; ``batch`` is the number of leading axes left alone.

    ``overwrites``: the user's input may be written to.
    """

    stages: Sequence[Stage]
    workspace: Workspace
    selection: Selection
    batch: int
    blocking: Blocking
    overwrites: bool

    def __post_init__(self) -> None:
        #: The memory of blocks that are worked on.
        self.scratch = Scratch()
        self._passes: dict[bool, list[Pass]] = {True: [], False: []}

    def passes(self, least: Sequence[int]) -> None:
        """Local. The passes of both directions, before there is memory; ``least``: bytes of a chunk
        by which each transpose is fed."""
        last = len(self.stages) - 1
        for forward, made in self._passes.items() if last else ():
            steps = list(chains(self.stages, forward))
            for k, stage in enumerate(self.stages):
                side, end = (stage.before, stage.after) if forward else (stage.after, stage.before)
                ends = k == (last if forward else 0)
                made.append(Pass(
                    self.selection, steps[k if forward else last - k], side.subshape,
                    self.scratch, self.blocking, uncut=None if ends else end.axis,
                    consumes=self.overwrites or k != (0 if forward else last),
                    least=0 if ends else least[k if forward else k - 1],
                ))  # fmt: skip

    def chunks(self, k: int, forward: bool) -> tuple[int, Sequence[int]]:
        """Local. How the source of transpose k is cut."""
        local = self._passes[forward][k if forward else k + 1]
        return local.axis, local.stops

    def legs(self, forward: bool) -> list[Leg]:
        """Local. The legs of one direction, when there are transposes between the passes."""
        passes = self._passes[forward]
        if not passes:
            return self._local_legs(forward)
        legs: list[Leg] = []
        source: Transpose | None = None
        reads: End | None = None
        for local in passes if forward else reversed(passes):
            k = len(legs) if forward else len(passes) - 2 - len(legs)  # of what follows
            transpose = None
            if len(legs) < len(passes) - 1:
                transpose = self.workspace.transpose(k, forward)
                routes = transpose.routes()
                local.add_route(DIRECT, routes[DIRECT], transpose.marks())
                local.add_route(STAGED, routes[STAGED])
            legs.append(Leg(local, reads, None, source, transpose))
            if transpose is not None:
                reads, source = end_of(self.workspace.received(k, forward)), transpose
        return legs

    def _local_legs(self, forward: bool) -> list[Leg]:
        """Without a transpose: in groups of axes that leave one to form blocks along.

        Source and target may be one array here, so no step goes from one to the other.
        """
        blocking = replace(self.blocking, in_target=False)
        stage = self.stages[0]
        (steps,) = chains(self.stages, forward)
        shape = (stage.before if forward else stage.after).subshape
        last = (stage.after if forward else stage.before).subshape
        end = stage.dtypes[1] if forward else stage.dtypes[0]
        groups = _groups(steps, len(shape), self.batch)
        if len(groups) == 1:
            return [self._local_leg(steps, shape, blocking, self.overwrites)]
        legs: list[Leg] = []
        reads: End | None = None
        ours, follows, dtype = self.overwrites, False, steps[0].dtypes[0]
        for k, group in enumerate(groups):
            leg = self._local_leg(group, shape, blocking, ours)
            leg.reads, leg.follows = reads, follows
            legs.append(leg)
            before, (shape, dtype) = (shape, dtype), (leg.local.shape, group[-1].dtypes[1])
            if k < len(groups) - 1 and (shape, dtype) != (last, end):
                leg.stays = ours and (shape, dtype) == before
                if leg.stays:
                    continue
                leg.writes = end_of(self.workspace.intermediate(shape, dtype))
            reads, ours, follows = leg.writes, True, leg.writes is None
        return legs

    def _local_leg(
        self, steps: Sequence[Operation], shape: Sequence[int], blocking: Blocking, ours: bool
    ) -> Leg:
        return Leg(
            Pass(self.selection, steps, shape, self.scratch, blocking, consumes=ours)
        )


def _groups(steps: Sequence[Operation], ndim: int, batch: int) -> list[list[Operation]]:
    """The steps cut into groups that leave an axis free, not the last one where that can be."""
    axes = {step.axis for step in steps}
    if set(range(batch, ndim)) - axes:
        return [list(steps)]
    groups: list[list[Operation]] = [[]]
    inside: set[int] = set()
    for step in steps:
        joined = inside | {step.axis}
        if groups[-1] and not set(range(batch, ndim - 1)) - joined and step.axis not in inside:
            groups.append([])
            joined = {step.axis}
        groups[-1].append(step)
        inside = joined
    return groups
