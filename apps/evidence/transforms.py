"""A Fourier transform forward and backward, by every method and by mpi4py-fft."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from mpi4py import MPI

from onesided.apps.evidence.entrant import Entrant, rows, timed
from onesided.apps.evidence.stopwatch import Stopwatch, WatchedComm
from onesided.apps.failures import CommandError
from onesided.apps.fft import plan_maker, random_input, used_method
from onesided.apps.fourier import FourierCheck
from onesided.apps.report import Row
from onesided.apps.selection import prepare, release
from onesided.apps.targets import PEER
from onesided.apps.timing import LEAD, setup_time
from onesided.pencilfft import PFFT, newDistArray

REMARK = (
    "FFT: communication is inside the calls of the transposes' requests; what a method writes "
    "straight into the memory of other ranks, while it transforms, is compute. Its set-up: making "
    "and freeing the plan, when what was measured for it is remembered (ONESIDED_WISDOM)."
)
#: The calls of a transpose, and of one of mpi4py-fft's.
OURS = ("open", "start", "ready", "wait", "release")


def transforms(
    comm: MPI.Intracomm,
    options: Namespace,
    names: Sequence[str],
    seconds: float,
    tick: Callable[[], None],
) -> list[Row]:
    """Collective. The rows of the application."""
    if len(options.shape) < 2:
        raise CommandError(f"--shape {options.shape[0]}: two dimensions at least are wanted")
    setting = Namespace(**vars(options), backend="auto", grid=["auto"])
    make = plan_maker(comm, setting)
    release(comm, prepare(comm, names, make, PFFT.destroy), PFFT.destroy)  # wisdom is known now
    candidates = prepare(comm, names, make, PFFT.destroy)
    entrants = [Entrant(each.method, reason=each.reason) for each in candidates]
    first = next(each.made for each in candidates if each.made is not None)
    source = random_input(comm, first)
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    check = FourierCheck(comm, first, source)
    for entrant, candidate in zip(entrants, candidates, strict=True):
        if candidate.made is not None:
            _enter(entrant, candidate.made, (source, spectrum, back))
            entrant.verdict = check(candidate.made)
    peer = _peer(comm, options, source)
    times = timed(comm, [*entrants, peer.entrant], options, seconds, tick)
    release(comm, candidates, PFFT.destroy)
    peer.close(comm)
    for entrant, candidate in zip(entrants, candidates, strict=True):
        entrant.setup = candidate.setup + candidate.freeing
    kind = "c2c" if options.dtype.startswith("complex") else "r2c"
    name = f"FFT {kind} {'x'.join(map(str, options.shape))}"
    return rows(comm, name, [*entrants, peer.entrant], times, [PEER])


def _enter(entrant: Entrant, plan: PFFT, arrays: tuple[Any, Any, Any]) -> None:
    """Local. What a plan does, with its communication under a watch."""
    source, spectrum, back = arrays
    entrant.stopwatch, entrant.lead = Stopwatch(), LEAD
    used = used_method(plan, entrant.name)
    entrant.used = "" if used == entrant.name else used.partition("(")[2].rstrip(")")
    for transpose in plan.transposes:
        entrant.stopwatch.watch(transpose, *OURS)

    def call() -> None:
        plan.forward(source, spectrum)
        plan.backward(spectrum, back)

    entrant.call = call


class _Peer:
    """The plan of mpi4py-fft with FFTW, or why there is none."""

    def __init__(self, entrant: Entrant, plan: Any = None) -> None:
        self.entrant, self._plan = entrant, plan

    def close(self, comm: MPI.Intracomm) -> None:
        """Collective."""
        plan, self._plan = self._plan, None
        if plan is not None and self.entrant.setup is not None:
            self.entrant.setup += setup_time(comm, plan.destroy)


def _peer(comm: MPI.Intracomm, options: Namespace, source: Any) -> _Peer:
    """Collective. It transforms its own arrays, which hold the same numbers where they can."""
    if find_spec("mpi4py_fft") is None:
        return _Peer(Entrant(PEER, reason="it is not installed (it needs FFTW)"))
    from mpi4py_fft import PFFT as PeerPFFT

    made: list[Any] = []
    shape = tuple(options.shape)
    setup = setup_time(
        comm, lambda: made.append(PeerPFFT(comm, shape, dtype=options.dtype, backend="fftw"))
    )
    plan, stopwatch = made[0], Stopwatch()
    for transfer in plan.transfer:
        transfer.comm = WatchedComm(transfer.comm, stopwatch)
    if plan.forward.input_array.shape == source.shape:
        plan.forward.input_array[...] = source

    def call() -> None:
        plan.forward()
        plan.backward()

    return _Peer(Entrant(PEER, call, setup, stopwatch, lead=LEAD), plan)
