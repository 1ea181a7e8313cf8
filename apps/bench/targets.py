"""What the FFT has to reach, and in which cases: the numbers of the benchmark's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from onesided.apps.cli.report import NOTHING, Row, duration

PEER, LOCAL, FFTW_MPI = "mpi4py-fft", "local work", "FFTW-MPI"
#: A time that is no opponent's.
BUDGET = "30 ms"
#: With what ours can be compared, by the words of ``--against``.
OPPONENTS = {"mpi4py-fft": PEER, "local-work": LOCAL, "fftw-mpi": FFTW_MPI}

#: Over a slow link: most that the best any-order one-sided method may take, in times of ``mpi``,
#: and ``auto`` in times of the best method.
SLOW_LINK = 1.05


@dataclass(frozen=True)
class Target:
    """A bound for a ratio of times, in each direction, on so many ranks.

    ``least``: at least so many times as fast as the opponent; else the time is at most so many
    times the opponent's.
    """

    opponent: str
    bound: float
    least: bool = True

    def reached(self, ours: Sequence[float], theirs: Sequence[float]) -> float:
        """Local. The median of the ratios of times taken in the same round."""
        pairs = zip(ours, theirs, strict=True)
        return median(b / a if self.least else a / b for a, b in pairs)

    def met(self, reached: float) -> bool:
        """Local. Whether that is good enough."""
        return reached >= self.bound if self.least else reached <= self.bound

    @property
    def words(self) -> str:
        """Local. What the ratio is to be."""
        return "at least" if self.least else "at most"


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


_FIRST, _RECALLED = Target(PEER, 2.0, least=False), Target(BUDGET, 1.0, least=False)
_FFTW = "fftw"  # mpi4py-fft's, so that both sides have the same

CASES = (
    Case((64, 64, 64), "float64", _all_three(3.0, 1.4, 1.1), setups=(_FIRST,)),
    Case((128, 128, 128), "float64", _all_three(3.5, 1.8, 0.8), setups=(_FIRST, _RECALLED)),
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


# Rows of a benchmark that compare ours with one opponent, and what is to be reached.


@dataclass
class Comparison(Row):
    """One thing of ours against one opponent; of the table only what is compared.

    ``aim``: what is compared, and the bound, which is no target unless ``values`` has it.
    """

    aim: Target | None = None

    def cells(self) -> dict[str, str]:
        """Local. For the table."""
        if self.reason:
            return dict(self.labels)
        target, reached = self.values["target"], self.values["reached"]
        return {
            **{name: text for name, text in self.labels.items() if name != "bound"},
            "ours": duration(median(self.times)),
            "opponent's": duration(median(self.details["opponent's"])),
            "reached": f"{reached:.2f}",
            "target": NOTHING if target is None else f"{self.labels['bound']} {target:.2f}",
        }

    def record(self) -> dict[str, Any]:
        """Local. For JSON, with every time of the opponent, in the order of ours."""
        theirs = self.details.get("opponent's")
        more = {} if theirs is None else {"opponents_times_s": list(theirs)}
        return super().record() | more

    @property
    def wanted(self) -> bool:
        """Local. Whether there is a target."""
        return self.values.get("target") is not None

    @property
    def missed(self) -> str:
        """Local. In words, what was not reached; empty where it was, or nothing is wanted."""
        reached = self.values.get("reached")
        if self.aim is None or reached is None or not self.wanted or self.aim.met(reached):
            return ""
        left_out = ("bound", "opponent")
        what = " ".join(text for name, text in self.labels.items() if name not in left_out)
        return (
            f"{what} against {self.aim.opponent}: {reached:.2f}, "
            f"{self.aim.words} {self.aim.bound:.2f} is wanted"
        )


def comparison(
    labels: Mapping[str, str],
    ours: Sequence[float],
    theirs: Sequence[float],
    aim: Target,
    *,
    wanted: bool,
    nbytes: int = 0,
) -> Comparison:
    """Local. Times of the same rounds; ``aim`` names the opponent, ``wanted``: it is a target."""
    return Comparison(
        {**labels, "opponent": aim.opponent, "bound": aim.words},
        ours,
        nbytes=nbytes,
        details={"opponent's": theirs},
        values={"target": aim.bound if wanted else None, "reached": aim.reached(ours, theirs)},
        aim=aim,
    )


def any_missed(rows: Sequence[Row]) -> bool:
    """Local. Whether a target has not been reached."""
    return any(isinstance(row, Comparison) and bool(row.missed) for row in rows)


def conclusions(rows: Sequence[Row], nothing: str) -> list[str]:
    """Local. How many targets have been reached, and which not; ``nothing``: if none is set."""
    wanted = [row for row in rows if isinstance(row, Comparison) and row.wanted]
    missed = [row.missed for row in wanted if row.missed]
    if not wanted:
        return [nothing]
    counted = f"{len(wanted) - len(missed)} of {len(wanted)} targets reached"
    return [counted, *(f"missed: {each}" for each in missed)]
