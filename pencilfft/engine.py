"""What carries out a plan: stages, memory and legs for one grid and one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.pencilfft.decomposition import PencilGeometry, array_in, memory_order
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.legs import End, Flight, Leg, end_of
from onesided.pencilfft.passes import Pass, Scratch
from onesided.pencilfft.pencil import Pencil
from onesided.pencilfft.settings import NORMS, PLAN_ORDER, Settings
from onesided.pencilfft.stages import Operation, Stage, chains, plan_stages
from onesided.pencilfft.workspace import DIRECT, STAGED, Transpose, Workspace

#: Local shape, dtype, and the memory order that suits a transform, outermost axis first.
Form = tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True)
class Course:
    """The way of the data in a forward transform, from stage to stage.

    ``comms`` holds a communicator per grid axis, its ranks in the order of the axis; they are
    borrowed. ``pencils`` are the local parts at its beginning and its end, without batch axes, and
    ``forms`` those of arrays. Where ``ends`` are there, they lie between the caller's arrays and
    those of the first and the last stage. ``tables``, by direction and leg, make what a leg
    multiplies by that which it has received.
    """

    comms: Sequence[MPI.Comm]
    stages: Sequence[Stage]
    pencils: Sequence[Any]
    forms: Sequence[Form]
    ends: tuple[Any, Any] | None = None
    tables: Mapping[tuple[bool, int], Callable[[], NDArray[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, comms: Sequence[MPI.Comm]) -> Course:
        """Local. In two or more dimensions, split over a communicator for each axis."""
        batch = len(settings.batch)
        every = [*[MPI.COMM_SELF] * batch, *comms]
        natural = tuple(range(len(every)))
        first = PencilGeometry(
            settings.batch + settings.shape,
            tuple(each.size for each in every),
            tuple(each.rank for each in every),
            natural,
            settings.sequence[0] + batch,
        )
        transforms = [step.shifted(batch) for step in settings.transforms]
        groups = [[axis + batch for axis in group] for group in settings.axes]
        stages = plan_stages(first, transforms, settings.dtype, settings.transposed_out, groups)
        ends = (stages[0].before, stages[-1].after)
        pencils = [
            Pencil.of(geometry, [comms[grid_axis] for grid_axis in geometry.layout])
            for geometry in (end.without(batch) for end in ends)
        ]
        last = natural
        if settings.order == PLAN_ORDER:
            last = memory_order(len(every), stages[-1].axes)
        forms = (
            (ends[0].subshape, settings.dtype, natural),
            (ends[1].subshape, settings.spectral_dtype, last),
        )
        return cls(every, stages, pencils, forms)


class Engine:
    """Passes over local data, and the transposes between them."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        course: Course,
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
    ) -> None:
        """Collective over ``comm``. Errors are agreed; what they leave behind is given back."""
        self.pencils, self.ends = course.pencils, course.ends
        self._forms, self._stages = course.forms, course.stages
        self._selection = selection
        self._batch, self._overwrites = len(settings.batch), settings.overwrite_input
        self._scratch = Scratch()
        self._workspace = Workspace(course.comms, course.stages)
        self._passes: dict[bool, list[Pass]] = {True: [], False: []}
        self._legs: dict[bool, list[Leg]] = {True: [], False: []}
        self._tables = 0
        try:
            with agreed(comm):
                self._make_passes(self._workspace.least_chunks(info))
                self._workspace.reserve()
            with agreed(comm):
                self._workspace.connect(self._chunks, method, info)
                first, last = (array_in(None, *form) for form in self._forms)  # only as layouts
                for forward, scale in zip((True, False), NORMS[settings.norm], strict=True):
                    self._legs[forward] = self._make_legs(forward)
                    flight = Flight(self, forward)  # kernels are planned, each rank's own
                    flight.load(*((first, last) if forward else (last, first)), scale)
                    flight.prepare()
                del first, last, flight
                for (forward, leg), make in course.tables.items():
                    self._multiply(self._legs[forward][leg], make())
            self._workspace.share()
        except Exception:
            self.free()
            raise

    def form(self, output: bool) -> Form:
        """Local. Of the array before the forward transform, or after it."""
        return self._forms[output]

    def legs(self, forward: bool) -> list[Leg]:
        """Local. Those of one direction, in the order in which they run."""
        return self._legs[forward]

    def exchanges(self, forward: bool) -> Sequence[Any]:
        """Local. The transposes of one direction, in the order of the forward transform."""
        return self._workspace.transposes(forward)

    @property
    def nbytes(self) -> int:
        """Bytes of memory on this rank: between the stages, of blocks, of tables and of ends."""
        ends: int = sum(end.nbytes for end in self.ends or ())
        return self._workspace.nbytes + self._scratch.nbytes + self._tables + ends

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        for legs in self._legs.values():
            while legs:
                legs.pop().forget()
        self._workspace.free()

    # -- passes and legs -------------------------------------------------------------------------

    def _make_passes(self, least: Sequence[int]) -> None:
        """The passes of both directions, before there is memory; ``least``: bytes of a chunk by
        which each transpose is fed."""
        last = len(self._stages) - 1
        for forward, made in self._passes.items() if last else ():
            steps = chains(self._stages, forward)
            for k, stage in enumerate(self._stages):
                side, end = (stage.before, stage.after) if forward else (stage.after, stage.before)
                ends = k == (last if forward else 0)
                made.append(Pass(
                    self._selection, steps[k if forward else last - k], side.subshape,
                    self._scratch, uncut=None if ends else end.axis, in_source=self._overwrites,
                    least=0 if ends else least[k if forward else k - 1],
                ))  # fmt: skip

    def _chunks(self, k: int, forward: bool) -> tuple[int, Sequence[int]]:
        """How the source of transpose k is cut."""
        local = self._passes[forward][k if forward else k + 1]
        return local.axis, local.stops

    def _make_legs(self, forward: bool) -> list[Leg]:
        """The legs of one direction, when there are transposes between the passes."""
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
                transpose = self._workspace.transpose(k, forward)
                routes = transpose.routes()
                local.add_route(DIRECT, routes[DIRECT], transpose.marks())
                local.add_route(STAGED, routes[STAGED])
            legs.append(Leg(local, reads, None, source, transpose))
            if transpose is not None:
                reads, source = end_of(self._workspace.received(k, forward)), transpose
        return legs

    def _local_legs(self, forward: bool) -> list[Leg]:
        """Without a transpose: in groups of axes that leave one to form blocks along."""
        stage = self._stages[0]
        (steps,) = chains(self._stages, forward)
        shape = (stage.before if forward else stage.after).subshape
        last = (stage.after if forward else stage.before).subshape
        end = stage.dtypes[1] if forward else stage.dtypes[0]
        groups = _groups(steps, len(shape), self._batch)
        legs: list[Leg] = []
        reads: End | None = None
        ours, follows, dtype = self._overwrites, False, steps[0].dtypes[0]
        for k, group in enumerate(groups):
            local = Pass(self._selection, group, shape, self._scratch, in_source=self._overwrites)
            leg = Leg(local, reads, follows=follows)
            legs.append(leg)
            before, (shape, dtype) = (shape, dtype), (local.shape, group[-1].dtypes[1])
            if k < len(groups) - 1 and (shape, dtype) != (last, end):
                leg.stays = ours and (shape, dtype) == before
                if leg.stays:
                    continue
                leg.writes = end_of(self._workspace.intermediate(shape, dtype))
            reads, ours, follows = leg.writes, True, leg.writes is None
        return legs

    def _multiply(self, leg: Leg, table: NDArray[Any]) -> None:
        """Let a leg multiply what it has received before it goes on."""

        def times(received: NDArray[Any]) -> None:
            with np.errstate(all="ignore"):  # infinities and NaN pass
                np.multiply(received, table, out=received)

        leg.before = times
        self._tables += table.nbytes


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
