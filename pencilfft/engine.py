"""What carries out a plan: stages, memory and legs for one grid, one method and one block size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.collectives.agreement import agreed
from onesided.pencilfft.blocking import Blocking
from onesided.pencilfft.decomposition import PencilGeometry, memory_order
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.legs import Builder, Leg
from onesided.pencilfft.pencil import Pencil
from onesided.pencilfft.settings import NORMS, PLAN_ORDER, Settings
from onesided.pencilfft.stages import plan_stages
from onesided.pencilfft.workspace import Workspace

#: Local shape, dtype, and the memory order that suits a transform, outermost axis first.
Form = tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]

Run = Callable[[NDArray[Any], NDArray[Any], int], None]  # source, target, scale


class Engine(Protocol):
    """What a plan needs of what carries it out.

    ``geometries`` are the local parts before and after a forward transform, without batch axes;
    ``comms`` the communicators over which the axes of each are split.
    """

    geometries: tuple[Any, Any]
    comms: tuple[tuple[MPI.Comm, ...], tuple[MPI.Comm, ...]]

    def form(self, output: bool) -> Form:
        """Local. Of the array before the forward transform, or after it, with batch axes."""
        ...

    def pencil(self, geometry: Any, comms: Sequence[MPI.Comm]) -> Any:
        """Local. What users see of a geometry."""
        ...

    def run(self, forward: bool) -> Run:
        """Local. The transform of one direction, Collective when called."""
        ...

    def exchanges(self, forward: bool) -> Sequence[Any]:
        """Local. The exchanges of one direction, with ``method``, ``nbytes``, ``setup_time``."""
        ...

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        ...


class PencilEngine:
    """Passes and transposes over pencils, of two or more dimensions.

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
        alone = [MPI.COMM_SELF] * batch
        every = [*alone, *comms]
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
        self.geometries = (ends[0].without(batch), ends[1].without(batch))
        first_comms, last_comms = (
            tuple(comms[g] for g in each.layout) for each in self.geometries
        )
        self.comms = (first_comms, last_comms)
        natural = tuple(range(len(every)))
        last = natural
        if settings.order == PLAN_ORDER:
            last = memory_order(len(every), stages[-1].axes)
        self._forms: tuple[Form, Form] = (
            (ends[0].subshape, settings.dtype, natural),
            (ends[1].subshape, settings.spectral_dtype, last),
        )
        self._legs: dict[bool, list[Leg]] = {True: [], False: []}
        self._workspace = Workspace(every, stages)
        builder = Builder(
            stages, self._workspace, selection, batch, blocking, settings.overwrite_input
        )
        try:
            with agreed(comm):
                builder.passes(self._workspace.least_chunks(info))
                self._workspace.reserve()
            with agreed(comm):
                self._workspace.connect(builder.chunks, method, info)
                before, after = (array_like(*form) for form in self._forms)  # only as layouts
                for forward, scale in zip((True, False), NORMS[settings.norm], strict=True):
                    ends_of = (before, after) if forward else (after, before)
                    self._legs[forward] = builder.legs(forward)
                    for leg in self._legs[forward]:
                        leg.prepare(*ends_of, scale)  # kernels are planned, each rank's own
                before = after = ends_of = None  # type: ignore[assignment]
            self._workspace.share()
        except Exception:
            self.free()
            raise

    def form(self, output: bool) -> Form:
        """Local. Of the array before the forward transform, or after it."""
        return self._forms[output]

    def run(self, forward: bool) -> Run:
        """Local. The transform of one direction."""
        legs = self._legs[forward]

        def run(source: NDArray[Any], target: NDArray[Any], scale: int) -> None:
            for leg in legs:
                leg(source, target, scale)

        return run

    def exchanges(self, forward: bool) -> Sequence[Any]:
        """Local. The transposes of one direction, in the order of the forward transform."""
        return self._workspace.transposes(forward)

    def free(self) -> None:
        """Collective. Give everything back; a second call does nothing."""
        for legs in self._legs.values():
            while legs:
                legs.pop().forget()
        self._workspace.free()

    @staticmethod
    def pencil(geometry: PencilGeometry, comms: Sequence[MPI.Comm]) -> Pencil:
        """Local. The public form of a geometry."""
        return Pencil.of(geometry, comms)


def array_like(shape: Sequence[int], dtype: np.dtype[Any], order: Sequence[int]) -> NDArray[Any]:
    """Local. A new array with its axes in this order of memory, outermost first."""
    memory = np.empty([shape[axis] for axis in order], dtype)
    return memory.transpose(np.argsort(order))
