"""``onesided fft``: transform an array forward and backward with one or several methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.fft
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.race import Contestant, Race, timed, unchecked
from onesided.apps.bench.selection import BASELINE, Candidate, chosen, hints, prepare, release
from onesided.apps.cli.options import Options
from onesided.apps.cli.progress import console
from onesided.apps.cli.report import Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict, conclusion
from onesided.collectives import sums
from onesided.pencilfft import PFFT, newDistArray

# Is a parallel Fourier transform right? Two ways to know, by the size of the array.

GATHER_LIMIT = 1 << 28  # bytes of the global input that rank 0 may hold and transform
SLACK = 20.0  # rounding errors allowed, in units of the dtype's epsilon times log2(N)


class FourierCheck:
    """Collective. Checks plans of one shape, dtype and grid with one input.

    An input of at most ``GATHER_LIMIT`` bytes is gathered on rank 0 and transformed with
    ``scipy.fft``. A larger one is checked by Parseval's identity, and by a plane wave whose
    transform is known, on every rank.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        plan: PFFT,
        source: NDArray[Any],
        arrays: Callable[..., Any] = newDistArray,
    ) -> None:
        """Collective. ``arrays`` makes those of a plan, which may be one of mpi4py-fft."""
        self._comm, self._source, self._arrays = comm, source, arrays
        shape = plan.global_shape(False)
        count = int(np.prod(shape))
        total = count * plan.dtype(False).itemsize
        epsilon = float(np.finfo(plan.dtype(False)).eps)
        self._tolerance = float(SLACK * epsilon * max(1.0, np.log2(count)))
        self._gathers = total <= GATHER_LIMIT
        self._reference: NDArray[Any] | None = None
        limit = byte_count(GATHER_LIMIT)
        if self._gathers:
            whole = gathered(comm, source, plan.local_slice(False), shape)
            if whole is not None:
                is_complex = whole.dtype.kind == "c"
                transform: Any = scipy.fft.fftn if is_complex else scipy.fft.rfftn
                self._reference = transform(whole, norm="forward")
            self.against = f"scipy.fft on the gathered array (it has at most {limit}), and back"
        else:
            self.against = (
                f"Parseval's identity, a plane wave (the array has over {limit}), and back"
            )

    def __call__(self, plan: PFFT) -> Verdict:
        """Collective. Transform, compare, transform back, compare."""
        spectrum = self._arrays(plan, True, val=np.nan)
        plan.forward(self._source, spectrum, normalize=True)
        if self._gathers:
            error = self._against_scipy(plan, spectrum)
        else:
            error = max(self._parseval(plan, spectrum), self._plane_wave(plan))
        back = self._arrays(plan, False, val=np.nan)
        plan.backward(spectrum, back, normalize=False)
        error = _worst(error, self._distance(back, self._source))
        return Verdict(error, self._tolerance)

    def _against_scipy(self, plan: PFFT, spectrum: NDArray[Any]) -> float:
        whole = gathered(self._comm, spectrum, plan.local_slice(True), plan.global_shape(True))
        error = 0.0
        if whole is not None and self._reference is not None:
            scale = np.linalg.norm(self._reference) or 1.0
            error = float(np.linalg.norm(whole - self._reference) / scale)
        return float(self._comm.bcast(error))

    def _parseval(self, plan: PFFT, spectrum: NDArray[Any]) -> float:
        """Sums of squares in both spaces; half a spectrum counts its inner part twice."""
        count = float(np.prod(plan.global_shape(False)))
        power = np.abs(np.asarray(spectrum)) ** 2
        if plan.dtype(False).kind != "c":
            last = plan.local_slice(True)[-1]
            twice = np.arange(last.start, last.stop) * 2 % plan.global_shape(False)[-1] != 0
            power *= 1.0 + twice
        ours = self._sum(float(power.sum(dtype=np.float64)))
        theirs = self._sum(float(np.vdot(self._source, self._source).real)) / count
        return abs(ours - theirs) / (theirs or 1.0)

    def _plane_wave(self, plan: PFFT) -> float:
        """A wave of frequency 1, 2, 3, ... along the axes has one spectral entry, 1."""
        shape = plan.global_shape(False)
        wave = tuple((axis + 1) % length for axis, length in enumerate(shape))
        source = self._arrays(plan, False)
        phase = np.zeros(())
        for axis, part in enumerate(plan.local_slice(False)):
            along = 2 * np.pi * wave[axis] * np.arange(part.start, part.stop) / shape[axis]
            phase = phase + along.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        is_complex = source.dtype.kind == "c"
        source[...] = np.exp(1j * phase) if is_complex else np.cos(phase)
        spectrum = self._arrays(plan, True, val=np.nan)
        plan.forward(source, spectrum, normalize=True)
        expected = np.zeros_like(np.asarray(spectrum))
        opposite = tuple(-k % length for k, length in zip(wave, shape, strict=True))
        for peak, height in ((wave, 1.0),) if is_complex else ((wave, 0.5), (opposite, 0.5)):
            inside = _local_index(peak, plan.local_slice(True))
            if inside is not None:
                expected[inside] += height
        return self._distance(spectrum, expected)

    def _distance(self, array: NDArray[Any], expected: NDArray[Any]) -> float:
        difference = np.asarray(array) - np.asarray(expected)
        size = self._sum(float(np.vdot(expected, expected).real))
        return float(np.sqrt(self._sum(float(np.vdot(difference, difference).real)) / (size or 1)))

    def _sum(self, value: float) -> float:
        return float(sums(self._comm).of(value)[0])


