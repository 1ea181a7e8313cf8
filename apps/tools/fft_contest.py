"""One distributed FFT, done by our methods and by others in turns: who takes part, and the times.

Others are mpi4py-fft with every kernel it has here, the local work of our own plan, and FFTW-MPI
in C. Plans of mpi4py-fft transform their own arrays, so that they copy nothing, and FFTW plans by
measuring, which is its default; the fastest of them is the opponent. With ``--backend``
fftw, numpy, scipy or mkl_fft both sides have that kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.race import Check, Contestant, timed, unchecked
from onesided.apps.bench.selection import Candidate, prepare, release
from onesided.apps.cli.failures import user_errors, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import byte_count
from onesided.apps.cli.statistics import Target, Verdict
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

# What is to be reached, and in which cases: the numbers of the benchmark's table.

PEER, LOCAL, FFTW_MPI = "mpi4py-fft", "local work", "FFTW-MPI"
BUDGET = Target("30 ms", 1.0, least=False, seconds=0.03)
#: With what ours can be compared, by the words of ``--against``.
OPPONENTS = {"mpi4py-fft": PEER, "local-work": LOCAL, "fftw-mpi": FFTW_MPI}

#: Over a slow link: most that the best any-order one-sided method may take, in times of ``mpi``,
#: and ``auto`` in times of the best method.
SLOW_LINK = 1.05


@dataclass(frozen=True)
class Case:
    """A transform, the number of ranks for which its targets hold, and a grid if it has its own."""

    shape: tuple[int, ...]
    dtype: str
    targets: tuple[Target, ...]
    ranks: int = 2
    grid: tuple[int, ...] | None = None
    backend: str = "auto"
    #: Of plans: a first one, over mpi4py-fft's; one that is recalled, over 30 ms.
    setups: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        """Local. Kind and shape, and the kernel if it is named."""
        kind = "c2c" if self.dtype.startswith("complex") else "r2c"
        kernel = "" if self.backend == "auto" else ", FFTW"
        return f"{kind} {'x'.join(map(str, self.shape))}{kernel}"

    def shrunk(self, divisor: int) -> Case:
        """Local. The same with every axis divided, and with no targets: they hold for its size."""
        shape = tuple(max(1, length // divisor) for length in self.shape)
        return self if divisor == 1 else replace(self, shape=shape, targets=(), setups=())


def _faster(times: float) -> Target:
    return Target(PEER, times)


def _all_three(peer: float, fftw_mpi: float, local: float) -> tuple[Target, ...]:
    return _faster(peer), Target(FFTW_MPI, fftw_mpi), Target(LOCAL, local, least=False)


_FIRST = Target(PEER, 2.0, least=False)
_FFTW = "fftw"  # mpi4py-fft's, so that both sides have the same

CASES = (
    Case((64, 64, 64), "float64", _all_three(3.0, 1.4, 1.1), setups=(_FIRST,)),
    Case((128, 128, 128), "float64", _all_three(3.5, 1.8, 0.8), setups=(_FIRST, BUDGET)),
    Case((256, 256, 256), "float64", _all_three(3.5, 2.3, 0.8), setups=(_FIRST,)),
    Case((64, 64, 64), "float64", (_faster(2.2),), backend=_FFTW),
    Case((128, 128, 128), "float64", (_faster(2.5),), backend=_FFTW),
    Case((256, 256, 256), "float64", (_faster(2.5),), backend=_FFTW),
    Case((256, 256, 256), "complex128", (_faster(3.0),)),
    Case((192, 200, 225), "float64", (_faster(3.0),)),
    Case((128, 128, 128), "float64", (_faster(2.5),), ranks=4, grid=(2, 2)),
)


def cases(ranks: int, divisor: int) -> list[Case]:
    """Local. What the table has on so many ranks.

    Where no targets are set for this number of ranks: the cases of two ranks, without targets.
    """
    mine = [case for case in CASES if case.ranks == ranks]
    other = [replace(case, targets=(), setups=()) for case in CASES if case.ranks == 2]
    return [case.shrunk(divisor) for case in mine or other]


# The contest.

DIRECTIONS = ("forward", "backward")

#: Seconds for which a transform runs before it is timed: see :mod:`onesided.apps.bench.race`.
LEAD = 0.1

#: Kernels of mpi4py-fft, and the modules that they need.
KERNELS = {"fftw": "mpi4py_fft.fftw", "scipy": "scipy", "numpy": "numpy", "mkl_fft": "mkl_fft"}

Calls = tuple[Callable[[], object], Callable[[], object]]


@dataclass
class Outcome:
    """What came out: seconds by name and direction, and what there is to say about each method.

    ``choices`` tells by method what its plan has decided; ``absent`` why an opponent did not take
    part; ``facts`` what FFTW-MPI says of itself. ``nbytes`` a rank sends in one direction.
    ``best_peer``: which kernel of mpi4py-fft is the fastest, and stands for it; ``against``: what
    results are compared with.
    """

    times: dict[tuple[str, str], list[float]]
    verdicts: dict[str, Verdict]
    candidates: list[Candidate[PFFT]]
    labels: dict[str, str]
    choices: dict[str, dict[str, Any]]
    nbytes: int
    best_peer: str = ""
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    against: str = ""

    def choose_peer(self, names: Sequence[str]) -> None:
        """Local. The fastest of these, both directions together, is mpi4py-fft."""
        best = min(names, key=lambda name: median(self.both(name)))
        for direction in DIRECTIONS:
            self.times[PEER, direction] = self.times[best, direction]
        self.best_peer = best

    @property
    def methods(self) -> list[str]:
        """Local. Names of the methods that were timed."""
        return [each.method for each in self.candidates if not each.reason]

    def both(self, name: str) -> list[float]:
        """Local. Seconds of forward and backward together, by round."""
        pairs = zip(*(self.times[name, direction] for direction in DIRECTIONS), strict=True)
        return [one + other for one, other in pairs]


def contest(
    comm: MPI.Intracomm, options: Options, names: Sequence[str], opponents: Sequence[str]
) -> Outcome:
    """Collective. Time the methods and the opponents on ``--shape``, ``--dtype`` and ``--grid``."""
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    plans = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(plans.values()))
    labels = {method: used_method(plan, method) for method, plan in plans.items()}
    choices = {method: choice(plan, labels[method]) for method, plan in plans.items()}
    nbytes = exchanged_bytes(comm, first) // len(DIRECTIONS)
    outcome = Outcome({}, {}, candidates, labels, choices, nbytes)
    peers = _peers(comm, options, opponents, outcome)
    source = random_input(comm, first)
    checks: dict[str, Check] = {}
    calls: dict[str, Calls] = {}
    for kernel, peer in peers.items():
        name = peer_with(kernel)
        array = peer.forward.input_array
        array[...] = source if array.shape == source.shape else 0.5
        calls[name] = (peer.forward, peer.backward)
        checks[name] = _peer_check(comm, peer)
    local = _local_work(comm, options, first, opponents, outcome)
    if local is not None:
        calls[LOCAL] = (local.forward, local.backward)
        checks[LOCAL] = unchecked("zeros, which stay zeros: a lower bound, and no transform")
    check = FourierCheck(comm, first, source)
    outcome.against = check.against
    calls |= _calls(plans, source)
    checks |= {name: partial(check, plan) for name, plan in plans.items()}
    fftw = _fftw_mpi(comm, options, first, opponents, outcome)
    both = unchecked("with the forward transform")
    contestants = {
        (name, direction): Contestant(
            f"{name} {direction}", call, both if number else checks[name], lead=LEAD
        )
        for name, pair in calls.items()
        for number, (direction, call) in enumerate(zip(DIRECTIONS, pair, strict=True))
    }
    if fftw is not None:  # by its own clock, which does not see the question and the answer
        why = unchecked("its program checks a round trip by itself")
        for direction in DIRECTIONS:
            run, own = partial(fftw.run, direction), partial(fftw.times, direction)
            name = f"{FFTW_MPI} {direction}"
            contestants[FFTW_MPI, direction] = Contestant(name, run, why, alone=True, own=own)
    out = console(options.terminal) if comm.rank == 0 else None
    found = timed(comm, list(contestants.values()), options, out, "transforming")
    outcome.times = {key: found.times[each.name] for key, each in contestants.items()}
    forward = DIRECTIONS[0]
    for name, direction in contestants:
        verdict = found.verdicts.get(f"{name} {forward}")
        if direction == forward and verdict is not None:
            outcome.verdicts[name] = verdict
    if peers:
        outcome.choose_peer([peer_with(kernel) for kernel in peers])
    if fftw is not None:
        fftw.close()
    release(comm, candidates, PFFT.destroy)
    for peer in peers.values():
        peer.destroy()
    return outcome


def peer_with(kernel: str) -> str:
    """Local. The name of mpi4py-fft with a kernel."""
    return f"{PEER} ({kernel})"


def _peer_check(comm: MPI.Intracomm, peer: Any) -> Check:
    """Collective. As of our plans, with its own input and arrays."""
    from mpi4py_fft import newDistArray as peers_array

    return partial(FourierCheck(comm, peer, np.array(peer.forward.input_array), peers_array), peer)


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


def _calls(plans: Mapping[str, PFFT], source: Any) -> dict[str, Calls]:
    """Collective. Of every plan, on the same arrays."""
    first = next(iter(plans.values()))
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    first.forward(source, spectrum)
    return {
        name: (partial(plan.forward, source, spectrum), partial(plan.backward, spectrum, back))
        for name, plan in plans.items()
    }


def _peers(
    comm: MPI.Intracomm, options: Options, opponents: Sequence[str], outcome: Outcome
) -> dict[str, Any]:
    """Collective. Plans of mpi4py-fft by kernel, on the grid that was asked for or its own."""
    if PEER not in opponents:
        return {}
    if find_spec("mpi4py_fft") is None:
        outcome.absent[PEER] = "it is not installed (it needs FFTW)"
        return {}
    from mpi4py_fft import PFFT as PeerPFFT

    grid = options.process_grid
    shape = tuple(options.shape)
    kernels = [each for each, needs in KERNELS.items() if find_spec(needs) is not None]
    if options.backend in kernels:  # a kernel by name: the same on both sides
        kernels = [options.backend]
    found = {}
    for kernel in kernels:
        try:
            plan = PeerPFFT(comm, shape, dtype=options.dtype, grid=grid, backend=kernel)
            plan.forward.input_array[...] = 0
            plan.forward()
            plan.backward()
        except Exception as error:  # alike on all ranks: a dtype or a shape that it has not
            why = words(error)
            outcome.absent[peer_with(kernel)] = f"it has not {options.dtype} of this shape ({why})"
            continue
        found[kernel] = plan
    return found


def _local_work(
    comm: MPI.Intracomm, options: Options, plan: PFFT, opponents: Sequence[str], outcome: Outcome
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
    comm: MPI.Intracomm, options: Options, plan: PFFT, opponents: Sequence[str], outcome: Outcome
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
