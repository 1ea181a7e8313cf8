"""``onesided fft`` and ``onesided bench fft``: transforms forward and backward, by several methods.

``bench fft`` sets them beside others: mpi4py-fft with every kernel it has here, and FFTW-MPI in C.
All are planned as a user would, with their defaults; the arrays of mpi4py-fft's plans are its own,
so that it copies nothing. What a set-up makes is what is timed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.fft
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.choices import chosen, hints
from onesided.apps.bench.foreign import Foreign, ForeignError, Program, finished, foreign_programs
from onesided.apps.bench.store import Part
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import WARM, Stopwatch, Variant, WatchedComm, clocked, unchecked
from onesided.apps.cli.failures import from_rank_0, words
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import BASELINE, METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.collectives import UnsupportedError, sums
from onesided.pencilfft import PFFT, forget_wisdom, newDistArray

GATHER_LIMIT = 1 << 28  # bytes of the global input that rank 0 may hold and transform
SLACK = 20.0  # rounding errors allowed, in units of the dtype's epsilon times log2(N)


class FourierCheck:
    """Collective. Checks plans of one shape, dtype and grid with one input.

    An input of at most ``GATHER_LIMIT`` bytes is gathered on rank 0 and transformed with
    ``scipy.fft``. Beside a larger one a plane wave is transformed, of which every rank knows what
    comes out.
    """

    def __init__(
        self, comm: MPI.Intracomm, plan: PFFT, source: NDArray[Any],
        arrays: Callable[..., Any] = newDistArray,
    ) -> None:
        """Collective. ``arrays`` makes those of a plan, which may be one of mpi4py-fft."""
        self._comm, self._source, self._arrays = comm, source, arrays
        shape, dtype = plan.global_shape(False), plan.dtype(False)
        count = int(np.prod(shape))
        self._tolerance = float(SLACK * np.finfo(dtype).eps * max(1.0, np.log2(count)))
        self.gathers = count * dtype.itemsize <= GATHER_LIMIT
        self._reference: Any = None
        if self.gathers:
            whole = gathered(comm, source, plan.local_slice(False), shape)
            if whole is not None:
                transform: Any = scipy.fft.fftn if dtype.kind == "c" else scipy.fft.rfftn
                self._reference = transform(whole, norm="forward")

    def __call__(self, plan: PFFT) -> Verdict:
        """Collective. Transform, compare, transform back, compare."""
        spectrum = self._arrays(plan, True, val=np.nan)
        plan.forward(self._source, spectrum, normalize=True)
        if self.gathers:
            block = np.asarray(spectrum)
            error = error_of_blocks(self._comm, plan.local_slice(True), block, self._known)
        else:
            error = self._plane_wave(plan)
        back = self._arrays(plan, False, val=np.nan)
        plan.backward(spectrum, back, normalize=False)
        error = np.maximum(error, self._distance(back, self._source))  # one that is no number stays
        return Verdict(float(error), self._tolerance)

    def _known(self) -> tuple[NDArray[Any], float]:
        """Rank 0's. The spectrum by SciPy, and its largest number."""
        return self._reference, float(np.max(np.abs(self._reference))) or 1.0

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
        block = plan.local_slice(True)
        for peak, height in ((wave, 1.0),) if is_complex else ((wave, 0.5), (opposite, 0.5)):
            inside = [k - part.start for k, part in zip(peak, block, strict=True)]
            if all(0 <= k < n for k, n in zip(inside, expected.shape, strict=True)):
                expected[tuple(inside)] += height
        return self._distance(spectrum, expected)

    def _distance(self, array: NDArray[Any], expected: NDArray[Any]) -> float:
        difference = np.asarray(array) - np.asarray(expected)
        size = self._sum(float(np.vdot(expected, expected).real))
        return float(np.sqrt(self._sum(float(np.vdot(difference, difference).real)) / (size or 1)))

    def _sum(self, value: float) -> float:
        return float(sums(self._comm).of(value)[0])


def gathered(
    comm: MPI.Intracomm, block: NDArray[Any], where: tuple[slice, ...], shape: tuple[int, ...]
) -> NDArray[Any] | None:
    """Collective. The global array on rank 0, None elsewhere."""
    blocks = comm.gather((where, np.asarray(block)))
    if blocks is None:
        return None
    whole = np.full(shape, np.nan, block.dtype)
    for at, each in blocks:
        whole[at] = each
    return whole


