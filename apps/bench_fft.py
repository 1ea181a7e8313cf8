"""``onesided bench fft``: the distributed FFT against mpi4py-fft with FFTW, both directions.

Where mpi4py-fft is not installed the methods are compared with each other only, and the report
says so. Its plan transforms its own arrays, so that it copies nothing.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

from mpi4py import MPI

from onesided.apps.fft import exchanged_bytes, plan_maker, random_input, used_method
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import BASELINE, chosen, prepare, release
from onesided.apps.timing import Subject, timed
from onesided.pencilfft import PFFT, newDistArray

PEER = "mpi4py-fft"
DIRECTIONS = ("forward", "backward")
REMARK = (
    "GB/s: bytes that a rank sends to others, per second of the whole transform. Set-up: making "
    "and freeing the plan of both directions."
)


@dataclass(frozen=True)
class Contestant:
    """One plan: a call for each direction, and what ends it."""

    name: str
    calls: tuple[Callable[[], object], Callable[[], object]]
    label: str


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command."""
    names = chosen(options.comm)
    check_json(comm, options)
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    plans = {each.method: each.made for each in candidates if each.made is not None}
    first = next(iter(plans.values()))
    pattern = {"shape": list(options.shape), "ranks": comm.size, "kernel": first.backend}
    report = Report("bench fft", settings(options), pattern, remarks=[REMARK])
    peer = _peer(comm, options)
    if peer is None:
        report.remarks.append(f"{PEER} is not installed (it needs FFTW): no comparison with it")
    contestants = _contestants(comm, plans, peer)
    times = _times(comm, options, contestants)
    nbytes = exchanged_bytes(comm, first) // len(DIRECTIONS)
    release(comm, candidates, PFFT.destroy)
    if peer is not None:
        peer.destroy()
    setups = {each.method: each.setup + each.freeing for each in candidates}
    for direction in DIRECTIONS:
        for each in contestants:
            mine = times[each.name, direction]
            against = {
                name: times[name, direction]
                for name in (PEER, BASELINE)
                if (name, direction) in times
            }
            labels = {"direction": direction, "method": each.label}
            report.rows.append(Row(labels, mine, setups.get(each.name), nbytes, against))
            if PEER in against and each.name != PEER:
                pairs = zip(mine, against[PEER], strict=True)
                speed = median(other / one for one, other in pairs)
                report.remarks.append(
                    f"{direction}, {each.name}: {speed:.2f} times as fast as {PEER}"
                )
    report.rows += [Row({"method": e.method}, reason=e.reason) for e in candidates if e.reason]
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return 0


def _peer(comm: MPI.Comm, options: Namespace) -> Any | None:
    """Collective. The plan of mpi4py-fft with FFTW, or None."""
    if find_spec("mpi4py_fft") is None:
        return None
    from mpi4py_fft import PFFT as PeerPFFT

    return PeerPFFT(comm, tuple(options.shape), dtype=options.dtype, backend="fftw")


def _contestants(comm: MPI.Comm, plans: dict[str, PFFT], peer: Any | None) -> list[Contestant]:
    first = next(iter(plans.values()))
    source = random_input(comm, first)
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    first.forward(source, spectrum)
    contestants = [
        Contestant(
            method,
            (_call(plan.forward, source, spectrum), _call(plan.backward, spectrum, back)),
            used_method(plan, method),
        )
        for method, plan in plans.items()
    ]
    if peer is not None:
        peer.forward.input_array[...] = source
        peer.forward()
        contestants.insert(0, Contestant(PEER, (peer.forward, peer.backward), PEER))
    return contestants


def _call(transform: Callable[..., Any], source: Any, target: Any) -> Callable[[], object]:
    return lambda: transform(source, target)


def _times(
    comm: MPI.Comm, options: Namespace, contestants: Sequence[Contestant]
) -> dict[tuple[str, str], list[float]]:
    keys, subjects = [], []
    for each in contestants:
        for direction, call in zip(DIRECTIONS, each.calls, strict=True):
            keys.append((each.name, direction))
            subjects.append(Subject(f"{each.name} {direction}", call))
    out = console(options.terminal) if comm.rank == 0 else None
    lists = timed(comm, subjects, options, out, "transforming")
    return dict(zip(keys, lists, strict=True))
