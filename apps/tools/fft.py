"""``onesided fft``: transform an array forward and backward with one or several methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any, TypeVar

import numpy as np
import scipy.fft
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.foreign import ForeignError
from onesided.apps.bench.race import Check, Contestant, timed, unchecked
from onesided.apps.bench.selection import BASELINE, Candidates, chosen, hints, prepare, release
from onesided.apps.cli.failures import from_rank_0, user_errors, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import Report, Row, byte_count
from onesided.apps.cli.statistics import Verdict, conclusion
from onesided.apps.tools.fftw_mpi import FftwMpi
from onesided.apps.tools.local_work import LocalWork
from onesided.collectives import agreed, sums
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
        self._reference: Any = None
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
        shape = plan.global_shape(True)
        whole: Any = gathered(self._comm, spectrum, plan.local_slice(True), shape)

        def error() -> float:
            scale = np.linalg.norm(self._reference) or 1.0
            return float(np.linalg.norm(whole - self._reference) / scale)

        return from_rank_0(self._comm, error)

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
        comm.Recv(part, source=rank, tag=0)
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


# Transforms in turns: by our methods, and by others if they are asked for.
#
# Others are mpi4py-fft with every kernel it has here, the local work of our own plan, and FFTW-MPI
# in C. Plans of mpi4py-fft transform their own arrays, so that they copy nothing, and FFTW plans by
# measuring, which is its default; the fastest of them is the opponent. With ``--backend``
# fftw, numpy, scipy or mkl_fft both sides have that kernel.

PEER, LOCAL, FFTW_MPI = "mpi4py-fft", "local work", "FFTW-MPI"
DIRECTIONS = ("forward", "backward")

#: Kernels of mpi4py-fft, and the modules that they need.
KERNELS = {"fftw": "mpi4py_fft.fftw", "scipy": "scipy", "numpy": "numpy", "mkl_fft": "mkl_fft"}

Made = TypeVar("Made")
Calls = tuple[Callable[[], object], Callable[[], object]]


@dataclass
class Outcome:
    """What came out: seconds by name and direction, and what there is to say about each method.

    ``pattern`` is of the first plan; ``choices`` tells by method what its plan has decided;
    ``absent`` why an opponent did not take part; ``facts`` what FFTW-MPI says of itself. ``nbytes``
    a rank sends in one direction. ``best_peer``: which kernel of mpi4py-fft is the fastest, and
    stands for it; ``against``: what results are compared with.
    """

    candidates: Candidates[PFFT]
    pattern: dict[str, Any]
    labels: dict[str, str]
    choices: dict[str, dict[str, Any]]
    nbytes: int
    times: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    best_peer: str = ""
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    against: str = ""

    @property
    def methods(self) -> list[str]:
        """Local. Names of the methods that were timed."""
        return list(self.labels)

    def both(self, name: str) -> list[float]:
        """Local. Seconds of forward and backward together, by round."""
        pairs = zip(*(self.times[name, direction] for direction in DIRECTIONS), strict=True)
        return [one + other for one, other in pairs]

    def unless_absent(
        self, name: str, opponents: Sequence[str], make: Callable[[], Made]
    ) -> Made | None:
        """Collective. The opponent, where it is asked for and can take part."""
        try:
            return make() if name in opponents else None
        except ForeignError as error:
            self.absent[name] = str(error)
            return None

    def setup(self, method: str) -> float | None:
        """Local. Seconds of making and freeing a plan; None of what is no method."""
        found = (each.setup + each.freeing for each in self.candidates if each.method == method)
        return next(found, None)


def contest(
    comm: MPI.Intracomm,
    options: Options,
    names: Sequence[str],
    opponents: Sequence[str] = (),
    *,
    verify: bool = True,
    lead: float = 0.0,
) -> Outcome:
    """Collective. Time the methods and the opponents on ``--shape``, ``--dtype`` and ``--grid``.

    ``lead``: seconds for which a transform runs before it is timed.
    """
    candidates = prepare(comm, names, plan_maker(comm, options), PFFT.destroy)
    plans = candidates.made
    first = next(iter(plans.values()))
    labels = {method: used_method(plan, method) for method, plan in plans.items()}
    choices = {method: choice(plan, labels[method]) for method, plan in plans.items()}
    nbytes = exchanged_bytes(comm, first) // len(DIRECTIONS)
    outcome = Outcome(candidates, _pattern(comm, first), labels, choices, nbytes)
    source = random_input(comm, first)
    entered: dict[str, tuple[Calls, Check]] = {}
    peers = _peers(comm, options, opponents, outcome)
    for name, peer in peers.items():
        array = peer.forward.input_array
        array[...] = source if array.shape == source.shape else 0.5
        entered[name] = (peer.forward, peer.backward), _peer_check(comm, peer)
    local = outcome.unless_absent(LOCAL, opponents, partial(_local_work, comm, options, first))
    if local is not None:
        why = unchecked("zeros, which stay zeros: a lower bound, and no transform")
        entered[LOCAL] = (local.forward, local.backward), why
    check = FourierCheck(comm, first, source) if verify else None
    outcome.against = "" if check is None else check.against
    spectrum, back = newDistArray(first, True), newDistArray(first, False)
    first.forward(source, spectrum)
    for name, plan in plans.items():
        both = partial(plan.forward, source, spectrum), partial(plan.backward, spectrum, back)
        mine = unchecked("without --verify") if check is None else partial(check, plan)
        entered[name] = both, mine
    contestants = {}
    for name, (calls, each) in entered.items():
        for direction, call in zip(DIRECTIONS, calls, strict=True):
            title = f"{name} {direction}"
            contestants[name, direction] = Contestant(title, call, each, lead=lead)
            each = unchecked("with the forward transform")
    start = partial(_fftw_mpi, comm, options, first, lead)
    fftw = outcome.unless_absent(FFTW_MPI, opponents, start)
    if fftw is not None:  # by its own clock, which does not see the question and the answer
        why = unchecked("its program checks a round trip by itself")
        for direction in DIRECTIONS:
            run, own = partial(fftw.run, direction), partial(fftw.times, direction)
            name = f"{FFTW_MPI} {direction}"
            contestants[FFTW_MPI, direction] = Contestant(name, run, why, alone=True, own=own)
        outcome.facts = fftw.facts
    found = timed(comm, list(contestants.values()), options, "transforming")
    outcome.times = {key: found.times[each.name] for key, each in contestants.items()}
    outcome.verdicts = {
        name: found.verdicts[f"{name} {direction}"]
        for name, direction in contestants if f"{name} {direction}" in found.verdicts
    }  # fmt: skip
    if peers:
        outcome.best_peer = min(peers, key=lambda name: median(outcome.both(name)))
        for direction in DIRECTIONS:
            outcome.times[PEER, direction] = outcome.times[outcome.best_peer, direction]
    if fftw is not None:
        fftw.close()
    release(comm, candidates, PFFT.destroy)
    for peer in peers.values():
        peer.destroy()
    return outcome


def _pattern(comm: MPI.Intracomm, plan: PFFT) -> dict[str, Any]:
    return {
        "shape": list(plan.global_shape(False)),
        "dtype": plan.dtype(False).name,
        "grid": [sub.size for sub in plan.subcomm],
        "transposes": [transpose.nbytes for transpose in plan.transposes],
        "kernel": plan.backend,
        "ranks": comm.size,
    }


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


def _peer_check(comm: MPI.Intracomm, peer: Any) -> Check:
    """Collective. As of our plans, with its own input and arrays."""
    from mpi4py_fft import newDistArray as peers_array

    return partial(FourierCheck(comm, peer, np.array(peer.forward.input_array), peers_array), peer)


def _peers(
    comm: MPI.Intracomm, options: Options, opponents: Sequence[str], outcome: Outcome
) -> dict[str, Any]:
    """Collective. Plans of mpi4py-fft by name, on the grid that was asked for or its own."""
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
        name = f"{PEER} ({kernel})"
        try:
            plan = PeerPFFT(comm, shape, dtype=options.dtype, grid=grid, backend=kernel)
            plan.forward.input_array[...] = 0
            plan.forward()
            plan.backward()
        except Exception as error:  # alike on all ranks: a dtype or a shape that it has not
            why = words(error)
            outcome.absent[name] = f"it has not {options.dtype} of this shape ({why})"
            continue
        found[name] = plan
    return found


def _local_work(comm: MPI.Intracomm, options: Options, plan: PFFT) -> LocalWork:
    """Collective. :class:`ForeignError` where it is not told apart."""
    if len(options.shape) == 1:
        raise ForeignError("of one-dimensional arrays it is not told apart")
    with user_errors(), agreed(comm):
        return LocalWork(plan, options.backend)


def _fftw_mpi(comm: MPI.Intracomm, options: Options, plan: PFFT, lead: float) -> FftwMpi:
    """Collective. FFTW-MPI, where this is what its program can do: a real array in slabs."""
    if len(options.shape) != 3 or options.dtype != "float64":
        raise ForeignError("its program transforms three-dimensional float64 arrays")
    if plan.grid != (comm.size, 1, 1):
        raise ForeignError(f"it splits the first axis alone, as --grid {comm.size} does")
    return FftwMpi(comm, options.shape, lead)


REMARK = (
    "An iteration is a forward and a backward transform. GB/s: bytes that a rank sends to others, "
    "per second of the whole iteration. Set-up: making and freeing the plan."
)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    outcome = contest(comm, options, chosen(options.comm), verify=options.verify)
    report = Report("fft", options.settings(), outcome.pattern, remarks=[REMARK])
    if options.verify:
        report.remarks.append(conclusion(outcome.verdicts.values(), outcome.against))
    whole = {method: outcome.both(method) for method in outcome.methods}
    for each in outcome.candidates:
        row, method = Row({"method": each.method}, reason=each.reason), each.method
        if not each.reason:
            row = Row(
                {"method": outcome.labels[method]},
                whole[method],
                setup=outcome.setup(method),
                nbytes=len(DIRECTIONS) * outcome.nbytes,
                against={name: whole[name] for name in (BASELINE,) if name in whole},
                details={direction: outcome.times[method, direction] for direction in DIRECTIONS},
                verdict=outcome.verdicts.get(method),
            )
        report.rows.append(row)
    return report.end(comm, options)