def error_of_blocks(
    comm: MPI.Intracomm, where: tuple[slice, ...], block: NDArray[Any],
    whole: Callable[[], tuple[NDArray[Any], float]],
) -> float:
    """Collective. How far blocks of all ranks lie off an array that rank 0 makes, relative to a
    size that it tells."""
    blocks = comm.gather((where, block)) or []

    def error() -> float:
        expected, size = whole()
        differences = [np.max(np.abs(each - expected[at]), initial=0.0) for at, each in blocks]
        return float(np.max(differences)) / size

    return from_rank_0(comm, error)


SEED = 20240229
PEER, FFTW_MPI = "mpi4py-fft", "FFTW-MPI"
OPPONENTS = {"mpi4py-fft": PEER, "fftw-mpi": FFTW_MPI}
DIRECTIONS = ("forward", "backward")
#: Kernels of mpi4py-fft, and the modules that they need.
KERNELS = {"fftw": "mpi4py_fft", "scipy": "scipy", "numpy": "numpy", "mkl_fft": "mkl_fft"}
#: The calls of a transpose that move data, and wait for it.
MOVING = ("open", "start", "ready", "wait", "release")
COMMUNICATION = "communication"


def planned(
    comm: MPI.Intracomm, options: Options, shape: Sequence[int], method: str, order: str = "C"
) -> PFFT:
    """Collective. The plan of a method: what it is not told is as usual."""
    return PFFT(
        comm, tuple(shape), dtype=options.dtype, grid=options.process_grid,
        backend=options.backend, method=method, info=hints(options), order=order,
    )  # fmt: skip


def random_input(comm: MPI.Intracomm, array: Any) -> Any:
    """Local. Numbers whose spectrum has no large entry."""
    draw = np.random.default_rng([SEED, comm.rank])
    array[...] = draw.standard_normal(array.shape)
    if array.dtype.kind == "c":
        array.imag[...] = draw.standard_normal(array.shape)
    return array


def exchanged_bytes(comm: MPI.Intracomm, plan: PFFT) -> int:
    """Collective. Bytes that the busiest rank sends to others, forward and backward."""
    mine = sum(transpose.nbytes for transpose in plan.transposes)
    return int(comm.allreduce(mine, op=MPI.MAX))


def used_method(plan: PFFT) -> str:
    """Local. The methods of its transposes on this rank."""
    return ", ".join(dict.fromkeys(transpose.method for transpose in plan.transposes))


def transform_case(
    options: Options, shape: Sequence[int], methods: Sequence[str], *,
    orders: Sequence[str] = ("C",), opponents: Sequence[str] = (), verify: bool = True,
    setups: int = 1, apart: bool = False, labels: Labels | None = None,
) -> Case:
    """Local. Transforms forward and backward of an array.

    ``apart``: the parts of the time are communication and compute instead of the two directions.
    """
    variants = [
        {METHOD: name, **({} if order == "C" else {"order": order})}
        for order in orders for name in methods
    ]  # fmt: skip
    kernels = [each for each, needs in KERNELS.items() if find_spec(needs) is not None]
    if options.backend in kernels:  # a kernel by name: the same on both sides
        kernels = [options.backend]
    if PEER in opponents:
        variants += [{METHOD: f"{PEER} {kernel}"} for kernel in kernels]
    if FFTW_MPI in opponents:
        variants.append({METHOD: FFTW_MPI})
    size = {"shape": "x".join(map(str, shape)), "dtype": options.dtype}
    opened = partial(_opened, options, tuple(shape), verify, apart, bool(opponents))
    return Case(
        size if labels is None else labels, variants, opened, against=(BASELINE, FFTW_MPI),
        setups=setups, rest="compute" if apart else "", told=_best_kernel,
    )  # fmt: skip


