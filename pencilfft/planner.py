"""From settings to what carries them out: what is left open is decided, the rest is built."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.collectives import methods
from onesided.collectives.errors import UnsupportedError
from onesided.collectives.hardware import Layout
from onesided.collectives.hints import Hints
from onesided.pencilfft.blocking import Blocking
from onesided.pencilfft.engine import Engine, PencilEngine
from onesided.pencilfft.kernels.selection import Selection
from onesided.pencilfft.line.engine import LineEngine
from onesided.pencilfft.pencil import Subcomm
from onesided.pencilfft.settings import Settings
from onesided.pencilfft.tuning import (
    Choice,
    candidate_grids,
    candidate_methods,
    candidate_sizes,
    candidate_ways,
    fastest,
)

#: Of grid and method: to be measured. Of effort: measure.
AUTO, MEASURE = "auto", "measure"


class Planner:
    """Decides grid, method and size of blocks, and builds what carries out the plan.

    ``given`` holds communicators per axis that the caller has made, or None.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        settings: Settings,
        selection: Selection,
        method: str,
        info: Mapping[str, str] | None,
        hints: Hints,
        given: Sequence[MPI.Comm] | None,
    ) -> None:
        self._comm, self._settings, self._selection = comm, settings, selection
        self._method, self._info, self._hints, self._given = method, info, hints, given
        if len(settings.shape) == 1:
            _require_line(settings)

    def choose(self, sizes: tuple[int, ...] | None) -> Choice:
        """Collective. Measure what is open; ``sizes`` is the process grid, None if it is.

        Wisdom may know the answer; that of rank 0 counts, for all.
        """
        if self._settings.effort != MEASURE:
            return self._measured(sizes)
        wanted = self._description(sizes)
        first = self._comm.rank == 0
        recalled = _read(self._selection.recall(wanted)) if first else None
        if recalled is not None and not self._serves(recalled, sizes):
            recalled = None
        known: Choice | None = self._comm.bcast(recalled)
        if known is not None:
            return known
        choice = self._measured(sizes)
        if first:
            self._selection.learn(wanted, _written(choice))
        return choice

    def _serves(self, choice: Choice, sizes: tuple[int, ...] | None) -> bool:
        """Whether a choice is one for these ranks, axes and this grid."""
        grid = choice.grid
        fits = math.prod(grid) == self._comm.size and len(grid) == len(self._settings.shape)
        return fits and sizes in (None, grid)

    def _description(self, sizes: tuple[int, ...] | None) -> str:
        """What a decision holds for, beside processor and kernels: the call, the MPI, the nodes."""
        library = MPI.Get_library_version().split("\n")[0].strip(" \0")
        nodes = Layout.of(self._comm).ranks_per_node
        return (
            f"{self._settings.describe()} on grid {sizes or AUTO} by {self._method} with "
            f"{self._hints}; {library}; ranks per node {nodes}"
        )

    def _measured(self, sizes: tuple[int, ...] | None) -> Choice:
        settings, comm = self._settings, self._comm
        measures = settings.effort == MEASURE
        if sizes is None:
            grids = candidate_grids(comm.size, settings.shape, settings.axes[-1])
        else:
            grids = [sizes]
        names = [self._method]
        if self._method == AUTO and measures and comm.size > 1:
            emulated = (self._hints.ranks_per_node or comm.size) < comm.size
            far = emulated or len(Layout.of(comm).ranks_per_node) > 1
            names = candidate_methods(self._hints, far)
        count = int(np.prod(settings.batch + settings.shape)) // comm.size
        size = count * settings.spectral_dtype.itemsize
        best = fastest(comm, [Choice(g, m) for g in grids for m in names], self.make, size)
        if measures and len(settings.shape) > 1:
            for candidates in (candidate_ways, candidate_sizes):
                tried = [replace(best, blocking=each) for each in candidates(best.blocking, size)]
                best = fastest(comm, tried, self.make, size)
        return best

    def make(self, choice: Choice) -> Engine:
        """Collective. What carries out the plan; its communicators are its own, or the given."""
        settings = self._settings
        if len(settings.shape) == 1:
            return LineEngine(self._comm, settings, self._selection, choice.method, self._info)
        owned = None
        if self._given is None:
            owned = Subcomm(self._comm, choice.grid, reorder=False)
        comms: Any = self._given if owned is None else owned
        return PencilEngine(
            self._comm, comms, owned, settings, self._selection,
            choice.method, self._info, choice.blocking,
        )  # fmt: skip


def _written(choice: Choice) -> str:
    return json.dumps(asdict(choice))


def _read(text: str | None) -> Choice | None:
    """The choice that was written; None where the text is none."""
    try:
        words = json.loads(text or "")
        choice = Choice(
            tuple(int(part) for part in words["grid"]),
            str(words["method"]),
            Blocking(
                int(words["blocking"]["nbytes"]),
                bool(words["blocking"]["in_source"]),
                bool(words["blocking"]["in_target"]),
            ),
        )
    except (ValueError, TypeError, KeyError):
        return None
    return choice if choice.method in methods() and choice.blocking.nbytes > 0 else None


def _require_line(settings: Settings) -> None:
    """Raise where a one-dimensional plan asks for what only more dimensions have."""
    step = settings.transforms[0]
    if settings.batch or step.kind not in ("c2c", "r2c") or step.physical != step.length:
        raise UnsupportedError(
            "one-dimensional arrays are transformed c2c or r2c, without batch and padding, not "
            f"{settings.describe()}"
        )
