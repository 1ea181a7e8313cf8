"""All steps of all ways, in turns, with their times.

In every run each way goes on from the same state, with the same arrays, and computes the same
steps. They must come to the same state, bit by bit; the next run goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.evidence.stopwatch import Stopwatch
from onesided.apps.heat.decomposition import cut
from onesided.apps.mini.turns import Taken, Turn, in_turns
from onesided.apps.minimd.links import Links
from onesided.apps.minimd.problem import Problem
from onesided.apps.minimd.simulation import PARTS, Simulation
from onesided.apps.minimd.thermo import Output

WARM_UP = 2  # steps of every way before the first run, which begins again at the start


@dataclass(frozen=True)
class Course:
    """What came out. ``steps``: of every run; ``taken``: seconds of the runs, by way.

    ``differing``: atoms whose state is not that of the reference, of all atoms of a rank, by way.
    """

    steps: Sequence[int]
    taken: Mapping[str, Taken]
    differing: Mapping[str, float]
    outputs: Sequence[Output]

    def times(self, way: str) -> list[float]:
        """Local. Seconds of a step, by run."""
        return self._of_a_step(self.taken[way].times)

    def parts(self, way: str) -> dict[str, list[float]]:
        """Local. The same of the parts of a step, on average over the ranks."""
        return {part: self._of_a_step(times) for part, times in self.taken[way].parts.items()}

    def _of_a_step(self, seconds: Sequence[float]) -> list[float]:
        return [each / count for each, count in zip(seconds, self.steps, strict=True)]


def steps_of_runs(problem: Problem, wanted: int) -> list[int]:
    """Local. The steps of ``wanted`` runs, of fewer where there are not so many sets of lists.

    Runs end where new lists are made anyway, so that each has its share of them.
    """
    whole, rest = divmod(problem.steps, problem.every)
    blocks = [problem.every] * whole + [rest] * (rest > 0)
    count = min(wanted, len(blocks))
    return [sum(blocks[cut(len(blocks), count, number)]) for number in range(count)]


def follow(
    simulation: Simulation,
    links: Mapping[str, Links],
    steps: Sequence[int],
    tick: Callable[[], object],
) -> Course:
    """Collective. All steps, by all ways, of which the first is the reference."""
    relay = _Relay(simulation, links, steps)
    turns = [relay.turn(name) for name in links]
    relay.warm_up()
    simulation.farthest = 0.0
    taken = dict(zip(links, in_turns(simulation.cart, turns, len(steps), tick), strict=True))
    relay.finish()
    return Course(steps, taken, relay.differing, relay.outputs)


class _Relay:
    """Every way begins a run where the one before has ended with the reference."""

    def __init__(
        self, simulation: Simulation, links: Mapping[str, Links], steps: Sequence[int]
    ) -> None:
        self._simulation, self._links, self._steps = simulation, links, steps
        self._reference = next(iter(links))
        self._state, self._step, self._run = simulation.atoms.state(), 0, 0
        self._ends: dict[str, NDArray[Any]] = {}
        self.outputs: list[Output] = []
        self.differing = dict.fromkeys(links, 0.0)

    def turn(self, name: str) -> Turn:
        """Local."""
        watches = {part: Stopwatch() for part in PARTS}
        return Turn(
            self._advance,
            watches,
            before=partial(self._resume, name, watches),
            after=partial(self._arrive, name),
        )

    def warm_up(self) -> None:
        """Collective. A few steps of every way."""
        watches = {part: Stopwatch() for part in PARTS}
        for name in self._links:
            self._resume(name, watches)
            self._simulation.advance(min(WARM_UP, sum(self._steps)))

    def finish(self) -> None:
        """Collective. The atoms as they are in the end, and the same verdicts on all ranks."""
        self._simulation.atoms.load(self._state)
        wrong = np.array(list(self.differing.values()))
        self._simulation.cart.Allreduce(MPI.IN_PLACE, wrong, op=MPI.MAX)
        self.differing = dict(zip(self._links, wrong.tolist(), strict=True))

    def _resume(self, name: str, watches: Mapping[str, Stopwatch]) -> None:
        """Collective."""
        self._simulation.resume(self._state, self._step, self._links[name], watches)

    def _advance(self) -> None:
        """Collective."""
        self._simulation.advance(self._steps[self._run])

    def _arrive(self, name: str) -> None:
        """Local. Keep the state; the last way of a run starts the next one."""
        self._ends[name] = self._simulation.atoms.state()
        if name == self._reference:
            self.outputs += self._simulation.outputs
        if len(self._ends) < len(self._links):
            return
        end = self._ends[self._reference]
        for each, state in self._ends.items():
            self.differing[each] = max(self.differing[each], differing(state, end))
        self._state, self._ends = end, {}
        self._step += self._steps[self._run]
        self._run += 1


def differing(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Local. The part of the atoms of a rank whose bits are not the same."""
    if one.shape != other.shape:
        return 1.0
    first, second = (np.ascontiguousarray(array).view(np.uint64) for array in (one, other))
    wrong = int(np.count_nonzero((first != second).any(axis=0)))
    return wrong / max(int(one.shape[1]), 1)