def _opened(
    options: Options, shape: tuple[int, ...], verify: bool, apart: bool, fresh: bool,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. Where others take part everybody begins with nothing remembered of earlier runs
    (``fresh``)."""
    if fresh:
        os.environ["ONESIDED_WISDOM"] = "off"
        forget_wisdom()
    if fresh and find_spec("mpi4py_fft") is not None and find_spec("mpi4py_fft.fftw") is not None:
        import_module("mpi4py_fft.fftw").forget_wisdom()
    shared: dict[str, tuple[Any, Any, Any, Any]] = {}

    def ours(labels: Labels) -> Variant:
        name, order = labels[METHOD], labels.get("order", "C")
        plan = planned(comm, options, shape, name, order)

        def arrays() -> tuple[Any, Any, Any, Any]:
            if order not in shared:
                source = random_input(comm, newDistArray(plan, False))
                check = FourierCheck(comm, plan, source) if verify else None
                shared[order] = source, newDistArray(plan, True), newDistArray(plan, False), check
            return shared[order]

        (source, spectrum, back, check), extra = clocked(comm, arrays)
        forward, back_again = (partial(plan.forward, source, spectrum),
                               partial(plan.backward, spectrum, back))
        both, parts = _both(forward, back_again, apart)
        if apart:
            for transpose in plan.transposes:
                parts[COMMUNICATION].watch(transpose, *MOVING)
        return Variant(
            both, unchecked("without --verify") if check is None else partial(check, plan),
            warm_up=WARM, free=plan.destroy, used=used_method(plan), parts=parts,
            extra=extra, metrics={
                "bytes": exchanged_bytes(comm, plan), "kernel": plan.backend,
                "grid": "x".join(str(sub.size) for sub in plan.subcomm),
            },
        )  # fmt: skip

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        if name == FFTW_MPI:
            return _fftw_mpi(comm, options, shape)
        if name.startswith(PEER):
            return _peer(comm, options, shape, name.removeprefix(PEER).strip(), apart)
        return ours(labels)

    return make


def _both(
    forward: Callable[[], object], backward: Callable[[], object], apart: bool
) -> tuple[Callable[[], object], dict[str, Stopwatch]]:
    """Local. One after the other, with a watch for each of the directions; ``apart``: with one for
    communication, under which the caller puts what it watches."""
    if apart:
        watches = {COMMUNICATION: Stopwatch()}
    else:
        watches = {name: Stopwatch() for name in DIRECTIONS}
        forward, backward = (watch.timed(call) for watch, call in
                             zip(watches.values(), (forward, backward), strict=True))

    def both() -> None:
        forward()
        backward()

    return both, watches


def _peer(
    comm: MPI.Intracomm, options: Options, shape: Sequence[int], kernel: str, apart: bool
) -> Variant:
    """Collective. A plan of mpi4py-fft, on the grid that was asked for or its own."""
    if find_spec("mpi4py_fft") is None:
        raise UnsupportedError("it is not installed (it needs FFTW)")
    library = import_module("mpi4py_fft")
    try:
        with np.errstate(all="ignore"):  # it transforms memory that nobody has written
            plan = library.PFFT(comm, tuple(shape), dtype=options.dtype, grid=options.process_grid,
                                backend=kernel)  # fmt: skip

        def checked() -> FourierCheck:
            array = plan.forward.input_array
            random_input(comm, array)
            check = FourierCheck(comm, plan, np.array(array), library.newDistArray)
            plan.forward()
            plan.backward()
            return check

        check, extra = clocked(comm, checked)
    except Exception as error:  # alike on all ranks: a dtype or a shape that it has not
        why = f"it has not {options.dtype} of this shape ({words(error)})"
        raise UnsupportedError(why) from error
    both, parts = _both(plan.forward, plan.backward, apart)
    if apart:
        for transfer in plan.transfer:
            transfer.comm = WatchedComm(transfer.comm, parts[COMMUNICATION])
    return Variant(both, partial(check, plan), warm_up=WARM, free=plan.destroy, parts=parts,
                   extra=extra, metrics={"kernel": kernel})  # fmt: skip


#: The program of FFTW-MPI, and what it is built with.
SOURCE = Path(__file__).parents[1] / "data" / "fftw_mpi.c"
LIBRARIES = ("-lfftw3_mpi", "-lfftw3", "-lm")
COMPILERS = ("mpicc", "mpicc.openmpi", "mpicc.mpich")
TOLERANCE = 1e-12  # of its round trip; the numbers are of order one


def _fftw_mpi(comm: MPI.Intracomm, options: Options, shape: Sequence[int]) -> Variant:
    """Collective. FFTW-MPI, where this is what its program can do: a real array in slabs, in a job
    of its own.

    Its times are by its own clock, which does not see the question and the answer.
    """
    if len(shape) != 3 or options.dtype != "float64":
        raise UnsupportedError("its program transforms three-dimensional float64 arrays")
    asked = list(options.process_grid or (comm.size,))
    if [each for each in asked if each != 1] not in ([comm.size], []):
        raise UnsupportedError(f"it splits the first axis alone, as --grid {comm.size} does")
    arguments = [str(each) for each in (*shape, WARM)]
    job = Foreign(comm, lambda folder: _built(folder, arguments))
    if not job.facts["round-trip error"] < TOLERANCE:
        job.close()
        raise ForeignError(f"it does not work: {job.facts}")

    def run() -> None:
        for direction in DIRECTIONS:
            job.run(direction)

    def own(count: int) -> list[float]:
        both = [job.times(direction, count) for direction in DIRECTIONS]
        return [sum(each) for each in zip(*both, strict=True)]

    why = unchecked("its program checks a round trip by itself")
    return Variant(run, why, on_root=True, own=own, free=job.close, set_up=False,
                   metrics=dict(job.facts))  # fmt: skip


def _built(folder: Path, arguments: Sequence[str]) -> Program:
    """Local. Build the program in ``folder`` with the first of MPI's C compilers on PATH that has
    FFTW, and a launcher beside it; :class:`ForeignError` tells what every one lacked.

    Those of a virtual environment are left out: the MPIs of the package index have no FFTW, and a
    library built for another MPI may link.
    """
    failures, program = [], folder / "fftw_mpi"
    for compiler in foreign_programs(*COMPILERS):
        launcher = compiler.with_name(compiler.name.replace("mpicc", "mpiexec"))
        if not os.access(launcher, os.X_OK):
            continue
        try:
            done = finished([str(compiler), "-O2", str(SOURCE), "-o", str(program), *LIBRARIES])
        except ForeignError as error:
            failures.append(str(error))
            continue
        if done.returncode == 0:
            return Program(launcher, [str(program), *arguments])
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = (line for line in lines if "error" in line or "cannot find" in line)
        first = next(errors, lines[0] if lines else "no reason given").removeprefix(f"{SOURCE}:")
        failures.append(f"{compiler.name}: {first}")
    if not failures:
        raise ForeignError("no mpicc on PATH, other than this environment's own")
    raise ForeignError("FFTW-MPI (fftw3-mpi.h, libfftw3_mpi) is not there: " + "; ".join(failures))


def _best_kernel(part: Part) -> None:
    """Local. Everybody is compared with the fastest kernel of mpi4py-fft."""
    peers = [row for row in part.rows if row.method.startswith(PEER) and row.times
             and (row.verdict is None or row.verdict.passed)]  # fmt: skip
    best = min(peers, key=lambda row: median(row.times), default=None)
    for row in part.rows:
        if best is not None and row.times:
            row.against = {**row.against, PEER: best.times}
        if "init_times_s" in row.metrics:
            row.metrics["first_setup_s"] = row.metrics["init_times_s"][0]
    if best is not None:
        kernel = best.method.removeprefix(PEER).strip()
        part.remarks.append(f"{PEER} is compared by its fastest kernel, {kernel}")


# -- the commands ---------------------------------------------------------------------------------

REMARK = (
    "An iteration is a forward and a backward transform. GB/s: bytes that a rank sends to others, "
    "per second of the whole iteration. Set-up: making and freeing the plan."
)
AGAINST = "scipy.fft where the array fits on one rank, else known transforms; and back"
SHAPES = ([64] * 3, [128] * 3, [256] * 3)


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    return _end(comm, options, "fft", [options.shape], verify=options.verify)


def run_bench(comm: MPI.Intracomm, options: Options) -> int:
    opponents = [OPPONENTS[word] for word in options.against]
    return _end(comm, options, "bench fft", options.shape or SHAPES, orders=options.order,
                opponents=opponents, setups=options.repeats)  # fmt: skip


def _end(
    comm: MPI.Intracomm, options: Options, command: str, shapes: Sequence[Sequence[int]],
    **more: Any,
) -> int:
    pattern = {"ranks": comm.size, "shapes": [list(shape) for shape in shapes]}
    report = Report(command, options.settings(), pattern, remarks=[REMARK], by="shape")
    names = chosen(options.comm)
    cases = [transform_case(options, shape, names, **more) for shape in shapes]
    sweep(comm, options, report, cases, "transforming")
    return report.end(comm, options, AGAINST)
