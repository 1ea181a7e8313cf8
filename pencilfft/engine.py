"""What carries out a plan: stages, memory and legs for one grid, one method and one block size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives.agreement import agreed
from onesided.pencilfft.blocking import Blocking
from onesided.pencilfft.decomposition import PencilGeometry, array_in, memory_order
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.legs import Builder, Flight, Leg
from onesided.pencilfft.pencil import Pencil
from onesided.pencilfft.settings import NORMS, PLAN_ORDER, Settings
from onesided.pencilfft.stages import Stage, plan_stages
from onesided.pencilfft.workspace import Workspace

#: Local shape, dtype, and the memory order that suits a transform, outermost axis first.
Form = tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]


class Engine:
    """Passes and transposes between stages; ``comms`` holds a communicator per grid axis.

    ``pencils`` are the local parts before and after a forward transform, without batch axes. Where
    ``ends`` are there, they lie between the caller's arrays and those of the first and the last
    stage.
    """

    pencils: list[Any]
    ends: tuple[Any, Any] | None = None
    _forms: tuple[Form, Form]

    def __init__(
        self,
        comm: MPI.Intracomm,
        comms: Sequence[MPI.Comm],
        stages: Sequence[Stage],
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
        blocking: Blocking,
    ) -> None:
        """Collective over ``comm``. Errors are agreed; what they leave behind is given back."""
        self._legs: dict[bool, list[Leg]] = {True: [], False: []}
        self._workspace = Workspace(comms, stages)
        builder = Builder(
            stages, self._workspace, selection, len(settings.batch), blocking,
            settings.overwrite_input,
        )  # fmt: skip
        self._scratch = builder.scratch
        try:
            with agreed(comm):
                builder.passes(self._workspace.least_chunks(info))
                self._workspace.reserve()
            with agreed(comm):
                self._workspace.connect(builder.chunks, method, info)
                first, last = (array_in(None, *form) for form in self._forms)  # only as layouts
                for forward, scale in zip((True, False), NORMS[settings.norm], strict=True):
                    self._legs[forward] = builder.legs(forward)
                    flight = Flight(self, forward)  # kernels are planned, each rank's own
                    flight.load(*((first, last) if forward else (last, first)), scale)
                    flight.prepare()
                del first, last, flight
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
        """Bytes of memory on this rank: between the stages, and of blocks."""
        return self._workspace.nbytes + self._scratch.nbytes

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        for legs in self._legs.values():
            while legs:
                legs.pop().forget()
        self._workspace.free()


class PencilEngine(Engine):
    """The stages of two or more dimensions.

    ``comms`` holds a communicator per axis, its ranks in the order of the axis; they are borrowed.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        comms: Sequence[MPI.Comm],
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
        blocking: Blocking,
    ) -> None:
        """Collective over ``comm``. Errors are agreed; what they leave behind is given back."""
        batch = len(settings.batch)
        every = [*[MPI.COMM_SELF] * batch, *comms]
        first = PencilGeometry(
            settings.batch + settings.shape,
            tuple(each.size for each in every),
            tuple(each.rank for each in every),
            tuple(range(len(every))),
            settings.sequence[0] + batch,
        )
        transforms = [step.shifted(batch) for step in settings.transforms]
        groups = [[axis + batch for axis in group] for group in settings.axes]
        stages = plan_stages(first, transforms, settings.dtype, settings.transposed_out, groups)
        ends = (stages[0].before, stages[-1].after)
        self.pencils = [
            Pencil.of(geometry, [comms[grid_axis] for grid_axis in geometry.layout])
            for geometry in (end.without(batch) for end in ends)
        ]
        natural = tuple(range(len(every)))
        last = natural
        if settings.order == PLAN_ORDER:
            last = memory_order(len(every), stages[-1].axes)
        self._forms = (
            (ends[0].subshape, settings.dtype, natural),
            (ends[1].subshape, settings.spectral_dtype, last),
        )
        super().__init__(comm, every, stages, settings, selection, method, info, blocking)
