"""The state at the end: whether it is right, what it is, and how it looks."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.failures import CommandError
from onesided.apps.heat.field import serial
from onesided.apps.heat.simulation import ROOT, Simulation
from onesided.apps.picture import save_slice
from onesided.apps.timing import rest
from onesided.apps.verdict import Verdict

Runs = Mapping[str, Simulation]


def check_finite(comm: MPI.Intracomm, runs: Runs) -> None:
    """Collective. :class:`CommandError` where a temperature is not a finite number."""
    for method, each in runs.items():
        finite = comm.allgather(bool(np.isfinite(each.state).all()))
        if not all(finite):
            raise CommandError(
                f"{method}: the temperature is not finite after {each.steps} steps "
                f"(rank {finite.index(False)})"
            )


def temperatures(comm: MPI.Intracomm, one: Simulation) -> str:
    """Collective. A sentence on the state."""
    state, problem = one.state, one.problem
    low = comm.allreduce(float(state.min()), op=MPI.MIN)
    high = comm.allreduce(float(state.max()), op=MPI.MAX)
    mean = comm.allreduce(float(state.sum(dtype=float)), op=MPI.SUM) / prod(problem.shape)
    return (
        f"After {one.steps} steps of {problem.step:.4g}, at time {one.steps * problem.step:.4g}: "
        f"temperatures from {low:.4g} to {high:.4g}, {mean:.4g} on average."
    )


def verified(comm: MPI.Intracomm, runs: Runs) -> dict[str, Verdict]:
    """Collective. Compare with all steps computed on rank 0: the part of the points that differ."""
    first = next(iter(runs.values()))
    whole = tuple(slice(0, length) for length in first.problem.shape)
    expected: NDArray[Any] | None = None
    if comm.rank == ROOT:
        expected = serial(first.problem, first.steps)
    rest(comm)
    verdicts = {}
    for method, each in runs.items():
        field = each.gathered(whole)
        wrong = 0.0 if field is None or expected is None else differing(field, expected)
        verdicts[method] = Verdict(comm.bcast(wrong, root=ROOT), 0.0)
    return verdicts


def judgement(verdicts: Mapping[str, Verdict]) -> str:
    """Local. A sentence on the verification."""
    wrong = [method for method, verdict in verdicts.items() if not verdict.passed]
    if wrong:
        return f"WRONG: {', '.join(wrong)} differ from one rank; error: the part of the points."
    return "Verified: every byte is that of one rank alone."


def differing(field: NDArray[Any], expected: NDArray[Any]) -> float:
    """Local. The part of the points whose bytes are not the same."""
    bits = np.dtype(f"u{field.dtype.itemsize}")
    one, other = (np.ascontiguousarray(array).view(bits) for array in (field, expected))
    return float(np.count_nonzero(one != other)) / field.size


def draw(comm: MPI.Intracomm, one: Simulation, path: str) -> None:
    """Collective. The temperature; in three dimensions in the middle of the first axis."""
    problem = one.problem
    lengths = [count * problem.spacing for count in problem.shape]
    wanted = [slice(0, count) for count in problem.shape]
    names, place = ("x", "y", "z")[: len(lengths)], ""
    if len(lengths) == 3:
        middle = problem.shape[0] // 2
        wanted[0] = slice(middle, middle + 1)
        place = f" at x = {middle * problem.spacing:.3g}"
    plane = one.gathered(tuple(wanted))
    if plane is not None:
        title = f"Temperature{place}, time {one.steps * problem.step:.4g}"
        plane = plane.reshape(plane.shape[-2:])
        save_slice(path, title, (names[-2], names[-1]), plane, (lengths[-2], lengths[-1]))
