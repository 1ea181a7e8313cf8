"""One distributed FFT, done by our methods and by others in turns: who takes part, and the times.

Others are mpi4py-fft with FFTW, the local work of our own plan, and FFTW-MPI in C. The plan of
mpi4py-fft transforms its own arrays, so that it copies nothing, and FFTW plans by measuring, which
is its default.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.selection import Candidate, prepare, release
from onesided.apps.bench.targets import FFTW_MPI, LOCAL, PEER
from onesided.apps.bench.timing import Subject, timed
from onesided.apps.cli.failures import user_errors
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Verdict, byte_count
from onesided.apps.tools.fft import (
    FourierCheck,
    exchanged_bytes,
    plan_maker,
    random_input,
    used_method,
)
from onesided.apps.tools.fftw_mpi import FftwMpi
from onesided.apps.tools.local_work import LocalWork
from onesided.collectives.agreement import agreed
from onesided.pencilfft import PFFT, newDistArray

DIRECTIONS = ("forward", "backward")

#: Seconds for which a transform runs before it is timed: see :mod:`onesided.apps.bench.timing`.
LEAD = 0.1

Calls = tuple[Callable[[], object], Callable[[], object]]


@dataclass
class Outcome:
    """What came out: seconds by name and direction, and what there is to say about each method.

    ``choices`` tells by method what its plan has decided; ``absent`` why an opponent did not take
    part; ``facts`` what FFTW-MPI says of itself. ``nbytes`` a rank sends in one direction.
    """

    times: dict[tuple[str, str], list[float]]
    candidates: list[Candidate[PFFT]]
    labels: dict[str, str]
    choices: dict[str, dict[str, Any]]
    nbytes: int
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    against: str = ""

    @property
    def methods(self) -> list[str]:
        """Local. Names of the methods that were timed."""
        return [each.method for each in self.candidates if not each.reason]

    def both(self, name: str) -> list[float]:
        """Local. Seconds of forward and backward together, by round."""
        pairs = zip(*(self.times[name, direction] for direction in DIRECTIONS), strict=True)
        return [one + other for one, other in pairs]


def contest(
    comm: MPI.Intracomm, options: Namespace, names: Sequence[str], opponents: Sequence[str]
) -> Outcome:
    """Collective. Time the methods and the opponents on ``--shape``, ``--dtype`` and ``--grid``."""
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    plans = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(plans.values()))
    labels = {method: used_method(plan, method) for method, plan in plans.items()}
    choices = {method: choice(plan, labels[method]) for method, plan in plans.items()}
    nbytes = exchanged_bytes(comm, first) // len(DIRECTIONS)
    outcome = Outcome({}, candidates, labels, choices, nbytes)
    peer = _peer(comm, options, opponents, outcome)
    calls: dict[str, Calls] = {}
    if peer is not None:
        calls[PEER] = (peer.forward, peer.backward)
    local = _local_work(comm, options, first, opponents, outcome)
    if local is not None:
        calls[LOCAL] = (local.forward, local.backward)
    source = random_input(comm, first)
    check = FourierCheck(comm, first, source)
    outcome.verdicts = {method: check(plan) for method, plan in plans.items()}
    outcome.against = check.against
    calls |= _calls(plans, source, peer)
    del check
    fftw = _fftw_mpi(comm, options, first, opponents, outcome)
    subjects = {
        (name, direction): Subject(f"{name} {direction}", call, lead=LEAD)
        for name, pair in calls.items()
        for direction, call in zip(DIRECTIONS, pair, strict=True)
    }
    if fftw is not None:
        for direction in DIRECTIONS:
            call = partial(fftw.run, direction)
            name = f"{FFTW_MPI} {direction}"
            subjects[FFTW_MPI, direction] = Subject(name, call, alone=True)
    out = console(options.terminal) if comm.rank == 0 else None
    lists = timed(comm, list(subjects.values()), options, out, "transforming")
    outcome.times = dict(zip(subjects, lists, strict=True))
    if fftw is not None:  # by its own clock, which does not see the question and the answer
        for direction in DIRECTIONS:
            rounds = len(outcome.times[FFTW_MPI, direction])
            outcome.times[FFTW_MPI, direction] = fftw.times(direction, rounds)
        fftw.close()
    release(comm, candidates, PFFT.destroy)
    if peer is not None:
        peer.destroy()
    return outcome


def choice(plan: PFFT, label: str) -> dict[str, Any]:
    """Local. What a plan has decided: method, process grid, kernel, and bytes of a block."""
    return {
        "method": label,
        "grid": list(plan.grid),
        "kernel": plan.backend,
        "block_bytes": plan.choice.blocking.nbytes,
    }


def in_words(choices: Mapping[str, dict[str, Any]]) -> list[str]:
    """Local. The same for a person; methods whose plans decided alike share a sentence."""
    alike: dict[str, list[str]] = {}
    for decided in choices.values():
        grid = " x ".join(map(str, decided["grid"]))
        block = decided["block_bytes"]
        blocks = "" if block is None else f", blocks of {byte_count(block)}"
        words = f"grid {grid}, kernel {decided['kernel']}{blocks}"
        alike.setdefault(words, []).append(decided["method"])
    return [f"{', '.join(names)}: {words}" for words, names in alike.items()]


def _calls(plans: dict[str, PFFT], source: Any, peer: Any | None) -> dict[str, Calls]:
    """Collective. Of every plan, on the same arrays; mpi4py-fft's hold the same numbers."""
    first = next(iter(plans.values()))
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    first.forward(source, spectrum)
    if peer is not None:
        if peer.forward.input_array.shape == source.shape:
            np.copyto(peer.forward.input_array, source)
        peer.forward()
    return {
        name: (partial(plan.forward, source, spectrum), partial(plan.backward, spectrum, back))
        for name, plan in plans.items()
    }