def _worst(one: float, other: float) -> float:
    """Local. The larger, or not a number if one is."""
    return float(np.maximum(one, other))


def _local_index(index: tuple[int, ...], block: tuple[slice, ...]) -> tuple[int, ...] | None:
    """Local. A global index within a block, None where it lies elsewhere."""
    if all(part.start <= i < part.stop for i, part in zip(index, block, strict=True)):
        return tuple(i - part.start for i, part in zip(index, block, strict=True))
    return None


def gathered(
    comm: MPI.Intracomm, block: NDArray[Any], where: tuple[slice, ...], shape: tuple[int, ...]
) -> NDArray[Any] | None:
    """Collective. The global array on rank 0, None elsewhere."""
    places = comm.gather(where)
    if places is None:
        comm.Send(np.ascontiguousarray(block), dest=0)
        return None
    whole = np.full(shape, np.nan, block.dtype)
    whole[where] = block
    for rank in range(1, comm.size):
        part = np.empty_like(whole[places[rank]], order="C")
        comm.Recv(part, source=rank)
        whole[places[rank]] = part
    return whole


SEED = 20240229


def plan_maker(comm: MPI.Intracomm, options: Options) -> Callable[[str], PFFT]:
    """Local. What makes the plan of a method, from the options of the transform."""
    info = hints(options)

    def make(method: str) -> PFFT:
        return PFFT(
            comm,
            tuple(options.shape),
            dtype=options.dtype,
            grid=options.process_grid,
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


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    names = chosen(options.comm)
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    ready = [each for each in candidates if each.made is not None]
    plans = {each.method: each.made for each in ready if each.made is not None}
    plan = next(iter(plans.values()))
    report = Report("fft", options.settings(), _pattern(comm, plan), remarks=[REMARK])
    source = random_input(comm, plan)
    check = FourierCheck(comm, plan, source) if options.verify else None
    found = _measured(comm, options, plans, source, check)
    if check is not None:
        report.remarks.append(conclusion(found.verdicts.values(), check.against))
    nbytes = exchanged_bytes(comm, plan)
    labels = {method: used_method(plan, method) for method, plan in plans.items()}
    release(comm, candidates, PFFT.destroy)
    report.rows = _rows(candidates, labels, list(found.times.values()), nbytes)
    for row, each in zip(report.rows, candidates, strict=True):
        row.verdict = found.verdicts.get(f"{each.method} forward")
    report.finish(comm, console(options.terminal) if comm.rank == 0 else None, options.json)
    return report.code(comm)


REMARK = (
    "An iteration is a forward and a backward transform. GB/s: bytes that a rank sends to others, "
    "per second of the whole iteration. Set-up: making and freeing the plan."
)


def _measured(
    comm: MPI.Intracomm,
    options: Options,
    plans: Mapping[str, PFFT],
    source: Any,
    check: FourierCheck | None,
) -> Race:
    """Collective. Forward and backward, one after the other for every plan."""
    first = next(iter(plans.values()))
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    contestants = []
    for method, plan in plans.items():
        verify = unchecked("without --verify") if check is None else partial(check, plan)
        calls = _call(plan.forward, source, spectrum), _call(plan.backward, spectrum, back)
        contestants += [
            Contestant(f"{method} forward", calls[0], verify),
            Contestant(f"{method} backward", calls[1], unchecked("with the forward transform")),
        ]
    out = console(options.terminal) if comm.rank == 0 else None
    return timed(comm, contestants, options, out, "transforming")


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
