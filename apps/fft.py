"""``onesided fft``: transform an array forward and backward with one or several methods."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from onesided.apps.fourier import FourierCheck
from onesided.apps.options import settings
from onesided.apps.progress import console
from onesided.apps.report import Report, Row, check_json
from onesided.apps.selection import BASELINE, Candidate, chosen, hints, prepare, release
from onesided.apps.timing import Subject, timed
from onesided.apps.verdict import conclusion
from onesided.pencilfft import PFFT, newDistArray

SEED = 20240229
FAILED = 1  # exit code where a verification failed


def plan_maker(comm: MPI.Intracomm, options: Namespace) -> Callable[[str], PFFT]:
    """Local. What makes the plan of a method, from the options of the transform."""
    grid = None if options.grid == ["auto"] else tuple(options.grid)
    info = hints(options)

    def make(method: str) -> PFFT:
        return PFFT(
            comm,
            tuple(options.shape),
            dtype=options.dtype,
            grid=grid,
            backend=options.backend,
            method=method,
            info=info,
            effort="measure",
            order="plan",
        )

    return make


def random_input(comm: MPI.Intracomm, plan: PFFT) -> Any:
    """Local. An input of the forward transform whose spectrum has no large entry."""
    array = newDistArray(plan, False)
    draw = np.random.default_rng([SEED, comm.rank])
    array[...] = draw.standard_normal(array.shape)
    if array.dtype.kind == "c":
        array.imag[...] = draw.standard_normal(array.shape)
    return array


def exchanged_bytes(comm: MPI.Intracomm, plan: PFFT) -> int:
    """Collective. Bytes that the busiest rank sends to others, forward and backward."""
    mine = sum(transpose.nbytes for transpose in plan.transposes)
    return int(comm.allreduce(mine, op=MPI.MAX))


def used_method(plan: PFFT, method: str) -> str:
    """Local. The method with what it chose on this rank: ``auto (rma-notify)``."""
    used = list(dict.fromkeys(transpose.method for transpose in plan.transposes))
    return method if used in ([], [method]) else f"{method} ({', '.join(used)})"


def run(comm: MPI.Intracomm, options: Namespace) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    names = chosen(options.comm)
    check_json(comm, options)
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    ready = [each for each in candidates if each.made is not None]
    plans = {each.method: each.made for each in ready if each.made is not None}
    plan = next(iter(plans.values()))
    report = Report("fft", settings(options), _pattern(comm, plan), remarks=[REMARK])
    source = random_input(comm, plan)
    times = _measured(comm, options, list(plans.values()), source)
    verdicts = {}
    if options.verify:
        check = FourierCheck(comm, plan, source)
        verdicts = {method: check(each) for method, each in plans.items()}
        report.remarks.append(conclusion(verdicts.values(), check.against))
    nbytes = exchanged_bytes(comm, plan)
    labels = {method: used_method(plan, method) for method, plan in plans.items()}
    release(comm, candidates, PFFT.destroy)
    report.rows = _rows(candidates, labels, times, nbytes)
    for row, each in zip(report.rows, candidates, strict=True):
        row.verdict = verdicts.get(each.method)
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return FAILED if report.verified is False else 0


REMARK = (
    "An iteration is a forward and a backward transform. GB/s: bytes that a rank sends to others, "
    "per second of the whole iteration. Set-up: making and freeing the plan."
)


def _measured(
    comm: MPI.Intracomm, options: Namespace, plans: Sequence[PFFT], source: Any
) -> list[list[float]]:
    """Collective. Times of forward and backward, one list after the other for every plan."""
    spectrum = newDistArray(plans[0], True)
    back = newDistArray(plans[0], False)
    subjects = []
    for plan in plans:
        subjects.append(Subject("forward", _call(plan.forward, source, spectrum)))
        subjects.append(Subject("backward", _call(plan.backward, spectrum, back)))
    out = console(options.terminal) if comm.rank == 0 else None
    return timed(comm, subjects, options, out, "transforming")


def _call(transform: Callable[..., Any], source: Any, target: Any) -> Callable[[], object]:
    return lambda: transform(source, target)


def _rows(
    candidates: Sequence[Candidate[PFFT]],
    labels: dict[str, str],
    times: Sequence[Sequence[float]],
    nbytes: int,
) -> list[Row]:
    """Local. A row for every method."""
    ready = [each.method for each in candidates if not each.reason]
    parts = dict(zip(ready, zip(times[::2], times[1::2], strict=True), strict=True))
    whole = {
        method: [one + other for one, other in zip(*pair, strict=True)]
        for method, pair in parts.items()
    }
    rows = []
    for each in candidates:
        if each.reason:
            rows.append(Row({"method": each.method}, reason=each.reason))
            continue
        forward, backward = parts[each.method]
        rows.append(
            Row(
                {"method": labels[each.method]},
                whole[each.method],
                setup=each.setup + each.freeing,
                nbytes=nbytes,
                against={name: whole[name] for name in (BASELINE,) if name in whole},
                details={"forward": forward, "backward": backward},
            )
        )
    return rows


def _pattern(comm: MPI.Intracomm, plan: PFFT) -> dict[str, Any]:
    return {
        "shape": list(plan.global_shape(False)),
        "dtype": plan.dtype(False).name,
        "grid": [sub.size for sub in plan.subcomm],
        "transposes": [transpose.nbytes for transpose in plan.transposes],
        "kernel": plan.backend,
        "ranks": comm.size,
    }
