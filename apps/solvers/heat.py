"""``onesided heat``: the heat equation u_t = laplace(u), its ghosts brought in several ways.

A grid of the same spacing h along all axes; its longest edge has the length 1. Along a periodic
axis n points have n spacings, between walls n + 1: the walls are points of temperature 0 that are
not counted. The Euler step with second-order differences

    u' = u + r (sum of the 2 d neighbors - 2 d u),    r = dt / h**2,

is computed as r ((1/r - 2 d) u + neighbors), added axis by axis, the lower neighbor first: in this
order at every point, however the grid is cut, so that all cuts give the same bytes. It is stable
for r <= 1 / (2 d). Points inside are computed while the ghosts are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial, reduce
from math import inf
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from onesided.apps.bench.by_hand import ByHand, at_once, cart_of
from onesided.apps.bench.choices import ways_of
from onesided.apps.bench.sweep import Case, Labels, Make, sweep
from onesided.apps.bench.timing import Stopwatch, Variant
from onesided.apps.cli.failures import CommandError, by_rank_0, from_rank_0
from onesided.apps.cli.options import Options
from onesided.apps.cli.report import METHOD, Report
from onesided.apps.cli.statistics import Verdict
from onesided.apps.miniapps.halos import REFERENCE, Need, ways
from onesided.apps.solvers.checkpoint import Checkpoint, check_checkpoint
from onesided.apps.solvers.options import conditions
from onesided.collectives import Grid
from onesided.pencilfft import read_field, write_field
from onesided.sparse import HaloPattern, Partition

PERIODIC = "periodic"
FRACTION = 0.9  # of the largest stable time step
#: Hot spots: the place as a part of every edge, the width, and the temperature of the middle. The
#: wide one keeps all others from numbers so small that processors are slow with them.
SPOTS = (
    ((0.50, 0.50, 0.50), 0.300, 0.15),
    ((0.25, 0.30, 0.50), 0.050, 1.00),
    ((0.70, 0.65, 0.45), 0.080, 0.85),
    ((0.30, 0.75, 0.60), 0.030, 0.95),
    ((0.75, 0.20, 0.35), 0.040, 0.70),
    ((0.02, 0.50, 0.50), 0.060, 0.60),
    ((0.52, 0.98, 0.52), 0.055, 0.90),
)


@dataclass(frozen=True)
class Problem:
    """A grid with its boundaries, the numbers of the scheme, and the state at the start.
    ``periodic`` has an entry per axis. ``dt`` None: nine tenths of the largest stable one."""

    shape: tuple[int, ...]
    periodic: tuple[bool, ...]
    dtype: np.dtype[Any]
    dt: float | None = None

    @property
    def spacing(self) -> float:
        """Local. Between two points."""
        pairs = zip(self.shape, self.periodic, strict=True)
        return 1.0 / max(count if around else count + 1 for count, around in pairs)

    @property
    def stable_dt(self) -> float:
        return self.spacing**2 / (2 * len(self.shape))

    @property
    def step(self) -> float:
        return FRACTION * self.stable_dt if self.dt is None else self.dt

    @property
    def weights(self) -> tuple[Any, Any]:
        """Local. 1/r - 2 d and r, as numbers of the dtype."""
        r = self.step / self.spacing**2
        return self.dtype.type(1.0 / r - 2 * len(self.shape)), self.dtype.type(r)

    def initial(self, box: Sequence[slice]) -> NDArray[Any]:
        """Local. The state at the start of the points in ``box``, with a layer of ghosts around.
        ``box`` counts the points without ghosts. Ghosts are the points across a periodic boundary,
        or 0."""
        state = np.zeros([part.stop - part.start + 2 for part in box], self.dtype)
        for place, width, height in SPOTS:
            factors = [
                self._bell(axis, place[axis], width)[part.start : part.stop + 2]
                for axis, part in enumerate(box)
            ]
            factors[0] = factors[0] * height
            with np.errstate(under="ignore"):
                state += reduce(np.multiply.outer, factors).astype(self.dtype)
        return state

    def _bell(self, axis: int, place: float, width: float) -> NDArray[Any]:
        """A spot along one axis, for all its points and a ghost at both ends."""
        count, around = self.shape[axis], self.periodic[axis]
        length = (count if around else count + 1) * self.spacing
        if around:
            x = np.arange(count) * self.spacing - place * length
            x -= length * np.round(x / length)
            bell: NDArray[Any] = np.exp(-((x / width) ** 2))
            return bell.take(range(-1, count + 1), mode="wrap")
        x = np.arange(1, count + 1) * self.spacing - place * length
        return np.pad(np.exp(-((x / width) ** 2)), 1)


# -- ghosts ---------------------------------------------------------------------------------------

Array = NDArray[Any]


class Faces:
    """The ghosts of a block, whose array with them is a part of a long vector. ``ghosts``: their
    places in the array; ``columns``: which entries of the vector they are; ``pattern``: who needs
    which."""

    def __init__(self, grid: Grid) -> None:
        """Collective."""
        self.grid = grid
        comm, places = grid.comm, grid.zeros(dtype=np.int64)
        vector = Partition.from_lengths(np.array(comm.allgather(places.size), np.int64))
        every = np.arange(*vector.range(comm.rank)).reshape(places.shape)
        places[grid.owned] = every[grid.owned] + 1  # what stays 0 is beyond a wall
        grid.update(places)
        places[grid.owned] = 0
        self.ghosts = np.flatnonzero(places)
        points = places.reshape(-1)[self.ghosts] - 1
        self.pattern, self.places = HaloPattern.of(comm, points, vector)


class Scattered:
    """Ghosts of a way of the mini-applications, put where they belong in a block."""

    def __init__(self, faces: Faces, halo: Any) -> None:
        self._halo, self.label = halo, halo.label
        index, own = faces.places, faces.pattern.n_own
        mine = index < own
        self._near = faces.ghosts[mine], index[mine]
        self._far = faces.ghosts[~mine], index[~mine] - own

    def start(self, field: Array) -> None:
        """Send what neighbors need."""
        self._halo.start(field.reshape(-1))

    def finish(self, field: Array) -> None:
        """Wait for the ghosts."""
        flat = field.reshape(-1)
        into, which = self._far
        flat[into] = self._halo.finish()[which]
        into, which = self._near
        flat[into] = flat[which]

    def free(self) -> None:
        """Collective."""
        self._halo.Free()


class Straight:
    """Ghosts that come into the block itself: each field has a request of the grid, which lets
    neighbors write there, or persistent messages of packed faces, written by hand."""

    label = ""

    def __init__(self, fields: Sequence[Array], make: Callable[[Array], Any]) -> None:
        """Collective."""
        self._requests = {id(field): make(field) for field in fields}

    def start(self, field: Array) -> None:
        self._requests[id(field)].Start()

    def finish(self, field: Array) -> None:
        self._requests[id(field)].Wait()

    def free(self) -> None:
        for request in reversed(self._requests.values()):
            request.Free()


# -- steps ----------------------------------------------------------------------------------------

SPOILED = -1.0  # no temperature that there can be
#: The ways that need no list of points.
GRID, HANDED = "grid", "persistent"


class Simulation:
    """A way with a state of its own, by which all steps are computed, a part of them in each turn.
    All compute in the same two arrays, so that none has memory that is faster: ``resume`` puts a
    state there, and ``pause`` takes it away."""

    def __init__(
        self, problem: Problem, faces: Faces, fields: Sequence[Array], start: Array, way: Any
    ) -> None:
        self.problem, self._ghosts, self._fields = problem, faces.ghosts, fields
        self.begin(start)
        self.communication = Stopwatch()
        self._start, self._finish = map(self.communication.timed, (way.start, way.finish))
        self._inner, *self._outer = [
            tuple(slice(*part.indices(n)[:2]) for part, n in zip(box[1:], start.shape, strict=True))
            for box in (faces.grid.interior, *faces.grid.boundary)
        ]

    def begin(self, start: Array) -> None:
        """Local. From this state on, no step is done."""
        self.state, self.steps, self._now = start.copy(), 0, 0

    def resume(self) -> None:
        """Local. Go on where this way has paused; ghosts that others have left are spoiled."""
        for field in self._fields:
            np.copyto(field, self.state)
            field.reshape(-1)[self._ghosts] = SPOILED

    def pause(self) -> None:
        """Local. Leave the arrays to others."""
        np.copyto(self.state, self._fields[self._now])

    def advance(self, steps: int) -> None:
        """Collective in the sense of MPI."""
        with np.errstate(all="ignore"):
            for _ in range(steps):
                old, new = self._fields[self._now], self._fields[1 - self._now]
                self._start(old)
                update(self.problem, old, new, self._inner)
                self._finish(old)
                for box in self._outer:
                    update(self.problem, old, new, box)
                self._now = 1 - self._now
        self.steps += steps


def update(problem: Problem, old: Array, new: Array, box: tuple[slice, ...]) -> None:
    """Local. The points in ``box`` of ``new``, one time step after ``old``."""
    target, (center, factor) = new[box], problem.weights
    np.multiply(old[box], center, target)
    for axis, part in enumerate(box):
        for offset in (-1, 1):
            moved = slice(part.start + offset, part.stop + offset)
            np.add(target, old[(*box[:axis], moved, *box[axis + 1 :])], target)
    np.multiply(target, factor, target)


def serial(problem: Problem, steps: int) -> Array:
    """Local. The whole state after so many steps, without blocks and halos."""
    axes = range(len(problem.shape))
    state = problem.initial([slice(0, length) for length in problem.shape])
    state = state[(slice(1, -1),) * len(axes)]
    center, factor = problem.weights
    with np.errstate(all="ignore"):
        for _ in range(steps):
            total = state * center
            for axis, periodic in enumerate(problem.periodic):
                width = [(1, 1) if each == axis else (0, 0) for each in axes]
                wide = np.pad(state, width, mode="wrap" if periodic else "constant")
                for part in (slice(None, -2), slice(2, None)):
                    total += wide[(slice(None),) * axis + (part,)]
            state = total * factor
    return state


# -- the command ----------------------------------------------------------------------------------

SHAPE, BOUNDARY, DTYPE = (2048, 2048), ("fixed",), "float64"
CHECKPOINT = "heat", "temperature"  # its command and field
WARM_UP = 4  # steps before the first round, which begins again at the start
REMARK = (
    "An iteration is a time step, by the slowest rank; a time is the mean over the steps of a "
    "round. communication: what the ranks spend with their ghosts, waiting included, on average. "
    "The temperatures of all ways must be the same bytes."
)


def _problem(options: Options) -> Problem:
    """Local. What is to be computed; :class:`CommandError` for what cannot be."""
    shape = tuple(options.shape or SHAPE)
    if len(shape) not in (2, 3):
        raise CommandError(f"--shape: {len(shape)} axes, two or three are possible")
    names = conditions(options.boundary or BOUNDARY, len(shape))
    periodic = tuple(name == PERIODIC for name in names)
    problem = Problem(shape, periodic, np.dtype(options.dtype or DTYPE), dt=options.dt)
    if problem.step > problem.stable_dt:
        raise CommandError(
            f"--dt {problem.step:g} is unstable: on this grid the largest stable time step is "
            f"h**2 / (2 d) = {problem.stable_dt:.6g}"
        )
    return problem


def _start(comm: MPI.Intracomm, options: Options) -> tuple[Problem, int]:
    """Collective. What is to be computed, and how many steps are done; :class:`CommandError` for
    what an option wants otherwise than the checkpoint."""
    if options.restart is None:
        return _problem(options), 0
    steps, found = Checkpoint(comm, options.restart, *CHECKPOINT).read()
    periodic = [bool(around) for around in found["periodic"]]
    there: dict[str, Any] = {
        "shape": [int(n) for n in found["shape"]],
        "boundary": [PERIODIC if around else "fixed" for around in periodic],
        "dtype": str(found["dtype"]),
        "dt": float(found["dt"]),
    }
    for name, value in there.items():
        wanted = getattr(options, name)
        if name == "boundary" and wanted is not None:
            wanted = list(conditions(wanted, len(periodic)))
        if wanted not in (None, value):
            raise CommandError(f"{options.restart}: {name} is {value}, not {wanted}")
    return _problem(options.but(**there)), steps


def run(comm: MPI.Intracomm, options: Options) -> int:
    """Collective. The command; its exit code is 1 where a verification failed."""
    wanted = ways_of(options.comm, {**ways(), GRID: None, HANDED: None}, REFERENCE)
    check_checkpoint(options)
    problem, done = _start(comm, options)
    steps = options.save_every or max(1, options.steps // options.repeats)
    steps = min(steps, options.steps)
    rounds = options.steps // steps
    pattern = {**_facts(problem), "steps": options.steps, "ranks": comm.size}
    report = Report("heat", options.settings(), pattern, remarks=[REMARK], baseline=REFERENCE)

    opened = partial(_opened, options, problem, done, rounds, steps, wanted)
    case = Case({}, [{METHOD: name} for name in wanted], opened, against=(REFERENCE, HANDED),
                rest="compute", keep=options.checkpoint is None)  # fmt: skip
    sweep(comm, options.but(iterations=rounds, seconds=inf), report, [case], "heating")
    return report.end(comm, options)


def _facts(problem: Problem) -> dict[str, Any]:
    return {**asdict(problem), "dtype": problem.dtype.name, "dt": problem.step}


def _opened(
    options: Options, problem: Problem, done: int, rounds: int, steps: int, wanted: Any,
    comm: MPI.Intracomm, stack: ExitStack,
) -> Make:
    """Collective. The grid and the state at the start, and what makes a way."""
    given = [0 if entry == "auto" else entry for entry in options.process_grid or ()]
    dims = given + [1 if given else 0] * (len(problem.shape) - len(given))
    grid = Grid(comm, problem.shape, periodic=problem.periodic, dims=dims, ghosts="faces")
    stack.callback(grid.Free)
    fields = [grid.zeros(dtype=problem.dtype) for _ in range(2)]
    start = problem.initial(grid.box)
    if options.restart is not None:
        file = Checkpoint(comm, options.restart, *CHECKPOINT)
        file.load(done, partial(read_field, grid, fields[0]))
        grid.update(fields[0])
        start = fields[0].copy()
    cart = cart_of(grid)
    stack.callback(cart.Free)
    requests: dict[str, Callable[[Array], Any]] = {
        GRID: grid.halo, HANDED: lambda field: ByHand(cart, field, at_once(len(grid.dims), 1)),
    }  # fmt: skip
    faces = Faces(grid)
    info = {"expected_iterations": str(options.steps), **dict(options.info)}
    need = Need(comm, faces.pattern, problem.dtype, info)
    expected: list[Any] = []
    first: list[str] = []

    def make(labels: Labels) -> Variant:
        name = labels[METHOD]
        way: Any = (Straight(fields, requests[name]) if name in requests
                    else Scattered(faces, wanted[name](need)))
        one = Simulation(problem, faces, fields, start, way)
        leads = not first
        first.append(name)

        def warm_up() -> None:
            one.resume()
            one.advance(min(WARM_UP, steps))
            one.begin(start)

        def after() -> None:
            if one.steps == rounds * steps:  # what is left are too few to be timed
                one.advance(options.steps - one.steps)
            one.pause()
            due = options.save_every is not None or one.steps == options.steps
            if leads and due and options.checkpoint is not None:
                write = partial(write_field, grid, one.state)
                to = Checkpoint(comm, options.checkpoint, *CHECKPOINT)
                to.save(done + one.steps, _facts(problem), write)

        def check() -> Verdict | None:
            if not one.steps:
                return None
            field = grid.gather(one.state, 0, tuple(slice(0, n) for n in problem.shape))
            if leads and options.verify:
                expected[:] = [by_rank_0(comm, partial(serial, problem, done + one.steps))]
            elif leads:
                expected[:] = [field]
            differing = partial(_differing, field, expected[0], one.steps)
            found = Verdict(from_rank_0(comm, differing), 0.0)
            return None if leads and not options.verify else found

        return Variant(
            partial(one.advance, steps), check, before=one.resume, after=after, first=warm_up,
            parts={"communication": one.communication}, free=way.free, used=way.label,
            steps=lambda: float(steps),
        )  # fmt: skip

    return make


def _differing(field: Any, expected: Any, steps: int) -> float:
    """Local. The part of the points whose bytes are others; both fields are there on rank 0."""
    if not np.isfinite(field).all():
        raise CommandError(f"the temperature is not finite after {steps} steps")
    bits = np.dtype(f"u{field.dtype.itemsize}")
    one, other = (np.ascontiguousarray(each).view(bits) for each in (field, expected))
    return float(np.count_nonzero(one != other) / field.size)