def _peer(
    comm: MPI.Intracomm, options: Namespace, opponents: Sequence[str], outcome: Outcome
) -> Any | None:
    """Collective. The plan of mpi4py-fft with FFTW, on the grid that was asked for or its own."""
    if PEER not in opponents:
        return None
    if find_spec("mpi4py_fft") is None:
        outcome.absent[PEER] = "it is not installed (it needs FFTW)"
        return None
    from mpi4py_fft import PFFT as PeerPFFT

    grid = None if options.grid == ["auto"] else options.grid
    return PeerPFFT(comm, tuple(options.shape), dtype=options.dtype, grid=grid, backend="fftw")


def _local_work(
    comm: MPI.Intracomm, options: Namespace, plan: PFFT, opponents: Sequence[str], outcome: Outcome
) -> LocalWork | None:
    """Collective."""
    if LOCAL not in opponents:
        return None
    if len(options.shape) == 1:
        outcome.absent[LOCAL] = "of one-dimensional arrays it is not told apart"
        return None
    with user_errors(), agreed(comm):
        return LocalWork(plan, options.backend)


def _fftw_mpi(
    comm: MPI.Intracomm, options: Namespace, plan: PFFT, opponents: Sequence[str], outcome: Outcome
) -> FftwMpi | None:
    """Collective. FFTW-MPI, where this is what its program can do: a real array in slabs."""
    if FFTW_MPI not in opponents:
        return None
    try:
        if len(options.shape) != 3 or options.dtype != "float64":
            raise ForeignError("its program transforms three-dimensional float64 arrays")
        if plan.grid != (comm.size, 1, 1):
            raise ForeignError(f"it splits the first axis alone, as --grid {comm.size} does")
        fftw = FftwMpi(comm, options.shape, LEAD)
    except ForeignError as error:
        outcome.absent[FFTW_MPI] = str(error)
        return None
    outcome.facts = fftw.facts
    return fftw
