"""One block of the grid in time: tiles computed by a team of threads, ghosts by a halo.

A step computes the tiles at the faces first, which the halo may send piece by piece, and the rest
while the faces travel. Ghosts are waited for in the next step: at its beginning, or by the tiles
that need them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onesided.apps.bench.team import Team
from onesided.apps.cli.options import Options
from onesided.apps.solvers.heat_halos import Arrays, Halo, Sides, faces_of
from onesided.apps.solvers.heat_stencil import (
    Box,
    Problem,
    Queue,
    Tile,
    after,
    beside,
    meet,
    settings,
    tiling,
    update,
)
from onesided.collectives import Grid
from onesided.pencilfft import HDF5File, write_field

SPOILED = -1.0  # no temperature that there can be


class Simulation:
    """One way of exchanging halos, with a state of its own.

    All ways compute in the same two arrays, so that none has memory that is faster than that of
    another: ``resume`` puts a state there and ``pause`` takes it away.

    ``communication``: seconds that this rank has spent in its halo so far; what several threads
    do counts by its mean.
    """

    def __init__(
        self,
        grid: Grid,
        problem: Problem,
        arrays: Arrays,
        team: Team,
        make: Callable[[Sides], Halo],
        options: Options,
    ) -> None:
        """Collective. The state is undefined until ``load``."""
        self.problem, self.grid = problem, grid
        self._arrays, self._team = arrays, team
        self._state = np.empty_like(arrays[0])
        self._inner = tuple(slice(1, length + 1) for length in grid.local_shape)
        self._faces = faces = faces_of(grid)
        self.tiling = tiling(self._inner, faces, max(options.pieces, team.threads))
        info = {"expected_iterations": str(options.steps), **dict(options.info)}
        self.halo = make(Sides(grid, faces, arrays, self.tiling.parts, info))
        self.nbytes = sum(arrays[0][face.send].nbytes for face in faces)
        self._queues = [self._queued(which) for which in range(2)]
        self._now = 0
        self._pending = False  # the ghosts of the present state are on their way
        self._goes_on = False  # another step follows before all messages have to be there
        self.steps, self.communication = 0, 0.0

    def load(self, start: NDArray[Any], steps: int) -> None:
        """Local. Begin with this state of so many steps, which has ghosts around the own points."""
        np.copyto(self._state, start)
        self.steps, self.communication = steps, 0.0

    @property
    def state(self) -> NDArray[Any]:
        """Local. The own points, as of the last pause."""
        return self._state[self._inner]

    def write(
        self, file: HDF5File, name: str, step: int, attributes: Mapping[str, Any]
    ) -> None:
        """Collective. The state as of the last pause, to a file."""
        write_field(self.grid, self._state, file, name, step, attributes)

    def gathered(self, wanted: Box) -> NDArray[Any] | None:
        """Collective. A part of the whole grid, as of the last pause, on rank 0; else None."""
        return self.grid.gather(self._state, 0, wanted)

    def resume(self) -> None:
        """Local. Go on where this way has paused; ghosts that another way has left are spoiled."""
        np.copyto(self._arrays[self._now], self._state)
        for face in self._faces:
            self._arrays[1 - self._now][face.recv] = SPOILED

    def pause(self) -> None:
        """Local. Leave the arrays to others."""
        np.copyto(self._state, self._arrays[self._now])

    def advance(self, steps: int) -> None:
        """Local in the sense of MPI. So many time steps; no message is under way afterwards."""
        with settings():
            for number in range(steps):
                self._goes_on = number + 1 < steps
                self._step()
            began = time.perf_counter()
            if self._pending:
                self.halo.finish(self._now)
                self._pending = False
            self.communication += time.perf_counter() - began
        self.steps += steps
        within = sum(queue.communication() for queues in self._queues for queue in queues)
        self.communication += within / self._team.threads

    def free(self) -> None:
        """Collective. Give the halo back."""
        self.halo.free()

    def _step(self) -> None:
        halo, now, following = self.halo, self._now, 1 - self._now
        first, *others = self._queues[following]
        began = time.perf_counter()
        if self._pending and not halo.gradual:
            halo.finish(now)
        halo.begin(following)
        spent = time.perf_counter() - began
        self._team.together(first)
        began = time.perf_counter()
        if self._pending and halo.gradual:
            halo.finish(now)
        spent += time.perf_counter() - began
        for queue in others:
            began = time.perf_counter()
            halo.send(following)
            spent += time.perf_counter() - began
            self._team.together(queue)
        self.communication += spent
        self._pending, self._now = True, following

    def _used(self, which: int) -> None:
        """Local. All tiles that need ghosts of this array have been computed."""
        if self._goes_on:
            self.halo.used(which)

    def _queued(self, which: int) -> list[Queue]:
        """Local. The tiles of a step that computes this array; in two parts for a joint halo."""
        new, old = self._arrays[which], self._arrays[1 - which]
        boxes = self.tiling.boxes
        marks: list[list[Callable[[], object]]] = [[] for _ in boxes]
        for face, mark in self.halo.marks(which):
            touching = [number for number, box in enumerate(boxes) if meet(box, face)]
            ready = after(len(touching), mark)
            for number in touching:
                marks[number].append(ready)
        arrivals = self.halo.arrivals(1 - which)
        outer = len(self.tiling.outer)
        if self.halo.gradual and outer:
            used = after(outer, partial(self._used, 1 - which))
            for number in range(outer):
                marks[number].append(used)
        tiles = [
            Tile(
                update(self.problem, old, new, box),
                [arrived for ghosts, arrived in arrivals if beside(box, ghosts)],
                marks[number],
            )
            for number, box in enumerate(boxes)
        ]
        parts = [tiles[:outer], tiles[outer:]] if self.halo.joint else [tiles]
        return [Queue(part, self._team) for part in parts]
